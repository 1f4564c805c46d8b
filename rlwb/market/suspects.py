"""Sessions that cannot be what they say: running totals, copies, lost volume, exchanged columns, other units.

Each detector is a small function over a table with one row a session, `Table`; it yields what it found as `Suspects`.
What counts as usual is taken from the sessions themselves, by medians.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import betainc

from rlwb.market.calendar import DAY_SECONDS, Calendar, date_text
from rlwb.market.findings import Report
from rlwb.market.references import Levels
from rlwb.market.soundness import BEYOND_NEWS, BUSY_DAY, OVERNIGHT, WIDE_DAY
from rlwb.market.stretches import tell_sessions
from rlwb.market.traits import PARTS

#: Rises of volume that a session needs to tell a running total, and the falls that late corrections may make of them.
_RISES, _CORRECTIONS = 8, 0.05
#: Share of an instrument's sessions that make one of all of them, where single ones are too short to tell.
_MOST = 0.9
#: Most that the gap to one session beside counts, as a log ratio of chances.
_FIRMLY = 5.0
#: Share of a session's bars that join one way for it to count as joined so, and the chance from which on bars that join
#: the wrong way round do so by accident.
_MOST_BARS, _ACCIDENT = 0.6, 1e-7
#: Log odds below which neither of two causes is ruled out.
_SURE = float(np.log(20.0))
#: Log ratio of volumes from which on the unit may be another (20), how many usual changes it must be, and the share of
#: it by which the range may change too: on news, both grow.
_UNIT, _UNUSUAL, _QUIET = float(np.log(20.0)), 5.0, 0.2
#: Sessions on each side whose median is the level there.
_AROUND = 5
#: Instruments of a day from which on their median is the market.
_MARKET = 5
#: How near prices come back, as a share of the way they went, and how near to a power of ten they are, in logs.
_RETURNS, _NEAR = 0.25, 0.2
#: A session with less than the first share of its instrument's usual bars lacks some, where the second is usual.
_FEW, _REGULAR = 0.6, 0.95
#: Share of the usual volume a bar below which a session is thin.
_THIN = 0.25
#: Minutes at the edge of a session without a bar that are told, and the chance from which on they are so by accident.
_PAUSE, _EMPTY, _FULLEST = 30, 1e-4, 0.99
#: Share of a day's sessions that makes it the day's, and of days from which on early closes are too many.
_DAY, _FEW_DAYS = 2 / 3, 0.1


class Suspects(NamedTuple):
    """Sessions of one kind of finding; arrays of shape ``(S,)`` over the whole table."""

    kind: str
    flagged: np.ndarray  # bool
    labels: np.ndarray  # what is wrong with each; text
    values: np.ndarray | None = None  # the number that it is about


Table: TypeAlias = pd.DataFrame
"""One row a session, sorted by instrument and day.

