"""The native environment as gymnasium's vector environment: against `SyncVectorEnv` on single environments."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from rlwb.env import DataQueue, EnvWrapper, GymVectorEnv
from rlwb.errors import ConfigError, InterpreterError
from rlwb.interop.environments import problem
from rlwb.interpreter import per_order
from rlwb.reward import RewardCombination
from rlwb.simulator import EpisodeSimulator
from tests.env.toy import ToyAction, ToyHaste, ToyInfo, ToyObservation, ToyOrder, ToyPrice, ToySimulator, orders


class Seen(ToyObservation):
    """The toy's observation without what is drawn from the episode's seed."""

    observation_space = gym.spaces.Dict(
        {key: space for key, space in ToyObservation.observation_space.items() if key != "noise"}
    )

    @per_order
    def interpret(self, state: Any) -> dict[str, Any]:
        seen = self.observe(state)
        del seen["noise"]
        return seen


def parts() -> dict[str, Any]:
    reward = RewardCombination({"price": (ToyPrice(), 1.0), "haste": (ToyHaste(), 0.1)})
    return {
        "state_interpreter": Seen(),
        "action_interpreter": ToyAction(),
        "reward": reward,
        "aux_info_collector": ToyInfo(),
    }


def vector(states: Any, num_envs: int = 3, **options: Any) -> GymVectorEnv:
    return GymVectorEnv(EpisodeSimulator(ToySimulator), states, **parts(), num_envs=num_envs, **options)


def reference(states: Any, num_envs: int, mode: str, seed: int) -> SyncVectorEnv:
    queue = DataQueue(states, repeat=-1, seed=seed)
    return SyncVectorEnv(
        [lambda: EnvWrapper(EpisodeSimulator(ToySimulator), seed_iterator=queue, **parts())] * num_envs,
        autoreset_mode=mode,
    )


def told(infos: dict[str, Any]) -> dict[str, Any]:
    """What the masks show of the infos, by name and slot; without `initial_state`, which is ours alone."""
    rows: dict[str, Any] = {}

    def read(part: dict[str, Any], path: str) -> None:
        for name, values in part.items():
            if name.startswith("_") or name == "initial_state":
                continue
            if isinstance(values, dict):
                read(values, f"{path}{name}/")
            else:
                for slot in np.flatnonzero(part[f"_{name}"]):
                    rows[f"{path}{name}/{slot}"] = values[slot]

    read(infos, "")
    return rows


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    else:
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("num_envs", [1, 3, 20])
def test_m02_equals_gymnasiums_own_vector_of_single_environments(mode: str, num_envs: int) -> None:
    ours = vector(orders(7), num_envs, autoreset_mode=mode, seed=5)
    other = reference(orders(7), num_envs, mode, 5)
    assert ours.metadata["autoreset_mode"] is other.metadata["autoreset_mode"] is AutoresetMode(mode)
    assert (ours.observation_space, ours.action_space) == (other.observation_space, other.action_space)
    assert ours.single_observation_space == other.single_observation_space
    (obs, _), (expected, _) = ours.reset(), other.reset()
    assert_same(obs, expected)
    ours.action_space.seed(3)
    for _ in range(60):
        actions = ours.action_space.sample()
        one, two = ours.step(actions), other.step(actions)
        for left, right in zip(one[:4], two[:4], strict=True):
            assert_same(left, right)
        assert ours.observation_space.contains(one[0])
        assert_same(told(one[4]), told(two[4]))
    assert not one[3].any()


def test_the_end_of_an_episode_is_told_with_its_figures() -> None:
    env = vector([ToyOrder(0, steps=1), ToyOrder(1, steps=2)], 2, shuffle=False)
    _, infos = env.reset()
    assert infos["initial_state"].tolist() == [0, 1]
    _, _, ended, _, infos = env.step([4, 4])
    assert ended.tolist() == [True, False]
    assert infos["_metrics"].tolist() == infos["metrics"]["_ffr"].tolist() == [True, False]
    assert infos["metrics"]["ffr"][0] == 1.0
    assert np.isnan(infos["metrics"]["ffr"][1]), "what is not known is missing"
    _, reward, ended, _, infos = env.step([4, 4])
    assert reward[0] == 0, "the step that only resets"
    assert ended.tolist() == [False, True]
    assert infos["_initial_state"].tolist() == [True, False]
    assert infos["initial_state"][0] == 0


def test_every_state_once_an_epoch_and_in_a_new_order() -> None:
    env = vector(orders(5), 2, seed=1)
    _, infos = env.reset()
    started = infos["initial_state"].tolist()
    while len(started) < 15:
        *_, infos = env.step([0, 0])
        if "initial_state" in infos:
            started += infos["initial_state"][infos["_initial_state"]].tolist()
    epochs = [started[low : low + 5] for low in (0, 5, 10)]
    assert all(sorted(epoch) == [0, 1, 2, 3, 4] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    again = env.reset(seed=1)[1]["initial_state"].tolist()
    assert again == started[:2]


def test_the_same_seed_gives_the_same_random_numbers_for_any_number_of_slots() -> None:
    """The first episode's noise depends on seed and number alone."""

    def first(num_envs: int, seed: int) -> float:
        env = GymVectorEnv(
            EpisodeSimulator(ToySimulator),
            orders(9),
            state_interpreter=ToyObservation(),
            action_interpreter=ToyAction(),
            num_envs=num_envs,
        )
        return float(env.reset(seed=seed)[0]["noise"][0])

    assert first(1, 4) == first(6, 4) != first(6, 5)


