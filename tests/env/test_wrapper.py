import copy
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rlwb.env import DataQueue, EnvWrapper, ExhaustedError
from rlwb.errors import ConfigError, DataError, InterpreterError
from rlwb.simulator import EpisodeSimulator
from tests.env.toy import ToyAction, ToyObservation, ToyOrder, ToySimulator, orders, toy_env


@pytest.mark.parametrize("states", [orders(30)[1:], DataQueue(orders(30)[1:4], repeat=-1)], ids=["list", "queue"])
def test_h03_gymnasium_checker_finds_nothing(states):
    env = toy_env(states)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)
    assert env.observation_space["prices"].dtype == np.float32
    assert env.observation_space["step"].dtype == np.int32


def test_h03_random_agent_gets_declared_dtypes():
    env = toy_env(DataQueue(orders(5), repeat=-1))
    env.action_space.seed(0)
    obs, _ = env.reset(seed=1)
    for _ in range(200):
        assert obs in env.observation_space
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert type(reward) is float
        assert not truncated
        assert ("metrics" in info) == terminated
        if terminated:
            obs, _ = env.reset()


def test_h03_vector_environments_of_gymnasium_run_it():
    make = lambda: toy_env(DataQueue(orders(5), repeat=-1))  # noqa: E731
    envs = gym.vector.SyncVectorEnv([make, make])
    envs.reset(seed=0)
    for _ in range(20):
        envs.step(envs.action_space.sample())
    envs.close()


def test_episode_by_hand():
    env = toy_env()
    obs, info = env.reset(options={"initial_state": ToyOrder(3, steps=2)})
    assert obs["position"] == 1
    assert info["aux_info"] == {}
    p0, p1 = env.state.episodes[0].prices
    mean = (p0 + p1) / 2
    obs, reward, done, _, info = env.step(1)
    assert obs["position"] == 0.75
    assert reward == pytest.approx(0.25 * (p0 / mean - 1) - 0.1 * 0.25**2 * 1)
    assert not done
    assert "metrics" not in info
    _, reward, done, _, info = env.step(0)
    assert reward == pytest.approx(0.75 * (p1 / mean - 1) - 0.1 * 0.75**2 * 2)
    assert done
    assert info["metrics"]["pa"] == pytest.approx(((0.25 * p0 + 0.75 * p1) / mean - 1) * 1e4)
    assert info["metrics"]["ffr"] == 1
    assert env.status.action_history == [1, 0]
    assert len(env.status.obs_history) == 3
    assert env.status.done
    assert np.isnan(info["aux_info"]["price"])
    assert sum(info["reward_parts"].values()) == pytest.approx(reward)


def test_states_come_in_order_and_end_with_an_error_of_their_own():
    env = toy_env(orders(2))
    for number in (0, 1):
        env.reset()
        assert env.status.initial_state.number == number
    for _ in range(2):
        with pytest.raises(ExhaustedError, match="used up"):
            env.reset()
    env.reset(seed=3)
    assert env.status.initial_state.number == 0


def test_given_state_leaves_the_stream_alone():
    env = toy_env(orders(2))
    env.reset(options={"initial_state": ToyOrder(99)})
    assert env.status.initial_state.number == 99
    env.reset()
    assert env.status.initial_state.number == 0


def test_seed_decides_the_queue_and_the_noise():
    env = toy_env(DataQueue(orders(50), repeat=-1))

    def numbers(seed):
        obs = [env.reset(seed=seed)[0]] + [env.reset()[0] for _ in range(5)]
        return env.status.initial_state.number, [float(o["noise"]) for o in obs]

    assert numbers(5) == numbers(5)
    assert numbers(5) != numbers(6)


def test_m04_the_spaces_are_built_once():
    built = []

    class Counting(ToyObservation):
        @property
        def observation_space(self):
            built.append(1)
            return ToyObservation.observation_space

    env = EnvWrapper(EpisodeSimulator(ToySimulator), Counting(), ToyAction(), DataQueue(orders(3), repeat=-1))
    for _ in range(3):
        env.reset(seed=0)
        while not env.step(0)[2]:
            pass
    assert sum(built) == 1


