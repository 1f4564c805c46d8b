"""Methods side by side on the same orders, every figure with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import statistic_interval, too_few_days
from rlwb.evaluation.results import PolicyResult, check_same_orders, finite_or_nan
from rlwb.evaluation.statistics import ZERO_BP

#: Figure to its title in the table, in order.
FIGURES = {
    "pa": "PA, bp",
    "over_twap": "over TWAP, bp",
    "pa_net": "net PA, bp",
    "net_over_twap": "net over TWAP, bp",
    "glr": "gain/loss",
    "reward": "reward",
    "win_rate": "win rate",
    "ffr": "ffr",
}
_SHARES = ("win_rate", "ffr")
_ABSENT = "-"


@dataclass(frozen=True, eq=False)
class Comparison:
    """The table of methods.

    Attributes
    ----------
    frame
        One row a method: ``method``, ``kind``, ``orders``, ``days``, and for every name of `FIGURES` the figure and,
        as ``<name>_lo`` and ``<name>_hi``, the ends of its interval. PAs in basis points, rates as shares of 1; what
        cannot be computed is NaN.
    level
        Nominal coverage of the intervals, which are clustered by day.
    notes
        Sentences to print below the table.
    """

    frame: pd.DataFrame
    level: float
    notes: tuple[str, ...] = ()

    def to_markdown(self) -> str:
        """Return the table as Markdown, each figure with its interval; figures that say nothing are left out."""
        shown = {name: title for name, title in FIGURES.items() if self.shows(name)}
        lines = [f"| method | {' | '.join(shown.values())} |", "|" + " --- |" + " ---: |" * len(shown)]
        for _, row in self.frame.iterrows():
            cells = [_cell(row, name) for name in shown]
            lines.append(f"| {' | '.join([str(row['method']).replace('|', chr(92) + '|'), *cells])} |")
        orders, days = self.frame["orders"].iloc[0], self.frame["days"].iloc[0]
        basis = f"{orders:,} test orders on {days} days; {100 * self.level:g} % intervals by a bootstrap of whole days."
        few = too_few_days(days, self.level)
        notes = [basis, *([few] if few else []), *self.notes]
        return "\n".join([*lines, "", *(f"- {note}" for note in notes)]) + "\n"

    def shows(self, name: str) -> bool:
        """Tell whether a figure of `FIGURES` is there at all and, where it is another PA, says more than the PA."""
        if name == "net_over_twap" and not self.shows("pa_net"):
            return False
        other = name in ("over_twap", "pa_net") and ((self.frame[name] - self.frame["pa"]).abs() <= ZERO_BP).all()
        return bool(self.frame[name].notna().any()) and not other


def comparison(
    results: Mapping[str, PolicyResult],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> Comparison:
    """Compare methods on the same orders.

    Parameters
    ----------
    results
        Method to its result; every method draws the same days, so that differences between rows are none of draws.
    seed
        Of the bootstrap.

    Notes
    -----
    The form is that of Fang et al. (AAAI 2021, arXiv 2103.10860), who give reward, PA, gain-loss ratio and share of
    winning orders; intervals, fulfilment rate and the difference to TWAP on the same order are added.
    """
    given = list(results.values())
    check_same_orders(given)
    twap = next((result for result in given if result.policy == "twap"), None)
    rows = [_row(method, result, twap, level, resamples, seed) for method, result in results.items()]
    return Comparison(pd.DataFrame(rows), level, tuple(notes))


def _row(
    method: str, result: PolicyResult, twap: PolicyResult | None, level: float, resamples: int, seed: int
) -> dict[str, object]:
    row: dict[str, object] = {
        "method": method,
        "kind": result.kind,
        "orders": len(result.orders),
        "days": len(np.unique(result.dates)),
    }
    columns = {name: _column(result, name) for name in ("pa", "pa_net", "reward", "ffr")}
    pa = columns["pa"]
    over = {"over_twap": _over(result, twap, "pa"), "net_over_twap": _over(result, twap, "pa_net")}
    has_pa = ~np.isnan(pa)
    gain, loss = has_pa & (pa > ZERO_BP), has_pa & (pa < -ZERO_BP)
    won = np.where(has_pa, gain, math.nan)
    parts = {
        **{name: _for_mean(values) for name, values in {**columns, **over, "win_rate": won}.items()},
        "glr": np.stack([np.where(gain, pa, 0.0), gain, np.where(loss, -pa, 0.0), loss], axis=1).astype(np.float64),
    }
    for name in FIGURES:
        statistic = _ratio_of_means if name == "glr" else _mean
        rng = np.random.default_rng(seed)
        found = statistic_interval(parts[name], result.dates, statistic, rng, level=level, resamples=resamples)
        row |= dict(zip((name, f"{name}_lo", f"{name}_hi"), found, strict=True))
    return row


def _over(result: PolicyResult, twap: PolicyResult | None, name: str) -> np.ndarray:
    """Return a figure less that of TWAP on the same order, float64 of shape (orders,); NaN where one lacks it."""
    if twap is None:
        return np.full(len(result.orders), math.nan)
    other = pd.Series(_column(twap, name), index=twap.orders["order_id"]).reindex(result.orders["order_id"])
    return _column(result, name) - finite_or_nan(other)


def _column(result: PolicyResult, name: str) -> np.ndarray:
    if name not in result.orders:
        return np.full(len(result.orders), math.nan)
    return finite_or_nan(result.orders[name])


def _for_mean(values: np.ndarray) -> np.ndarray:
    """Return value and count of each order, float64 of shape (orders, 2); both 0 where the value is missing."""
    there = ~np.isnan(values)
    return np.stack([np.where(there, values, 0.0), there], axis=1).astype(np.float64)


def _mean(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[:, 0], sums[:, 1])


def _ratio_of_means(sums: np.ndarray) -> np.ndarray:
    """Mean gain over mean loss from sum and number of gains and of losses."""
    return _divide(_divide(sums[:, 0], sums[:, 1]), _divide(sums[:, 2], sums[:, 3]))


def _divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.full(len(above), math.nan), where=below > 0)


def _cell(row: pd.Series, name: str) -> str:
    def text(value: float) -> str:
        if math.isnan(value):
            return _ABSENT
        shown = f"{100 * value:.1f}" if name in _SHARES else f"{value:.2f}"
        return shown if float(shown) else shown.lstrip("-")

    unit = " %" if name in _SHARES and not math.isnan(row[name]) else ""
    ends = "" if math.isnan(row[f"{name}_lo"]) else f" [{text(row[f'{name}_lo'])}, {text(row[f'{name}_hi'])}]"
    return f"{text(row[name])}{unit}{ends}"
