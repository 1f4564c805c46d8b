"""The gap between the PA under simple rules and under the full ones, cause by cause, for one policy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pandas as pd

from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, day_interval
from rlwb.evaluation.results import PolicyResult, check_same_orders, mean
from rlwb.execution import ExecutionRules

SIMPLE, TOTAL = "simple rules", "all together"

#: Cause to the settings that it is made of, in the order in which the causes are added: first what changes fills, then
#: what only costs, so that a cost is that of the fills it falls on. Quotes are priced where the spread is.
CAUSES: dict[str, tuple[str, ...]] = {
    "price field": ("price_field",),
    "volume cap": ("volume_limit",),
    "no forced completion": ("complete_at_end",),
    "lots": ("lot_size", "odd_lot"),
    "price limits": ("price_limit", "price_tick"),
    "halts": ("halts",),
    "spread": ("half_spread_bps",),
    "temporary impact": ("temporary_impact_bps", "temporary_impact_shape"),
    "permanent impact": ("permanent_impact_bps", "permanent_impact_shape"),
    "commission": ("commission_bps",),
    "minimum fee": ("min_fee",),
    "sell tax": ("sell_tax_bps",),
}


def rule_steps(full: ExecutionRules, *, halts: bool) -> dict[str, ExecutionRules]:
    """Return cause to rules, from the simple rules to `full`, each with one cause more than those before.

    Parameters
    ----------
    full
        The rules to arrive at.
    halts
        True where the data say which bars were halted; under simple rules such bars fill.

    Returns
    -------
    dict
        First `SIMPLE`; causes that change nothing are not in it.
    """
    rules = ExecutionRules(halts=not halts)
    steps = {SIMPLE: rules}
    for cause, names in CAUSES.items():
        changes = {name: getattr(full, name) for name in names}
        if full.price_field == "quotes":
            changes = {"price field": {}, "spread": {"price_field": "quotes"}}.get(cause, changes)
        after = dataclasses.replace(rules, **changes)
        if after != rules:
            steps[cause] = rules = after
    return steps


def gap_table(
    play: Callable[[ExecutionRules], PolicyResult],
    steps: dict[str, ExecutionRules],
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Run a policy under each rule set and return what each cause costs.

    The policy is run again under each rule set, not priced again: what it sees of its position and what it asks for
    follow the rules. A cause that only costs changes neither, so its difference is that of the price alone. Means are
    over the orders that have a PA under every rule set, so that the differences add up to the total.

    Parameters
    ----------
    play
        Runs the policy on the same orders under given rules.
    steps
        From `rule_steps`.

    Returns
    -------
    DataFrame
        One row a rule set, `SIMPLE` first, then each cause, then `TOTAL`. Columns: `cause`; `pa` and `pa_net` (means in
        basis points, before and after costs); `difference`, `difference_lo`, `difference_hi` (net PA less that of the
        row before, for `TOTAL` less that of the first row, order by order, with its day-clustered interval; NaN in the
        first row); `ffr` (mean over all orders); `orders` and `days` that the means are over; `left_out` (orders
        without a PA under one of the rule sets, left out under all); `rules` (in words).
    """
    results = {cause: play(rules) for cause, rules in steps.items()}
    check_same_orders(list(results.values()))
    *_, last = steps
    first, before = results[SIMPLE], {after: cause for cause, after in pairwise(steps)} | {TOTAL: SIMPLE}
    results, steps = results | {TOTAL: results[last]}, steps | {TOTAL: steps[last]}
    nets = {cause: result.values("pa_net", first) for cause, result in results.items()}
    have = np.isfinite(np.stack(list(nets.values()))).all(axis=0)
    dates = first.dates[have]
    rows = []
    for cause, result in results.items():
        change = (nets[cause] - nets[before[cause]])[have] if cause in before else np.full(len(dates), math.nan)
        found = day_interval(change, dates, np.random.default_rng(seed), level=level, resamples=resamples)
        rows.append(
            {
                "cause": cause,
                "pa": mean(result.values("pa", first)[have]),
                "pa_net": mean(nets[cause][have]),
                "difference": found.estimate,
                "difference_lo": found.lo,
                "difference_hi": found.hi,
                "ffr": mean(result.values("ffr", first)),
                "orders": int(have.sum()),
                "days": len(np.unique(dates)),
                "left_out": int((~have).sum()),
                "rules": steps[cause].describe(),
            }
        )
    return pd.DataFrame(rows)
