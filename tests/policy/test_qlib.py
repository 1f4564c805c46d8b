"""Policies out of Qlib's checkpoints (L01). That they decide as there is in test_benchmarks_agreement.py."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import CategoricalActionInterpreter, Engine, FullHistoryStateInterpreter, OrderExecution
from rlwb.execution import generate_orders as generate
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import TRAIN, settings_of
from rlwb.experiment.training import train_policy
from rlwb.market import FeatureSettings, MarketFeatures, SyntheticSettings, synthetic_sessions
from rlwb.policy import DQN, PPO, from_qlib
from rlwb.trainer import backtest, list_checkpoints, load_checkpoint

CHANNELS, WIDTH, OUTPUT, ACTIONS = 5, 4, 3, 5
Weights = dict[str, torch.Tensor]


def extractor(seed: int = 0, rnn: type[nn.RNNBase] = nn.GRU, layers: int = 1) -> Weights:
    """The state of a network in Qlib's arrangement."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        parts = {
            **{name: rnn(WIDTH, WIDTH, layers, batch_first=True) for name in ("raw_rnn", "prev_rnn", "pri_rnn")},
            "raw_fc": nn.Sequential(nn.Linear(CHANNELS, WIDTH), nn.ReLU()),
            "pri_fc": nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU()),
            "dire_fc": nn.Sequential(nn.Linear(2, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()),
            "fc": nn.Sequential(nn.Linear(3 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, OUTPUT), nn.ReLU()),
        }
        return dict(nn.ModuleDict(parts).state_dict())


def ppo(**kwargs: Any) -> Weights:
    """The state of a policy, as Qlib's PPO has it."""
    trunk, rng = extractor(**kwargs), torch.Generator().manual_seed(1)
    heads = {
        "actor.layer_out.0.weight": torch.randn(ACTIONS, OUTPUT, generator=rng),
        "actor.layer_out.0.bias": torch.randn(ACTIONS, generator=rng),
        "critic.value_out.weight": torch.randn(1, OUTPUT, generator=rng),
        "critic.value_out.bias": torch.randn(1, generator=rng),
    }
    both = {f"{side}.extractor.{name}": value for side in ("actor", "critic") for name, value in trunk.items()}
    return {**both, **heads}


def under(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}{name}": value for name, value in weights.items()}


#: What Qlib's trainer saves beside the weights.
TRAINERS = {
    "callbacks": {"checkpoint": None, "earlystopping": {"wait": 0, "best": np.float64(1.5), "best_weights": None}},
    "loggers": {
        "logbuffer": {"active_env_ids": {0}, "aggregated_metrics": defaultdict(float, {"pa": np.float32(6.0)})}
    },
    "should_stop": True,
    "metrics": {"reward": np.float64(0.5), "val/n": np.int64(3)},
}


@pytest.mark.parametrize(
    "state",
    [
        {"vessel": {"policy": ppo()}, **TRAINERS},
        {"policy": ppo()},
        {"state_dict": ppo()},
        ppo(),
        {**ppo(), **under("_actor_critic.", ppo())},
        under("_actor_critic.", ppo()),
        under("vessel.policy.", ppo()),
        under("module.policy.", ppo()),
    ],
    ids=["trainer", "vessel", "state_dict", "policy", "tianshou 0.4", "converted", "flat", "parallel"],
)
def test_l01_weights_are_read_whatever_their_prefix_and_without_trust(state: dict[str, Any], tmp_path: Path) -> None:
    torch.save(state, tmp_path / "latest.pth")
    found = from_qlib(tmp_path / "latest.pth")
    assert isinstance(found.policy, PPO)
    assert found.action_values.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    weights, own = ppo(), found.policy.network.state_dict()
    for name, theirs in {
        "trunk.market.gru.weight_hh_l0": "actor.extractor.raw_rnn.weight_hh_l0",
        "trunk.market.front.0.bias": "actor.extractor.raw_fc.0.bias",
        "trunk.private.bias_ih_l0": "actor.extractor.pri_rnn.bias_ih_l0",
        "trunk.private_front.0.weight": "actor.extractor.pri_fc.0.weight",
        "trunk.direction.2.weight": "actor.extractor.dire_fc.2.weight",
        "trunk.join.2.bias": "actor.extractor.fc.2.bias",
        "actor.weight": "actor.layer_out.0.weight",
        "critic.bias": "critic.value_out.bias",
    }.items():
        assert torch.equal(own[name], weights[theirs]), name
    # All but the branch that Qlib never uses came in: 4 arrays of prev_rnn stay.
    assert len(own) == len(weights) - len(extractor()) - 4


def test_l01_a_dqn_acts_by_the_value_of_its_actions() -> None:
    actor = {name.removeprefix("actor."): value for name, value in ppo().items() if name.startswith("actor.")}
    weights, old = under("model.", actor), {name: value + 1 for name, value in under("model_old.", actor).items()}
    found = from_qlib({"vessel": {"policy": {**old, **weights}}}, [0, 0.1, 0.2, 0.5, 1])
    assert isinstance(found.policy, DQN)
    assert torch.equal(found.policy.network.head.weight, weights["model.layer_out.0.weight"])
    assert found.action_values.tolist() == [0, 0.1, 0.2, 0.5, 1]


