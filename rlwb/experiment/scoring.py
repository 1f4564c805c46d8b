"""Policies on orders: checkpoints, the teacher, baselines and ceilings, each with its result; and one order again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.errors import CheckpointError
from rlwb.execution import AmountActionInterpreter, Baseline, KnownStateInterpreter, OrderBatch
from rlwb.experiment.ceilings import Hindsight
from rlwb.experiment.config import label
from rlwb.experiment.run import RunDirectory, read_json
from rlwb.experiment.training import teacher_checkpoints
from rlwb.experiment.workbench import Workbench
from rlwb.interpreter import ActionInterpreter, StateInterpreter

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult
    from rlwb.simulator import Simulator
    from rlwb.trainer import Episodes

#: What acts, what it sees, and what its answers mean.
Playable = tuple[Any, StateInterpreter[Any], ActionInterpreter[Any]]


def checkpoint_policy(bench: Workbench, path: Path) -> Playable:
    """Return the policy of a checkpoint with its interpreters."""
    from rlwb.trainer import load_checkpoint

    learner, features = bench.restore(load_checkpoint(path), path)
    return learner, bench.state_interpreter(features), bench.action_interpreter


def teacher_policy(run: RunDirectory, bench: Workbench) -> tuple[Playable, int]:
    """Return the run's teacher with its interpreters, and its iteration.

    Raises
    ------
    CheckpointError
        When there is none.
    """
    from rlwb.trainer import find_resumable, load_checkpoint

    path, _ = find_resumable(teacher_checkpoints(run))
    if path is None:
        raise CheckpointError(
            f"{teacher_checkpoints(run)} has no checkpoint of the teacher; run the stage train again."
        )
    teacher, features = bench.restore_teacher(load_checkpoint(path), path)
    return (teacher, bench.state_interpreter(features), bench.action_interpreter), int(path.stem)


def make_baselines(bench: Workbench, estimates: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the configured baselines and ceilings by what tables call them.

    Parameters
    ----------
    estimates
        What each was told about the market, from its ``state_dict``; without it they know nothing yet.
    """
    made = {label(part): bench.make("baseline", part) for part in bench.config.baselines}
    for name, one in made.items():
        if estimates is not None and isinstance(one, Baseline):
            one.load_state_dict(estimates[name])
    return made


def estimates_of(baselines: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each baseline was told about the market, in plain values."""
    return {name: one.state_dict() for name, one in baselines.items() if isinstance(one, Baseline)}


def play(bench: Workbench, playable: Playable, orders: OrderBatch, simulator: Simulator[Any] | None = None) -> Episodes:
    """Run a policy greedily on orders, as validation does, in the run's market or in another `simulator`."""
    from rlwb.trainer import backtest

    policy, sees, acts = playable
    return backtest(simulator or bench.simulator, sees, orders, acts, policy, reward=bench.reward)


def result(name: str, kind: Any, orders: OrderBatch, episodes: Episodes, **known: Any) -> PolicyResult:
    """Return the result of a policy that was run."""
    from rlwb.evaluation import PolicyResult
    from rlwb.trainer import result_table

    table = result_table(orders.table, episodes)
    return PolicyResult(name, kind, table, inventory=episodes.details.get("inventory"), **known)


def baseline_result(bench: Workbench, name: str, baseline: Any, orders: OrderBatch) -> PolicyResult:
    """Return the result of a baseline, or the ceiling of the same orders."""
    from rlwb.evaluation import PolicyResult

    if isinstance(baseline, Hindsight):
        return PolicyResult(name, "ceiling", baseline.table(orders))
    return result(name, "baseline", orders, play(bench, _baseline(baseline), orders))


def _baseline(baseline: Any) -> Playable:
    return baseline, KnownStateInterpreter(), AmountActionInterpreter()


def find_policy(run: RunDirectory, bench: Workbench, name: str) -> Playable:
    """Return a policy of the summary with its interpreters.

    Raises
    ------
    CheckpointError
        When there is no such policy, or it is a ceiling, which trades nothing.
    """
    from rlwb.trainer import list_checkpoints

    baselines = make_baselines(bench)
    if isinstance(baselines.get(name), Hindsight):
        raise CheckpointError(f"{name} is a ceiling and no policy, so it has no trades to show; name a policy.")
    if name in baselines:
        return _baseline(make_baselines(bench, read_json(run.backtest / "baselines.json"))[name])
    paths = list_checkpoints(run.checkpoints)
    named: dict[str, Callable[[], Playable]] = {}
    for iteration, path in paths.items():
        named[f"checkpoint-{iteration:04d}"] = named["last"] = lambda path=path: checkpoint_policy(bench, path)  # type: ignore[misc]
    if list_checkpoints(teacher_checkpoints(run)):
        named["teacher"] = lambda: teacher_policy(run, bench)[0]
    if name not in named:
        raise CheckpointError(f"the run has no policy {name!r}; it has {', '.join([*named, *baselines])}.")
    return named[name]()


def validation_figure(run: RunDirectory, bench: Workbench, folder: str, iteration: int) -> float:
    """Return the validation PA, net under rules with costs, of an iteration; NaN for one without."""
    from rlwb.evaluation import read_validation

    table = read_validation(run.metrics / folder / "validation.csv").set_index("iteration")
    return float(table[bench.config.execution.rules.judged_by].get(iteration, np.nan))
