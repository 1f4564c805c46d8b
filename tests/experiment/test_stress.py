"""The stress matrix of a tiny run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rlwb.cli import app
from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import ExecutionRules, Known, KnownStateInterpreter, OrderExecution, align_orders
from rlwb.execution.interpreters import AmountActionInterpreter
from rlwb.experiment.backtest import backtest_policies, play, read_results
from rlwb.experiment.conditions import BASE, Condition, carried_feed, changed_sessions, conditions
from rlwb.experiment.orders import make_orders
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stability import (
    read_drift,
    read_stability,
    stability_sentences,
    stability_view,
    worst_orders,
    write_stability,
)
from rlwb.experiment.stress import (
    FALLBACK,
    FedEngine,
    Stress,
    launch_stress,
    read_stress,
    stress_sentences,
    stress_view,
)
from rlwb.experiment.training import train_policy
from rlwb.reading import read_json
from rlwb.trainer import backtest
from tests.execution.markets import order, sessions_of
from tests.experiment.test_work import tiny

EVERY = {one.name: one for one in conditions()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny(**{"market.days": 40, "network.hidden": 8})
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "tiny", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    return run


@pytest.fixture(scope="module")
def matrix(finished: RunDirectory) -> Stress:
    return Stress(finished)


@pytest.fixture
def copied(finished: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(finished.path, tmp_path / "run", symlinks=True)
    return RunDirectory.open(tmp_path / "run")


def net(frame: pd.DataFrame, policy: str) -> np.ndarray:
    return frame.loc[frame["policy"] == policy, "pa_net"].to_numpy()


def test_without_changes_the_matrix_is_the_backtest(matrix: Stress) -> None:
    found = matrix.play(EVERY[BASE])
    for one in read_results(matrix.run):
        assert net(found, one.policy).tolist() == one.values("pa_net").tolist(), one.policy
    assert set(found["policy"]) - {one.policy for one in read_results(matrix.run)} == {FALLBACK}


def test_a_spread_costs_half_of_it_of_every_fill(matrix: Stress) -> None:
    found = matrix.play(EVERY["spread-10bp"])
    for one in read_results(matrix.run):
        if one.kind not in ("ceiling",):
            lost = 5.0 * one.values("price") / one.values("benchmark")  # of the value at the benchmark
            assert net(found, one.policy) == pytest.approx(one.values("pa_net") - lost, abs=1e-9), one.policy


def test_a_condition_of_the_feed_moves_no_fill_of_a_schedule(matrix: Stress) -> None:
    base, late = (matrix.play(EVERY[name]) for name in (BASE, "latency-2"))
    for policy in ("twap", "hindsight"):
        assert net(late, policy) == pytest.approx(net(base, policy), abs=1e-9), policy
    assert (net(late, "forecast") != net(base, "forecast")).any()


def test_what_a_market_refuses_has_no_rows(matrix: Stress) -> None:
    found = matrix.play(EVERY["cap-10"])
    assert "filter_optimum-knows_volatility=false" not in set(found["policy"])
    assert {"twap", "forecast", "last", FALLBACK} <= set(found["policy"])


@dataclass
class Follows:
    """Buys all at once after the first step in which the last bar that is seen fell; keeps what it saw."""

    seen: list[list[float]] = field(default_factory=list)

    def act(self, known: Known, noise: Any = None) -> np.ndarray:
        closes = known.bars("close")[0]
        past = closes[np.isfinite(closes)]
        self.seen.append(past.tolist())
        fell = len(past) > 1 and past[-1] < past[-2]
        return known.position if fell else np.zeros(1)


def traded(feed_late: int) -> tuple[float, list[list[float]]]:
    """Return the price that the policy pays, and what it saw before each of four steps of one bar."""
    sessions = sessions_of([[9.0] * 4, [10.0, 8.0, 12.0, 14.0]])
    rows, feed = np.array([1]), sessions
    if feed_late:
        edit = EVERY[f"latency-{feed_late}"].feed
        assert edit is not None
        feed = carried_feed(changed_sessions(sessions, rows, edit, "late", 0), sessions, rows)
    simulator = OrderExecution(FedEngine(sessions, 1, ExecutionRules(), feed))
    policy = Follows()
    orders = align_orders([order(100.0, day=2)], sessions)
    episodes = backtest(simulator, KnownStateInterpreter(), orders, AmountActionInterpreter(), policy)
    return float(episodes.metrics["price"][0]), policy.seen


def test_a_latency_of_one_bar_is_that_of_a_hand_computed_case() -> None:
    # On time it sees the fall from 10 to 8 before the third bar, and pays 12. A bar late it sees it before the fourth.
    assert traded(0) == (12.0, [[], [10.0], [10.0, 8.0]])
    assert traded(1) == (14.0, [[], [9.0], [9.0, 10.0], [9.0, 10.0, 8.0]])


def test_the_fallback_decides_where_inputs_are_unlike_those_of_training(matrix: Stress) -> None:
    assert matrix.novelty is not None
    share = {}
    for name in (BASE, "feed-silent", "inputs-misscaled-x0.5"):
        frame = matrix.play(EVERY[name])
        share[name] = frame.loc[frame["policy"] == FALLBACK, "by_schedule"].iloc[0]
        assert frame.loc[frame["policy"] != FALLBACK, "by_schedule"].isna().all()
    assert share[BASE] < 0.1 < share["feed-silent"]
    assert share[BASE] < share["inputs-misscaled-x0.5"]


def test_a_policy_that_always_falls_back_trades_evenly(matrix: Stress, monkeypatch: pytest.MonkeyPatch) -> None:
    assert matrix.novelty is not None
    monkeypatch.setattr(matrix, "novelty", (matrix.novelty[0], -1.0))
    frame = matrix.play(EVERY[BASE])
    assert net(frame, FALLBACK) == pytest.approx(net(frame, "twap"), abs=1e-9)
    monkeypatch.setattr(matrix, "novelty", (matrix.novelty[0], np.inf))
    frame = matrix.play(EVERY[BASE])
    first = read_json(matrix.run.backtest / "selection.json")["chosen"][0]
    assert net(frame, FALLBACK).tolist() == net(frame, first).tolist()


def names(wanted: Sequence[str]) -> list[Condition]:
    return [EVERY[name] for name in wanted]


def test_a_matrix_that_was_stopped_goes_on_and_another_backtest_begins_it_anew(
    copied: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, played = names([BASE, "spread-1bp", "buys"]), list[str]()
    play_one = Stress.play

    def counted(self: Stress, condition: Condition) -> pd.DataFrame:
        played.append(condition.name)
        if condition.name == "spread-1bp" and len(played) == 2:
            raise KeyboardInterrupt
        return play_one(self, condition)

    monkeypatch.setattr(Stress, "play", counted)
    with pytest.raises(KeyboardInterrupt):
        Stress(copied).run_all(wanted)
    assert Stress(copied).run_all(wanted) == {}
    assert played == [BASE, "spread-1bp", "spread-1bp"]
    assert Stress(copied).run_all(wanted) == {}
    assert len(played) == 3
    copied.save_config(tiny(**{"market.days": 40, "network.hidden": 8, "backtest.bootstrap_samples": 300}))
    Stress(copied).run_all(wanted)
    assert played[3:] == [BASE, "spread-1bp"]


def test_the_command_writes_tables_figures_and_the_page(copied: RunDirectory) -> None:
    write_stability(copied, copied.config)
    done = CliRunner().invoke(app, ["stress", str(copied.path), "--only", "spread", "--only", "side", "--only", "tax"])
    assert done.exit_code == 0, done.output
    table = read_stress(copied)
    assert table is not None
    assert set(table["condition"]) == {
        BASE,
        "tax-5bp",
        "spread-1bp",
        "spread-2bp",
        "spread-5bp",
        "spread-10bp",
        "buys",
        "sells",
    }
    means = table[table["metric"] == "pa_net"].set_index(["condition", "policy"])["estimate"]
    sides = read_stability(copied)
    assert sides is not None
    buys = sides[(sides["group"] == "buy") & (sides["kind"] == "checkpoint")]["judged"].iloc[0]
    assert means["buys", "checkpoints"] == pytest.approx(buys)
    view, sentences = stress_view(copied), stress_sentences(copied)
    assert view.index.tolist()[:2] == [BASE, "tax-5bp"]
    assert "of 7 other conditions" in sentences[0].lower()
    page = copied.report.read_text()
    assert "Does it hold under other conditions?" in page
    assert sentences[0] in page
    folder = copied.path / "stress"
    assert {"stress_map.png", "stress_curves.svg", "stress.md", "verdicts.csv"} <= {
        one.name for one in folder.iterdir()
    }
    assert EVERY["tax-5bp"].meaning in (folder / "stress.md").read_text()


def test_a_matrix_of_another_backtest_is_not_shown(copied: RunDirectory) -> None:
    launch_stress(copied.path, ["side"], echo=lambda line: None)
    launch_stress(copied.path, ["tax"], echo=lambda line: None)
    table = read_stress(copied)
    assert table is not None
    assert set(table["condition"]) == {BASE, "tax-5bp", "buys", "sells"}
    summary = copied.backtest / "summary.csv"
    summary.write_text(summary.read_text().replace("twap", "other"))
    assert read_stress(copied) is None
    assert stress_sentences(copied) == []


def test_a_run_without_a_matrix_says_nothing_of_it(copied: RunDirectory) -> None:
    assert read_stress(copied) is None
    assert stress_sentences(copied) == []
    assert stress_view(copied).empty
    assert read_stability(copied) is None
    assert stability_sentences(copied) == []
    assert stability_view(copied).empty
    write_stability(copied, copied.config)
    write_report(copied)
    page = copied.report.read_text()
    assert "under other conditions" not in page
    assert stability_sentences(copied)[0] in page


def test_stability_is_written_by_the_stage(copied: RunDirectory) -> None:
    write_stability(copied, copied.config)
    table, drift = read_stability(copied), read_drift(copied)
    assert table is not None
    assert drift is not None
    assert set(table["by"]) >= {"side", "size", "window", "month", "instrument", "volatility"}
    summary = pd.read_csv(copied.backtest / "headline.csv").set_index("policy")
    whole = table[(table["by"] == "window") & (table["policy"] == "checkpoints")]
    assert whole["judged"].iloc[0] == pytest.approx(summary.loc["checkpoints", "pa_mean"])
    assert set(drift["policy"]) == set(summary.index) - {"hindsight"}
    assert stability_view(copied).shape[0] == (table["kind"] == "checkpoint").sum()
    assert len(stability_sentences(copied)) == 2


def test_worst_days_are_opened_order_by_order(copied: RunDirectory) -> None:
    table = worst_orders(copied, count=2, most=3)
    days = table.index.get_level_values("day")
    assert len(table) == 6
    assert days.nunique() == 2
    one = table.reset_index().iloc[0]
    chosen = [result for result in read_results(copied) if result.kind == "checkpoint"]
    values = [result.orders.set_index("order_id")["pa_arrival"][one["order_id"]] for result in chosen]
    assert one["net PA over arrival, bp"] == pytest.approx(np.mean(values), abs=1e-3)
    first = table.xs(days[0], level="day")["net PA over arrival, bp"]
    assert first.is_monotonic_increasing


def test_what_cannot_be_stressed_is_refused_by_name(copied: RunDirectory, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'sprad'"):
        launch_stress(copied.path, ["sprad"])
    shutil.rmtree(copied.backtest)
    with pytest.raises(CheckpointError, match="backtest"):
        launch_stress(copied.path)


def test_play_gives_what_the_world_fills(matrix: Stress) -> None:
    world = matrix.world(EVERY["volatility-x2"])
    twap = world.seen.make("baseline", matrix.config.baselines[0])
    figures = play(
        world.market, (twap, KnownStateInterpreter(), AmountActionInterpreter()), world.orders, world.simulator
    )
    assert figures.metrics["pa"] == pytest.approx(0.0, abs=1e-9)
    assert not np.allclose(figures.metrics["price"], read_results(matrix.run)[0].values("price"))
