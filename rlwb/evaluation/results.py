"""The result of one policy on the test orders, and checks of several results against one another."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.parts import BUILT_IN, describe

Kind = Literal["checkpoint", "last", "policy", "fills", "baseline", "control", "attainable", "unattainable", "ceiling"]

_REQUIRED_COLUMNS = ("order_id", "instrument", "date", "pa", "ffr")

#: Titles of the figure that checkpoints are chosen by: a PA (`rlwb.execution.ExecutionRules.judged_by`), or what the
#: objective makes of it.
PA_TITLES = {"pa": "PA", "pa_net": "net PA", "objective": "objective"}

#: The figure that checkpoints are chosen by, to the columns of its mean over the test orders and of the interval.
TESTED = {
    "pa": ["pa_mean", "pa_lo", "pa_hi"],
    "pa_net": ["pa_net", "pa_net_lo", "pa_net_hi"],
    "objective": ["objective", "objective_lo", "objective_hi"],
}

#: PAs this close to 0, in basis points, are rounding and count as neither gain nor loss.
ZERO_BP = 1e-6

#: Excess over a ceiling, in basis points, that is rounding. The engine calls an order complete with 1e-9 of its amount
#: left, which is worth 1e-5 bp where the price doubles within the window.
ROUNDING_BP = 1e-4

#: Shares of an order's amount smaller than this are rounding.
ZERO_SHARE = 1e-6

_DISPLAY_NAMES = {
    "twap": "TWAP",
    "vwap": "VWAP",
    "pov": "POV",
    "almgren_chriss": "Almgren-Chriss",
    "bertsimas_lo": "Bertsimas-Lo",
    "forecast": "forecast rule",
    "filter_optimum": "filter optimum",
    "filter_optimum-knows_volatility=true": "filter optimum with known volatility",
    "hindsight_uncapped": "hindsight without cap",
    "last": "last checkpoint",
    "fills": "your fills",
}
_ASIDES = {
    "control": " (control)",
    "attainable": " (attainable)",
    "unattainable": " (sees the future)",
    "ceiling": " (ceiling)",
}


@dataclass(frozen=True, eq=False)
class PolicyResult:
    """The result table of one policy, and what is known about the policy.

    Parameters
    ----------
    policy
        Name, for example ``"checkpoint-0012"``, ``"last"`` or ``"twap"``.
    kind
        ``"checkpoint"`` (a selected one), ``"last"``, ``"policy"`` (made elsewhere), ``"fills"`` (a person's real
        ones), ``"baseline"``, ``"control"`` for a baseline that lacks on purpose what it gains by,
        ``"attainable"`` for the best policy that is known, of a market whose law is known,
        ``"unattainable"`` for one that knows ahead of its decisions what nobody does, or ``"ceiling"``: no policy, but
        an upper bound on all of them.
    orders
        One row an order: `order_id`, `instrument`, `date`, `ffr`, `pa` in basis points, NaN where it cannot be
        computed, and columns that may be lacking.
    iteration
        The training iteration of a checkpoint; None for a baseline.
    validation_pa
        Validation PA in basis points, by which checkpoints and the best rule are chosen; NaN where it is not known.
    inventory : float of shape (orders, max_step + 1)
        Share of the amount left after 0, 1, 2, … steps.
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
        missing = [column for column in _REQUIRED_COLUMNS if column not in self.orders]
        if missing:
            raise DataError(
                f"The result table of policy {self.policy!r} lacks the columns {', '.join(missing)}; "
                "backtest the policy again to write them."
            )
        twice = self.orders.loc[self.orders["order_id"].duplicated(), "order_id"]
        if len(twice):
            order = twice.iloc[0]
            raise DataError(f"The result table of policy {self.policy!r} holds order {order!r} twice; keep one row.")
        if self.inventory is not None and (self.inventory.ndim != 2 or len(self.inventory) != len(self.orders)):
            raise DataError(
                f"The inventory of policy {self.policy!r} has shape {self.inventory.shape}; "
                f"it must be (orders, steps + 1) with {len(self.orders)} orders."
            )

    def values(self, column: str, like: PolicyResult | None = None) -> np.ndarray:
        """Return a column of the order table, float64 of shape ``(orders,)``; NaN where missing, infinite or lacking.

        The sequence is that of the table, or of the table of another result of the same orders.
        """
        table = self.orders
        found = finite_or_nan(table[column]) if column in table else np.full(len(table), math.nan)
        if like is None:
            return found
        return pd.Series(found, index=table["order_id"]).reindex(like.orders["order_id"]).to_numpy()

    @property
    def pa(self) -> np.ndarray:
        """PA of each order in basis points, float64 of shape ``(orders,)``; NaN where missing."""
        return self.values("pa")

    def after_costs(self) -> PolicyResult:
        """Return a copy with the net PA in place of the PA; itself where the table has no net PA."""
        if "pa_net" not in self.orders:
            return self
        return replace(self, orders=self.orders.assign(pa=self.orders["pa_net"]))

    @property
    def judged_by(self) -> str:
        """Column of the figure that policies of these orders are chosen by: a key of `PA_TITLES`."""
        return next(name for name in ("objective", "pa_net", "pa") if name in self.orders)

    @property
    def judged(self) -> np.ndarray:
        """The figure of each order that policies are chosen by, float64 of shape ``(orders,)``; NaN where missing."""
        return self.values(self.judged_by)

    @property
    def dates(self) -> np.ndarray:
        """Trading day of each order, datetime64[D] of shape ``(orders,)``."""
        return self.orders["date"].to_numpy(dtype="datetime64[D]")

    def fixed_schedule(self) -> np.ndarray | None:
        """Return the share left after each step, float of shape ``(steps + 1,)``, where it is the same for all orders.

        None where orders differ, or where it is not known. Compared are the orders with the most steps and, where
        windows are known, all others of such a window: one that was done sooner differs.
        """
        if self.inventory is None or not len(self.inventory):
            return None
        steps = self.values("num_steps")
        compared = steps == np.nanmax(steps) if np.isfinite(steps).any() else np.ones(len(steps), dtype=bool)
        if {"start", "end"} <= set(self.orders.columns):
            ends = [pd.to_datetime(self.orders[name]).dt.time for name in ("start", "end")]
            windows = pd.MultiIndex.from_arrays(ends)
            compared |= windows.isin(windows[compared])
        alike = self.inventory[compared]
        first = np.asarray(alike[0], dtype=np.float64)
        return first if len(alike) > 1 and (np.abs(alike - first) <= ZERO_SHARE).all() else None

    @property
    def title(self) -> str:
        """Name in sentences, with those settings by which a part is told apart that are not its defaults."""
        return policy_title(self.policy)

    @property
    def display_name(self) -> str:
        """Name in tables and plots; it marks controls, the attainable, policies that see the future, and ceilings."""
        return self.title + _ASIDES.get(self.kind, "")


