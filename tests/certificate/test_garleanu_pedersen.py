"""The fading signal: the recursion beside a dynamic programme on a grid, and beside what the engine pays."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.certificate import GarleanuPedersenSettings, garleanu_pedersen_market
from rlwb.certificate.garleanu_pedersen import GarleanuPedersenSolution
from rlwb.certificate.market import CertifiedMarket
from rlwb.errors import ConfigError
from rlwb.execution import Known
from tests.certificate.reference import best_against_signal


@pytest.fixture(scope="module")
def market() -> CertifiedMarket:
    return garleanu_pedersen_market()


@pytest.mark.parametrize(("ticks", "strength", "cost"), [(8, 0.8, 120.0), (5, 0.5, 60.0)])
def test_recursion_and_grid_agree(ticks: int, strength: float, cost: float) -> None:
    """A grid never gains, and loses at most what half a part in each tick costs, a fourth of its square on average."""
    settings = GarleanuPedersenSettings(ticks=ticks, strength=strength, temporary_bp=cost)
    wanted = GarleanuPedersenSolution(settings).value
    for parts in (50, 200):
        loss = wanted - best_against_signal(ticks, strength, 20.0, cost, parts)
        assert 0 < loss < cost * ticks / 4 / parts**2


def test_a_signal_by_hand() -> None:
    """Three ticks, c 120, move 20, rho 0.8, so g 16: the last two trade q/2 + 16 * 0.8 f / 480 and the rest.

    Before the second tick f is 0. Before the third it is +1 or -1, but all that is left trades there. So the order is
    traded evenly, at 120 / 3.
    """
    settings = GarleanuPedersenSettings(ticks=3)
    solution = GarleanuPedersenSolution(settings)
    assert solution.held == pytest.approx([1 / 3, 1 / 2, 1])
    assert solution.pressed[1] == pytest.approx(16 * 0.8 / 480)
    assert solution.value == pytest.approx(-40.0)


def test_the_engine_pays_what_the_recursion_says(market: CertifiedMarket) -> None:
    assert market.value_of_rule(market.solution).mean == pytest.approx(market.optimum, abs=1e-9)
    assert market.twap == pytest.approx(-120 / 8, abs=1e-9)
    assert market.optimum > market.twap + 3


def test_other_rules_are_worth_less(market: CertifiedMarket) -> None:
    class Bent:
        """The best rule with coefficients of the signal that are wrong by a factor."""

        def __init__(self, factor: float) -> None:
            self.factor = factor

        def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
            best: np.ndarray = market.solution.act(obs)
            even = market.solution.held[obs.tick] * obs.position  # type: ignore[attr-defined]
            return np.clip(even + self.factor * (best - even), 0.0, obs.position)

    values = [market.value_of_rule(Bent(factor)).mean for factor in (-1.0, 0.0, 0.7, 1.0, 1.3)]
    assert values[0] < values[1] < values[2] < values[3] > values[4]
    assert values[1] == pytest.approx(market.twap, abs=1e-9), "without the signal it is traded evenly"


def test_a_signal_that_is_too_strong_for_an_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="temporary_bp 20"):
        garleanu_pedersen_market(GarleanuPedersenSettings(temporary_bp=20.0))


def test_three_moves_have_the_same_closed_form() -> None:
    market = garleanu_pedersen_market(GarleanuPedersenSettings(moves=3, ticks=5))
    assert market.value_of_rule(market.solution).mean == pytest.approx(market.optimum, abs=1e-9)
