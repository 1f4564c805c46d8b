"""The rules of Qlib's simulator (L04), by hand; order by order beside Qlib in tests/test_benchmarks_agreement.py."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.execution import Engine, ExecutionRules, ExecutionState, OrderExecution, PAPenaltyReward, TickRecord
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from tests.execution.markets import order, sessions_of


def fills(rules: ExecutionRules, volumes: list[float], amount: float = 90.0) -> list[float]:
    """Ask for everything in one step of three ticks; return what each tick fills."""
    engine = Engine(sessions_of([[10.0] * 3], [volumes]), 3, rules)
    batch = OrderExecution(engine).align([order(amount)])
    record = TickRecord.empty(1, 3)
    engine.step(batch, engine.reset(batch), np.array([amount]), record)
    return record.fill[0].tolist()


def test_l04_without_catch_up_the_last_tick_alone_asks_for_the_rest() -> None:
    # 90 shares, 30 a tick, under a cap of half the volume: 10, 100 and 100 shares.
    ours, qlib = ExecutionRules(volume_limit=0.5), ExecutionRules.preset("qlib", volume_limit=0.5)
    assert fills(ours, [20.0, 200.0, 200.0]) == [10.0, 50.0, 30.0]
    assert fills(qlib, [20.0, 200.0, 200.0]) == [10.0, 30.0, 50.0]
    # The remainder of one tick is cut by that tick's cap: 40 + 30 + 5.
    assert fills(qlib, [80.0, 200.0, 10.0]) == [30.0, 30.0, 5.0]
    assert fills(ExecutionRules.preset("qlib", volume_limit=0.5, complete_at_end=False), [20.0, 200.0, 200.0]) == [
        *(10.0, 30.0),
        50.0,  # the request was all of the position, so the last tick asks for it
    ]


def test_l04_steps_are_counted_across_the_break() -> None:
    segments = (("09:30", "09:35"), ("13:00", "13:04"))
    sessions = sessions_of([[10.0] * 9], segments=segments)
    assert Engine(sessions, 3).cell.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3]
    engine = Engine(sessions, 3, ExecutionRules.preset("qlib"))
    assert engine.cell.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert engine.max_step == 3
    batch = OrderExecution(engine).align([order(9.0, start="09:34", end="13:04")])
    assert engine.num_steps(batch).tolist() == [2]
    state, filled = engine.reset(batch), []
    for _ in range(2):
        state, step = engine.step(batch, state, state.position / 2)
        filled.append(step.fill[0])
    assert filled == [4.5, 4.5]  # ticks 4 and 5, then 6 to 8 with what is left


def test_l04_the_price_advantage_is_weighed_by_what_was_requested() -> None:
    # A buy of 100 at 9 and 11, TWAP 10: the first step requests 50 and fills 20 under the cap, at a PA of 1,000 bp.
    engine = Engine(sessions_of([[9.0, 11.0]], [[40.0, 1000.0]]), 1, ExecutionRules.preset("qlib", volume_limit=0.5))
    simulator = OrderExecution(engine)
    batch = simulator.align([order(100.0)])
    outcome = simulator.step(ExecutionState.start(engine, batch), np.array([50.0])).outcome
    assert PAPenaltyReward(10.0).reward(outcome)["pa"] == pytest.approx(0.2 * 1000)
    requested = PAPenaltyReward(10.0, weight="requested").reward(outcome)
    assert requested["pa"] == pytest.approx(0.5 * 1000)
    assert requested["penalty"] == pytest.approx(-10.0 * 0.2**2)
    with pytest.raises(ConfigError, match="weight is 'asked'"):
        PAPenaltyReward(weight="asked")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "layers",
    [
        [{"execution.rules": "qlib"}, {"execution.rules.volume_limit": 0.2}],
        [{"execution": {"rules": "qlib"}}, {"execution": {"rules": {"volume_limit": 0.2}}}],
        [{"execution.preset": "qlib", "execution.rules.volume_limit": 0.2}],
    ],
)
def test_l04_a_run_names_the_rules_and_changes_them(layers: list[dict[str, object]]) -> None:
    config = RunConfig.load(None, *(Layer("test", one) for one in layers))
    assert config.execution.rules == ExecutionRules(catch_up=False, step_grid="session", volume_limit=0.2)
    assert "no catch-up in the last step; steps cross breaks" in config.execution.rules.describe()


def test_l04_an_unknown_preset_of_rules_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"execution\.preset.*'qlab'.*qlib"):
        RunConfig.load(None, Layer("test", {"execution.rules": "qlab"}))
