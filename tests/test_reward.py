import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.errors import ConfigError, InterpreterError
from rlwb.interpreter import per_order
from rlwb.reward import AuxiliaryInfoCollector, Reward, RewardCombination, sum_parts


class Linear(Reward):
    def __init__(self, slope=1.0):
        self.slope = slope

    def reward(self, outcome):
        return self.slope * np.asarray(outcome)


class OneByOne(Linear):
    @per_order
    def reward(self, outcome):
        return self.slope * outcome


class Returns(Reward):
    def __init__(self, answer):
        self.answer = answer

    def reward(self, outcome):
        return self.answer


finite = st.floats(-1e6, 1e6)


@given(states=st.lists(finite, min_size=1, max_size=6), slopes=st.lists(finite, min_size=1, max_size=4), weight=finite)
def test_a_reward_of_one_gives_the_bits_of_a_reward_of_many(states, slopes, weight):
    one, many = (
        RewardCombination({f"r{i}": (kind(slope), weight) for i, slope in enumerate(slopes)})
        for kind in (OneByOne, Linear)
    )
    assert {name: part.tolist() for name, part in one.parts(states).items()} == {
        name: part.tolist() for name, part in many.parts(states).items()
    }


def test_combination_by_hand():
    both = RewardCombination({"up": (Linear(2), 1.0), "down": (Linear(-1), 0.5)})
    parts = both.parts([3.0, 4.0])
    assert {name: part.tolist() for name, part in parts.items()} == {"up": [6.0, 8.0], "down": [-1.5, -2.0]}
    assert sum_parts(parts).tolist() == [4.5, 6.0]


def test_a_reward_without_summands_bears_the_class_name():
    assert {name: part.tolist() for name, part in Linear(2).parts([3.0]).items()} == {"Linear": [6.0]}
    assert Linear().parts([])["Linear"].shape == (0,)


def test_summands_of_a_dict_are_named():
    parts = Returns({"a": np.array([1, 2]), "b": np.array([0.5, 0.5])}).parts([0, 0])
    assert sum_parts(parts).tolist() == [1.5, 2.5]
    assert all(part.dtype == np.float64 for part in parts.values())


@pytest.mark.parametrize(
    "answer",
    [None, [math.nan], [math.inf], "1", ["1"], 1.0, np.zeros(2), np.zeros((1, 1)), [1j], {"x": [math.nan]}, {"x": 1.0}],
)
def test_anything_but_one_finite_number_an_episode_is_refused_by_name(answer):
    for reward in (Returns(answer), RewardCombination({"x": (Returns(answer), 1.0)})):
        with pytest.raises(InterpreterError, match="Returns returned"):
            reward.parts([0.0])


def test_combination_refuses_nothing_and_odd_weights():
    with pytest.raises(ConfigError, match="at least one"):
        RewardCombination({})
    with pytest.raises(ConfigError, match="'x' is nan"):
        RewardCombination({"x": (Linear(), math.nan)})


def test_auxiliary_information_may_be_written_for_one():
    class Info(AuxiliaryInfoCollector):
        @per_order
        def collect(self, outcome):
            return {"state": outcome}

    assert Info().collect([2.0, 3.0])["state"].tolist() == [2.0, 3.0]
