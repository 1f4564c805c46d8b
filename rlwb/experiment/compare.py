"""Methods on the same orders: each learner a run of its own, all of them in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.backtest import backtest_policies, read_results
from rlwb.experiment.config import SLOTS, RunConfig, parse_assignments
from rlwb.experiment.layers import Layer, build, nested
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.pipeline import check_config, stop_on_terminate
from rlwb.experiment.report import OrderAudit, audit_order
from rlwb.experiment.run import RunDirectory, default_run_directory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.experiment.yamlfile import parse_yaml, read_yaml
from rlwb.files import atomic_path, write_text
from rlwb.parts import names, settings_of
from rlwb.values import shown, suggestion

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table

_WORK = {ORDERS: make_orders, TRAIN: train_policy, BACKTEST: backtest_policies}


@dataclass(frozen=True)
class Method:
    """A learner of the comparison: its title, and its own parts and settings on top of those that all share."""

    title: str
    changes: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, Method] = {
    "ddqn": Method("DDQN", {"algorithm": "dqn"}),
    "ppo": Method("PPO", {"algorithm": "ppo"}),
    "ppo_sparse": Method("PPO, sparse reward", {"algorithm": "ppo", "reward": "sparse"}),
    "opd": Method("OPD", {"algorithm": "opd"}),
    "ppo_convolution": Method("PPO, convolution", {"algorithm": "ppo", "network": "convolution"}),
    "ppo_attention": Method("PPO, attention", {"algorithm": "ppo", "network": "attention"}),
    "ppo_mlp": Method("PPO, order's state alone", {"algorithm": "ppo", "network": "mlp"}),
}
"""Name to learner, in the order of the table."""


def parse_methods(words: Iterable[str]) -> dict[str, Method]:
    """Return the methods that ``--method`` options name: a name of `METHODS`, or ``mine={network: mine.py:LSTM}``."""
    chosen: dict[str, Method] = {}
    for word in words:
        name, own, text = word.partition("=")
        if own:
            changes = parse_yaml(text, f"--method {name}")
            if not isinstance(changes, dict):
                raise ConfigError(f"--method {name} is {shown(changes)}; write it as {name}={{algorithm: dqn}}.")
            chosen[name] = Method(name, changes)
        elif name in METHODS:
            chosen[name] = METHODS[name]
        else:
            raise ConfigError(f"there is no method {name!r} to compare; {suggestion(name, METHODS)}")
    return chosen


def method_configs(
    methods: Mapping[str, Method] = METHODS, file: Path | None = None, *changes: Layer
) -> dict[str, RunConfig]:
    """Return the configuration of each method, from what is said once for all of them.

    A setting of a part, like ``algorithm.distillation``, goes to the methods whose part has it; one that none has is
    refused, as is what `RunConfig.load` refuses.
    """
    if not methods:
        raise ConfigError(f"no method was named; choose among {', '.join(METHODS)}.")
    layers = [] if file is None else [Layer(str(file), read_yaml(file), file.parent)]
    shared = [Layer(layer.origin, nested(layer, SLOTS)) for layer in (*layers, *changes)]
    own = [Layer(f"method {name}", nested(Layer(name, one.changes), SLOTS)) for name, one in methods.items()]
    fitting = [[Layer(layer.origin, _fitting(layer.values, one.values)) for layer in shared] for one in own]
    configs = {}
    for name, fitted, one in zip(methods, fitting, own, strict=True):
        config = build(RunConfig, [*fitted, one], SLOTS)
        if not any("baselines" in layer.values for layer in shared):
            has_cap = config.execution.rules.volume_limit is not None
            every = [beside for beside in names("baseline") if has_cap or beside != "hindsight_uncapped"]
            config = build(RunConfig, [Layer("", config.as_dict()), Layer("", {"baselines": every})], SLOTS)
        configs[name] = config
    for number, layer in enumerate(shared):
        for slot, given in layer.values.items():
            for key in given if slot in SLOTS and isinstance(given, Mapping) else ():
                if not any(key in fitted[number].values[slot] for fitted in fitting):
                    raise ConfigError(
                        f"{layer.origin}: {slot}.{key} has no effect on any of {', '.join(methods)}; drop it or "
                        "compare a method that uses it."
                    )
    return configs


def _fitting(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared values less the settings that the parts of a method's own do not have."""
    fitting = dict(shared)
    for slot, part in own.items():
        given = shared.get(slot)
        if slot not in SLOTS or not isinstance(given, Mapping) or "name" not in part:
            continue
        known = settings_of(SLOTS[slot], part["name"])
        fitting[slot] = {"name": part["name"]}
        if known is not None and given.get("name", part["name"]) == part["name"]:
            has = {one.name for one in known.settings}
            fitting[slot] |= {key: value for key, value in given.items() if known.is_open or key in has}
    return fitting


