"""Rewards of orders whose fills are cut against the engine's, and their derivative against differences."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.execution import (
    Engine,
    ExecutionRules,
    ExecutionState,
    Order,
    OrderBatch,
    PAPenaltyReward,
    StepTerms,
    TickRecord,
    TickTerms,
    align_orders,
    step_terms,
)
from rlwb.execution.tick_terms import is_cut, tick_terms
from rlwb.reward import sum_parts
from tests.execution.markets import order, sessions_of
from tests.execution.test_engine import batch_of, problems

REWARD = PAPenaltyReward(penalty=30.0, scale=0.5, inventory=4.0)
JUDGED = st.fixed_dictionaries(
    {
        "benchmark": st.sampled_from(["twap", "arrival"]),
        "unfilled_at": st.sampled_from([None, "close", "end", "ignore"]),
        "commission_bps": st.sampled_from([0.0, 2.0]),
        "sell_tax_bps": st.sampled_from([0.0, 5.0]),
    }
)


def shares_of(shares: np.ndarray) -> Any:
    """What answers with given shares of the position, an array or a tensor of shape (N, K)."""
    return lambda left: shares[:, len(left) - 1]


def played(engine: Engine, batch: OrderBatch, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the fill of each tick, of shape (N, T), and what the engine pays."""
    state, record = ExecutionState.start(engine, batch), TickRecord.empty(len(batch), engine.price.shape[1])
    paid = np.zeros(len(batch))
    for k in range(shares.shape[1]):
        live = ~state.now.done
        ask = np.where(live, shares[:, k] * state.now.position, 0.0)
        state = state.after(*engine.step(batch, state.now, ask, record))
        paid += np.where(live, sum_parts(REWARD.parts(state.outcome)), 0.0)
    assert state.done.all()
    return record.fill, paid


@settings(max_examples=250, deadline=None)
@given(problems(), JUDGED)
def test_fills_and_rewards_are_those_of_the_engine(problem: tuple, judged: dict[str, Any]) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks, orders, drawn = problem
    rules = dataclasses.replace(rules, lot_size=0.0, odd_lot="trade_at_end", complete_at_end=True, **judged)
    engine, batch = Engine(sessions, ticks, rules), batch_of(orders)
    own = engine.benchmarks(batch)
    known = np.isfinite(own.benchmark) & (np.isfinite(own.unfilled) | (not rules.values_unfilled))
    assume(known.any())
    batch, steps = batch[np.flatnonzero(known)], engine.num_steps(batch)[known]
    shares = np.array(drawn)[known][:, : steps.max()]
    shares[np.arange(len(batch)), steps - 1] = 1.0
    fills, paid = played(engine, batch, shares)
    terms = step_terms(engine, REWARD, batch)
    assert isinstance(terms, TickTerms) == is_cut(engine, batch)
    terms.check_paid(terms.trades(shares_of(shares), np.ones(len(batch))), paid, batch)
    by_tick = tick_terms(engine, REWARD, batch)
    trades = by_tick.trades(shares_of(shares), np.ones(len(batch)))
    np.testing.assert_allclose(by_tick.rewards(trades), paid, rtol=1e-9, atol=1e-6)
    for i, (start, end) in enumerate(zip(batch.start, batch.end, strict=True)):
        share = fills[i, start:end] / batch.amount[i]
        # The engine calls an order filled when 1e-9 of its amount is left.
        np.testing.assert_allclose(trades[i, : end - start], share, rtol=1e-9, atol=2e-9)
        assert (trades[i, end - start :] == 0).all()


IMPACTS: dict[str, dict[str, Any]] = {
    "none": {},
    "temporary": {"temporary_impact_bps": 300.0, "temporary_impact_shape": "square_root", "half_spread_bps": 3.0},
    "permanent": {"permanent_impact_bps": 200.0, "permanent_impact_shape": "square_root"},
    "transient": {"transient_impact_bps": 400.0, "transient_half_life": 2.0},
    "all, linear": {
        "temporary_impact_bps": 300.0,
        "permanent_impact_bps": 200.0,
        "transient_impact_bps": 400.0,
        "transient_half_life": 2.0,
        "transient_impact_shape": "linear",
        "transient_decay": "exponential",
    },
}
#: Steps of 2, 2, 2 and 1 ticks; the last one catches up, the fourth tick has no price and the fifth is halted.
PRICES = [[10.0, 10.2, 9.9, np.nan, 10.4, 10.1, 10.3]]
VOLUMES = [[300.0, 1500.0, 200.0, 0.0, 900.0, 300.0, 400.0]]
SHARES = np.array([[0.6, 0.5, 0.5, 1.0], [0.05, 0.1, 0.9, 1.0]])


