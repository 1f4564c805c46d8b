"""The optimum of a known law: its filter is Gaussian conditioning, its plan that of a brute-force search."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import Engine, ExecutionRules, OrderBatch, align_orders, generate_orders
from rlwb.execution.baselines.filter_optimum import (
    FilterOptimum,
    _shares_to_trade,
    kalman_gains,
    tick_deviations,
    unfitting_rules,
)
from rlwb.execution.state import ExecutionState
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market.synthetic import _heat, _stream, _u_shape, tick_law
from rlwb.parts import Part

SMALL = SyntheticSettings(instruments=2, days=3, seed=3)


def part(settings: SyntheticSettings) -> Part:
    return Part(name="synthetic", **vars(settings))


def made(
    settings: SyntheticSettings = SMALL, ticks_per_step: int = 6, rules: ExecutionRules | None = None, **own: object
) -> FilterOptimum:
    engine = Engine(synthetic_sessions(settings), ticks_per_step, rules)
    return FilterOptimum(engine, part(settings), **own)  # type: ignore[arg-type]


def orders_of(engine: Engine, start: str | None = None, end: str | None = None) -> OrderBatch:
    from rlwb.execution import OrderSettings

    recipe = OrderSettings(volume_days=0, start_time=start, end_time=end)
    return align_orders(generate_orders(engine.sessions, recipe), engine.sessions, engine.rules)


def played(policy: FilterOptimum, orders: OrderBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the PA of each order against its TWAP, and the share left after each step."""
    state = ExecutionState.start(policy.engine, orders)
    left = [state.now.position / orders.amount]
    while not state.done.all():
        asked = np.where(state.done, 0.0, policy.act(state.known))
        state = state.after(*policy.engine.step(orders, state.now, asked))
        left.append(state.now.position / orders.amount)
    price = state.now.notional / orders.amount
    return orders.side * (1 - price / state.benchmarks.twap) * 1e4, np.stack(left, axis=1)


def conditioned(settings: SyntheticSettings, variances: np.ndarray, level: float, price: np.ndarray) -> np.ndarray:
    """Return E[x] at a tick given the log prices so far, by the joint normal law of all minutes of two days.

    `variances` are those of each minute beside the mean, ``(2, M)``; `price` is the first day's open and closes, then
    the second's so far, in basis points.
    """
    minutes, length = variances.shape[1], settings.tick_minutes
    shape = _u_shape(replace(settings, tick_minutes=1).calendar, settings.u_shape)
    decay, scale = 0.5 ** (1 / settings.half_life), settings.signal * settings.transient_bp
    daily = settings.daily_bp**2 * level
    # The basis: each day's opening x, its minutes' efficient returns and innovations, and the night.
    deviations, efficient, transient = [], [], []
    columns = 2 * (1 + 2 * minutes) + 1
    e, day_rows = np.zeros(columns), []
    for day in range(2):
        if day:
            deviations.append(math.sqrt(daily * settings.overnight_share))
            e = e.copy()
            e[len(deviations) - 1] = 1.0
        deviations.append(scale)
        x = np.zeros(columns)
        x[len(deviations) - 1] = 1.0
        efficient, transient = [e], [x]
        for minute in range(minutes):
            vol = shape[minute] * math.sqrt(variances[day, minute])
            deviations += [
                vol * math.sqrt(daily * (1 - settings.overnight_share) / minutes),
                vol * scale * math.sqrt(1 - decay**2),
            ]
            e, x = e.copy(), decay * x
            e[len(deviations) - 2] = 1.0
            x[len(deviations) - 1] = 1.0
            efficient.append(e)
            transient.append(x)
        seen = slice(0, None, length)
        day_rows.append((np.array(efficient)[seen], np.array(transient)[seen]))
    scaled = [[rows * np.array(deviations) for rows in day] for day in day_rows]
    observed = np.concatenate([e + x for e, x in scaled])[: len(price)]
    # Nothing is known of the level of prices: all are relative to the first.
    against = observed[1:] - observed[0]
    x_now = np.concatenate([scaled[0][1], scaled[1][1]])[len(price) - 1]
    weights = np.linalg.lstsq(against @ against.T, against @ x_now, rcond=None)[0]
    return np.asarray(weights @ (price[1:] - price[0]))


