"""Plain environments of gymnasium: what is trained, that it goes on exactly, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import TimeLimit

import rlwb
from rlwb.errors import CheckpointError, ConfigError
from rlwb.learner import Learner
from rlwb.policy import DQN, PPO
from rlwb.policy.space_network import SpaceNetwork, vector_size
from rlwb.trainer import Callback, History, Trainer

QUICK: dict[str, Any] = {
    "iterations": 4,
    "episodes_per_iteration": 4,
    "validate_every": 2,
    "validation_episodes": 3,
    "test_episodes": 5,
    "progress": "none",
}


def cartpole() -> gym.Env[Any, Any]:
    return TimeLimit(gym.make("CartPole-v1").unwrapped, 60)


def quick(env: Any = cartpole, algorithm: Any = "ppo", **changed: Any) -> Trainer:
    return rlwb.train_gym(env, algorithm, **{**QUICK, **changed})


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    assert trainer.vessel is not None
    return trainer.vessel.policy.state_dict()["network"]


def assert_equal_weights(one: Trainer, other: Trainer) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def test_ppo_learns_to_balance() -> None:
    history = History()
    trainer = quick(iterations=8, episodes_per_iteration=8, validate_every=4, callbacks=[history])
    assert trainer.vessel is not None
    first, last = (np.mean([row["reward"] for row in part]) for part in (history.train[:2], history.train[-2:]))
    assert last > 1.4 * first
    test = trainer.test(trainer.vessel)
    assert test.count == 5
    assert test.returns.mean() > first
    assert trainer.metrics["test/reward"] == test.returns.mean()


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_the_same_seed_gives_the_same_weights_whatever_runs_side_by_side(algorithm: str) -> None:
    one, two = quick(algorithm=algorithm, concurrency=1), quick(algorithm=algorithm, concurrency=3)
    assert_equal_weights(one, two)
    assert one.metrics["reward"] == two.metrics["reward"]
    other = quick(algorithm=algorithm, seed=1)
    assert any(not torch.equal(weights(one)[name], weights(other)[name]) for name in weights(one))


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(algorithm: str, tmp_path: Path) -> None:
    whole = quick(algorithm=algorithm)
    quick(algorithm=algorithm, iterations=2, folder=tmp_path)
    on = quick(algorithm=algorithm, folder=tmp_path)
    assert on.current_iter == 4
    assert_equal_weights(whole, on)
    assert (tmp_path / "metrics" / "train.csv").read_text().count("\n") == 5
    with pytest.raises(CheckpointError, match="run"):
        quick(algorithm=algorithm, folder=tmp_path, learning_rate=1e-4)
    with pytest.raises(CheckpointError, match="run"):
        quick(lambda: gym.make("CartPole-v1", max_episode_steps=50), algorithm=algorithm, folder=tmp_path)


@pytest.mark.parametrize("other", [{(0, 0): 2.0}, np.array([1.0, 3.0]), {1: 1.0, "a": 2.0}])
def test_whatever_an_environment_is_made_with_tells_trainings_apart(other: Any, tmp_path: Path) -> None:
    class Paying(Shifted):
        def __init__(self, table: Any) -> None:
            super().__init__()

    gym.register("Paying-v0", Paying)
    try:
        for table in ({(0, 0): 1.0}, {(0, 0): 1.0}):
            quick(lambda table=table: gym.make("Paying-v0", table=table), iterations=1, folder=tmp_path / "a")
        with pytest.raises(CheckpointError, match="run"):
            quick(lambda: gym.make("Paying-v0", table=other), iterations=1, folder=tmp_path / "a")
        quick(lambda: gym.make("Paying-v0", table=other), iterations=1, folder=tmp_path / "b")
        with pytest.raises(CheckpointError, match="run"):
            quick(lambda: gym.make("Paying-v0", table=[1.0, 4.0]), iterations=1, folder=tmp_path / "b")
    finally:
        gym.registry.pop("Paying-v0")


def test_it_stops_where_it_is_good_enough_and_tests_on_other_episodes() -> None:
    trainer = quick(stop_at=1.0)
    assert trainer.current_iter == 2
    assert trainer.vessel is not None
    validation, test = trainer.vessel.val_seed_iterator(), trainer.vessel.test_seed_iterator()
    assert validation is not None
    assert test is not None
    assert not set(validation) & set(test)


def test_fewer_iterations_than_lie_between_two_validations_are_validated_at_their_end() -> None:
    trainer = rlwb.train_gym("CartPole-v1", **{**QUICK, "iterations": 1, "validate_every": 5})
    assert trainer.current_iter == 1
    assert trainer.metrics["val/reward"] > 0


def test_the_threshold_is_that_of_the_environments_spec() -> None:
    """CartPole-v1 counts as solved at 475."""
    found: list[Any] = []

    class Look(Callback):
        def on_fit_start(self, trainer: Trainer, vessel: Any) -> None:
            found.extend(getattr(one, "value", None) for one in trainer.callbacks)

    quick("CartPole-v1", iterations=1, validate_every=1, callbacks=[Look()])
    assert 475.0 in found


def test_an_environment_is_copied_and_left_as_it_was() -> None:
    env = cartpole()
    env.reset(seed=3)
    before = np.array(env.unwrapped.state)  # type: ignore[attr-defined]
    assert_equal_weights(quick(env, iterations=2), quick(cartpole, iterations=2))
    np.testing.assert_array_equal(env.unwrapped.state, before)  # type: ignore[attr-defined]


def test_threads_of_torch_are_as_they_were() -> None:
    found: list[int] = []

    class Look(Callback):
        def on_iter_end(self, trainer: Trainer, vessel: Any) -> None:
            found.append(torch.get_num_threads())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        quick(iterations=2, threads=1, callbacks=[Look()])
        assert (found, torch.get_num_threads()) == ([1, 1], 2)
    finally:
        torch.set_num_threads(before)


def test_an_algorithm_of_ones_own_gets_what_it_asks_for_by_name() -> None:
    class Mine(PPO):
        def __init__(self, observation_space: gym.Space[Any], actions: int, seed: int, wide: int = 8) -> None:
            from rlwb.policy import ActorCritic, make_network

            make = lambda: ActorCritic(SpaceNetwork(observation_space, wide), actions)  # noqa: E731
            super().__init__(make_network(make, seed), seed=seed)
            self.whole_episodes = False

    trainer = quick(algorithm=Mine, iterations=2, wide=4)
    assert trainer.vessel is not None
    assert isinstance(trainer.vessel.policy, Mine)
    assert trainer.vessel.policy.trunk.width == 4
    made: Learner = Mine(cartpole().observation_space, 2, 0)
    assert quick(algorithm=made, iterations=2).vessel.policy is made  # type: ignore[union-attr]


def test_a_network_of_ones_own() -> None:
    trainer = quick(algorithm="dqn", iterations=2, network=lambda space: SpaceNetwork(space, 5, activation="relu"))
    assert trainer.vessel is not None
    assert isinstance(trainer.vessel.policy, DQN)
    assert trainer.vessel.policy.trunk.width == 5


def test_an_algorithm_of_tianshou_on_numbers_as_actions() -> None:
    """SAC on Pendulum, which is only ever cut off; tianshou's own settings by their names."""
    pendulum = lambda: TimeLimit(gym.make("Pendulum-v1").unwrapped, 20)  # noqa: E731
    given = {"iterations": 2, "batch_size": 16, "repeat": 1, "gamma": 0.9, "alpha": 0.1, "hidden": 8}
    one, two = (quick(pendulum, "SAC", concurrency=c, **given) for c in (2, 2))
    assert one.vessel is not None
    policy = one.vessel.policy
    assert policy.settings.options == {"gamma": 0.9, "alpha": 0.1}  # type: ignore[attr-defined]
    assert policy.act(np.zeros((3, 3), np.float32)).shape == (3, 1)
    assert one.metrics["reward"] == two.metrics["reward"] < 0


