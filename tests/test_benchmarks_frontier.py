"""The command that measures learners with a dial against a known frontier, on its short way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import frontier, frontier_markets


def test_the_quick_way_writes_a_row_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    other = {"market": "real", "method": "twap", "seed": None, "aversion": None}
    out.write_text(json.dumps([other]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["frontier", "--quick", "--markets", "almgren_chriss", "--out", str(out)])
    frontier.main()
    rows = json.loads(out.read_text(encoding="utf-8"))
    methods = [row["method"] for row in rows if row["market"] == "almgren_chriss"]
    assert methods == ["optimum"] * 9 + ["pathwise"] * 9 + ["ppo"] * 9
    assert other in rows, "rows of other markets stay"
    for row in rows[:27]:
        assert {"market", "aversion", "method", "mean", "sd", "cvar", "seed", "distance", "machine"} <= row.keys()
    assert "| almgren_chriss | pathwise |" in capsys.readouterr().out


def test_shares_are_the_worst_setting_and_the_area_beside_the_optimum() -> None:
    best = frontier.optimum("almgren_chriss")
    ours = [{**row, "method": "pathwise", "seed": 0, "seconds": 1.0} for row in best]
    ours[3] |= {"distance": 0.02, "gap": 0.01, "mean": -1e3}
    (found,) = frontier.shares([*best, *ours])
    assert (found["distance"], found["gap"]) == (0.02, 0.01)
    assert 0.8 < found["hypervolume"] < 1.0
    assert frontier.shares([*best, *[{**row, "seed": 0, "method": "ppo", "seconds": 1.0} for row in best]])[0][
        "hypervolume"
    ] == pytest.approx(1.0)


def test_rows_of_a_replayed_market(tmp_path: Path) -> None:
    small = {**frontier_markets.QUICK, "market.days": "30", "market.instruments": "4"}
    name = "synthetic" + frontier_markets.COSTS
    rows = frontier_markets.replayed(name, tmp_path, tmp_path, small)
    found = {row["method"]: row for row in rows}
    dial = [row for name, row in found.items() if " at " in name]
    assert [row["aversion"] for row in dial] == [0.0, 0.001, 0.003, 0.01]
    assert found["almgren_chriss-risk_aversion=0.01"]["aversion"] == 1e-6
    assert found["twap"]["aversion"] is None
    assert found["twap"]["mean"] < 0 < found["twap"]["sd"], "it pays its costs"
    assert found["hindsight"]["distance"] is None
    assert found["hindsight"]["mean"] > max(row["mean"] for name, row in found.items() if name != "hindsight")
    assert (tmp_path / "frontier-synthetic-with-costs.png").is_file()
    assert frontier_markets.markdown(rows, name).count("\n") == 1 + len(rows)


def test_the_distance_is_a_share_of_the_span_of_means() -> None:
    figures = {f"arrival_{name}_{end}": 0.0 for name in ("mean", "std", "cvar") for end in ("lo", "hi")}
    points = {"a": (0.0, 1.0, 0.0), "b": (4.0, 3.0, 0.0), "c": (1.0, 2.0, 1.0), "hindsight": (9.0, 9.0, np.nan)}
    table = pd.DataFrame(
        [
            {"policy": name, "aversion": np.nan, "arrival_mean": mean, "arrival_std": std, "below_frontier": below}
            | {"arrival_cvar": 0.0, **figures}
            for name, (mean, std, below) in points.items()
        ]
    )
    rows = frontier_markets.rows_of("real", 2, table, {"b": 0.1})
    assert [row["distance"] for row in rows] == [0.0, 0.0, 0.25, None]
    assert [row["aversion"] for row in rows] == [None, 0.1, None, None]
    assert {row["seed"] for row in rows} == {2}


def test_a_market_without_bars_is_left_out_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert list(frontier_markets.names("us_equity_5min_2025", tmp_path)) == []
    assert "us_equity_5min_2025 is left out" in capsys.readouterr().out
    (tmp_path / "us_equity_5min_2025").mkdir()
    assert len(list(frontier_markets.names("us_equity_5min_2025", tmp_path))) == 2
