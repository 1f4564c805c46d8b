"""The order explorer, driven by its controls as a browser does."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import ipywidgets
import pytest

from rlwb.widgets import OrderExplorer
from rlwb.widgets.panel import _tree
from tests.evaluation.test_playback import playback
from tests.widgets.conftest import Cell, alive

CONTROLS = ["Instrument", "Day", "Order", "Policy", "Beside", "And", "Step"]


def controls(widget: ipywidgets.Widget) -> dict[str, Any]:
    """Return what keyboards reach, by its description, in the sequence of the page."""
    kinds = (ipywidgets.Dropdown, ipywidgets.SelectionSlider)
    return {one.description: one for one in _tree(widget) if isinstance(one, kinds)}


def text(widget: ipywidgets.Widget) -> str:
    return " ".join(one.value for one in _tree(widget) if isinstance(one, ipywidgets.HTML))


def test_the_slider_says_why(cell: Cell) -> None:
    explorer = OrderExplorer(playback())
    found = controls(explorer.widget)
    assert list(found) == CONTROLS
    assert found["Step"].options == ("09:30", "09:32", "09:34")
    assert "halves waits" in text(explorer.widget)
    drawn, span = explorer._order, explorer._order.left[0].patches[0]
    found["Step"].index = 1
    assert explorer.view.step == 1
    assert explorer._order is drawn, "a step draws nothing anew"
    assert span.get_x() == 1.5
    said = text(explorer.widget)
    assert "halves trades 50 %" in said
    assert "waiting to cost 9.0 bp" in said
    assert said.count('font-weight:bold">') >= 1


def test_lists_and_clicks_choose(cell: Cell) -> None:
    explorer = OrderExplorer(playback())
    found = controls(explorer.widget)
    found["Step"].index = 2
    found["Day"].value = "2024-01-02"
    assert explorer.view.step == 2
    assert [label for label, _ in found["Order"].options] == ["buy 40 09:30-09:36"]
    found["Day"].value = "2024-01-01"
    assert len(found["Order"].options) == 2
    found["Order"].value = found["Order"].options[1][1]
    assert explorer.view.reading().side == -1
    found["Policy"].value = "twap"
    assert explorer.view.policies == ("twap",), "each once"
    assert found["Beside"].value == found["And"].value == ""
    assert "halves" not in text(explorer.widget)
    explorer._clicked(SimpleNamespace(inaxes=explorer._order.left[1], xdata=0.2))
    assert explorer.view.step == found["Step"].index == 0
    explorer._clicked(SimpleNamespace(inaxes=None, xdata=5.0))
    assert explorer.view.step == 0
    found["And"].value = "halves"
    assert explorer.view.policies == ("twap", "halves")
    assert found["Beside"].value == "halves"


def test_orders_and_reruns_leave_nothing_behind(cell: Cell) -> None:
    book, shown = playback(), []

    def show() -> None:
        shown[:] = [OrderExplorer(book)]
        shown[0]._repr_mimebundle_()

    cell.run(show)
    once = alive()
    found = controls(shown[0].widget)
    for day in ("2024-01-02", "2024-01-01"):
        found["Day"].value = day
        found["Step"].index = 1
    assert alive() == once, "an order that is chosen takes the place of the one before"
    del found
    cell.run(show)
    assert alive() == once, "and so does a cell that is run again"


def test_two_threads_of_a_kernel_take_turns(cell: Cell) -> None:
    explorer, inside, most = OrderExplorer(playback()), [0], [0]
    step, mark = controls(explorer.widget)["Step"], explorer._mark

    def marked() -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.001)  # lets the other one in
        mark()
        inside[0] -= 1

    explorer._mark = marked  # type: ignore[method-assign]

    def turn() -> None:
        for place in range(10):
            step.index = place % 3

    threads = [threading.Thread(target=turn) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert most == [1]


def test_headless_it_is_a_picture_that_says_why(cell: Cell) -> None:
    cell.attended = False
    explorer = OrderExplorer(playback())
    assert set(explorer._repr_mimebundle_()) == {"text/plain", "image/png"}
    assert explorer._widget is None
    assert " ".join(explorer.view.why()[0].split()) in explorer.figure().alt


@pytest.mark.parametrize("policies", [("twap",), ("twap", "halves")])
def test_policies_may_be_named(cell: Cell, policies: tuple[str, ...]) -> None:
    assert OrderExplorer(playback(), policies=policies).view.policies == policies
