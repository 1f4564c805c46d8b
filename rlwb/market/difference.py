"""A comparison of two sources of the same bars: what only one has, which values differ, and what explains it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.bars import NUMBERS
from rlwb.market.dataset.state import is_dataset, read_state
from rlwb.market.findings import counted
from rlwb.market.load import read_bars
from rlwb.market.schema import PRICES
from rlwb.market.source import Reading

_MINUTE, _DAY = 60_000, 86_400_000  # milliseconds
#: Differences of a field that are named, and names or dates on a line.
_NAMED = 5
#: Correlation of returns by which bars of two sources are the same, and that of an agreement that needs no search.
_SAME, _AGREES = 0.7, 0.5
#: Returns of a session without which its clock is not judged; sessions among which another clock is searched at a time.
_FEWEST, _SAMPLED = 3, 200
#: Share of a session's bars that must have one ratio for it to be constant.
_NEARLY_ALL = 0.95


class Difference(NamedTuple):
    """Two values of one bar."""

    instrument: str
    date: str
    time: str  # by the stamps of A
    a: float
    b: float


@dataclass(frozen=True)
class FieldDiff:
    """One field of the bars that both sources have."""

    name: str
    equal: int
    rounding: int  # equal once the finer value is rounded as the coarser one is
    different: int
    explained: int  # of the different ones, those that a cause accounts for
    only_a: int  # with a value in A alone
    only_b: int
    largest: tuple[Difference, ...]  # relative to the value, the largest first


@dataclass(frozen=True)
class Cause:
    """A systematic difference that was recognised."""

    kind: str  # ids, stamps, price_factor, volume_unit, volume_venue, volume_missing
    text: str
    advice: str
    bars: int  # that it touches


@dataclass(frozen=True)
class BarsDiff:
    """Comparison of two sources of bars, A and B: what they share, and what differs."""

    a: str
    b: str
    bars: tuple[int, int]  # of each
    left_out: tuple[int, int]  # rows of each without instrument or stamp, or followed by another of their stamp
    shared: int  # bars with one instrument and stamp, shifts taken off
    instruments: tuple[tuple[str, ...], tuple[str, ...]]  # that only one has
    dates: tuple[tuple[str, ...], tuple[str, ...]]
    first: tuple[tuple[str, ...], tuple[str, ...]]  # the first bars that only one has, of shared instruments and dates
    fields: tuple[FieldDiff, ...]
    columns: tuple[tuple[str, ...], tuple[str, ...]]  # that only one has
    causes: tuple[Cause, ...]

    @property
    def only(self) -> tuple[int, int]:
        """Bars that only one has."""
        return self.bars[0] - self.shared, self.bars[1] - self.shared

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than rounding."""
        values = any(one.different or one.only_a or one.only_b for one in self.fields)
        return not (values or any(self.only) or any(self.columns) or self.causes)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as values that JSON can hold."""
        found = {"equal": self.equal, "only": self.only, **asdict(self)}
        found["fields"] = [{**asdict(one), "largest": [pair._asdict() for pair in one.largest]} for one in self.fields]
        return found

    def as_text(self) -> str:
        """Return the figures as lines for people."""
        lines = []
        for place, name in enumerate((self.a, self.b)):
            out = f", {counted(self.left_out[place], 'rows')} left out (no stamp, or repeated)"
            lines.append(
                f"{'AB'[place]}  {name}: {counted(self.bars[place], 'bars')}{out if self.left_out[place] else ''}"
            )
        for what, sides in (("instruments", self.instruments), ("dates", self.dates), ("columns", self.columns)):
            lines += [f"{what} only in {'AB'[at]}: {_some(side)}" for at, side in enumerate(sides) if side]
        lines.append(f"{counted(self.shared, 'bars')} in both")
        for at, count in enumerate(self.only):
            if count:
                first = f", first of shared instruments and dates: {_some(self.first[at])}" if self.first[at] else ""
                lines.append(f"{counted(count, 'bars')} only in {'AB'[at]}{first}")
        for one in self.fields:
            both = max(1, one.equal + one.rounding + one.different)
            parts = [f"{one.equal / both:.2%} equal"]
            parts += [f"{one.rounding / both:.2%} within rounding"] if one.rounding else []
            parts += [f"{one.different / both:.2%} different ({one.different:,})"] if one.different else []
            parts += [f"{one.explained:,} of them explained below"] if one.explained else []
            parts += [f"{count:,} in {side} alone" for side, count in (("A", one.only_a), ("B", one.only_b)) if count]
            lines.append(f"{one.name:<9}{', '.join(parts)}")
            lines += [
                f"         {pair.instrument} {pair.date} {pair.time}: {pair.a:g} and {pair.b:g}" for pair in one.largest
            ]
        for cause in self.causes:
            lines += [f"cause    {cause.text} [{cause.kind}]", f"         do: {cause.advice}"]
        return "\n".join([*lines, "equal" if self.equal else "different"])


class _Side(NamedTuple):
    """Bars of one source: sorted by instrument and stamp, each once."""

    names: np.ndarray  # of each bar, text objects
    stamp: np.ndarray  # local milliseconds since 1970, int64
    values: dict[str, np.ndarray]
    left_out: int

    @property
    def day(self) -> np.ndarray:
        return self.stamp // _DAY


def diff_bars(
    a: str | os.PathLike[str],
    b: str | os.PathLike[str],
    *,
    reading_a: Reading | None = None,
    reading_b: Reading | None = None,
    instruments: Sequence[str] | None = None,
    start: Any = None,
    end: Any = None,
    timezone: str | None = None,
) -> BarsDiff:
    """Compare two sources of the same bars.

    Parameters
    ----------
    a, b
        Files, folders or data sets (`rlwb.market.read_bars`).
    reading_a, reading_b
        How each is read (`rlwb.market.source.Reading`).
    instruments, start, end
        What is compared; all without.
    timezone
        Zone that stamps with an offset are brought to; that of a data set among the two, or UTC, without it.

    Returns
    -------
    BarsDiff
        Bars are matched by instrument and stamp. Sessions whose closes move alike at another distance of their stamps
        are matched at that distance, and the shift is a cause.

    Raises
    ------
    DataError
        Where a source cannot be read or holds no bars, and where bars are of different lengths.
    """
    zones = [read_state(Path(one)).calendar.timezone for one in (a, b) if is_dataset(one)]
    zone = timezone or next((one for one in zones if one), None)
    sides = []
    for source, reading in ((a, reading_a), (b, reading_b)):
        frame = read_bars(source, instruments=instruments, start=start, end=end, timezone=zone, **(reading or {}))
        sides.append(_side(frame, zone))
        if not len(sides[-1].stamp):
            raise DataError(f"{source} holds no bars to compare; check the file, start and end.")
    return _compare(str(a), str(b), *sides)


def _side(frame: pd.DataFrame, zone: str | None) -> _Side:
    there = frame[frame["instrument"].notna() & frame["datetime"].notna()]
    stamps = there["datetime"]
    if isinstance(stamps.dtype, pd.DatetimeTZDtype):
        stamps = stamps.dt.tz_convert(zone or "UTC").dt.tz_localize(None)
    there = there.assign(instrument=there["instrument"].astype(str), datetime=stamps.astype("datetime64[ms]"))
    there = there.drop_duplicates(["instrument", "datetime"], keep="last").sort_values(["instrument", "datetime"])
    values = {name: there[name].to_numpy(np.float64) for name in NUMBERS if name in there and there[name].notna().any()}
    stamp = there["datetime"].to_numpy().view(np.int64)
    return _Side(there["instrument"].to_numpy(object), stamp, values, len(frame) - len(there))


def _compare(name_a: str, name_b: str, a: _Side, b: _Side) -> BarsDiff:
    b, ids = _match_ids(a, b)
    names = np.intersect1d(a.names, b.names)
    only_names = tuple(tuple(np.setdiff1d(one.names, names).tolist()) for one in (a, b))
    steps = [_step(one) for one in (a, b)]
    if len(names) and all(steps) and steps[0] != steps[1]:
        lengths = " and ".join(f"{step / _MINUTE:g} min" for step in steps)
        raise DataError(f"{name_a} and {name_b} have bars of {lengths}; compare sources of one bar length.")
    shift, causes = _shifts(a, b, names, steps[0] or steps[1])
    place = pd.MultiIndex.from_arrays([b.names, b.stamp]).get_indexer(
        pd.MultiIndex.from_arrays([a.names, a.stamp + shift])
    )
    left, right = np.flatnonzero(place >= 0), place[place >= 0]
    day_b = b.day.copy()
    day_b[right] = a.day[left]
    days = np.intersect1d(a.day, day_b)
    lacks = np.ones(len(a.stamp), dtype=bool), np.ones(len(b.stamp), dtype=bool)
    lacks[0][left] = lacks[1][right] = False
    first = tuple(
        tuple(_bar(one, at) for at in np.flatnonzero(lack & np.isin(day, days) & np.isin(one.names, names))[:_NAMED])
        for one, lack, day in zip((a, b), lacks, (a.day, day_b), strict=True)
    )
    fields, more = _values(a, b, left, right)
    shared_fields = set(a.values) & set(b.values)
    return BarsDiff(
        name_a,
        name_b,
        (len(a.stamp), len(b.stamp)),
        (a.left_out, b.left_out),
        len(left),
        (only_names[0], only_names[1]),
        (_dates(np.setdiff1d(a.day, days)), _dates(np.setdiff1d(day_b, days))),
        (first[0], first[1]),
        fields,
        (tuple(n for n in a.values if n not in shared_fields), tuple(n for n in b.values if n not in shared_fields)),
        (*ids, *causes, *more),
    )


def _step(one: _Side) -> int:
    """Return the usual distance of bars within a session in milliseconds; 0 where no session has two."""
    gaps = np.diff(one.stamp)[(one.names[1:] == one.names[:-1]) & (np.diff(one.day) == 0)]
    return int(pd.Series(gaps).mode().iloc[0]) if len(gaps) else 0


def _match_ids(a: _Side, b: _Side) -> tuple[_Side, list[Cause]]:
    """Return B with the ids of A where one instrument is written in two ways (600519.SH, SH600519), told as a cause."""
    shared = np.intersect1d(a.names, b.names)
    keys: list[pd.Series] = []
    for one in (a, b):
        every = np.unique(one.names).tolist()
        by_key = pd.Series(every, [_plain_id(name) for name in every], dtype=object)
        by_key = by_key[~by_key.index.duplicated(keep=False)]
        keys.append(by_key[~by_key.isin(shared)])
    alike = [key for key in keys[0].index.intersection(keys[1].index) if _may_be_one(keys[0][key], keys[1][key])]
    if not alike:
        return b, []
    theirs = dict(zip(keys[1][alike], keys[0][alike], strict=True))
    pairs = _some([f"{mine} and {other}" for other, mine in theirs.items()])
    names = np.array([theirs.get(name, name) for name in b.names.tolist()], dtype=object)
    order = np.lexsort((b.stamp, names.astype(str)))
    values = {name: column[order] for name, column in b.values.items()}
    text = f"{counted(len(theirs), 'instruments')} taken for the same by ids that differ: {pairs}"
    cause = Cause(
        "ids",
        text,
        "write the ids of one source as those of the other",
        int(np.isin(names, list(theirs.values())).sum()),
    )
    return _Side(names[order], b.stamp[order], values, b.left_out), [cause]


def _plain_id(name: str) -> str:
    """Return what stays of an id without case, market and marks: its number, or what stands before a point.

    Four digits behind letters are a year, as in ESH2024.
    """
    numbers = re.findall(r"\d{5,}|\b\d{4}\b", name)
    return numbers[0] if len(numbers) == 1 else re.sub(r"\W", "", name.partition(".")[0]).upper()


def _may_be_one(name: str, other: str) -> bool:
    """Tell whether two ids of one plain id are not of two classes of shares, BRK.A and BRK.B."""
    ends = [re.search(r"\W(\w)$", one.upper()) for one in (name, other)]
    return not all(ends) or len({end[1] for end in ends if end}) == 1


def _returns(one: _Side) -> np.ndarray:
    """Return the log return of each bar's close, or mid without closes, from the bar before it.

    NaN for the first bar of a session, and where nothing moved.
    """
    lacking = np.full(len(one.stamp), np.nan)
    mid = (one.values.get("bid", lacking) + one.values.get("ask", lacking)) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        close = np.log(one.values.get("close", mid))
        move = np.append(np.nan, np.diff(close))
    begins = np.append(True, (one.names[1:] != one.names[:-1]) | (np.diff(one.day) != 0))
    move[begins | ~np.isfinite(move) | (move == 0)] = np.nan
    return move


def _shifts(a: _Side, b: _Side, names: np.ndarray, step: int) -> tuple[np.ndarray, list[Cause]]:
    """Return by how many milliseconds B's stamp of each of A's bars is later, and the causes that say so."""
    shift = np.zeros(len(a.stamp), dtype=np.int64)
    rows = np.flatnonzero(np.isin(a.names, names))
    if not len(rows) or not step:
        return shift, []
    code_a, code_b = (np.searchsorted(names, one.names.astype(str)) for one in (a, b))
    is_shared = np.isin(b.names, names)
    key_b = (code_b * 2**42 + b.stamp)[is_shared]
    move_a, move_b = _returns(a), _returns(b)[is_shared]
    unit = pd.factorize(code_a[rows] * 2**24 + a.day[rows])[0]

    def agreement(by: int, of: np.ndarray) -> np.ndarray:
        """Return sums of products of both sides' returns, of shape (4, units): AA, BB, AB and their number."""
        here = rows[of]
        wanted = code_a[here] * 2**42 + a.stamp[here] + by
        at = np.minimum(np.searchsorted(key_b, wanted), len(key_b) - 1)
        x, y = move_a[here], np.where(key_b[at] == wanted, move_b[at], np.nan)
        both = np.isfinite(x) & np.isfinite(y)
        terms = [x * x, y * y, x * y, np.ones(len(x))]
        return np.stack([np.bincount(unit[of][both], term[both], unit.max() + 1) for term in terms])

    def correlation(sums: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore", divide="ignore"):
            found = sums[2] / np.sqrt(sums[0] * sums[1])
        return np.where(sums[3] >= _FEWEST, found, np.nan)

    found = [0]
    before = agreement(0, np.arange(len(rows)))
    now, own = correlation(before), np.bincount(unit, np.isfinite(move_a[rows]))
    todo = np.flatnonzero(~((now >= _AGREES) & (before[3] >= own / 2)))  # where few bars meet, they may agree by chance
    half_hours = np.arange(-28, 29) * 30 * _MINUTE
    candidates = np.unique(np.concatenate([half_hours + extra for extra in (-step, 0, step)]))
    candidates = candidates[candidates != 0]
    while len(todo):
        sample = todo[:: -(-len(todo) // _SAMPLED)]
        sums = np.stack([agreement(by, np.flatnonzero(np.isin(unit, sample))).sum(axis=1) for by in candidates])
        with np.errstate(invalid="ignore", divide="ignore"):
            score = np.where(sums[:, 3] >= _FEWEST, sums[:, 2] / np.sqrt(sums[:, 0] * sums[:, 1]), 0.0) * sums[:, 3]
        best = int(candidates[np.argmax(score)])
        after = agreement(best, np.flatnonzero(np.isin(unit, todo)))
        then = correlation(after)
        holds = (now > then - (_SAME - _AGREES)) & (2 * before[3] > after[3])
        moved = todo[(then >= _SAME)[todo] & ~holds[todo]]
        if not len(moved):
            break
        found.append(best)
        todo = np.setdiff1d(todo, moved)
    if len(found) > 1:
        every = np.arange(len(rows))
        sums = np.stack([agreement(by, every) for by in found])
        score = np.nan_to_num(correlation(sums.transpose(1, 0, 2))) * sums[:, 3]
        chosen, known = np.argmax(score, axis=0), score.max(axis=0) > 0
        day = a.day[rows][np.unique(unit, return_index=True)[1]]
        for date in np.unique(day[~known & np.isin(day, day[known])]):  # too few returns to tell: as the others
            chosen[~known & (day == date)] = np.bincount(chosen[known & (day == date)]).argmax()
        shift[rows] = np.array(found)[chosen][unit]
    return shift, [_shift_cause(a, shift, by, step) for by in np.unique(shift[shift != 0]).tolist()]


def _shift_cause(a: _Side, shift: np.ndarray, by: int, step: int) -> Cause:
    bars = shift == by
    names, days = np.unique(a.names[bars]), np.unique(a.day[bars])
    every = len(names) == len(np.unique(a.names)) and len(days) == len(np.unique(a.day))
    where = "" if every else f" for {_some(names.tolist())}, {_span(days)} ({counted(len(days), 'dates')})"
    text = f"B's stamps are {abs(by) / _MINUTE:g} min {'later' if by > 0 else 'earlier'} than A's{where}"
    ends = ("end", "start") if by < 0 else ("start", "end")
    label = f"set the label of A to {ends[0]} and that of B to {ends[1]}"
    hours = "bring both to one time zone: give source_timezone to the side that is not in the exchange's"
    if abs(by) == step:
        return Cause("stamps", f"{text}, one bar: one names the start of a bar, one its end", label, int(bars.sum()))
    if by % (30 * _MINUTE) == 0:
        return Cause(
            "stamps",
            text,
            f"{hours}; where only some dates differ, one ignores summer time or is wrong",
            int(bars.sum()),
        )
    return Cause("stamps", text, f"{hours}, and one names the start of a bar, the other its end", int(bars.sum()))


def _decimals(values: np.ndarray) -> float:
    """Return half a unit of the last decimal place that nearly all values need; 0 where that is beyond the sixth."""
    known = values[np.isfinite(values)]
    for digits in range(7 if len(known) else 0):
        if np.isclose(np.round(known, digits), known, rtol=1e-12, atol=1e-12).mean() > 0.999:
            return 0.5 * 10.0**-digits
    return 0.0


def _values(a: _Side, b: _Side, left: np.ndarray, right: np.ndarray) -> tuple[tuple[FieldDiff, ...], list[Cause]]:
    """Compare the values of bars in both, of rows `left` of A and `right` of B."""
    common = [name for name in a.values if name in b.values]
    if not len(left):
        return (), []
    one = {name: a.values[name][left] for name in common}
    two = {name: b.values[name][right] for name in common}
    half = {name: (_decimals(one[name]), _decimals(two[name])) for name in common}
    session = pd.factorize(pd.Series(a.names[left]) + pd.Series(a.day[left]).astype(str))[0]
    where = _Where(a, left, session)
    causes: list[Cause] = []
    factor = {name: np.ones(len(left)) for name in common}
    if "close" in common:
        ratio, cause = _price_factor(one["close"], two["close"], half["close"], where)
        factor |= {name: ratio for name in common if name in PRICES}
        causes += cause
    if "volume" in common:
        factor["volume"], cause = _volumes(one["volume"], two["volume"], half["volume"], where)
        causes += cause
    fields = tuple(_field(name, one[name], two[name], half[name], factor[name], where) for name in common)
    return fields, causes


class _Where(NamedTuple):
    """The place of bars in both: the side that names them, its rows, and the number of each one's session."""

    side: _Side
    rows: np.ndarray
    session: np.ndarray

    def first(self) -> np.ndarray:
        """Return the first bar of each session."""
        return np.unique(self.session, return_index=True)[1]


def _near(x: np.ndarray, y: np.ndarray, half: tuple[float, float], scale: np.ndarray | float = 1.0) -> np.ndarray:
    """Tell whether `x` is `scale` times `y` within the rounding of the coarser, or a millionth."""
    room = np.maximum(half[0], half[1] * np.asarray(scale))
    with np.errstate(invalid="ignore"):
        near: np.ndarray = np.abs(x - scale * y) <= np.maximum(room * (1 + 1e-6), 1e-6 * np.abs(x))
    return near


def _field(
    name: str, x: np.ndarray, y: np.ndarray, half: tuple[float, float], scale: np.ndarray, where: _Where
) -> FieldDiff:
    there = np.isfinite(x) & np.isfinite(y)
    same = there & (x == y)
    rounding = there & ~same & _near(x, y, half)
    different = there & ~same & ~rounding
    explained = different & (scale != 1) & _near(x, y, (half[0] + half[1], half[0] + half[1]), scale)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(different, np.abs(x - y) / np.maximum(np.abs(x), np.abs(y)), 0.0)
    largest = np.argsort(-size, kind="stable")[: min(_NAMED, int(different.sum()))]
    pairs = tuple(_pair(where, at, x, y) for at in largest.tolist())
    only_a, only_b = np.isfinite(x) & ~there, np.isfinite(y) & ~there
    equal, rounded, differ, known = (int(mask.sum()) for mask in (same, rounding, different, explained))
    return FieldDiff(name, equal, rounded, differ, known, int(only_a.sum()), int(only_b.sum()), pairs)


def _pair(where: _Where, at: int, x: np.ndarray, y: np.ndarray) -> Difference:
    name, date, time = _bar(where.side, where.rows[at]).rsplit(" ", 2)
    return Difference(name, date, time, float(x[at]), float(y[at]))


def _ratios(
    x: np.ndarray, y: np.ndarray, half: tuple[float, float], session: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return of each session the ratio of the sums of both sides, and whether its bars all have it, within rounding."""
    there = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    sums = [np.bincount(session[there], values[there], session.max() + 1) for values in (x, y)]
    count = np.bincount(session[there], minlength=session.max() + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = sums[0] / sums[1]
    room = half[0] + half[1] * ratio[session]
    fits = there & (np.abs(x - ratio[session] * y) <= 1.5 * room + 1e-6 * np.abs(x))
    constant = np.bincount(session[fits], minlength=session.max() + 1) >= _NEARLY_ALL * np.maximum(count, 1)
    return ratio, constant & (count >= _FEWEST)


def _price_factor(
    x: np.ndarray, y: np.ndarray, half: tuple[float, float], where: _Where
) -> tuple[np.ndarray, list[Cause]]:
    ratio, constant = _ratios(x, y, half, where.session)
    level = np.bincount(where.session, np.nan_to_num(x), len(ratio)) / np.bincount(where.session)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = constant & (np.abs(np.log(ratio)) > 1e-5 + sum(half) / level)
    if not off.any():
        return np.ones(len(x)), []
    first = where.first()
    table = pd.DataFrame({"name": where.side.names[where.rows[first]], "day": where.side.day[where.rows[first]]})
    table["ratio"] = np.where(off, ratio, 1.0)
    table = table[constant].sort_values(["name", "day"])
    # Rounding moves a session's ratio by less than this; a change of the factor is larger.
    near = np.log(table["ratio"]).diff().abs() < 2e-4 + sum(half) / max(np.nanmedian(x), 1e-9)
    stretch = (~near | (table["name"] != table["name"].shift())).cumsum()
    told = []
    for _, part in table.groupby(stretch):
        if part["ratio"].iloc[0] != 1:
            told.append(f"{part['name'].iloc[0]} {_span(part['day'].to_numpy())}: {part['ratio'].median():.6g}")
    text = f"A's prices are a constant multiple of B's by stretches: {_some(told)}"
    advice = "one side is adjusted for splits or dividends: take traded prices of both, or state the factor of one"
    return np.where(off[where.session], ratio[where.session], 1.0), [
        Cause("price_factor", text, advice, int(off[where.session].sum()))
    ]


def _volumes(x: np.ndarray, y: np.ndarray, half: tuple[float, float], where: _Where) -> tuple[np.ndarray, list[Cause]]:
    causes, scale = [], np.ones(len(x))
    ratio, constant = _ratios(x, y, half, where.session)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.abs(np.log(ratio))
    first = where.first()
    names, days = where.side.names[where.rows[first]], where.side.day[where.rows[first]]

    def told(sessions: np.ndarray) -> str:
        whose = "" if sessions.all() else f" for {_some(np.unique(names[sessions]).tolist())}, {_span(days[sessions])}"
        return f"{np.median(ratio[sessions]):.4g} times B's{whose}"

    unit = constant & (away > 0.01)
    if unit.any():
        typical = np.median(ratio[unit])
        nice = 10.0 ** np.round(np.log10(typical))
        lots = nice if abs(typical / nice - 1) < 0.02 else typical
        scale = np.where(unit[where.session], np.where(abs(ratio / lots - 1) < 0.02, lots, ratio)[where.session], 1.0)
        side = f"volume_multiplier: {lots:g} for B" if lots > 1 else f"volume_multiplier: {1 / lots:g} for A"
        advice = f"one counts in other units, such as lots: {side}; or it is adjusted for splits, as prices then are"
        causes.append(
            Cause("volume_unit", f"A's volume is {told(unit)}, always", advice, int(unit[where.session].sum()))
        )
    venue = ~constant & np.isfinite(ratio) & (away > np.log(1.25))
    if venue.sum() > 0.05 * len(ratio):
        text = f"A's volume is {told(venue)} in the median session, in no constant proportion"
        advice = (
            "one side is a single venue or a part of the trades, the other all of them; caps, VWAP and POV need all"
        )
        causes.append(Cause("volume_venue", text, advice, int(venue[where.session].sum())))
    for this, other, lacks in (("A", "B", (y == 0) | np.isnan(y)), ("B", "A", (x == 0) | np.isnan(x))):
        gone = lacks & ((x if this == "A" else y) > 0)
        if gone.any():
            at = where.rows[np.flatnonzero(gone)[:_NAMED]]
            places = _some([_bar(where.side, one) for one in at.tolist()])
            bars = counted(int(gone.sum()), "bars")
            text = f"{other} has no volume in {bars} in which {this} has some, first: {places}"
            causes.append(
                Cause(
                    "volume_missing", text, f"take {this}'s volume there, or ask the source of {other}", int(gone.sum())
                )
            )
    return scale, causes


def _bar(one: _Side, at: int) -> str:
    stamp = pd.Timestamp(int(one.stamp[at]), unit="ms")
    return f"{one.names[at]} {stamp:%Y-%m-%d} {stamp:%H:%M:%S}"


def _dates(days: np.ndarray) -> tuple[str, ...]:
    return tuple(days.astype("datetime64[D]").astype(str).tolist())


def _span(days: np.ndarray) -> str:
    first, last = _dates(np.array([days.min(), days.max()]))
    return first if first == last else f"{first} to {last}"


def _some(words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
