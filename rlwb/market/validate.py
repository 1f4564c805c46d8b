"""Bars against the schema: what is wrong is repaired or dropped, and counted either way."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.market.calendar import Calendar
from rlwb.market.fit import Fit
from rlwb.market.report import Report, printable
from rlwb.market.schema import COLUMNS, FIELDS, PRICES, QUOTES, REQUIRED, SIZES, TRADE_PRICES
from rlwb.market.stamps import MISSING, Placed, local_nanoseconds, place, text


class Bars:
    """Columns of a table of bars as arrays of shape ``(bars,)``, on their way into the panel.

    Attributes
    ----------
    names
        The instruments, sorted text; `code` points into it.
    local
        Session-local stamps in nanoseconds, as written in the data.
    placed
        Day and tick of each bar.
    values
        Float64 columns by name; NaN = missing.
    halted
        Bool column, or None.
    factor
        Float64 column, or None.
    """

    def __init__(self, frame: pd.DataFrame, calendar: Calendar, report: Report) -> None:
        check_columns(frame)
        extra = [str(name) for name in frame.columns if name not in COLUMNS]
        report.add("column_ignored", len(extra), ", ".join(extra))
        self.report = report
        self.code, self.names = _codes(frame["instrument"])
        self.local = local_nanoseconds(frame["datetime"].reset_index(drop=True), calendar.timezone)
        self.values = {name: _numbers(frame[name]) for name in FIELDS if name in frame.columns}
        self.halted = _flags(frame["halted"]) if "halted" in frame.columns else None
        self.factor = _numbers(frame["factor"]) if "factor" in frame.columns else None
        self.placed = place(self.local, calendar)

    def __len__(self) -> int:
        return len(self.code)

    def example(self, index: int) -> str:
        """Return one bar's name for a message."""
        name = self.names[self.code[index]] if self.code[index] >= 0 else "no instrument"
        return f"{name} {'no stamp' if self.local[index] == MISSING else text(self.local[index])}"

    def find(self, reason: str, mask: np.ndarray) -> None:
        """Count the bars of `mask` under `reason`."""
        if mask.any():
            self.report.add(reason, int(mask.sum()), self.example(int(np.argmax(mask))))

    def drop(self, reason: str, mask: np.ndarray) -> None:
        """Count the bars of `mask` under `reason` and take them out."""
        if mask.any():
            self.find(reason, mask)
            self.take(np.flatnonzero(~mask))

    def take(self, index: np.ndarray) -> None:
        """Keep the bars of `index`, in that order."""
        self.code, self.local = self.code[index], self.local[index]
        self.values = {name: column[index] for name, column in self.values.items()}
        self.halted = None if self.halted is None else self.halted[index]
        self.factor = None if self.factor is None else self.factor[index]
        self.placed = Placed(*(part[index] for part in self.placed))


def check_columns(frame: pd.DataFrame, source: str = "", ignored: str = "") -> None:
    """Raise `DataError` unless `frame` has the schema's required columns, each once.

    Parameters
    ----------
    source, ignored
        Where the bars are from, and columns of it that are not in the schema; for the message.
    """
    names = [str(name) for name in frame.columns]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        have = printable(", ".join(names)) + (f"; {printable(ignored)} mean nothing" if ignored else "")
        raise DataError(
            f"the bars{source and f' of {source}'} lack the columns {', '.join(missing)} (they have {have}); say which "
            "of theirs is which by columns (market.columns, --column THEIRS=OURS)."
        )
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise DataError(f"the bars have the columns {', '.join(doubled)} more than once; keep one of each.")


def drop_misplaced(bars: Bars, calendar: Calendar, fit: Fit) -> None:
    """Drop bars without instrument or stamp, of closed days, outside the session, or between ticks.

    What that says of all the bars is counted in `fit`.
    """
    bars.drop("instrument_missing", bars.code < 0)
    bars.drop("datetime_missing", bars.local == MISSING)
    fit.see_dates(bars)
    bars.drop("closed_day", ~calendar.is_open(bars.placed.day.astype("datetime64[D]")))
    fit.see_edges(bars)
    bars.drop("auction", bars.placed.edge)
    bars.drop("off_session", ~bars.placed.inside)
    off = ~bars.placed.on_grid
    fit.see_grid(bars, off)
    bars.drop("off_grid", off)


