"""Binance's archive, as a server on loopback that holds a few of its files."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.market import Calendar, load_sessions
from rlwb.market.download import BinanceArchive, Fetcher, download_binance
from rlwb.market.download.binance import BASE_URL
from tests.market.download.server import Archive, serve

SPOT = "/data/spot/{span}/klines/{symbol}/{interval}/{symbol}-{interval}-{period}.zip"


def klines(first: dt.date, days: int, price: float, minutes: int = 60) -> bytes:
    """Return the ZIP of some days of klines, in milliseconds, as the archive wrote them until 2024."""
    lines = []
    for number in range(days * 24 * 60 // minutes):
        opened = dt.datetime.combine(first, dt.time(), dt.UTC) + dt.timedelta(minutes=minutes * number)
        stamp = int(opened.timestamp() * 1000)
        lines.append(
            f"{stamp},{price},{price},{price},{price},2.5,{stamp + minutes * 60_000 - 1},{2.5 * price},3,1,1,0"
        )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("klines.csv", "\n".join(lines) + "\n")
    return packed.getvalue()


def add(server: Archive, symbol: str, period: str, content: bytes, *, interval: str = "1h", path: str = SPOT) -> str:
    """Put a file and its checksum on the server; return its path."""
    span = "monthly" if len(period) == 7 else "daily"
    where = path.format(span=span, symbol=symbol, interval=interval, period=period)
    server.files[where] = content
    server.files[f"{where}.CHECKSUM"] = f"{hashlib.sha256(content).hexdigest()}  {where.rpartition('/')[2]}\n".encode()
    return where


@pytest.fixture
def server() -> Iterator[Archive]:
    with serve() as running:
        add(running, "BTCUSDT", "2024-01", klines(dt.date(2024, 1, 1), 31, 100.0))
        for day in (1, 2, 4):
            add(running, "BTCUSDT", f"2024-02-{day:02d}", klines(dt.date(2024, 2, day), 1, 200.0))
        yield running


def get(server: Archive, directory: Path, *symbols: str, **settings: Any) -> Any:
    wanted = {"interval": "1h", "start": "2024-01", "end": "2024-02-04", "base_url": server.url, **settings}
    archive = BinanceArchive(symbols or ("BTCUSDT",), **wanted)
    return download_binance(archive, directory, fetcher=Fetcher(timeout=5, tries=3, pause=0))


def test_whole_months_come_by_the_month_the_rest_by_the_day_and_what_lacks_is_told(
    server: Archive, tmp_path: Path
) -> None:
    outcome = get(server, tmp_path)
    assert outcome.fetched == [
        f"BTCUSDT-1h-{period}.zip" for period in ("2024-01", *(f"2024-02-0{d}" for d in (1, 2, 4)))
    ]
    assert outcome.missing == ["BTCUSDT 2024-02: 1 of 4 days are not in the archive (2024-02-03)"]
    sessions = load_sessions(tmp_path, Calendar.preset("crypto", tick_minutes=60))
    assert [str(date) for date in sessions.dates[-4:]] == ["2024-01-31", "2024-02-01", "2024-02-02", "2024-02-04"]
    assert len(sessions) == 34
    np.testing.assert_array_equal(sessions.fields["close"][[0, -1]], [[100.0] * 24, [200.0] * 24])
    assert not sessions.report.problems()


def test_a_second_run_asks_for_nothing_that_is_there(server: Archive, tmp_path: Path) -> None:
    get(server, tmp_path, end="2024-02-02")
    server.seen.clear()
    outcome = get(server, tmp_path, end="2024-02-02")
    assert outcome.fetched == []
    assert len(outcome.present) == 3
    assert server.seen == []


def test_a_damaged_file_is_fetched_again(server: Archive, tmp_path: Path) -> None:
    get(server, tmp_path, end="2024-01")
    target = tmp_path / "BTCUSDT-1h-2024-01.zip"
    whole = target.read_bytes()
    target.write_bytes(whole[:-100])
    assert get(server, tmp_path, end="2024-01").fetched == [target.name]
    assert target.read_bytes() == whole


def test_a_file_without_its_checksum_is_checked_and_kept(server: Archive, tmp_path: Path) -> None:
    get(server, tmp_path, end="2024-01")
    (tmp_path / "BTCUSDT-1h-2024-01.zip.CHECKSUM").unlink()
    server.seen.clear()
    assert get(server, tmp_path, end="2024-01").present == ["BTCUSDT-1h-2024-01.zip"]
    assert [path.rpartition("/")[2] for path, _ in server.seen] == ["BTCUSDT-1h-2024-01.zip.CHECKSUM"]


def test_a_cut_is_taken_up_and_a_failing_server_outlived(server: Archive, tmp_path: Path) -> None:
    path = SPOT.format(span="monthly", symbol="BTCUSDT", interval="1h", period="2024-01")
    server.faults = {path: ["cut 1000"], f"{path}.CHECKSUM": [500]}
    get(server, tmp_path, end="2024-01")
    assert (tmp_path / "BTCUSDT-1h-2024-01.zip").read_bytes() == server.files[path]
    assert len(server.asked("2024-01.zip")) == 2
    assert len(server.asked("2024-01.zip.CHECKSUM")) == 2


def test_a_wrong_checksum_is_refused_and_nothing_kept(server: Archive, tmp_path: Path) -> None:
    path = SPOT.format(span="monthly", symbol="BTCUSDT", interval="1h", period="2024-01")
    server.files[f"{path}.CHECKSUM"] = b"ab" * 32 + b"  BTCUSDT-1h-2024-01.zip\n"
    with pytest.raises(DataError, match=r"BTCUSDT-1h-2024-01.zip does not fit its checksum"):
        get(server, tmp_path)
    assert list(tmp_path.iterdir()) == []
    server.files[f"{path}.CHECKSUM"] = b"<html>"
    with pytest.raises(DataError, match=r"CHECKSUM holds no SHA-256; check that http://"):
        get(server, tmp_path)


def test_days_that_are_there_are_not_doubled_by_their_month(server: Archive, tmp_path: Path) -> None:
    get(server, tmp_path, start="2024-02-01", end="2024-02-02")
    for day in range(3, 30):
        add(server, "BTCUSDT", f"2024-02-{day:02d}", klines(dt.date(2024, 2, day), 1, 200.0))
    add(server, "BTCUSDT", "2024-02", klines(dt.date(2024, 2, 1), 29, 200.0))
    outcome = get(server, tmp_path, start="2024-02", end="2024-02")
    assert len(outcome.fetched) == 27
    assert len(outcome.present) == 2
    assert not load_sessions(tmp_path, Calendar.preset("crypto", tick_minutes=60)).report.problems()


def test_a_symbol_that_the_archive_does_not_know_is_refused(server: Archive, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no 1h klines of BTCUSTD \(spot\) from 2024-02-01 to 2024-02-04; check"):
        get(server, tmp_path, "BTCUSTD", start="2024-02-01")


def test_months_before_a_listing_are_told_one_by_one(server: Archive, tmp_path: Path) -> None:
    lines: list[str] = []
    archive = BinanceArchive(("btcusdt",), "1h", "2023-11", "2024-01", base_url=server.url)
    outcome = download_binance(archive, tmp_path, echo=lines.append)
    assert [line.partition(":")[0] for line in lines] == ["BTCUSDT 2023-11", "BTCUSDT 2023-12", "BTCUSDT 2024-01"]
    assert outcome.missing == lines[:2]
    assert lines[0].endswith("30 of 30 days are not in the archive (2023-11-01 to 2023-11-30)")


def test_futures_lie_elsewhere(server: Archive, tmp_path: Path) -> None:
    where = "/data/futures/um/{span}/klines/{symbol}/{interval}/{symbol}-{interval}-{period}.zip"
    add(server, "ETHUSDT", "2024-01", klines(dt.date(2024, 1, 1), 31, 10.0), path=where)
    assert get(server, tmp_path, "ETHUSDT", end="2024-01", market="um").fetched == ["ETHUSDT-1h-2024-01.zip"]


def test_addresses_are_those_of_the_archive() -> None:
    archive = BinanceArchive(("BTCUSDT",), "1m", "2024-01", "2024-01-02", market="cm")
    assert archive.url("BTCUSDT", "2024-01") == (
        f"{BASE_URL}/data/futures/cm/monthly/klines/BTCUSDT/1m/BTCUSDT-1m-2024-01.zip"
    )
    assert archive.url("BTCUSDT", "2024-01-02").endswith("/daily/klines/BTCUSDT/1m/BTCUSDT-1m-2024-01-02.zip")
    assert [len(days) for days in BinanceArchive(("A1",), "1m", "2023-12-30", "2024-02").months()] == [2, 31, 29]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"symbols": ("../x",)}, r"'\.\./X' is no symbol"),
        ({"symbols": ()}, "no symbol is named"),
        ({"interval": "1min"}, "did you mean 1m"),
        ({"interval": "1d"}, "interval is '1d', which is not among those that rlwb reads"),
        ({"market": "options"}, "choose one of spot, um, cm"),
        ({"base_url": "ftp://x"}, "neither https:// nor http://"),
        ({"start": "January"}, "from is 'January', which is no month or day"),
        ({"end": "2024-13"}, "to is '2024-13', which is no month or day"),
        ({"start": "2024-03"}, "from 2024-03 is after to 2024-02"),
    ],
)
def test_impossible_wishes_are_refused_before_any_request(settings: dict[str, Any], message: str) -> None:
    wanted = {"symbols": ("BTCUSDT",), "interval": "1m", "start": "2024-01", "end": "2024-02", **settings}
    with pytest.raises(ConfigError, match=message):
        BinanceArchive(**wanted)
