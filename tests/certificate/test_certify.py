"""Training on a certified market by the settings of a run, and what is measured of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlwb.certificate import MARKETS, METHODS, EmbeddedMarket, TreeSettings, certify, run_config, tree_market
from rlwb.certificate.runs import drawn
from rlwb.errors import ConfigError
from rlwb.execution import AmountActionInterpreter, KnownStateInterpreter
from rlwb.execution.baselines.filter_optimum import FilterOptimum
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.workbench import Workbench
from rlwb.trainer import backtest

SMALL = {"train.iterations": 2, "train.episodes_per_iteration": 40}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [name for name in MARKETS if name != "gaussian"])
def test_a_run_on_a_market_differs_from_rlwb_run_by_the_problem_alone(name: str, method: str) -> None:
    market = MARKETS[name]()
    own, default = run_config(market, method, 3), RunConfig.load(None, Layer("own", {"algorithm": method, "seed": 3}))
    differing = {key for key, value in own.as_dict().items() if value != default.as_dict()[key]}
    assert differing - {"action_interpreter"} <= {
        *("market", "orders", "split", "execution", "reward", "baselines"),
    }
    if "action_interpreter" in differing:
        assert default.action_interpreter.name == own.action_interpreter.name == "categorical"
        assert own.action_interpreter.settings == {"values": market.actions}
    assert own.reward.settings == {**default.reward.settings, "penalty": market.penalty}
    assert own.execution.rules == market.rules
    assert own.market.settings["train"] * 2 == own.train.iterations * own.train.episodes_per_iteration


def test_a_run_on_a_market_can_be_written_down_for_rlwb_run(tmp_path: Path) -> None:
    config = run_config(MARKETS["tree, capped"](), "ppo", 1)
    (tmp_path / "run.yaml").write_text(config.as_yaml())
    assert RunConfig.load(tmp_path / "run.yaml") == config


def test_the_sessions_of_a_run_are_drawn_by_its_seed() -> None:
    law = {"moves": 2, "ticks": 4, "caps": [1, 2]}
    one, other, again = (drawn("tree", law, 30, 10, seed) for seed in (0, 1, 0))
    assert len(one) == 2 * 41
    assert (one.dates[1::2] == one.dates[1]).sum() == 30
    assert one.fingerprint == again.fingerprint != other.fingerprint


def test_a_learner_gains_a_part_of_what_the_tree_has_to_give() -> None:
    changes = {"train.iterations": 20, "train.episodes_per_iteration": 300, "algorithm.learning_rate": 0.01}
    market = tree_market(TreeSettings(ticks=5))
    found = certify(market, "pathwise", seed=1, every=8, changes=changes)
    assert [point["iteration"] for point in found["curve"]] == [8, 16, 20]
    assert 0 < found["value"] < market.optimum == found["optimum"]
    assert found["share"] == pytest.approx(found["value"] / market.optimum)
    assert found["share"] > 0.2
    assert found["error"] == 0, "all paths are played, none is sampled"
    assert found["settings"]["algorithm"]["learning_rate"] == 0.01


@pytest.mark.parametrize(
    ("name", "method"),
    [("tree, capped", "ppo"), ("tree, penalty 4", "dqn"), ("garleanu-pedersen", "pathwise"), ("obizhaeva-wang", "ppo")],
)
def test_learners_are_measured_on_every_kind_of_market(name: str, method: str) -> None:
    market = MARKETS[name]()
    found = certify(market, method, seed=0, every=2, changes={**SMALL, "network.hidden": 4})
    assert found["value"] <= found["optimum"] + 1e-9
    assert found["share"] == pytest.approx((found["value"] - market.twap) / (found["optimum"] - market.twap))
    assert found["iteration"] in (1, 2)


def test_the_optimum_of_the_embedded_market_is_what_the_filter_gains_on_the_runs_test_orders() -> None:
    market = EmbeddedMarket()
    changes = {**SMALL, "network.hidden": 4, "market.days": 30, "market.instruments": 4}
    found = certify(market, "ppo", seed=2, every=2, changes=changes)
    config = run_config(market, "ppo", 2, changes)
    assert config.orders == RunConfig().orders
    bench = Workbench(config)
    orders = bench.align(bench.make_orders()[0]["test"])
    rule = FilterOptimum(bench.engine, config.market)
    rule.fit(bench.align(bench.make_orders()[0]["train"]))
    sees, acts = KnownStateInterpreter(), AmountActionInterpreter()
    gained = backtest(bench.simulator, sees, orders, acts, rule, reward=bench.reward).metrics["pa"].mean()
    assert found["optimum"] == pytest.approx(gained, rel=1e-9)
    assert found["share"] == pytest.approx(found["value"] / gained)
    assert found["error"] > 0


def test_what_trades_any_amount_has_its_own_optimum() -> None:
    market = tree_market(TreeSettings(ticks=4, penalty=4.0))
    found = certify(market, "pathwise", seed=0, changes={**SMALL, "network.hidden": 4})
    assert found["optimum"] == market.any_amount > market.optimum


def test_pathwise_refuses_a_market_of_lots_and_names_the_rule() -> None:
    market = tree_market(TreeSettings(moves=2, ticks=3, caps=(1, 2)))
    with pytest.raises(ConfigError, match="lot_size"):
        certify(market, "pathwise", seed=0, changes=SMALL)


def test_what_does_not_exist_is_refused() -> None:
    market = tree_market()
    with pytest.raises(ConfigError, match="no algorithm 'pppo'"):
        certify(market, "pppo", seed=0)
    with pytest.raises(ConfigError, match="judge after every 1 or more"):
        certify(market, "ppo", seed=0, every=0)


def test_settings_of_a_run_can_be_changed_by_name() -> None:
    config: dict[str, Any] = run_config(tree_market(), "ppo", 0, {"algorithm.repeat": 7}).as_dict()
    assert config["algorithm"]["repeat"] == 7
