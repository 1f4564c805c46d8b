"""Statistics over seeds: how the result of a training varies with its random seed and with the days it is judged on.

A training is one draw of its seed, as a day is one of the market. Intervals that are to hold for the next training and
for the next days resample both (A. Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1, 2007): seeds as
they are drawn, and days jointly for all seeds, since all of them are judged on the same ones. Where days follow one
another, single days are drawn all the same, and the interval is widened for it (`rlwb.evaluation.dependence`): blocks
would have to be the same for all that is compared. The interquartile mean
and the probability of improvement are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (NeurIPS 2021, arXiv 2108.13264).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rlwb.errors import DataError
from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, day_sums, draw_weights, expanded, fewest_days, without_each
from rlwb.evaluation.dependence import Dependence
from rlwb.evaluation.metrics import METRICS, ROUNDING, Beside, Metric, order_terms
from rlwb.evaluation.results import PolicyResult, mean, standard_deviation

Aggregate = Callable[[np.ndarray], np.ndarray]


def interquartile_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half over the last axis: a quarter of the values, rounded down, is cut at each end.

    Parameters
    ----------
    values : float of shape (..., n)
    """
    cut = values.shape[-1] // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1))


def _mean(values: np.ndarray) -> np.ndarray:
    return np.asarray(values.mean(axis=-1))


AGGREGATES: dict[str, Aggregate] = {"mean": _mean, "iqm": interquartile_mean}
"""Summaries of the results of seeds, by name."""


def too_few_seeds(seeds: int, level: float) -> str | None:
    """Say why there is no interval of this level over `seeds` trainings; None where there is one."""
    if seeds >= fewest_days(level):
        return None
    if seeds == 1:
        return "One training (one seed): nothing tells how another seed would differ."
    held = 100 * (1 - 2.0 ** (1 - seeds))
    return (
        f"Intervals of {100 * level:g} % over seeds take at least {fewest_days(level)} of them; there are {seeds}, and "
        f"even the span from the worst to the best holds the middle of all trainings in {held:.3g} % of cases only."
    )


class Days:
    """The days that results are judged on, and how often each is drawn in each of the resamples that all share.

    Parameters
    ----------
    results
        Every result that is compared; their days are put together.
    resamples, seed
        How many resamples, and the seed of all draws.
    """

    def __init__(self, results: Sequence[PolicyResult], *, resamples: int = RESAMPLES, seed: int = 0) -> None:
        self.days = np.unique(np.concatenate([one.dates for one in results])) if results else np.array([], "M8[D]")
        self.resamples, self.seed = resamples, seed
        self._chunks: list[np.ndarray] = []
        if len(self.days) > 1 and resamples:
            drawn = draw_weights(len(self.days), resamples, np.random.default_rng(seed))
            self._chunks = [chunk.astype(np.min_scalar_type(len(self.days))) for chunk in drawn]

    def picks(self, seeds: int, group: int = 0) -> np.ndarray:
        """Return which of so many seeds each resample has, int of shape ``(resamples, seeds)``.

        Two groups of trainings are drawn independently.
        """
        return np.random.default_rng([self.seed, 1, group]).integers(seeds, size=(self.resamples, seeds))

    def values(
        self, result: PolicyResult, metrics: Sequence[str], against: Beside | None = None
    ) -> dict[str, tuple[float, np.ndarray, np.ndarray]]:
        """Return metrics of one policy: on its days, on each resample of them, and with each day left out.

        The last two are float64 of shape ``(resamples,)`` and ``(days,)``. NaN where it cannot be computed, and of
        resamples of fewer than two days.
        """
        terms = order_terms(result, against)
        return {name: self._value(terms[name], result.dates, METRICS[name]) for name in metrics}

    def _value(self, terms: np.ndarray, dates: np.ndarray, metric: Metric) -> tuple[float, np.ndarray, np.ndarray]:
        keep = ~np.isnan(terms).any(axis=1)
        part, day = terms[keep], np.searchsorted(self.days, dates[keep])
        if not len(part):
            return math.nan, np.full(self.resamples, math.nan), np.full(len(self.days), math.nan)
        sums = None if metric.by_order else day_sums(part, day, len(self.days))

        def statistic(weights: np.ndarray) -> np.ndarray:
            return metric.statistic(part, day, weights) if sums is None else metric.statistic(weights @ sums)

        with np.errstate(invalid="ignore", divide="ignore"):
            value = float(statistic(np.ones((1, len(self.days))))[0])
            if not metric.has_interval or not self._chunks:
                fixed = math.nan if metric.has_interval else value
                return value, np.full(self.resamples, fixed), np.full(len(self.days), fixed)
            drawn = np.concatenate([statistic(chunk.astype(np.float64)) for chunk in self._chunks])
            return value, drawn, without_each(statistic, len(self.days))

    def scores(self, group: Trainings, metrics: Sequence[str]) -> dict[str, Scores]:
        """Return metrics of the trainings of a group; of several policies of a training, their mean counts."""
        found = [
            [self.values(one, metrics, against) for one in members]
            for members, against in zip(group.seeds, group.against, strict=True)
        ]
        return {
            name: self._scores([[one[name] for one in members] for members in found], name, group.is_trained)
            for name in metrics
        }

    def _scores(
        self, found: Sequence[Sequence[tuple[float, np.ndarray, np.ndarray]]], metric: str, is_trained: bool
    ) -> Scores:
        values = np.array([mean(np.array([one[0] for one in members])) for members in found])
        known = ~np.isnan(values)

        def columns(which: int, rows: int) -> np.ndarray:
            means = [
                np.ma.masked_invalid(np.stack([one[which] for one in members])).mean(axis=0).filled(math.nan)
                for members, is_known in zip(found, known, strict=True)
                if is_known
            ]
            return np.stack(means, axis=1) if means else np.empty((rows, 0))

        days, about = len(self.days), METRICS[metric]
        resampled, left_out = columns(1, self.resamples), columns(2, days)
        return Scores(values[known], resampled, days, about.has_interval, is_trained, left_out, about.within)


