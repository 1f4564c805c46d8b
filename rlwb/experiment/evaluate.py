"""``rlwb evaluate``: a finished run's checkpoints, and others' policies, judged on any orders, without training.

An evaluation is a directory like a run's, without the stage train. It keeps copies of what it judges: checkpoints and
metrics in the places of a run, and in the folder ``origin`` the run's configuration and orders, what its baselines were
told, and which checkpoints it chose.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.backtest import (
    Hindsight,
    baseline_result,
    checkpoint_policy,
    interval_of,
    policy_result,
    read_results,
    refuse_the_impossible,
    with_objective,
)
from rlwb.experiment.config import RunConfig, baseline_labels, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.ledger import day_hashes, hash_of, ledger_of, note, settings_hashes, told_look
from rlwb.experiment.orders import judged_orders, load_orders, locked_span, workbench
from rlwb.experiment.origin import COPIES, refuse_training_changes
from rlwb.experiment.own_code import require_trust, trust
from rlwb.experiment.pipeline import check_config, see_through
from rlwb.experiment.policies import (
    check_names,
    keep_policies,
    open_policy,
    require_trust_of_policies,
    told_of,
)
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, file_hashes, inputs_of
from rlwb.experiment.workbench import Workbench
from rlwb.experiment.yamlfile import read_yaml
from rlwb.files import atomic_path, write_json
from rlwb.market.calendar import day_of
from rlwb.reading import read_json, read_table

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult, Table


def launch_evaluation(
    path: Path,
    config_file: Path | None,
    changes: Sequence[str],
    run_dir: Path | None,
    *,
    policies: Mapping[str, str] | None = None,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
) -> RunDirectory:
    """Do what ``rlwb evaluate`` asks for: judge the run in `path`, whose files stay as they are, in another directory.

    Parameters
    ----------
    config_file, changes
        Parameters and assignments on top of the run's own.
    run_dir
        The evaluation's directory; None makes one beside the run.
    policies
        Name to source of policies made elsewhere that are judged beside the run's (`rlwb.experiment.policies`).
    trust_code
        Run the code that the run or a policy names, wherever it is from.
    """
    run = RunDirectory.open(path)
    layers = [] if config_file is None else [Layer(str(config_file), read_yaml(config_file), config_file.parent)]
    config = evaluated(run, *layers, parse_assignments(changes))
    trust(config, beside=run.config)
    require_trust(config, given=trust_code)
    check_config(config)
    check_names(policies or {}, baseline_labels(config.baselines))
    require_trust_of_policies(policies or {}, given=trust_code)
    bench = Workbench(config, cache_dir=run.path.parent / ".cache", is_elsewhere=True)
    bench.check()
    judged_orders(run, run, bench)
    if policies:  # what cannot be judged is told before any work
        _, sees, acts = checkpoint_policy(bench, _best_checkpoint(run))
        for name, source in policies.items():
            open_policy(name, source).playable(sees, acts)
    evaluation = begin_evaluation(run, config, run_dir, policies)
    echo(f"evaluation: {evaluation.path}")
    see_through(evaluation, config, echo=echo)
    return evaluation


@dataclass(frozen=True)
class Judged:
    """Policies made elsewhere beside those of a run, on the run's test orders.

    Attributes
    ----------
    results
        Name of a policy to its result, those of the run's backtest among them.
    table
        The headline of all.
    """

    results: Mapping[str, PolicyResult]
    table: Table

    def __str__(self) -> str:
        return self.table.to_text()

    def _repr_markdown_(self) -> str:
        return self.table.to_markdown()


def judge(run: RunDirectory | str | os.PathLike[str], policies: Mapping[str, Any], *, trust: bool = False) -> Judged:
    """Judge policies made elsewhere on the test orders of a finished run, beside its own; the run stays as it is.

    Each is a look at the test days, which is noted beside the run (`rlwb.experiment.ledger`).

    All orders are executed at once, under the run's rules, and the results pass the same checks: none may be above
    what the day's prices allow.

    Parameters
    ----------
    policies
        Name to a policy: a function, a model of Stable-Baselines3, or what ``rlwb evaluate --policy`` takes. A function
        is given the run's observations, N rows at once as the state interpreter declares them, or in another form that
        its attribute ``observation`` names (``"flat"``, ``"dict"``), and returns N actions. What it remembers of an
        episode it finds by its number, under a parameter ``episode``, beside ``episode_start``; ``action_masks`` tells
        which actions are worth a choice.
    trust
        Run the code in the files that policies name, wherever it is from.

    Raises
    ------
    ConfigError
        When a policy does not fit the run's observations or actions, or is not trusted, naming it.
    """
    from rlwb.evaluation import headline

    opened = run if isinstance(run, RunDirectory) else RunDirectory.open(run)
    config, results = opened.config, read_results(opened)
    check_names(policies, [one.policy for one in results])
    require_trust_of_policies(policies, given=trust)
    bench = workbench(opened, config)
    orders = bench.align(load_orders(opened, bench, "test"), bench.objective.middle)
    sees = checkpoint_policy(bench, _best_checkpoint(opened))[1]
    made = [open_policy(name, source) for name, source in policies.items()]
    added = [policy_result(bench, one, sees, orders) for one in made]
    if config.judged_by == "objective":
        added = [with_objective(bench, orders, one) for one in added]
    if config.simulator.name == "market":
        refuse_the_impossible(added, baseline_result(bench, "hindsight", Hindsight(bench.engine), orders))
    own, rules = read_json(opened.backtest / "selection.json"), config.execution.rules
    known = {"requested": config.backtest.top, "candidates": own.get("ranked"), "rules": rules, **interval_of(config)}
    table = headline([*results, *added], **known)
    whole, seedless = settings_hashes(opened, config)
    figures = [hashlib.blake2b(one.judged.tobytes(), digest_size=16).hexdigest() for one in added]
    look = note(
        ledger_of(opened),
        opened.path,
        day_hashes(bench.sessions, orders.table["date"]),
        by="judge",
        config=hash_of(whole, figures),
        settings=hash_of(seedless, figures),
    )
    table = dataclasses.replace(table, notes=(*told_of(made), *table.notes, told_look(look)))
    return Judged({one.policy: one for one in [*results, *added]}, table)


def _best_checkpoint(run: RunDirectory) -> Path:
    """Return the checkpoint that a finished backtest ranks first."""
    best = read_json(run.backtest / "selection.json")["chosen"][0]
    path = run.checkpoints / f"{int(best.rpartition('-')[2]):04d}.pt"
    if not path.is_file():
        raise CheckpointError(f"{path}, which the backtest chose, is gone; restore it.")
    return path


def evaluated(run: RunDirectory, *changes: Layer) -> RunConfig:
    """Return the configuration of an evaluation of a run: the run's own, with `changes` of what judging depends on.

    Without other test dates those of the run are kept.

    Raises
    ------
    ConfigError
        For a change of anything else, naming it, and for a run without a finished backtest.
    """
    if run.origin is not None:
        raise ConfigError(f"{run.path} is an evaluation itself; name the run that it judges.")
    if run.config.split.rolling is not None:
        raise ConfigError(f"{run.path} is a run over windows; name the run of one of them, in {run.path / 'windows'}.")
    known = run.stage(BACKTEST.name)
    if known.get("state") != "finished" or known.get("inputs") != inputs_of(BACKTEST, run):
        raise ConfigError(
            f"{run.path} has no finished backtest of the files that are there, so no checkpoints are chosen; "
            f"finish it first. {run.how_to_resume()}"
        )
    own = run.config
    config = run.load_config(*changes)
    refuse_training_changes(own, config)
    if config.split.locked != own.split.locked:
        raise ConfigError(f"split.locked is {own.split.locked} in the run; rlwb unlock opens what is locked, once.")
    test: Any = config.split.test
    if test == own.split.test:
        dates = read_table(run.orders / "test.parquet", "order_id")["date"]
        test = (f"{dates.min():%Y-%m-%d}", f"{dates.max():%Y-%m-%d}")
    elif isinstance(test, (int, float)):
        raise ConfigError(
            f"split.test is {test}, a share; an evaluation needs the first and the last date to judge on."
        )
    span = locked_span(run)  # by dates: a share would be one of other bars
    if span is not None and day_of(test[0]) <= day_of(span[1]) and day_of(test[1]) >= day_of(span[0]):
        raise ConfigError(
            f"split.test {test} meets the locked dates, {span[0]} to {span[1]}; rlwb unlock opens them, once."
        )
    return config.model_copy(update={"split": dataclasses.replace(config.split, test=test, locked=span)})


def begin_evaluation(
    run: RunDirectory, config: RunConfig, run_dir: Path | None = None, policies: Mapping[str, str] | None = None
) -> RunDirectory:
    """Make the directory of an evaluation, with copies of what it judges: checkpoints, and policies by their sources.

    Raises
    ------
    CheckpointError
        When the checkpoints that the run chose are not there any more.
    """
    from rlwb.trainer import find_resumable

    chosen = read_json(run.backtest / "selection.json")["chosen"]
    last, _ = find_resumable(run.checkpoints)
    names = {f"{int(name.rpartition('-')[2]):04d}.pt" for name in chosen} | ({last.name} if last else set())
    missing = [name for name in sorted(names) if not (run.checkpoints / name).is_file()]
    if missing:
        raise CheckpointError(f"{run.checkpoints / missing[0]}, which the backtest chose, is gone; restore it.")

    def fill(evaluation: RunDirectory) -> None:
        origin = RunDirectory(evaluation.path / "origin")
        kept = {f"checkpoints/{name}": evaluation for name in names}
        for folder in ("metrics", "checkpoints/teacher"):
            files = (path for path in (run.path / folder).rglob("[!.]*") if path.is_file() and not path.is_symlink())
            kept.update({path.relative_to(run.path).as_posix(): evaluation for path in files})
        kept.update(dict.fromkeys(("orders/train.parquet", "orders/valid.parquet"), origin))
        kept.update(dict.fromkeys(("backtest/baselines.json", "backtest/selection.json"), origin))
        for name, place in kept.items():
            with atomic_path(place.path / name) as target:
                shutil.copyfile(run.path / name, target)
        origin.save_config(run.config)
        keep_policies(evaluation, policies or {})
        copies = file_hashes(evaluation, COPIES)
        write_json(origin.path / "run.json", {"path": str(run.path), "copies": copies})

    return RunDirectory.create(run_dir or _beside(run), config, fill)


def _beside(run: RunDirectory) -> Path:
    """Return a new path beside a run, named after it."""
    names = (f"{run.path.name}-evaluation{'' if number == 1 else f'-{number}'}" for number in count(1))
    return next(path for name in names if not (path := run.path.parent / name).exists())
