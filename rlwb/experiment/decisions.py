"""A table of what policies do at each decision, beside what the simple rule expects there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError
from rlwb.experiment.backtest import make_baselines
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.reading import read_json

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult


def decision_table(run: RunDirectory, results: Mapping[str, PolicyResult]) -> tuple[pd.DataFrame, pd.Series]:
    """Return what policies traded at each decision on the test orders, by the forecast of the rule ``forecast`` there.

    Parameters
    ----------
    run
        A run with that rule among its baselines, on whose test orders the results are.
    results
        By name; each with its inventory.

    Returns
    -------
    decisions : DataFrame
        One row a policy, order and step but the order's last, while something is left. Columns: `policy`, `steps_left`
        (those after this one), `forecast` (what waiting is expected to cost the order, in volatilities of a bar) and
        `share` (of what is left, traded in the step).
    thresholds : Series of float64
        The forecast above which the rule trades, by steps left.

    Raises
    ------
    CheckpointError
        When the run has no baseline ``forecast``.
    """
    bench, told = workbench(run), read_json(run.backtest / "baselines.json")
    if "forecast" not in told:
        raise CheckpointError(f"{run.path.name} has no baseline forecast; add it to baselines and run it again.")
    rule = make_baselines(bench, told)["forecast"]
    orders, cell = bench.align(load_orders(run, bench, "test")), bench.engine.cell
    parts = []
    first, last = cell[orders.start], cell[orders.end - 1]
    for step in range(int((last - first).max())):
        rows = np.flatnonzero(first + step < last)
        tick = np.maximum(orders.start[rows], np.searchsorted(cell, first[rows] + step))
        forecast = orders.side[rows] * rule.forecast(orders.session[rows], tick)[0]
        for name, result in results.items():
            assert result.inventory is not None
            left = result.inventory[rows, step : step + 2]
            held = left[:, 0] > 1e-6
            known = {"policy": name, "steps_left": (last - first)[rows][held] - step, "forecast": forecast[held]}
            parts.append(pd.DataFrame({**known, "share": 1.0 - left[held, 1] / left[held, 0]}))
    thresholds = pd.Series(rule.thresholds, name="threshold").rename_axis("steps_left")
    return pd.concat(parts, ignore_index=True), thresholds
