"""The gap between the PA under simple rules and under the full ones, cause by cause, for one policy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

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
    "no catch-up": ("catch_up",),
    "steps across breaks": ("step_grid",),
    "lots": ("lot_size", "odd_lot"),
    "price limits": ("price_limit", "price_tick"),
    "halts": ("halts",),
    "spread": ("half_spread_bps",),
    "temporary impact": ("temporary_impact_bps", "temporary_impact_shape"),
    "permanent impact": ("permanent_impact_bps", "permanent_impact_shape"),
    "transient impact": (
        "transient_impact_bps",
        "transient_impact_shape",
        "transient_decay",
        "transient_half_life",
        "transient_exponent",
    ),
    "commission": ("commission_bps",),
    "minimum fee": ("min_fee",),
    "sell tax": ("sell_tax_bps",),
}


def rule_steps(full: ExecutionRules, *, halts: bool) -> dict[str, ExecutionRules]:
    """Return cause to rules, from `SIMPLE` to the rules `full`, each with one cause more than those before.

    Causes that change nothing are left out. `halts` is True where the data say which bars were halted; under simple
    rules such bars fill. All rules have the benchmark and `unfilled_at` of the full ones.
    """
    rules = ExecutionRules(halts=not halts, benchmark=full.benchmark, unfilled_at=full.unfilled_at)
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
    play, steps
        What runs the policy on the same orders under given rules, and `rule_steps`.

    Returns
    -------
    DataFrame
        One row a rule set, `SIMPLE` first, then each cause, then `TOTAL`. Columns: `cause`; `pa` and `pa_net` (means in
        basis points, before and after costs); `difference`, `difference_lo`, `difference_hi` (net PA less that of the
        row before, for `TOTAL` less that of the first row, order by order, with its day-clustered interval; NaN in the
        first row); `ffr` (mean over all orders); `orders` and `days` that the means are over; `left_out` (orders
        without a PA under one of the rule sets, left out under all); `rules` (in words).
    """
    results = [play(rules) for rules in steps.values()]
    check_same_orders(results)
    first = results[0]
    nets = [result.values("pa_net", first) for result in results]
    have = np.isfinite(np.stack(nets)).all(axis=0)
    dates = first.dates[have]
    rows = []
    places = [(0, None), *((place, place - 1) for place in range(1, len(results))), (len(results) - 1, 0)]
    for cause, (after, before) in zip([*steps, TOTAL], places, strict=True):
        change = np.full(len(dates), math.nan) if before is None else (nets[after] - nets[before])[have]
        found = day_interval(change, dates, np.random.default_rng(seed), level=level, resamples=resamples)
        rows.append(
            {
                "cause": cause,
                "pa": mean(results[after].values("pa", first)[have]),
                "pa_net": mean(nets[after][have]),
                "difference": found.estimate,
                "difference_lo": found.lo,
                "difference_hi": found.hi,
                "ffr": mean(results[after].values("ffr", first)),
                "orders": int(have.sum()),
                "days": len(np.unique(dates)),
                "left_out": int((~have).sum()),
                "rules": list(steps.values())[after].describe(),
            }
        )
    return pd.DataFrame(rows)
