"""The Gaussian market beside closed forms, quadrature, a halved grid and its own sampled sessions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from rlwb.certificate import GaussianSettings, gaussian_market
from rlwb.certificate.gaussian import GridSolution, expectation, gaussian_prices
from rlwb.certificate.market import START, CertifiedMarket, Solution
from rlwb.errors import ConfigError
from rlwb.execution import TWAP, Known

SMALL = {"train_sessions": 500, "judged_sessions": 4000}


@pytest.fixture(scope="module")
def market() -> CertifiedMarket:
    return gaussian_market(GaussianSettings(**SMALL))


@pytest.fixture(scope="module")
def penalised() -> CertifiedMarket:
    return gaussian_market(GaussianSettings(penalty=4.0, **SMALL))


def test_prices_follow_the_law() -> None:
    shape = GaussianSettings(ticks=6, reversion=0.25, noise_bp=10)
    x = gaussian_prices(shape, 200_000, np.random.default_rng(1)) / 100 - 1
    assert (x[:, 0] == 0).all()
    slope = (x[:, 3] @ x[:, 4]) / (x[:, 3] @ x[:, 3])
    assert slope == pytest.approx(0.75, abs=4 * np.sqrt((1 - 0.75**2) / 200_000) / 0.6)
    # Variances: 1, then 1 + 9/16, then that times 9/16 and 1 more.
    assert np.var(x[:, 1:4], axis=0) * 1e6 == pytest.approx([1, 1.5625, 1.87890625], rel=0.02)


def test_expectations_of_piecewise_linear_functions_are_exact() -> None:
    grid, mean, deviation = np.linspace(-3, 3, 7), np.array([-1.5, 0.0, 0.3]), 0.8
    step = expectation(grid, mean, deviation)
    np.testing.assert_allclose(step @ np.ones(7), 1, rtol=1e-14)
    np.testing.assert_allclose(step @ (2 * grid - 1), 2 * mean - 1, rtol=1e-13)
    # Folded normal: E|y|.
    folded = deviation * np.sqrt(2 / np.pi) * np.exp(-((mean / deviation) ** 2) / 2)
    folded += mean * (1 - 2 * norm.cdf(-mean / deviation))
    np.testing.assert_allclose(step @ np.abs(grid), folded, rtol=1e-13)


@pytest.mark.parametrize("reversion", [0.1, 0.25, 0.6])
def test_four_ticks_have_a_closed_form(reversion: float) -> None:
    """One decision has a choice: after x_1, at tick 2 for -k x_1 or at tick 3 for -k**2 x_1.

    So the value is ``k E[x^-] - k**2 E[x^+] = k (1 - k) noise / sqrt(2 pi)``, on any grid with 0 in it.
    """
    k = 1 - reversion
    wanted = k * (1 - k) * 10 / np.sqrt(2 * np.pi)
    for points in (3, 201):
        found = GridSolution(GaussianSettings(ticks=4, reversion=reversion, noise_bp=10, points=points)).value
        assert found == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_five_ticks_by_quadrature(penalty: float) -> None:
    """The same recursion, lot by lot, with the trapezoidal rule over the normal density in place of the grid."""
    k, noise, lots = 0.75, 10.0, 2
    nodes = np.linspace(-8, 8, 2001)
    weights = norm.pdf(nodes) / norm.pdf(nodes).sum()

    def best(x: np.ndarray, left: int, ahead: Callable[[int], np.ndarray]) -> np.ndarray:
        options = [a / lots * -k * x - penalty * (a / lots) ** 2 + ahead(left - a) for a in range(left + 1)]
        return np.max(np.broadcast_arrays(*options), axis=0)

    def last(x: np.ndarray, left: int) -> np.ndarray:
        return -left / lots * k * x - penalty * (left / lots) ** 2

    def third(x: np.ndarray, left: int) -> np.ndarray:
        # What follows is linear in x, so its expectation is its value at the mean.
        return best(x, left, lambda rest: last(k * x, rest))

    def second(x: np.ndarray, left: int) -> np.ndarray:
        return best(x, left, lambda rest: third(k * x[:, None] + noise * nodes, rest) @ weights)

    start = np.zeros(1)
    first = [second(noise * nodes, left) @ weights for left in range(lots + 1)]
    wanted = best(start, lots, lambda rest: best(start, rest, lambda left: np.array([first[left]])))[0]
    shape = GaussianSettings(ticks=5, lots=lots, reversion=0.25, noise_bp=noise, penalty=penalty, points=1601)
    assert GridSolution(shape).value == pytest.approx(wanted, abs=2e-4)


@pytest.mark.parametrize("penalty", [0.0, 4.0])
def test_a_grid_overstates_and_halving_it_quarters_the_error(penalty: float) -> None:
    values = [GridSolution(GaussianSettings(penalty=penalty, points=n)).value for n in (101, 201, 401, 801)]
    falls = -np.diff(values)
    assert (falls > 0).all()
    np.testing.assert_allclose(falls[:-1] / falls[1:], 4, rtol=0.15)
    # A quarter, a sixteenth, … of the last fall is still to come.
    assert falls[-1] / 3 < 1e-4 * values[-1]


def test_the_engine_pays_the_solution_what_the_grid_says(market: CertifiedMarket, penalised: CertifiedMarket) -> None:
    for each in (market, penalised):
        weight = each.probability[each.judged]
        mean = weight @ each.replayed
        error = np.sqrt(weight**2 @ (each.replayed - mean) ** 2)
        assert error < 0.03 * each.optimum
        assert mean == pytest.approx(each.optimum, abs=3 * error)
        assert each.value_of_rule(each.solution) == (pytest.approx(each.optimum, abs=1e-12), pytest.approx(0))


def test_other_rules_are_worth_less(market: CertifiedMarket, penalised: CertifiedMarket) -> None:
    """Thresholds on the last price, the best of them near the solution's own."""

    class Threshold(Solution):
        def __init__(self, level: float) -> None:
            self.level = level

        def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
            tick = np.maximum(obs.tick, 1) - 1
            x = obs.side * np.nan_to_num(obs.bars()[np.arange(len(obs)), tick] / 100 - 1)
            return np.where((x * 1e4 < self.level) | (obs.tick == 15), left, 0)

    for level in (-30.0, -20.0, -15.0, -10.0, 0.0):
        for each in (market, penalised):
            value = each.value_of_rule(Threshold(level))
            assert value.mean < each.optimum + 3 * value.error
            assert value.mean < 0.99 * each.optimum


