"""The market explorer, driven by its controls as a browser does."""

from __future__ import annotations

from types import SimpleNamespace

from rlwb.widgets import MarketExplorer
from tests.evaluation.test_market_view import market
from tests.widgets.conftest import Cell, alive
from tests.widgets.test_orders import controls, text


def test_a_session_is_clicked_on_and_nothing_is_left_behind(cell: Cell) -> None:
    sessions, shown = market(), []

    def show() -> None:
        shown[:] = [MarketExplorer(sessions)]
        shown[0]._repr_mimebundle_()

    cell.run(show)
    once = alive()
    assert shown[0]._calendar._data_url is None, "a front end that meets a picture shows none"
    found = controls(shown[0].widget)
    assert list(found) == ["Instrument", "Day", "Picture"]
    axes = shown[0]._calendar.figure.axes[0]
    shown[0]._clicked(SimpleNamespace(inaxes=axes, xdata=0.1, ydata=0.0))
    assert found["Day"].value == "2024-01-01"
    assert shown[0]._below.figure.title.startswith("AAA on 2024-01-01: close ")
    assert "Nothing was found" in text(shown[0].widget)
    assert shown[0]._ring.get_xdata() == [0.0]
    found["Picture"].value = "U of all"
    assert shown[0].view.picture == "U of all"
    del found, axes
    assert alive() == once
    cell.run(show)
    assert alive() == once


def test_headless_it_is_the_session(cell: Cell) -> None:
    cell.attended = False
    explorer = MarketExplorer(market())
    assert set(explorer._repr_mimebundle_()) == {"text/plain", "image/png"}
    assert explorer.figure().title.startswith("AAA on 2024-01-03: close ")