@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("tick", [1, 7, 16])
def test_the_estimate_is_that_of_the_joint_normal_law(knows: bool, tick: int) -> None:
    settings = replace(SMALL, tick_minutes=15)
    policy = made(settings, 1, knows_volatility=knows)
    orders = orders_of(policy.engine)
    state = ExecutionState.start(policy.engine, orders)
    for _ in range(tick):
        state = state.after(*policy.engine.step(orders, state.now, np.zeros(len(orders))))
    row = int(np.flatnonzero(orders.session == 4)[0])  # the second day of the second instrument
    sessions = policy.engine.sessions
    price = [1e4 * np.log(np.append(sessions.fields["open"][s, 0], sessions.fields["close"][s])) for s in (3, 4)]
    variances, level = np.ones((2, 240)), math.exp(2 * 0.2**2)
    if knows:
        mean = math.exp(2 * (settings.day_cluster**2 + settings.cluster**2))
        variances = np.exp(2 * _heat(settings, "SYN002", 240)[:2]) / mean
        level = math.exp(0.4 * _stream(settings, "SYN002", "level").standard_normal(4)[0])
    wanted = conditioned(settings, variances, level, np.concatenate([price[0], price[1][: tick + 1]]))
    assert policy.estimate(state.known)[row] == pytest.approx(wanted, rel=1e-6)


def test_nothing_is_estimated_before_the_first_bar_and_without_a_day_before() -> None:
    policy = made()
    orders = orders_of(policy.engine)
    first = ExecutionState.start(policy.engine, orders)
    assert (policy.estimate(first.known) == 0).all()
    after = first.after(*policy.engine.step(orders, first.now, np.zeros(len(orders))))
    bars = 1e4 * np.log(np.append(policy.engine.sessions.fields["open"][0, 0], policy.engine.price[0, :6]))
    law, x = policy.law, 0.0
    gains = kalman_gains(law.decay, np.array([law.stationary]), law.efficient, law.transient)
    for t in range(6):
        x = law.decay * x + gains.gain[0, t] * (bars[t + 1] - bars[t] - (law.decay - 1) * x)
    row = int(np.flatnonzero(orders.session == 0)[0])
    assert policy.estimate(after.known)[row] == pytest.approx(x)


def test_a_gain_by_hand() -> None:
    gains = kalman_gains(0.5, np.array([4.0]), np.array([[3.0]]), np.array([[2.0]]))
    assert gains.surprise[0, 0] == pytest.approx(3 + 0.25 * 4 + 2)
    assert gains.gain[0, 0] == pytest.approx((0.5 * -0.5 * 4 + 2) / 6)
    assert gains.error[0].tolist() == pytest.approx([4.0, 0.25 * 4 + 2 - (1 / 6) ** 2 * 6])


def test_two_steps_by_the_formula_of_the_normal_law() -> None:
    """Waiting in the step before the last costs the last's price; before that it is an option, which has a formula."""
    policy = made(replace(SMALL, tick_minutes=60), 1)
    plan = policy._plan(1, 4, 1)
    z = np.linspace(-plan.reach[1], plan.reach[1], plan.waiting.shape[2])
    decay, level = policy.law.decay, plan.level[0]
    assert plan.level == pytest.approx([decay] * 3)
    np.testing.assert_allclose(plan.waiting[1, 0], level * decay * z, atol=1e-6)
    spread = {at: policy._spread(1)[at] for at in (1, 2)}
    noise = math.sqrt(spread[2] - decay**2 * spread[1])
    z = np.linspace(-plan.reach[0], plan.reach[0], plan.waiting.shape[2])
    ahead = decay * z
    above = ahead * norm.cdf(ahead / noise) + noise * norm.pdf(ahead / noise)  # E[max(z', 0)]
    np.testing.assert_allclose(plan.waiting[0, 0], level * (ahead - above + decay * above), atol=0.05)


