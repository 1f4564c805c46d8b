"""M05: models of Stable-Baselines3 and sb3-contrib judged natively, as if each order had been executed alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
import torch

import rlwb.interop  # noqa: F401 - it registers the ids
from rlwb.errors import ConfigError
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.evaluate import judge
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from tests.experiment.test_work import tiny

ID = "rlwb/OrderExecution-v0"
LITTLE = {"n_steps": 16, "batch_size": 16, "n_epochs": 1}
LSTM = {"policy_kwargs": {"lstm_hidden_size": 8, "net_arch": [8]}}
WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}

MODELS: dict[str, tuple[type[Any], str, str, dict[str, Any]]] = {
    "ppo": (sb3.PPO, "MlpPolicy", "flat", LITTLE),
    "ppo-dict": (sb3.PPO, "MultiInputPolicy", "dict", LITTLE),
    "dqn": (sb3.DQN, "MlpPolicy", "flat", {"learning_starts": 8, "buffer_size": 100}),
    "maskable": (sb3_contrib.MaskablePPO, "MlpPolicy", "flat", LITTLE),
    "recurrent": (sb3_contrib.RecurrentPPO, "MlpLstmPolicy", "flat", {**LITTLE, **LSTM}),
}


def run_of(folder: Path, **changes: Any) -> RunDirectory:
    small = {"market.instruments": 2, "train.iterations": 1, "backtest.top": 1, "train.episodes_per_iteration": 20}
    config: RunConfig = tiny(**{**small, **changes})
    run = RunDirectory.create(folder / "run", config)
    with recorded(run, list(WORK)):
        for stage, work in WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_of(tmp_path_factory.mktemp("sb3"))


def trained(name: str, run: RunDirectory, folder: Path) -> tuple[Any, Path, str]:
    """Train a model a little on the run's orders; then its weights are drawn so that it does not always do the same."""
    learner, policy, observation, settings = MODELS[name]
    env = gym.make(ID, config=str(run.path), observation=observation)
    model = learner(policy, env, **settings, seed=0, device="cpu").learn(32)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weights in model.policy.parameters():
            width = 2.0 / weights.shape[-1] ** 0.5 if weights.ndim > 1 else 0.0
            weights.copy_(width * torch.randn(weights.shape, generator=rng))
    model.save(folder / f"{name}.zip")
    return model, folder / f"{name}.zip", observation


@pytest.mark.parametrize("name", MODELS)
def test_m05_a_zip_trades_as_its_model_does_on_single_orders(name: str, run: RunDirectory, tmp_path: Path) -> None:
    model, path, observation = trained(name, run, tmp_path)
    found = judge(run, {name: path}, trust=True).results[name].orders.set_index("order_id")
    env = gym.make(ID, config=str(run.path), part="test", observation=observation)
    seen = set()
    for _ in range(len(found)):
        obs, _ = env.reset()
        state, first, done, actions = None, np.ones(1, dtype=bool), False, []
        while not done:
            more = {"action_masks": env.unwrapped.action_masks()} if name == "maskable" else {}
            action, state = model.predict(obs, state=state, episode_start=first, deterministic=True, **more)
            obs, _, done, _, info = env.step(int(action))
            first, actions = np.zeros(1, dtype=bool), [*actions, int(action)]
        order = env.unwrapped.status.initial_state.order_id  # type: ignore[attr-defined]
        assert info["metrics"]["pa"] == pytest.approx(found.loc[order, "pa"], abs=1e-9)
        seen.add(tuple(actions))
    assert len(seen) > 1  # it does not do the same whatever it sees


def test_m05_a_model_in_memory_is_judged_as_its_file(run: RunDirectory, tmp_path: Path) -> None:
    model, path, _ = trained("recurrent", run, tmp_path)
    found = judge(run, {"live": model, "file": path}, trust=True)
    assert np.array_equal(found.results["live"].pa, found.results["file"].pa)
    assert "RecurrentActorCriticPolicy" in found.table.notes[0]


def test_m05_continuous_actions(tmp_path: Path) -> None:
    run = run_of(tmp_path, action_interpreter="position_share", algorithm="pathwise")
    env = gym.make(ID, config=str(run.path))
    model = sb3.PPO("MlpPolicy", env, **LITTLE, seed=0, device="cpu").learn(16)
    model.save(tmp_path / "share.zip")
    found = judge(run, {"share": tmp_path / "share.zip"}, trust=True).results["share"]
    assert (found.orders["ffr"] == 1).all()


def test_m05_a_model_of_other_spaces_is_refused_by_name(run: RunDirectory, tmp_path: Path) -> None:
    env = gym.make(ID, config={"market": {"days": 20}, "action_interpreter": {"name": "categorical", "values": 2}})
    sb3.PPO("MlpPolicy", env, **LITTLE, device="cpu").save(tmp_path / "three.zip")
    with pytest.raises(ConfigError, match=r"three.*actions.*Discrete\(3\)"):
        judge(run, {"three": tmp_path / "three.zip"}, trust=True)
    sb3.PPO("MlpPolicy", "CartPole-v1", **LITTLE, device="cpu").save(tmp_path / "pole.zip")
    with pytest.raises(ConfigError, match=r"pole.*observations.*\(4,\)"):
        judge(run, {"pole": tmp_path / "pole.zip"}, trust=True)


def test_m05_a_zip_of_something_else_is_refused(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"PK\x05\x06" + bytes(18))
    with pytest.raises(ConfigError, match=r"x\.zip"):
        judge(run, {"mine": tmp_path / "x.zip"}, trust=True)