def drop_duplicates(bars: Bars) -> None:
    """Sort by (instrument, day, tick) and keep the last bar of each tick, in the order of the data."""
    ticks = int(bars.placed.tick.max(initial=0)) + 1
    days = bars.placed.day - bars.placed.day.min(initial=0)
    key = (bars.code.astype(np.int64) * (int(days.max(initial=0)) + 1) + days) * ticks + bars.placed.tick
    by_name = np.argsort(bars.code, kind="stable")
    back = np.zeros(len(bars), dtype=bool)
    back[by_name[1:]] = np.diff(key[by_name]) < 0
    bars.find("unsorted", back)
    order = np.argsort(key, kind="stable")
    bars.take(order)
    repeated = np.zeros(len(bars), dtype=bool)
    repeated[:-1] = np.diff(key[order]) == 0
    if repeated.any():
        index = np.flatnonzero(repeated)
        same = np.ones(len(index), dtype=bool)
        for column in bars.values.values():
            same &= (column[index] == column[index + 1]) | (np.isnan(column[index]) & np.isnan(column[index + 1]))
        identical = repeated.copy()
        identical[index] = same
        bars.find("duplicate_identical", identical)
        bars.find("duplicate_conflicting", repeated & ~identical)
        bars.take(np.flatnonzero(~repeated))


def repair_values(bars: Bars, volume_multiplier: float) -> None:
    """Make impossible prices, quotes and volumes missing, widen ranges, and bring volume to shares."""
    values = bars.values
    quoted = _any(bars, [np.isfinite(values[name]) & (values[name] > 0) for name in QUOTES if name in values])
    untraded = ~_any(bars, [np.isfinite(values[name]) for name in TRADE_PRICES])
    bars.find("quote_only", untraded & quoted)
    prices = [name for name in PRICES if name in values]
    wild = [np.isinf(values[name]) for name in prices] + [np.isnan(values[name]) for name in TRADE_PRICES]
    bars.find("price_not_finite", _any(bars, wild) & ~(untraded & quoted))
    bars.find("price_zero", _any(bars, [values[name] == 0 for name in prices]))
    bars.find("price_negative", _any(bars, [values[name] < 0 for name in prices]))
    for name in prices:
        values[name] = np.where(np.isfinite(values[name]) & (values[name] > 0), values[name], np.nan)

    trade = [values[name] for name in TRADE_PRICES]
    top, bottom = np.fmax.reduce(trade), np.fmin.reduce(trade)
    broken = (values["high"] < top * (1 - 1e-9)) | (values["low"] > bottom * (1 + 1e-9))
    bars.find("high_low", broken)
    values["high"] = np.where(broken, top, values["high"])
    values["low"] = np.where(broken, bottom, values["low"])
    if "bid" in values and "ask" in values:
        crossed = values["bid"] > values["ask"]
        bars.find("quote_crossed", crossed)
        for name in QUOTES:
            values[name] = np.where(crossed, np.nan, values[name])

    sizes = [name for name in SIZES if name in values]
    bars.find("volume_negative", _any(bars, [(values[name] < 0) | np.isinf(values[name]) for name in sizes]))
    for name in sizes:
        good = np.isfinite(values[name]) & (values[name] >= 0)
        values[name] = np.where(good, values[name], np.nan)
    bars.find("volume_missing", np.isnan(values["volume"]) & np.isfinite(values["close"]))
    if volume_multiplier != 1:
        values["volume"] = values["volume"] * volume_multiplier


def _any(bars: Bars, masks: list[np.ndarray]) -> np.ndarray:
    return np.logical_or.reduce(masks) if masks else np.zeros(len(bars), dtype=bool)


def _codes(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return codes (-1 = missing) and sorted names of a column of instruments, which must be text."""
    codes, found = pd.factorize(column)
    odd = next((name for name in found if not isinstance(name, str)), None)
    if odd is not None:
        raise DataError(
            f"column instrument holds {odd!r} ({type(odd).__name__}); ids are text, or 000001 loses its zeros: "
            "write the column as text."
        )
    names = np.array(list(found), dtype=np.str_)
    order = np.argsort(names)
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(order)), -1
    blank = np.append(names == "", False)
    return np.where(blank[codes], -1, rank[codes]), names[order]


def _numbers(column: pd.Series) -> np.ndarray:
    if pd.api.types.is_bool_dtype(column.dtype):
        raise DataError(f"column {column.name} holds true and false, not numbers; correct it.")
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError):
        number = pd.to_numeric(column, errors="coerce")
        bad = column[number.isna() & column.notna()]
        what = f"{bad.iloc[0]!r}" if len(bad) else f"values of type {column.dtype}"
        raise DataError(
            f"column {column.name} holds {what}, which is not a number; correct it or make it empty."
        ) from None


def _flags(column: pd.Series) -> np.ndarray:
    if not pd.api.types.is_bool_dtype(column.dtype) and not pd.api.types.is_numeric_dtype(column.dtype):
        odd = [value for value in column.dropna() if not isinstance(value, (bool, np.bool_))]
        if odd:
            raise DataError(f"column halted holds {odd[0]!r}; write true or false (or 1 and 0).")
    flags = column.astype("object").where(column.notna(), False)
    odd = flags[~flags.isin([False, True])].tolist()
    if odd:
        raise DataError(f"column halted holds {odd[0]!r}; write true or false (or 1 and 0).")
    return flags.to_numpy().astype(bool)
