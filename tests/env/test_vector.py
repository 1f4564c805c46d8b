import itertools
from collections import Counter
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.env import DataQueue, make_env, vectorize_env
from rlwb.errors import ConfigError, DataError, WorkerError
from rlwb.interpreter import StateInterpreter
from tests.env.toy import ToyOrder, ToySimulator, act, env_fn, orders, toy_env

#: An observation that has come through a pipe is a fresh one, checked where that of `dummy` is.
TYPES = ["dummy", "shmem"]


def collect(envs, policy=act, reset=True):
    """Run to the end; return per episode its observations, rewards and metrics, and the sequence of active episodes."""
    trace, sequence = {}, []
    active = envs.reset() if reset is True else reset
    while len(active):
        sequence.append(active.episode.tolist())
        for row, episode in enumerate(active.episode):
            trace.setdefault(int(episode), []).append({key: part[row].copy() for key, part in active.obs.items()})
        result, after = envs.step(policy(active))
        np.testing.assert_array_equal(result.episode, active.episode)
        assert (result.reward.dtype, result.done.dtype) == (np.float64, bool)
        for row, episode in enumerate(result.episode):
            trace[int(episode)].append((float(result.reward[row]), bool(result.done[row])))
        active = after
    return trace, sequence, rows(envs.metrics())


def rows(columns):
    """The figures by episode."""
    count = max(map(len, columns.values()), default=0)
    return {episode: {name: float(values[episode]) for name, values in columns.items()} for episode in range(count)}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for episode in one:
        for left, right in zip(one[episode], other[episode], strict=True):
            if isinstance(left, dict):
                for key in left:
                    assert left[key].dtype == right[key].dtype
                    assert left[key].tobytes() == right[key].tobytes()
            else:
                assert left == right


@settings(max_examples=40, deadline=None)
@given(steps=st.lists(st.integers(1, 13), max_size=20), concurrency=st.integers(1, 25))
def test_every_state_once_for_any_number_of_slots(steps, concurrency):
    states = [ToyOrder(number, steps=count) for number, count in enumerate(steps)]
    with vectorize_env(toy_env, states, concurrency=concurrency) as envs:
        trace, sequence, metrics = collect(envs)
    assert sorted(metrics) == sorted(trace) == list(range(len(states)))
    taken = Counter(itertools.chain(*sequence))
    assert [taken[number] for number in range(len(states))] == steps
    # No slot idles while states are left: as many as there can be are active until the stream is used up.
    started = [max(active) + 1 for active in itertools.accumulate(sequence, lambda a, b: [max(a), *b])]
    for active, count in zip(sequence, started, strict=True):
        assert len(active) == concurrency or count == len(states)


def test_every_state_once_in_workers_more_workers_than_states():
    with vectorize_env(env_fn(), orders(3), finite_env_type="shmem", concurrency=50) as envs:
        _, _, metrics = collect(envs)
        assert sorted(metrics) == [0, 1, 2]
        assert len(envs._slots) == 3


@pytest.fixture(scope="module")
def dummy_run():
    with vectorize_env(toy_env, orders(20), concurrency=3) as envs:
        return collect(envs)


@pytest.mark.parametrize("kind", ["subproc", "shmem"])
def test_all_types_agree_to_the_last_bit(kind, dummy_run):
    with vectorize_env(env_fn(), orders(20), finite_env_type=kind, concurrency=3) as envs:
        trace, sequence, metrics = collect(envs)
        again = collect(envs)
    assert sequence == dummy_run[1]
    assert repr(metrics) == repr(dummy_run[2])
    assert_same(trace, dummy_run[0])
    assert_same(again[0], dummy_run[0])


@pytest.mark.parametrize("concurrency", [1, 2, 8])
def test_c07_e15_episodes_do_not_depend_on_the_number_of_slots(concurrency, dummy_run):
    with vectorize_env(toy_env, orders(20), concurrency=concurrency) as envs:
        trace, _, metrics = collect(envs)
    assert_same(trace, dummy_run[0])
    assert {k: repr(v) for k, v in metrics.items()} == {k: repr(v) for k, v in dummy_run[2].items()}


def test_e15_seed_of_the_episodes():
    def noise(seed):
        with vectorize_env(toy_env, orders(3), seed=seed) as envs:
            return envs.reset().obs["noise"].tolist()

    assert noise(1) == noise(1) != noise(2)


