"""Transient impact: the closed form beside a quadratic programme, and beside what the engine pays."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.certificate import ObizhaevaWangSettings, obizhaeva_wang_market
from rlwb.certificate.market import CertifiedMarket
from rlwb.certificate.obizhaeva_wang import FixedShares, best_shares
from rlwb.errors import ConfigError
from rlwb.execution import Known
from tests.certificate.reference import least_transient_schedule


@pytest.fixture(scope="module")
def market() -> CertifiedMarket:
    return obizhaeva_wang_market()


@pytest.mark.parametrize(("ticks", "half_life"), [(2, 1.0), (5, 0.7), (12, 4.0), (10, 30.0)])
def test_closed_form_and_quadratic_programme_agree(ticks: int, half_life: float) -> None:
    settings = ObizhaevaWangSettings(ticks=ticks, half_life=half_life, transient_bp=100.0)
    shares, cost = least_transient_schedule(ticks, 100.0, half_life)
    assert best_shares(settings) == pytest.approx(shares, abs=2e-5)
    assert obizhaeva_wang_market(settings).optimum == pytest.approx(-cost, rel=1e-9)


def test_a_schedule_by_hand() -> None:
    """With half of a move left after a tick, three ticks trade 2/5, 1/5 and 2/5, and cost 100/2 * 3/2 * 2/5 bp."""
    settings = ObizhaevaWangSettings(ticks=3, half_life=1.0, transient_bp=100.0)
    assert best_shares(settings) == pytest.approx([0.4, 0.2, 0.4], rel=1e-12)
    assert obizhaeva_wang_market(settings).optimum == pytest.approx(-30.0, rel=1e-12)


def test_the_engine_pays_what_the_formula_says(market: CertifiedMarket) -> None:
    assert market.value_of_rule(market.solution).mean == pytest.approx(market.optimum, rel=1e-9)
    settings, i = market.settings, np.arange(12)
    form = settings.transient_bp / 2 * settings.kept ** np.abs(i[:, None] - i)
    for seed in range(3):
        shares = np.random.default_rng(seed).dirichlet(np.ones(12))
        assert market.value_of_rule(FixedShares(shares)).mean == pytest.approx(-shares @ form @ shares, rel=1e-9)
    assert market.twap == pytest.approx(-form.mean(), rel=1e-9)


def test_to_react_to_the_price_gains_nothing(market: CertifiedMarket) -> None:
    class Reacting:
        """Trades the best schedule, and more of it after a fall of the price (less, for a sell)."""

        def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
            last = obs.bars()[np.arange(len(obs)), np.maximum(obs.tick - 1, 0)] if obs.bars().shape[1] else 100.0
            shares = best_shares(market.settings)[obs.tick] * (1 - 100 * (np.nan_to_num(last, nan=100.0) / 100 - 1))
            return np.clip(shares * obs.amount, 0.0, obs.position)

    assert market.value_of_rule(Reacting()).mean < market.optimum - 1e-3


@pytest.mark.parametrize(
    ("changes", "said"), [({"half_life": 0.0}, "half_life is 0.0"), ({"transient_bp": -1.0}, "transient_bp is -1.0")]
)
def test_impossible_laws_are_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ObizhaevaWangSettings(**changes)  # type: ignore[arg-type]
