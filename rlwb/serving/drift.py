"""Whether the features that a served policy reads are still like those it was trained on.

A bar is not the unit of this test: the bars of a day depend on one another, and so do the instruments. The unit is the
day. Of every day and feature there are two statistics, the mean over all bars of its distance from the training's mean
at that tick (the level), and the mean over sessions of the logarithm of that distance's variance within the session
(the spread). From the training days come, for each statistic, the variance of a day, that of an instrument within a
day, that between instruments for good, and the correlation of a day with the next. A live day of ``k`` instruments is
measured by them: less its forecast from the day before (an autoregression of order 1, Andrews and Monahan's
prewhitening, 1992), over the deviation that this forecast error has for ``k`` instruments, as a normal score ``z``.

Evidence adds up by a normal mixture. If nothing changed, ``z`` has a mean of 0, known up to a variance ``v0``: that of
the training's own mean, which rests on finitely many days, and that of which instruments are live. If something
changed, it has another mean. The ratio of the two likelihoods over the last ``n`` days of sum ``S``,

    E = sqrt((1 + n v0) / (1 + n v1)) exp(S^2 / 2 (v1 / (1 + n v1) - v0 / (1 + n v0))),    v1 = v0 + shift^2,

is at most 1 in the mean at any time when nothing changed (an e-process), and so is its average over shifts, statistics
and features, however these depend on one another. By Ville's inequality it passes a limit L from a given first day on
with probability at most 1 / L; a year has 250 first days and as many before it as are remembered, so that with
``L = (250 + memory) / alpha`` a year has a false alarm with probability at most ``alpha``, looked at every day
(Shin, Ramdas and Rinaldo, E-detectors, 2022, arXiv 2203.03532). That is exact where the training's variances and
correlations are; they are estimates, and are raised for that. `benchmarks/drift.py` measures what is left.

A score counts at most 3, so that an alarm comes after three days at the earliest. Within a day
`DriftTest.out_of_range` says which values the training never came near.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rlwb.errors import BundleError, DataError
from rlwb.market.features import MarketFeatures
from rlwb.market.novelty import FLOOR, level_and_spread
from rlwb.market.references import blocks
from rlwb.market.sessions import Sessions

#: Days of a year, of which `DriftTest` states the rate of false alarms.
YEAR = 250
#: Mean shifts, in standard deviations of a day's normal score, that the alternative gives the same weight.
SHIFTS = (0.25, 0.75, 1.5)
#: Days of evidence that are remembered.
MEMORY = 60
#: A session counts for its day when at least this share of its ticks was seen.
LEAST_SEEN = 0.5
#: A score counts at most as much as this: with fat tails larger ones are not as rare as a normal law has it.
LARGEST = 3.0
_STATISTICS = ("mean", "day", "rest", "instrument", "repeat_day", "repeat_rest", "inflation")
KINDS = ("level", "spread")


def training_statistics(
    features: MarketFeatures, sessions: Sessions, rows: np.ndarray, *, clip: float | None = None
) -> dict[str, Any]:
    """Describe the features of the training part, for `DriftTest`, as values that JSON holds.

    Parameters
    ----------
    features
        Features of `sessions`, normalised.
    sessions
        The panel.
    rows
        Numbers of the training sessions, int of shape ``(N,)``.
    clip
        `FeatureSettings.clip`: values of this size were cut, and count as out of range.

    Returns
    -------
    dict
        ``columns``; ``days``, ``instruments`` (the mean number on a day); ``clip``; ``profile`` of shape ``(T, C)``,
        the mean at each tick; ``low``, ``high`` of shape ``(C,)``, the range; ``statistics``, to each of
        ``level`` and ``spread`` lists of length C: ``mean``; ``day``, ``rest``, ``instrument``, variances of a day's
        mean over its instruments, of what each has for itself on that day, and of what an instrument keeps;
        ``repeat_day``, ``repeat_rest``, correlations of the first two with the next day's; ``inflation``, how much
        larger the long-run variance of the forecast errors is than their variance. A variance that one day cannot tell
        is None, and that statistic is not tested.

    Raises
    ------
    DataError
        Without any training session.
    """
    rows = np.asarray(rows, dtype=np.int64)
    if not len(rows):
        raise DataError("there are no training sessions to take the statistics of features from.")
    _, ticks, columns = features.shape
    total, count = np.zeros((ticks, columns)), np.zeros((ticks, 1))
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    for part in blocks(rows, ticks):
        values, inside = features.rows(part).astype(np.float64), _inside(sessions, part)
        total += values.sum(axis=0, where=inside[:, :, None])
        count += inside.sum(axis=0)[:, None]
        low = np.minimum(low, values.min(axis=(0, 1), where=inside[:, :, None], initial=np.inf))
        high = np.maximum(high, values.max(axis=(0, 1), where=inside[:, :, None], initial=-np.inf))
    profile = total / np.maximum(count, 1)
    found = np.empty((len(rows), 2, columns))
    filled = 0
    for part in blocks(rows, ticks):
        inside = _inside(sessions, part)[:, :, None]
        distance = np.where(inside, features.rows(part) - profile, 0.0)
        number = np.maximum(inside.sum(axis=1), 1)
        found[filled : filled + len(part)] = level_and_spread(
            distance.sum(axis=1) / number, (distance**2).sum(axis=1) / number
        )
        filled += len(part)
    _, day = np.unique(sessions.dates[rows], return_inverse=True)
    _, instrument = np.unique(sessions.instruments[rows], return_inverse=True)
    table = np.full((day.max() + 1, instrument.max() + 1, 2, columns), np.nan)
    table[day, instrument] = found
    parts = _components(table.reshape(*table.shape[:2], -1))
    return {
        "columns": list(features.columns),
        "days": len(table),
        "instruments": len(rows) / len(table),
        "clip": clip,
        "profile": profile.tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "statistics": {
            kind: {name: _plain(values.reshape(2, -1)[at]) for name, values in parts.items()}
            for at, kind in enumerate(KINDS)
        },
    }


class _Day(NamedTuple):
    """What a day that ended leaves behind."""

    date: np.datetime64
    scores: np.ndarray | None  # None of a day that was left out
    distance: np.ndarray | None  # of its statistics from the training's means
    offset: np.ndarray | None  # variance of the mean of scores when nothing changed


@dataclass(frozen=True)
class DriftReport:
    """What is known of drift after a day.

    Attributes
    ----------
    date
        The last day that was judged; None before the first.
    days
        Live days that were judged.
    instruments
        Sessions of that day that counted.
    left_out
        Sessions of that day of which too little was seen.
    evidence
        The e-value: how many times likelier the days are under a change than under none.
    limit
        The evidence from which on it is an alarm.
    columns
        Names of the features.
    scores
        Normal score of the day, float64 of shape ``(2, C)``: level and spread by feature; NaN where none is known.
    by_feature
        Evidence of each feature by itself, float64 of shape ``(C,)``.
    """

    date: np.datetime64 | None
    days: int
    instruments: int
    left_out: int
    evidence: float
    limit: float
    columns: tuple[str, ...]
    scores: np.ndarray
    by_feature: np.ndarray

    @property
    def alarm(self) -> bool:
        """Whether the evidence passes the limit."""
        return self.evidence >= self.limit


class DriftTest:
    """Compares live features with those of the training, day by day; false alarms are rare by construction.

    Parameters
    ----------
    statistics
        What `training_statistics` gave.
    alpha
        Largest probability of a false alarm within 250 days of daily looks.

    Raises
    ------
    BundleError
        For statistics that are damaged.
    """

    def __init__(self, statistics: Mapping[str, Any], alpha: float = 0.05) -> None:
        try:
            self.columns = tuple(map(str, statistics["columns"]))
            width = len(self.columns)
            self._days, self._instruments = int(statistics["days"]), float(statistics["instruments"])
            self._profile = np.array(statistics["profile"], dtype=np.float64).reshape(-1, width)
            low, high = (np.array(statistics[name], dtype=np.float64).reshape(width) for name in ("low", "high"))
            clip = np.inf if statistics["clip"] is None else float(statistics["clip"])
            self._parts = {
                name: np.array([statistics["statistics"][kind][name] for kind in KINDS], float).reshape(2 * width)
                for name in _STATISTICS
            }
        except (KeyError, TypeError, ValueError) as error:
            raise BundleError(
                f"the training statistics of features are damaged ({error!r}); export the bundle again."
            ) from None
        margin = (high - low) / 2
        self._low, self._high = np.maximum(low - margin, -clip), np.minimum(high + margin, clip)
        self._low[self._low <= -clip] = np.nextafter(np.float32(-clip), 0) if np.isfinite(clip) else -np.inf
        self._high[self._high >= clip] = np.nextafter(np.float32(clip), 0) if np.isfinite(clip) else np.inf
        self.limit = (YEAR + MEMORY) / alpha
        self.alpha = alpha
        self._ended: deque[_Day] = deque(maxlen=MEMORY)
        self._judged = 0
        self._since: np.datetime64 | None = None
        self.report = self._report(0, 0)
        self._begin(None)

    def _begin(self, date: np.datetime64 | None) -> None:
        width = len(self.columns)
        self.date = date
        self._slots: dict[str, int] = {}
        self._sum, self._square = np.zeros((16, width)), np.zeros((16, width))
        self._seen, self._last = np.zeros(16, dtype=np.int64), np.full(16, -1)
        self._outside_now = np.zeros(16, dtype=bool)
        self.values_outside, self.values = np.zeros(width, dtype=np.int64), 0

    def observe(
        self, instruments: Sequence[str], date: np.datetime64, ticks: np.ndarray, values: np.ndarray
    ) -> DriftReport | None:
        """Take the features of ticks that are over.

        Parameters
        ----------
        instruments
            Instrument of each row; ticks of an instrument come in their order, and each counts once.
        date
            Their day. A later one than before ends the day before; an earlier one is not counted.
        ticks
            Number of each tick within its session, int of shape ``(N,)``.
        values
            Normalised features, float of shape ``(N, C)``.

        Returns
        -------
        DriftReport or None
            Of the day before, if this call ended it.
        """
        date = date.astype("datetime64[D]")
        ended = None
        if self._since is not None and date < self._since:
            return None
        if self.date is None or date > self.date:
            ended = self.close_day()
            self._begin(date)
        elif date < self.date:
            return None
        slots = np.array([self._slot(name) for name in instruments], dtype=np.int64)
        ticks = np.asarray(ticks)
        new = ticks > self._last[slots]
        if not new.all():
            slots, ticks, values = slots[new], ticks[new], np.asarray(values)[new]
        if not len(slots):
            return ended
        outside = ~((values >= self._low) & (values <= self._high))
        self._outside_now[slots] = outside.any(axis=1)
        self.values_outside += outside.sum(axis=0)
        self.values += len(slots)
        distance = np.where(np.isfinite(values), values, 0.0) - self._profile[ticks]
        np.add.at(self._sum, slots, distance)
        np.add.at(self._square, slots, distance * distance)
        np.add.at(self._seen, slots, 1)
        np.maximum.at(self._last, slots, ticks)
        return ended

    def _slot(self, instrument: str) -> int:
        slot = self._slots.setdefault(instrument, len(self._slots))
        if slot == len(self._seen):
            for name in ("_sum", "_square", "_seen", "_outside_now", "_last"):
                array = getattr(self, name)
                setattr(self, name, np.concatenate([array, np.full_like(array, -1 if name == "_last" else 0)]))
        return slot

    def out_of_range(self, instrument: str) -> bool:
        """Whether the last tick of an instrument had a value that the training never came near.

        That is one beyond the training's range, widened by half of its width on each side, one that was cut to the
        clip, or one that is not finite.
        """
        slot = self._slots.get(instrument)
        return slot is not None and bool(self._outside_now[slot])

    @property
    def share_out_of_range(self) -> np.ndarray:
        """Share of today's values that `out_of_range` describes, by feature, float64 of shape ``(C,)``."""
        return self.values_outside / max(self.values, 1)

    @property
    def range_alarm(self) -> bool:
        """Whether more than half of today's values of a feature are out of range."""
        return bool((self.share_out_of_range > 0.5).any())

    def close_day(self) -> DriftReport | None:
        """Judge the day that is under way and forget its ticks; None if nothing was seen.

        A day ends by itself when one of a later day is observed.
        """
        if not self._slots:
            return None
        count = len(self._slots)
        kept = np.flatnonzero(self._seen[:count] >= LEAST_SEEN * len(self._profile))
        if len(kept):
            seen = self._seen[kept, None]
            found = level_and_spread(self._sum[kept] / seen, self._square[kept] / seen)
            self._ended.append(self._score(found.mean(axis=0).ravel(), len(kept)))
            self._judged += 1
        else:
            assert self.date is not None, "something was seen"
            self._ended.append(_Day(self.date, None, None, None))
        self.report = self._report(len(kept), count - len(kept))
        self._slots = {}
        return self.report

    def state(self, before: np.datetime64) -> dict[str, Any]:
        """Return the evidence of the days before one as values that JSON holds, for `restore`."""
        kept = [one for one in self._ended if one.date < before]
        later = sum(one.scores is not None for one in self._ended if one.date >= before)
        return {
            "before": str(before.astype("datetime64[D]")),
            "judged": self._judged - later,
            "days": [[str(one.date), *(None if part is None else _plain(part) for part in one[1:])] for one in kept],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from the days of `state`; these days are not counted again."""
        days = [
            _Day(np.datetime64(date, "D"), *(None if part is None else np.array(part, dtype=float) for part in parts))
            for date, *parts in state["days"]
        ]
        self._ended = deque(days, maxlen=MEMORY)
        self._judged, self._since = int(state["judged"]), np.datetime64(state["before"], "D")
        self.report = self._report(0, 0)

    def _score(self, day: np.ndarray, instruments: int) -> _Day:
        """Return the day under way by its statistics, ``(2 C,)``."""
        from scipy.special import chdtri, ndtri, stdtr, stdtrit

        part = self._parts
        k = min(float(instruments), self._instruments)
        more = part["rest"] * (1 / k - 1 / self._instruments)  # fewer instruments average out less of their own
        variance = np.maximum(part["day"] + more, FLOOR**2)
        repeat = (part["repeat_day"] * part["day"] + part["repeat_rest"] * more) / variance
        distance = error = day - part["mean"]
        spread, before = variance, self._ended[-1].distance if self._ended else None
        if before is not None:
            error = distance - repeat * before
            square = 1 + repeat**2
            spread = part["day"] * (square - 2 * repeat * part["repeat_day"])
            spread = np.maximum(spread + more * (square - 2 * repeat * part["repeat_rest"]), FLOOR**2)
        # The training's variance and repeat may lie below the true ones. The long-run variance of errors is raised to
        # what it is if one of them does by as much as in one case of ten.
        freedom = max(self._days - 1, 1)
        repeats = np.minimum(repeat + 1.28 * np.sqrt((1 - repeat**2) / self._days), 0.97)
        longer = (1 - repeat) * (1 + repeats) / ((1 - repeats) * (1 + repeat))
        deviation = np.sqrt(spread * part["inflation"] * np.maximum(longer, freedom / chdtri(freedom, 0.9)))
        # When nothing changed, the errors have a mean still: that of finitely many training days, and that of which
        # instruments are live. Days that resemble one another count as fewer, and of few days the mean has fat tails:
        # its variance is that of the normal law which reaches as far with probability 1 / limit.
        apart = self._days * (1 - repeat) / (1 + repeat)
        tails = (stdtrit(np.maximum(apart - 1, 1), 1 / self.limit) / ndtri(1 / self.limit)) ** 2
        live = (1 - repeat) ** 2 * part["instrument"] / k / (variance * (1 - repeat**2) * part["inflation"])
        offset = (1 + repeat) / self._days * tails + live
        ratio = error / deviation
        score = -np.sign(ratio) * ndtri(stdtr(freedom, -np.abs(ratio)))
        assert self.date is not None, "something was seen"
        return _Day(self.date, np.clip(score, -LARGEST, LARGEST), distance, offset)

    def _report(self, kept: int, left_out: int) -> DriftReport:
        width = len(self.columns)
        evidence, by_feature, scores = 1.0, np.ones(width), np.full(2 * width, np.nan)
        days = [one.scores for one in reversed(self._ended) if one.scores is not None]
        offset = next((one.offset for one in reversed(self._ended) if one.offset is not None), None)
        date = self._ended[-1].date if self._ended else None
        if offset is not None:
            values = mixture(np.cumsum(days, axis=0), np.arange(1, len(days) + 1)[:, None], offset)
            values = np.where(np.isfinite(values), values, 1.0)
            evidence = float(values.mean(axis=1).max())
            by_feature = values.reshape(-1, 2, width).mean(axis=1).max(axis=0)
            scores = scores if self._ended[-1].scores is None else self._ended[-1].scores
        return DriftReport(
            date,
            self._judged,
            kept,
            left_out,
            evidence,
            self.limit,
            self.columns,
            scores.reshape(2, width),
            by_feature,
        )


def mixture(total: np.ndarray, count: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return the ratio of likelihoods of a change and of none, averaged over `SHIFTS`; see the module.

    Parameters
    ----------
    total
        Sum of normal scores, float64 of any shape.
    count
        How many they are.
    offset
        Variance of their mean when nothing changed.
    """
    values = np.zeros(np.broadcast_shapes(total.shape, count.shape, offset.shape))
    null = 1 + count * offset
    for shift in SHIFTS:
        variance = offset + shift**2
        other = 1 + count * variance
        values += np.sqrt(null / other) * np.exp(total**2 / 2 * (variance / other - offset / null))
    return values / len(SHIFTS)


def _plain(values: np.ndarray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _inside(sessions: Sessions, rows: np.ndarray) -> np.ndarray:
    return np.arange(sessions.calendar.num_ticks)[None, :] < sessions.num_ticks[rows][:, None]


def _components(table: np.ndarray) -> dict[str, np.ndarray]:
    """Split the variance of statistics, ``(D, I, M)`` with NaN where a session is missing; see `training_statistics`.

    By the method of moments; what one instrument alone cannot tell counts as shared by all.
    """
    days, instruments, _ = table.shape
    there = np.isfinite(table[:, :, :1])
    size = there.sum()
    count = np.maximum(there.sum(axis=1), 1)  # (D, 1)
    own = np.nansum(table, axis=0) / there.sum(axis=0)
    without = np.where(there, table - own, 0.0)
    day = without.sum(axis=1) / count
    rest = np.where(there, without - day[:, None], 0.0)
    freedom = size - days - instruments + 1
    rest_variance = (rest**2).sum(axis=(0, 1)) / freedom if instruments > 1 and freedom > 0 else np.zeros(day.shape[1])
    day = day - day.mean(axis=0)
    apart = own.var(axis=0, ddof=1) if instruments > 1 else np.zeros(day.shape[1])
    apart = np.maximum(apart - rest_variance * np.mean(1 / there.sum(axis=0)), 0.0)
    repeat_day = _repeat((day[1:] * day[:-1]).sum(axis=0), (day**2).sum(axis=0), days)
    # Days that resemble one another lie closer to their own mean than to the true one.
    alone = np.minimum((1 + repeat_day) / (1 - repeat_day) / days, 2 / 3)
    day_variance = (day**2).mean(axis=0) / (1 - alone) if days > 1 else np.full(day.shape[1], np.nan)
    pairs = (rest[1:] * rest[:-1]).sum(axis=(0, 1))
    repeat_rest = _repeat(pairs, (rest**2).sum(axis=(0, 1)), size / instruments)
    return {
        "mean": own.mean(axis=0),
        "day": day_variance,
        "rest": rest_variance,
        "instrument": apart,
        "repeat_day": repeat_day,
        "repeat_rest": repeat_rest,
        "inflation": _inflation(day[1:] - repeat_day * day[:-1]),
    }


def _repeat(products: np.ndarray, squares: np.ndarray, count: float) -> np.ndarray:
    """Return a correlation with the next day, its bias for `count` days taken off (Kendall, 1954), in [0, 0.95]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(squares > 0, products / squares, 0.0)
    return np.clip(found + (1 + 3 * found) / max(count, 4), 0.0, 0.95)


def _inflation(errors: np.ndarray) -> np.ndarray:
    """Return the long-run variance (Newey and West, 1987) of ``(D, M)`` over the variance, at least 1."""
    days = len(errors)
    if days < 2:
        return np.ones(errors.shape[1])
    errors = errors - errors.mean(axis=0)
    variance = (errors**2).sum(axis=0)
    lags = int(days ** (1 / 3))
    long = variance.copy()
    for lag in range(1, lags + 1):
        long += 2 * (1 - lag / (lags + 1)) * (errors[lag:] * errors[:-lag]).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum(np.where(variance > 0, long / variance, 1.0), 1.0)
