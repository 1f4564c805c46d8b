"""The power of a run's test part, from its earlier days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rlwb.execution import TWAP, AmountActionInterpreter, Baseline, KnownStateInterpreter, OrderBatch
from rlwb.experiment.orders import load_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json
from rlwb.reading import read_json
from rlwb.seeds import Stream, generator

if TYPE_CHECKING:
    from rlwb.evaluation.power import Power

#: Orders of a part on which scatter is measured; of more, those of its last days.
MOST_ORDERS = 20_000


def power_of_test(bench: Workbench, parts: Mapping[str, OrderBatch]) -> Power | None:
    """Return how large an effect the orders ``test`` can show, by how a timing policy scatters on the earlier ones.

    Gains are of single orders over TWAP, net where the rules have costs. The test orders are counted and not traded.

    Parameters
    ----------
    parts
        Orders ``train``, ``valid`` and ``test``, aligned with their sessions.

    Returns
    -------
    Power or None
        None where the simulator gives no PA, or the earlier days are too few.
    """
    from rlwb.evaluation.power import Patience, power_of

    gains, dates = [], []
    for orders in (_latest(parts[name]) for name in ("train", "valid")):
        timed, even = (_figures(bench, one, orders) for one in (Patience(bench.engine), TWAP(bench.engine)))
        if timed is None or even is None:
            return None
        gains.append(timed - even)
        dates.append(orders.table["date"].to_numpy().astype("datetime64[D]"))
    test, settings = parts["test"], bench.config.backtest
    return power_of(
        np.concatenate(gains),
        np.concatenate(dates),
        test.table["date"].nunique(),
        len(test),
        generator(bench.config.seed, Stream.POWER),
        level=settings.confidence,
        resamples=settings.bootstrap_samples,
    )


def power_of_run(run: RunDirectory, bench: Workbench) -> Power | None:
    """Return the power of a run's test orders; None of an evaluation, whose earlier days are another run's."""
    if run.origin is not None:
        return None
    return power_of_test(
        bench, {part: bench.align(load_orders(run, bench, part)) for part in ("train", "valid", "test")}
    )


def _figures(bench: Workbench, policy: Baseline, orders: OrderBatch) -> np.ndarray | None:
    """Return the PA of each order by a policy, net under costs; None where the simulator gives none."""
    from rlwb.trainer import backtest

    episodes = backtest(
        bench.simulator, KnownStateInterpreter(), orders, AmountActionInterpreter(), policy, reward=bench.reward
    )
    found = episodes.metrics.get(bench.config.execution.rules.judged_by)
    return None if found is None else np.asarray(found, dtype=np.float64)


def _latest(orders: OrderBatch) -> OrderBatch:
    """Return the orders of as many of the last days as have `MOST_ORDERS` orders."""
    if len(orders) <= MOST_ORDERS:
        return orders
    counts = orders.table["date"].value_counts().sort_index(ascending=False).cumsum()
    first = counts.index[max(int((counts <= MOST_ORDERS).sum()) - 1, 0)]
    return orders[np.flatnonzero(orders.table["date"] >= first)]


def write_power(path: Path, bench: Workbench, parts: Mapping[str, OrderBatch]) -> None:
    """Write the power of a run's test part as JSON; where there is none, nothing, and what is there goes."""
    found = power_of_test(bench, parts)
    if found is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, asdict(found))


def read_power(path: Path) -> Power | None:
    """Return what `write_power` wrote; None where there is no file."""
    from rlwb.evaluation.power import Power

    return Power(**read_json(path, Power)) if path.exists() else None


def power_table(found: Power) -> pd.DataFrame:
    """Return power as people read it, one row a figure."""
    rows = {
        "days of the test part": f"{found.days:,}",
        "orders on them": f"{found.orders:,}",
        "scatter of a day's mean gain, bp": f"{found.day_deviation:.1f}",
        "measured on earlier days": f"{found.measured_days:,}",
        "smallest effect that it can see, bp": f"{found.detectable_bp:.1f}",
        "days to see 1 bp": f"{found.days_for_1bp:,}",
        "orders to see 1 bp": f"{found.orders_for_1bp:,}",
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=["power"])