def launch_comparison(
    config_file: Path | None,
    changes: Sequence[str],
    folder: Path | None,
    methods: Sequence[str],
    *,
    resume: bool,
    echo: Callable[[str], None] = print,
) -> Table:
    """Do what ``rlwb compare`` asks for: compare methods in a new folder, or go on in one; no `methods` means all."""
    if resume and folder is None:
        raise ConfigError("--resume needs the comparison to go on with; name its directory with --run-dir.")
    chosen = parse_methods(methods) if methods else METHODS
    configs = method_configs(chosen, config_file, parse_assignments(changes))
    for config in configs.values():
        check_config(config)
    if folder is not None and not resume and folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds something already; go on there with --resume, or choose another directory.")
    folder = folder or default_run_directory("comparison")
    echo(f"comparison: {folder}")
    stop_on_terminate()
    try:
        table = compare(folder, configs, titles={name: one.title for name, one in chosen.items()}, echo=echo)
    except BaseException:
        echo(f"What is finished is kept; go on with the same words and --resume --run-dir {folder}")
        raise
    echo(table.to_markdown().rstrip())
    return table


def compare(
    folder: Path,
    configs: Mapping[str, RunConfig],
    *,
    titles: Mapping[str, str] | None = None,
    echo: Callable[[str], None] = print,
) -> Table:
    """Train and judge every method on the same orders; write ``comparison.csv``, ``comparison.md`` and ``.html``.

    Each method's run is the folder of its name; what is there and unchanged is not done again. `titles` are what the
    table calls the methods, by default as in `METHODS`, else their names.

    Returns
    -------
    Table
        Baselines first, then the learners. A learner is judged by its one checkpoint with the best validation PA.
    """
    from rlwb.evaluation import comparison
    from rlwb.evaluation.page import encoded, render
    from rlwb.evaluation.plots import method_intervals
    from rlwb.evaluation.results import PA_TITLES

    known = {name: one.title for name, one in METHODS.items()} | dict(titles or {})
    methods = {name: known.get(name, name) for name in configs}
    for name, config in configs.items():
        echo(f"{name}: {methods[name]}")
        path = folder / name
        run = RunDirectory.open(path) if RunDirectory(path).is_run() else RunDirectory.create(path, config)
        with recorded(run, list(_WORK)):
            for stage, work in _WORK.items():
                run_stage(stage, run, config, work, echo=lambda line: echo(f"  {line}"))

    config = RunDirectory.open(folder / next(iter(configs))).config
    settings, rules = config.backtest, config.execution.rules
    table = comparison(
        {**_beside(folder, configs), **best_results(folder, methods)},
        level=settings.confidence,
        resamples=settings.bootstrap_samples,
        seed=config.seed,
        notes=[
            f"Of each learner the checkpoint with the best validation {PA_TITLES[rules.judged_by]}.",
            "All methods traded the same orders.",
            "Intervals hold the luck of the days, not that of the seed: each learner was trained once.",
            f"Rules: {rules.describe()}.",
        ],
    )
    with atomic_path(folder / "comparison.csv") as target:
        table.frame.rename(columns={"policy": "method"}).to_csv(target, index=False)
    write_text(folder / "comparison.md", table.to_markdown())
    shown = {"header": table.header, "rows": table.rows, "notes": table.notes}
    figure = encoded(method_intervals(table))
    write_text(folder / "comparison.html", render("comparison.html", title=folder.name, figure=figure, **shown))
    return table


def _beside(folder: Path, methods: Iterable[str]) -> dict[str, PolicyResult]:
    """Return title to result of what stands beside the learners: schedules, the same in every run, then ceilings."""
    beside: dict[str, PolicyResult] = {}
    for name in methods:
        for result in read_results(RunDirectory.open(folder / name)):
            if result.kind not in ("checkpoint", "last"):
                beside.setdefault(result.display_name, result)
    return dict(sorted(beside.items(), key=lambda item: item[1].kind != "baseline"))


def best_results(folder: Path, methods: Mapping[str, str]) -> dict[str, PolicyResult]:
    """Return title to result of each learner's checkpoint with the best validation PA, from name to title."""
    return {title: _best(RunDirectory.open(folder / name)) for name, title in methods.items()}


def _best(run: RunDirectory) -> PolicyResult:
    """Return the result of the checkpoint with the best validation PA; the backtest writes them best first."""
    return next(result for result in read_results(run) if result.kind == "checkpoint")


def audit_method(folder: Path, method: str, order_id: str) -> OrderAudit:
    """Execute one test order again by a method of the table, a learner, a baseline or ``teacher``, tick by tick."""
    learners = sorted(path.parent.name for path in folder.glob("*/status.json"))
    if not learners:
        raise CheckpointError(f"{folder} holds no comparison; make one first.")
    tables = {name: folder / name / "backtest" / "orders" / f"{method}.parquet" for name in learners}
    beside = [name for name, table in tables.items() if table.is_file()]  # a teacher is in its student's run alone
    run = RunDirectory.open(folder / (method if method in learners else [*beside, learners[0]][0]))
    policy = _best(run).policy if method in learners else method
    return audit_order(run, workbench(run), policy, order_id)
