"""Methods on the same orders: each learner a run of its own, all of them in one table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.backtest import backtest_policies, read_results
from rlwb.experiment.config import SLOTS, RunConfig
from rlwb.experiment.layers import Layer, build, nested
from rlwb.experiment.manifest import begin_manifest, end_manifest
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stage import run_stage
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN
from rlwb.experiment.training import train_policy
from rlwb.experiment.views import OrderAudit, audit_order
from rlwb.experiment.yamlfile import parse_yaml, read_yaml
from rlwb.files import atomic_path, write_text
from rlwb.parts import names, settings_of
from rlwb.values import suggestion

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table

_STAGES = ((ORDERS, make_orders), (TRAIN, train_policy), (BACKTEST, backtest_policies))


@dataclass(frozen=True)
class Method:
    """A learner of the comparison.

    Attributes
    ----------
    title
        How the table names it.
    changes
        Its own parts and settings, as in a configuration, on top of those that all methods share.
    """

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
    """Return the methods that ``--method`` options name: a name of `METHODS`, or ``mine={network: mine.py:LSTM}``.

    Raises
    ------
    ConfigError
        For an unknown name, with the nearest, and for what is not YAML.
    """
    chosen: dict[str, Method] = {}
    for word in words:
        name, own, text = word.partition("=")
        if own:
            changes = parse_yaml(text, f"--method {name}")
            if not isinstance(changes, dict):
                raise ConfigError(f"--method {name} is {changes!r}; write it as {name}={{algorithm: dqn}}.")
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

    A setting of a part, like ``algorithm.distillation``, goes to the methods whose part has it.

    Parameters
    ----------
    methods
        Name to method.
    file, changes
        See `RunConfig.load`.

    Raises
    ------
    ConfigError
        For a setting that none of the methods has, and what `RunConfig.load` refuses.
    """
    if not methods:
        raise ConfigError(f"no method was named; choose among {', '.join(METHODS)}.")
    layers = [] if file is None else [Layer(str(file), read_yaml(file), file.parent)]
    shared = [(layer.origin, nested(layer, SLOTS)) for layer in (*layers, *changes)]
    used: set[tuple[str, str, str]] = set()
    configs = {}
    for name, method in methods.items():
        own = nested(Layer(f"method {name}", method.changes), SLOTS)
        fitting = [Layer(origin, _fitting(tree, own, origin, used)) for origin, tree in shared]
        config = build(RunConfig, [*fitting, Layer(f"method {name}", method.changes)], SLOTS)
        if not any("baselines" in tree for _, tree in shared):
            has_cap = config.execution.rules.volume_limit is not None
            every = [one for one in names("baseline") if has_cap or one != "hindsight_uncapped"]
            config = build(RunConfig, [Layer("", config.as_dict()), Layer("", {"baselines": every})], SLOTS)
        configs[name] = config
    for origin, tree in shared:
        said = [(slot, key) for slot in SLOTS if isinstance(tree.get(slot), Mapping) for key in tree[slot]]
        for slot, key in said:
            chosen_by_all = all(slot in nested(Layer("", one.changes), SLOTS) for one in methods.values())
            if chosen_by_all and (origin, slot, key) not in used:
                raise ConfigError(
                    f"{origin}: {slot}.{key} has no effect on any of {', '.join(methods)}; drop it or compare a method "
                    "that uses it."
                )
    return configs


def _fitting(
    tree: Mapping[str, Any], own: Mapping[str, Any], origin: str, used: set[tuple[str, str, str]]
) -> dict[str, Any]:
    """Return shared values less the settings that a method's own parts do not have; note in `used` what stays."""
    fitting = dict(tree)
    for slot, part in own.items():
        if slot not in SLOTS or not isinstance(tree.get(slot), Mapping):
            continue
        found = settings_of(SLOTS[slot], part["name"])
        known = {one.name for one in found.settings} if found else set()
        kept = {
            key: value for key, value in tree[slot].items() if key in known or (found is not None and found.is_open)
        }
        if tree[slot].get("name", part["name"]) != part["name"]:
            kept = {}
        used |= {(origin, slot, key) for key in (*kept, "name")}
        fitting[slot] = {**kept, "name": part["name"]}
    return fitting


