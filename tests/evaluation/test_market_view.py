"""The state of a market explorer: which session is shown, and what was found there."""

from __future__ import annotations

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.evaluation.market_view import PICTURES, MarketView
from rlwb.market import Sessions
from rlwb.market.findings import Finding, Report
from rlwb.market.quality import sessions_quality
from tests.execution.markets import sessions_of

NAN = np.nan


def market() -> Sessions:
    """AAA on three days, of which the second lacks a price and has a bar without volume."""
    prices = [[10.0, 11.0, 12.0, 13.0], [10.0, NAN, 12.0, 13.0], [9.0, 9.0, 8.0, 8.0]]
    return sessions_of(prices, [[5.0] * 4, [5.0, NAN, 0.0, 5.0], [5.0] * 4])


def test_sessions_are_their_own_calendar() -> None:
    found = sessions_quality(market())
    np.testing.assert_allclose(found.coverage, [[1.0, 0.75, 1.0]])
    np.testing.assert_allclose(found.zeros, [[0.0, 1 / 3, 0.0]])
    assert found.bars == 11
    assert found.days.astype(str).tolist() == ["2024-01-01", "2024-01-02", "2024-01-03"]


def test_a_session_is_chosen_from_lists_or_by_its_place() -> None:
    view = MarketView(market())
    assert (view.instruments(), view.day) == (["AAA"], "2024-01-03")
    view.choose_day("2024-01-01")
    assert view.place() == (0.0, 0.0)
    view.choose_place(1.4, -3.0)
    assert view.day == "2024-01-02"
    view.choose_place(99.0, 0.2)
    assert view.day == "2024-01-03"
    with pytest.raises(DataError, match="2024-02-01"):
        view.choose_day("2024-02-01")
    with pytest.raises(DataError, match="BBB"):
        view.choose_instrument("BBB")
    with pytest.raises(DataError, match="'X'"):
        view.choose_picture("X")
    with pytest.raises(DataError, match="no sessions"):
        MarketView(market().select(np.zeros(3, dtype=bool)))


def test_it_opens_on_a_fault_and_counts_what_is_here() -> None:
    from dataclasses import replace

    report = Report(limit=9)
    report.count("outlier", 3)
    report.show([Finding("outlier", instrument="AAA", date=one) for one in ("2023-12-31", "2024-01-02", "2024-01-02")])
    view = MarketView(market(), replace(sessions_quality(market()), found=report))
    assert view.day == "2024-01-02", "the first of the sessions that are there"
    row = view.findings().loc["outlier"]
    assert (row["severity"], row["here"]) == ("fault", 2)
    assert row["found"].startswith("3 ")
    view.choose_day("2024-01-01")
    assert view.findings().loc["outlier", "here"] == ""


@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_is_drawn(picture: str) -> None:
    view = MarketView(market())
    view.choose_picture(picture)
    assert view.figure().axes
    assert view.calendar().axes
