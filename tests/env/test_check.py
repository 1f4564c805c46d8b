"""H07: faults in a user's parts are found in one episode, by class and key."""

import math

import numpy as np
import pytest

from rlwb.env import check_env
from rlwb.errors import InterpreterError, RlwbError
from rlwb.interpreter import per_order
from rlwb.reward import Reward, RewardCombination
from tests.env.toy import ToyAction, ToyObservation, ToyOrder, ToyPrice, ToySimulator, toy_env

ORDER = ToyOrder(1, steps=3)


def test_h07_good_parts_pass():
    figures = check_env(toy_env, ORDER)
    assert figures["length"] == 3
    assert math.isfinite(figures["reward"])
    assert figures["ffr"] == 1
    assert figures["reward"] == pytest.approx(figures["reward/price"] + figures["reward/haste"])
    assert "aux/price" in figures
    assert figures == check_env(toy_env, ORDER)


def reward(value, lift):
    class OwnReward(Reward):
        def reward(self, state):
            return value

    class PerOrder(OwnReward):
        reward = per_order(OwnReward.reward)

    PerOrder.__name__ = "OwnReward"
    return PerOrder() if lift else OwnReward()


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, np.zeros(2), np.zeros((1, 1)), [1.0, 2.0], "1"])
def test_h07_reward_that_is_no_number(value, lift):
    with pytest.raises(InterpreterError, match="OwnReward returned"):
        check_env(lambda: toy_env(reward=reward(value, lift)), ORDER)
    combined = RewardCombination({"price": (ToyPrice(), 1.0), "own": (reward(value, lift), 2.0)})
    with pytest.raises(InterpreterError, match="OwnReward returned"):
        check_env(lambda: toy_env(reward=combined), ORDER)


def observation(change):
    class OwnObservation(ToyObservation):
        def observe(self, state):
            obs = super().observe(state)
            change(obs)
            return obs

    return OwnObservation


@pytest.mark.parametrize(
    ("key", "change", "words"),
    [
        ("prices", lambda o: o.update(prices=o["prices"].astype(np.float64)), "dtype float64"),
        ("prices", lambda o: o.update(prices=o["prices"][:-1]), r"shape \(12, 2\)"),
        ("prices", lambda o: o["prices"].fill(np.nan), "NaN"),
        ("prices", lambda o: o["prices"].fill(-1), r"is -1.0 at index \(0, 0\), outside \[0.0, 1000.0\]"),
        ("noise", lambda o: o.update(noise=None), "dtype object"),
        ("step", lambda o: o.update(step=np.int64(1)), "int64"),
        ("position", lambda o: o.pop("position"), "missing"),
        ("extra", lambda o: o.update(extra=1), "unknown"),
    ],
)
def test_h07_observation_outside_its_space(key, change, words):
    with pytest.raises(InterpreterError, match=f"OwnObservation.*{words}") as caught:
        check_env(lambda: toy_env(obs=observation(change)), ORDER)
    assert repr(key) in str(caught.value)


def test_h07_observation_that_is_none():
    class Silent(ToyObservation):
        def observe(self, state):
            return None

    with pytest.raises(InterpreterError, match="Silent must return a dict, not NoneType"):
        check_env(lambda: toy_env(obs=Silent), ORDER)


class RaisingReward(Reward):
    def reward(self, state):
        return self.helper(state)

    def helper(self, state):
        return {}["price"]


class RaisingAction(ToyAction):
    def interpret(self, state, action):
        raise ValueError("what is this")


class RaisingSimulator(ToySimulator):
    def step(self, action):
        return np.zeros(2)[5]


class SilentAction(ToyAction):
    def interpret(self, state, action):
        return None


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"reward": RaisingReward()}, r"RaisingReward\.helper \(line \d+ of .*test_check\.py\) raised KeyError"),
        ({"reward": RewardCombination({"own": (RaisingReward(), 1)})}, r"RaisingReward\.helper"),
        ({"action": RaisingAction}, r"RaisingAction\.interpret .* raised ValueError .*toy order 1: what is this"),
        ({"simulator": RaisingSimulator}, r"RaisingSimulator\.step .* raised IndexError"),
        ({"action": SilentAction}, "raised TypeError"),
    ],
)
def test_h07_part_that_raises_is_named(parts, words):
    with pytest.raises(InterpreterError, match=words):
        check_env(lambda: toy_env(**parts), ORDER)


def test_h07_episode_that_does_not_end():
    class Endless(ToySimulator):
        def step(self, action):
            pass

    with pytest.raises(InterpreterError, match="not ended after 50 steps"):
        check_env(lambda: toy_env(simulator=Endless), ORDER, max_steps=50)


def test_errors_of_rlwb_pass_as_they_are():
    class Refuses(ToySimulator):
        def __init__(self, initial, rng):
            raise RlwbError("no such day")

    with pytest.raises(RlwbError, match=r"^no such day$"):
        check_env(lambda: toy_env(simulator=Refuses), ORDER)
