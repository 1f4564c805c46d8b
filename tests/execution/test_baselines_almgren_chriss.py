"""Almgren and Chriss: the closed form against optimisation, their example, and what the strategy trades."""

from __future__ import annotations

import dataclasses
import math
import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from rlwb.errors import ConfigError
from rlwb.execution import AlmgrenChriss, Engine, ExecutionRules, ImpactParameters, align_orders
from rlwb.execution.baselines.almgren_chriss import holding, risk_aversion_of, urgency_of
from rlwb.execution.state import ExecutionState
from tests.execution.markets import order, run, sessions_of
from tests.execution.test_engine import batch_of

#: The paper's example: a million shares, five days, dollars per share.
SIGMA, ETA, GAMMA, EPSILON, SHARES, DAYS = 0.95, 2.5e-6, 2.5e-7, 0.0625, 1e6, 5


def cost_of(held: np.ndarray, eta: float, gamma: float, tau: float) -> float:
    """Return the mean cost of holdings x_0 … x_N without the fixed part: each sale is paid for where it is made."""
    sold = -np.diff(held)
    return float((tau * gamma * (sold / tau) * held[1:]).sum() + (sold * eta * sold / tau).sum())


def variance_of(held: np.ndarray, sigma: float, tau: float) -> float:
    return float(sigma**2 * tau * (held[1:] ** 2).sum())


def path(kappa: float, steps: int, tau: float = 1.0) -> np.ndarray:
    horizon = np.array(steps * tau)
    return np.array([float(holding(np.array(kappa), np.array(horizon - k * tau), horizon)) for k in range(steps + 1)])


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 8),
    st.floats(0.1, 2.0),
    st.floats(0.1, 3.0),
    st.floats(0.0, 0.9),
    st.floats(0.0, 20.0),
    st.sampled_from([0.5, 1.0, 2.0]),
)
def test_the_closed_form_is_what_optimisation_finds(
    steps: int, sigma: float, eta: float, share: float, risk_aversion: float, tau: float
) -> None:
    """A quadratic of the N - 1 free holdings, minimised without any formula of the paper."""
    gamma = share * eta / tau

    def objective(inner: np.ndarray) -> float:
        held = np.concatenate([[1.0], inner, [0.0]])
        return cost_of(held, eta, gamma, tau) + risk_aversion * variance_of(held, sigma, tau)

    found = minimize(objective, np.linspace(1, 0, steps + 1)[1:-1], method="BFGS", options={"gtol": 1e-9})
    # The impact is eta / tau times the square of what is traded, so eta is that of one interval.
    kappa = float(urgency_of(risk_aversion, sigma, eta, gamma, tau))
    np.testing.assert_allclose(path(kappa, steps, tau)[1:-1], found.x, atol=2e-6)
    assert risk_aversion_of(kappa, sigma, eta, gamma, tau) == pytest.approx(risk_aversion, rel=1e-9, abs=1e-12)


def test_the_example_of_the_paper() -> None:
    """Table 1 of the paper; the trajectory is what an independent implementation (DRIP's DROP library) prints for it.

    DROP derives sigma from 30 % a year at 50 dollars and 250 days, 0.9487, which the paper rounds to 0.95. Its mean and
    standard deviation of cost include the bid-ask spread and the permanent impact.
    """
    sigma, risk_aversion = 0.3 * 50 / math.sqrt(250), 1e-6
    kappa = float(urgency_of(risk_aversion, sigma, ETA, GAMMA))
    assert kappa == pytest.approx(0.6063, abs=5e-5)
    assert 1 / kappa == pytest.approx(1.6495, abs=5e-5)
    held = SHARES * path(kappa, DAYS)
    np.testing.assert_allclose(held, [1e6, 542380.7, 290295.1, 148216.1, 62303.2, 0.0], atol=0.05)
    mean = cost_of(held, ETA, GAMMA, 1.0) + EPSILON * SHARES
    assert mean == pytest.approx(910477.8, abs=0.05)
    assert variance_of(held, sigma, 1.0) * 1e-6 == pytest.approx(363868.0, abs=0.05)