class Shifted(gym.Env[Any, Any]):
    """Pays for the action that its observation names; its actions are 3 and 4."""

    observation_space = gym.spaces.Dict({"named": gym.spaces.Discrete(2, start=3), "noise": gym.spaces.Box(0, 1, (2,))})
    action_space = gym.spaces.Discrete(2, start=3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 4
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        paid, self.left = float(action == self.named), self.left - 1
        return self._seen(), paid, self.left == 0, False, {}

    def _seen(self) -> dict[str, Any]:
        self.named = 3 + int(self.np_random.integers(2))
        return {"named": np.int64(self.named), "noise": self.np_random.random(2).astype(np.float32)}


def test_spaces_that_are_no_box_and_actions_that_do_not_start_at_0() -> None:
    trainer = quick(Shifted, iterations=12, episodes_per_iteration=32, learning_rate=1e-2)
    assert trainer.vessel is not None
    assert trainer.test(trainer.vessel).returns.tolist() == [4.0] * 5


@pytest.mark.parametrize(
    ("env", "algorithm", "settings", "named"),
    [
        ("CartPoll-v1", "ppo", {}, "CartPoll-v1"),
        ("CartPole-v1", "pop", {}, "ppo"),
        ("CartPole-v1", "ppo", {"gama": 0.9}, "gamma"),
        ("CartPole-v1", "SAC", {}, "Box"),
        ("CartPole-v1", "DQN", {"gama": 0.9}, "gama"),
        ("Pendulum-v1", "ppo", {}, "SAC"),
        ("CartPole-v1", "opd", {}, "opd"),
        ("CartPole-v1", 3, {}, "algorithm is 3"),
        ("CartPole-v1", "ppo", {"iterations": 0}, "max_iters is 0"),
        ("CartPole-v1", "ppo", {"episodes_per_iteration": 0}, "episode_per_iter is 0"),
        ("CartPole-v1", "ppo", {"threads": 0}, "threads is 0"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_training(
    env: str, algorithm: Any, settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        quick(env, algorithm, **settings)


def test_observations_are_laid_out_as_gymnasium_flattens_them() -> None:
    space = gym.spaces.Dict(
        {
            "box": gym.spaces.Box(-1, 1, (2, 3)),
            "one": gym.spaces.Discrete(4, start=2),
            "many": gym.spaces.MultiDiscrete([2, 3]),
            "bits": gym.spaces.MultiBinary(3),
            "pair": gym.spaces.Tuple([gym.spaces.Discrete(2), gym.spaces.Box(0, 1, (), np.float32)]),
        }
    )
    space.seed(1)
    rows = [space.sample() for _ in range(5)]
    network = SpaceNetwork(space, 4)
    assert vector_size(space) == gym.spaces.flatdim(space)
    stacked = {key: np.stack([row[key] for row in rows]) for key in ("box", "one", "many", "bits")}
    pair = tuple(np.stack([row["pair"][place] for row in rows]) for place in range(2))
    found = network._vector(space, {**stacked, "pair": pair})
    expected = np.stack([gym.spaces.flatten(space, row) for row in rows])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
    with pytest.raises(ConfigError, match="Text"):
        SpaceNetwork(gym.spaces.Text(3))


def test_the_environment_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "gymnasium.md").read_text(encoding="utf-8")
    code = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[-1]
    exec(code, {})
    assert np.isfinite(float(capsys.readouterr().out.splitlines()[0]))


def test_rlwb_has_no_other_attribute_of_this_kind() -> None:
    with pytest.raises(AttributeError, match="train_gims"):
        _ = rlwb.train_gims
