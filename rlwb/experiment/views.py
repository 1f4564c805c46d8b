"""What the notebooks and the page show of a run: tables to read, and one order in every detail."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import DataError, OrderError
from rlwb.execution import ExecutionRules, OrderExecution, audit
from rlwb.experiment.orders import load_orders
from rlwb.experiment.run import RunDirectory, read_json
from rlwb.experiment.scoring import find_policy
from rlwb.experiment.stage import Stage
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN
from rlwb.experiment.workbench import Workbench

PARTS = {"train": "training", "valid": "validation", "test": "test"}

#: Column of ``backtest/summary.csv`` to its title.
SUMMARY = {
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

#: Column of ``backtest/gap.csv`` to its title.
GAP = {
    "cause": "cause",
    "pa": "PA",
    "pa_net": "net PA",
    "difference": "difference",
    "difference_lo": "low",
    "difference_hi": "high",
    "ffr": "ffr",
    "orders": "orders",
    "left_out": "left out",
}


def summary_columns(rules: ExecutionRules) -> dict[str, str]:
    """Return column to title of the summary: validation has the PA judged by; the net PA is shown where it differs."""
    shown = {name: title for name, title in SUMMARY.items() if rules.have_costs or name != "pa_net"}
    return shown | ({"validation_pa": "validation net PA"} if rules.have_costs else {})


def _there(path: Path, stage: Stage) -> Path:
    """Refuse a file that its stage has not written."""
    if not path.is_file():
        raise DataError(f"{path.name} is not there yet; run {stage.notebook} on this run first.")
    return path


def _read(path: Path, stage: Stage) -> pd.DataFrame:
    return (pd.read_parquet if path.suffix == ".parquet" else pd.read_csv)(_there(path, stage))


def _shown(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the columns under their titles, the first as index, rounded, without a minus before a zero."""
    table = table[list(columns)].rename(columns=columns)
    table = table.set_index(table.columns[0]).round(3)
    numbers = table.select_dtypes("float").columns
    table[numbers] += 0.0
    return table


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
    costs = {"pa_net": "net PA"} if run.config.execution.rules.have_costs else {}
    metrics = {"pa": "PA", **costs, "reward": "reward"}
    table = pd.DataFrame({title: train[name] for name, title in metrics.items()})
    for name, title in metrics.items():
        table[f"validation {title}"] = validation.get(name, np.nan)
    learnt = [name for name in train if re.search("loss|entropy|clip|kl|grad|^q$|epsilon", name)]
    table[learnt] = train[learnt]
    table["seconds"] = train["seconds"]
    rows = np.unique(np.linspace(0, len(table) - 1, min(most, len(table))).round().astype(int))
    return table.iloc[rows].round(3) + 0.0


def summary_table(run: RunDirectory) -> pd.DataFrame:
    """Return ``backtest/summary.csv`` as people read it, one row a policy."""
    return _shown(_read(run.backtest / "summary.csv", BACKTEST), summary_columns(run.config.execution.rules))


def rules_gap(run: RunDirectory) -> pd.DataFrame:
    """Return what each rule does to the best checkpoint's net PA, in basis points; no rows under the simple rules."""
    _there(run.backtest / "summary.csv", BACKTEST)
    path = run.backtest / "gap.csv"
    return _shown(pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(GAP)), GAP)


def selection_tables(run: RunDirectory) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return which checkpoints were chosen, best first, and which were left out and why."""
    from rlwb.evaluation.results import PA_TITLES

    selection = read_json(_there(run.backtest / "selection.json", BACKTEST))
    figure = run.config.execution.rules.judged_by
    validation = pd.read_csv(run.metrics / "validation.csv").set_index("iteration")[figure]
    iterations = [int(name.rpartition("-")[2]) for name in selection["chosen"]]
    chosen = pd.DataFrame(
        {
            "rank": range(1, len(iterations) + 1),
            "policy": selection["chosen"],
            "iteration": iterations,
            f"validation {PA_TITLES[figure]}": validation.reindex(iterations).to_numpy(),
        }
    ).set_index("rank")
    return chosen.round(3), pd.DataFrame(selection["excluded"], columns=["iteration", "reason"])


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
        When there is no such order, or the run's simulator keeps no ticks.
    CheckpointError
        When there is no such policy.
    """
    orders = load_orders(run, bench, part)
    chosen = orders[orders["order_id"] == order_id]
    if chosen.empty:
        raise OrderError(f"there is no order {order_id!r} in part {part}; the first is {orders['order_id'].iloc[0]!r}.")
    actor, state, action = find_policy(run, bench, policy)
    if not isinstance(bench.simulator, OrderExecution):
        raise OrderError("the run's simulator keeps no ticks; derive it from rlwb.execution.OrderExecution.")
    parts: dict[str, Any] = {"state_interpreter": state, "action_interpreter": action, "reward": bench.reward}
    return OrderAudit(*audit(bench.simulator, bench.align(chosen), actor, **parts))


def typical_order(run: RunDirectory, policy: str) -> str:
    """Return the id of the order with the median PA of the policy's backtest."""
    table = _read(run.backtest / "orders" / f"{policy}.parquet", BACKTEST).dropna(subset="pa")
    if table.empty:
        raise OrderError(f"no order of {policy} has a PA, so none is typical; name one yourself.")
    return str(table.sort_values(["pa", "order_id"])["order_id"].iloc[len(table) // 2])