def test_the_paper_s_figure_without_risk_aversion() -> None:
    """Even trading of the example costs 0.6625 million dollars: gamma X^2 / 2, epsilon X and eta' X^2 / T."""
    held = SHARES * path(0.0, DAYS)
    np.testing.assert_allclose(held, [1e6, 8e5, 6e5, 4e5, 2e5, 0.0])
    assert cost_of(held, ETA, GAMMA, 1.0) + EPSILON * SHARES == pytest.approx(662_500.0)
    assert variance_of(held, SIGMA, 1.0) == pytest.approx(SIGMA**2 * 1.2e12)


def test_extremes_of_urgency_neither_overflow_nor_lose_digits() -> None:
    """exp(-800) is next to nothing, sinh(800) is no number; and a kappa of 1e-9 is even trading to all digits."""
    assert holding(np.array(100.0), np.array(8.0), np.array(16.0)) == pytest.approx(math.exp(-800.0), abs=1e-300)
    assert holding(np.array(1e-9), np.array(3.0), np.array(4.0)) == pytest.approx(0.75, rel=1e-12)
    assert urgency_of(1e-20, 1.0, 1.0, 0.0) == pytest.approx(1e-10, rel=1e-12)
    assert np.isnan(holding(np.array(np.nan), np.array(1.0), np.array(2.0)))


def parameters(**changes: float) -> ImpactParameters:
    values = {"volume": 1000.0, "volatility": 0.01, "temporary": 0.02, "permanent": 0.01} | changes
    return ImpactParameters(("AAA",), *((values[name],) for name in ("volume", "volatility", "temporary", "permanent")))


def of(risk_aversion: float, impact: ImpactParameters | None = None) -> Any:
    """Return what makes the strategy of an engine."""
    return partial(AlmgrenChriss, risk_aversion=risk_aversion, impact=impact or parameters())


@pytest.mark.parametrize("ticks_per_step", [1, 2, 3, 4])
def test_steps_of_any_length_lie_on_one_trajectory(ticks_per_step: int) -> None:
    """500 of a mean tick volume of 1000: eta is 0.01 and gamma 0.005 of the price for the whole order."""
    sessions = sessions_of([[10.0, 11.0, 9.0, 10.0, 12.0, 10.0, 10.0, 8.0, 10.0, 9.0, 10.0, 10.0]])
    policy = of(30.0)
    _, steps, _ = run(sessions, [order(500.0)], ticks_per_step, policy)
    kappa = math.acosh(1 + 30.0 * 0.01**2 / (0.01 - 0.005 / 2) / 2)
    ends = np.arange(ticks_per_step, 12 + 1, ticks_per_step)
    expected = 500.0 * np.sinh(kappa * (12 - ends)) / math.sinh(kappa * 12)
    np.testing.assert_allclose(steps["position"], expected, rtol=1e-12, atol=1e-10)


def test_the_trajectory_traded_costs_least_in_its_own_model() -> None:
    """The engine's fills, tick by tick, as the holdings of the model."""
    rng = np.random.default_rng(1)
    _, steps, _ = run(sessions_of([[10.0] * 8]), [order(500.0)], 1, of(30.0))
    held = np.concatenate([[1.0], steps["position"].to_numpy() / 500.0])

    def objective(held: np.ndarray) -> float:
        return cost_of(held, 0.01, 0.005, 1.0) + 30.0 * variance_of(held, 0.01, 1.0)

    for _ in range(50):
        other = held.copy()
        other[1:-1] += rng.normal(0, 0.02, size=len(held) - 2)
        assert objective(other) > objective(held)


def test_missing_ticks_are_no_time() -> None:
    price = [10.0, math.nan, 10.0, 10.0, math.nan, 10.0]
    _, gaps, _ = run(sessions_of([price]), [order(500.0)], 1, of(30.0))
    _, none, _ = run(sessions_of([[10.0] * 4]), [order(500.0)], 1, of(30.0))
    np.testing.assert_allclose(gaps["position"].to_numpy()[[0, 2, 3, 5]], none["position"], rtol=1e-12, atol=1e-10)


