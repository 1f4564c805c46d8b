"""Yahoo's bars through a client whose answers were written down."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, load_sessions
from rlwb.market.download.yahoo import download_yahoo, yahoo_client

NOW = dt.datetime(2026, 3, 11, 18, 2, 30, tzinfo=dt.UTC)  # 14:02:30 in New York, a Wednesday in summer time


def answer(first: dt.date, after: dt.date, minutes: int, price: float = 50.0) -> pd.DataFrame:
    """Return what yfinance makes of Yahoo's answer: regular hours of weekdays until `NOW`, stamped in New York."""
    days = [day for day in pd.date_range(first, after, inclusive="left") if day.dayofweek < 5]
    stamps = pd.DatetimeIndex(
        [
            day + pd.Timedelta(hours=9, minutes=30 + minutes * number)
            for day in days
            for number in range(390 // minutes)
        ],
        name="Datetime",
    ).tz_localize("America/New_York")
    stamps = stamps[stamps <= pd.Timestamp(NOW)]
    prices = dict.fromkeys(("Open", "High", "Low", "Close", "Adj Close"), price)
    return pd.DataFrame({**prices, "Volume": 1000}, index=stamps)


class Client:
    """Answers as recorded, and remembers what it was asked."""

    def __init__(self, price: float = 50.0) -> None:
        self.asked: list[tuple[str, str, dt.date, dt.date]] = []
        self.price = price

    def __call__(self, symbol: str, interval: str, first: dt.date, after: dt.date) -> pd.DataFrame:
        self.asked.append((symbol, interval, first, after))
        return answer(first, after, int(pd.Timedelta(interval).total_seconds()) // 60, self.price)


def get(directory: Path, interval: str = "5m", *, client: Any = None, now: dt.datetime = NOW, **settings: Any) -> Any:
    return download_yahoo(["AAPL"], interval, directory, client=client or Client(), now=now, **settings)


def test_bars_become_a_folder_that_can_be_loaded_across_the_change_of_clocks(tmp_path: Path) -> None:
    lines: list[str] = []
    counts = get(tmp_path, start=dt.date(2026, 3, 5), echo=lines.append)
    assert counts == {"AAPL": 4 * 78 + 54}
    assert lines == ["AAPL: 366 bars, 366 in the file, 1 unfinished left out"]
    sessions = load_sessions(tmp_path, Calendar.preset("us", tick_minutes=5, infer_early_close_minutes=0))
    assert [str(date) for date in sessions.dates] == [f"2026-03-{day:02d}" for day in (5, 6, 9, 10, 11)]
    assert not sessions.report.problems()
    close = sessions.fields["close"]
    assert (close[:4] == 50.0).all()  # 09:30 is the first tick before and after 8 March
    assert (close[4, :54] == 50.0).all()
    assert pd.isna(close[4, 54:]).all()  # 14:00 to 14:05 is not over


def test_minutes_are_asked_for_a_week_at_a_time(tmp_path: Path) -> None:
    client = Client()
    get(tmp_path, "1m", client=client)
    spans = [(first, after) for _, _, first, after in client.asked]
    assert spans[0][0] == dt.date(2026, 2, 10)
    assert spans[-1][1] == dt.date(2026, 3, 12)
    assert all((after - first).days <= 7 for first, after in spans)
    assert [after for _, after in spans[:-1]] == [first for first, _ in spans[1:]]


def test_a_week_without_bars_in_between_is_no_fault(tmp_path: Path) -> None:
    def client(symbol: str, interval: str, first: dt.date, after: dt.date) -> pd.DataFrame:
        return pd.DataFrame() if first == dt.date(2026, 2, 17) else answer(first, after, 1)

    assert get(tmp_path, "1m", client=client)["AAPL"] > 5000


def test_what_is_there_stays_when_yahoo_has_forgotten_it(tmp_path: Path) -> None:
    get(tmp_path, start=dt.date(2026, 3, 2), end=dt.date(2026, 3, 4))
    counts = get(tmp_path, start=dt.date(2026, 3, 4), end=dt.date(2026, 3, 6))
    assert counts == {"AAPL": 5 * 78}
    stamps = pd.read_parquet(tmp_path / "AAPL.parquet")["datetime"]
    assert stamps.is_monotonic_increasing
    assert stamps.is_unique


def test_a_split_since_the_last_time_is_refused(tmp_path: Path) -> None:
    get(tmp_path, start=dt.date(2026, 3, 2), end=dt.date(2026, 3, 4))
    before = (tmp_path / "AAPL.parquet").read_bytes()
    with pytest.raises(DataError, match=r"AAPL: the bar of 2026-03-04 14:30:00\+00:00 has 0.5 times the price that "):
        get(tmp_path, start=dt.date(2026, 3, 4), client=Client(25.0))
    assert (tmp_path / "AAPL.parquet").read_bytes() == before


def test_bars_of_two_lengths_are_not_mixed(tmp_path: Path) -> None:
    get(tmp_path, start=dt.date(2026, 3, 10))
    client = Client()
    with pytest.raises(
        DataError, match=r"AAPL\.parquet holds bars of 5m, and bars of 15m are asked for; choose another"
    ):
        get(tmp_path, "15m", client=client)
    pd.DataFrame({"close": [1.0]}).to_parquet(tmp_path / "AAPL.parquet")
    with pytest.raises(DataError, match=r"AAPL\.parquet is not of this command, and bars of 5m are asked for"):
        get(tmp_path, client=client)
    (tmp_path / "AAPL.parquet").write_bytes(b"half a file")
    with pytest.raises(DataError, match=r"AAPL\.parquet is not readable Parquet"):
        get(tmp_path, client=client)
    assert client.asked == []


@pytest.mark.parametrize(
    ("interval", "start", "message"),
    [
        ("1m", dt.date(2026, 1, 5), r"keeps bars of 1m for 30 days; begin on 2026-02-10, or choose the interval 1h"),
        ("1m", dt.date(2026, 2, 2), r"begin on 2026-02-10, or choose the interval 2m"),
        ("5m", dt.date(2025, 12, 1), r"keeps bars of 5m for 60 days; begin on 2026-01-11, or choose the interval 1h"),
        ("1h", dt.date(2020, 1, 1), r"keeps bars of 1h for 730 days; begin on 2024-03-12\."),
        ("5m", dt.date(2026, 4, 1), r"from 2026-04-01 is after to 2026-03-11"),
        ("5min", None, r"interval is '5min'.*did you mean 5m\?"),
        ("1d", None, r"interval is '1d'"),
    ],
)
def test_what_yahoo_does_not_keep_is_refused_before_any_request(
    tmp_path: Path, interval: str, start: dt.date | None, message: str
) -> None:
    client = Client()
    with pytest.raises(ConfigError, match=message):
        get(tmp_path, interval, start=start, client=client)
    assert client.asked == []


@pytest.mark.parametrize("symbol", ["", "../AAPL", ".hidden", "A B", "A/B"])
def test_a_symbol_that_cannot_be_a_file_is_refused(tmp_path: Path, symbol: str) -> None:
    with pytest.raises(ConfigError, match="is no symbol of Yahoo's"):
        download_yahoo([symbol], "5m", tmp_path, client=Client(), now=NOW)


def failing(error: Exception) -> Any:
    def client(*_: Any) -> pd.DataFrame:
        raise error

    return client


@pytest.mark.parametrize(
    ("client", "message"),
    [
        (failing(ConnectionError("curl: (6) Could not resolve host")), r"Yahoo cannot be reached \(curl: \(6\) Could"),
        (failing(ValueError("$XXX: possibly delisted")), r"no 5m bars of AAPL \(\$XXX: possibly delisted\); check the"),
        (lambda *_: pd.DataFrame(), r"no 5m bars of AAPL from 2026-01-11 to 2026-03-11; check symbol and dates"),
        (lambda *_: answer(dt.date(2026, 3, 5), dt.date(2026, 3, 6), 5).drop(columns="Low"), "has no Low"),
    ],
)
def test_what_goes_wrong_is_one_sentence(tmp_path: Path, client: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        get(tmp_path, client=client)
    assert list(tmp_path.iterdir()) == []


def test_without_the_client_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yfinance", None)
    with pytest.raises(ConfigError, match=r"yfinance, which is not installed; pip install 'rlwb\[yahoo\]' brings it"):
        yahoo_client()
