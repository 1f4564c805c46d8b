"""M01: observations as plain float32 arrays: shares instead of amounts, in a stated order."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.execution import (
    ArrayStateInterpreter,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    Engine,
    FlatStateInterpreter,
    FullHistoryStateInterpreter,
)
from rlwb.interpreter import StateInterpreter, check_rows_in_space
from rlwb.market import MarketFeatures
from rlwb.policy import ActionMask
from tests.execution.markets import OneOrder, order, sessions_of

PRICES = [[100.0, 101, 102, 103, 104, 105, 106, 107]] * 2


class Two(StateInterpreter[object]):
    """Observations of one's own, nested and with a choice among three."""

    observation_space = gym.spaces.Dict(
        {
            "venue": gym.spaces.Discrete(3, start=1),
            "book": gym.spaces.Tuple((gym.spaces.Box(-1, 1, (2,), np.float64), gym.spaces.Discrete(2))),
        }
    )

    def interpret(self, known: object) -> dict[str, object]:
        return {"venue": np.array([1, 3]), "book": (np.array([[0.5, -0.5], [1.0, 0.0]]), np.array([0, 1]))}


def test_m01_amounts_are_shares_and_counts_are_parts_of_the_longest() -> None:
    engine = Engine(sessions_of(PRICES), 2)
    known = OneOrder(order(800.0, "SELL"), engine)
    known.step(200.0)
    flat = FlatStateInterpreter(CurrentStepStateInterpreter(engine.max_step))
    assert flat.names == ("acquiring", "cur_step", "num_step", "position")
    assert flat.interpret(known.known).tolist() == [[0.0, 0.25, 1.0, 0.75]]
    assert flat.observation_space == gym.spaces.Box(0, 1, (4,), np.float32)


def test_m01_the_whole_history_in_the_order_of_the_names() -> None:
    sessions = sessions_of(PRICES)
    engine = Engine(sessions, 2)
    features = MarketFeatures.build(sessions, fit_rows=np.arange(2))
    inner = FullHistoryStateInterpreter(features, engine.max_step)
    one = OneOrder(order(800.0, day=2), engine)
    one.step(200.0)
    flat, declared = FlatStateInterpreter(inner), inner.interpret(one.known)
    vector = flat.interpret(one.known)
    told = dict(zip(flat.names, vector[0].tolist(), strict=True))
    check_rows_in_space(flat.observation_space, vector, "flat")
    assert vector.dtype == np.float32
    assert told["cur_tick"] == 0.25
    assert [told[f"position_history[{i}]"] for i in range(4)] == [1.0, 0.75, 0.0, 0.0]
    for block in ("data_processed", "data_processed_prev"):
        assert told[f"{block}[1,3]"] == declared[block][0, 1, 3]
    assert "target" not in flat.names


def test_m01_a_dict_has_no_bare_numbers() -> None:
    engine = Engine(sessions_of(PRICES), 2)
    told = ArrayStateInterpreter(CurrentStepStateInterpreter(engine.max_step))
    assert {box.shape for box in told.observation_space.values()} == {(1,)}
    obs = told.interpret(OneOrder(order(800.0), engine).known)
    assert {name: value.tolist() for name, value in obs.items()} == {
        "acquiring": [[1.0]],
        "cur_step": [[0.0]],
        "num_step": [[1.0]],
        "position": [[1.0]],
    }


def test_m01_observations_of_ones_own_are_told_as_they_are() -> None:
    flat = FlatStateInterpreter(Two())
    assert sorted(flat.names) == ["book.0[0]", "book.0[1]", "book.1", "venue[0]", "venue[1]", "venue[2]"]
    rows = [dict(zip(flat.names, row.tolist(), strict=True)) for row in flat.interpret(None)]
    assert [row["venue[0]"] for row in rows] == [1.0, 0.0]
    assert [row["venue[2]"] for row in rows] == [0.0, 1.0]
    assert [row["book.0[1]"] for row in rows] == [-0.5, 0.0]
    assert [row["book.1"] for row in rows] == [0.0, 1.0]


def test_m01_what_has_no_form_as_numbers_is_refused_by_name() -> None:
    class Worded(Two):
        observation_space = gym.spaces.Dict({"news": gym.spaces.Text(5)})

    with pytest.raises(ConfigError, match="news"):
        FlatStateInterpreter(Worded())


@pytest.mark.parametrize("values", [4, [0.0, 0.5, 0.5, 1.0], [0.1, 0.2]])
@pytest.mark.parametrize("left", [1.0, 0.75, 0.5, 0.3, 0.01])
@pytest.mark.parametrize("steps", [1, 3])
def test_m08_masks_are_those_of_the_networks(values: object, left: float, steps: int) -> None:
    engine = Engine(sessions_of(PRICES), 2)
    one = OneOrder(order(1000.0), engine)
    for step in range(steps):
        one.step(0.0 if step else 1000.0 * (1 - left))
    acts = CategoricalActionInterpreter(values)  # type: ignore[arg-type]
    obs = CurrentStepStateInterpreter(engine.max_step).interpret(one.known)
    assert np.array_equal(acts.mask(one.known), ActionMask(acts.shares)(obs).numpy())


def test_m08_masks_by_hand() -> None:
    engine = Engine(sessions_of(PRICES), 2)
    one = OneOrder(order(1000.0), engine)
    acts = CategoricalActionInterpreter(4)
    assert acts.mask(one.known).tolist() == [[True] * 5]
    one.step(500.0)
    assert acts.mask(one.known).tolist() == [[True, True, True, False, False]]
    one.step(0.0)
    one.step(0.0)  # the last step asks for all that is left, whatever the action
    assert acts.mask(one.known).tolist() == [[False, False, True, False, False]]
