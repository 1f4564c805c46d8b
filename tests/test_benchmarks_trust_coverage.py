"""The coverage of intervals, in short: enough repetitions to see the failures, and that rlwb's interval has none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import trust_coverage
from benchmarks.trust_coverage import AUTOCORRELATIONS, Setting, crossed_setting, day_setting, measure, share

REPETITIONS = 400


def noise(held: float) -> float:
    """Three standard deviations of the share in so many repetitions."""
    return 3 * math.sqrt(held * (1 - held) / REPETITIONS)


@pytest.mark.parametrize(("days", "rho"), [(24, 0.6), (36, 0.0), (60, 0.3)])
def test_intervals_over_days_hold_the_truth_where_others_do_not(days: int, rho: float) -> None:
    found = share(day_setting(days, rho), REPETITIONS)
    assert 0.93 - noise(0.93) <= found["rlwb, over days"] <= 0.97 + noise(0.97)
    assert found["orders as if independent"] < 0.87 - noise(0.87)
    if rho:
        assert found["bootstrap of single days"] < 0.93 - noise(0.93) / 3
        assert found["blocks of days, plain percentiles"] < found["rlwb, over days"]


def test_an_interval_by_both_holds_where_one_by_either_does_not() -> None:
    found = share(crossed_setting(10, 36, 0.3), REPETITIONS)
    assert found["rlwb, by day and instrument"] >= 0.93 - noise(0.93)
    assert found["by day alone"] < 0.87
    assert found["by instrument alone"] < found["rlwb, by day and instrument"]


def test_every_setting_is_counted_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def once(rng: np.random.Generator) -> dict[str, bool | None]:
        asked.append(rng.random())
        return {"half": len(asked) % 2 == 0, "withheld in part": None if len(asked) % 2 else True}

    monkeypatch.setattr(trust_coverage, "settings", lambda: [Setting("6 days, 0.0", once, (1,))])
    found = measure(tmp_path, quick=True)
    assert found == {"half": {"6 days, 0.0": 0.5}, "withheld in part": {"6 days, 0.0": 1.0}}
    assert len(set(asked)) == 50, "repetitions differ"
    assert measure(tmp_path, quick=True) == found
    assert len(asked) == 50, "what is done is kept"
    assert [json.loads(path.read_text())["repetitions"] for path in tmp_path.iterdir()] == [50]


def test_settings_are_those_that_are_promised() -> None:
    names = [one.name for one in trust_coverage.settings()]
    assert len(set(names)) == len(names)
    assert {f"{days} days, {rho}" for days in (12, 24, 36, 60, 120, 250) for rho in AUTOCORRELATIONS} <= set(names)
    for one in trust_coverage.settings():
        assert set(one.once(np.random.default_rng(1)).values()) <= {True, False, None}


def test_the_days_of_orders_follow_one_another_as_asked() -> None:
    for rho in AUTOCORRELATIONS:
        effects = trust_coverage._effects(np.random.default_rng(4), 20_000, rho)
        assert np.corrcoef(effects[1:], effects[:-1])[0, 1] == pytest.approx(rho, abs=0.03)
        assert effects.std() == pytest.approx(1.0, abs=0.06)