@dataclass(frozen=True, eq=False)
class Scores:
    """A metric of n trainings that differ in their seed, in the metric's unit.

    Attributes
    ----------
    values : float64 of shape (n,)
        On the days as they are; a training without a value is left out.
    resampled : float64 of shape (resamples, n)
        On resamples of the days, which are the same for all trainings.
    days
        Number of days.
    of_days
        Whether other days would give another value; not of an observed extreme.
    is_trained
        Whether another seed would give another value, even where there is one alone.
    left_out : float64 of shape (days, n)
        With each day left out, in the sequence of time; None where that is not known, so that days count as
        independent.
    within
        Least and largest value of the metric.
    """

    values: np.ndarray
    resampled: np.ndarray
    days: int
    of_days: bool = True
    is_trained: bool = False
    left_out: np.ndarray | None = None
    within: tuple[float, float] = (-math.inf, math.inf)

    @property
    def seeds(self) -> int:
        """Number of trainings that have a value."""
        return len(self.values)


@dataclass(frozen=True)
class SeedInterval:
    """An aggregate over trainings with its intervals, all in the unit of the metric; NaN where there is none.

    Attributes
    ----------
    estimate
        Of the trainings and days as they are.
    lo, hi
        Over seeds and days: where another training, judged on other days, is aimed at.
    seeds_lo, seeds_hi
        Over seeds alone, on these very days.
    days_lo, days_hi
        Over days alone, for these very trainings.
    """

    estimate: float
    lo: float = math.nan
    hi: float = math.nan
    seeds_lo: float = math.nan
    seeds_hi: float = math.nan
    days_lo: float = math.nan
    days_hi: float = math.nan


def seed_interval(
    scores: Scores, picks: np.ndarray, aggregate: Aggregate = _mean, *, level: float = LEVEL
) -> SeedInterval:
    """Return an aggregate of trainings with its bootstrap intervals over seeds, over days, and over both.

    Percentiles are taken further out than the level says, as `rlwb.evaluation.statistic_interval` does for few days:
    where Student's t puts them, with the degrees of freedom that Satterthwaite's formula gives to the sum of the
    variance over seeds and that over days, of which the latter is that of `Dependence.of`. An interval over seeds is
    given from `fewest_days` seeds on.

    Parameters
    ----------
    picks : int of shape (resamples, n)
        Which trainings each resample has.
    """
    if not scores.seeds:
        return SeedInterval(math.nan)
    over_seeds = aggregate(scores.values[picks])
    over_days = aggregate(scores.resampled)
    both = aggregate(np.take_along_axis(scores.resampled, picks, axis=1))
    estimate, left_out = float(aggregate(scores.values)), scores.left_out
    days = _day_dependence(None if left_out is None else aggregate(left_out), scores.days)
    return _intervals(estimate, over_seeds, over_days, both, scores.seeds, scores.days, days, level, scores.within)


