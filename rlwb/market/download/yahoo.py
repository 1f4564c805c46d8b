"""Recent bars from Yahoo, through the client yfinance, which rlwb's extra ``yahoo`` installs."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rlwb.errors import ConfigError, DataError
from rlwb.files import atomic_path
from rlwb.market.findings import counted
from rlwb.market.readers.content import one_line
from rlwb.values import suggestion

#: Gives the bars of a symbol: (symbol, interval, first date, date after the last) to a table of yfinance's form, with
#: columns Open, High, Low, Close, Volume and an index of stamps that carry a zone.
Client = Callable[[str, str, dt.date, dt.date], pd.DataFrame]


#: Days for which Yahoo keeps bars of an interval, and days that one request may span.
LIMITS = {"1m": (30, 7), "2m": (60, 60), "5m": (60, 60), "15m": (60, 60), "30m": (60, 60), "1h": (730, 730)}
#: Where a file says the interval of its bars.
_INTERVAL = b"rlwb.interval"
_COLUMNS = ("Open", "High", "Low", "Close", "Volume")


def download_yahoo(
    symbols: Sequence[str],
    interval: str,
    directory: Path,
    *,
    start: dt.date | None = None,
    end: dt.date | None = None,
    extended_hours: bool = False,
    client: Client | None = None,
    now: dt.datetime | None = None,
    echo: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """Write the bars of each symbol to ``directory/SYMBOL.parquet``, stamped in UTC at their start.

    Bars that are there already stay, so that a folder that is filled every week outgrows what Yahoo keeps. Its prices
    are adjusted for splits; a bar that has another price now than in the folder means a split in between.

    Parameters
    ----------
    symbols, interval
        In Yahoo's spelling: AAPL, BRK-B, 000001.SZ, ^GSPC; 1m, 2m, 5m, 15m, 30m or 1h.
    start, end
        First and last date, both included; the earliest that Yahoo keeps, and today, where none is given.
    extended_hours
        Whether bars before and after the regular session come too.
    client, echo
        Gives the bars, yfinance where none is given; receives a line on each symbol.
    now
        The time, with a zone: what ends later is not finished and left out.

    Returns
    -------
    dict
        Number of bars in each symbol's file.

    Raises
    ------
    ConfigError
        For an interval, dates or a symbol that Yahoo does not have, and where yfinance is missing.
    DataError
        When Yahoo cannot be reached or gives nothing, and where a file in the folder has other prices now, another
        interval or another origin.
    """
    now = now or dt.datetime.now(dt.UTC)
    first, last = _dates(interval, start, end, now.date())
    for symbol in symbols:
        if not re.fullmatch(r"[\w^][\w.^=-]{0,39}", symbol):
            raise ConfigError(f"{symbol!r} is no symbol of Yahoo's; write for example AAPL, BRK-B or 000001.SZ.")
    if not symbols:
        raise ConfigError("no symbol is named; write for example AAPL.")
    client = client or yahoo_client(extended_hours=extended_hours)
    counts = {}
    for symbol in symbols:
        path = directory / f"{symbol}.parquet"
        old = _kept(path, interval) if path.exists() else None
        new = _asked(client, symbol, interval, first, last)
        finished = new["datetime"] + pd.Timedelta(interval) <= pd.Timestamp(now)
        unfinished, new = int((~finished).sum()), new[finished]
        if not len(new):
            raise DataError(
                f"Yahoo gave no {interval} bars of {symbol} from {first} to {last}; check symbol and dates."
            )
        if old is not None:
            _check_splits(old, new, symbol, path)
        bars = new if old is None else _in_order(pd.concat([old, new]))
        table = pa.Table.from_pandas(bars, preserve_index=False)
        with atomic_path(path) as target:
            pq.write_table(table.replace_schema_metadata({**table.schema.metadata, _INTERVAL: interval}), target)
        counts[symbol] = len(bars)
        left_out = f", {unfinished} unfinished left out" if unfinished else ""
        echo(f"{symbol}: {counted(len(new), 'bars')}, {len(bars):,} in the file{left_out}")
    return counts


def yahoo_client(*, extended_hours: bool = False) -> Client:
    """Return yfinance as a client; `ConfigError` where it is not installed."""
    try:
        import yfinance
    except ImportError:
        raise ConfigError(
            "bars from Yahoo come through yfinance, which is not installed; pip install 'rlwb[yahoo]' brings it."
        ) from None
    yfinance.config.debug.hide_exceptions = False

    def ask(symbol: str, interval: str, first: dt.date, after: dt.date) -> pd.DataFrame:
        try:
            return yfinance.Ticker(symbol).history(
                interval=interval,
                start=first.isoformat(),
                end=after.isoformat(),
                prepost=extended_hours,
                auto_adjust=False,
                actions=False,
                timeout=30,
            )
        except yfinance.exceptions.YFPricesMissingError as error:
            if error.yahoo_reason is not None:
                raise
            return pd.DataFrame()  # a weekend, say

    return ask


def _dates(interval: str, start: dt.date | None, end: dt.date | None, today: dt.date) -> tuple[dt.date, dt.date]:
    if interval not in LIMITS:
        hint = suggestion(interval, LIMITS)
        raise ConfigError(f"interval is {interval!r}, which Yahoo does not give or rlwb does not read; {hint}")
    kept = LIMITS[interval][0]
    earliest = today - dt.timedelta(days=kept - 1)  # Yahoo counts in seconds
    first, last = start or earliest, min(end or today, today)
    if first < earliest:
        longer = next((name for name, (days, _) in LIMITS.items() if (today - first).days < days), None)
        other = f", or choose the interval {longer}" if longer else ""
        raise ConfigError(
            f"from {first} is too early: Yahoo keeps bars of {interval} for {kept} days; begin on {earliest}{other}."
        )
    if first > last:
        raise ConfigError(f"from {first} is after to {last}; exchange them.")
    return first, last


def _asked(client: Client, symbol: str, interval: str, first: dt.date, last: dt.date) -> pd.DataFrame:
    """Return the bars of the dates, in the schema's columns and in order; none where Yahoo has none."""
    tables, begin = [], first
    while begin <= last:
        after = min(begin + dt.timedelta(days=LIMITS[interval][1]), last + dt.timedelta(days=1))
        try:
            table = client(symbol, interval, begin, after)
        except OSError as error:
            raise DataError(
                f"Yahoo cannot be reached ({one_line(error)}); check the network. What is in the folder stays."
            ) from None
        except Exception as error:  # whatever the client makes of an answer
            raise DataError(
                f"Yahoo gave no {interval} bars of {symbol} ({one_line(error)}); check the symbol."
            ) from None
        if len(table):
            absent = [name for name in _COLUMNS if name not in table.columns]
            if absent or not isinstance(table.index, pd.DatetimeIndex):
                what = ", ".join(absent) or "stamps"
                raise DataError(f"Yahoo's answer for {symbol} has no {what}; try a newer yfinance.")
            stamps = pd.to_datetime(table.index, utc=True)
            tables.append(pd.DataFrame({"datetime": stamps, **{name.lower(): table[name].array for name in _COLUMNS}}))
        begin = after
    none = pd.DataFrame({"datetime": pd.DatetimeIndex([], tz="UTC")})
    return _in_order(pd.concat(tables)) if tables else none