@pytest.mark.parametrize("states", [DataQueue(orders(4), repeat=-1), orders(4)], ids=["queue", "list"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"])
def test_m06_an_environment_with_a_stream_copies_and_pickles(states, again):
    env = toy_env(states)
    env.reset(seed=3)
    other = again(env)
    for one in (env, other):
        one.np_random, _ = gym.utils.seeding.np_random(7)
    for _ in range(3):
        (obs, _), (expected, _) = env.reset(), other.reset()
        assert {key: part.tobytes() for key, part in obs.items()} == {
            key: part.tobytes() for key, part in expected.items()
        }
        assert env.step(2)[1] == other.step(2)[1]


def test_misuse_is_explained():
    env = toy_env()
    with pytest.raises(ConfigError, match="call reset first"):
        env.step(0)
    with pytest.raises(ConfigError, match="initial_state"):
        env.reset()
    env.reset(options={"initial_state": ToyOrder(0, steps=1)})
    env.step(0)
    with pytest.raises(ConfigError, match="toy order 0"):
        env.step(0)
    with pytest.raises(DataError, match="toy order 1 is over before"):
        env.reset(options={"initial_state": ToyOrder(1, steps=0)})


class StopsInside(ToySimulator):
    def step(self, action):
        next(iter(()))


class StopsAtOnce(ToySimulator):
    def __init__(self, initial, rng):
        raise StopIteration


@pytest.mark.parametrize("simulator", [StopsInside, StopsAtOnce])
def test_stop_iteration_of_user_code_is_not_the_end(simulator):
    env = toy_env(orders(3), simulator=simulator)

    def run():
        env.reset()
        env.step(0)

    with pytest.raises(StopIteration):
        run()


class Broken:
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 3

    def __getitem__(self, index):
        raise self.error


@pytest.mark.parametrize("error", [IndexError("x"), KeyError("x"), StopIteration("x")])
def test_error_of_the_data_set_is_not_the_end(error):
    with pytest.raises((IndexError, KeyError, DataError)) as caught:
        toy_env(Broken(error)).reset()
    assert not isinstance(caught.value, ExhaustedError)
    with pytest.raises((IndexError, KeyError, DataError)) as caught:
        toy_env(DataQueue(Broken(error))).reset()
    assert not isinstance(caught.value, ExhaustedError)


def test_parts_may_be_shared_by_environments():
    obs, action, simulator = ToyObservation(), ToyAction(), EpisodeSimulator(ToySimulator)
    first, second = (EnvWrapper(simulator, obs, action, orders(3)) for _ in range(2))
    first.reset()
    second.reset()
    second.reset()
    first.step(0)
    assert first.status.initial_state.number == 0
    assert second.status.initial_state.number == 1
    assert second.status.cur_step == 0


@pytest.mark.parametrize("metrics", [None, {"pa": None}, {"pa": [1, 2]}, {"pa": "high"}])
def test_metrics_that_are_no_numbers_name_the_class(metrics):
    class Strange(ToySimulator):
        def metrics(self):
            return metrics

    env = toy_env([ToyOrder(0, steps=1)], simulator=Strange)
    env.reset()
    with pytest.raises(InterpreterError, match=r"Strange\.metrics"):
        env.step(0)


def test_float_zero_reward_without_reward_fn():
    env = EnvWrapper(EpisodeSimulator(ToySimulator), ToyObservation(), ToyAction(), orders(1))
    env.reset()
    assert env.step(2)[1] == 0.0


@pytest.mark.parametrize("answer", [None, 3.0, [], {"position": None}])
def test_an_observation_that_is_no_batch_names_the_class(answer):
    class Lost(ToyObservation):
        def interpret(self, known):
            return answer

    with pytest.raises(InterpreterError, match=r"Lost"):
        toy_env(orders(1), obs=Lost).reset()