@pytest.mark.parametrize("kind", TYPES)
def test_observations_stay_as_they_were(kind):
    with vectorize_env(env_fn(), orders(9), finite_env_type=kind, concurrency=2) as envs:
        active = envs.reset()
        kept, copies = [], []
        while len(active):
            kept.append(active.obs)
            copies.append({key: part.copy() for key, part in active.obs.items()})
            _, active = envs.step(np.zeros(len(active), np.int64))
    assert len(kept) > 5
    for obs, copy in zip(kept, copies, strict=True):
        for key in obs:
            np.testing.assert_array_equal(obs[key], copy[key])
    assert any(
        (a["position"][0] != b["position"][0]) or (a["step"][0] != b["step"][0]) for a, b in itertools.pairwise(kept)
    )


class ReusesItsArray(gym.Env):
    """An environment that hands out the same array each step, and keeps the action it was given."""

    observation_space = gym.spaces.Box(0, 100, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self):
        self.obs = np.zeros(1, np.float32)
        self.actions = []

    def reset(self, *, seed=None, options=None):
        self.obs[:] = 0
        return self.obs, {}

    def step(self, action):
        self.obs += 1
        self.actions.append(action)
        return self.obs, float(sum(a[0] for a in self.actions)), self.obs[0] >= 3, False, {"metrics": {"n": 3.0}}


@pytest.mark.parametrize("kind", TYPES)
def test_plain_gymnasium_environment_that_reuses_arrays(kind):
    with vectorize_env(ReusesItsArray, [None], finite_env_type=kind) as envs:
        active, seen, rewards = envs.reset(), [], []
        action = np.zeros((1, 1), np.float32)
        while len(active):
            seen.append(active.obs)
            action += 1
            result, active = envs.step(action)
            rewards.append(result.reward[0])
        assert rows(envs.metrics()) == {0: {"n": 3.0}}
    assert [float(obs[0, 0]) for obs in seen] == [0, 1, 2]
    assert rewards == [1, 3, 6]


class Saturated(StateInterpreter):
    observation_space = gym.spaces.Box(0, np.iinfo(np.int32).max, (2,), np.int32)

    def interpret(self, known):
        return np.full((len(known), 2), np.iinfo(np.int32).max, np.int32)


class Nothing(StateInterpreter):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def interpret(self, known):
        return np.full((len(known), 2), np.nan, np.float32)


class NaNEnv(ReusesItsArray):
    def reset(self, *, seed=None, options=None):
        super().reset()
        return np.full(1, np.nan, np.float32), {}


@pytest.mark.parametrize("kind", TYPES)
def test_c05_observations_that_elsewhere_mean_the_end(kind):
    for make in (env_fn(obs=Saturated), NaNEnv):
        with vectorize_env(make, orders(5), finite_env_type=kind) as envs:
            active, done = envs.reset(), 0
            while len(active):
                shape = (len(active), 1) if make is NaNEnv else len(active)
                result, active = envs.step(np.ones(shape, np.int64))
                done += result.done.sum()
        assert done == 5
    envs = vectorize_env(env_fn(obs=Nothing), orders(5), finite_env_type=kind)
    with pytest.raises(WorkerError, match="Nothing holds NaN"):
        envs.reset()


def test_reset_starts_over_or_starts_another_stream():
    with vectorize_env(toy_env, orders(4), concurrency=2) as envs:
        first, _, _ = collect(envs)
        envs.reset()
        envs.step([0, 0])
        second, _, _ = collect(envs)
        assert_same(first, second)
        envs.initial_states = orders(6)
        third, _, _ = collect(envs)
        assert len(third) == 6
    queue = DataQueue(orders(5), repeat=-1, seed=3)
    with vectorize_env(toy_env, itertools.islice(queue, 7), concurrency=3) as envs:
        assert len(collect(envs)[0]) == 7
    assert queue.state_dict()["position"] == 7


def test_a_finished_slot_takes_the_next_state_at_once():
    states = [ToyOrder(0, 1), ToyOrder(1, 3), ToyOrder(2, 2), ToyOrder(3, 1)]
    with vectorize_env(toy_env, states, concurrency=2) as envs:
        assert collect(envs)[1] == [[0, 1], [2, 1], [2, 1], [3]]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, None])
def test_refuses_numbers_of_workers_that_make_no_sense(wrong):
    for make in (partial(vectorize_env, toy_env), partial(make_env, None, None, None, None)):
        with pytest.raises(ConfigError, match=f"concurrency is {wrong!r}"):
            make(orders(2), concurrency=wrong)