def cut_engine(**rules: Any) -> tuple[Engine, OrderBatch]:
    halted = np.arange(7)[None] == 4
    sessions = sessions_of(PRICES, VOLUMES, halted=halted)
    own = ExecutionRules(volume_limit=0.1, benchmark="arrival", **rules)
    return Engine(sessions, 2, own), align_orders([order(200, "BUY"), order(200, "SELL")], sessions, own)


@pytest.mark.parametrize("name", IMPACTS)
def test_the_derivative_is_that_of_differences(name: str) -> None:
    engine, batch = cut_engine(**IMPACTS[name])
    terms = step_terms(engine, REWARD, batch)

    def worth(shares: Any, ones: Any) -> Any:
        return terms.rewards(terms.trades(shares_of(shares), ones))

    np.testing.assert_allclose(worth(SHARES, np.ones(2)), played(engine, batch, SHARES)[1], rtol=1e-9)
    shares = torch.tensor(SHARES, requires_grad=True)
    worth(shares, torch.ones(2)).sum().backward()
    assert shares.grad is not None
    found = np.zeros_like(SHARES)
    for k in range(4):
        step = 1e-6 * (np.arange(4) == k)
        found[:, k] = (worth(SHARES + step, np.ones(2)) - worth(SHARES - step, np.ones(2))) / 2e-6
    assert shares.grad.numpy() == pytest.approx(found, rel=1e-6, abs=1e-5)
    # The first step of the buy asks for 60 in each tick, and one of the two is cut to 30.
    assert terms.trades(shares_of(SHARES), np.ones(2))[0, :2] == pytest.approx([30 / 200, 60 / 200])


def test_a_fill_at_its_room_has_no_derivative_by_what_is_asked() -> None:
    engine, batch = cut_engine()
    terms = step_terms(engine, REWARD, batch)
    shares = torch.tensor(SHARES, requires_grad=True)
    terms.trades(shares_of(shares), torch.ones(2))[0, 0].backward()
    assert shares.grad is not None
    assert not shares.grad.any()


def test_terms_are_by_tick_only_where_a_tick_may_be_cut() -> None:
    sessions = sessions_of([[10.0, 11.0, 12.0, 13.0]], [[500.0, 500.0, 1000.0, 1000.0]])

    def kind(amount: float, limit: float | None, **rules: Any) -> type:
        own = ExecutionRules(volume_limit=limit, **rules)
        return type(step_terms(Engine(sessions, 2, own), REWARD, align_orders([order(amount)], sessions, own)))

    # All of the amount in the first step asks for half of it in each tick.
    assert kind(100.0, 0.1) is StepTerms
    assert kind(101.0, 0.1) is TickTerms
    assert kind(1e9, None) is StepTerms


def test_forms_that_cap_are_inside_and_those_that_ask_for_more_are_named() -> None:
    sessions = sessions_of([[10.0, 11.0, 12.0, 9.0]])
    engine = Engine(sessions, 1)

    def batch(**form: float) -> OrderBatch:
        one = dataclasses.asdict(order(200, "BUY"))
        return align_orders([Order(**{**one, **form})], sessions, engine.rules)

    shares = np.array([[0.25, 0.5, 0.5, 1.0]])
    for form in ({"limit_price": 10.5}, {"max_participation": 0.04}):
        own = batch(**form)
        fills, paid = played(engine, own, shares)
        terms = step_terms(engine, REWARD, own)
        trades = terms.trades(shares_of(shares), np.ones(1))
        np.testing.assert_allclose(trades * 200, fills, atol=1e-9)
        np.testing.assert_allclose(terms.rewards(trades), paid, rtol=1e-9)
    for name, stated in (("would_price", 10.0), ("min_participation", 0.01)):
        with pytest.raises(ConfigError, match=name):
            step_terms(engine, REWARD, batch(**{name: stated}))


def test_rows_are_orders() -> None:
    engine, batch = cut_engine(**IMPACTS["transient"])
    terms = step_terms(engine, REWARD, batch)
    whole = terms.rewards(terms.trades(shares_of(SHARES), np.ones(2)))
    last = terms[np.array([1])]
    assert last.rewards(last.trades(shares_of(SHARES[1:]), np.ones(1))) == pytest.approx(whole[1:])