def compare(
    folder: Path,
    configs: Mapping[str, RunConfig],
    *,
    titles: Mapping[str, str] | None = None,
    echo: Callable[[str], None] = print,
) -> Table:
    """Train and judge every method on the same orders; write ``comparison.csv``, ``comparison.md`` and ``.html``.

    Parameters
    ----------
    folder
        Where; each method's run is the folder of its name. What is there and unchanged is not done again.
    configs
        Name to configuration, from `method_configs`.
    titles
        Name to what the table calls it; by default as in `METHODS`, else the name.
    echo
        Receives lines on what happens.

    Returns
    -------
    Table
        Baselines first, then the learners. A learner is judged by its one checkpoint with the best validation PA.
    """
    from rlwb.evaluation.page import encoded, render
    from rlwb.evaluation.plots import method_intervals

    titles = {name: (titles or {}).get(name) or _title(name) for name in configs}
    for name, own in configs.items():
        echo(f"{name}: {titles[name]}")
        _run_pending_stages(folder / name, own, echo)
    table = compared(folder, titles)
    with atomic_path(folder / "comparison.csv") as path:
        table.frame.rename(columns={"policy": "method"}).to_csv(path, index=False)
    write_text(folder / "comparison.md", table.to_markdown())
    shown = {"header": table.header, "rows": table.rows, "notes": table.notes}
    figure = encoded(method_intervals(table))
    write_text(folder / "comparison.html", render("comparison.html", title=folder.name, figure=figure, **shown))
    return table


def _title(name: str) -> str:
    return METHODS[name].title if name in METHODS else name


def compared(folder: Path, methods: Mapping[str, str] | Sequence[str] = tuple(METHODS)) -> Table:
    """Return the table of methods, by name or by name and title, whose runs are finished."""
    from rlwb.evaluation import comparison
    from rlwb.evaluation.results import PA_TITLES

    config = RunDirectory.open(folder / next(iter(methods))).config
    settings, rules = config.backtest, config.execution.rules
    notes = [
        f"Of each learner the checkpoint with the best validation {PA_TITLES[rules.judged_by]}.",
        "All methods traded the same orders.",
        "Intervals hold the luck of the days, not that of the seed: each learner was trained once.",
        f"Rules: {rules.describe()}.",
    ]
    return comparison(
        {**_fixed(folder, list(methods)), **best_results(folder, methods)},
        level=settings.confidence,
        resamples=settings.bootstrap_samples,
        seed=config.seed,
        notes=notes,
    )


def best_results(folder: Path, methods: Mapping[str, str] | Sequence[str] = tuple(METHODS)) -> dict[str, PolicyResult]:
    """Return title to result of each learner's checkpoint with the best validation PA."""
    titles = methods if isinstance(methods, Mapping) else {name: _title(name) for name in methods}
    return {title: _best(RunDirectory.open(folder / name)) for name, title in titles.items()}


def audit_method(folder: Path, method: str, order_id: str) -> OrderAudit:
    """Execute one test order again by a method of the table, a learner or a baseline, recording every tick.

    Parameters
    ----------
    method
        The name of a learner that was compared, a baseline's, or ``teacher``.
    """
    learners = sorted(path.parent.name for path in folder.glob("*/status.json"))
    if not learners:
        raise CheckpointError(f"{folder} holds no comparison; make one first.")
    tables = {name: folder / name / "backtest" / "orders" / f"{method}.parquet" for name in learners}
    beside = [name for name, table in tables.items() if table.is_file()]  # a teacher is in its student's run alone
    run = RunDirectory.open(folder / (method if method in learners else [*beside, learners[0]][0]))
    policy = _best(run).policy if method in learners else method
    return audit_order(run, workbench(run), policy, order_id)


def _run_pending_stages(path: Path, config: RunConfig, echo: Callable[[str], None]) -> None:
    """Run every stage of one run that is not finished."""
    made = RunDirectory(path).is_run()
    run = RunDirectory.open(path) if made else RunDirectory.create(path, config)
    begin_manifest(run, sys.argv)
    state = "failed"
    try:
        for stage, work in _STAGES:
            run_stage(stage, run, config, work, echo=lambda line: echo(f"  {line}"))
        state = "finished"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    finally:
        run.update_status(state=state)
        end_manifest(run, state)


def _fixed(folder: Path, methods: Sequence[str]) -> dict[str, PolicyResult]:
    """Return title to result of what stands beside the learners: schedules, the same in every run, then ceilings."""
    beside: dict[str, PolicyResult] = {}
    for name in methods:
        for result in read_results(RunDirectory.open(folder / name)):
            if result.kind not in ("checkpoint", "last"):
                beside.setdefault(result.display_name, result)
    return dict(sorted(beside.items(), key=lambda item: item[1].kind != "baseline"))


def _best(run: RunDirectory) -> PolicyResult:
    """Return the result of the checkpoint with the best validation PA; the backtest writes them best first."""
    return next(result for result in read_results(run) if result.kind == "checkpoint")