name, day (since 1970), length and stated (ticks it had, and those that the calendar gives its day), priced (ticks with
a price), first and last (of these), total (volume), shifted (the clock is wrong), exchanged (columns, in words).
Sessions that a panel has also have open, close, volume, tick_volume, range (`rlwb.market.references.Levels`), worth
(what a price is worth in prices of other sessions) and the columns of `rlwb.market.traits.traits_of`.
"""


def tell_suspects(
    sessions: pd.DataFrame,
    levels: Levels,
    traits: pd.DataFrame,
    factor: np.ndarray | None,
    calendar: Calendar,
    report: Report,
) -> None:
    """Run all detectors over the sessions of a panel, and over all that have bars.

    `sessions` is the table of `rlwb.market.soundness.inspect_sessions`, of which those `kept` have levels and traits.
    """
    every = sessions.rename(columns={"instrument": "name"}).sort_values(["name", "day"], ignore_index=True)
    every["stated"] = calendar.ticks_on(every["day"].to_numpy().astype("datetime64[D]"))
    kept = every[every["kept"]].reset_index(drop=True)
    for column, values in (*levels._asdict().items(), *traits.items()):
        kept[column] = np.asarray(values)
    kept["worth"] = 1.0 if factor is None else factor
    found = [*bars_missing(every), *hours_missing(every, calendar)]
    for detect in DETECTORS:
        found += detect(kept) if len(kept) else ()
    for kind, flagged, labels, values in found:
        table = every if len(flagged) == len(every) and kind in OF_ALL else kept
        names, days = table["name"].to_numpy().astype(str), table["day"].to_numpy()
        tell_sessions(report, kind, flagged, names, days, labels, str, values)


def running_totals(table: Table) -> Iterator[Suspects]:
    """Yield sessions whose volume never falls, but for a few corrections and at the start of a segment."""
    rises, falls, resets = (table[name].to_numpy() for name in ("rises", "falls", "resets"))
    grows = falls <= _CORRECTIONS * rises
    long = grows & (rises >= _RISES)
    tell = (rises >= 3) & grows
    share = pd.Series(tell).groupby(table["name"].to_numpy()).transform("mean").to_numpy()
    size = table.groupby("name")["day"].transform("size").to_numpy()
    flagged = long | (tell & (share >= _MOST) & (size >= 3))
    labels = np.where(resets > 0, "volume counts up from the open, and again after the break", "volume counts up")
    yield Suspects("volume_running_total", flagged, labels)


def copies(table: Table) -> Iterator[Suspects]:
    """Yield sessions that repeat another one of the instrument, and those that repeat another instrument's."""
    names, days = table["name"].to_numpy().astype(str), table["day"].to_numpy()
    sides: dict[str, np.ndarray] = {
        kind: np.full(len(table), "", dtype=object) for kind in ("session_copied", "session_twin")
    }
    for column in ("price_hash", "volume_hash"):
        code = table[column].to_numpy()
        for rows in _equal(code, days):
            sides["session_twin"][rows[1:]] = f"equals {names[rows[0]]}"
        for rows in _equal(code, names):
            for row, before in zip(rows[1:], rows[:-1], strict=True):
                sides["session_copied"][row] = f"equals {date_text(days[before])}"
        for rows in _equal(code, np.zeros(len(code))):
            for row in rows[1:]:
                if days[row] != days[rows[0]] and names[row] != names[rows[0]] and not sides["session_twin"][row]:
                    sides["session_twin"][row] = f"equals {names[rows[0]]} on {date_text(days[rows[0]])}"
    yield from (Suspects(kind, labels != "", labels) for kind, labels in sides.items())


