"""M01, M02, M08: Stable-Baselines3 and sb3-contrib train on rlwb's environments as they come."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3 as sb3
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.evaluation import evaluate_policy

import rlwb.interop  # noqa: F401 - it registers the ids
from rlwb.env import GymVectorEnv
from rlwb.errors import ConfigError
from rlwb.interop.environments import order_executions, problem
from rlwb.interop.sb3 import NativeVecEnv, make_vec_env

ID = "rlwb/OrderExecution-v0"
SMALL: dict[str, Any] = {"market": {"name": "synthetic", "instruments": 2, "days": 20}}
LITTLE = {"n_steps": 8, "batch_size": 8, "n_epochs": 1}

LEARNERS: dict[str, tuple[type[Any], str, dict[str, Any]]] = {
    "PPO": (sb3.PPO, "MlpPolicy", LITTLE),
    "DQN": (sb3.DQN, "MlpPolicy", {"learning_starts": 16, "buffer_size": 1000}),
    "MaskablePPO": (sb3_contrib.MaskablePPO, "MlpPolicy", LITTLE),
    "RecurrentPPO": (
        sb3_contrib.RecurrentPPO,
        "MlpLstmPolicy",
        {**LITTLE, "policy_kwargs": {"lstm_hidden_size": 8, "net_arch": [8]}},
    ),
}


@pytest.mark.parametrize("observation", ["flat", "dict"])
@pytest.mark.parametrize("interpreter", ["full_history", "current_step"])
def test_m01_its_check_env_passes_on_both_interpreters(interpreter: str, observation: str) -> None:
    env = gym.make(ID, config={**SMALL, "state_interpreter": {"name": interpreter}}, observation=observation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if observation == "dict":  # it would rather have the session's features as one vector
            warnings.filterwarnings("ignore", ".*unconventional shape")
        check_env(env)


@pytest.mark.parametrize("name", LEARNERS)
def test_m01_m08_learners_train_on_the_single_environment(name: str) -> None:
    learner, policy, settings = LEARNERS[name]
    env = gym.make(ID, config=SMALL)
    model = learner(policy, env, **settings, seed=0, device="cpu").learn(24)
    action, _ = model.predict(env.reset(seed=0)[0])
    assert env.action_space.contains(int(action))


@pytest.mark.parametrize("name", LEARNERS)
def test_m02_m08_learners_train_on_the_native_environment(name: str) -> None:
    learner, policy, settings = LEARNERS[name]
    env = make_vec_env(16, SMALL)
    more = {"batch_size": 64} if "n_steps" in settings else {}
    model = learner(policy, env, **{**settings, **more}, seed=0, device="cpu").learn(256)
    assert model.num_timesteps == 256
    assert {info["l"] for info in model.ep_info_buffer} <= set(range(1, 9))  # told as a Monitor does
    assert len(model.ep_info_buffer) > 16


def test_m01_dicts_and_continuous_actions_train() -> None:
    config = {**SMALL, "action_interpreter": {"name": "twap_relative", "max_ratio": 4.0}}
    env = make_vec_env(8, config, observation="dict")
    sb3.PPO("MultiInputPolicy", env, **LITTLE, seed=0, device="cpu").learn(64)
    assert not env.has_attr("action_masks")
    single = gym.make(ID, config=config)
    sb3.PPO("MlpPolicy", single, **LITTLE, seed=0, device="cpu").learn(16)


def test_m02_the_vecenv_is_the_native_environment() -> None:
    """The same seed and actions give the observations, rewards and ends of the gymnasium vector environment."""
    ours = make_vec_env(8, SMALL)
    ours.seed(5)
    native = order_executions(8, SMALL, autoreset_mode="SameStep")
    obs, (other, _) = ours.reset(), native.reset(seed=5)
    rng = np.random.default_rng(0)
    returns, lengths = np.zeros(8), np.zeros(8)
    for _ in range(20):
        assert np.array_equal(obs, other)
        actions = rng.integers(0, 5, 8)
        obs, rewards, dones, infos = ours.step(actions)
        other, expected, ended, _, told = native.step(actions)
        returns, lengths = returns + expected, lengths + 1
        assert np.array_equal(rewards, expected.astype(np.float32))
        assert np.array_equal(dones, ended)
        for slot in range(8):
            assert ("episode" in infos[slot]) == dones[slot] == ("terminal_observation" in infos[slot])
            if dones[slot]:
                assert infos[slot]["episode"]["r"] == pytest.approx(returns[slot])
                assert infos[slot]["episode"]["l"] == lengths[slot]
                assert np.array_equal(infos[slot]["terminal_observation"], told["final_obs"][slot])
                assert infos[slot]["metrics"]["pa"] == told["final_info"]["metrics"]["pa"][slot]
        returns[dones], lengths[dones] = 0, 0


def test_m02_a_seed_of_the_learner_seeds_the_stream() -> None:
    def first() -> np.ndarray:
        env = make_vec_env(4, SMALL)
        model = sb3.PPO("MlpPolicy", env, **LITTLE, seed=3, device="cpu").learn(32)
        return np.asarray(model.rollout_buffer.observations)

    assert np.array_equal(first(), first())


def test_m08_masks_of_each_order() -> None:
    env = make_vec_env(4, SMALL)
    env.reset()
    assert get_action_masks(env).all()
    env.step(np.array([2, 1, 0, 4]))
    masks = get_action_masks(env)
    assert masks.tolist() == [
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True] * 5,
        [True] * 5,  # the order was done, and the next has begun
    ]
    assert env.env_method("action_masks", indices=[1])[0].tolist() == masks[1].tolist()


def test_m02_evaluate_policy_of_stable_baselines_runs() -> None:
    env = make_vec_env(4, SMALL, part="test")
    model = sb3.PPO("MlpPolicy", env, **LITTLE, device="cpu")
    mean, _ = evaluate_policy(model, env, n_eval_episodes=8)
    assert np.isfinite(mean)


def test_m02_what_the_vecenv_cannot_do_is_refused_by_name() -> None:
    one = problem(SMALL)
    parts = {"state_interpreter": one.state_interpreter, "action_interpreter": one.action_interpreter}
    with pytest.raises(ConfigError, match="SameStep"):
        NativeVecEnv(GymVectorEnv(one.simulator, one.orders, num_envs=2, **parts))
    env = make_vec_env(2, SMALL)
    with pytest.raises(ConfigError, match="render"):
        env.env_method("render")
    with pytest.raises(ConfigError, match="reward"):
        env.set_attr("reward", None, indices=[0])
