"""The command that measures learners with a dial against a known frontier, on its short way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import frontier
from rlwb.evaluation import PolicyResult


def test_the_quick_way_writes_a_row_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    other = {"market": "real", "method": "twap", "seed": None, "aversion": None}
    out.write_text(json.dumps([other]), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["frontier", "--quick", "--out", str(out)])
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


def test_points_of_any_results() -> None:
    table = pd.DataFrame(
        {
            "order_id": list("abcd"),
            "instrument": "A",
            "date": pd.Timestamp("2024-01-02"),
            "pa": [0.0, 0.0, 0.0, 0.0],
            "pa_net": [1.0, -3.0, 2.0, np.nan],
            "ffr": 1.0,
        }
    )
    (row,) = frontier.points("real", [PolicyResult("ours", "checkpoint", table)], aversions={"ours": 0.1}, seed=2)
    assert row["mean"] == 0.0
    assert row["sd"] == pytest.approx(np.std([1.0, -3.0, 2.0]))
    assert row["cvar"] == -3.0
    assert (row["market"], row["aversion"], row["seed"], row["distance"]) == ("real", 0.1, 2, None)
