"""The command that measures learners against a known optimum, on its short way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import certificate


def test_the_quick_way_writes_a_row_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    monkeypatch.setattr(sys, "argv", ["certificate", "--quick", "--out", str(out)])
    certificate.main()
    rows = json.loads(out.read_text(encoding="utf-8"))
    runs = [(row["market"], row["method"], row["seed"]) for row in rows]
    assert runs == [(market, method, 0) for market in ("tree", "tree, penalty 4") for method in certificate.METHODS]
    for row in rows:
        assert {"value", "optimum", "share", "seconds", "machine", "date"} <= row.keys()
        assert row["share"] == pytest.approx((row["value"] - row["twap"]) / (row["optimum"] - row["twap"]))
    assert "| tree, penalty 4 | ppo | 2.254 | -0.500 |" in capsys.readouterr().out


def test_the_table_shows_median_and_worst() -> None:
    run = {"market": "m", "method": "ppo", "optimum": 2.0, "twap": 0.0, "seconds": 3.0}
    table = certificate.markdown([{**run, "share": share} for share in (0.9, 0.99, 1.0)])
    assert table.splitlines()[2:] == ["| m | ppo | 2.000 | 0.000 | 99.0% | 90.0% | 3 | 3 |"]
