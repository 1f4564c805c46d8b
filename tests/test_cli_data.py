"""The words of ``rlwb data``."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlwb.cli_data import calendar_of, reader_options
from rlwb.errors import ConfigError
from rlwb.market import Calendar
from tests.market.download.server import Archive, serve
from tests.market.download.test_binance import add, klines
from tests.market.helpers import random_bars
from tests.test_cli import call


def test_info_tells_what_a_source_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bars = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["000001", "NA"], ["2024-01-03"])
    bars.assign(note="x").to_csv(tmp_path / "bars.csv", index=False)
    code, out, _ = call(capsys, "data", "info", str(tmp_path / "bars.csv"), "--json", str(tmp_path / "info.json"))
    assert code == 0
    assert out.startswith("16 bars of 2 instruments on 1 day\nstamps   2024-01-03T10:00:00 to 2024-01-03T15:00:00\n")
    assert "1 column: not part of the schema, first: note" in out
    found = json.loads((tmp_path / "info.json").read_text())
    assert {name: found[name] for name in ("kind", "files", "bars")} == {"kind": "table", "files": 1, "bars": 16}
    assert found["size"] == (tmp_path / "bars.csv").stat().st_size


def test_info_of_nothing_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "data", "info", str(tmp_path / "none"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "there is no file or folder" in err


def test_options_of_a_reader_keep_text_that_looks_like_a_number() -> None:
    words = ["max_megabytes=64", "zone=UTC", "id=0010", "flag=true", "none=null", "level=-3"]
    wanted = {"max_megabytes": 64, "zone": "UTC", "id": "0010", "flag": True, "none": None, "level": -3}
    assert reader_options(words) == wanted
    with pytest.raises(ConfigError, match="NAME=VALUE"):
        reader_options(["zone"])


def test_import_and_info_of_a_data_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bars = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["000001", "NA"], ["2024-01-03"])
    bars.rename(columns={"close": "last"}).to_csv(tmp_path / "bars.csv", index=False)
    out = tmp_path / "set"
    words = ("data", "import", str(tmp_path / "bars.csv"), "--out", str(out), "--column", "last=close")
    code, _, err = call(capsys, *words)
    assert (code, "which needs a calendar" in err) == (2, True)
    clock = ("--calendar", "cn", "--tick-minutes", "30", "--label", "end")
    code, text, _ = call(capsys, *words, *clock, "--json", str(tmp_path / "done.json"))
    assert code == 0
    assert text.startswith(f"16 rows of 1 source read, 16 bars added to {out}, ")
    assert json.loads((tmp_path / "done.json").read_text())["bars"] == 16
    code, text, _ = call(capsys, *words)
    assert (code, "imported before and unchanged: 1 source, first: bars.csv" in text) == (0, True)
    code, text, _ = call(capsys, "data", "info", str(out), "--json", str(tmp_path / "info.json"))
    assert "16 bars of 2 instruments on 1 day\n" in text
    assert "calendar 09:30-11:30, 13:00-15:00 Asia/Shanghai, bars of 30 min named by their end\n" in text
    assert "imported bars.csv: 16 rows" in text
    assert json.loads((tmp_path / "info.json").read_text())["dataset"]["sources"][0]["rows"] == 16


def test_a_calendar_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "clock.yaml").write_text("preset: null\nsegments: [['10:00', '11:00']]\nclosed: [2024-01-01]\n")
    found = calendar_of(str(tmp_path / "clock.yaml"), 5.0, None)
    assert found == Calendar((("10:00", "11:00"),), tick_minutes=5, closed=("2024-01-01",))
    assert calendar_of(None, None, None) is None
    with pytest.raises(ConfigError, match="--tick-minutes says nothing without --calendar"):
        calendar_of(None, 5.0, None)
    with pytest.raises(ConfigError, match="--calendar"):
        calendar_of("us", -1.0, None)


def test_check_says_sound_or_not_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bars = random_bars(Calendar.preset("cn", tick_minutes=5, label="end"), ["000001"], ["2024-01-03"])
    bars["volume"] += 1
    bars.to_csv(tmp_path / "good.csv", index=False)
    clock = ("--calendar", "cn", "--tick-minutes", "5", "--label", "end")
    code, out, _ = call(capsys, "data", "check", str(tmp_path / "good.csv"), *clock)
    assert (code, out.splitlines()[-1]) == (0, "sound")
    bars.loc[7, "close"] = 0.0
    bars.to_csv(tmp_path / "bad.csv", index=False)
    words = ("data", "check", str(tmp_path / "bad.csv"), *clock)
    code, out, _ = call(
        capsys, *words, "--json", str(tmp_path / "bad.json"), "--html", str(tmp_path / "bad.html"), "--limit", "5"
    )
    assert (code, out.splitlines()[-1]) == (3, "not sound")
    assert "      000001 2024-01-03 10:10:00 (bad.csv row 8): close\n" in out
    found = json.loads((tmp_path / "bad.json").read_text())
    assert found["sound"] is False
    (finding,) = found["findings"]["price_zero"]["listed"]
    assert {name: finding[name] for name in ("instrument", "date", "file", "row")} == {
        "instrument": "000001",
        "date": "2024-01-03",
        "file": "bad.csv",
        "row": 8,
    }
    assert (tmp_path / "bad.html").read_text().startswith("<!doctype html>")
    code, _, err = call(capsys, "data", "check", str(tmp_path / "none"))
    assert (code, err.count("\n")) == (2, 1)


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
