"""What bars on the clock show: outliers, jumps, prices that stand still, splits, days that are missing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rlwb.market.actions import price_ratio, suspected_splits
from rlwb.market.bars import Bars
from rlwb.market.calendar import text_of
from rlwb.market.findings import Finding, Report, counted
from rlwb.market.references import Levels
from rlwb.market.schema import QUOTES
from rlwb.market.sessions import Sessions

#: Log return within a session beyond which a move that stays is told: 10 %.
JUMP = float(np.log(1.1))
#: Move overnight beyond which it is told: 30 %.
OVERNIGHT = 0.3
#: A price is an outlier when it leaves both neighbours by this many robust deviations of the session's returns, and at
#: least by 2 %. The deviation is 1.4826 times the median absolute return, that of a normal law.
OUTLIER_DEVIATIONS = 20.0
OUTLIER_LEAST = float(np.log(1.02))
#: Minutes after which a price that stands still is stale.
STALE_MINUTES = 60.0
#: Log ratio of volumes from one day to the next beyond which it is told, and of factors that are not in the price.
_BREAK = float(np.log(8.0))
_STATED = float(np.log(1.2))
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
    usual = pd.Series(np.abs(move[within])).groupby(row[1:][within]).median()
    deviation = usual.reindex(range(len(panel)), fill_value=0.0).to_numpy() * 1.4826
    far = np.maximum(OUTLIER_DEVIATIONS * deviation, OUTLIER_LEAST)
    into, out = move[:-1], move[1:]
    size = np.minimum(np.abs(into), np.abs(out))
    back = np.where(within[:-1] & within[1:], 0.5, 0.2)  # overnight, prices move and return by themselves
    spike = (size > far[row[1:-1]]) & (into * out < 0) & (np.abs(into + out) < back * size)
    spike &= (within[:-1] | within[1:]) & one[:-1] & one[1:]
    outliers = np.flatnonzero(spike) + 1
    tell("outlier", bar[outliers], into[outliers - 1], "close", "before", price[outliers - 1])
    top, bottom = np.fmax(fields["open"], fields["close"]), np.fmin(fields["open"], fields["close"])
    for name, body in (("high", top), ("low", bottom)):
        with np.errstate(invalid="ignore", divide="ignore"):
            wick = np.log(fields[name] / body)
        long = (np.abs(wick) > far[:, None]) & ~widened[at]
        tell("outlier", at[long], wick[long], name, "open and close", body[long])
    beside = np.zeros(len(close), dtype=bool)
    beside[outliers] = True
    jumps = np.flatnonzero((np.abs(move) > JUMP) & within & ~beside[1:] & ~beside[:-1])
    tell("jump", bar[jumps + 1], move[jumps], "close", "before", price[jumps])


def inspect_sessions(
    panel: Sessions, levels: Levels, table: pd.DataFrame, report: Report, files: Mapping[int, str]
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

    report.tell("price_jump", np.flatnonzero((np.abs(change) > OVERNIGHT) & ~np.isin(later, split_at)), jump)

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
    for date, (median, count) in ratio.agg(["median", "size"]).iterrows():
        if abs(median) > _BREAK:
            times = float(np.exp(median))
            what = f"median volume a tick times {times:.3g} over {counted(int(count), 'instruments')}"
            report.add("volume_break", 1, what, date=f"{date:%Y-%m-%d}", value=times)


def coverage(table: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the share of ticks with a price, and of those with a volume of 0: instruments (I,) by days (D,).

    NaN outside an instrument's days, and in the second where there is no price. `table` is that of `inspect_sessions`.
    """
    table = table.assign(share=table["priced"] / table["length"], idle=table["zeros"] / table["priced"])
    share, zeros = (table.pivot(index="instrument", columns="day", values=name) for name in ("share", "idle"))
    return share.mask(_alive(share) & share.isna(), 0.0), zeros


def _alive(sessions: pd.DataFrame) -> pd.DataFrame:
    """Tell of each instrument and day whether it lies between the first and the last of its sessions."""
    return sessions.ffill(axis=1).notna() & sessions.bfill(axis=1).notna()
