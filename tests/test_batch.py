"""Rows of batches, and what all rows share."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from rlwb.batch import count_rows, join, split_shared, take_rows
from rlwb.errors import ConfigError


def test_rows_of_arrays_and_nested_mappings() -> None:
    obs = {"a": np.arange(4), "b": {"c": np.arange(8).reshape(4, 2)}, "d": (np.arange(4) * 2, np.arange(4) * 3)}
    taken = take_rows(obs, np.array([3, 0]))
    np.testing.assert_array_equal(taken["a"], [3, 0])
    np.testing.assert_array_equal(taken["b"]["c"], [[6, 7], [0, 1]])
    np.testing.assert_array_equal(taken["d"][1], [9, 0])
    np.testing.assert_array_equal(take_rows(np.arange(5), np.array([4])), [4])
    assert count_rows(obs) == count_rows(np.zeros((4, 3))) == 4


def test_what_is_no_array_belongs_to_all_rows() -> None:
    panel = SimpleNamespace()
    obs = {"features": panel, "session": np.arange(3)}
    assert take_rows(obs, np.array([1]))["features"] is panel
    assert count_rows(obs) == 3
    whole = join([obs, obs])
    assert whole["features"] is panel
    assert whole["session"].tolist() == [0, 1, 2, 0, 1, 2]
    arrays, shared = split_shared(obs)
    assert list(arrays) == ["session"]
    assert shared == {"features": panel}
    plain = np.zeros(2)
    assert split_shared(plain) == (plain, {})


def test_batches_are_joined_in_order() -> None:
    parts = [{"a": np.array([1, 2]), "b": (np.array([[3], [4]]),)}, {"a": np.array([5]), "b": (np.array([[6]]),)}]
    whole = join(parts, np.array([2, 0]))
    assert whole["a"].tolist() == [5, 1]
    assert whole["b"][0].tolist() == [[6], [3]]


def test_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="SimpleNamespace"):
        join([{"features": SimpleNamespace()}, {"features": SimpleNamespace()}])
    with pytest.raises(ConfigError, match="session"):
        join([{"session": np.zeros(1)}, {"data": np.zeros(1)}])
    with pytest.raises(ConfigError, match="no array"):
        count_rows({"features": SimpleNamespace()})