def test_what_a_cap_cut_is_spread_over_the_rest_by_the_same_formula() -> None:
    policy, sessions = (
        of(30.0),
        sessions_of([[10.0] * 6], [[100.0, *[1e6] * 5]]),
    )
    _, steps, _ = run(sessions, [order(500.0)], 1, policy, ExecutionRules(volume_limit=0.5))
    kappa = math.acosh(1 + 30.0 * 0.01**2 / (0.01 - 0.005 / 2) / 2)
    assert steps["position"].iloc[0] == 450.0
    expected = 450.0 * np.sinh(kappa * (5 - np.arange(1, 6))) / math.sinh(kappa * 5)
    np.testing.assert_allclose(steps["position"].iloc[1:], expected, rtol=1e-12, atol=1e-10)


def test_without_risk_aversion_or_parameters_it_trades_evenly() -> None:
    sessions = sessions_of([[10.0, 11.0, 9.0, 10.0]])
    unknown = ImpactParameters(("BBB",), (1000.0,), (0.01,), (0.02,), (0.01,))
    for policy in (
        of(0.0),
        of(30.0, unknown),
        of(1e-12),
    ):
        _, steps, _ = run(sessions, [order(400.0)], 1, policy)
        np.testing.assert_allclose(steps["fill"], 100.0, rtol=1e-6)


def test_the_typical_order_gets_the_wanted_urgency() -> None:
    """Of three sizes the middle one: kappa T is 3, a larger order is slower, a smaller one faster."""
    engine = Engine(sessions_of([[10.0] * 12]), 3)
    batch = batch_of([(1, amount, 0, 12) for amount in (50.0, 500.0, 5000.0)], 0)
    policy = AlmgrenChriss(engine, urgency=3.0, impact=parameters())
    policy.fit(batch)
    size = np.array([50.0, 500.0, 5000.0]) / 1000.0
    kappa = urgency_of(policy.risk_aversion, 0.01, 0.02 * size, 0.01 * size)
    assert kappa[1] * 12 == pytest.approx(3.0, rel=1e-12)
    assert kappa[0] > kappa[1] > kappa[2] > 0
    half = float(holding(np.array(0.25), np.array(6.0), np.array(12.0)))
    assert half == pytest.approx(0.2125, abs=5e-5), "a fifth is left after half of the window"


