"""One market in the files of every reader, written without the readers' own code."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pandas as pd

from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions

_PRICES = ["open", "high", "low", "close"]
_FIELDS = [*_PRICES, "volume"]
#: Minutes of a bar of each frequency of the Qlib directory.
_MINUTES = {"1min": 1, "5min": 5, "day": 240}


def market(instruments: int, days: int, seed: int = 0) -> pd.DataFrame:
    """Return bars of one minute, 240 a day: instrument, datetime and five fields, prices in cents, whole volumes."""
    settings = SyntheticSettings(instruments=instruments, days=days, session="cn", tick_minutes=1, seed=seed)
    sessions = synthetic_sessions(settings)
    offsets = sessions.calendar.tick_start.astype("timedelta64[s]")
    stamps = (sessions.dates.astype("datetime64[s]")[:, None] + offsets[None]).ravel()
    names = np.repeat([f"SH{600000 + place}" for place in range(instruments)], len(stamps) // instruments)
    frame = pd.DataFrame({"instrument": names, "datetime": stamps.astype("datetime64[ns]")})
    for name in _PRICES:
        frame[name] = np.round(sessions.fields[name].ravel(), 2)
    frame["volume"] = np.round(sessions.fields["volume"].ravel())
    return frame


def write_csv(frame: pd.DataFrame, folder: Path) -> None:
    frame.to_csv(folder / "bars.csv", index=False)


def write_csv_gz(frame: pd.DataFrame, folder: Path) -> None:
    frame.to_csv(folder / "bars.csv.gz", index=False, compression={"method": "gzip", "compresslevel": 6})


def write_parquet(frame: pd.DataFrame, folder: Path) -> None:
    frame.to_parquet(folder / "bars.parquet", index=False)


def write_binance(frame: pd.DataFrame, folder: Path) -> None:
    """Write a ZIP of klines an instrument; the local times are taken for UTC."""
    for name, bars in frame.groupby("instrument"):
        opened = bars["datetime"].astype("int64") // 10**6
        table = pd.DataFrame({"open_time": opened}).join(bars[_FIELDS])
        table["close_time"], table["value"] = opened + 59_999, bars["close"] * bars["volume"]
        table = table.assign(count=1, taker=0.5, taker_value=0.5, ignore=0)
        _zip(folder / f"{name}-1m-2024-01.zip", f"{name}-1m-2024-01.csv", table)


def write_lean(frame: pd.DataFrame, folder: Path) -> None:
    """Write a ZIP of trades an instrument and day, prices in 1/10,000."""
    for (name, date), bars in frame.groupby(["instrument", frame["datetime"].dt.strftime("%Y%m%d")]):
        time = (bars["datetime"] - bars["datetime"].dt.normalize()) // pd.Timedelta("1ms")
        table = pd.DataFrame({"time": time})
        for price in _PRICES:
            table[price] = np.rint(bars[price] * 10_000).astype(np.int64)
        table["volume"] = bars["volume"].astype(np.int64)
        place = folder / "equity" / "usa" / "minute" / name.lower()
        _zip(place / f"{date}_trade.zip", f"{date}_{name.lower()}_minute_trade.csv", table)


def _zip(path: Path, name: str, table: pd.DataFrame) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, table.to_csv(index=False, header=False))


def write_lobster(frame: pd.DataFrame, folder: Path) -> None:
    """Write some 250 events a bar of each instrument on its first day, half of them executions, and the best quotes."""
    first = frame["datetime"].dt.normalize().iloc[0]
    for place, (name, bars) in enumerate(frame[frame["datetime"] < first + pd.Timedelta(days=1)].groupby("instrument")):
        rng = np.random.default_rng(place)
        count = 250 * len(bars)
        time = np.sort(rng.uniform(34_200, 57_600, count)).round(6)
        price = (rng.integers(10_000, 10_100, count) * 100).astype(np.int64)
        kind, size = rng.choice([1, 3, 4, 5], count), rng.integers(1, 500, count)
        messages = pd.DataFrame({"time": time, "type": kind, "order": 1, "size": size, "price": price, "side": 1})
        book = pd.DataFrame({"ask": price + 100, "ask_size": size, "bid": price - 100, "bid_size": size})
        stem = f"{name}_{first:%Y-%m-%d}_34200000_57600000"
        for table, what in ((messages, "message"), (book, "orderbook")):
            table.to_csv(folder / f"{stem}_{what}_1.csv", index=False, header=False)


def write_qlib_pickle(frame: pd.DataFrame, folder: Path) -> None:
    """Write a pickled table an instrument, float32, as the data set of OPD has them."""
    for name, bars in frame.groupby("instrument"):
        table = bars.set_index(["instrument", "datetime"])[_FIELDS].astype(np.float32)
        table.columns = [f"${field}0" for field in table.columns]
        table.to_pickle(folder / f"{name}.pkl.backtest")


def write_qlib(
    frame: pd.DataFrame, folder: Path, frequencies: tuple[str, ...] = ("1min",), holes: bool = False
) -> None:
    """Write a Qlib directory.

    With `holes`, single values and whole bars are missing, instruments begin and end on other days of the calendar,
    the list names a part of their time, and a factor stands beside the prices.
    """
    names = list(dict.fromkeys(frame["instrument"]))
    for place in ("calendars", "instruments"):
        (folder / place).mkdir(parents=True)
    days = frame["datetime"].dt.normalize().drop_duplicates().sort_values()
    spans = dict.fromkeys(names, (days.iloc[0], days.iloc[-1]))
    if holes:
        spans = {name: (days.iloc[number % 3], days.iloc[-1 - number % 2]) for number, name in enumerate(names)}
    # With a time of day: Qlib takes a date alone for its midnight, and would leave out that day's minutes.
    lines = [f"{name}\t{first:%Y-%m-%d}\t{last:%Y-%m-%d} 23:59:59\n" for name, (first, last) in spans.items()]
    (folder / "instruments" / "all.txt").write_text("".join(lines), encoding="utf-8")
    for freq in frequencies:
        bars = _aggregate(frame, _MINUTES[freq])
        steps = bars["datetime"].drop_duplicates().sort_values()
        form = "%Y-%m-%d" if freq == "day" else "%Y-%m-%d %H:%M:%S"
        (folder / "calendars" / f"{freq}.txt").write_text(
            "".join(f"{step:{form}}\n" for step in steps), encoding="utf-8"
        )
        for number, (name, own) in enumerate(bars.groupby("instrument")):
            _write_bins(own, folder / "features" / name.lower(), freq, number if holes else None)


def _write_bins(own: pd.DataFrame, folder: Path, freq: str, seed: int | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    values = own[_FIELDS].to_numpy(dtype="<f4")
    start = 0
    columns = dict(zip(_FIELDS, values.T, strict=True))
    if seed is not None:
        rng = np.random.default_rng(seed)
        start = min(seed, len(values) - 1)
        values = values[start : len(values) - seed % 3 or None].copy()
        values[rng.random(len(values)) < 0.05] = np.nan
        values[rng.random(values.shape) < 0.01] = np.nan
        columns = dict(zip(_FIELDS, values.T, strict=True))
        columns["factor"] = np.full(len(values), 1 + seed / 10, dtype="<f4")
    for field, column in columns.items():
        np.append(np.float32(start), column).astype("<f4").tofile(folder / f"{field}.{freq}.bin")


def _aggregate(frame: pd.DataFrame, minutes: int) -> pd.DataFrame:
    """Return bars of so many of the 240 minutes of a day."""
    if minutes == 1:
        return frame
    groups = np.arange(len(frame)) // minutes
    found = frame.groupby(groups).agg(
        instrument=("instrument", "first"),
        datetime=("datetime", "first"),
        open=("open", "first"),
        high=("high", "max"),
        low=("low", "min"),
        close=("close", "last"),
        volume=("volume", "sum"),
    )
    if minutes == 240:
        found["datetime"] = found["datetime"].dt.normalize()
    return found


#: Writers by the name of the format, with the options that its reader needs.
WRITERS = {
    "csv": (write_csv, {}),
    "csv.gz": (write_csv_gz, {}),
    "parquet": (write_parquet, {}),
    "qlib": (write_qlib, {}),
    "binance": (write_binance, {}),
    "lean": (write_lean, {}),
    "lobster": (write_lobster, {}),
    "qlib_pickle": (write_qlib_pickle, {"trust_pickle": True}),
}