def _equal(code: np.ndarray, group: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows, in order, of one group that share a code other than 0."""
    known = np.flatnonzero(code != 0)
    repeated = known[pd.Series(code[known]).duplicated(keep=False).to_numpy()]
    table = pd.DataFrame({"row": repeated, "code": code[repeated], "group": group[repeated]})
    for _, rows in table.groupby(["code", "group"], sort=False)["row"]:
        if len(rows) > 1:
            yield rows.to_numpy()


def lost_volume(table: Table) -> Iterator[Suspects]:
    """Yield sessions whose price moves while nothing is said to have traded."""
    moves, stated = table["ranged"].to_numpy() > 0, table["unstated"].to_numpy() < table["priced"].to_numpy()
    none = moves & ~(table["volume"].to_numpy() > 0)
    somewhere = bool((table["volume"].to_numpy() > 0).any())
    lost = none & (stated | somewhere)
    yield Suspects("volume_lost", lost, np.where(stated, "all volumes are 0", "all volumes are missing"))


def bars_missing(table: Table) -> Iterator[Suspects]:
    """Yield sessions with few bars of instruments that nearly always have all, unless one pause explains them.

    A pause at one end of a single session is a halt; in two sessions in a row it is none. Where the bars that are left
    are thin too, little was traded.
    """
    share, names = (table["priced"] / table["length"]).to_numpy(), table["name"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        traded = (table["total"] / table["priced"]).to_numpy()
    usual = pd.Series(share).groupby(names).transform("quantile", 0.75).to_numpy()
    much = pd.Series(traded).groupby(names).transform("median").to_numpy()
    few = (usual >= _REGULAR) & (share < _FEW * usual) & (share > 0) & ~(traded < _THIN * much)
    few &= ~table["shifted"].to_numpy()
    pause = table["priced"].to_numpy() >= _REGULAR * (table["last"] - table["first"] + 1).to_numpy()
    beside = np.zeros(len(table), dtype=bool)
    both = (names[1:] == names[:-1]) & few[1:] & few[:-1]
    beside[1:] |= both
    beside[:-1] |= both
    yield Suspects("bars_missing", few & (~pause | beside), np.full(len(table), "over 40 % of the usual bars"))


def hours_missing(table: Table, calendar: Calendar) -> Iterator[Suspects]:
    """Yield sessions that begin late or end early with most of their day, or as most of their instrument do.

    A day that ends early is an early close where it ends at a round time on the eve of a holiday, or between one and
    a weekend, and few do.
    """
    if calendar.num_ticks * calendar.tick_seconds >= DAY_SECONDS:
        return
    names, days, first, last = (table[name].to_numpy() for name in ("name", "day", "first", "last"))
    stated, on_time = table["stated"].to_numpy(), ~table["shifted"].to_numpy()
    full = np.minimum((table["priced"] / np.maximum(last - first + 1, 1)).to_numpy(), _FULLEST)
    for lacking, where in ((first, "first"), (stated - 1 - last, "last")):
        minutes = lacking * calendar.tick_minutes
        with np.errstate(divide="ignore"):
            told = on_time & (lacking * np.log(1 - full) <= np.log(_EMPTY)) & (table["priced"].to_numpy() > 0)
        of_day = pd.Series(told & (minutes >= _PAUSE)).groupby(days).transform("mean").to_numpy() >= _DAY
        of_name = pd.Series(told & (minutes >= _PAUSE / 2)).groupby(names).transform("mean").to_numpy() >= _MOST
        of_name &= pd.Series(days).groupby(names).transform("size").to_numpy() >= 3
        if where == "last":
            of_day &= ~np.isin(days, _early_closes(days, stated - lacking, of_day, calendar))
        flagged = told & ((of_day & (minutes >= _PAUSE)) | (of_name & (minutes >= _PAUSE / 2)))
        common = pd.Series(np.where(flagged, minutes, np.nan)).groupby(days).transform("median").fillna(0).to_numpy()
        yield Suspects(
            "hours_missing", flagged, np.array([f"no bar in the {where} {one:.0f} minutes" for one in common])
        )


def _early_closes(days: np.ndarray, ends: np.ndarray, early: np.ndarray, calendar: Calendar) -> np.ndarray:
    """Return the days that may well have closed early, of those that most sessions say did; since 1970.

    `ends` are the ticks of each session until its last bar.
    """
    seen = np.unique(days)
    found = np.unique(days[early])
    runs = np.diff(np.searchsorted(seen, found))
    many = len(found) >= 3 and (len(found) > _FEW_DAYS * len(seen) or bool((np.convolve(runs == 1, [1, 1]) == 2).any()))
    dates = np.arange(seen[0] - 14, seen[-1] + 15)
    weekdays = dates[np.isin((dates + 3) % 7, calendar.weekdays)]  # 1970 began on a Thursday
    closed = (~np.isin(weekdays, seen) & (weekdays >= seen[0]) & (weekdays <= seen[-1])) | ~calendar.is_open(
        weekdays.astype("datetime64[D]")
    )
    closed |= (weekdays < seen[0]) | (weekdays > seen[-1])  # nothing is known of them
    real = []
    for day in found.tolist():
        at = int(np.searchsorted(weekdays, day))
        end = int(np.median(ends[early & (days == day)]))
        close = int(calendar.tick_start[end - 1]) + calendar.tick_seconds
        auction = (close - calendar.tick_seconds, close + calendar.tick_seconds)  # of which the last bar may be, or not
        round_close = close % 300 == 0 or any(one % 1800 == 0 for one in auction)
        eve = closed[at + 1] or (closed[at - 1] and weekdays[at + 1] > day + 1)
        if not many and round_close and eve:
            real.append(day)
    return np.array(real, dtype=np.int64)


def backwards(table: Table) -> Iterator[Suspects]:
    """Yield sessions whose bars join the wrong way round: open and close are exchanged, or time runs backwards.

    A bar opens near the last close. Where open and close are exchanged it closes near the last open, and so it does
    where the bars run backwards in time; the two are told apart by the profile of ranges and volumes over the day, and
    by the gaps to the sessions before and after. Where these do not tell, both are named.
    """
    joined, crossed = table["joined"].to_numpy(), table["crossed"].to_numpy()
    count = joined + crossed
    with np.errstate(invalid="ignore", divide="ignore"):
        share = crossed / count
    share[count == 0] = np.nan
    known = pd.Series(share)  # NaN where no bar says so
    of_all, of_name = _median(share), known.groupby(table["name"].to_numpy()).transform("median").to_numpy()
    of_all = 0.0 if np.isnan(of_all) else float(of_all)
    # where all are wrong, what is usual is the other side
    usual = np.clip(np.fmax(min(of_all, 1 - of_all), np.fmin(of_name, 1 - of_name)), 0.05, 0.5)
    chance = np.where(crossed > 0, betainc(np.maximum(crossed, 1), joined + 1.0, usual), 1.0)
    named = table["exchanged"].to_numpy().astype(str)
    yield Suspects("columns_exchanged", named != "", named)
    wrong = (share > _MOST_BARS) & (chance < _ACCIDENT) & (named == "")
    if not wrong.any():
        return
    forwards = _forwards(table, wrong, share < 1 - _MOST_BARS)
    unsure, either = np.abs(forwards) < _SURE, "open and close are exchanged, or the bars run backwards"
    exchanged = np.where(unsure, either, "open and close are exchanged")
    yield Suspects("columns_exchanged", wrong & (forwards >= 0), exchanged)
    yield Suspects("session_reversed", wrong & (forwards < 0), np.where(unsure, either, "the bars run backwards"))


def _forwards(table: Table, wrong: np.ndarray, good: np.ndarray) -> np.ndarray:
    """Return the log odds that time runs forwards in sessions whose bars join the `wrong` way round, ``(S,)``.

    They are held against those whose bars join the `good` way.
    """
    evidence = np.zeros(len(table))
    for name in ("range", "volume"):
        profile = table[[f"{name}_{number}" for number in range(PARTS)]]
        if name == "volume" and not good.any():
            continue  # which of the two ends is the busier differs by market; the open has the wider ranges in all
        usual = profile[good].mean().to_numpy() if good.any() else np.linspace(1, -1, PARTS)
        tilt = np.nan_to_num(usual - usual[::-1])
        lean = np.nan_to_num(profile.to_numpy()) @ tilt
        like = lean[good] if good.sum() > 2 else lean[wrong]  # where all are wrong, all are alike
        spread = float(np.var(like))
        if spread > 1e-9:  # else the profile is the same from both ends
            evidence += 2 * abs(float(np.median(like))) * lean / spread
    names = table["name"].to_numpy()
    begin, end = (np.log(table[name].to_numpy()) for name in ("open", "close"))
    follows = names[1:] == names[:-1]
    gap = np.abs(begin[1:] - end[:-1])[follows & good[1:] & good[:-1]]
    usual_gap = _median(gap) * 1.4826
    both = follows & wrong[1:] & wrong[:-1]  # of these, either all gaps are of one kind or all of the other
    forwards, back = np.abs(begin[1:] - end[:-1]), np.abs(end[1:] - begin[:-1])
    least = min(_median(forwards[both]), _median(back[both])) * 1.4826
    if least > 0:
        nearer = np.nan_to_num((back**2 - forwards**2) / (2 * least**2))
        evidence[1:] += np.where(both, np.clip(nearer, -_FIRMLY, _FIRMLY), 0.0)
    if usual_gap > 0:
        before, after = np.append(False, follows & good[:-1]), np.append(follows & good[1:], False)
        last, following = np.roll(end, 1), np.roll(begin, -1)
        for known, other, forwards, back in ((before, last, begin, end), (after, following, end, begin)):
            nearer = np.nan_to_num(((back - other) ** 2 - (forwards - other) ** 2) / (2 * usual_gap**2))
            evidence += np.where(known, np.clip(nearer, -_FIRMLY, _FIRMLY), 0.0)
    # sessions in a row are wrong in one way, and so is a day on which most are, or a set of which most are
    run = np.cumsum(np.append(True, ~(follows & wrong[1:] & wrong[:-1])))
    of_run = pd.Series(evidence).groupby(run).transform("sum").to_numpy()
    days = table["day"].to_numpy()
    most = pd.Series(wrong).groupby(days).transform("mean").to_numpy() > 0.5
    of_day = pd.Series(np.where(wrong, evidence, 0.0)).groupby(days).transform("sum").to_numpy()
    of_all = evidence[wrong].sum() if wrong.mean() > 0.5 else 0.0
    return np.where(wrong, of_run + np.where(most, of_day, 0.0) + of_all, 0.0)


def other_units(table: Table) -> Iterator[Suspects]:
    """Yield sessions whose volume is on another scale than before or after while the range of prices is not.

    Volume and range rise and fall together, so what is compared is one over the other. Where the price stood still and
    does not usually, as when it is locked at its limit, there is nothing to compare.
    """
    names, days = table["name"].to_numpy(), table["day"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        level, span = np.log(table["tick_volume"].to_numpy()), np.log(table["range"].to_numpy())
    own = pd.Series(level).groupby(names).transform("median").to_numpy()
    by_day = pd.Series(level - own).groupby(days)
    market = np.where(by_day.transform("count").to_numpy() >= _MARKET, by_day.transform("median").to_numpy(), 0.0)
    flagged, labels, values = (
        np.zeros(len(table), dtype=bool),
        np.full(len(table), "", dtype=object),
        np.ones(len(table)),
    )
    for rows in _instruments(names):
        moves = np.isfinite(span[rows])
        if not moves.any():
            span[rows] = 0.0
        mine = rows[np.isfinite(level[rows]) & np.isfinite(span[rows])]
        for begin, end, step in _levels(level[mine] - market[mine], span[mine]):
            flagged[mine[begin:end]] = True
            values[mine[begin:end]] = times = float(np.exp(step))
            labels[mine[begin:end]] = f"{_scale(times)} the volume of the days around"
    yield Suspects("volume_units", flagged, labels, values)


def price_units(table: Table) -> Iterator[Suspects]:
    """Yield sessions whose prices are on another scale: a power of ten away, or away and back by the same factor.

    Not where volume and range say that there was news both times; a power of ten not where the volume changes as after
    a split.
    """
    names, factor = table["name"].to_numpy(), table["worth"].to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        opening, close = np.log(table["open"].to_numpy() * factor), np.log(table["close"].to_numpy() * factor)
        volume, span = np.log(table["tick_volume"].to_numpy()), np.log(table["range"].to_numpy())
    flagged, labels, values = (
        np.zeros(len(table), dtype=bool),
        np.full(len(table), "", dtype=object),
        np.ones(len(table)),
    )
    for rows in _instruments(names):
        gap = opening[rows][1:] - close[rows][:-1]
        news = (np.diff(volume[rows]) > np.log(BUSY_DAY)) & (np.diff(span[rows]) > np.log(WIDE_DAY))
        split = np.abs(gap + np.diff(volume[rows])) < np.abs(np.diff(volume[rows]))
        split &= np.abs(gap + np.diff(volume[rows])) < 0.5 * np.abs(gap)
        news &= np.abs(gap) < BEYOND_NEWS
        far = np.flatnonzero(np.abs(gap) > np.log1p(OVERNIGHT))
        ends, number = (far + 1).tolist(), 0
        while number < len(ends):
            begin, step = ends[number], gap[ends[number] - 1]
            following = ends[number + 1] if number + 1 < len(ends) else 0
            back = following and abs(step + gap[following - 1]) < _RETURNS * abs(step)
            back = back and not (news[begin - 1] and news[following - 1])
            tens = (
                not split[begin - 1]
                and abs(step - np.log(10) * round(step / np.log(10))) < _NEAR
                and abs(step) > BEYOND_NEWS
            )
            if back:
                mine = rows[begin:following]
            elif tens:  # the shorter side is the odd one
                mine = rows[begin:] if 2 * begin >= len(rows) else rows[:begin]
                step = step if 2 * begin >= len(rows) else -step
            if back or tens:
                flagged[mine] = True
                values[mine] = times = float(np.exp(step))
                labels[mine] = f"{_scale(times)} the prices around"
            number += 2 if back else 1
    yield Suspects("price_units", flagged, labels, values)


def _levels(volume: np.ndarray, span: np.ndarray) -> Iterator[tuple[int, int, float]]:
    """Yield stretches ``[begin, end)`` of one instrument's log volumes on another level, and by how much."""
    relative = volume - span
    steps = np.diff(relative)
    if not len(steps):
        return
    far = max(_UNIT, _UNUSUAL * 1.4826 * float(np.median(np.abs(steps))))
    at = [0, *(np.flatnonzero(np.abs(steps) >= far) + 1).tolist(), len(volume)]
    if len(at) == 2:
        return
    pieces = list(pairwise(at))
    levels = np.array([np.median(relative[begin:end]) for begin, end in pieces])
    spans = np.array([np.median(span[begin:end]) for begin, end in pieces])
    lengths = np.array([end - begin for begin, end in pieces])
    alike = np.abs(levels[:, None] - levels) < _UNIT / 2
    usual = int(np.argmax(alike @ lengths))
    for number, (begin, end) in enumerate(pieces):
        step = levels[number] - levels[usual]
        range_step = float(spans[number] - spans[usual])
        if abs(step) >= _UNIT and not abs(range_step) > _QUIET * abs(step):
            yield begin, end, float(step) + range_step


def _median(values: np.ndarray) -> float:
    """Return the median of the finite values; NaN without any."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _scale(times: float) -> str:
    return f"about {times:.3g} times" if times >= 1 else f"1/{1 / times:.3g} of"


def _instruments(names: np.ndarray) -> list[np.ndarray]:
    """Return the rows of each instrument."""
    return np.split(np.arange(len(names)), np.flatnonzero(names[1:] != names[:-1]) + 1)


#: Kinds that are about all sessions with bars, also those that are too sparse for a panel.
OF_ALL = ("bars_missing", "hours_missing")
#: The kinds of suspects, each by the function that looks for it.
DETECTORS: tuple[Callable[[Table], Iterator[Suspects]], ...] = (
    running_totals,
    copies,
    lost_volume,
    backwards,
    other_units,
    price_units,
)
