"""Bertsimas and Lo: the recursion against an independent optimum, the signal by hand, and what the strategy trades."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.execution import BertsimasLo, Engine, ImpactParameters, SignalParameters
from rlwb.execution.baselines.bertsimas_lo import deviation, signal_weights
from tests.execution.markets import order, run, sessions_of


def first_trade(position: float, signal: float, theta: float, gamma: float, rho: float, steps: int) -> float:
    """Return the first trade of the cheapest plan, from the conditions of the quadratic programme.

    The signal enters costs in proportion, so its expected path, rho^t, stands for it (certainty equivalence). Trade s_t
    is paid at P_0 + theta (s_1 + … + s_t) + gamma (X_1 + … + X_t); the plan's sum is the position.
    """
    drift = gamma * signal * np.cumsum(rho ** np.arange(steps))
    hessian = theta * (np.ones((steps, steps)) + np.eye(steps))
    matrix = np.block([[hessian, np.ones((steps, 1))], [np.ones((1, steps)), np.zeros((1, 1))]])
    return float(np.linalg.solve(matrix, np.r_[-drift, position])[0])


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), st.floats(0.01, 10), st.floats(-3, 3), st.floats(-1, 1), st.floats(-2, 2))
def test_the_recursion_is_the_optimum_of_the_quadratic_programme(
    steps: int, theta: float, gamma: float, rho: float, signal: float
) -> None:
    weight = signal_weights(gamma, rho, steps)[steps - 1]
    expected = first_trade(5.0, signal, theta, gamma, rho, steps)
    assert 5.0 / steps + weight * signal / theta == pytest.approx(expected, rel=1e-8, abs=1e-8)


def test_weights_by_hand() -> None:
    """b_0 = gamma, b_1 = gamma (1 + rho / 2); the weights are rho b_0 / 2 and rho b_1 2 / 3."""
    np.testing.assert_allclose(signal_weights(-0.4, 0.5, 3), [0.0, -0.1, 0.5 * -0.5 * 2 / 3])


def test_dynamic_programming_on_a_grid_finds_the_same_trade() -> None:
    """Three steps of a signal that is known to be half of itself next; trades in steps of a hundredth."""
    theta, gamma, rho, start = 1.0, 0.8, 0.5, -1.2
    grid = np.round(np.arange(-100, 301) / 100, 2)  # a position from -1 to 3
    signal = start * rho ** np.arange(3)
    value = theta * grid**2 + gamma * signal[2] * grid
    for step in (1, 0):
        trade = grid[:, None] - grid[None, :]
        now = (theta * trade + gamma * signal[step]) * grid[:, None]
        total = now + value[None, :]
        best = np.where(np.abs(trade) <= 3, total, np.inf).argmin(axis=1)
        chosen = trade[np.arange(len(grid)), best]
        value = total[np.arange(len(grid)), best]
    expected = 2.0 / 3 + signal_weights(gamma, rho, 3)[2] * start / theta
    assert chosen[np.flatnonzero(grid == 2.0)[0]] == pytest.approx(expected, abs=0.011)


def test_the_signal_by_hand() -> None:
    price = np.array([[10.0, np.nan, 12.0, np.nan], [np.nan] * 4, [8.0, 10.0, 9.0, 9.0]])
    np.testing.assert_allclose(deviation(price), [12.0 / 11.0 - 1.0, 0.0, 0.0])


def parameters(permanent: float = 0.02) -> ImpactParameters:
    return ImpactParameters(("AAA",), (1000.0,), (0.01,), (0.02,), (permanent,))


def test_trades_by_hand() -> None:
    """After 10 and 11 the signal is 11 / 10.5 - 1; with two steps left it weighs gamma rho / 2 over theta."""
    sessions = sessions_of([[10.0, 11.0, 10.0, 10.0, 10.0, 10.0]])
    policy = partial(BertsimasLo, impact=parameters(), signal=SignalParameters(gamma=-0.4, rho=0.5))
    signal, theta = 11.0 / 10.5 - 1.0, 0.02 / 1000.0
    shift = -0.1 * signal / theta
    assert shift == pytest.approx(-238.095, abs=1e-3)
    for side, expected in (("BUY", 300.0 - shift * -1), ("SELL", 300.0 - shift)):
        _, steps, _ = run(sessions, [order(900.0, side)], 2, policy)
        assert steps["fill"].iloc[0] == pytest.approx(300.0), "no price has been seen"
        assert steps["fill"].iloc[1] == pytest.approx(expected)
        assert steps["position"].iloc[2] == 0.0


def test_a_trade_is_cut_to_the_position_and_never_turned() -> None:
    sessions = sessions_of([[10.0, 11.0, 10.0, 10.0, 10.0, 10.0]])
    policy = partial(BertsimasLo, impact=parameters(), signal=SignalParameters(gamma=-0.4, rho=0.5))
    for side, expected in (("BUY", 0.0), ("SELL", 6.0)):
        _, steps, _ = run(sessions, [order(9.0, side)], 2, policy)
        assert steps["fill"].iloc[1] == pytest.approx(expected)


def test_without_lasting_impact_it_trades_all_or_nothing_and_evenly_without_a_signal() -> None:
    sessions = sessions_of([[10.0, 11.0, 10.0, 11.0, 10.5, 10.5], [10.0] * 6])
    policy = partial(BertsimasLo, impact=parameters(0.0), signal=SignalParameters(gamma=-0.4, rho=0.5))
    assert run(sessions, [order(900.0)], 2, policy)[1]["fill"].tolist() == [300.0, 0.0, 600.0]
    assert run(sessions, [order(900.0, "SELL")], 2, policy)[1]["fill"].tolist()[:2] == [300.0, 600.0]
    assert run(sessions, [order(900.0, day=2)], 2, policy)[1]["fill"].tolist() == [300.0] * 3
    calm = partial(BertsimasLo, impact=parameters(0.0), signal=SignalParameters(gamma=0.0, rho=0.5))
    assert run(sessions, [order(900.0)], 2, calm)[1]["fill"].tolist() == [300.0] * 3


def test_an_instrument_without_parameters_trades_evenly() -> None:
    other = ImpactParameters(("BBB",), (1000.0,), (0.01,), (0.02,), (0.02,))
    policy = partial(BertsimasLo, impact=other, signal=SignalParameters(gamma=-0.4, rho=0.5))
    sessions = sessions_of([[10.0, 11.0, 10.0, 11.0, 10.5, 10.5]])
    assert run(sessions, [order(900.0)], 2, policy)[1]["fill"].tolist() == [300.0] * 3


def test_the_fit_finds_how_prices_come_back() -> None:
    """A price that returns to the day's first by a fifth a step; the fit is that of the same figures by numpy."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(300):
        price = [10.0]
        for _ in range(7):
            price.append(price[-1] + 0.2 * (10.0 - price[-1]) + rng.normal(0, 0.1))
        rows.append(price)
    sessions = sessions_of(rows)
    found = SignalParameters.fit(Engine(sessions, 2), np.arange(200))
    signal, after, moved = [], [], []
    for row in np.array(rows)[:200]:
        for step in (2, 4, 6):
            signal.append(row[step - 1] / row[:step].mean() - 1)
            after.append(row[step + 1] / row[: step + 2].mean() - 1)
            moved.append(row[step + 1] / row[step - 1] - 1)
    x = np.array(signal)[:, None]
    assert found.gamma == pytest.approx(np.linalg.lstsq(x, np.array(moved), rcond=None)[0][0], rel=1e-9)
    assert found.rho == pytest.approx(np.linalg.lstsq(x, np.array(after), rcond=None)[0][0], rel=1e-9)
    assert found.gamma < -0.1
    again = SignalParameters.fit(Engine(sessions, 2), np.arange(300) < 200)
    assert again == found, "rows by number and by mask are one"


def test_nothing_to_fit_gives_no_signal() -> None:
    assert SignalParameters.fit(Engine(sessions_of([[10.0, 11.0]]), 2), np.array([0])) == SignalParameters(0, 0)
    flat = sessions_of([[10.0] * 4])
    assert SignalParameters.fit(Engine(flat, 1), np.array([0])) == SignalParameters(0, 0)


@pytest.mark.parametrize("wrong", [(np.nan, 0.5), (1.0, 1.5), (1.0, np.nan)])
def test_impossible_parameters_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="gamma must be finite, rho from -1 to 1"):
        SignalParameters(*wrong)
