"""The clock that bars seem to be stamped by: length of a bar, session, zone and label, told from the stamps alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.calendar import DAY_SECONDS, PRESETS, Calendar, text_of

#: Zones that stamps without one are often in, where it is not the exchange's.
_ZONES = ("UTC", "America/New_York", "Europe/London", "Europe/Berlin", "Asia/Shanghai")
#: Shares: of gaps that are whole numbers of ticks, of a session and its bars that fit a preset, and of the days on
#: which a time of day must have a bar to belong to the session.
_MULTIPLES, _NEARLY_ALL, _HALF = 0.98, 0.95, 0.5
#: Volume outside a session that does not count: in all, and of a bar beside those inside.
_LITTLE, _THIN = 0.02, 0.3
_HALF_HOUR = 1800
#: Ticks that a session has at least.
_FEWEST_TICKS = 10
#: By how much another zone than the exchange's must fit better to be believed.
_BETTER = 0.05


@dataclass(frozen=True)
class Clock:
    """Settings of a calendar, and how stamps are brought to it."""

    calendar: dict[str, Any]  # settings, as those of ``market.calendar``
    source_timezone: str | None
    round_seconds: float | None
    reasons: tuple[str, ...]  # sentences that say why, and what is uncertain


def recognise_clock(bars: pd.DataFrame, label: str | None = None) -> Clock:
    """Return the clock that bars seem to be stamped by; bars that show none are a `DataError`.

    Parameters
    ----------
    bars
        As `rlwb.market.read_bars` returns them.
    label
        What the stamps name, ``"start"`` or ``"end"``, where that is known.
    """
    bars = bars[bars["datetime"].notna()]
    step, rounding = _step(bars)
    stamps, place = np.unique(bars["datetime"].to_numpy(dtype="datetime64[s]"), return_inverse=True)
    counts = np.bincount(place).astype(float)
    volume = np.bincount(place, np.nan_to_num(bars["volume"].to_numpy(dtype=float)))
    zone = getattr(bars["datetime"].dt, "tz", None)
    moments = pd.DatetimeIndex(stamps, tz="UTC" if zone is not None else None)
    if rounding is not None:
        moments = moments.round(pd.Timedelta(seconds=step))
    fits = list(_fits(moments, counts, volume if volume.any() else counts, step, label))
    found = max(fits, key=lambda fit: fit.score, default=None)
    reasons = [f"Bars are {step / 60:g} min apart."]
    if rounding is not None:
        reasons.append(f"Stamps lie up to {rounding:g} s beside that grid and are moved onto it.")
    if found is not None and found.score > 0:
        _, preset, source_zone, own_label, tied, outside = found
        calendar: dict[str, Any] = {"preset": preset, "tick_minutes": _minutes(step), "label": own_label}
        session = ", ".join("-".join(segment) for segment in PRESETS[preset]["segments"])
        reasons.append(f"They fill the session of the preset {preset} ({session} {PRESETS[preset]['timezone']}).")
        reasons += [f"{outside:.1%} of the bars lie outside it and are left out."] if outside > 0.005 else []
        reasons += [f"Their stamps carry no zone and fit as {source_zone}."] if source_zone else []
        if tied and label is None:
            reasons.append("They fit either label; start is assumed: check it, a wrong one shifts all bars by one.")
        return Clock(calendar, source_zone, rounding, tuple(reasons))
    local = str(zone) if zone is not None else None
    if local is not None:
        moments = moments.tz_convert(local).tz_localize(None)
    segments, own_label, weekdays = _session(moments, step, label)
    calendar = {"segments": segments, "tick_minutes": _minutes(step), "label": own_label, "weekdays": weekdays}
    calendar |= {} if local is None else {"timezone": local}
    reasons.append("No preset fits: the segments are the times of day at which most days have bars.")
    reasons.append("An exchange's code in place of the segments (exchange: XLON) brings holidays and early closes.")
    return Clock(calendar, None, rounding, tuple(reasons))


def _minutes(seconds: int) -> float:
    return seconds / 60 if seconds % 60 else seconds // 60


def _step(bars: pd.DataFrame) -> tuple[int, float | None]:
    """Return the length of a bar in seconds, and how far stamps lie beside its grid; None where they are on it."""
    stamps = bars["datetime"].to_numpy(dtype="datetime64[ms]").view(np.int64)
    same = np.diff(bars["instrument"].cat.codes.to_numpy()) == 0
    gaps = np.diff(stamps)[same]
    gaps = gaps[(gaps > 0) & (gaps < DAY_SECONDS * 500)]
    if not len(gaps):
        raise DataError("the bars are a day apart or more; runs need several bars a session, at most 60 min long.")
    sizes, counts = np.unique(gaps, return_counts=True)
    usual = int(sizes[np.argmax(counts)])
    for size in sizes[(sizes <= usual) & (counts > 0.01 * len(gaps))][::-1].tolist():
        if counts[sizes % size == 0].sum() >= _MULTIPLES * len(gaps) and size % 1000 == 0:
            return _checked(size // 1000), None
    step = max(1, round(usual / 1000))
    beside = np.abs((stamps + step * 500) % (step * 1000) - step * 500)
    return _checked(step), float(np.ceil(min(beside.max() / 1000, step / 2)))


def _checked(step: int) -> int:
    if step > 3600 or DAY_SECONDS % step:
        raise DataError(f"the bars are {step / 60:g} min apart; runs need bars of at most 60 min that fill a day.")
    return step


class _Fit(NamedTuple):
    """Fit of a preset calendar to bars, with its best label, their stamps read as those of a zone."""

    score: float  # 0..1; 0 where it does not
    preset: str
    zone: str | None  # None where stamps carry one, or are the exchange's
    label: str
    tied: bool  # whether the other label fits as well
    outside: float  # share of the bars


def _fits(
    moments: pd.DatetimeIndex, counts: np.ndarray, volume: np.ndarray, step: int, label: str | None
) -> Iterator[_Fit]:
    """Yield how each preset fits unique stamps, of which each has a number of bars and their volume.

    It does where nearly all half hours of its session have bars on half of the days, and bars outside have little
    volume, in all or each: those before and after hours, and auctions. Labels are told apart tick by tick.
    """
    for preset, settings in PRESETS.items():
        if not _divides(settings, step):
            continue
        for zone in (None, *_ZONES) if moments.tz is None else (None,):
            local = moments.tz_localize(zone, ambiguous="NaT", nonexistent="NaT") if zone else moments
            local = local if local.tz is None else local.tz_convert(settings["timezone"]).tz_localize(None)
            there = np.asarray(local.notna())
            fits: list[_Fit] = []
            by_tick: list[float] = []
            for one in ("start", "end") if label is None else (label,):
                clock = Calendar(**{**settings, "tick_minutes": step / 60})
                begins = local[there] - pd.Timedelta(seconds=step * (one == "end"))
                days = begins.normalize()
                seconds = (begins - days).total_seconds().to_numpy().astype(np.int64)
                tick = np.minimum(np.searchsorted(clock.tick_start, seconds), clock.num_ticks - 1)
                inside = clock.tick_start[tick] == seconds
                if not inside.any():
                    continue
                number = len(days[inside].unique())
                often = np.bincount(tick[inside], minlength=clock.num_ticks) >= _HALF * number
                block, half_hours = clock.tick_start // _HALF_HOUR, seconds[inside] // _HALF_HOUR
                met = np.unique(days[inside].asi8 // 10**9 + half_hours)  # a day has more seconds than half hours
                per_block = np.bincount((met % DAY_SECONDS).astype(np.int64), minlength=int(block.max()) + 1)
                covered = (per_block[np.unique(block)] >= _HALF * number).mean()
                edges = np.array([[begin - step, end] for begin, end in clock.bounds]).ravel()
                apart = ~inside & ~np.isin(seconds, edges)
                traded, bars = volume[there], counts[there]
                share = traded[~apart].sum() / traded.sum()
                thin = apart.any() and traded[apart].mean() <= _THIN * traded[inside].mean()
                fit = covered >= _NEARLY_ALL and (share >= 1 - _LITTLE or thin)
                score = covered * share - _BETTER * (zone is not None) if fit else 0.0
                fits.append(_Fit(score, preset, zone, one, False, 1 - bars[inside].sum() / bars.sum()))
                by_tick.append(often.mean() * bars[inside].sum() / bars.sum())
            if fits:
                tied = len(fits) == 2 and abs(by_tick[0] - by_tick[1]) <= 1.5 / clock.num_ticks
                best = 0 if tied else int(np.argmax(by_tick))
                yield fits[best]._replace(tied=tied)


def _divides(settings: dict[str, Any], step: int) -> bool:
    bounds = Calendar(**{**settings, "tick_minutes": 1 / 60}).bounds
    return all((end - begin) % step == 0 for begin, end in bounds)


def _session(moments: pd.DatetimeIndex, step: int, label: str | None) -> tuple[list[list[str]], str, list[int]]:
    """Return segments, label and weekdays of the times of day at which most days have bars."""
    seconds = ((moments - moments.normalize()).total_seconds().to_numpy().astype(np.int64) // step) * step
    days = moments.normalize().unique()
    often = np.bincount(seconds // step, minlength=DAY_SECONDS // step) >= _HALF * len(days)
    known = np.flatnonzero(often)
    for begin, end in itertools.pairwise(known.tolist()):  # what is shorter than a lunch is no break
        often[begin:end] |= (end - begin) * step < _HALF_HOUR
    edges = np.flatnonzero(np.diff(np.concatenate([[0], often.astype(np.int8), [0]])))
    runs = [(begin * step, end * step) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    if not 1 <= len(runs) <= 4 or sum(end - begin for begin, end in runs) < _FEWEST_TICKS * step:
        raise DataError(
            f"the bars show no regular session ({len(runs)} parts of a day have bars on most days); write "
            "market.calendar yourself, see docs/data/calendars.md."
        )
    first = runs[0][0]
    if label is None:
        label = "end" if first % _HALF_HOUR and (first - step) % _HALF_HOUR == 0 else "start"
    back = step if label == "end" else 0
    segments = [[text_of(int(begin - back)), text_of(int(end - back))] for begin, end in runs]
    return segments, label, sorted(set(days.dayofweek.tolist()))