@functools.cache
def policy_title(policy: str) -> str:
    """Return the name of a policy in sentences, of a rule with those settings that are not its defaults."""
    if policy in _DISPLAY_NAMES:
        return _DISPLAY_NAMES[policy]
    name, *settings = re.split(r"-(?=\w+=)", policy)
    known = describe("baseline", name) if name in BUILT_IN["baseline"] else ()
    defaults = [(one.name, one.default) for one in known]
    changed = [one for one in settings if (one.partition("=")[0], _value(one.partition("=")[2])) not in defaults]
    return _DISPLAY_NAMES.get(name, name) + (f" with {', '.join(changed)}" if changed else "")


def _value(text: str) -> Any:
    """Return what a setting in a part's name stands for."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def finite_or_nan(values: pd.Series | np.ndarray) -> np.ndarray:
    """Return a float64 copy of `values` (any shape) in which everything that is not finite is NaN."""
    array = np.array(values, dtype=np.float64)
    array[~np.isfinite(array)] = np.nan
    return array


def mean(values: np.ndarray) -> float:
    """Return the mean of the finite values of an array of shape ``(N,)``; NaN without any."""
    present = values[np.isfinite(values)]
    return float(present.mean()) if len(present) else math.nan


def standard_deviation(values: np.ndarray) -> float:
    """Return the sample standard deviation (divisor n - 1) of the finite values of ``(N,)``; NaN with fewer than 2."""
    present = values[np.isfinite(values)]
    return float(present.std(ddof=1)) if len(present) > 1 else math.nan


def of_kind(results: Sequence[PolicyResult], kind: Kind) -> list[PolicyResult]:
    """Return the results of one kind, in the sequence given."""
    return [result for result in results if result.kind == kind]


def twap_of(results: Iterable[PolicyResult]) -> PolicyResult | None:
    """Return the result of TWAP, the policy ``twap``; None where it was not judged."""
    return next((one for one in results if one.policy == "twap"), None)


def best_rule(results: Sequence[PolicyResult]) -> PolicyResult | None:
    """Return the best of the baselines, controls not among them; None where there is none.

    It is chosen by the validation PA where that is known of all of them; else by the same figure on these orders, which
    flatters the one that is chosen.
    """
    rules = of_kind(results, "baseline")
    if is_validated(rules):
        return max(rules, key=lambda one: one.validation_pa, default=None)
    known = [one for one in rules if not math.isnan(mean(one.judged))]
    return max(known, key=lambda one: mean(one.judged), default=None)


def is_validated(rules: Sequence[PolicyResult]) -> bool:
    """Tell whether the validation PA of all results is known."""
    return not any(math.isnan(one.validation_pa) for one in rules)


def check_same_orders(results: Sequence[PolicyResult]) -> None:
    """Refuse, by a `DataError` that names two of them, to compare policies that did not trade the same orders."""
    for result in results[1:]:
        expected, got = set(results[0].orders["order_id"]), set(result.orders["order_id"])
        if expected != got:
            raise DataError(
                f"Policies {results[0].policy!r} and {result.policy!r} did not trade the same orders "
                f"({len(expected - got)} only in the first, {len(got - expected)} only in the second); "
                "backtest both on one order file."
            )


def above_ceiling(results: Sequence[PolicyResult], ceiling: PolicyResult) -> pd.DataFrame:
    """Return the orders on which a policy beats the ceiling by more than rounding, largest excess first.

    No knowledge of the future lifts a policy above the ceiling, which has it too. A result above the ceiling means that
    a fill, a price or a benchmark is wrong.

    Parameters
    ----------
    results
        Policies; ceilings among them are passed over.
    ceiling
        The bound of the same orders under the same rules; NaN where nothing can be filled.

    Returns
    -------
    DataFrame
        Columns `policy`, `order_id`, `instrument`, `date`, `pa` and `ceiling` (basis points); no rows when all is well.
    """
    compared = [ceiling, *(one for one in results if one.kind != "ceiling")]
    check_same_orders(compared)
    columns = ["policy", "order_id", "instrument", "date", "pa", "ceiling"]
    tables = [
        one.orders.assign(policy=one.policy, pa=one.pa, ceiling=ceiling.values("pa", one))[columns] for one in compared
    ]
    table = pd.concat(tables, ignore_index=True)
    above = table[table["pa"].notna() & ~(table["pa"] <= table["ceiling"] + ROUNDING_BP)]
    excess = (above["pa"] - above["ceiling"]).fillna(np.inf)
    return above.loc[excess.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


def day_matrix(results: Sequence[PolicyResult]) -> pd.DataFrame:
    """Return the mean PA of each day and policy in basis points, days by policies.

    Days are in time order; a policy without a PA on a day has NaN there, and days on which no policy has one are left
    out.
    """
    return pd.DataFrame({one.policy: pd.Series(one.pa, one.dates).dropna().groupby(level=0).mean() for one in results})
