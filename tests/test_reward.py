import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.errors import ConfigError, InterpreterError
from rlwb.reward import AuxiliaryInfoCollector, Reward, RewardCombination


class Linear(Reward[float]):
    def __init__(self, slope=1.0):
        self.slope = slope

    def reward(self, state):
        return self.slope * state


class Returns(Reward):
    def reward(self, state):
        return state


finite = st.floats(-1e6, 1e6)


@given(states=st.lists(finite, max_size=6), slopes=st.lists(finite, min_size=1, max_size=4), weight=finite)
def test_combination_single_and_batch_agree_to_the_bit(states, slopes, weight):
    both = RewardCombination({f"r{i}": (Linear(slope), weight) for i, slope in enumerate(slopes)})
    batch = both.reward_batch(states)
    assert batch.dtype == np.float64
    assert batch.tolist() == [both(state) for state in states]
    parts = both.parts_batch(states)
    for row, state in enumerate(states):
        assert {name: part[row] for name, part in parts.items()} == both.parts(state)
        assert sum(both.parts(state).values()) == both(state)


def test_combination_by_hand():
    both = RewardCombination({"up": (Linear(2), 1.0), "down": (Linear(-1), 0.5)})
    assert both(3.0) == 4.5
    assert both.parts(3.0) == {"up": 6.0, "down": -1.5}


def test_single_parts():
    assert Linear(2).parts(3.0) == {"Linear": 6.0}
    assert Linear(2).parts_batch([1.0, 2.0])["Linear"].tolist() == [2.0, 4.0]
    assert Linear().reward_batch([]).shape == (0,)


@pytest.mark.parametrize("value", [1, 1.5, np.float32(0.5), np.int64(3)])
def test_numbers_become_float(value):
    got = Returns()(value)
    assert type(got) is float
    assert got == value


@pytest.mark.parametrize("value", [None, math.nan, math.inf, "1", [1.0], np.zeros(1), np.zeros(()), np.nan, 1j])
def test_anything_else_is_refused_by_name(value):
    for reward in (Returns(), RewardCombination({"x": (Returns(), 1.0)})):
        with pytest.raises(InterpreterError, match="Returns returned"):
            reward(value)
        with pytest.raises(InterpreterError, match="Returns returned"):
            reward.reward_batch([value])


def test_combination_refuses_nothing_and_odd_weights():
    with pytest.raises(ConfigError, match="at least one"):
        RewardCombination({})
    with pytest.raises(ConfigError, match="'x' is nan"):
        RewardCombination({"x": (Linear(), math.nan)})


def test_rewards_inside_a_combination_get_the_environment():
    inner = Linear()
    outer = RewardCombination({"outer": (RewardCombination({"inner": (inner, 1.0)}), 1.0)})
    outer.bind("env")
    assert inner.env == outer.env == "env"


def test_auxiliary_information():
    class Info(AuxiliaryInfoCollector[float]):
        def collect(self, state):
            return {"state": state}

    assert Info()(2.0) == {"state": 2.0}
