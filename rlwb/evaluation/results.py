"""What one policy did on the test orders, and the pieces of it that statistics and plots ask for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import pandas as pd

from rlwb.errors import DataError

Kind = Literal["checkpoint", "last", "baseline", "unattainable", "ceiling"]

#: Columns that every result table has; all others are optional.
REQUIRED_COLUMNS = ("order_id", "instrument", "date", "pa", "ffr")

#: What tables and lines call the figure that policies are judged by; see `rlwb.execution.ExecutionRules.judged_by`.
PA_TITLES = {"pa": "PA", "pa_net": "net PA"}

_DISPLAY_NAMES = {
    "twap": "TWAP",
    "vwap": "VWAP",
    "pov": "POV",
    "almgren_chriss": "Almgren-Chriss",
    "bertsimas_lo": "Bertsimas-Lo",
    "hindsight_uncapped": "hindsight without cap",
    "last": "last checkpoint",
}
_ASIDES = {"unattainable": " (sees the future)", "ceiling": " (ceiling)"}


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """The result table of one policy with what is known about the policy.

    Parameters
    ----------
    policy
        Name, for example ``"checkpoint-0012"``, ``"last"`` or ``"twap"``.
    kind
        ``"checkpoint"`` (one of the chosen), ``"last"``, ``"baseline"``, ``"unattainable"`` for what knew prices
        that lay ahead of its decisions, as no one who trades can, or ``"ceiling"``: no policy, but a bound on all.
    orders
        One row an order with at least `REQUIRED_COLUMNS`; `pa` in basis points, NaN where it cannot be computed.
    iteration
        The training iteration of a checkpoint; None for a baseline.
    validation_pa
        Validation PA in basis points; NaN for a policy that was not validated.
    inventory
        Share of the amount left after 0, 1, 2, … steps, shape ``(orders, max_step + 1)``.
    """

    policy: str
    kind: Kind
    orders: pd.DataFrame
    iteration: int | None = None
    validation_pa: float = math.nan
    inventory: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise DataError(f"Policy {self.policy!r} has kind {self.kind!r}; use one of {', '.join(get_args(Kind))}.")
        missing = [column for column in REQUIRED_COLUMNS if column not in self.orders]
        if missing:
            raise DataError(
                f"The result table of policy {self.policy!r} lacks the columns {', '.join(missing)}; "
                "backtest the policy again to write them."
            )
        if self.orders["order_id"].duplicated().any():
            twice = self.orders.loc[self.orders["order_id"].duplicated(), "order_id"].iloc[0]
            raise DataError(f"The result table of policy {self.policy!r} holds order {twice!r} twice; keep one row.")
        if self.inventory is not None and (self.inventory.ndim != 2 or len(self.inventory) != len(self.orders)):
            raise DataError(
                f"The inventory of policy {self.policy!r} has shape {self.inventory.shape}; "
                f"it must be (orders, steps + 1) with {len(self.orders)} orders."
            )

    @property
    def pa(self) -> np.ndarray:
        """PA of each order in basis points, float64 of shape ``(orders,)``; NaN where missing."""
        return finite_or_nan(self.orders["pa"])

    def after_costs(self) -> PolicyResult:
        """Return the same with the net PA in place of the PA; itself where the table has no net PA."""
        if "pa_net" not in self.orders:
            return self
        return replace(self, orders=self.orders.assign(pa=self.orders["pa_net"]))

    @property
    def dates(self) -> np.ndarray:
        """Trading day of each order, datetime64[D] of shape ``(orders,)``."""
        return self.orders["date"].to_numpy(dtype="datetime64[D]")

    @property
    def display_name(self) -> str:
        """The name that tables and plots show; it says so where the policy sees the future or is a ceiling."""
        return _DISPLAY_NAMES.get(self.policy, self.policy) + _ASIDES.get(self.kind, "")


def finite_or_nan(values: pd.Series | np.ndarray) -> np.ndarray:
    """Return `values` as float64 with everything that is not finite as NaN, the one mark of a missing number."""
    array = np.array(values, dtype=np.float64)
    array[~np.isfinite(array)] = np.nan
    return array


def of_kind(results: Sequence[PolicyResult], kind: Kind) -> list[PolicyResult]:
    """Return the results of one kind, in the order given."""
    return [result for result in results if result.kind == kind]


def check_same_orders(results: Sequence[PolicyResult]) -> None:
    """Refuse to compare policies that did not trade the same orders."""
    for result in results[1:]:
        expected, got = set(results[0].orders["order_id"]), set(result.orders["order_id"])
        if expected != got:
            raise DataError(
                f"Policies {results[0].policy!r} and {result.policy!r} did not trade the same orders "
                f"({len(expected - got)} only in the first, {len(got - expected)} only in the second); "
                "backtest both on one order file."
            )


def day_means(result: PolicyResult) -> pd.Series:
    """Return the mean PA of each day that has one, in basis points, indexed by day in ascending order."""
    return pd.Series(result.pa, index=pd.DatetimeIndex(result.dates, name="date")).dropna().groupby(level=0).mean()


def day_matrix(results: Sequence[PolicyResult]) -> pd.DataFrame:
    """Return the day means of several policies, days by policies; NaN where a policy has no PA on a day."""
    return pd.DataFrame({result.policy: day_means(result) for result in results}).sort_index()
