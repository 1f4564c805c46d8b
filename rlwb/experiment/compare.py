"""Methods on the same orders: each learner a run of its own, all of them in one table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.errors import CheckpointError, ConfigError, FileError, RlwbError
from rlwb.experiment.backtest import backtest_policies, read_results, read_summary, with_settings
from rlwb.experiment.config import ATTAINABLE, SLOTS, RunConfig, baseline_labels, label, parse_assignments
from rlwb.experiment.feasible import check_feasible
from rlwb.experiment.folder import RunsFolder
from rlwb.experiment.layers import Layer, build, nested
from rlwb.experiment.ledger import told_looks
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.own_code import keep_code, require_trust
from rlwb.experiment.pipeline import check_config, stop_on_terminate
from rlwb.experiment.report import OrderAudit, audit_order
from rlwb.experiment.rolling import walk
from rlwb.experiment.run import (
    RunDirectory,
    asked_words,
    default_run_directory,
)
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, Stage, recorded, run_stage
from rlwb.experiment.tracked import tracked
from rlwb.experiment.training import train_policy
from rlwb.experiment.yamlfile import parse_yaml, read_yaml
from rlwb.files import atomic_path, write_text
from rlwb.parts import Part, names, settings_of
from rlwb.values import shown, suggestion

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table

#: Parts that make one method another.
_TOLD = ("algorithm", "network", "reward", "objective", "state_interpreter", "action_interpreter", "simulator")
_WORK = {ORDERS: make_orders, TRAIN: train_policy, BACKTEST: backtest_policies}


@dataclass(frozen=True)
class Method:
    """A learner of the comparison: its title, and its own parts and settings on top of those that all share."""

    title: str
    changes: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, Method] = {
    "dqn": Method("DQN", {"algorithm": "dqn"}),
    "ppo": Method("PPO", {"algorithm": "ppo"}),
    "all_actions": Method("worth of all actions", {"algorithm": "all_actions"}),
    "ppo_sparse": Method("PPO, sparse reward", {"algorithm": "ppo", "reward": "sparse"}),
    "opd": Method("OPD", {"algorithm": "opd"}),
    "pathwise": Method("pathwise", {"algorithm": "pathwise", "action_interpreter": "position_share"}),
    "ppo_recurrent": Method("PPO, recurrent", {"algorithm": "ppo", "network": "recurrent"}),
    "ppo_convolution": Method("PPO, convolution", {"algorithm": "ppo", "network": "convolution"}),
    "ppo_attention": Method("PPO, attention", {"algorithm": "ppo", "network": "attention"}),
    "ppo_mlp": Method("PPO, order's state alone", {"algorithm": "ppo", "network": "mlp"}),
}
"""Name to learner, in the order of the table."""


def parse_methods(words: Iterable[str]) -> dict[str, Method]:
    """Return the methods that ``--method`` options name: a name of `METHODS` or of an algorithm, or ``mine={…}``."""
    chosen: dict[str, Method] = {}
    for word in words:
        name, own, text = word.partition("=")
        if own and (not name.isprintable() or not re.fullmatch(r"[^./\\\s][^/\\]{0,99}", name)):
            raise ConfigError(f"--method {shown(name)} cannot be the name of a folder; write it as mine={{…}}.")
        if own:
            changes = parse_yaml(text, f"--method {name}")
            if not isinstance(changes, dict):
                raise ConfigError(f"--method {name} is {shown(changes)}; write it as {name}={{algorithm: dqn}}.")
            chosen[name] = Method(name, changes)
        elif name in METHODS:
            chosen[name] = METHODS[name]
        elif name in names("algorithm"):
            chosen[name] = Method(name, {"algorithm": name})
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
            # Trees are an extra.
            aside = {"forecast_trees", ATTAINABLE[0].name} | (set() if has_cap else {"hindsight_uncapped"})
            every: list[Any] = [beside for beside in names("baseline") if beside not in aside]
            every += [part.model_dump() for part in ATTAINABLE] if config.has_known_optimum else []
            config = build(RunConfig, [Layer("", config.as_dict()), Layer("", {"baselines": every})], SLOTS)
        configs[name] = config
    for number, layer in enumerate(shared):
        for slot, given in layer.values.items():
            for key, value in given.items() if slot in SLOTS and isinstance(given, Mapping) else ():
                fits = [
                    key in (part := fitted[number].values[slot]) and (key != "name" or part[key] == value)
                    for fitted in fitting
                ]
                # A file may be that of a run, whose parts the methods replace; words are meant for all methods.
                needed = all if key == "name" and number >= len(layers) else any
                if not needed(fits):
                    said = f"{slot}={value}" if key == "name" else f"{slot}.{key}"
                    idle = [name for name, does in zip(methods, fits, strict=True) if not does]
                    raise ConfigError(
                        f"{layer.origin}: {said} has no effect on {', '.join(idle)}; drop it or compare methods that "
                        "use it."
                    )
    return configs


def title(name: str, config: RunConfig) -> str:
    """Return what tables call a method: its title, and each part of the run that the title does not say."""
    known, default = METHODS.get(name, Method(name)), RunConfig()
    expected = {slot: Part.model_validate(known.changes.get(slot, getattr(default, slot))) for slot in _TOLD}
    own = [
        f"{slot} {label(getattr(config, slot))}" for slot in _TOLD if getattr(config, slot).name != expected[slot].name
    ]
    return f"{known.title} ({', '.join(own)})" if own else known.title


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
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
) -> Table:
    """Do what ``rlwb compare`` asks for: compare methods in a new folder, or go on in one; no `methods` means all.

    A comparison that is resumed without any words goes on with those that it was begun with.
    """
    if resume and folder is None:
        raise ConfigError("--resume needs the comparison to go on with; name its directory with --run-dir.")
    asked = {
        "file": str(config_file.absolute()) if config_file else None,
        "set": list(changes),
        "methods": list(methods),
    }
    if folder is not None and resume and not (config_file or changes or methods):
        configs, asked = remembered(folder)
    else:
        if folder is not None and resume:
            _folder(folder).refuse_nothing()
        chosen = parse_methods(methods) if methods else METHODS
        configs = method_configs(chosen, config_file, parse_assignments(changes))
    for config in configs.values():
        if resume:
            require_trust(config, given=trust_code)
        check_config(config)
    if folder is not None and not resume:
        _folder(folder).refuse_taken()
    folder = folder or default_run_directory("comparison")
    here = _folder(folder)
    here.refuse_others(configs, _WORK)  # whose words are no way to go on
    echo(f"comparison: {folder}")
    stop_on_terminate()
    try:
        table = compare(folder, configs, asked=asked, echo=echo)
    except BaseException as error:
        is_input = isinstance(error, RlwbError) and type(error) is not RlwbError
        words = _method_words(asked) if is_input else []
        correct = "Correct what is wrong, in the input or in these words. " if is_input else ""
        echo(f"{correct}What is finished is kept. Go on with: {here.resume(words)}")
        raise
    echo(table.to_markdown().rstrip())
    return table


def _folder(path: Path) -> RunsFolder:
    return RunsFolder(path, "comparison", "compare", "CONFIG, --method and --set")


def _method_words(asked: Mapping[str, Any]) -> list[str]:
    """Return the words that asked for a comparison."""
    return [*asked_words(asked), *(word for method in asked["methods"] for word in ("--method", method))]


def remembered(folder: Path) -> tuple[dict[str, RunConfig], dict[str, Any]]:
    """Return configurations by method, and the words, that the comparison in a folder was begun with.

    A folder that has none, or whose file is not as it was written, is a `ConfigError`.
    """
    here = _folder(folder)
    known = here.remembered()
    stored = {name: Layer(str(here.memory), one["config"], folder) for name, one in known["methods"].items()}
    configs = {name: RunConfig.load(None, layer) for name, layer in stored.items()}
    return configs, known["asked"]


def compare(
    folder: Path,
    configs: Mapping[str, RunConfig],
    *,
    asked: Mapping[str, Any] | None = None,
    echo: Callable[[str], None] = print,
) -> Table:
    """Train and judge every method on the same orders; write ``comparison.csv``, ``comparison.md`` and ``.html``.

    Each method's run is the folder of its name; what is there and unchanged is not done again. The table calls methods
    as in `METHODS`, others by their names, and says which parts are not those of the name. `asked` are the words that
    said all this.

    Returns
    -------
    Table
        Baselines first, then the learners. A learner is judged by its one checkpoint with the best validation PA.

    Raises
    ------
    ConfigError
        Where the folder has other methods as well, or runs of other settings that did not fail.
    """
    here = _folder(folder)
    here.refuse_others(configs, _WORK)
    titles = {name: title(name, config) for name, config in configs.items()}
    held = {name: {"config": keep_code(one, folder)} for name, one in configs.items()}
    said = dict(asked or {"file": None, "set": [], "methods": []})
    here.remember({"methods": held, "asked": said})
    for name, config in configs.items():
        echo(f"{name}: {titles[name]}")
        path = folder / name
        run = RunDirectory.open(path) if RunDirectory(path).is_run() else RunDirectory.create(path, config)
        do_stages(run, config, lambda line: echo(f"  {line}"))
    return _tables(folder, configs, titles)


def _tables(folder: Path, configs: Mapping[str, RunConfig], titles: Mapping[str, str]) -> Table:
    """Write the tables of methods whose runs are done, from their configurations and titles by name."""
    from rlwb.evaluation import comparison
    from rlwb.evaluation.page import render
    from rlwb.evaluation.pictures import picture
    from rlwb.evaluation.plots import method_intervals, rename
    from rlwb.evaluation.results import PA_TITLES

    config = RunDirectory.open(folder / next(iter(configs))).config
    settings, rules = config.backtest, config.execution.rules
    results = {**_beside(folder, configs), **best_results(folder, configs)}
    table = comparison(
        results,
        titles=titles,
        level=settings.confidence,
        resamples=settings.bootstrap_samples,
        seed=config.seed,
        rules=rules,
        notes=[
            f"Of each learner the checkpoint with the best validation {PA_TITLES[config.judged_by]}.",
            "All methods traded the same orders.",
            "Intervals hold the luck of the days, not that of the seed: each learner was trained once (one seed).",
            f"Rules: {rules.describe()}.",
            *told_looks([RunDirectory(folder / name) for name in configs], level=settings.confidence),
        ],
    )
    with atomic_path(folder / "comparison.csv") as target:
        with_settings(table.frame, config, configs).to_csv(target, index=False)
    write_text(folder / "comparison.md", table.to_markdown())
    shown = {"header": table.header, "rows": table.rows, "notes": table.notes, "risk": table.risk}
    figure = picture(rename(method_intervals(table), rules.name_pa))
    write_text(folder / "comparison.html", render("comparison.html", title=folder.name, figure=figure, **shown))
    return table


def do_stages(
    run: RunDirectory,
    config: RunConfig,
    echo: Callable[[str], None] = print,
    *,
    stages: Sequence[Stage] | None = None,
) -> None:
    """Do the stages of a run, by default those up to the backtest, or of each of its windows."""
    stages = tuple(_WORK) if stages is None else stages
    if config.split.rolling is not None:
        with recorded(run, ()), tracked(run, config):
            run.save_config(config)
            walk(run, config, lambda window, own: do_stages(window, own, lambda line: echo(f"  {line}")), echo=echo)
        return
    with recorded(run, stages), tracked(run, config):
        for stage in stages:
            run_stage(stage, run, config, _WORK[stage], echo=echo)


def finished_run(path: Path, config: RunConfig) -> RunDirectory:
    """Return the run in a directory, with its backtest done; where there is none, one of `config` is made."""
    run = RunDirectory(path)
    if not run.is_run():
        check_feasible(config, path)
        run = RunDirectory.create(path, config)
    if run.stage(BACKTEST.name).get("state") != "finished":
        do_stages(run, run.config)
    return run


def _beside(folder: Path, methods: Iterable[str]) -> dict[str, PolicyResult]:
    """Return name to result of what stands beside the learners: schedules, the same in every run, then ceilings."""
    beside: dict[str, PolicyResult] = {}
    for name in methods:
        for result in read_results(RunDirectory.open(folder / name)):
            if result.kind not in ("checkpoint", "last"):
                beside.setdefault(result.policy, result)
    return dict(sorted(beside.items(), key=lambda item: item[1].kind != "baseline"))


def best_results(folder: Path, methods: Iterable[str]) -> dict[str, PolicyResult]:
    """Return method to result of each learner's checkpoint with the best validation PA."""
    return {name: best_of(RunDirectory.open(folder / name)) for name in methods}


