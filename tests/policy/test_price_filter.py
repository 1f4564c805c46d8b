"""The filter of what reverts in prices: its recursion beside another's, what it finds of a planted law, and of none."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlwb.execution.baselines.filter_optimum import filtered, kalman_gains
from rlwb.policy.price_filter import PriceFilter

SESSIONS, TICKS = 1500, 24


def simulated(
    phi: float, efficient: float, transient: float, slopes: tuple[float, float] = (0.0, 0.0), seed: int = 5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray]:
    """Return gaps, moves, drivers of shape (S, T, 1) and the part that reverts after each tick, by the model itself."""
    rng = np.random.default_rng(seed)
    driver = rng.standard_normal((SESSIONS, TICKS))
    deviations = [np.sqrt(one * np.exp(b * driver)) for one, b in zip((efficient, transient), slopes, strict=True)]
    morning = transient / (1 - phi**2)
    x, night = np.sqrt(morning) * rng.standard_normal((2, SESSIONS))
    gap = x - night + 40.0 * rng.standard_normal(SESSIONS)
    moves, paths = np.empty((SESSIONS, TICKS)), np.empty((SESSIONS, TICKS))
    for tick in range(TICKS):
        shocks = np.sqrt(3 / 5) * rng.standard_t(5, (2, SESSIONS))
        after = phi * x + deviations[1][:, tick] * shocks[0]
        moves[:, tick] = deviations[0][:, tick] * shocks[1] + after - x
        x = paths[:, tick] = after
    return torch.tensor(gap), torch.tensor(moves), torch.tensor(driver)[..., None], paths


def estimates(one: PriceFilter, gap: torch.Tensor, moves: torch.Tensor, drivers: torch.Tensor) -> np.ndarray:
    now, means = one.begin(gap.float()), []
    for tick in range(moves.shape[1]):
        now = one.further(now, moves[:, tick].float(), drivers[:, tick].float(), tick)
        means.append(now.mean.numpy())
    return np.stack(means, axis=1)


def test_the_recursion_is_the_kalman_filter_of_the_market_with_a_known_law() -> None:
    phi, efficient, transient, morning, night = 0.9, 300.0, 500.0, 4000.0, 9000.0
    gap, moves, drivers, _ = simulated(phi, efficient, transient)
    usual, slopes = np.linspace(0.5, 1.5, TICKS), np.array([[0.4], [-0.3]])
    one = PriceFilter(TICKS, 1)
    one.law.copy_(torch.tensor([np.log(phi / (1 - phi)), *np.log([efficient, transient, morning, night])]))
    one.slopes.copy_(torch.tensor(slopes))
    one.usual.copy_(torch.tensor(usual))
    variances = [
        level * usual * np.exp(slope * drivers[..., 0].numpy())
        for level, slope in zip((efficient, transient), slopes[:, 0], strict=True)
    ]
    gain = morning / (night + 2 * morning)
    gains = kalman_gains(phi, np.full(SESSIONS, morning - gain * morning), *variances)
    price = np.cumsum(np.column_stack([gap.numpy(), moves.numpy()]), axis=1)
    told = estimates(one, gap, moves, drivers)
    for until in (1, 7, TICKS):
        wanted = filtered(gain * gap.numpy(), price, gains.gain, phi, np.full(SESSIONS, until, dtype=np.int32))
        assert told[:, until - 1] == pytest.approx(wanted, rel=1e-3, abs=0.02)


def test_a_planted_law_is_found() -> None:
    gap, moves, drivers, paths = simulated(0.8, 300.0, 500.0, slopes=(0.8, 0.2))
    one = PriceFilter(TICKS, 1)
    one.fit(gap, moves, drivers)
    assert float(torch.sigmoid(one.law[0])) == pytest.approx(0.8, abs=0.03)
    ratio = float((one.law[1] - one.law[2]).exp())
    assert ratio == pytest.approx(300 / 500, rel=0.2)
    assert one.slopes[:, 0].tolist() == pytest.approx([0.8, 0.2], abs=0.15)
    knowing = PriceFilter(TICKS, 1)
    morning = 500.0 / (1 - 0.8**2)
    knowing.law.copy_(torch.tensor([np.log(0.8 / 0.2), *np.log([300.0, 500.0, morning, 40.0**2])]))
    knowing.slopes.copy_(torch.tensor([[0.8], [0.2]]))
    told, best = (estimates(each, gap, moves, drivers) for each in (one, knowing))
    slope = np.sum(told * paths) / np.sum(told**2)
    assert slope == pytest.approx(1.0, abs=0.05), "an unbiased estimate is the conditional mean"
    fit, most = (np.corrcoef(each.ravel(), paths.ravel())[0, 1] for each in (told, best))
    assert 0.99 * most < fit <= most + 0.003


def test_where_nothing_reverts_next_to_nothing_is_found() -> None:
    gap, moves, drivers, _ = simulated(0.9, 400.0, 1e-9)
    one = PriceFilter(TICKS, 1)
    one.fit(gap, moves, drivers)
    told = estimates(one, gap, moves, drivers)
    phi = float(torch.sigmoid(one.law[0]))
    assert np.std((phi - 1) * told) < 0.05 * float(moves.std()), "the next return that it expects"


def test_what_the_returns_do_not_tell_stays_finite() -> None:
    """Returns of one size, the first always 0, gaps of rounding alone, and nothing to go with: as of a small tree."""
    rng = np.random.default_rng(3)
    moves = torch.tensor(13.0 * rng.choice([-1.0, 1.0], (SESSIONS, TICKS)))
    moves[:, 0] = 0.0
    gap, drivers = torch.full((SESSIONS,), 1e-9), torch.zeros(SESSIONS, TICKS, 1)
    one = PriceFilter(TICKS, 1)
    one.fit(gap, moves, drivers)
    told = estimates(one, gap, moves, drivers)
    assert np.isfinite(told).all()
    assert np.abs(told).max() < 1000.0
    assert not one.begin(gap).mean.any(), "a gap that is none tells nothing"


def test_before_it_is_fitted_and_on_prices_that_stand_still_it_says_nothing() -> None:
    gap, moves, drivers, _ = simulated(0.9, 300.0, 500.0)
    one = PriceFilter(TICKS, 1)
    assert not estimates(one, gap, moves, drivers).any()
    one.fit(torch.zeros(SESSIONS), torch.zeros(SESSIONS, TICKS), drivers)
    assert not estimates(one, gap, moves, drivers).any()


def test_the_same_sessions_give_the_same_law_to_the_bit() -> None:
    gap, moves, drivers, _ = simulated(0.8, 300.0, 500.0)
    one, other = PriceFilter(TICKS, 1), PriceFilter(TICKS, 1)
    for each in (one, other):
        each.fit(gap, moves, drivers)
    assert torch.equal(one.law, other.law)
    one.fit(-gap, -moves, drivers)
    assert torch.equal(one.law, other.law), "a mirror has the same law"
