"""Algorithms of tianshou as learners: they learn, go on exactly after a save, and read the market's observations."""

from __future__ import annotations

import random
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from rlwb.env import make_env
from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import TwapRelativeActionInterpreter
from rlwb.learner import Cut
from rlwb.policy import MLP, Network, Recurrent, make_network
from rlwb.policy.replay import Transitions
from rlwb.policy.tianshou import FAMILIES, TianshouLearner, TianshouSettings
from rlwb.trainer import Trainer, collect, load_checkpoint, save_checkpoint
from tests.trainer.small import small, small_vessel

DISCRETE, CONTINUOUS = gym.spaces.Discrete(3), gym.spaces.Box(0.0, 4.0, (), np.float32)
#: Options with which each learns the problem below within seconds.
OPTIONS: dict[str, dict[str, Any]] = {
    "A2C": {"options": {"ent_coef": 0.01}},
    "PPO": {},
    "Reinforce": {},
    "DQN": {"options": {"target_update_freq": 10}},
    "C51": {"options": {"v_min": -1.0, "v_max": 2.0, "target_update_freq": 10}},
    "RainbowDQN": {"options": {"v_min": -1.0, "v_max": 2.0, "num_atoms": 31, "target_update_freq": 10}},
    "QRDQN": {"options": {"num_quantiles": 20, "target_update_freq": 10}},
    "DiscreteSAC": {"options": {"alpha": 0.05}},
    "SAC": {"options": {"alpha": 0.1, "gamma": 0.0}, "repeat": 8},
    "DDPG": {"options": {"gamma": 0.0}, "learning_rate": 3e-3, "repeat": 8},
    "TD3": {"options": {"gamma": 0.0}, "learning_rate": 3e-3, "repeat": 8},
}


class Layer(Network):
    """A layer on an observation that is an array of two numbers."""

    def __init__(self) -> None:
        super().__init__(width=16)
        self.layer = nn.Linear(2, 16)

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.tanh(self.layer(torch.as_tensor(obs)))


def learner(name: str, **changed: Any) -> TianshouLearner:
    space = DISCRETE if gym.spaces.Discrete in FAMILIES[name] else CONTINUOUS
    given = {"learning_rate": 0.01, "batch_size": 64, "epsilon_updates": 8, **OPTIONS[name], **changed}
    settings = TianshouSettings(algorithm=name, **given)
    return TianshouLearner(lambda seed: make_network(Layer, seed), space, settings, seed=3)


def episodes(policy: TianshouLearner, rng: np.random.Generator, count: int = 128) -> tuple[Any, ...]:
    """Episodes of two steps; the best answer to a step is told by its observation, and the reward is how near it is."""
    side = rng.integers(2, size=2 * count)
    obs = np.stack([side, 1 - side], axis=1).astype(np.float32)
    action = policy.act(obs, rng.random(2 * count))
    return obs, action, worth(side, action), np.tile([False, True], count)


def worth(side: np.ndarray, action: np.ndarray) -> np.ndarray:
    if action.dtype.kind == "i":
        return (action == 2 * side).astype(float)
    return 1.0 - np.abs(action - np.where(side == 1, 3.0, 1.0))


def greedy(policy: TianshouLearner) -> float:
    side = np.array([0, 1])
    return float(worth(side, policy.act(np.stack([side, 1 - side], axis=1).astype(np.float32))).mean())


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_it_learns_what_its_observation_tells(name: str) -> None:
    policy, rng = learner(name), np.random.default_rng(0)
    before = greedy(policy)
    for _ in range(25):
        figures = policy.learn(*episodes(policy, rng))
        assert np.isfinite(list(figures.values())).all()
        if greedy(policy) > 0.85:
            break
    assert greedy(policy) > max(0.85, before)
    assert figures["gradient_steps"] >= 1
    assert "vf_loss" not in figures


def weights(policy: TianshouLearner) -> dict[str, np.ndarray]:
    state = policy.algorithm.state_dict()
    return {name: value.numpy().copy() for name, value in state.items() if isinstance(value, torch.Tensor)}


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_what_is_saved_goes_on_to_the_last_bit_and_global_random_states_stay(name: str, tmp_path) -> None:
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    before = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    policy, loaded = learner(name, repeat=1), learner(name, repeat=1)
    rng = np.random.default_rng(0)
    for _ in range(2):
        policy.learn(*episodes(policy, rng))
    save_checkpoint(tmp_path / "a.pt", {"policy": policy.state_dict()})
    loaded.load_state_dict(load_checkpoint(tmp_path / "a.pt")["policy"])
    np.testing.assert_equal(weights(loaded), weights(policy))
    given = episodes(policy, rng)
    noise = np.random.default_rng(5).random(len(given[0]))
    np.testing.assert_array_equal(policy.act(given[0], noise), loaded.act(given[0], noise))
    for _ in range(2):
        assert policy.learn(*given) == loaded.learn(*given)
    np.testing.assert_equal(weights(loaded), weights(policy))
    after = np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    np.testing.assert_equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


