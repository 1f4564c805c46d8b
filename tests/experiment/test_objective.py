"""A run with another objective than the mean: learners, choice of checkpoints, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.env import make_env
from rlwb.errors import ConfigError
from rlwb.execution import FullHistoryStateInterpreter
from rlwb.experiment.backtest import backtest_policies, baseline_result, make_baselines, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, make_orders
from rlwb.experiment.report import stability_figures
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import training_id
from rlwb.experiment.training import train_policy
from rlwb.experiment.workbench import Workbench
from rlwb.market import MarketFeatures
from rlwb.reading import read_json
from rlwb.trainer import collect
from tests.experiment.test_work import TINY, tiny

CVAR = {"objective": "cvar", "objective.level": 0.9, "backtest.confidence": 0.7}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny(**CVAR)
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "cvar", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    return run


def test_checkpoints_are_chosen_by_the_value_of_the_objective(judged: RunDirectory) -> None:
    log = pd.read_csv(judged.metrics / "validation.csv").set_index("iteration")["objective"]
    best = log.sort_values(ascending=False, kind="stable").index[:2]
    assert read_json(judged.backtest / "selection.json")["chosen"] == [f"checkpoint-{number:04d}" for number in best]
    summary = pd.read_csv(judged.backtest / "summary.csv").set_index("policy")
    assert summary.loc[f"checkpoint-{best[0]:04d}", "validation_pa"] == pytest.approx(log[best[0]], abs=1e-9)


def test_tables_have_the_value_of_the_objective_with_its_interval(judged: RunDirectory) -> None:
    summary = pd.read_csv(judged.backtest / "summary.csv").set_index("policy")
    for one in read_results(judged):
        worst = (np.sort(one.pa)[:2] * [1.0, 0.8]).sum() / 1.8  # a tenth of 18 orders
        row = summary.loc[one.policy]
        if one.kind == "ceiling":
            assert np.isnan(row["objective"])
        else:
            assert row["objective"] == pytest.approx(worst, abs=1e-9)
            assert row["objective_lo"] <= row["objective"] <= row["objective_hi"]
    headline = read_json(judged.backtest / "headline.json")
    assert "objective, bp" in headline["header"]
    assert sum("Checkpoints are chosen by it" in note for note in headline["notes"]) == 1
    figures = stability_figures(judged, judged.config)
    assert set(figures) >= {"learning_curves", "validation_against_test"}
    drawn = [one for one in figures["validation_against_test"].axes[0].lines if "checkpoints" in one.get_label()]
    chosen = summary[summary["kind"] == "checkpoint"]
    assert list(drawn[0].get_ydata()) == list(chosen["objective"]), "what was chosen by, in validation and in test"


def test_another_objective_is_another_training() -> None:
    assert training_id(tiny()) != training_id(tiny(**CVAR))
    assert tiny().judged_by == "pa"
    assert tiny(**{"execution.rules.commission_bps": 1.0}).judged_by == "pa_net"
    assert tiny(**CVAR).judged_by == "objective"


@pytest.mark.parametrize("algorithm", ["dqn", "opd", {"name": "tianshou", "algorithm": "A2C"}])
def test_a_learner_of_the_mean_alone_refuses_another_objective(algorithm: Any) -> None:
    market = {"market.instruments": 3, "market.days": 15}
    config = RunConfig.load(None, Layer("test", {**market, **CVAR, "algorithm": algorithm}))
    bench = Workbench(config)
    with pytest.raises(ConfigError, match=rf"cvar.*{config.algorithm.name}"):
        bench.learner(bench.features(bench.make_orders()[0]["train"]))


DIAL = {"objective": {"name": "mean_variance", "aversion": [0.0, 0.01, 0.1]}}


@pytest.fixture(scope="module")
def dialled(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    changes = {name: value for name, value in TINY.items() if not name.startswith("algorithm")}
    config = RunConfig.load(None, Layer("test", {**changes, **DIAL, "algorithm": "pathwise"}))
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "dial", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    return run


def test_a_dial_is_trained_once_and_judged_at_every_setting(dialled: RunDirectory) -> None:
    assert dialled.config.action_interpreter.name == "position_share"
    table = pd.read_csv(dialled.backtest / "dial.csv")
    best = read_json(dialled.backtest / "selection.json")["chosen"][0]
    own = table[table["aversion"].notna()]
    assert own["aversion"].tolist() == [0.0, 0.01, 0.1]
    assert own["policy"].tolist() == [f"{best} at 0", f"{best} at 0.01", f"{best} at 0.1"]
    assert {"twap", "hindsight"} <= set(table["policy"])
    # The headline is at the middle setting.
    summary = pd.read_csv(dialled.backtest / "summary.csv").set_index("policy")
    middle = own.set_index("aversion").loc[0.01]
    assert middle["pa_mean"] == pytest.approx(summary.loc[best, "pa_mean"], abs=1e-12)
    assert middle["objective"] == pytest.approx(summary.loc[best, "objective"], abs=1e-12)
    variance = (middle["pa_mean"] - middle["objective"]) / 0.01
    assert variance == pytest.approx(next(one for one in read_results(dialled) if one.policy == best).pa.var())


def test_pathwise_trains_where_a_cap_cuts_fills_and_impact_moves_prices(tmp_path: Path) -> None:
    impact = {f"execution.rules.{name}_impact_bps": 100.0 for name in ("temporary", "permanent", "transient")}
    rules = {
        "baselines": ["twap"],
        **impact,
        "execution.rules.volume_limit": 1e-3,
        "execution.rules.transient_half_life": 30.0,
    }
    changes = {name: value for name, value in TINY.items() if not name.startswith(("algorithm", "network"))}
    config = RunConfig.load(None, Layer("test", {**changes, **rules, "algorithm": "pathwise", "network": "mlp"}))
    run = RunDirectory.create(tmp_path / "run", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    filled = pd.read_csv(run.backtest / "summary.csv").set_index("policy")["ffr"]
    assert filled.between(0.3, 0.95).all()


def test_orders_are_dealt_the_settings_evenly_by_the_seed(dialled: RunDirectory) -> None:
    bench = Workbench(dialled.config)
    table = load_orders(dialled, bench, "train")
    orders = bench.align(table)
    counts = np.bincount(bench.dial_settings(orders))
    assert counts.max() - counts.min() <= 1
    assert np.array_equal(bench.align(table).forms["aversion"], orders.forms["aversion"])
    stated = bench.align(table.assign(aversion=0.004))
    assert (stated.forms["aversion"] == 0.004).all()
    assert set(bench.align(table, 2).forms["aversion"]) == {0.1}


def test_almgren_chriss_goes_by_the_aversion_of_the_objective() -> None:
    """Per basis point 10,000 times less than for shares of the value; entropic weighs a variance by half."""
    played = {}
    for name, changes in {
        "told": {"baselines": [{"name": "almgren_chriss", "risk_aversion": 500.0}]},
        "mean_variance": {"objective": {"name": "mean_variance", "aversion": 0.05}, "baselines": ["almgren_chriss"]},
        "entropic": {"objective": {"name": "entropic", "aversion": 0.1}, "baselines": ["almgren_chriss"]},
        "mean": {"baselines": ["almgren_chriss"]},
    }.items():
        bench = Workbench(tiny(**changes))
        parts = bench.make_orders()[0]
        (baseline,) = make_baselines(bench).values()
        baseline.fit(bench.align(parts["train"]))
        one = baseline_result(bench, "almgren_chriss", baseline, bench.align(parts["test"]))
        played[name] = np.asarray(one.inventory)
    assert np.array_equal(played["mean_variance"], played["told"])
    assert np.array_equal(played["entropic"], played["told"])
    assert np.abs(played["mean"] - played["told"]).max() > 0.01


def test_ppo_takes_the_dial_too() -> None:
    bench = Workbench(tiny(**DIAL))
    parts = bench.make_orders()[0]
    features = bench.features(parts["train"])
    policy, orders = bench.learner(features), bench.align(parts["train"])
    sees = bench.state_interpreter(features)
    assert sees.observation_space["aversion"].shape == (3,)
    with make_env(bench.simulator, sees, bench.action_interpreter, bench.reward, orders) as env:
        episodes = collect(env, policy, seed=(0,), keep=True)
    before = {name: value.clone() for name, value in policy.network.state_dict().items()}
    policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done)
    layers = "trunk.layers.weight"
    moved = (policy.network.state_dict()[layers] - before[layers]).abs().view(3, -1).amax(dim=1)
    assert (moved > 0).all()


def test_what_the_dial_and_learners_by_replay_cannot_have_is_refused() -> None:
    def refused(match: str, **changes: object) -> None:
        config = RunConfig.load(None, Layer("test", {"market.instruments": 3, "market.days": 15, **changes}))
        with pytest.raises(ConfigError, match=match):
            Workbench(config).try_out()

    refused("random_liquidity", algorithm="pathwise", simulator="random_liquidity")
    refused("lot_size", algorithm="pathwise", **{"execution.rules.lot_size": 100.0})
    refused("SparseReward", algorithm="pathwise", reward="sparse")
    refused("position_share", algorithm="pathwise", action_interpreter="twap_relative")
    by_path = {"network": "recurrent", "action_interpreter": {"name": "categorical", "values": 9}}
    refused("more than 2,048", algorithm="all_actions", **by_path)
    refused("takes an objective", algorithm="all_actions", objective="cvar")
    own = "tests/experiment/test_objective.py:Blind"
    refused("parameter objective", state_interpreter=own, **DIAL)


class Blind(FullHistoryStateInterpreter):
    """Does not pass on the objective."""

    def __init__(self, features: MarketFeatures, max_step: int) -> None:
        super().__init__(features, max_step)