@pytest.mark.parametrize("urgency", [30_000.0, 34_079.0, 34_081.0, 40_000.0, 1e6, 1e9, 1e154, 1e300, 1.7e308])
@pytest.mark.parametrize("amounts", [(500.0,), (50.0, 5000.0), (1e-6, 500.0, 1e9)])
def test_j12_every_large_urgency_trades_at_once(urgency: float, amounts: tuple[float, ...]) -> None:
    """kappa of 48 ticks overflows a sinh from an urgency of 48 * 710 on; nothing may warn there or turn even."""
    sessions = sessions_of([[10.0] * 48])
    engine = Engine(sessions, 1)
    orders = align_orders([order(amount) for amount in amounts], sessions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = AlmgrenChriss(engine, urgency=urgency, impact=parameters())
        policy.fit(orders)
        assert policy.risk_aversion is not None
        assert math.isfinite(policy.risk_aversion)
        asked = policy.act(ExecutionState.start(engine, orders).known)
    np.testing.assert_allclose(asked, orders.amount, rtol=1e-9)


@pytest.mark.parametrize("urgency", [1e-300, 1e-160, 1e-9])
def test_j12_every_small_urgency_trades_evenly(urgency: float) -> None:
    sessions = sessions_of([[10.0] * 48])
    engine, orders = Engine(sessions, 1), align_orders([order(500.0)], sessions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = AlmgrenChriss(engine, urgency=urgency, impact=parameters())
        policy.fit(orders)
        asked = policy.act(ExecutionState.start(engine, orders).known)
    np.testing.assert_allclose(asked, 500.0 / 48, rtol=1e-9)


def test_j12_urgency_between_goes_over_without_a_step() -> None:
    """What is kept after the first of 48 ticks is exp(-urgency / 48), as far as a number can hold it."""
    sessions = sessions_of([[10.0] * 48])
    engine, orders = Engine(sessions, 1), align_orders([order(500.0)], sessions)
    for urgency in (200.0, 500.0, 1000.0, 1500.0):
        policy = AlmgrenChriss(engine, urgency=urgency, impact=parameters())
        policy.fit(orders)
        kept = 1.0 - policy.act(ExecutionState.start(engine, orders).known)[0] / 500.0
        assert kept == pytest.approx(math.exp(-urgency / 48), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("risk_aversion", [1e290, 1e308])
def test_j12_a_risk_aversion_of_any_size_trades_at_once(risk_aversion: float) -> None:
    sessions = sessions_of([[10.0] * 48])
    engine, orders = Engine(sessions, 1), align_orders([order(500.0)], sessions)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy = AlmgrenChriss(engine, risk_aversion=risk_aversion, impact=parameters())
        asked = policy.act(ExecutionState.start(engine, orders).known)
    np.testing.assert_allclose(asked, 500.0, rtol=1e-9)


def test_orders_that_tell_no_risk_aversion_give_0() -> None:
    engine, batch = Engine(sessions_of([[10.0] * 4]), 1), batch_of([(1, 5.0, 0, 4)], 0)
    policy = AlmgrenChriss(engine, impact=ImpactParameters((), (), (), (), ()))
    policy.fit(batch)
    assert policy.risk_aversion == 0.0


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_impossible_numbers_are_refused(wrong: float) -> None:
    engine = Engine(sessions_of([[10.0] * 4]), 1)
    with pytest.raises(ConfigError, match="the risk aversion is"):
        AlmgrenChriss(engine, risk_aversion=wrong)
    with pytest.raises(ConfigError, match="the urgency is"):
        AlmgrenChriss(engine, urgency=wrong)


def test_the_estimates_go_through_a_file_and_nothing_is_traded_without_them() -> None:
    engine, batch = Engine(sessions_of([[10.0, 10.1, 9.9, 10.0]]), 1), batch_of([(1, 5.0, 0, 4)], 0)
    known = ExecutionState.start(engine, batch).known
    policy, again = AlmgrenChriss(engine), AlmgrenChriss(engine)
    with pytest.raises(ConfigError, match="fit"):
        policy.act(known)
    policy.fit(batch)
    again.load_state_dict(policy.state_dict())
    assert again.act(known).tolist() == policy.act(known).tolist()


def test_a_batch_gets_what_each_order_gets() -> None:
    sessions = sessions_of([[10.0] * 6])
    orders = [order(500.0), order(80.0, "SELL", "09:31", "09:35")]
    _, both, _ = run(sessions, orders, 2, of(30.0))
    for number, one in enumerate(orders):
        _, alone, _ = run(sessions, [one], 2, of(30.0))
        name = both["order_id"].drop_duplicates().iloc[number]
        assert both.loc[both["order_id"] == name, "fill"].tolist() == alone["fill"].tolist()


def under(rules: ExecutionRules, policy: Any, amount: float = 500.0) -> list[float]:
    """Return the holdings after each of 8 ticks of 1000 shares."""
    return run(sessions_of([[10.0] * 8]), [order(amount)], 1, policy, rules)[1]["position"].tolist()


def estimated(engine: Engine, **known: Any) -> AlmgrenChriss:
    """Return a strategy whose volume and volatility are those of `parameters`, as if `fit` had found them."""
    policy = AlmgrenChriss(engine, **known)
    policy.load_state_dict(
        {"impact": dataclasses.asdict(parameters()), "risk_aversion": known["risk_aversion"], "impact_from": ""}
    )
    return policy


def test_the_impact_of_the_rules_goes_before_that_of_bars() -> None:
    """40 bp for a tick's volume and 20 that stay: 0.002 and 0.001 of the price for half of it, less 0.0005."""
    rules = ExecutionRules(volume_limit=1.0, temporary_impact_bps=40.0, permanent_impact_bps=20.0)
    kappa = math.acosh(1 + 3.0 * 0.01**2 / (0.002 - 0.001 / 2) / 2)
    expected = 500.0 * np.sinh(kappa * (8 - np.arange(1, 9))) / math.sinh(kappa * 8)
    np.testing.assert_allclose(under(rules, partial(estimated, risk_aversion=3.0)), expected, rtol=1e-12, atol=1e-10)
    given = under(rules, of(3.0))
    np.testing.assert_array_equal(given, under(ExecutionRules(volume_limit=1.0), of(3.0)), "given parameters stay")


def test_the_estimates_say_where_impact_is_from() -> None:
    sessions = sessions_of([[10.0] * 4])
    rules = ExecutionRules(volume_limit=1.0, temporary_impact_bps=40.0)
    found = [
        AlmgrenChriss(Engine(sessions, 1, one), impact=impact).state_dict()["impact_from"]
        for one, impact in ((rules, None), (None, None), (rules, parameters()))
    ]
    assert found == ["rules", "bars", "given"]


@pytest.mark.parametrize("permanent", [0.0, 20.0])
def test_square_root_impact_of_the_rules_is_minimised(permanent: float) -> None:
    """What the engine charges, and the variance: no trades near its own cost less, nor does the linear path."""
    rules = ExecutionRules(
        volume_limit=1.0,
        temporary_impact_bps=40.0,
        temporary_impact_shape="square_root",
        permanent_impact_bps=permanent,
    )
    sessions, batch = sessions_of([[10.0] * 8]), batch_of([(1, 500.0, 0, 8)], 0)
    engine = Engine(sessions, 1, rules)

    def objective(traded: np.ndarray) -> float:
        now, held = engine.reset(batch), 500.0
        for one in traded:
            now, _ = engine.step(batch, now, np.array([one]))
        held = 1.0 - np.cumsum(traded) / 500.0
        return float(now.cost[0]) / 5000.0 + 3.0 * 0.01**2 * float((held**2).sum())

    own = -np.diff([500.0, *under(rules, partial(estimated, risk_aversion=3.0))])
    assert own[0] > 100.0
    rng = np.random.default_rng(0)
    for _ in range(100):
        noise = rng.normal(0.0, 2.0, size=8)
        assert objective(own + noise - noise.mean()) > objective(own)
    linear = -np.diff([500.0, *under(rules, of(3.0))])
    assert objective(linear) > objective(own) + 1e-5


def test_square_root_impact_takes_the_urgency_of_the_even_rate() -> None:
    """An eighth of 500 shares a tick moves the price by 40 bp * sqrt(0.0625): as 80 bp * 2 of linear impact would."""
    rules = ExecutionRules(volume_limit=1.0, temporary_impact_bps=40.0, temporary_impact_shape="square_root")
    policy = AlmgrenChriss(Engine(sessions_of([[10.0] * 8]), 1, rules))
    policy.impact = parameters()
    policy.fit(batch_of([(1, 500.0, 0, 8)], 0))
    assert policy.risk_aversion == pytest.approx(float(risk_aversion_of(3.0 / 8, 0.01, 0.004 * 0.25 * 8, 0.0)))


def test_permanent_impact_that_splitting_does_not_save_trades_at_once() -> None:
    rules = ExecutionRules(volume_limit=1.0, permanent_impact_bps=20.0)
    assert under(rules, partial(estimated, risk_aversion=3.0))[0] < 1e-6 * 500.0
    np.testing.assert_allclose(under(rules, partial(estimated, risk_aversion=0.0)), 500.0 - 62.5 * np.arange(1, 9))


def test_an_order_that_states_an_aversion_is_traded_by_its_own() -> None:
    """3e-4 in basis points is 3 of the order's value; 0 is even; one that states none goes by the urgency."""
    sessions = sessions_of([[10.0] * 8])
    orders = [dataclasses.replace(order(500.0), aversion=one, order_id=str(one)) for one in (3e-4, 0.0, None)]

    def played(policy: AlmgrenChriss) -> list[list[float]]:
        steps = run(sessions, orders, 1, policy)[1]
        return [one["position"].tolist() for _, one in steps.groupby("order_id", sort=False)]

    policy = AlmgrenChriss(Engine(sessions, 1), impact=parameters())
    policy.fit(batch_of([(1, 500.0, 0, 8)], 0))
    own, even, others = played(policy)
    np.testing.assert_allclose(own, under(ExecutionRules(), of(3.0)), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(even, 500.0 - 62.5 * np.arange(1, 9), atol=1e-9)
    assert policy.risk_aversion is not None
    np.testing.assert_allclose(others, under(ExecutionRules(), of(policy.risk_aversion)), rtol=1e-12, atol=1e-9)
    for one in played(AlmgrenChriss(Engine(sessions, 1), impact=parameters(), risk_aversion=3.0)):
        np.testing.assert_allclose(one, own, rtol=1e-12, atol=1e-9, err_msg="a setting goes before all")