def test_slots_can_be_reset_by_a_mask() -> None:
    env = vector([ToyOrder(0, steps=1), ToyOrder(1, steps=3)], 2, shuffle=False, autoreset_mode="Disabled")
    env.reset()
    env.step([0, 0])
    with pytest.raises(ConfigError, match="slot 0"):
        env.step([0, 0])
    obs, infos = env.reset(options={"reset_mask": np.array([True, False])})
    assert obs["step"].tolist() == [0, 1]
    assert infos["_initial_state"].tolist() == [True, False]
    env.step([0, 0])


def test_gymnasiums_wrappers_take_it() -> None:
    env = RecordEpisodeStatistics(vector([ToyOrder(0, steps=2)], 2))
    env.reset(seed=0)
    env.step([0, 0])
    *_, infos = env.step([0, 0])
    assert infos["episode"]["l"].tolist() == [2, 2]


def test_it_pickles_and_copies_in_the_midst_of_its_episodes() -> None:
    """M06: the copy goes on as the original does."""
    env = vector(orders(7), 3)
    env.reset(seed=2)
    env.step([1, 2, 3])
    for other in (pickle.loads(pickle.dumps(env)), copy.deepcopy(env)):
        mine = copy.deepcopy(env)
        for _ in range(9):
            one, two = mine.step([1, 0, 2]), other.step([1, 0, 2])
            assert_same(one[0], two[0])
            assert_same(one[1], two[1])


@pytest.mark.parametrize(
    ("options", "named"), [({"num_envs": 0}, "num_envs"), ({"autoreset_mode": "Sometimes"}, "autoreset_mode")]
)
def test_impossible_settings_are_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        vector(orders(2), **options)


def test_an_interrupted_step_leaves_the_episodes_that_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    one = problem({"market": {"name": "synthetic", "instruments": 2, "days": 20}})
    shared = {name: getattr(one, name) for name in ("state_interpreter", "action_interpreter", "reward")}
    env, other = (GymVectorEnv(one.simulator, one.orders, num_envs=3, **shared) for _ in range(2))
    env.reset(seed=1)
    other.reset(seed=1)

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(one.simulator), "step", stop)
        with pytest.raises(KeyboardInterrupt):
            env.step([0, 1, 2])
    for _ in range(12):
        mine, expected = env.step([0, 1, 2]), other.step([0, 1, 2])
        assert_same(mine[0], expected[0])
        assert_same(mine[1:4], expected[1:4])


def test_wrong_use_is_refused() -> None:
    env = vector(orders(3), 2)
    with pytest.raises(ConfigError, match="reset"):
        env.step([0, 0])
    env.reset(seed=0)
    with pytest.raises(InterpreterError, match="row 1"):
        env.step([0, 5])
    with pytest.raises(ConfigError, match="shape"):
        env.step([0])
    with pytest.raises(ConfigError, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([1, 0])})
    env.close()
    with pytest.raises(ConfigError, match="close"):
        env.step([0, 0])
