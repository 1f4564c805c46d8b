"""What the notebooks show of a run: tables to read, and one order in every detail."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, DataError, OrderError
from rlwb.execution import (
    AmountItself,
    BatchedOrderExecution,
    StateItself,
    audit,
)
from rlwb.experiment.baselines import Estimates
from rlwb.experiment.report import GAP_COLUMNS, summary_columns
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.sections import CEILINGS
from rlwb.experiment.stage import Stage
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN
from rlwb.experiment.training import teacher_checkpoints
from rlwb.experiment.work import load_orders
from rlwb.experiment.workbench import Workbench

PARTS = {"train": "training", "valid": "validation", "test": "test"}

_SUMMARY = {
    "policy": "policy",
    "kind": "kind",
    "validation_pa": "validation PA",
    "pa_mean": "test PA",
    "pa_lo": "low",
    "pa_hi": "high",
    "pa_net": "net test PA",
    "pa_std": "std of orders",
    "win_rate": "win rate",
    "glr": "gain/loss",
    "ffr": "ffr",
    "orders": "orders",
    "days": "days",
}


def _there(path: Path, stage: Stage) -> Path:
    """Refuse a file that its stage has not written."""
    if not path.is_file():
        raise DataError(f"{path.name} is not there yet; run {stage.notebook} on this run first.")
    return path


def _read(path: Path, stage: Stage) -> pd.DataFrame:
    return (pd.read_parquet if path.suffix == ".parquet" else pd.read_csv)(_there(path, stage))


def order_parts(run: RunDirectory) -> dict[str, pd.DataFrame]:
    """Return the order tables of the run by the name of their part."""
    return {title: _read(run.orders / f"{part}.parquet", ORDERS) for part, title in PARTS.items()}


def iteration_table(run: RunDirectory, *, most: int = 60) -> pd.DataFrame:
    """Return one row an iteration, training beside validation; of many iterations `most`, evenly apart.

    PAs are in basis points; the columns after the rewards are what the learner reports of its update.
    """
    train = _read(run.metrics / "train.csv", TRAIN).set_index("iteration")
    path = run.metrics / "validation.csv"
    validation = pd.read_csv(path).set_index("iteration") if path.is_file() else pd.DataFrame()
    figures = {
        "pa": "PA",
        **({"pa_net": "net PA"} if run.config.execution.rules.have_costs else {}),
        "reward": "reward",
    }
    table = pd.DataFrame({title: train[name] for name, title in figures.items()})
    for name, title in {name: f"validation {title}" for name, title in figures.items()}.items():
        table[title] = validation.get(name, np.nan)
    learnt = [name for name in train if re.search("loss|entropy|clip|kl|grad|^q$|epsilon", name)]
    table[learnt] = train[learnt]
    table["seconds"] = train["seconds"]
    rows = np.unique(np.linspace(0, len(table) - 1, min(most, len(table))).round().astype(int))
    return table.iloc[rows].round(3) + 0.0  # no minus before a zero


def summary_table(run: RunDirectory) -> pd.DataFrame:
    """Return ``backtest/summary.csv`` as people read it, one row a policy."""
    names = summary_columns(_SUMMARY, run.config.execution.rules)
    table = _read(run.backtest / "summary.csv", BACKTEST)[list(names)].rename(columns=names)
    table = table.set_index("policy").round(3)
    figures = table.columns.difference(["kind", "orders", "days"])
    table[figures] += 0.0  # no minus before a zero
    return table


def rules_gap(run: RunDirectory) -> pd.DataFrame:
    """Return what each rule does to the best checkpoint's net PA, in basis points; no rows under the simple rules."""
    _there(run.backtest / "summary.csv", BACKTEST)
    path = run.backtest / "gap.csv"
    table = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(GAP_COLUMNS))
    return table[list(GAP_COLUMNS)].rename(columns=GAP_COLUMNS).set_index("cause").round(3)


