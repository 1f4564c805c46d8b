"""The differentiable rewards against the engine's, and their derivative against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.execution import (
    Engine,
    ExecutionRules,
    ExecutionState,
    PAPenaltyReward,
    SparseReward,
    StepTerms,
    align_orders,
    check_differentiable,
    step_terms,
)
from rlwb.reward import sum_parts
from tests.execution.markets import order, sessions_of

IMPACT = {"volume_limit": 1.0, "temporary_impact_bps": 300.0, "permanent_impact_bps": 200.0}
ROOTS = {"temporary_impact_shape": "square_root", "permanent_impact_shape": "square_root"}
RULES: dict[str, dict[str, Any]] = {
    "simple": {},
    "costs": {"commission_bps": 2.0, "sell_tax_bps": 5.0, "half_spread_bps": 3.0},
    "linear": IMPACT,
    "roots": {**IMPACT, **ROOTS},
    "mixed": {**IMPACT, "temporary_impact_shape": "square_root", "commission_bps": 1.0},
}
PASSING = {"volume_limit": 1.0, "transient_impact_bps": 400.0, "transient_half_life": 2.0}
RULES["transient"] = PASSING
RULES["transient exponential"] = {**PASSING, "transient_decay": "exponential", "transient_impact_shape": "linear"}
RULES["all impacts"] = {**PASSING, **IMPACT, "permanent_impact_shape": "square_root", "half_spread_bps": 3.0}
REWARD = PAPenaltyReward(penalty=30.0, scale=0.5, inventory=4.0)
PRICES = [[10.0, 10.2, 9.9, np.nan, 10.4, 10.1, 10.3]]


def played(rules: ExecutionRules, shares: np.ndarray) -> tuple[StepTerms, np.ndarray]:
    """Return the terms of a buy and a sell over steps of 2, 2, 2 and 1 ticks, and what the engine pays for `shares`."""
    sessions = sessions_of(PRICES, volumes=[[500.0, 700.0, 400.0, 0.0, 900.0, 800.0, 600.0]])
    engine = Engine(sessions, 2, rules)
    batch = align_orders([order(200, "BUY"), order(200, "SELL")], sessions, rules)
    state, paid = ExecutionState.start(engine, batch), np.zeros(2)
    for k in range(shares.shape[1]):
        ask = np.minimum(shares[:, k] * 200, state.now.position)
        now, fills = engine.step(batch, state.now, ask)
        state = state.after(now, fills)
        paid += sum_parts(REWARD.parts(state.outcome))
    assert state.done.all()
    terms = step_terms(engine, REWARD, batch)
    assert isinstance(terms, StepTerms)
    return terms, paid


SHARES = np.array([[0.4, 0.3, 0.1, 0.2], [0.1, 0.2, 0.0, 0.7]])


@pytest.mark.parametrize("name", RULES)
def test_rewards_are_those_of_the_engine(name: str) -> None:
    terms, paid = played(ExecutionRules(**RULES[name]), SHARES)
    assert terms.rewards(SHARES) == pytest.approx(paid, abs=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_the_derivative_is_that_of_differences(name: str) -> None:
    terms, _ = played(ExecutionRules(**RULES[name]), SHARES)
    shares = torch.tensor(SHARES.clip(0.01), requires_grad=True)
    terms.rewards(shares).sum().backward()
    found = np.empty_like(SHARES)
    for k in range(4):
        step = np.zeros_like(SHARES)
        step[:, k] = 1e-6
        found[:, k] = (terms.rewards(SHARES.clip(0.01) + step) - terms.rewards(SHARES.clip(0.01) - step)) / 2e-6
    assert shares.grad is not None
    assert shares.grad.numpy() == pytest.approx(found, rel=1e-4, abs=1e-4)


def test_another_reward_than_that_of_the_terms_is_told_by_order() -> None:
    terms, paid = played(ExecutionRules(**IMPACT), SHARES)
    sessions = sessions_of(PRICES)
    batch = align_orders([order(200, "BUY"), order(200, "SELL")], sessions)
    terms.check_paid(SHARES, paid, batch)
    with pytest.raises(ConfigError, match=r"SELL.*1 of 2 orders"):
        terms.check_paid(SHARES, paid + np.array([0.0, 1.0]), batch)


def test_what_has_no_derivative_is_named() -> None:
    sessions = sessions_of(PRICES)
    for changes in ({"lot_size": 100.0}, {"min_fee": 1.0}, {"complete_at_end": False}):
        with pytest.raises(ConfigError, match=next(iter(changes))):
            check_differentiable(Engine(sessions, 2, ExecutionRules(**changes)), REWARD)
    with pytest.raises(ConfigError, match="requested"):
        check_differentiable(Engine(sessions, 2), PAPenaltyReward(weight="requested"))
    with pytest.raises(ConfigError, match="SparseReward"):
        check_differentiable(Engine(sessions, 2), SparseReward())