def test_l01_a_file_that_names_code_is_refused_by_that_name_unless_trusted(tmp_path: Path) -> None:
    path = tmp_path / "latest.pth"
    torch.save({"vessel": {"policy": ppo()}, "metrics": {"share": Fraction(1, 3)}}, path)
    with pytest.raises(CheckpointError, match=r"latest\.pth.*fractions\.Fraction.*trust=True"):
        from_qlib(path)
    assert isinstance(from_qlib(path, trust=True).policy, PPO)


def without(weights: Weights, name: str) -> Weights:
    return {key: value for key, value in weights.items() if key != name}


@pytest.mark.parametrize(
    ("state", "named"),
    [
        (ppo(rnn=nn.LSTM), "lstm"),
        (ppo(rnn=nn.RNN), "rnn_type rnn"),
        (ppo(layers=2), "2 layer"),
        (without(ppo(), "critic.value_out.bias"), "critic.value_out.bias"),
        (without(ppo(), "actor.extractor.fc.2.bias"), "fc.2.bias"),
        (without(ppo(), "actor.extractor.raw_rnn.weight_hh_l0"), "raw_rnn.weight_hh_l0"),
        (without(ppo(), "actor.layer_out.0.bias"), "layer_out"),
        ({**ppo(), "actor.layer_out.0.weight": torch.ones(ACTIONS, OUTPUT + 1)}, "size mismatch"),
        ({**ppo(), "critic.value_out.weight": torch.ones(1, OUTPUT + 1)}, "size mismatch"),
        ({**ppo(), "actor.extractor.raw_rnn.weight_hh_l0": torch.tensor(1.0)}, "another network"),
        ({0: torch.ones(1)}, "no weights"),
        ({**ppo(), "critic.extractor.fc.2.bias": torch.ones(OUTPUT)}, "critic.extractor.fc.2.bias"),
        ({**ppo(), "actor.extractor.attention.weight": torch.ones(1)}, "attention.weight"),
        (extractor(), "raw_rnn"),
        ({"fc.weight": torch.ones(2, 2)}, "fc"),
        ({}, "no weights"),
    ],
)
def test_l01_another_network_is_refused_by_what_it_is(state: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        from_qlib(state)


def test_l01_other_files_and_action_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere\.pth does not exist"):
        from_qlib(tmp_path / "nowhere.pth")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(CheckpointError, match=r"cut\.pth"):
        from_qlib(tmp_path / "cut.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match=r"list\.pth holds a list"):
        from_qlib(tmp_path / "list.pth")
    with pytest.raises(ConfigError, match="5 actions, but 3"):
        from_qlib(ppo(), [0.0, 0.5, 1.0])


def test_l01_the_policy_is_backtested_as_any_other() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=6, seed=3))
    features = MarketFeatures.build(sessions, FeatureSettings(), fit_rows=np.arange(6))
    engine = Engine(sessions, 6)
    found = from_qlib(ppo())
    acts, sees = (
        CategoricalActionInterpreter(found.action_values),
        FullHistoryStateInterpreter(features, engine.max_step),
    )
    simulator = OrderExecution(engine)
    episodes = backtest(simulator, sees, simulator.align(generate(sessions, seed=1)), acts, found.policy)
    assert np.isfinite(episodes.metrics["pa"]).all()
    assert episodes.metrics["ffr"] == pytest.approx(1.0)


def fitted(place: Path, config: RunConfig) -> RunDirectory:
    run = RunDirectory.create(place, config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    return run


def test_l01_a_run_takes_the_checkpoint_by_name_and_leaves_its_weights(tmp_path: Path) -> None:
    torch.save(ppo(), tmp_path / "weights.pt")
    settings = {
        "market.instruments": 2,
        "market.days": 15,
        "algorithm": {"name": "qlib", "checkpoint": "weights.pt"},
        "train.iterations": 1,
        "train.episodes_per_iteration": 8,
        "backtest.top": 1,
        "backtest.bootstrap_samples": 100,
        "baselines": ["twap"],
    }
    config = RunConfig.load(None, Layer("test", settings, tmp_path))
    assert config.algorithm.settings["checkpoint"] == str(tmp_path / "weights.pt")
    run = fitted(tmp_path / "run", config)
    backtest_policies(run, config)
    (path,) = list_checkpoints(run.checkpoints).values()
    kept = load_checkpoint(path)["vessel"]["policy"]["network"]
    assert torch.equal(kept["actor.weight"], ppo()["actor.layer_out.0.weight"])
    assert "checkpoint-0001" in (run.backtest / "summary.csv").read_text()

    before = settings_of(TRAIN, config)
    torch.save(ppo(seed=7), tmp_path / "weights.pt")  # other weights are another training
    assert settings_of(TRAIN, config) != before

    learning = RunConfig.load(None, Layer("test", {**settings, "algorithm.learn": True}, tmp_path))
    (path,) = list_checkpoints(fitted(tmp_path / "again", learning).checkpoints).values()
    assert not torch.equal(load_checkpoint(path)["vessel"]["policy"]["network"]["actor.weight"], kept["actor.weight"])

    wrong = RunConfig.load(None, Layer("test", {**settings, "features.columns": ["close"]}, tmp_path))
    with pytest.raises(ConfigError, match=r"5 features.*the run has 1 and 5"):
        fitted(tmp_path / "wrong", wrong)
