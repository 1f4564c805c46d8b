import numpy as np
import pytest

from rlwb.errors import InterpreterError
from rlwb.simulator import Episode, EpisodeSimulator


class Count(Episode):
    def __init__(self, initial, rng):
        super().__init__(initial, rng)
        self.left, self.drawn = initial, rng.random()

    def step(self, action):
        self.left -= action

    def get_state(self):
        return self.left

    def done(self):
        return self.left <= 0

    def metrics(self):
        return {"left": self.left} if self.initial > 2 else {}


SEEDS = np.array([3, 4], dtype=np.uint64)


def test_a_simulator_of_episodes_honours_the_forms_that_they_name():
    class Limited(Count):
        forms = frozenset({"limit_price"})

    assert EpisodeSimulator(Limited).forms == {"limit_price"}
    assert not EpisodeSimulator(Count).forms


def test_episodes_step_together():
    simulator = EpisodeSimulator(Count)
    state = simulator.start([5, 2], SEEDS)
    assert (list(state.known), state.done.tolist(), len(state)) == ([5, 2], [False, False], 2)
    state = simulator.step(state, np.array([3, 2]))
    assert (list(state.outcome), state.done.tolist()) == ([2, 0], [False, True])
    state = simulator.step(state, np.array([1, 9]))
    assert list(state.known) == [1, 0], "an episode that has ended is not stepped"
    assert state.take(np.array([1])).known == [0]


def test_a_missing_metric_is_missing():
    state = EpisodeSimulator(Count).start([5, 2], SEEDS)
    np.testing.assert_array_equal(state.metrics()["left"], [5.0, np.nan])
    assert state.details() == {}


def test_an_episode_draws_from_its_own_seed():
    together = EpisodeSimulator(Count).start([5, 2], SEEDS)
    alone = EpisodeSimulator(Count).start([2], SEEDS[1:])
    assert together.episodes[1].drawn == alone.episodes[0].drawn != together.episodes[0].drawn


def test_all_methods_must_be_written():
    class Half(Episode):
        def step(self, action):
            pass

    with pytest.raises(TypeError, match="abstract"):
        Half(1, None)


@pytest.mark.parametrize("metrics", [None, {"pa": None}, {"pa": [1, 2]}, {"pa": "high"}])
def test_metrics_that_are_no_numbers_name_the_class(metrics):
    class Strange(Count):
        def metrics(self):
            return metrics

    with pytest.raises(InterpreterError, match=r"Strange\.metrics"):
        EpisodeSimulator(Strange).start([1], SEEDS[:1]).metrics()
