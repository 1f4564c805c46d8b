"""Figures of the market: they say what the measures say, whatever the market."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.evaluation import plots
from rlwb.market import Calendar, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market import stylised as facts


@pytest.fixture(scope="module")
def market() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=3, days=15))


def test_every_figure_of_a_market_is_drawn(market: Sessions) -> None:
    markets = {"a": market, "b": market}
    (tails,) = plots.return_tails(markets).axes
    assert [line.get_label().partition(":")[0] for line in tails.lines] == ["a", "b", "normal law"]
    (clusters,) = plots.volatility_clustering(markets, lags=5).axes
    np.testing.assert_allclose(clusters.lines[0].get_ydata(), facts.volatility_autocorrelation(market, 5))
    (profiles,) = plots.intraday_profiles(market).axes
    np.testing.assert_allclose(profiles.lines[1].get_ydata(), facts.volume_profile(market))
    (reversion,) = plots.mean_reversion(markets, longest=6).axes
    assert reversion.lines[0].get_ydata()[0] == pytest.approx(1.0)
    assert reversion.lines[0].get_ydata()[-1] == pytest.approx(facts.variance_ratio(market, 6))


def test_busy_bars_move_more(market: Sessions) -> None:
    (axis,) = plots.volume_and_volatility(market, bins=4).axes
    heights = [bar.get_height() for bar in axis.patches]
    assert len(heights) == 4
    assert heights[0] < heights[-1]


def test_a_session_has_times_below_it(market: Sessions) -> None:
    upper, lower = plots.session_bars(market, 2).axes
    assert lower.get_xticklabels()[0].get_text() == "09:30"
    assert upper.lines[0].get_ydata()[3] == market.fields["close"][2, 3]


def test_a_market_without_prices_draws_all_the_same() -> None:
    empty = np.full((1, 240), np.nan)
    fields = dict.fromkeys(("open", "high", "low", "close", "volume"), empty)
    dates = np.array(["2024-01-02"], dtype="datetime64[D]")
    sessions = Sessions(Calendar.preset("cn"), np.array(["A"]), dates, np.array([240], dtype=np.int32), fields)
    plots.session_bars(sessions, 0)
    plots.mean_reversion({"empty": sessions}, longest=3)
