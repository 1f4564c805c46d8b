"""Panels: what a cell shows, and what is left of it when it is run again."""

from __future__ import annotations

from typing import Any

import ipywidgets
import nbformat
from matplotlib.figure import Figure
from nbconvert import HTMLExporter

from rlwb.widgets.panel import Panel, live
from tests.widgets.conftest import Cell, alive

VIEW = "application/vnd.jupyter.widget-view+json"


class Turned(Panel):
    """A slider that moves a line."""

    def figure(self) -> Figure:
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot([0, 1])
        return figure

    def build(self) -> ipywidgets.Widget:
        canvas, slider = live(self.figure()), ipywidgets.IntSlider(description="Step")

        def move(change: Any) -> None:
            canvas.figure.axes[0].lines[0].set_ydata([0, change["new"]])

        slider.observe(move, "value")
        return ipywidgets.VBox([slider, canvas])


def test_a_cell_that_is_run_again_leaves_nothing_of_the_run_before(cell: Cell) -> None:
    shown: list[Any] = []

    def show() -> None:
        panel = Turned()
        panel._repr_mimebundle_()
        shown[:] = [panel]

    cell.run(show)
    once = alive()
    assert once["widgets"] > 0
    for _ in range(2):
        first = shown[0]
        shown.clear()
        cell.run(show)
        assert first._widget is None
        del first
    assert alive() == once
    cell.place = "b"
    cell.run(show)
    assert alive()["widgets"] == 2 * once["widgets"], "another cell closes nothing of this one"


def test_two_panels_of_one_run_of_a_cell_live_side_by_side(cell: Cell) -> None:
    cell.execution = 100
    one, two = Turned(), Turned()
    one._repr_mimebundle_()
    two._repr_mimebundle_()
    assert one._widget is not None
    assert two._widget is not None


def test_headless_and_without_ipywidgets_there_is_a_figure_alone(cell: Cell, monkeypatch: Any) -> None:
    assert set(Turned()._repr_mimebundle_()) == {"text/plain", "image/png", VIEW}
    cell.attended = False
    assert set(Turned()._repr_mimebundle_()) == {"text/plain", "image/png"}
    cell.attended = True
    monkeypatch.setattr("rlwb.widgets.panel._has_ipywidgets", lambda: False)
    assert set(Turned()._repr_mimebundle_()) == {"text/plain", "image/png"}


def test_a_page_exported_from_a_notebook_has_the_figure(cell: Cell) -> None:
    shown = Turned()._repr_mimebundle_()
    assert VIEW in shown
    output = nbformat.v4.new_output("display_data", data=shown)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    page, _ = HTMLExporter().from_notebook_node(book)
    assert f'src="data:image/png;base64,{shown["image/png"][:40]}' in page
    assert shown[VIEW]["model_id"] not in page
