"""The verdict on a run, from the files of its backtest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlwb.evaluation import PolicyResult
from rlwb.experiment.backtest import read_results, write_headline, write_results
from rlwb.experiment.power import power_of_test, power_table, read_power, write_power
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory, begin_manifest
from rlwb.experiment.verdict import verdict_of, write_texts
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json
from rlwb.reading import read_json
from tests.evaluation.tables import baseline, checkpoint, order_table
from tests.experiment.fakes import config

#: Of 24 orders on 12 days, a buy and a sell a day.
NOISE = np.random.default_rng(7).standard_normal(24)
KNOWN = {"days": 12, "amount": 10.0, "filled": 10.0, "price": 8.0, "direction": ["BUY"] * 12 + ["SELL"] * 12}


def made(
    path: Path, gains: Sequence[np.ndarray], last: float, **values: Any
) -> tuple[RunDirectory, list[PolicyResult]]:
    """Make a run whose chosen checkpoints have these PAs, and whose last one this mean."""
    own = config(backtest__bootstrap_samples=200, **values)
    run = RunDirectory.create(path, own)
    begin_manifest(run, ["rlwb", "run"])
    results: list[PolicyResult] = [checkpoint(pa, number, 3.0, **KNOWN) for number, pa in enumerate(gains, start=1)]
    for one in results:
        assert one.inventory is not None
        one.inventory[0, 1] = 0.7  # no schedule
    results.append(PolicyResult("last", "last", order_table(NOISE + last, **KNOWN)))
    twap = baseline(np.zeros(24), **KNOWN)
    results.append(PolicyResult("twap", "baseline", twap.orders, validation_pa=0.25, inventory=twap.inventory))
    write_results(run.backtest, results)
    write_texts(run.backtest, write_headline(run.backtest, results, own), verdict_of(run, own, results, is_whole=False))
    return run, results


def topics(run: RunDirectory) -> list[str]:
    found = verdict_of(run, run.config, read_results(run))
    assert found is not None
    return [one.topic for one in found.reasons if one.is_against]


def test_a_run_whose_figures_agree_has_found_a_gain(tmp_path: Path) -> None:
    run, _ = made(tmp_path / "run", [NOISE + 5.0, NOISE + 6.0], 4.0)
    page = write_report(run).read_text()
    assert "Yes, on these test days.</strong> The chosen checkpoints gain" in page
    told = read_json(run.path / "verdict.json")
    assert told["outcome"] == "found"
    texts = {one["topic"]: one["sentence"] for one in told["reasons"]}
    gains = NOISE.mean() + np.array([5.0, 6.0])
    assert f"({gains.min():.2f} to {gains.max():.2f} bp)" in texts["checkpoints"]
    assert f"gains {NOISE.mean() + 4.0:.2f} bp" in texts["last"]
    assert "gained 2.75 bp" in texts["validation"], "3.0 less TWAP's own 0.25"
    for name in ("headline.txt", "headline.md"):
        first = (run.backtest / name).read_text().splitlines()[0]
        assert first.startswith("Does the policy beat TWAP? Yes, on these test days.")
    own = read_json(run.backtest / "headline.json")["verdict"]
    assert own == {**told, "reasons": [one for one in told["reasons"] if one["topic"] != "leaks"]}


@pytest.mark.parametrize(
    ("gains", "last", "against"),
    [((5.0, 6.0), -4.0, ["last"]), ((7.0, -0.9), 4.0, ["checkpoints"]), ((0.0, 0.0), 4.0, [])],
)
def test_what_single_checkpoints_say_against_it_is_found(
    tmp_path: Path, gains: tuple[float, float], last: float, against: list[str]
) -> None:
    run, _ = made(tmp_path / "run", [(NOISE - NOISE.mean()) / 10 + gain for gain in gains], last)
    assert topics(run) == against
    write_report(run)
    assert read_json(run.path / "verdict.json")["outcome"] == "none"


def test_what_other_files_say_counts_as_far_as_it_is_there(tmp_path: Path) -> None:
    run, results = made(tmp_path / "run", [NOISE + 5.0, NOISE + 6.0], 4.0)
    assert topics(run) == []
    write_json(run.backtest / "selection.json", {"expected_shrinkage": 2.75, "ranked": 40})
    assert topics(run) == ["validation"]
    write_json(run.backtest / "selection.json", {"expected_shrinkage": None})
    write_json(run.backtest / "evidence.json", {"reality_check_p": 0.3})
    told = verdict_of(run, run.config, results)
    assert told is not None
    assert "in 30.0 % of cases" in told.text
    assert topics(run) == []
    write_json(run.backtest / "evidence.json", {"reality_check_p": 0.0})
    told = verdict_of(run, run.config, results)
    assert told is not None
    assert "in less than 0.1 % of cases" in told.text, "no bootstrap shows a chance of exactly 0"
    write_json(run.backtest / "evidence.json", {"reality_check_p": None})
    checks = [{"name": "one", "passed": True}, {"name": "two", "passed": None}, {"name": "three", "passed": False}]
    write_json(run.path / "audit.json", {"checks": checks, "passed": False})
    assert topics(run) == ["leaks"]
    write_json(run.path / "audit.json", {"checks": checks, "passed": False, "backtest": "2024-01-01"})
    assert topics(run) == [], "an audit of another backtest"
    without = verdict_of(run, run.config, results, is_whole=False)
    assert without is not None
    assert without.outcome == "found", "what came after the backtest is no part of its headline"


def test_a_fixed_schedule_gains_by_drift_alone(tmp_path: Path) -> None:
    run, results = made(tmp_path / "run", [NOISE + 5.0], 4.0)
    blind = [checkpoint(NOISE + 5.0, 1, 3.0, **KNOWN), *results[1:]]
    found = verdict_of(run, run.config, blind)
    assert found is not None
    assert (found.outcome, found.reasons[1].topic) == ("none", "schedule")


def test_what_the_fees_of_the_markets_preset_would_leave_is_told_where_costs_are_off(tmp_path: Path) -> None:
    """80 of value: 5 of minimum commission, on sells 0.04 of tax, each as basis points of 100 at the benchmark."""
    run, results = made(tmp_path / "run", [NOISE + 5.0], 4.0)

    def told() -> str:
        found = verdict_of(run, run.config, results)
        assert found is not None
        return next(one.sentence for one in found.reasons if one.topic == "costs")

    assert "not known" in told()
    write_json(run.orders / "data.json", {"calendar": {"timezone": "Asia/Shanghai"}})
    fee = (5.0 + 0.04 / 2) / 100 * 1e4
    assert f"preset cn these fills would pay {fee:.2f} bp an order and TWAP's {fee:.2f} bp" in told()
    assert f"leaves a difference of {NOISE.mean() + 5.0:.2f} bp" in told()
    under, _ = made(tmp_path / "costs", [NOISE + 5.0], 4.0)
    with_costs = config(execution__rules__commission_bps=3.0, backtest__bootstrap_samples=200)
    results = [
        PolicyResult(
            *(one.policy, one.kind, one.orders.assign(pa_net=one.pa - 3.0), one.iteration),
            *(one.validation_pa, one.inventory),
        )
        for one in results
    ]
    write_headline(under.backtest, results, with_costs)
    found = verdict_of(under, with_costs, results)
    assert found is not None
    assert "costs" not in [one.topic for one in found.reasons]
    assert "after costs" in found.text


def test_power_is_measured_on_the_days_before_the_test_alone(tmp_path: Path) -> None:
    bench = Workbench(config(market__instruments=2, market__days=40, backtest__bootstrap_samples=200))
    parts = {name: bench.align(table) for name, table in bench.make_orders()[0].items() if name != "all"}
    found = power_of_test(bench, parts)
    assert found is not None
    earlier = sum(parts[name].table["date"].nunique() for name in ("train", "valid"))
    assert (found.days, found.orders, found.measured_days) == (8, 32, earlier)
    other = power_of_test(bench, {**parts, "test": parts["test"][:16]})
    assert other is not None
    assert other.day_deviation == found.day_deviation
    assert other.detectable_bp > found.detectable_bp
    path = tmp_path / "power.json"
    write_power(path, bench, parts)
    assert read_power(path) == found
    assert power_table(found).loc["days to see 1 bp", "power"] == f"{found.days_for_1bp:,}"
    write_power(path, bench, {**parts, "test": parts["test"][:2]})
    assert read_power(path) is None, "one day cannot be told from another"


def test_looks_at_the_test_days_are_paid_for(tmp_path: Path) -> None:
    gain = 0.25 - NOISE.mean()
    run, _ = made(tmp_path / "run", [NOISE / 20 + gain, NOISE / 20 + gain + 0.01], 4.0)
    look = {"look": 1, "configurations": 1, "config": "a", "days": ["b"], "is_noted": True}
    write_json(run.path / "look.json", look)
    assert topics(run) == []
    write_json(run.path / "look.json", {**look, "look": 10**9})
    assert topics(run) == ["looks"]