def selection_tables(run: RunDirectory) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return which checkpoints were chosen, best first, and which were left out and why."""
    from rlwb.evaluation.results import PA_TITLES

    selection = json.loads(_there(run.backtest / "selection.json", BACKTEST).read_text(encoding="utf-8"))
    validation = pd.read_csv(run.metrics / "validation.csv").set_index("iteration")
    figure = run.config.execution.rules.judged_by
    validation = validation[figure]
    iterations = [int(name.rpartition("-")[2]) for name in selection["chosen"]]
    chosen = pd.DataFrame(
        {
            "rank": range(1, len(iterations) + 1),
            "policy": selection["chosen"],
            "iteration": iterations,
            f"validation {PA_TITLES[figure]}": validation.reindex(iterations).to_numpy(),
        }
    ).set_index("rank")
    excluded = pd.DataFrame(selection["excluded"], columns=["iteration", "reason"])
    return chosen.round(3), excluded


@dataclass(frozen=True)
class OrderAudit:
    """All that happened to one order.

    Attributes
    ----------
    ticks, steps
        See `rlwb.execution.audit`.
    summary
        One row: the order, its figures and its reward.
    """

    ticks: pd.DataFrame
    steps: pd.DataFrame
    summary: pd.DataFrame

    def checks(self) -> pd.DataFrame:
        """Return the sums of the ticks beside the row of the summary that they must give."""
        order, ticks = self.summary.iloc[0], self.ticks
        value = float((ticks["filled"] * ticks["price"]).sum())
        pairs = {
            "amount filled": (ticks["filled"].sum(), order["filled"]),
            "filled in steps": (self.steps["fill"].sum(), order["filled"]),
            "value traded": (value, order["filled"] * order["price"]),
            "average price": (value / ticks["filled"].sum(), order["price"]),
            "reward": (self.steps["reward"].sum(), order["reward"]),
        }
        return pd.DataFrame.from_dict(pairs, orient="index", columns=["sum of the parts", "summary row"])


def audit_order(run: RunDirectory, bench: Workbench, policy: str, order_id: str, part: str = "test") -> OrderAudit:
    """Execute one order again, recording every tick.

    Parameters
    ----------
    policy
        A name of the summary: ``checkpoint-0012``, ``last``, ``twap``, ``vwap``, ``teacher``.
    order_id
        An order of `part`.

    Raises
    ------
    OrderError
        When there is no such order.
    CheckpointError
        When there is no such policy.
    """
    orders = load_orders(run, bench, part)
    chosen = orders[orders["order_id"] == order_id]
    if chosen.empty:
        raise OrderError(f"there is no order {order_id!r} in part {part}; the first is {orders['order_id'].iloc[0]!r}.")
    actor, state, action = _policy(run, bench, policy)
    env = BatchedOrderExecution(
        bench.simulator.engine,
        bench.bind(chosen),
        state_interpreter=state,
        action_interpreter=action,
        reward=bench.reward,
        record=True,
    )
    return OrderAudit(*audit(env, actor))


def _policy(run: RunDirectory, bench: Workbench, name: str) -> tuple[Any, Any, Any]:
    """Return a policy of the summary with its interpreters."""
    from rlwb.trainer import list_checkpoints, load_checkpoint

    baselines = [one for one in bench.config.backtest.baselines if one not in CEILINGS]
    if name in baselines:
        known = json.loads(_there(run.backtest / "baselines.json", BACKTEST).read_text(encoding="utf-8"))
        return Estimates.from_dict(known).policy(name), StateItself(), AmountItself()
    if name in CEILINGS:
        raise CheckpointError(f"{name} is a ceiling and no policy, so it has no trades to show; name a policy.")
    if name == "teacher" and (taught := list_checkpoints(teacher_checkpoints(run))):
        path = taught[max(taught)]
        teacher, features = bench.restore_teacher(load_checkpoint(path), path)
        return teacher, bench.state_interpreter(features), bench.action_interpreter
    paths = list_checkpoints(run.checkpoints)
    named = {f"checkpoint-{iteration:04d}": path for iteration, path in paths.items()}
    if paths:
        named["last"] = paths[max(paths)]
    if name not in named:
        raise CheckpointError(f"the run has no policy {name!r}; it has {', '.join([*named, *baselines])}.")
    learner, features = bench.restore(load_checkpoint(named[name]), named[name])
    return learner, bench.state_interpreter(features), bench.action_interpreter


def typical_order(run: RunDirectory, policy: str) -> str:
    """Return the id of the order with the median PA of the policy's backtest."""
    table = _read(run.backtest / "orders" / f"{policy}.parquet", BACKTEST).dropna(subset="pa")
    if table.empty:
        raise OrderError(f"no order of {policy} has a PA, so none is typical; name one yourself.")
    return str(table.sort_values(["pa", "order_id"])["order_id"].iloc[len(table) // 2])
