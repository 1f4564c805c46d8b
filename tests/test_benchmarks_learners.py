"""The learners' tables over market and training seeds: trainings, the paired interval, days, noise, and the order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.learners import (
    FACTORS,
    KNOWING,
    METHODS,
    Task,
    config_of,
    markdown,
    measure,
    more_days,
    ordered,
    paired,
    plot,
)
from rlwb.execution import SplitSettings, generate_orders, split_orders
from rlwb.market import SyntheticSettings, synthetic_sessions


def row(market: int, seed: int | None, method: str, pa: float, over: list[float], **own: Any) -> dict[str, Any]:
    of = {"part": "table", "days": 1.0, "market_seed": market, "training_seed": seed, "method": method}
    seconds = None if seed is None else 3.0
    return {**of, "pa": pa, "lo": pa - 1, "share": pa / 16.0, "over_rule": over, "seconds": seconds, **own}


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
    config = config_of(Task("table", 1.0, 3, 7, "ppo, recurrent"), {"train.iterations": 2})
    assert (config.market.settings["seed"], config.seed, config.train.iterations) == (3, 7, 2)
    assert config.market.settings["signal"] == 1
    assert (config.network.name, config.head.mask_actions, config.head.even_start) == ("recurrent", False, False)
    assert config_of(Task("noise", 1.0, 3, 7, "ppo"), {}).market.settings["signal"] == 0


def test_more_training_days_change_neither_the_market_nor_the_days_that_judge() -> None:
    made = {factor: more_days(factor, 20) for factor in FACTORS}
    assert {one["market.days"] for one in made.values()} == {8 * 12 + 2 * 4}
    sessions = synthetic_sessions(SyntheticSettings(instruments=1, days=8 * 12 + 2 * 4))
    orders = generate_orders(sessions)
    parts = {}
    for factor, one in made.items():
        spans = {part: tuple(one[f"split.{part}"]) for part in ("train", "valid", "test")}
        parts[factor] = split_orders(orders, SplitSettings(**spans))
    for factor, part in parts.items():
        for judged in ("valid", "test"):
            assert part[judged]["date"].nunique() == 4
            pd.testing.assert_frame_equal(part[judged], parts[1.0][judged])
        if factor < 8:  # the first day has no day before, by whose volume orders are sized
            assert part["train"]["date"].nunique() == round(12 * factor)
        assert (part["train"]["date"] < part["valid"]["date"].min()).all()


def test_a_training_and_its_rules_have_rows() -> None:
    small = {"market.days": 20, "market.instruments": 3, "train.episodes_per_iteration": 30, "backtest.top": 1}
    task = Task("table", 1.0, 1, 2, "pathwise")
    first, *rules = measure(task, {**small, "train.iterations": 2, "backtest.bootstrap_samples": 100})
    assert Task.of(first) == task
    assert first["signal"] == 1
    assert len(first["over_rule"]) == 4, "days"
    shown = {one["method"]: one for one in rules}
    assert first["pa"] - shown["forecast"]["pa"] == pytest.approx(np.mean(first["over_rule"]), abs=1e-4)
    assert first["share"] == pytest.approx(first["pa"] / shown["filter_optimum"]["pa"])
    assert all(one["training_seed"] is None for one in rules)
    assert shown["twap"]["pa"] == 0
    assert shown["hindsight"]["pa"] > max(shown[KNOWING]["pa"], shown["filter_optimum"]["pa"])
    assert [point[0] for point in first["curve"]] == [1, 2]
    assert 0 < first["curve"][0][1] < first["curve"][1][1] < first["seconds"] + 1
    best = max(first["curve"], key=lambda point: point[2])
    assert best[3] == pytest.approx(first["pa"], abs=1e-3), "of the checkpoint that validation chose"


def test_the_tables_have_a_line_a_method_rules_first(tmp_path: Path) -> None:
    rows = [row(market, seed, method, 8.0, [1.0, 3.0]) for market in (1, 0) for seed in (1, 0) for method in METHODS]
    rows += [row(market, None, "forecast", 14.0, []) for market in (0, 1)]
    found = ordered([*rows, {**rows[0], "method": "of another time"}])
    assert [one["method"] for one in found[:3]] == ["forecast", "forecast", next(iter(METHODS))]
    assert len(found) == len(rows)
    lines = markdown(found).splitlines()[2:]
    assert lines[0].startswith("| forecast | 2 | 14.00 | 87.5% | 87.5% | – | – |")
    assert "| 4 | 8.00 | 50.0% | 50.0% | 2.00 [1.00, 3.00] | 2.00, 2.00 | 3 |" in lines[1]

    known = {0.25: 18.0, 8.0: 20.0}
    rows = [row(0, 0, "ppo", pa, [], part="days", days=days) for days, pa in ((0.25, 9.0), (8.0, 19.0))]
    rows += [row(0, None, KNOWING, pa, [], part="days", days=days) for days, pa in known.items()]
    rows += [row(market, 0, "ppo", pa, [], part="noise") for market, pa in enumerate((0.5, 1.5))]
    text = markdown(ordered(rows))
    assert "| ppo | 9.00 (50%) | 19.00 (95%) |" in text
    assert "| ppo | 2 | 1 | [1.3%, 98.7%] | 1.00 |" in text

    curve = [[1, 0.5, 3.0, 2.0], [2, 1.0, 6.0, 5.0]]
    plot([{**one, "curve": curve} for one in (*found, *rows)], tmp_path / "learners.json")
    assert all((tmp_path / f"learners.{kind}").stat().st_size > 10_000 for kind in ("png", "svg"))
