"""The words of ``rlwb data``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlwb.cli_data import reader_options
from rlwb.errors import ConfigError
from rlwb.market import Calendar
from tests.market.helpers import random_bars
from tests.test_cli import call


def test_info_tells_what_a_source_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bars = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["000001", "NA"], ["2024-01-03"])
    bars.assign(note="x").to_csv(tmp_path / "bars.csv", index=False)
    code, out, _ = call(capsys, "data", "info", str(tmp_path / "bars.csv"), "--json", str(tmp_path / "info.json"))
    assert code == 0
    assert out.startswith("16 bars of 2 instruments on 1 days\nstamps   2024-01-03T10:00:00 to 2024-01-03T15:00:00\n")
    assert "1 columns: not part of the schema, first: note" in out
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
