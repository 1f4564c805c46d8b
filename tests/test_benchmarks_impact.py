"""The command that plants impact and finds it again, on its short way, and the walk of a made book."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import impact


def test_the_quick_way_counts_what_was_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    monkeypatch.setattr(impact, "REPETITIONS", 2)
    monkeypatch.setattr(sys, "argv", ["impact", "--quick", "--jobs", "1", "--out", str(out)])
    impact.main()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert {(row["shape"], row["decay"], row["transient"]) for row in found["planted"]} == {
        ("linear", 0.0, ""),
        ("square_root", 0.0, ""),
        ("linear", impact.DECAY_MINUTES, ""),
        ("square_root", 0.0, "power"),
        ("linear", 0.0, "exponential"),
    }
    for row in found["planted"]:
        assert 0 <= row["recovered"] <= min(row["held"], row["right_shape"]) <= row["repetitions"] == 2
    assert found["book"] == []
    assert "| 0 | linear | 200 | 40 | half_spread_bps | 3 |" in capsys.readouterr().out


def test_only_the_planted_shape_with_an_interval_that_holds_is_recovered() -> None:
    run = {"shape": "linear", "orders": 5, "days": 1, "decay": 0.0, "transient": "", "parameter": "p", "planted": 1.0}
    run["estimate"] = 1.0
    rows = [
        {**run, "seed": seed, "lo": 0.0, "hi": 2.0, "right_shape": right, "held": held, "found": True}
        for seed, (right, held) in enumerate([(True, True), (False, True), (True, False)])
    ]
    (cell,) = impact.summary(rows)
    assert (cell["recovered"], cell["held"], cell["right_shape"], cell["repetitions"]) == (1, 2, 2, 3)
    assert cell["width"] == 2.0


def test_a_book_whose_cost_is_linear_has_exponent_one(tmp_path: Path) -> None:
    """With q shares at each of many even levels, a walk costs half of the distance that it goes."""
    stamps = pd.date_range("2024-01-02 10:00", periods=36_000, freq="s")
    levels = np.arange(1, 11)
    prices = {f"{side}_price_{n}": 100.0 + sign * 0.01 * n for side, sign in (("bid", -1), ("ask", 1)) for n in levels}
    sizes = {f"{side}_size_{n}": 1.0 for side in ("bid", "ask") for n in levels}
    book = pd.DataFrame({**prices, **sizes}, index=range(len(stamps))).assign(datetime=stamps)
    book.to_parquet(tmp_path / "book_1s_AAA.parquet")
    pd.DataFrame({"datetime": stamps[::60], "volume": 100.0}).to_parquet(tmp_path / "bars_1min_AAA.parquet")
    rows = impact.book_rows(tmp_path, np.random.default_rng(0), resamples=200)
    assert [(row["instrument"], row["side"], row["shape"]) for row in rows] == [
        ("AAA", "buy", "linear"),
        ("AAA", "sell", "linear"),
    ]
    for row in rows:
        assert row["sizes"] == [1, 1, 2, 4, 8]
        assert row["mean_bps"] == pytest.approx([0.0, 0.0, 0.5, 1.5, 3.5])
        assert row["slope_bps"][0] == pytest.approx(50.0)
        assert row["r2"]["linear"] == pytest.approx(1.0)
