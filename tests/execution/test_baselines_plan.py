"""The solver of the least-cost plan against a general one, and against the closed form of Almgren and Chriss."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from rlwb.execution.baselines.almgren_chriss import holding, urgency_of
from rlwb.execution.baselines.plan import held_after

NO_ROWS = np.empty((0, 0))


def trades(
    price: np.ndarray, held: float, terms: tuple[float, float, float, bool], drift: np.ndarray, room: np.ndarray
) -> np.ndarray:
    """Return what the plan trades in each tick, from what it holds after each."""
    ticks, zero = len(price), np.zeros(1, dtype=np.int32)
    risk, temporary, permanent, root = terms
    numbers = [np.array([one]) for one in (held, risk, temporary, permanent)]
    left = [held]
    for stop in range(1, ticks + 1):
        places = price[None], zero, zero, zero + stop, zero + ticks
        left.append(float(held_after(*places, *numbers, root, drift, room)[0]))
    return -np.diff(left)


def cost(traded: np.ndarray, terms: tuple[float, float, float, bool], drift: np.ndarray) -> float:
    """Return the objective tick by tick: a fill pays the permanent impact of those before it, and its own temporary."""
    risk, temporary, permanent, root = terms
    total, moved, held = 0.0, 0.0, float(traded.sum())
    for number, one in enumerate(traded):
        held -= one
        total += one * (moved + temporary * (np.sqrt(max(one, 0.0)) if root else one)) + risk * held**2
        total += one * drift[0, number] if len(drift) else 0.0
        moved += permanent * one
    return total


@pytest.mark.parametrize("root", [False, True])
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ticks=st.integers(2, 8),
    risk=st.sampled_from([0.0, 0.01, 0.3]),
    moves=st.sampled_from([0.0, 0.002, 0.05]),
    capped=st.booleans(),
)
def test_a_general_solver_finds_no_better_plan(
    root: bool, seed: int, ticks: int, risk: float, moves: float, capped: bool
) -> None:
    rng = np.random.default_rng(seed)
    held, temporary = rng.uniform(0.1, 1.0), rng.uniform(0.005, 0.1)
    terms = (risk, temporary, temporary * rng.uniform(0.0, 0.5), root)
    drift = rng.normal(0.0, moves, size=(1, ticks)) if moves else NO_ROWS
    room = rng.uniform(0.2, 1.0, size=(1, ticks)) * (2.0 * held / ticks + 0.1) if capped else NO_ROWS
    if capped and room.sum() < held:
        room *= 1.1 * held / room.sum()
    traded = trades(np.ones(ticks), held, terms, drift, room)
    most = room[0] if capped else np.full(ticks, held)
    assert traded.sum() == pytest.approx(held, rel=1e-12)
    assert (traded >= 0).all()
    assert (traded <= most * (1 + 1e-12)).all()
    found = minimize(
        lambda traded: 1e3 * cost(traded, terms, drift),
        most * held / most.sum(),
        bounds=[(0.0, one) for one in most],
        constraints=[{"type": "eq", "fun": lambda traded: traded.sum() - held}],
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    # What the general solver leaves of its constraint is worth at most 6 times as much, the dearest last share.
    assert cost(traded, terms, drift) <= cost(found.x, terms, drift) + 6 * abs(found.x.sum() - held) + 1e-8
    np.testing.assert_allclose(traded, found.x, atol=2e-4)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.floats(0.0, 1e4), st.floats(1e-6, 10.0), st.floats(0.0, 0.95), st.floats(1e-6, 1.0))
def test_linear_impact_without_more_is_the_closed_form(
    ticks: int, risk: float, temporary: float, share: float, held: float
) -> None:
    """400 ticks, and risk from none to one that leaves nothing after the first."""
    permanent = share * temporary
    kappa = urgency_of(1.0, np.sqrt(risk), temporary, permanent)
    zero = np.zeros(1, dtype=np.int32)
    numbers = [np.array([one]) for one in (held, risk, temporary, permanent)]
    for stop in {1, ticks // 3 + 1, ticks}:
        places = np.ones((1, ticks)), zero, zero, zero + stop, zero + ticks
        found = held_after(*places, *numbers, False, NO_ROWS, NO_ROWS)[0]
        expected = held * float(holding(kappa, np.array(ticks - stop), np.array(ticks)))
        assert found == pytest.approx(expected, abs=1e-7 * held)


def test_square_root_impact_without_an_end_is_the_power_law() -> None:
    """Almgren (2003): with v**(1/2) of impact x falls as (1 + t / (3 T))**-3, here with T = 1000 ticks of 10,000.

    v = x / T at the start balances marginal impact and risk: eta v**1.5 / 2 = risk x**2 at x = 1.
    """
    temporary, scale, ticks = 0.1, 1000.0, 10_000
    risk = temporary / 2 * scale**-1.5
    zero = np.zeros(1, dtype=np.int32)
    numbers = [np.array([one]) for one in (1.0, risk, temporary, 0.0)]
    for stop in (100, 500, 1000, 2000):
        places = np.ones((1, ticks)), zero, zero, zero + stop, zero + ticks
        found = held_after(*places, *numbers, True, NO_ROWS, NO_ROWS)[0]
        assert found == pytest.approx((1 + stop / scale / 3) ** -3, abs=4e-3)


def test_ticks_without_a_price_trade_nothing_and_are_no_time() -> None:
    price = np.array([np.nan, 1.0, np.nan, 1.0, 1.0, np.nan])
    terms = (0.02, 0.05, 0.01, True)
    traded = trades(price, 1.0, terms, NO_ROWS, NO_ROWS)
    assert traded[np.isnan(price)].tolist() == [0.0] * 3
    np.testing.assert_allclose(traded[~np.isnan(price)], trades(np.ones(3), 1.0, terms, NO_ROWS, NO_ROWS), atol=1e-12)


def test_room_for_less_than_all_is_stretched() -> None:
    traded = trades(np.ones(4), 1.0, (0.0, 0.1, 0.0, False), NO_ROWS, np.array([[0.1, 0.2, 0.1, 0.0]]))
    np.testing.assert_allclose(traded, [0.25, 0.5, 0.25, 0.0], atol=1e-12)


def test_permanent_impact_alone_trades_at_once_where_risk_counts_and_evenly_where_not() -> None:
    for root in (False, True):
        np.testing.assert_allclose(trades(np.ones(3), 1.0, (1e-3, 0.0, 0.1, root), NO_ROWS, NO_ROWS)[0], 1.0, atol=1e-6)
    np.testing.assert_allclose(trades(np.ones(4), 1.0, (0.0, 0.0, 0.1, False), NO_ROWS, NO_ROWS), 0.25, atol=1e-6)


def test_what_is_no_number_gives_none() -> None:
    zero, bad = np.zeros(1, dtype=np.int32), np.array([np.nan])
    places = np.ones((1, 3)), zero, zero, zero + 1, zero + 3
    assert np.isnan(held_after(*places, np.ones(1), bad, np.ones(1), np.zeros(1), True, NO_ROWS, NO_ROWS))[0]