def test_amounts_under_a_penalty_are_those_of_a_brute_force_search() -> None:
    """On three steps, every amount on a grid and every estimate by its density, with no use of marginal costs."""
    policy = made(replace(SMALL, tick_minutes=60), 1, penalty=40.0)
    plan = policy._plan(1, 4, 1)
    decay, spread = policy.law.decay, policy._spread(1)
    held = np.linspace(0, 1, 41)
    z = np.linspace(-350, 350, 701)

    def cost(amount: np.ndarray, estimate: np.ndarray) -> np.ndarray:
        return plan.level[0] * estimate * amount + 40.0 * amount**2

    value = cost(held[:, None], z)  # all that is left is traded in the last step
    for begin in (2, 1):
        noise = math.sqrt(spread[begin + 1] - decay**2 * spread[begin])
        density = norm.pdf(z[None, :], decay * z[:, None], noise)
        later = value @ (density / density.sum(axis=1, keepdims=True)).T
        choices = np.full((41, 41, len(z)), np.inf)  # what is held, what is kept
        for i in range(41):
            choices[i, : i + 1] = cost(held[i] - held[: i + 1, None], z) + later[: i + 1]
        value = choices.min(axis=1)
        best = held[:, None] - held[choices.argmin(axis=1)]
    inner = np.abs(z) <= 2 * math.sqrt(spread[1])
    for at in (10, 25, 40):
        count = int(inner.sum())
        found = _shares_to_trade(*plan, np.zeros(count, dtype=np.int64), np.full(count, held[at]), z[inner])
        np.testing.assert_allclose(found, best[at, inner], atol=0.0251)
    assert 0.1 < best[40, inner].mean() < 0.9


def test_without_a_penalty_all_is_traded_at_once_and_orders_are_completed() -> None:
    policy = made()
    orders = orders_of(policy.engine)
    _, left = played(policy, orders)
    assert (left[:, -1] == 0).all()
    assert set(np.unique(left)) == {0.0, 1.0}
    assert (left[:, 1] == 1).all()  # before the first bar the best guess is the mean, and waiting may show a better
    _, slower = played(made(penalty=200.0), orders)
    assert ((slower > 0.01) & (slower < 0.99)).any(axis=1).all()


def test_a_window_in_the_midst_of_the_day_knows_the_morning() -> None:
    policy = made()
    orders = orders_of(policy.engine, "10:30", "14:00")
    _, left = played(policy, orders)
    assert left.shape[1] == 1 + policy.engine.num_steps(orders).max()
    assert (left[:, -1] == 0).all()
    assert (left[:, 1] == 0).any()