def _day_dependence(left_out: np.ndarray | None, days: int) -> Dependence | None:
    """Return how days depend on one another by a statistic of shape ``(days,)`` without each; None of a single day."""
    if days < 2:
        return None
    known = left_out is not None and np.isfinite(left_out).all()
    return Dependence.of(-left_out, in_blocks=False) if left_out is not None and known else Dependence.none(days)


def _intervals(
    estimate: float,
    over_seeds: np.ndarray,
    over_days: np.ndarray,
    both: np.ndarray,
    seeds: int,
    days: int,
    in_sequence: Dependence | None,
    level: float,
    within: tuple[float, float],
) -> SeedInterval:
    few = fewest_days(level)
    seed_part = _variance(over_seeds, Dependence.none(seeds) if seeds > 1 else None)
    day_part = _variance(over_days, in_sequence)
    ends: dict[str, float] = {}
    if seeds >= few:
        ends["seeds_lo"], ends["seeds_hi"] = _ends(over_seeds, estimate, [seed_part], level, within)
    if days >= few:
        ends["days_lo"], ends["days_hi"] = _ends(over_days, estimate, [day_part], level, within)
    if seeds >= few and days >= few:
        ends["lo"], ends["hi"] = _ends(both, estimate, [seed_part, day_part], level, within)
    return SeedInterval(estimate, **ends)


def _variance(resampled: np.ndarray, units: Dependence | None) -> tuple[float, float, int]:
    """Return the variance of resampled values, that of the estimate by the units' dependence, and its freedom."""
    known = resampled[np.isfinite(resampled)]
    plain = float(known.var()) if len(known) > 1 and units is not None else 0.0
    return (plain, plain * units.widening**2, units.freedom) if units is not None else (plain, plain, 1)


def _ends(
    resampled: np.ndarray,
    estimate: float,
    parts: Sequence[tuple[float, float, int]],
    level: float,
    within: tuple[float, float],
) -> tuple[float, float]:
    """Return the expanded percentiles of resampled values, of which `parts` are the variances, cut at `within`."""
    known = resampled[np.isfinite(resampled)]
    if len(known) < 2:
        return math.nan, math.nan
    plain, whole = sum(part[0] for part in parts), sum(part[1] for part in parts)
    if plain <= 0:
        return float(known.min()), float(known.max())
    freedom = whole**2 / sum(part[1] ** 2 / part[2] for part in parts)
    lo, hi = expanded(known, estimate, float(-math.sqrt(whole / plain) * stdtrit(freedom, (1 - level) / 2)))
    return max(lo, within[0]), min(hi, within[1])