def best_of(run: RunDirectory, results: Sequence[PolicyResult] | None = None) -> PolicyResult:
    """Return the result of the checkpoint with the best validation PA; the backtest writes them best first."""
    found = [one for one in results or read_results(run) if one.kind == "checkpoint"]
    if not found:
        raise FileError(f"{run.backtest / 'summary.csv'} has no checkpoint; delete the folder and resume the run.")
    return found[0]


def audit_method(folder: Path, method: str, order_id: str) -> OrderAudit:
    """Execute one test order again by a policy of the table, tick by tick.

    `method` is a learner, whose best checkpoint acts, a baseline, ``teacher``, or a learner's policy such as
    ``ppo/checkpoint-0003``.
    """
    learners = sorted(path.parent.name for path in folder.glob("*/status.json"))
    if not learners:
        raise CheckpointError(f"{folder} holds no comparison; make one first.")
    learner, _, policy = method.rpartition("/")
    owners = [learner] if learner else [name for name in learners if policy in (name, *_policies(folder / name))]
    if len(owners) > 1 and not _is_shared(folder / owners[0], policy):
        raise CheckpointError(
            f"{policy} is a policy of {', '.join(owners)}; name one, for example {owners[0]}/{policy}."
        )
    run = RunDirectory.open(folder / (owners or learners)[0])
    if run.config.split.rolling is not None:
        raise CheckpointError(f"{run.path} is a run over windows; audit an order in the run of its window instead.")
    return audit_order(run, workbench(run), best_of(run).policy if policy in owners else policy, order_id)


def _policies(path: Path) -> list[str]:
    """Return the policies of a learner's backtest."""
    return list(read_summary(RunDirectory.open(path))["policy"])


def _is_shared(path: Path, policy: str) -> bool:
    """Tell whether a policy of a learner's backtest is the same in all of them."""
    return policy in baseline_labels(RunDirectory.open(path).config.baselines)