def test_the_figure_that_the_law_promises_is_earned() -> None:
    """Where shocks are normal and volatility is known the law holds exactly."""
    normal = SyntheticSettings(20, 100, cluster=0.0, day_cluster=0.0, tail=1e5, factor_share=0.0, overnight_share=0.0)
    policy = made(normal, knows_volatility=True)
    sessions: Sessions = policy.engine.sessions
    orders = orders_of(policy.engine)
    pa, _ = played(policy, orders)
    promised = []
    for row in range(len(sessions)):
        plan = policy._plan(0, 48, row)
        promised.append(-plan.waiting[0, 0, plan.waiting.shape[2] // 2])
    by_session = np.bincount(orders.session, pa, len(sessions)) / 2  # a buy and a sell, nearly independent
    error = by_session.std() / math.sqrt(len(sessions))
    assert 10 < np.mean(promised) < 30
    assert abs(by_session.mean() - np.mean(promised)) < 3 * error


def test_without_a_signal_it_trades_evenly() -> None:
    policy = made(replace(SMALL, signal=0.0))
    orders = orders_of(policy.engine)
    pa, left = played(policy, orders)
    np.testing.assert_allclose(left[0], np.linspace(1, 0, 9), atol=1e-12)
    np.testing.assert_allclose(pa, 0.0, atol=1e-9)


@pytest.mark.parametrize("knows", [False, True])
def test_bars_to_come_move_no_trade(knows: bool) -> None:
    policy = made(knows_volatility=knows)
    orders = orders_of(policy.engine)
    fields = {name: np.array(values) for name, values in policy.engine.sessions.fields.items()}
    for values in fields.values():
        values[1, 24:] *= 1.3
        values[2] *= 0.8
    old = policy.engine.sessions
    other = FilterOptimum(
        Engine(Sessions(old.calendar, old.instruments, old.dates, old.num_ticks, fields), 6),
        part(SMALL),
        knows_volatility=knows,
    )
    rows = np.flatnonzero(orders.session == 1)
    before, after = (played(one, orders)[1][rows, :6] for one in (policy, other))
    np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize(
    "rules",
    [
        {"volume_limit": 0.1},
        {"lot_size": 100.0},
        {"price_limit": 0.1},
        {"complete_at_end": False},
        {"price_field": "high"},
        {"volume_limit": 1.0, "temporary_impact_bps": 5.0},
    ],
)
def test_rules_under_which_it_is_no_optimum_are_refused_by_name(rules: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="|".join(rules)):
        made(rules=ExecutionRules(**rules))  # type: ignore[arg-type]


def test_costs_that_every_policy_pays_and_other_benchmarks_are_no_matter() -> None:
    assert unfitting_rules(ExecutionRules(commission_bps=1, half_spread_bps=2, benchmark="vwap")) == []
    assert unfitting_rules(ExecutionRules(price_field="open")) == []


def test_another_market_other_sessions_and_limits_of_orders_are_refused() -> None:
    engine = made().engine
    with pytest.raises(ConfigError, match="bars"):
        FilterOptimum(engine, Part(name="bars", source="here"))
    with pytest.raises(ConfigError, match="penalty"):
        FilterOptimum(engine, part(SMALL), penalty=-1.0)
    with pytest.raises(ConfigError, match="sessions"):
        FilterOptimum(engine, part(replace(SMALL, days=2)), knows_volatility=True)
    table = generate_orders(engine.sessions).assign(limit_price=30.0)
    orders = align_orders(table, engine.sessions, engine.rules, forms=("limit_price",))
    with pytest.raises(OrderError, match="limit_price"):
        FilterOptimum(engine, part(SMALL)).check(orders)


def test_the_law_has_the_variances_of_the_market() -> None:
    """Mean squares of returns over many sessions, tick by tick, are those that the law gives."""
    settings = SyntheticSettings(instruments=60, days=60, tick_minutes=30)
    sessions, law = synthetic_sessions(settings), tick_law(settings)
    path = np.log(np.concatenate([sessions.fields["open"][:, :1], sessions.fields["close"]], axis=1))
    moves = 1e4 * np.diff(path, axis=1)
    spread = law.stationary
    for t in range(8):
        wanted = law.efficient[0, t] + (1 - law.decay) ** 2 * spread + law.transient[0, t]
        spread = law.decay**2 * spread + law.transient[0, t]
        assert (moves[:, t] ** 2).mean() == pytest.approx(wanted, rel=0.12)
    known = tick_law(settings, sessions)
    assert known.efficient.mean(axis=0) == pytest.approx(law.efficient[0], rel=0.12)
    assert (moves**2).sum() == pytest.approx(
        sum(
            (known.efficient[:, t] + known.transient[:, t] + (1 - known.decay) ** 2 * law.stationary).sum()
            for t in range(8)
        ),
        rel=0.06,
    )


def test_a_part_of_the_sessions_has_the_law_of_its_own() -> None:
    settings = SyntheticSettings(instruments=3, days=4, seed=2)
    sessions = synthetic_sessions(settings)
    whole, some = tick_law(settings, sessions), tick_law(settings, sessions.select(np.array([2, 5, 6, 11])))
    for name in ("overnight", "efficient", "transient"):
        np.testing.assert_array_equal(getattr(some, name), getattr(whole, name)[[2, 5, 6, 11]])


def test_deviations_of_the_law_are_those_of_its_variances_and_of_what_is_known() -> None:
    law = tick_law(SyntheticSettings())
    found = tick_deviations(law)
    assert all(one.shape == law.efficient.shape[1:] for one in found.values())
    own, error = found["transient part"] ** 2, found["error of the filter's estimate of it"] ** 2
    assert own[0] == error[0] == pytest.approx(law.stationary)
    assert own[1] == pytest.approx(law.decay**2 * law.stationary + law.transient[0, 0])
    assert (error[1:] < own[1:]).all()
    assert found["return of the martingale"] ** 2 == pytest.approx(law.efficient[0])


def test_it_trades_where_waiting_is_expected_to_cost() -> None:
    policy = made()
    orders = orders_of(policy.engine)
    state = ExecutionState.start(policy.engine, orders)
    while not state.done.all():
        known = state.known
        told, traded = policy.expectation(known), policy.act(known) > 0
        assert told.waiting is not None
        foreseen = np.isfinite(told.waiting)
        assert foreseen.all() == (not known.is_last_step.all())
        np.testing.assert_array_equal(traded[foreseen], told.waiting[foreseen] > 0)
        state = state.after(*policy.engine.step(orders, state.now, np.zeros(len(known))))