def improvement_probability(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return how likely a training of one kind beats one of another: Mann and Whitney's U over the number of pairs.

    A tie counts half. Over the last axis; the others are kept.

    Parameters
    ----------
    x : float of shape (..., n)
    y : float of shape (..., m)
    """
    difference = x[..., :, None] - y[..., None, :]
    better = (difference > ROUNDING) + 0.5 * (np.abs(difference) <= ROUNDING)
    return np.asarray(better.mean(axis=(-1, -2)))


def improvement(x: Scores, y: Scores, days: Days, *, level: float = LEVEL) -> SeedInterval:
    """Return the probability that a training of one kind beats one of another, or a rule, with its intervals.

    Seeds of the two are resampled independently, days jointly; how days depend on one another is that of the difference
    of the two means, which moves with every day. Where every training is better, or every one worse, the
    bootstrap sees no doubt; that end is then Clopper and Pearson's for as many trials as there are seeds.

    Parameters
    ----------
    x, y
        Of the same days; a rule, such as TWAP, is one value that no seed changes. Where one of the two is a single
        training there is no interval over seeds: nothing tells how another seed of it would differ.
    """
    if not x.seeds or not y.seeds:
        return SeedInterval(math.nan)
    first, second = days.picks(x.seeds, 0), days.picks(y.seeds, 1)

    def drawn(scores: Scores, picks: np.ndarray) -> np.ndarray:
        return np.take_along_axis(scores.resampled, picks, axis=1)

    estimate = float(improvement_probability(x.values, y.values))
    over_seeds = improvement_probability(x.values[first], y.values[second])
    is_known = np.isfinite(x.resampled).all(axis=1) & np.isfinite(y.resampled).all(axis=1)
    over_days = improvement_probability(x.resampled, y.resampled)[is_known]
    both = improvement_probability(drawn(x, first), drawn(y, second))[is_known]
    trained = [one.seeds for one in (x, y) if one.is_trained or one.seeds > 1]
    seeds = min(trained, default=1)
    means = [None if one.left_out is None else one.left_out.mean(axis=1) for one in (x, y)]
    left_out = None if means[0] is None or means[1] is None else means[0] - means[1]
    dependence = _day_dependence(left_out, x.days)
    found = _intervals(estimate, over_seeds, over_days, both, seeds, x.days, dependence, level, (0.0, 1.0))
    return _without_doubt(found, seeds, level)


def _without_doubt(found: SeedInterval, seeds: int, level: float) -> SeedInterval:
    """Return the interval of a share of seeds, with Clopper and Pearson's end where it is of all or of none."""
    bound = ((1 - level) / 2) ** (1 / seeds)
    if found.estimate == 1.0:
        return _replaced(found, lo=min(found.lo, bound), seeds_lo=min(found.seeds_lo, bound))
    if found.estimate == 0.0:
        return _replaced(found, hi=max(found.hi, 1 - bound), seeds_hi=max(found.seeds_hi, 1 - bound))
    return found


def above(values: np.ndarray, threshold: float) -> np.ndarray:
    """Return the share of values above a threshold, over the last axis: a point of a performance profile."""
    return np.asarray((values > threshold).mean(axis=-1))


def profile(scores: Scores, picks: np.ndarray, threshold: float, *, level: float = LEVEL) -> SeedInterval:
    """Return the share of trainings above a threshold, with its intervals.

    How days depend on one another is that of the mean over trainings, which moves with every day. Where all trainings,
    or none, are above it, that end is Clopper and Pearson's, as in `improvement`.

    Parameters
    ----------
    picks : int of shape (resamples, n)
        Which trainings each resample has.
    """
    if not scores.seeds:
        return SeedInterval(math.nan)
    days = _day_dependence(None if scores.left_out is None else scores.left_out.mean(axis=1), scores.days)
    known = scores.resampled[np.isfinite(scores.resampled).all(axis=1)]
    both = np.take_along_axis(scores.resampled, picks, axis=1)
    both = both[np.isfinite(both).all(axis=1)]
    estimate, over_seeds = float(above(scores.values, threshold)), above(scores.values[picks], threshold)
    over_days, over_both = above(known, threshold), above(both, threshold)
    of = (scores.seeds, scores.days, days, level, (0.0, 1.0))
    return _without_doubt(_intervals(estimate, over_seeds, over_days, over_both, *of), scores.seeds, level)


def _replaced(found: SeedInterval, **ends: float) -> SeedInterval:
    """Return an interval with other ends; one that is missing stays missing."""
    own = vars(found)
    return SeedInterval(**{**own, **{name: one for name, one in ends.items() if not math.isnan(own[name])}})


@dataclass(frozen=True, eq=False)
class Trainings:
    """Trainings that differ in their seed alone, or a rule that has none, under one name.

    Attributes
    ----------
    title
        What people read.
    kind
        That of the results (`PolicyResult.kind`).
    seeds
        For each training its policies, whose mean counts; one entry for a rule.
    against
        For each what it is compared with, on the same orders, or None.
    """

    title: str
    kind: str
    seeds: Sequence[Sequence[PolicyResult]]
    against: Sequence[Beside | None]

    @property
    def is_trained(self) -> bool:
        """Whether it depends on a seed."""
        return self.kind in ("checkpoint", "last")


def values_of(group: Trainings, metric: str) -> np.ndarray:
    """Return a metric of each training of a group, on its days as they are: float64 of shape ``(seeds,)``."""
    days = Days([one for members in group.seeds for one in members], resamples=0)
    found = [
        [days.values(one, [metric], against)[metric][0] for one in members]
        for members, against in zip(group.seeds, group.against, strict=True)
    ]
    return np.array([mean(np.array(values)) for values in found])


def seed_table(
    groups: Mapping[str, Trainings], *, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Return one row a group and metric: its values over seeds, summarised, with intervals over seeds and days.

    Parameters
    ----------
    groups
        By name.
    level, resamples, seed
        Settings of the bootstrap. All groups share the same resampled days.

    Returns
    -------
    DataFrame
        Columns: `of` (the group), `title`, `kind`, `metric` (a key of `METRICS`), `seeds` (trainings that have it, 1
        for a rule), `days`, `mean`, `std_seeds` (sample standard deviation over seeds), `least`, `most`, `iqm`, and
        of mean and iqm the ends `_lo`, `_hi` (over seeds and days), `_seeds_lo`, `_seeds_hi`, `_days_lo` and
        `_days_hi`. What cannot be computed is NaN. `_lo` and `_hi` of a rule are over its days.
    """
    everyone = [one for group in groups.values() for members in group.seeds for one in members]
    days = Days(everyone, resamples=resamples, seed=seed)
    rows = []
    for name, group in groups.items():
        if not group.seeds:
            raise DataError(f"{group.title} has no training to summarise; leave it out.")
        for metric, scores in days.scores(group, list(METRICS)).items():
            rows.append({"of": name, "title": group.title, "kind": group.kind, "metric": metric})
            rows[-1] |= _summary(scores, days, is_trained=group.is_trained, level=level)
    table = pd.DataFrame(rows)
    numbers = list(table.columns[table.columns.get_loc("mean") :])
    return table.assign(**table[numbers].mask(table[numbers].abs() < ROUNDING, 0.0))


def _summary(scores: Scores, days: Days, *, is_trained: bool, level: float) -> dict[str, Any]:
    values = scores.values
    row: dict[str, Any] = {
        "seeds": scores.seeds,
        "days": scores.days,
        "mean": mean(values),
        "std_seeds": standard_deviation(values),
        "least": float(values.min()) if len(values) else math.nan,
        "most": float(values.max()) if len(values) else math.nan,
    }
    picks = days.picks(max(scores.seeds, 1))
    for name, aggregate in AGGREGATES.items():
        found = vars(seed_interval(scores, picks, aggregate, level=level))
        row[name] = found.pop("estimate")
        if not is_trained and scores.seeds == 1:
            found |= {"lo": found["days_lo"], "hi": found["days_hi"]}
        if not scores.of_days:  # an extreme of these days: other days say nothing of it
            found = dict.fromkeys(found, math.nan)
        row |= {f"{name}_{end}": one for end, one in found.items()}
    return row


def improvement_table(
    groups: Mapping[str, Trainings],
    metric: str = "pa",
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the probability of improvement of each group of trainings over each other group, row by row.

    Parameters are those of `seed_table`, and the metric that is compared, of which more is better.

    Returns
    -------
    DataFrame
        Columns: `of`, `over`, `metric`, `seeds`, `over_seeds`, `days`, `probability`, `lo`, `hi` (over seeds and
        days), `seeds_lo`, `seeds_hi`, `days_lo`, `days_hi`.
    """
    everyone = [one for group in groups.values() for members in group.seeds for one in members]
    days = Days(everyone, resamples=resamples, seed=seed)
    scores = {name: days.scores(group, [metric])[metric] for name, group in groups.items()}
    rows = []
    for name, group in groups.items():
        for other in groups if group.is_trained else ():
            if other == name:
                continue
            found = vars(improvement(scores[name], scores[other], days, level=level))
            rows.append(
                {
                    "of": name,
                    "over": other,
                    "metric": metric,
                    "seeds": scores[name].seeds,
                    "over_seeds": scores[other].seeds,
                    "days": len(days.days),
                    "probability": found.pop("estimate"),
                    **found,
                }
            )
    return pd.DataFrame(rows)


def profile_table(
    groups: Mapping[str, Trainings],
    metric: str = "pa",
    *,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    points: int = 21,
) -> pd.DataFrame:
    """Return the performance profile of each group of trainings: the share of them above each of many thresholds.

    Parameters are those of `improvement_table`; `points` thresholds lie evenly from the least to the most of all
    trainings.

    Returns
    -------
    DataFrame
        Columns: `of`, `metric`, `seeds`, `days`, `threshold`, `share_above`, `lo`, `hi` (over seeds and days),
        `seeds_lo`, `seeds_hi`, `days_lo`, `days_hi`.
    """
    trained = {name: group for name, group in groups.items() if group.is_trained}
    everyone = [one for group in trained.values() for members in group.seeds for one in members]
    days = Days(everyone, resamples=resamples, seed=seed)
    scores = {name: days.scores(group, [metric])[metric] for name, group in trained.items()}
    values = np.concatenate([one.values for one in scores.values()]) if scores else np.array([])
    rows = []
    for name, own in scores.items():
        picks = days.picks(max(own.seeds, 1))
        for threshold in np.linspace(values.min(), values.max(), points) if len(values) else ():
            found = vars(profile(own, picks, float(threshold), level=level))
            about = {"of": name, "metric": metric, "seeds": own.seeds, "days": own.days, "threshold": threshold}
            rows.append({**about, "share_above": found.pop("estimate"), **found})
    return pd.DataFrame(rows)
