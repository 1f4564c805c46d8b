"""What a reader must know to read the headline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from rlwb.evaluation.bootstrap import too_few_days
from rlwb.evaluation.results import PolicyResult, of_kind
from rlwb.evaluation.statistics import ZERO_BP, mean, standard_deviation


def headline_notes(
    results: Sequence[PolicyResult],
    frame: pd.DataFrame,
    *,
    requested: int,
    candidates: int | None,
    level: float,
    resamples: int,
    twap_is_off: bool,
    net_is_off: bool,
) -> tuple[str, ...]:
    """Return the sentences below a headline; for the parameters see `rlwb.evaluation.tables.headline`."""
    checkpoints, group = of_kind(results, "checkpoint"), frame.iloc[0]
    notes = list(_basis(checkpoints, group, level, resamples))
    if len(checkpoints) < requested:
        notes.append(f"{requested} checkpoints were asked for; there are only n = {len(checkpoints)} to use.")
    if net_is_off:
        notes.append(
            "PA is before costs, net PA after all of them: spread, impact, commission and tax. Checkpoints are chosen "
            "by net PA; value-weighted, win rate and gain/loss are before costs."
        )
    if not math.isnan(group["validation_pa"]):
        notes.append(_shrinkage(group, len(checkpoints), candidates, net_is_off))
    if twap_is_off:
        notes.append(
            "TWAP's own PA is not 0 here: a cap, lots, price limits or halts shape its fills. Judge a policy by what "
            "it has over TWAP, order by order, not by its PA."
        )
    if few := too_few_days(group["days"], level):
        notes.append(few)
    missing = frame.loc[frame["pa_missing"] > 0, ["policy", "pa_missing"]]
    if len(missing):
        listed = ", ".join(f"{row.policy}: {row.pa_missing}" for row in missing.itertuples())
        notes.append(f"PAs that are missing and left out, not read as 0: {listed}.")
    return (*notes, *_price_blind(results), *_unattainable(results), *_ceilings(results))


def _basis(checkpoints: Sequence[PolicyResult], group: pd.Series, level: float, resamples: int) -> Iterator[str]:
    n, dates = len(checkpoints), checkpoints[0].dates
    span = f" from {dates.min()} to {dates.max()}" if len(dates) else ""
    yield (
        f"{group['orders']:,} test orders on {group['days']} days{span}; PA against each order's own TWAP; every order "
        "counts the same, except under value-weighted (by value traded at TWAP)."
    )
    spread = f"± is the standard deviation over the {n} checkpoints; intervals" if n > 1 else "Intervals"
    yield f"{spread} ({100 * level:g} %) are of the mean PA, by {resamples:,} bootstrap resamples of whole days."


def _shrinkage(group: pd.Series, n: int, candidates: int | None, has_costs: bool) -> str:
    """Set the validation PA of the chosen checkpoints beside their test PA."""
    net = "net " if has_costs else ""
    fall = group["validation_pa"] - group["pa_net" if has_costs else "pa"]
    was_chosen = candidates is None or candidates > n
    cause = (
        ": in part because the validation score of a selected checkpoint is biased upwards (selection bias), in part "
        "because market conditions differ between the two periods"
    )
    return (
        f"The chosen checkpoints' {net}validation PA was {group['validation_pa']:.2f} bp, {abs(fall):.2f} bp "
        f"{'above' if fall >= 0 else 'below'} their {net}test PA{cause if fall >= 0 and was_chosen else ''}."
    )


def _price_blind(results: Sequence[PolicyResult]) -> Iterator[str]:
    """Explain means of exactly 0 over orders that are not 0 one by one."""
    blind = [one for one in results if abs(mean(one.pa)) <= ZERO_BP and standard_deviation(one.pa) > 1e-3]
    if not blind:
        return
    count = sum(one.kind == "checkpoint" for one in blind)
    ours = f", {count} of the chosen checkpoints among them," if count else ""
    yield (
        f"A schedule that ignores both price and direction{ours} has a mean PA of exactly 0 where every session has a "
        "buy and a sell over the same window, because their PAs cancel."
    )


def _unattainable(results: Sequence[PolicyResult]) -> Iterator[str]:
    """Say which rows no one could have traded."""
    names = [one.policy for one in of_kind(results, "unattainable")]
    if names:
        yield (
            f"Not attainable by trading: {', '.join(names)}. A policy that knows prices ahead of its decisions shows "
            "how much there is to gain, not what can be gained."
        )


def _ceilings(results: Sequence[PolicyResult]) -> Iterator[str]:
    """Say what the ceilings are, and which one bounds the policies."""
    names = [one.policy for one in of_kind(results, "ceiling")]
    if "hindsight" in names:
        yield (
            "The ceiling knows every price of the day before it trades: under these rules and steps no policy passes "
            "it on any order. Its PA is computed over the filled part only."
        )
    if "hindsight_uncapped" in names:
        yield (
            "The ceiling without cap is that of the same rules without the volume cap. It does not bound policies "
            "under the cap, which may fill less at better prices."
        )
