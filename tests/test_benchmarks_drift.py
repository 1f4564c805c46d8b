"""The command that measures the drift test, on its short way: its made markets, its index and its table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import drift
from rlwb.market import SyntheticSettings, synthetic_sessions


def test_the_quick_way_counts_alarms_of_every_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    changes = (("none", "shift", 0.0, "all"), ("shift 1.0", "shift", 1.0, "all"))
    monkeypatch.setattr(drift, "CHANGES", changes)
    monkeypatch.setattr(drift, "measured", lambda tasks, jobs: map(drift._run, tasks))
    monkeypatch.setattr(drift, "YEAR", 21)
    words = ["drift", "--quick", "--markets", "independent days", "us_5min", "--data", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    drift.main()
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert {row["market"] for row in rows} == {"independent days"}
    assert len(rows) == 2 * 2 * len(changes)  # two trainings, two numbers of instruments
    for row in rows:
        spans = ["1", "5", "20", *(["21"] if row["change"] == "none" else [])]
        assert list(row["drift"]) == spans
        assert list(row["psi"]) == spans[:3]
        assert all(0 <= number <= row["repetitions"] == 2 for test in ("drift", "psi") for number in row[test].values())
    found = {row["change"]: row["drift"]["20"] for row in rows if row["instruments"] == 50}
    assert found == {"none": 0, "shift 1.0": 2}
    printed = capsys.readouterr().out
    assert "us_5min is left out" in printed
    assert "| independent days | 144 | 50 | none | all | 0.0 |" in printed


def test_the_parts_of_a_made_market_have_the_variances_that_it_says() -> None:
    law = drift.Law(repeat=0.8, day=0.2, own=0.4, instrument=0.0, tick=0.4)
    panel = drift.made(law, 4000, 6, np.random.default_rng(0))
    session = panel.mean(axis=2)
    day = session.mean(axis=1)
    assert panel.var() == pytest.approx(1.0, rel=0.05)
    assert day.var() == pytest.approx(0.2 + (0.4 + 0.4 / 8) / 6, rel=0.15)
    shared = 0.2 * 0.8 / (0.2 + (0.4 + 0.4 / 8) / 6)
    assert np.corrcoef(day[1:, 0], day[:-1, 0])[0, 1] == pytest.approx(shared, abs=0.06)


def test_the_index_of_a_shift_by_hand() -> None:
    """Nine of ten training bars lie below the last decile's edge; all live ones above it."""
    training = np.arange(100.0)[:, None]
    found = drift.Index(training)(np.full((50, 1), 1000.0))
    assert found == pytest.approx(9 * (1e-4 - 0.1) * np.log(1e-4 / 0.1) + 0.9 * np.log(10))
    assert drift.Index(training)(training) == 0


def test_days_of_a_panel_are_put_into_another_sequence_and_normalised_by_the_first() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=12, tick_minutes=20))
    order = np.array([11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0])
    panel = drift.panel_of(sessions, 6, order)
    again = drift.panel_of(sessions, 6, np.roll(order, 6))
    assert panel.shape == (12, 2, 12, 5)
    assert panel[:6].mean(axis=(0, 1, 2)) == pytest.approx(0, abs=1e-5)
    assert np.abs(panel[6:].mean(axis=(0, 1, 2))).max() > 0.01
    assert np.ptp(panel[0] - again[6], axis=(0, 1)).max() > 0  # the same day, by other statistics
    order = np.argsort(panel[0, :, :, 0].ravel())
    assert (np.argsort(again[6, :, :, 0].ravel()) == order).all()


def test_the_table_of_the_page_is_what_was_measured() -> None:
    root = Path(__file__).resolve().parents[1]
    rows = json.loads((root / "benchmarks" / "results" / "drift.json").read_text(encoding="utf-8"))["rows"]
    page = (root / "docs" / "serving" / "monitoring.md").read_text(encoding="utf-8").splitlines()
    shown = [line for line in page if line.startswith(tuple(f"| {market} |" for market in drift.MARKETS))]
    assert len(shown) > 15
    assert set(shown) <= set(drift.markdown(rows).splitlines())
