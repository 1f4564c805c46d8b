import itertools
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.env import DataQueue, LogWriter, vectorize_env
from rlwb.errors import ConfigError, DataError, WorkerError
from rlwb.interpreter import StateInterpreter
from tests.env.toy import ToyOrder, ToySimulator, act, env_fn, orders, toy_env

TYPES = ["dummy", "subproc", "shmem"]


def collect(envs, policy=act, reset=True):
    """Run to the end; return per episode its observations, rewards and metrics, and the sequence of active episodes."""
    trace, sequence, metrics = {}, [], {}
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
        assert set(result.metrics) == set(result.episode[result.done].tolist())
        metrics |= result.metrics
        active = after
    return trace, sequence, metrics


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
        assert len(envs._slots._workers) == 3


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
    assert [float(obs[0, 0]) for obs in seen] == [0, 1, 2]
    assert rewards == [1, 3, 6]
    assert result.metrics == {0: {"n": 3.0}}


class Saturated(StateInterpreter):
    observation_space = gym.spaces.Box(0, np.iinfo(np.int32).max, (2,), np.int32)

    def interpret(self, state):
        return np.full(2, np.iinfo(np.int32).max, np.int32)


class Nothing(StateInterpreter):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def interpret(self, state):
        return np.full(2, np.nan, np.float32)


class NaNEnv(ReusesItsArray):
    def reset(self, *, seed=None, options=None):
        super().reset()
        return np.full(1, np.nan, np.float32), {}


@pytest.mark.parametrize("kind", ["dummy", "shmem"])
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


class NotesAll(LogWriter):
    def __init__(self, loglevel=20):
        self.events, self.episodes = [], []
        super().__init__(loglevel)

    def on_env_all_ready(self):
        super().on_env_all_ready()
        self.events.append("ready")

    def on_env_all_done(self):
        self.events.append("done")

    def log_episode(self, length, rewards, contents):
        self.episodes.append((length, rewards, contents))


@pytest.mark.parametrize("kind", ["dummy", "shmem"])
def test_c09_writers_get_keys_that_come_and_go(kind, dummy_run):
    writer = NotesAll()
    with vectorize_env(env_fn(), orders(20), finite_env_type=kind, concurrency=3, loggers=writer) as envs:
        trace, _, metrics = collect(envs)
    assert_same(trace, dummy_run[0])
    assert writer.events == ["ready", "done"]
    assert writer.global_episode == writer.episode_count == 20
    assert writer.global_step == sum(order.steps for order in orders(20))
    assert Counter(length for length, _, _ in writer.episodes) == Counter(order.steps for order in orders(20))
    for length, rewards, contents in writer.episodes:
        assert len(rewards) == length
        assert len(contents) == length + 1
        assert all(set(step) == set() for step in contents[:-1])
        assert set(contents[-1]) == {"at_last_step", "pa", "ffr", "odd"}
    assert sorted(repr(c[-1]["pa"]) for _, _, c in writer.episodes) == sorted(repr(m["pa"]) for m in metrics.values())


class LogsAtReset(ToySimulator):
    def get_state(self):
        if self.env is not None and self.count == 0 and not self.env.logger.logs():
            self.env.logger.add_string("only_at_reset", "here")
        return super().get_state()


def test_c09_key_of_the_reset_only():
    writer = NotesAll()
    with vectorize_env(env_fn(simulator=LogsAtReset), orders(2), loggers=[writer]) as envs:
        collect(envs)
    assert all(contents[0] == {"only_at_reset": "here"} for _, _, contents in writer.episodes)


def test_only_what_the_least_severe_writer_wants_is_gathered():
    envs = vectorize_env(toy_env, orders(1), loggers=[NotesAll(30), NotesAll(10)])
    envs.reset()
    assert envs._slots._runners[0].env.logger.wanted == 10
    envs.step([0])
    silent = vectorize_env(toy_env, orders(2)[1:])
    silent.reset()
    assert silent._slots._runners[0].step(0).log == {}


def test_reset_starts_over_or_starts_another_stream():
    with vectorize_env(toy_env, orders(4), concurrency=2) as envs:
        first, _, _ = collect(envs)
        envs.reset()
        envs.step([0, 0])
        second, _, _ = collect(envs)
        assert_same(first, second)
        third, _, _ = collect(envs, reset=envs.reset(orders(6)))
        assert len(third) == 6
    with DataQueue(orders(5), repeat=-1, seed=3) as queue:
        with vectorize_env(toy_env, itertools.islice(queue, 7), concurrency=3) as envs:
            assert len(collect(envs)[0]) == 7
        assert queue.state_dict()["position"] == 7


def test_a_finished_slot_takes_the_next_state_at_once():
    states = [ToyOrder(0, 1), ToyOrder(1, 3), ToyOrder(2, 2), ToyOrder(3, 1)]
    with vectorize_env(toy_env, states, concurrency=2) as envs:
        assert collect(envs)[1] == [[0, 1], [2, 1], [2, 1], [3]]


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, None])
def test_refuses_numbers_of_workers_that_make_no_sense(wrong):
    with pytest.raises(ConfigError, match="concurrency"):
        vectorize_env(toy_env, orders(2), concurrency=wrong)


def test_misuse_is_explained():
    with pytest.raises(ConfigError, match="'dummy', 'subproc' or 'shmem'"):
        vectorize_env(toy_env, orders(2), finite_env_type="ray?")
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


@pytest.mark.parametrize("kind", ["dummy", "subproc"])
def test_stop_iteration_of_user_code_ends_the_run_loudly(kind):
    envs = vectorize_env(env_fn(simulator=Stops), orders(5), finite_env_type=kind, concurrency=2)
    with pytest.raises(WorkerError, match=r"episode 2 \(toy order 2\)"):
        collect(envs)


def test_metric_that_is_also_logged_is_refused():
    class Twice(ToySimulator):
        def step(self, action):
            super().step(action)
            self.env.logger.add_scalar("pa", 1.0)

    envs = vectorize_env(env_fn(simulator=Twice), [ToyOrder(0, 1)], loggers=NotesAll())
    with pytest.raises(WorkerError, match="both logged and metrics"):
        collect(envs)
