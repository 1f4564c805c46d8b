"""The words of ``rlwb data download``."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.market.download.server import Archive, serve
from tests.market.download.test_binance import add, klines
from tests.test_cli import call


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as running:
        add(running, "BTCUSDT", "2024-02", klines(dt.date(2024, 2, 1), 29, 100.0))
        add(running, "BTCUSDT", "2024-03-01", klines(dt.date(2024, 3, 1), 1, 100.0))
        yield running


def test_binance_says_what_came_what_was_there_and_what_lacks(
    server: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "btc"
    words = ["data", "download", "binance", "BTCUSDT", "--interval", "1h", "--base-url", server.url, "--out", str(out)]
    code, told, _ = call(capsys, *words, "--from", "2024-02", "--to", "2024-03-02")
    assert code == 0
    assert told.splitlines()[1:] == [
        "BTCUSDT 2024-03: 1 of 2 days are not in the archive (2024-03-02)",
        f"{out}: 2 files fetched, 0 there already, 1 month without some days",
    ]
    code, told, _ = call(capsys, *words, "--from", "2024-02", "--to", "2024-03-01")
    assert (code, told.splitlines()[-1]) == (0, f"{out}: 0 files fetched, 2 there already")
    assert call(capsys, "data", "info", str(out))[1].startswith("720 bars of 1 instrument on 30 days")


def test_an_unreachable_archive_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["data", "download", "binance", "BTCUSDT", "--from", "2024-01", "--to", "2024-01", "--out", str(tmp_path)]
    code, told, complaint = call(capsys, *words, "--base-url", "http://127.0.0.1:9")
    assert (code, told, complaint.count("\n")) == (2, "", 1)
    assert "127.0.0.1:9 cannot be reached (Connection refused); check the network" in complaint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("binance", "BTCUSDT", "--from", "2024-01", "--to", "2024-01", "--interval", "1min"), "did you mean 1m?"),
        (("binance", "BTCUSDT", "--to", "2024-01"), "--from"),
        (("yahoo", "AAPL", "--from", "01/02/2026"), "--from is '01/02/2026', which is no date; write YYYY-MM-DD."),
        (("yahoo", "AAPL", "--from", "2020-01-01"), "Yahoo keeps bars of 5m for 60 days"),
    ],
)
def test_wrong_words_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, complaint = call(capsys, "data", "download", *words, "--out", str(tmp_path))
    assert code == 2
    assert message in complaint


def test_without_yfinance_the_way_to_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yfinance", None)
    code, _, complaint = call(capsys, "data", "download", "yahoo", "AAPL", "--out", str(tmp_path))
    assert code == 2
    assert "pip install 'rlwb[yahoo]'" in complaint
