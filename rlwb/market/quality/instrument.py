"""One instrument's bars under the glass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlwb.market.actions import suspected_splits
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.bars import Block
from rlwb.market.quality.findings import Finding, Findings, Window
from rlwb.market.quality.watched import WatchedBars, watch
from rlwb.market.report import counted
from rlwb.market.sessions import Sessions
from rlwb.market.stamps import text

#: Log return within a session beyond which a move that stays is told: 10 %.
JUMP = float(np.log(1.1))
#: Move overnight beyond which it is told, as in a run's report: 30 %.
OVERNIGHT = 0.3
#: A price is an outlier when it leaves both neighbours by this many robust deviations of the instrument's returns, and
#: at least by 2 %. The deviation is 1.4826 times the median absolute return, that of a normal law.
OUTLIER_DEVIATIONS = 20.0
OUTLIER_LEAST = float(np.log(1.02))
#: Minutes after which a price that stands still is stale.
STALE_MINUTES = 60.0
#: Bars on each side of a finding that are kept to be drawn.
_AROUND = 40
_VALUE_OF = {"volume_negative": "volume", "volume_missing": "close"}


@dataclass(frozen=True)
class Seen:
    """What is left of an instrument for the comparison with the others; D is its days.

    Parameters
    ----------
    instrument
        The id.
    days
        Days since 1970, int64 of shape ``(D,)``, sorted.
    priced, traded
        Bool of shape ``(D, T)``, packed along the ticks by `numpy.packbits`: ticks with a price, and with volume.
    zeros
        Ticks with a price and a volume of 0, int64 of shape ``(D,)``.
    volume
        Volume of the day, float64 of shape ``(D,)``.
    closing_auction
        Whether nearly every session has a bar stamped at the close.
    """

    instrument: str
    days: np.ndarray
    priced: np.ndarray
    traded: np.ndarray
    zeros: np.ndarray
    volume: np.ndarray
    closing_auction: bool


def look_at(instrument: str, block: Block, calendar: Calendar, sources: dict[int, str], found: Findings) -> Seen:
    """Add what the bars of one instrument show to `found`, and return what the comparison with others needs.

    Parameters
    ----------
    sources
        Names of the files by number.

    Raises
    ------
    DataError
        Where a run would refuse the bars.
    """
    glass = _Glass(instrument, block, calendar, sources, found)
    glass.rows()
    return glass.sessions()


class _Glass:
    def __init__(
        self, instrument: str, block: Block, calendar: Calendar, sources: dict[int, str], found: Findings
    ) -> None:
        self._name, self._block, self._calendar = instrument, block, calendar
        self._sources, self._found = sources, found
        self._bars: WatchedBars = watch(instrument, block, calendar)
        days, self._index = np.unique(self._bars.placed.day, return_inverse=True)
        self._days = days
        self._dates = days.astype("datetime64[D]")

    def rows(self) -> None:
        """Tell of bars that a run drops or repairs."""
        for reason, rows in self._bars.found.items():
            self._found.count(reason, len(rows))
            listed = rows[: max(0, self._found.room(reason))]
            self._found.add([self._row(reason, row, *self._value(reason, row)) for row in listed.tolist()])
        report = self._bars.report
        if "label_suspect" in report.counts:
            self._found.count("label_suspect", report.counts["label_suspect"])
            what = report.examples["label_suspect"]
            self._found.add([Finding("label_suspect", self._name, value=report.counts["label_suspect"], what=what)])

    def sessions(self) -> Seen:
        """Tell of what bars say together."""
        bars, ticks = self._bars, self._calendar.num_ticks
        shape = (len(self._days), ticks)
        at = np.full(shape, -1)
        at[self._index, bars.placed.tick] = np.arange(len(bars))
        panel = {name: self._lay(name, at) for name in ("open", "high", "low", "close", "volume")}
        priced = np.isfinite(panel["close"])
        zeros = priced & (panel["volume"] == 0)
        self._zero_volume(zeros, at)
        self._stale(panel, priced, at)
        self._moves(panel)
        self._overnight(panel)
        return Seen(
            self._name,
            self._days,
            np.packbits(priced, axis=1),
            np.packbits(priced & (panel["volume"] != 0), axis=1),
            zeros.sum(axis=1),
            np.nansum(panel["volume"], axis=1),
            bars.closing_auction,
        )

    def _lay(self, name: str, at: np.ndarray) -> np.ndarray:
        values = np.append(self._bars.values[name], np.nan)
        laid: np.ndarray = values[at]
        return laid

    def _zero_volume(self, zeros: np.ndarray, at: np.ndarray) -> None:
        count = zeros.sum(axis=1)
        self._found.count("zero_volume", int(count.sum()))
        for day in np.flatnonzero(count)[: max(0, self._found.room("zero_volume"))].tolist():
            bar = int(at[day, np.argmax(zeros[day])])
            what = f"{counted(int(count[day]), 'bars')} of the session, this is the first"
            self._tell("zero_volume", bar, float(count[day]), what)

    def _stale(self, panel: dict[str, np.ndarray], priced: np.ndarray, at: np.ndarray) -> None:
        least = max(3, int(np.ceil(STALE_MINUTES / self._calendar.tick_minutes)))
        flat = priced & (panel["high"] == panel["low"])
        same = np.zeros(flat.shape, dtype=bool)
        same[:, 1:] = flat[:, 1:] & flat[:, :-1] & (panel["close"][:, 1:] == panel["close"][:, :-1])
        edges = np.diff(np.pad(same, ((0, 0), (1, 1))).astype(np.int8), axis=1)
        day, begin = np.nonzero(edges == 1)
        length = np.nonzero(edges == -1)[1] - begin + 1
        long = np.flatnonzero(length >= least)
        self._found.count("stale", len(long))
        for number in long[: max(0, self._found.room("stale"))].tolist():
            bar = int(at[day[number], begin[number] - 1])
            price = self._bars.values["close"][bar]
            what = f"{length[number]} bars at {price:g}, this is the first"
            self._tell("stale", bar, float(length[number]), what, shown=True)

    def _moves(self, panel: dict[str, np.ndarray]) -> None:
        """Tell of outliers and of jumps within sessions."""
        bars = self._bars
        good = np.flatnonzero(np.isfinite(bars.values["close"]))
        if len(good) < 3:
            return
        close, day = np.log(bars.values["close"][good]), self._index[good]
        move = np.diff(close)
        within = np.diff(day) == 0
        usual = 1.4826 * float(np.median(np.abs(move[within]))) if within.any() else 0.0
        far = max(OUTLIER_DEVIATIONS * usual, OUTLIER_LEAST)
        into, out = move[:-1], move[1:]
        size = np.minimum(np.abs(into), np.abs(out))
        back = np.where(within[:-1] & within[1:], 0.5, 0.2)  # overnight, prices move and return by themselves
        spike = (size > far) & (into * out < 0) & (np.abs(into + out) < back * size)
        spike &= within[:-1] | within[1:]
        outliers = np.flatnonzero(spike) + 1
        self._list("outlier", good[outliers], into[outliers - 1], "close", "before")
        top = np.fmax(bars.values["open"], bars.values["close"])
        bottom = np.fmin(bars.values["open"], bars.values["close"])
        for name, body in (("high", top), ("low", bottom)):
            with np.errstate(invalid="ignore"):
                wick = np.log(bars.values[name] / body)
                wide = np.abs(wick) > far
            wide &= ~np.isin(bars.origin, bars.found.get("high_low", ()))  # whose range is not the source's
            rows = np.flatnonzero(wide)
            self._list("outlier", rows, wick[rows], name, "open and close", body[rows])
        jumps = np.abs(move) > JUMP
        beside = np.zeros(len(close), dtype=bool)
        beside[outliers] = True
        jumps &= within & ~beside[1:] & ~beside[:-1]
        rows = np.flatnonzero(jumps) + 1
        self._list("jump", good[rows], move[rows - 1], "close", "before")

    def _list(
        self,
        kind: str,
        rows: np.ndarray,
        moves: np.ndarray,
        name: str,
        beside: str,
        reference: np.ndarray | None = None,
    ) -> None:
        """Tell of bars whose price `name` moved by a log return from a reference, by default the price before."""
        self._found.count(kind, len(rows))
        order = np.argsort(-np.abs(moves), kind="stable")[: max(3, self._found.room(kind))]
        for number in np.sort(order).tolist():
            bar, change = int(rows[number]), float(np.expm1(moves[number]))
            price = self._bars.values[name][bar]
            old = price / (1 + change) if reference is None else reference[number]
            self._tell(kind, bar, change, f"{name} {price:g}, {beside} {old:g} ({change:+.1%})", price=name, shown=True)

    def _overnight(self, panel: dict[str, np.ndarray]) -> None:
        """Tell of splits and jumps between sessions."""
        if len(self._days) < 2:
            return
        names = np.full(len(self._days), self._name)
        length = np.full(len(self._days), self._calendar.num_ticks)
        factor = self._factor()
        sessions = Sessions(self._calendar, names, self._dates, length, panel, factor=factor)
        splits = suspected_splits(sessions)
        first = np.searchsorted(self._index, np.arange(len(self._days)))
        day_of = {date: day for day, date in enumerate(self._dates.tolist())}
        known = set()
        self._found.count("split_suspected", len(splits))
        for split in splits.itertuples():
            day = day_of[split.date.date()]
            known.add(day)
            prices = f"{split.close_before:g} to {split.open_after:g}"
            what = f"like {split.split}, {prices}, volume times {split.volume_ratio:.3g}"
            self._tell("split_suspected", int(first[day]), float(split.ratio), what, shown=True)
        opening, closing = _ends(panel)
        with np.errstate(invalid="ignore"):
            change = opening[1:] / closing[:-1] * (1.0 if factor is None else factor[1:] / factor[:-1]) - 1
            days = np.flatnonzero(np.abs(change) > OVERNIGHT) + 1
        days = np.array([day for day in days.tolist() if day not in known], dtype=np.int64)
        self._found.count("price_jump", len(days))
        for day in days[: max(3, self._found.room("price_jump"))].tolist():
            what = f"{closing[day - 1]:g} to {opening[day]:g} ({change[day - 1]:+.1%})"
            self._tell("price_jump", int(first[day]), float(change[day - 1]), what, shown=True)

    def _factor(self) -> np.ndarray | None:
        """Return each session's factor of adjustment, float64 of shape ``(D,)``; None unless all have one."""
        if self._bars.factor is None:
            return None
        at = np.searchsorted(self._index, np.arange(len(self._days)))
        factor: np.ndarray = self._bars.factor[at]
        return factor if (factor > 0).all() else None

    def _tell(self, kind: str, bar: int, value: float, what: str, *, price: str = "close", shown: bool = False) -> None:
        """List a finding at a bar that a run keeps, and the bars around it if it is to be shown."""
        finding = self._row(kind, int(self._bars.origin[bar]), value, what)
        self._found.add([finding])
        if shown:
            low, high = max(0, bar - _AROUND), bar + _AROUND + 1
            rows = self._bars.origin[low:high]
            about = float(self._bars.values[price][bar])
            stamps = self._block.stamp[rows].view("datetime64[us]")
            self._found.show(Window(finding, stamps, self._bars.values["close"][low:high].copy(), bar - low, about))

    def _row(self, kind: str, row: int, value: float, what: str) -> Finding:
        stamp = text(int(self._block.stamp[row]) * 1000)
        number = int(self._block.row[row])
        source = self._sources.get(int(self._block.source[row]))
        return Finding(kind, self._name, stamp[:10], stamp, value, what, source, number or None)

    def _value(self, reason: str, row: int) -> tuple[float, str]:
        """Return the value that a rule took, and its name."""
        values = {name: float(column[row]) for name, column in self._block.values.items()}
        prices = {name: value for name, value in values.items() if name in ("open", "high", "low", "close")}
        if reason == "price_zero":
            return 0.0, ", ".join(name for name, value in prices.items() if value == 0)
        if reason == "price_negative":
            low = min(prices, key=lambda name: prices[name])
            return prices[low], f"{low} {prices[low]:g}"
        if reason == "high_low":
            return values["high"], ", ".join(f"{name} {value:g}" for name, value in prices.items())
        if reason == "quote_crossed":
            return values["bid"], f"bid {values['bid']:g}, ask {values['ask']:g}"
        if reason in _VALUE_OF:
            name = _VALUE_OF[reason]
            return values[name], f"{name} {values[name]:g}"
        if reason == "price_not_finite":
            return float("nan"), ", ".join(name for name, value in prices.items() if not np.isfinite(value))
        return values["close"], ""


def _ends(panel: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return each session's first price (open, else close) and last close, float64 of shape ``(D,)``."""
    price = np.where(np.isfinite(panel["open"]), panel["open"], panel["close"])
    days, close = np.arange(len(price)), panel["close"]
    last = close.shape[1] - 1 - np.argmax(np.isfinite(close)[:, ::-1], axis=1)
    return price[days, np.argmax(np.isfinite(price), axis=1)], close[days, last]


def unpack(bits: np.ndarray, ticks: int) -> np.ndarray:
    """Return what `numpy.packbits` packed, bool of shape ``(D, T)``."""
    return np.unpackbits(bits, axis=1, count=ticks).astype(bool)