def test_misuse_is_explained():
    with pytest.raises(ConfigError, match=r"'ray\?'.* dummy, subproc, shmem"):
        vectorize_env(toy_env, orders(2), finite_env_type="ray?")
    with pytest.raises(ConfigError, match=r"'ray\?'.* native, dummy, subproc, shmem"):
        make_env(None, None, None, None, orders(2), finite_env_type="ray?")
    envs = vectorize_env(toy_env, orders(4), concurrency=2)
    with pytest.raises(ConfigError, match="call reset"):
        envs.step([0])
    envs.reset()
    for wrong in ([0], [0, 0, 0], 0):
        with pytest.raises(ConfigError, match="2 active"):
            envs.step(wrong)
    envs.step([0, 0])
    envs.close()
    envs.close()
    with pytest.raises(ConfigError, match="closed"):
        envs.reset()
    with pytest.raises(ConfigError, match="closed"):
        envs.step([0])
    for kind in ("dummy", "subproc"):
        with pytest.raises(WorkerError, match=r"ConfigError in env_fn.*: env_fn returned int"):
            vectorize_env(lambda: 3, [1], finite_env_type=kind).reset()


class BadStates:
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index >= 3:
            raise self.error
        return orders(9)[index]


@pytest.mark.parametrize("queue", [True, False])
@pytest.mark.parametrize("error", [ValueError, IndexError, StopIteration])
def test_errors_of_the_data_set_end_the_run_loudly(queue, error):
    states = BadStates(error("bad day"))
    envs = vectorize_env(toy_env, DataQueue(states, shuffle=False) if queue else states, concurrency=2)
    expected = (DataError, RuntimeError) if error is StopIteration else error
    with pytest.raises(expected):
        collect(envs)
    with pytest.raises(ConfigError, match="error has ended it"):
        envs.reset()


class Stops(ToySimulator):
    def step(self, action):
        if self.initial.number == 2:
            raise StopIteration
        super().step(action)


def test_stop_iteration_of_user_code_ends_the_run_loudly():
    envs = vectorize_env(env_fn(simulator=Stops), orders(5), concurrency=2)
    with pytest.raises(WorkerError, match=r"episode 2 \(toy order 2\)"):
        collect(envs)


@pytest.mark.parametrize("kind", TYPES)
def test_figures_of_an_episode_are_sums_of_rewards_and_means_of_information(kind):
    order = ToyOrder(3, steps=4)
    with vectorize_env(env_fn(), [order], finite_env_type=kind) as envs:
        trace, _, metrics = collect(envs, policy=lambda active: np.array([1]))
    figures = metrics[0]
    assert set(figures) == {"pa", "ffr", "odd", "reward/price", "reward/haste", "aux/price"}
    prices = 10 + np.random.default_rng(3).normal(size=4).cumsum() / 10
    # A quarter is sold in each of the four steps; the price of the second is withheld.
    assert figures["reward/haste"] == pytest.approx(-0.1 * (1 + 2 + 3 + 4) / 16)
    assert figures["reward/price"] == pytest.approx(0.0, abs=1e-12)
    assert figures["aux/price"] == pytest.approx((prices[0] + prices[2] + prices[3]) / 3)
    rewards = [step[0] for step in trace[0] if isinstance(step, tuple)]
    assert figures["reward/haste"] + figures["reward/price"] == pytest.approx(sum(rewards))


def test_information_that_is_never_known_is_missing():
    with vectorize_env(toy_env, [ToyOrder(0, steps=1), ToyOrder(1, steps=2)]) as envs:
        assert np.isfinite(collect(envs)[2][1]["aux/price"])

    class Silent(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            return 0, 1.0, False, True, {"aux_info": {"level": float("nan"), "note": "not a number"}}

    with vectorize_env(Silent, [None]) as envs:
        envs.reset()
        envs.step([0])
        figures = rows(envs.metrics())[0]
    assert np.isnan(figures.pop("aux/level"))
    assert figures == {}


class Grows(ReusesItsArray):
    """Returns observations of another shape than it declares."""

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.mark.filterwarnings("ignore:.*:UserWarning:gymnasium")
@pytest.mark.parametrize("kind", TYPES)
def test_observation_of_another_shape_names_the_episodes(kind):
    envs = vectorize_env(Grows, orders(2), finite_env_type=kind, concurrency=2)
    envs.reset()
    with pytest.raises(WorkerError, match=r"episode [01] \(toy order [01]\)"):
        envs.step(np.zeros((2, 1), np.float32))
