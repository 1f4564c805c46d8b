"""A trained policy on orders, greedily, as validation ran it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.errors import CheckpointError
from rlwb.execution import OrderBatch, OrderExecutionFactory
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import teacher_checkpoints
from rlwb.experiment.workbench import Workbench

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult
    from rlwb.market import MarketFeatures
    from rlwb.trainer import Episodes


def score_checkpoint(
    bench: Workbench, path: Path, orders: OrderBatch, simulator: OrderExecutionFactory | None = None
) -> Episodes:
    """Run a checkpoint's policy greedily on orders, as validation did, or under the rules of another `simulator`."""
    from rlwb.trainer import load_checkpoint

    return _run_greedily(bench, *bench.restore(load_checkpoint(path), path), orders, simulator)


def _run_greedily(
    bench: Workbench,
    learner: Any,
    features: MarketFeatures,
    orders: OrderBatch,
    simulator: OrderExecutionFactory | None = None,
) -> Episodes:
    """Run a policy greedily on orders."""
    from rlwb.trainer import backtest

    interpreter = bench.state_interpreter(features)
    return backtest(
        simulator or bench.simulator, interpreter, orders, bench.action_interpreter, learner, reward=bench.reward
    )


def judge(
    bench: Workbench, path: Path, orders: OrderBatch, name: str, kind: Any, iteration: int, validation_pa: float
) -> PolicyResult:
    """Run a checkpoint's policy on orders and return its result under `name`."""
    from rlwb.evaluation import PolicyResult
    from rlwb.trainer import result_table

    episodes = score_checkpoint(bench, path, orders)
    table = result_table(orders.table, episodes)
    return PolicyResult(name, kind, table, iteration, validation_pa, episodes.details["inventory"])


def judge_teacher(run: RunDirectory, bench: Workbench, orders: OrderBatch) -> PolicyResult:
    """Run the teacher on orders, to show what there is to gain for those who know the rest of the day."""
    from rlwb.evaluation import PolicyResult, read_validation
    from rlwb.trainer import find_resumable, load_checkpoint, result_table

    path, _ = find_resumable(teacher_checkpoints(run))
    if path is None:
        raise CheckpointError(
            f"{teacher_checkpoints(run)} has no checkpoint of the teacher; run the stage train again."
        )
    teacher, features = bench.restore_teacher(load_checkpoint(path), path)
    episodes = _run_greedily(bench, teacher, features, orders)
    validation = read_validation(run.metrics / "teacher" / "validation.csv").set_index("iteration")
    validation = validation[bench.config.execution.rules.judged_by]
    iteration = int(path.stem)
    return PolicyResult(
        "teacher",
        "unattainable",
        result_table(orders.table, episodes),
        iteration,
        float(validation.get(iteration, np.nan)),
        episodes.details["inventory"],
    )
