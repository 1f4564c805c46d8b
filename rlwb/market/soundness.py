"""What bars on the clock show: outliers, jumps, prices that stand still, splits, days that are missing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rlwb.market.actions import price_ratio, suspected_splits, usual_of
from rlwb.market.bars import Bars
from rlwb.market.calendar import text_of
from rlwb.market.findings import Finding, Report, counted
from rlwb.market.references import Levels
from rlwb.market.schema import QUOTES, TRADE_PRICES
from rlwb.market.sessions import Sessions

#: Volume over the median of so many bars on either side from which on a move is one of news, unless it doubles the
#: price or halves it.
BUSY, _REACH = 3.0, 5
BEYOND_NEWS = float(np.log(2.0))
#: Log return within a session beyond which a move that stays is told: 10 %.
JUMP = float(np.log(1.1))
#: Move overnight beyond which it is told: 30 %.
OVERNIGHT = 0.3
#: A price is an outlier when it leaves both neighbours by this many robust deviations of the session's returns, by 2 %,
#: and by four times the widest bar around. The deviation is 1.4826 times the median absolute return that is not 0.
OUTLIER_DEVIATIONS = 20.0
OUTLIER_LEAST = float(np.log(1.02))
#: Volume and range of a session over the usual from which on it is one of news; days after which any price may be.
BUSY_DAY, WIDE_DAY, LONG_AWAY = 1.5, 1.2, 14
#: Minutes after which a price that stands still is stale.
STALE_MINUTES = 60.0
#: Log ratio of volumes from one day to the next beyond which it is told, and of factors that are not in the price.
_BREAK = float(np.log(8.0))
_STATED = float(np.log(1.2))
#: Share of a change in log volume by which ranges may change too: they do on busy days, not where the unit changes.
_QUIET = 0.3
_MARKET = 3
#: Share of the instruments that must trade on a day for the others to be missing.
_MOST_OTHERS = 0.5


def inspect_ticks(
    panel: Sessions, bars: Bars, at: np.ndarray, widened: np.ndarray, report: Report, files: Mapping[int, str]
) -> None:
    """Count what the ticks of some sessions show.

    They were made of `bars`, each tick of the bar number `at`, int of shape ``(S, T)``, -1 where there is none;
    `widened`, `report` and `files` are those of `rlwb.market.cleaning.Cleaning`.
    """
    close, calendar = panel.fields["close"], panel.calendar
    priced = np.isfinite(close)

    quoted = np.logical_and.reduce([np.isfinite(panel.fields[name]) for name in QUOTES if name in panel.fields])
    lacking = panel.in_session & ~priced & ~(quoted if {*QUOTES} <= set(panel.fields) else False)
    gaps = lacking.sum(axis=1)
    stamp = calendar.tick_start + (calendar.tick_seconds if calendar.label == "end" else 0)

    def missing(row: int) -> Finding:
        what = f"{counted(int(gaps[row]), 'ticks')} of the session, this is the first"
        name, date, time = str(panel.instruments[row]), str(panel.dates[row]), stamp[np.argmax(lacking[row])]
        return Finding("missing_tick", what, name, date, f"{date} {text_of(int(time))}", value=float(gaps[row]))

    report.tell("missing_tick", np.flatnonzero(gaps), missing, count=gaps.sum())

    idle = priced & (panel.fields["volume"] == 0)
    zeros = idle.sum(axis=1)

    def zero_volume(row: int) -> Finding:
        what = f"{counted(int(zeros[row]), 'bars')} of the session, this is the first"
        return bars.finding("zero_volume", at[row, np.argmax(idle[row])], files, what, zeros[row])

    report.tell("zero_volume", np.flatnonzero(zeros), zero_volume, count=zeros.sum())

    some = (panel.fields["volume"] > 0).any(axis=1, keepdims=True)
    unpaid = idle & (panel.fields["high"] > panel.fields["low"]) & some
    ranges = unpaid.sum(axis=1)

    def without_volume(row: int) -> Finding:
        tick = np.argmax(unpaid[row])
        high, low = panel.fields["high"][row, tick], panel.fields["low"][row, tick]
        what = f"{counted(int(ranges[row]), 'bars')} of the session, this is the first: high {high:g}, low {low:g}"
        return bars.finding("range_without_volume", at[row, tick], files, what, ranges[row])

    report.tell("range_without_volume", np.flatnonzero(ranges), without_volume, count=ranges.sum())

    flat = priced & (panel.fields["high"] == panel.fields["low"])
    same = flat[:, 1:] & flat[:, :-1] & (close[:, 1:] == close[:, :-1])
    edges = np.diff(np.pad(same, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    run, begin = np.nonzero(edges == 1)
    length = np.nonzero(edges == -1)[1] - begin + 1

    def stale(index: int) -> Finding:
        row, tick = run[index], begin[index]
        what = f"{length[index]} bars at {close[row, tick]:g}, this is the first"
        return bars.finding("stale", at[row, tick], files, what, length[index])

    least = max(3, int(np.ceil(STALE_MINUTES / calendar.tick_minutes)))
    report.tell("stale", np.flatnonzero(length >= least), stale)
    _inspect_moves(panel, bars, at, widened, report, files)


def _inspect_moves(
    panel: Sessions, bars: Bars, at: np.ndarray, widened: np.ndarray, report: Report, files: Mapping[int, str]
) -> None:
    """Tell of outliers, and of jumps within sessions; parameters as those of `inspect_ticks`."""

    def tell(kind: str, bar: np.ndarray, moves: np.ndarray, price: str, beside: str, reference: np.ndarray) -> None:
        """Count bars whose price moved by a log return from a reference, and list the largest moves."""

        def describe(index: int) -> Finding:
            change, old = float(np.expm1(moves[index])), float(reference[index])
            what = f"{price} {old * (1 + change):g}, {beside} {old:g} ({change:+.1%})"
            return bars.finding(kind, bar[index], files, what, change)

        largest = np.argsort(-np.abs(moves), kind="stable")[: report.room(kind)]
        report.tell(kind, np.sort(largest), describe, count=len(bar))

    fields, ticks = panel.fields, panel.calendar.num_ticks
    good = np.flatnonzero(np.isfinite(fields["close"]).ravel())
    if len(good) < 3:
        return
    row, close, bar = good // ticks, np.log(fields["close"].ravel()[good]), at.ravel()[good]
    move, price = np.diff(close), np.exp(close)
    within = np.diff(row) == 0
    one = panel.instruments[row[1:]] == panel.instruments[row[:-1]]
    real = within & (move != 0)  # where the tick is coarse most closes stay, and one step is a large move
    usual = pd.Series(np.abs(move[real])).groupby(row[1:][real]).median()
    deviation = usual.reindex(range(len(panel)), fill_value=0.0).to_numpy() * 1.4826
    far = np.maximum(OUTLIER_DEVIATIONS * deviation, OUTLIER_LEAST)
    beside = _Beside(fields, good, row)
    detached = _detached(fields, good, row, beside)
    into, out = move[:-1], move[1:]
    size = np.minimum(np.abs(into), np.abs(out))
    back = np.where(within[:-1] & within[1:], 0.5, 0.2)  # overnight, prices move and return by themselves
    spike = (size > far[row[1:-1]]) & (into * out < 0) & (np.abs(into + out) < back * size)
    spike &= (within[:-1] | within[1:]) & one[:-1] & one[1:]
    outliers = np.flatnonzero(spike) + 1
    outliers = np.union1d(outliers[beside.unlike(outliers, size[outliers - 1])], detached)
    tell("outlier", bar[outliers], into[outliers - 1], "close", "before", price[outliers - 1])
    opening = np.log(fields["open"].ravel()[good])
    opening[1:][within & (np.diff(good) == 1)] = np.nan  # a bar opens where the one before it is, which is compared
    for name, sign in (("high", 1), ("low", -1)):
        edge = np.log(fields[name].ravel()[good]) * sign
        body = np.fmax(close * sign, opening * sign)
        wick = edge - body
        long = np.flatnonzero((wick > far[row]) & ~widened[bar])
        near = np.fmax(body[long], beside.most(edge, long))
        wick, bodies = edge[long] - near, np.exp(near * sign)
        still = (wick > far[row[long]]) & beside.unlike(long, wick)
        tell("outlier", bar[long[still]], wick[still] * sign, name, "the close and the bars beside", bodies[still])
    known = np.zeros(len(close), dtype=bool)
    known[outliers] = True
    jumps = np.flatnonzero((np.abs(move) > JUMP) & within & ~known[1:] & ~known[:-1])
    busy = (beside.volume(jumps + 1, np.minimum) > BUSY) & (np.abs(move[jumps]) < BEYOND_NEWS)
    tell("price_move", bar[jumps[busy] + 1], move[jumps[busy]], "close", "before", price[jumps[busy]])
    tell("jump", bar[jumps[~busy] + 1], move[jumps[~busy]], "close", "before", price[jumps[~busy]])


def _detached(fields: Mapping[str, np.ndarray], good: np.ndarray, row: np.ndarray, beside: _Beside) -> np.ndarray:
    """Return the bars that touch neither neighbour while these touch each other, numbers of `good`.

    Prices run on from one tick's bar to the next one's, so the empty space on both sides is held against the gaps
    between a close and the next open of the session, which are far smaller than its returns, and against the widest
    bars around. `row` is the session of each bar at `good`.
    """
    opening, high, low, close = (fields[name].ravel()[good] for name in TRADE_PRICES)
    with np.errstate(invalid="ignore", divide="ignore"):
        above = low[1:-1] / np.fmax(high[:-2], high[2:])
        below = np.fmin(low[:-2], low[2:]) / high[1:-1]
        next_to = (row[2:] == row[:-2]) & (good[2:] - good[:-2] == 2)
        far = (np.fmax(above, below) > np.exp(OUTLIER_LEAST)) & next_to
        bars = np.flatnonzero(far) + 1
        space = np.log(np.fmax(above, below)[bars - 1])
        apart = np.log(np.fmax(low[bars - 1] / high[bars + 1], low[bars + 1] / high[bars - 1]))
        near = np.isin(row[1:], row[bars]) & (row[1:] == row[:-1])
        gaps = pd.Series(np.abs(np.log(opening[1:][near] / close[:-1][near])))
    usual = gaps.groupby(row[1:][near]).median().reindex(row[bars]).fillna(0.0).to_numpy() * 1.4826
    told = (space > OUTLIER_DEVIATIONS * usual) & (apart < 0.25 * space)
    return bars[told & (space > np.where(beside.volume(bars, np.maximum) > BUSY, 4, 1) * beside.widest(bars))]


class _Beside:
    """The bars beside others, of those in flat fields at `good`, whose sessions are `row`; both ``(bars,)``."""

    def __init__(self, fields: Mapping[str, np.ndarray], good: np.ndarray, row: np.ndarray) -> None:
        self._row = row
        with np.errstate(invalid="ignore", divide="ignore"):
            self._range = np.log(fields["high"].ravel()[good] / fields["low"].ravel()[good])
        self._volume = np.nan_to_num(fields["volume"].ravel()[good])

    def _near(self, values: np.ndarray, at: np.ndarray, reach: int) -> np.ndarray:
        """Return the values of up to `reach` ticks on each side within the session, ``(n, 2 * reach)``, else NaN."""
        rows = at[:, None] + np.array([step for step in range(-reach, reach + 1) if step])
        inside = (rows >= 0) & (rows < len(values))
        rows = np.clip(rows, 0, len(values) - 1)
        return np.where(inside & (self._row[rows] == self._row[at][:, None]), values[rows], np.nan)

    def most(self, values: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the largest of the values on both sides."""
        return np.fmax.reduce(self._near(values, at, 1), axis=1)

    def volume(self, at: np.ndarray, which: np.ufunc) -> np.ndarray:
        """Return each tick's volume over `which` is asked for of the medians before and after; 0 without any."""
        if not len(at):
            return np.zeros(0)
        near = np.nan_to_num(self._near(self._volume, at, _REACH))
        usual = which(np.median(near[:, :_REACH], axis=1), np.median(near[:, _REACH:], axis=1))
        return self._volume[at] / np.maximum(usual, 1e-9 + 1e-3 * self._volume[at])

    def widest(self, at: np.ndarray) -> np.ndarray:
        """Return the widest log range of the three ticks on each side; 0 without any."""
        return np.nan_to_num(np.fmax.reduce(self._near(self._range, at, 3), axis=1))

    def unlike(self, at: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Tell whether moves are too large for the bars around: on news these are wide too, or the volume is."""
        if not len(at):
            return np.zeros(0, dtype=bool)
        widest = self.widest(at)
        busy = self.volume(at, np.maximum) > BUSY
        return (size > 4 * widest) & (~busy | (size > 8 * np.maximum(widest, OUTLIER_LEAST / 2)))


def inspect_sessions(
    panel: Sessions,
    levels: Levels,
    table: pd.DataFrame,
    report: Report,
    files: Mapping[int, str],
) -> None:
    """Count what the sessions of a whole panel show beside each other; fields of the panel are not read.

    `table` has one row a session that has bars, those included that are too sparse to keep: instrument, day (since
    1970), length in ticks, priced and zeros (ticks with a price, and those of them with a volume of 0), kept, and
    stamp, source and row of its first bar.
    """
    report.totals.update(instruments=len(panel.index.names), days=len(np.unique(panel.dates)))
    kept = np.flatnonzero(table["kept"])

    def finding(kind: str, session: int, what: str = "", value: float = np.nan) -> Finding:
        """Return a finding about the first bar of one of the panel's sessions."""
        first = table.iloc[kept[session]]
        date, stamp = str(panel.dates[session]), str(pd.Timestamp(int(first["stamp"]), unit="us"))
        file, row = files.get(int(first["source"])), int(first["row"]) or None
        return Finding(kind, what, str(panel.instruments[session]), date, stamp, file, row, float(value))

    report.tell("no_volume", np.flatnonzero(levels.volume == 0), lambda session: finding("no_volume", session))
    later = np.flatnonzero(panel.previous >= 0)
    before = panel.previous[later]
    worth = price_ratio(panel, before, later)
    close, opening = levels.close[before] * worth, levels.open[later]

    stated, moved = np.log(worth), np.log(opening / (close / worth))
    denied = (np.abs(stated) > _STATED) & (np.abs(moved) < np.abs(moved - stated))

    def contradicted(at: int) -> Finding:
        return finding("factor_contradicted", later[at], f"times {1 / worth[at]:g}", 1 / worth[at])

    report.tell("factor_contradicted", np.flatnonzero(denied), contradicted)

    splits = suspected_splits(panel, levels)
    split_at = panel.rows(splits["instrument"], splits["date"].to_numpy().astype("datetime64[D]"))

    def split(number: int) -> Finding:
        one = splits.iloc[number]
        prices = f"{one['close_before']:g} to {one['open_after']:g}"
        what = f"like {one['split']}, {prices}, volume times {one['volume_ratio']:.3g}"
        return finding("split_suspected", split_at[number], what, one["ratio"])

    report.tell("split_suspected", np.arange(len(splits)), split)

    change = opening / close - 1

    def jump(at: int) -> Finding:
        return finding("price_jump", later[at], f"{close[at]:g} to {opening[at]:g} ({change[at]:+.1%})", change[at])

    def moved_far(at: int) -> Finding:
        return jump(at)._replace(kind="price_move")

    first = panel.first[later]
    with np.errstate(invalid="ignore", divide="ignore"):
        busier = levels.tick_volume[later] / usual_of(levels.tick_volume, later, first)
        wider = levels.range[later] / usual_of(levels.range, later, first)
    away = (panel.dates[later] - panel.dates[before]).astype(int)
    news = (busier > BUSY_DAY) & (wider > WIDE_DAY) & (np.abs(np.log1p(change)) < BEYOND_NEWS) | (away > LONG_AWAY)
    nights = np.busday_count(
        panel.dates[before], panel.dates[later], weekmask=np.isin(range(7), panel.calendar.weekdays)
    )
    far_off = (np.abs(np.log1p(change)) > _far(nights)) & ~np.isin(later, split_at)
    report.tell("price_jump", np.flatnonzero(far_off & ~news), jump)
    report.tell("price_move", np.flatnonzero(far_off & news), moved_far)

    priced = table.pivot(index="instrument", columns="day", values="priced")
    alive = _alive(priced)
    common = (priced > 0).sum() >= _MOST_OTHERS * alive.sum()
    name, day = np.nonzero((alive & priced.isna() & common).to_numpy())
    days = priced.columns.to_numpy().astype("datetime64[D]")

    def absent(at: int) -> Finding:
        return Finding("missing_session", "", str(priced.index[name[at]]), str(days[day[at]]), value=1.0)

    report.tell("missing_session", np.arange(len(name)), absent)

    mean = levels.volume / panel.num_ticks
    traded = (mean[later] > 0) & (mean[before] > 0)
    ratio = pd.Series(np.log(mean[later[traded]] / mean[before[traded]])).groupby(panel.dates[later[traded]])
    span = pd.Series(np.log(levels.range[later[traded]] / levels.range[before[traded]])).groupby(
        panel.dates[later[traded]]
    )
    wider = span.median()
    for date, (median, count) in ratio.agg(["median", "size"]).iterrows():
        busy = count < _MARKET and abs(wider[date]) > _QUIET * abs(median)  # of few, it may be their news
        if abs(median) > _BREAK and not busy:
            times = float(np.exp(median))
            what = f"median volume a tick times {times:.3g} over {counted(int(count), 'instruments')}"
            report.add("volume_break", 1, what, date=f"{date:%Y-%m-%d}", value=times)


def _far(nights: np.ndarray) -> np.ndarray:
    """Return the log return that is far after so many nights: prices spread with the root of time."""
    return np.log1p(OVERNIGHT) * np.sqrt(np.maximum(nights, 1))


def coverage(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the share of ticks with a price, that of these with a volume of 0, and the number of ticks.

    Instruments (I,) by days (D,): NaN outside an instrument's days, and but in the first where there is no session.
    `table` is that of `inspect_sessions`.
    """
    table = table.assign(share=table["priced"] / table["length"], idle=table["zeros"] / table["priced"])
    names = ("share", "idle", "length")
    share, zeros, length = (table.pivot(index="instrument", columns="day", values=name) for name in names)
    return share.mask(_alive(share) & share.isna(), 0.0), zeros, length


def _alive(sessions: pd.DataFrame) -> pd.DataFrame:
    """Tell of each instrument and day whether it lies between the first and the last of its sessions."""
    return sessions.ffill(axis=1).notna() & sessions.bfill(axis=1).notna()
