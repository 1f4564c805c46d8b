"""What must hold for every market, order and schedule."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.env import NativeVectorEnv
from rlwb.execution import (
    MPC,
    POV,
    TWAP,
    VWAP,
    AlmgrenChriss,
    AmountActionInterpreter,
    BertsimasLo,
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    ExecutionState,
    ForecastRule,
    FullHistoryStateInterpreter,
    ImpactParameters,
    KnownStateInterpreter,
    OrderExecution,
    SignalParameters,
    generate_orders,
)
from rlwb.execution.attribution import without_impact
from rlwb.market import MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.policy import MLP, PPO, ActorCritic, Attention, Convolution, Recurrent, make_network
from tests.execution.markets import sessions_of
from tests.execution.test_engine import batch_of, problems
from tests.execution.test_symmetry import in_units, play

COSTS = st.fixed_dictionaries(
    {
        "commission_bps": st.sampled_from([0.0, 2.5]),
        "sell_tax_bps": st.sampled_from([0.0, 5.0]),
        "min_fee": st.sampled_from([0.0, 5.0]),
        "temporary_impact_bps": st.sampled_from([0.0, 40.0]),
        "permanent_impact_bps": st.sampled_from([0.0, 15.0]),
    },
    optional={"transient_impact_bps": st.just(25.0)},
).map(lambda costs: {**costs, **({"transient_half_life": 2.0} if "transient_impact_bps" in costs else {})})


def without_costs(rules: ExecutionRules) -> ExecutionRules:
    costs: dict[str, Any] = dict.fromkeys(("commission_bps", "sell_tax_bps", "min_fee", "half_spread_bps"), 0.0)
    return dataclasses.replace(without_impact(rules), **costs)


@settings(max_examples=200, deadline=None)
@given(problems(), COSTS)
def test_cost_never_helps_and_changes_no_fill(problem: tuple, costs: dict[str, float]) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks, orders, shares = problem
    free = without_costs(rules)
    dear = dataclasses.replace(free, **costs, volume_limit=rules.volume_limit or 1.0)
    free = dataclasses.replace(free, volume_limit=dear.volume_limit)
    more = dataclasses.replace(dear, **{name: 2 * value for name, value in costs.items()})
    played = [play(sessions, one, ticks, batch_of(orders), shares) for one in (free, dear, more)]
    for figures, fills, reward in played[1:]:
        np.testing.assert_array_equal(fills, played[0][1])
        np.testing.assert_array_equal(figures["pa"], played[0][0]["pa"])
        assert (reward <= played[0][2] + 1e-9).all()
    nets = [figures["pa_net"] for figures, _, _ in played]
    some = played[0][0]["filled"] > 0
    slack = 1e-9 * np.abs(nets[0][some]) + 1e-9
    assert (played[0][0]["pa"][some] >= nets[0][some] - slack).all()
    assert (nets[0][some] >= nets[1][some] - slack).all()
    assert (nets[1][some] >= nets[2][some] - 1e-9 * np.abs(nets[1][some]) - 1e-9).all()
    assert np.isnan(nets[1][~some]).all()


@settings(max_examples=200, deadline=None)
@given(problems())
def test_without_costs_net_is_gross_to_the_last_bit(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks, orders, shares = problem
    free = dataclasses.replace(without_costs(rules), price_field="close")
    assert not free.have_costs
    figures, _, _ = play(sessions, free, ticks, batch_of(orders), shares)
    np.testing.assert_array_equal(figures["pa"], figures["pa_net"])
    np.testing.assert_array_equal(figures["price"], figures["price_net"])


IMPACT = ImpactParameters(("A",), (100.0,), (0.02,), (0.02,), (0.01,))
SCHEDULES: dict[str, Any] = {
    "twap": TWAP,
    "vwap": VWAP,
    "pov": POV,
    "pov at a rate": partial(POV, rate=0.1),
    "capped pov": partial(POV, cap=0.2),
    "almgren_chriss": partial(AlmgrenChriss, impact=IMPACT, risk_aversion=50.0),
    "bertsimas_lo": partial(BertsimasLo, impact=IMPACT, signal=SignalParameters(gamma=-0.4, rho=0.5)),
}


@pytest.mark.parametrize("name", list(SCHEDULES))
@settings(max_examples=120, deadline=None)
@given(problems(), st.sampled_from([0.01, 0.1, 0.3]), st.sampled_from([0.5, 0.9, 1.0]))
def test_a_tighter_cap_never_raises_what_is_filled(name: str, problem: tuple, loose: float, factor: float) -> None:  # type: ignore[type-arg]
    """With lots, by no more than one: what is asked depends on what was filled, and so does which way it is rounded."""
    sessions, rules, ticks, orders, _ = problem
    batch, filled = batch_of(orders), []
    for cap in (loose * factor, loose, None):
        engine = Engine(sessions, ticks, dataclasses.replace(without_costs(rules), volume_limit=cap))
        filled.append(finish(ExecutionState.start(engine, batch), SCHEDULES[name](engine)).now.filled)
    more = rules.lot_size + 1e-9 * batch.amount
    assert (filled[0] <= filled[1] + more).all()
    assert (filled[1] <= filled[2] + more).all()


@settings(max_examples=200, deadline=None)
@given(problems(), COSTS, st.floats(0.01, 100.0))
def test_the_unit_of_money_changes_no_price_advantage(problem: tuple, costs: dict[str, float], unit: float) -> None:  # type: ignore[type-arg]
    sessions, rules, ticks, orders, shares = problem
    one = dataclasses.replace(without_costs(rules), **costs, volume_limit=0.3, price_limit=None)
    two = dataclasses.replace(one, min_fee=one.min_fee * unit)
    first, fills, reward = play(in_units(sessions, 1.0, 1.0), one, ticks, batch_of(orders), shares)
    second, fills_2, reward_2 = play(in_units(sessions, unit, 1.0), two, ticks, batch_of(orders), shares)
    np.testing.assert_array_equal(fills, fills_2)
    for name in ("pa", "pa_net", "pa_vwap", "pa_arrival"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-9, atol=1e-6, err_msg=name)
    np.testing.assert_allclose(reward, reward_2, rtol=1e-9, atol=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(-0.02, 0.02), min_size=12, max_size=12),
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=12, max_size=12),
    COSTS.filter(lambda costs: not costs["sell_tax_bps"]),
    st.sampled_from([1, 3, 4]),
)
def test_a_mirrored_market_mirrors_the_result_to_first_order(
    returns: list[float], shares: list[float], costs: dict[str, float], ticks: int
) -> None:
    """Log prices turned over and the side with them: what differs is of second order in the moves."""
    moves = np.array(returns)
    rules = ExecutionRules(volume_limit=0.05, **costs)
    figures = []
    for sign in (1, -1):
        sessions = sessions_of([10.0 * np.exp(sign * moves)], 1000.0)
        figures.append(play(sessions, rules, ticks, batch_of([(sign, 400.0, 0, 12)], 0), [shares])[0])
    largest = np.abs(moves).max()
    for name in ("pa", "pa_net"):
        # exp(x) is within 0.51 x^2 of 1 + x here; the executed price and the TWAP each are means of such terms.
        charged = 0.0 if name == "pa" else 0.01 * largest
        bound = 1e4 * (4 * 0.51 * largest**2 + charged) + 1e-6
        assert abs(figures[0][name][0] - figures[1][name][0]) <= bound, name


#: Those that `fit` tells something of the market.
FITTED: dict[str, Any] = {
    "almgren_chriss": AlmgrenChriss,
    "bertsimas_lo": BertsimasLo,
    "mpc": MPC,
    "forecast": ForecastRule,
}


def finish(state: ExecutionState, policy: Any) -> ExecutionState:
    """Execute the orders to their end by a baseline."""
    while not state.done.all():
        request = np.where(state.done, 0.0, policy.act(state.known))
        state = state.after(*state.engine.step(state.orders, state.now, request))
    return state


def changed_after(sessions: Sessions, row: int, tick: int) -> Sessions:
    """Bars from `tick` of session `row` on have other values, and so have all of later dates; none comes or goes."""
    rng = np.random.default_rng(5)
    later = np.zeros((len(sessions), sessions.calendar.num_ticks), dtype=bool)
    later[sessions.dates > sessions.dates[row]] = True
    later[sessions.dates == sessions.dates[row], tick:] = True
    fields = {
        name: np.where(later, array * rng.uniform(0.5, 2.0, array.shape), array)
        for name, array in sessions.fields.items()
    }
    return Sessions(sessions.calendar, sessions.instruments, sessions.dates, sessions.num_ticks, fields)


def decisions(sessions: Sessions, own: pd.DataFrame, tick: int, policy: str) -> list[tuple[Any, np.ndarray]]:
    """Return observation and action of every decision that a policy takes up to `tick` for orders of one session."""
    engine = Engine(sessions, 4, ExecutionRules(volume_limit=0.05))
    simulator = OrderExecution(engine)
    orders, every = simulator.align(own), simulator.align(generate_orders(sessions))
    earlier = np.flatnonzero(sessions.dates < sessions.dates[int(orders.session[0])])
    if policy in FITTED:
        chooser = FITTED[policy](engine)
        chooser.fit(every[np.isin(every.session, earlier)])
        observe, choose = KnownStateInterpreter(), AmountActionInterpreter()
    else:
        features = MarketFeatures.build(sessions, fit_rows=earlier)
        kinds: dict[str, Any] = {"recurrent": Recurrent, "convolution": Convolution, "attention": Attention}
        channels = features.shape[2]
        trunk = (lambda: MLP(8)) if policy == "mlp" else (lambda: kinds[policy](channels, 8))
        chooser = PPO(make_network(lambda: ActorCritic(trunk(), 5), seed=0), seed=0)
        observe, choose = FullHistoryStateInterpreter(features, engine.max_step), CategoricalActionInterpreter(4)
    env = NativeVectorEnv(simulator, orders, state_interpreter=observe, action_interpreter=choose, by_reference=False)
    active, taken = env.reset(), []
    while len(active.episode) and env.state.known.tick.max() <= tick:
        action = np.asarray(chooser.act(active.obs))
        taken.append((active.obs if policy not in FITTED else None, action))
        _, active = env.step(action)
    return taken


@pytest.mark.parametrize("policy", [*FITTED, "mlp", "recurrent", "convolution", "attention"])
def test_the_future_moves_no_observation_and_no_action(policy: str) -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=6, tick_minutes=15))
    row, orders = 4, generate_orders(sessions)
    own = orders["instrument"].eq(sessions.instruments[row]) & orders["date"].eq(pd.Timestamp(sessions.dates[row]))
    for tick in (0, 4, 8, 12):
        panels = sessions, changed_after(sessions, row, tick)
        now, then = (decisions(panel, orders[own], tick, policy) for panel in panels)
        assert len(now) == len(then) > 0
        for (obs, action), (other, same) in zip(now, then, strict=True):
            np.testing.assert_array_equal(action, same)
            for name in obs or ():
                np.testing.assert_array_equal(obs[name], other[name], name)