@pytest.mark.parametrize("name", ["A2C", "DiscreteSAC", "RainbowDQN", "SAC"])
@pytest.mark.parametrize("kind", ["native", "dummy"])
def test_it_trains_on_a_market_and_a_resume_goes_on(name: str, kind: str, tmp_path) -> None:
    interpreter = TwapRelativeActionInterpreter(small().simulator.engine, 3.0) if name == "SAC" else small().chooser
    channels = small().features.shape[2]

    def policy() -> TianshouLearner:
        settings = TianshouSettings(algorithm=name, batch_size=16, repeat=2, options=OPTIONS[name]["options"])
        space = interpreter.action_space
        return TianshouLearner(lambda seed: make_network(lambda: Recurrent(channels, 8), seed), space, settings, seed=1)

    def fit(iterations: int, policy: TianshouLearner, resume: Any = None) -> Trainer:
        trainer = Trainer(max_iters=iterations, val_every_n_iters=1, finite_env_type=kind, concurrency=40)
        trainer.fit(small_vessel(policy=policy, action_interpreter=interpreter), resume)
        return trainer

    whole, first, second = policy(), policy(), policy()
    figures = fit(3, whole).metrics
    assert np.isfinite(figures["val/pa"])
    save_checkpoint(tmp_path / "a.pt", fit(2, first).state_dict())
    assert fit(3, second, tmp_path / "a.pt").metrics["val/pa"] == figures["val/pa"]
    np.testing.assert_equal(weights(second), weights(whole))


def test_exploring_fills_a_continuous_space_and_stays_in_it() -> None:
    market, acts = small(), TwapRelativeActionInterpreter(small().simulator.engine, 3.0)
    channels = market.features.shape[2]
    policy = TianshouLearner(
        lambda seed: make_network(lambda: Recurrent(channels, 8), seed),
        acts.action_space,
        TianshouSettings(algorithm="SAC"),
    )
    with make_env(market.simulator, market.observer, acts, None, market.orders) as env:
        taken = collect(env, policy, seed=(1,), keep=True).action
    assert taken.shape == (len(taken),)
    assert 0 <= taken.min() < 0.5
    assert 2.5 < taken.max() <= 3
    # What tianshou is given is what its policy had answered: the environment's action, undone.
    buffer_scale = policy.algorithm.policy.map_action_inverse(taken[:, None].astype(np.float32))
    np.testing.assert_allclose(policy.algorithm.policy.map_action(buffer_scale)[:, 0], taken, rtol=1e-5, atol=1e-5)


def test_the_next_observation_is_that_of_the_episode_s_next_row() -> None:
    policy, rng = learner("DQN"), np.random.default_rng(0)
    obs, action, reward, done = episodes(policy, rng, 3)
    policy.learn(obs, action, reward, done)
    buffer = policy._buffer(policy.replay.everything())
    np.testing.assert_array_equal(buffer.obs, obs)
    np.testing.assert_array_equal(buffer.obs_next, obs[[1, 1, 3, 3, 5, 5]])
    np.testing.assert_array_equal(buffer.next(np.arange(6)), [1, 1, 3, 3, 5, 5])
    np.testing.assert_array_equal(buffer.terminated, done)


# Refusals


@pytest.mark.parametrize(("name", "space"), [("SAC", DISCRETE), ("DiscreteSAC", CONTINUOUS), ("DQN", CONTINUOUS)])
def test_an_action_space_that_does_not_fit_is_refused(name: str, space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"{name} needs a"):
        TianshouLearner(lambda seed: MLP(4), space, TianshouSettings(algorithm=name))


def test_names_that_tianshou_does_not_know_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"A3C.*A2C"):
        TianshouSettings(algorithm="A3C")
    with pytest.raises(ConfigError, match=r"entropy.*ent_coef"):
        TianshouLearner(lambda seed: MLP(4), DISCRETE, TianshouSettings(algorithm="A2C", options={"entropy": 1}))
    with pytest.raises(ConfigError, match="batch_size is 0"):
        TianshouSettings(algorithm="A2C", batch_size=0)
    with pytest.raises(ConfigError, match=r"Discrete\(3\)"):
        learner("A2C").check(gym.spaces.Dict({}), CONTINUOUS)


def test_the_state_of_another_algorithm_is_refused() -> None:
    state = learner("DQN").state_dict()
    for wrong in (state, {"something": 1}):
        with pytest.raises(CheckpointError, match="not that of A2C"):
            learner("A2C").load_state_dict(wrong)


def cut_off() -> tuple[Any, Cut]:
    """Two episodes of three steps, of which the first was cut off when 9, 9 was seen."""
    obs = np.arange(12, dtype=np.float32).reshape(6, 2)
    done = np.array([False, False, True] * 2)
    given = (obs, np.array([0, 1, 2, 0, 1, 2]), np.ones(6), done)
    return given, Cut(np.array([2]), np.full((1, 2), 9, np.float32))


def test_m07_tianshou_is_told_what_is_over_and_what_was_cut() -> None:
    given, cut = cut_off()
    buffer = learner("DQN")._buffer(Transitions.of(*given, cut))
    assert buffer.terminated.tolist() == [False] * 5 + [True]
    assert buffer.truncated.tolist() == [False, False, True, False, False, False]
    assert buffer.done.tolist() == given[3].tolist()
    np.testing.assert_array_equal(buffer.obs, given[0])
    np.testing.assert_array_equal(buffer.obs_next, [*given[0][1:3], [9, 9], *given[0][4:6], given[0][5]])


@pytest.mark.parametrize("name", sorted(name for name in OPTIONS if gym.spaces.Discrete in FAMILIES[name]))
def test_m07_a_cut_makes_a_difference_to_every_algorithm(name: str) -> None:
    """M07: what follows a cut is worth what the algorithm expects, so that it learns otherwise than from an end."""
    given, cut = cut_off()
    one, two = learner(name, batch_size=6, repeat=8), learner(name, batch_size=6, repeat=8)
    one.learn(*given, cut=cut)
    two.learn(*given)
    obs = given[0]
    weights = [dict(each.algorithm.policy.state_dict()) for each in (one, two)]
    same = all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    assert same == (name == "Reinforce"), "Reinforce knows no values"
    assert one.act(obs).shape == (6,)