def test_twap_is_worth_minus_its_penalty(market: CertifiedMarket, penalised: CertifiedMarket) -> None:
    assert market.twap == 0
    assert penalised.twap == -0.25
    value = penalised.value_of_rule(TWAP(penalised.simulator.engine))
    assert value.mean == pytest.approx(-0.25, abs=3 * value.error)
    assert 0 < value.error < 0.2


@pytest.mark.parametrize(("penalty", "wanted"), [(0.0, 0.0), (4.0, -1.0)])
def test_without_reversion_nothing_is_worth_more_than_nothing(penalty: float, wanted: float) -> None:
    """With a penalty the best is four ticks of a lot each: squares of 4 / 16."""
    assert GridSolution(GaussianSettings(reversion=0, penalty=penalty)).value == pytest.approx(wanted, abs=1e-8)


def test_sessions_to_train_on_are_not_those_to_judge_by(market: CertifiedMarket) -> None:
    assert not (market.probability * market.training).any()
    assert len(market.judged) == 4000
    assert market.probability.sum() == pytest.approx(1)
    assert (market.draw(1000, 3) < 500).all()


def test_the_seed_makes_the_sessions() -> None:
    prices = [
        gaussian_market(GaussianSettings(ticks=4, train_sessions=2, judged_sessions=3, seed=seed)).sessions.fields
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(prices[0]["close"], prices[1]["close"])
    assert not np.array_equal(prices[0]["close"], prices[2]["close"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ticks": 1}, "ticks is 1"),
        ({"lots": 0}, "lots is 0"),
        ({"judged_sessions": 1}, "judged_sessions is 1"),
        ({"reversion": 1.0}, "reversion is 1.0"),
        ({"noise_bp": 0}, "noise_bp is 0"),
        ({"noise_bp": float("nan")}, "noise_bp is nan"),
        ({"penalty": -2}, "penalty is -2"),
        ({"points": 100}, "points is 100"),
    ],
)
def test_impossible_laws_are_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GaussianSettings(**changes)  # type: ignore[arg-type]


def test_what_the_weights_of_the_penalty_leave_open() -> None:
    """The bound that the module states, by sampling: E|mean of x| is 0.064 %."""
    price = gaussian_prices(GaussianSettings(), 200_000, np.random.default_rng(5))
    mean = np.abs(price.mean(axis=1) / START - 1)
    assert mean.mean() == pytest.approx(6.4e-4, abs=0.05e-4 + 4 * mean.std() / np.sqrt(len(mean)))
