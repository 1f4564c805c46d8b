import warnings

import gymnasium as gym
import numpy as np
import pytest

from rlwb.errors import InterpreterError
from rlwb.interpreter import ActionInterpreter, StateInterpreter, check_in_space, per_order, row_of, stack_rows

BOX = gym.spaces.Box(0, 2, (2,), np.float32)
DICT = gym.spaces.Dict({"a": BOX, "inner": gym.spaces.Dict({"n": gym.spaces.Discrete(3)})})


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (BOX, f32(0, 2)),
        (gym.spaces.Box(-np.inf, np.inf, (1,), np.float32), f32(np.inf)),
        (gym.spaces.Box(0, 1, (), np.float32), np.float32(0.5)),
        (gym.spaces.Box(0, 9, (), np.int32), np.array(3, np.int32)),
        (gym.spaces.Discrete(3), 2),
        (gym.spaces.Discrete(3), np.int64(2)),
        (gym.spaces.MultiDiscrete([2, 3]), np.array([1, 2])),
        (gym.spaces.Tuple([BOX, gym.spaces.Discrete(2)]), (f32(1, 1), 1)),
        (DICT, {"a": f32(1, 1), "inner": {"n": 0}}),
    ],
)
def test_what_is_in_the_space_passes_without_a_warning(space, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_in_space(space, value, "X")


@pytest.mark.parametrize(
    ("space", "value", "words"),
    [
        (BOX, f32(1), r"X has shape \(1,\) and dtype float32, its space asks for \(2,\) and float32"),
        (BOX, np.array([0.0, 1.0]), "dtype float64"),
        (BOX, [0.0, 1.0], "dtype float64"),
        (BOX, None, "dtype object"),
        (BOX, f32(0, np.nan), "X holds NaN"),
        (BOX, f32(0, 2.5), r"X is 2.5 at index \(1,\), outside \[0.0, 2.0\]"),
        (gym.spaces.Box(0, 1, (), np.float32), np.float32(-1), r"X is -1.0 at index \(\)"),
        (gym.spaces.Discrete(3), 3, "X returned 3, which is not in"),
        (gym.spaces.Discrete(3), 1.0, "not in"),
        (gym.spaces.Tuple([BOX, BOX]), (f32(0, 0), f32(0, 3)), r"X\[1\] is 3.0"),
        (gym.spaces.Tuple([BOX, BOX]), (f32(0, 0),), "not in"),
        (DICT, [1], "X must return a dict, not list"),
        (DICT, {"a": f32(0, 0)}, r"missing \['inner'\], unknown \[\]"),
        (DICT, {"a": f32(0, 0), "inner": {"n": 0}, "b": 1}, r"missing \[\], unknown \['b'\]"),
        (DICT, {"a": f32(0, 0), "inner": {"n": 7}}, r"X\['inner'\]\['n'\] returned 7"),
    ],
)
def test_what_is_not_is_named(space, value, words):
    with pytest.raises(InterpreterError, match=words):
        check_in_space(space, value, "X")


def test_stack():
    rows = [{"a": f32(i, i), "pair": (i, f32(i))} for i in range(3)]
    stacked = stack_rows(rows)
    assert stacked["a"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert stacked["a"].dtype == np.float32
    assert stacked["pair"][0].tolist() == [0, 1, 2]
    assert stacked["pair"][1].tolist() == [[0], [1], [2]]


class Obs(StateInterpreter[list]):
    observation_space = gym.spaces.Box(0, 10, (1,), np.float32)

    @per_order
    def interpret(self, known):
        return f32(known)


class Act(ActionInterpreter[list]):
    action_space = gym.spaces.Discrete(5)

    @per_order
    def interpret(self, known, action):
        return known * action / 4


def test_what_is_written_for_one_is_lifted_to_many():
    known, actions = [1.0, 2.0, 3.0], np.array([0, 1, 4])
    assert Obs().interpret(known).tolist() == [[1.0], [2.0], [3.0]]
    assert Act().interpret(known, actions).tolist() == [0.0, 0.5, 3.0]
    with pytest.raises(IndexError):
        Act().interpret(known, actions[:2])
    assert Obs().refer(known).tolist() == Obs().interpret(known).tolist()


def test_a_row_is_as_its_space_has_it():
    batch = {"a": np.ones((2, 2), np.float32), "inner": {"n": np.array([1, 2])}}
    row = row_of(batch, 1, DICT)
    check_in_space(DICT, row, "X")
    assert isinstance(row["a"], np.ndarray)
    assert row["inner"]["n"] == 2
    scalar = gym.spaces.Box(0, 9, (), np.int32)
    assert isinstance(row_of(np.array([3], np.int32), 0, scalar), np.ndarray)
    pair = gym.spaces.Tuple([scalar, gym.spaces.Discrete(3)])
    assert row_of((np.array([3], np.int32), np.array([1])), 0, pair) == (3, 1)
