"""The methods' table over training seeds: its members, its rows, and the paired difference of two methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.methods import LEVEL, MARKETS, METHODS, markdown, measure, paired, sweep_of, train
from rlwb.evaluation import PolicyResult
from rlwb.experiment.config import RunConfig


def results(gains: np.ndarray) -> Sequence[PolicyResult]:
    """Return a result a row of `gains`, float64 of shape (seeds, days), with one order a day."""
    dates = pd.date_range("2024-01-01", periods=gains.shape[1])
    names = {"order_id": [f"{at:03d}" for at in range(len(dates))], "instrument": "A", "date": dates, "ffr": 1.0}
    return [PolicyResult("checkpoint-0001", "checkpoint", pd.DataFrame({**names, "pa": one})) for one in gains]


def test_trainings_of_a_seed_are_paired_order_by_order() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(0.0, 50.0, (8, 60))  # of the day and the seed, which both methods share
    days, seeds = rng.normal(1.0, 4.0, 60), rng.normal(0.0, 1.0, 8)
    gain = days + seeds[:, None]
    found = paired(results(luck + gain), results(luck))
    assert found.estimate == pytest.approx(gain.mean())
    spread = np.hypot(days.std(ddof=1) / np.sqrt(60), seeds.std(ddof=1) / np.sqrt(8))
    assert found.hi - found.lo == pytest.approx(2 * 1.645 * spread, rel=0.15), "90 %"
    five = paired(results(luck[:5] + gain[:5]), results(luck[:5]))
    assert np.isfinite(five.lo), "five seeds have an interval of this level"


def test_members_share_orders_and_differ_in_algorithm_and_seed() -> None:
    sweep = sweep_of("us_5min", METHODS, 2, {}, Path("/bars"))
    configs = [one.of_seed(seed) for one, seed in sweep.members.values()]
    assert [(one.algorithm.name, one.seed) for one in configs] == [
        (method, seed) for method in METHODS for seed in (0, 1)
    ]
    assert {one.orders.settings["seed"] for one in configs} == {0}
    assert {one.market.settings["source"] for one in configs} == {"/bars/us_equity_5min_2025/bars.parquet"}
    assert {(one.train.iterations, one.backtest.confidence) for one in configs} == {(40, LEVEL)}
    (plain,) = {one.config.network for one in sweep_of("synthetic", ["ppo"], 1, {}).settings}
    assert plain == RunConfig().network
    limited = sweep_of("cn_15min", ["pathwise"], 1, {}, Path("/bars")).settings[0].config
    assert limited.execution.rules.price_limit == 0.1, "the rules of its file"
    assert set(MARKETS) == {"synthetic", "us_5min", "cn_15min"}


def test_trainings_become_rows_and_pairs(tmp_path: Path) -> None:
    small = {"market.days": 20, "market.instruments": 2, "train.iterations": 1, "train.episodes_per_iteration": 20}
    small |= {"backtest.top": 1, "backtest.bootstrap_samples": 100, "baselines": ["twap", "forecast", "hindsight"]}
    sweep = sweep_of("synthetic", ["ppo", "pathwise"], 1, small)
    for name, (setting, seed) in sweep.members.items():
        train(tmp_path / name, setting.of_seed(seed), keeps=True)
    made = measure("synthetic", sweep, tmp_path)
    rows = {row["method"]: row for row in made["rows"]}
    assert list(rows) == ["ppo", "pathwise", "twap", "forecast", "hindsight"]
    assert (rows["ppo"]["seeds"], rows["ppo"]["days"], rows["twap"]["pa"]["mean"]) == (1, 4, 0)
    (pair,) = made["pairs"]
    assert (pair["of"], pair["less"]) == ("pathwise", "ppo")
    assert pair["mean"] == pytest.approx(rows["pathwise"]["pa"]["mean"] - rows["ppo"]["pa"]["mean"], abs=2e-4)
    assert pair["mean_lo"] is None, "one seed says nothing of another"
    over = rows["ppo"]["over_rule"]["mean"]
    assert over == pytest.approx(rows["ppo"]["pa"]["mean"] - rows["forecast"]["pa"]["mean"], abs=2e-4)
    text = markdown(made)
    assert [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| ")][1:] == [
        *("| TWAP", "| forecast rule", "| hindsight (ceiling)", "| ppo", "| pathwise")
    ]