def _in_order(bars: pd.DataFrame) -> pd.DataFrame:
    """Return the bars sorted, of each stamp the last."""
    return bars.drop_duplicates("datetime", keep="last").sort_values("datetime", ignore_index=True)


def _kept(path: Path, interval: str) -> pd.DataFrame:
    """Return the bars of an earlier download; a file of other bars is a `DataError`."""
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not readable Parquet ({one_line(error)}); move it away.") from None
    found = (table.schema.metadata or {}).get(_INTERVAL, b"").decode()
    if found != interval:
        what = f"holds bars of {found}" if found else "is not of this command"
        raise DataError(f"{path} {what}, and bars of {interval} are asked for; choose another folder.")
    return table.to_pandas()


def _check_splits(old: pd.DataFrame, new: pd.DataFrame, symbol: str, path: Path) -> None:
    """Raise `DataError` where a bar of both has another price now: adjusted for a split in between."""
    both = old.merge(new, on="datetime", suffixes=("_old", "_new"))
    ratio = (both["close_new"] / both["close_old"]).to_numpy(dtype=float)
    moved = np.isfinite(ratio) & (np.abs(ratio - 1) > 0.01)
    if moved.any():
        at = int(np.argmax(moved))
        raise DataError(
            f"{symbol}: the bar of {both['datetime'].iloc[at]} has {ratio[at]:.4g} times the price that {path} has, so "
            "Yahoo has adjusted its prices since; move that file away and download anew."
        )
