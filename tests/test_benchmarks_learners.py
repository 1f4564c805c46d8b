"""The methods' table over market and training seeds: its trainings, its paired interval, and its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.learners import METHODS, config_of, markdown, ordered, paired


def row(market: int, seed: int | None, method: str, pa: float, over: list[float]) -> dict[str, Any]:
    own = {"market_seed": market, "training_seed": seed, "method": method, "seconds": 3.0}
    return {**own, "pa": pa, "share": pa / 16.0, "over_rule": over}


def test_markets_count_alike_and_days_and_trainings_are_both_resampled() -> None:
    rng = np.random.default_rng(0)
    days, seeds = rng.normal(1.0, 4.0, 60), rng.normal(0.0, 1.0, 8)
    rows = [row(0, at, "ppo", 1.0, list(days + seed)) for at, seed in enumerate(seeds)]
    mean, lo, hi = paired(rows)
    assert mean == pytest.approx(days.mean() + seeds.mean())
    spread = np.hypot(days.std() / np.sqrt(60), seeds.std() / np.sqrt(8))
    assert hi - lo == pytest.approx(2 * 1.96 * spread, rel=0.1)
    doubled = paired([*rows, *(row(1, at, "ppo", 1.0, [0.0] * 60) for at in range(3))])
    assert doubled[0] == pytest.approx(mean / 2)
    assert doubled[2] - doubled[1] == pytest.approx((hi - lo) / 2, rel=0.1)


def test_a_training_is_a_run_on_its_market_and_seed() -> None:
    config = config_of((3, 7, "ppo, signals"), {"train.iterations": 2})
    assert (config.market.settings["seed"], config.seed, config.train.iterations) == (3, 7, 2)
    assert config.network.name == "signals"
    assert config_of((0, 0, "ppo"), {}).network == config_of((0, 0, "pathwise"), {}).network


def test_the_table_has_a_line_a_method_rules_first() -> None:
    rows = [row(market, seed, method, 8.0, [1.0, 3.0]) for market in (1, 0) for seed in (1, 0) for method in METHODS]
    rows += [{**row(market, None, "forecast", 14.0, []), "seconds": None} for market in (0, 1)]
    found = ordered([*rows, {**rows[0], "method": "of another time"}])
    assert [one["method"] for one in found[:3]] == ["forecast", "forecast", next(iter(METHODS))]
    assert len(found) == len(rows)
    lines = markdown(found).splitlines()[2:]
    assert lines[0].startswith("| forecast | 2 | 14.00 | 87.5% | 87.5% | – | – |")
    assert "| 4 | 8.00 | 50.0% | 50.0% | 2.00 [1.00, 3.00] | 3 |" in lines[1]
