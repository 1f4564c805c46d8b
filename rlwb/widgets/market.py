"""The market explorer: a calendar of sessions, single sessions, the U of a day, and what a check found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.evaluation.market_view import PICTURES, MarketView
from rlwb.evaluation.playback_plots import ring
from rlwb.experiment.orders import workbench
from rlwb.experiment.run import RunDirectory
from rlwb.market import Sessions
from rlwb.market.quality import Quality
from rlwb.widgets.panel import Panel, in_turn, live, put, redraw, table_html

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure


class MarketExplorer(Panel):
    """A calendar of sessions; the one that is clicked on or chosen is shown below, with the U of the day and findings.

    Parameters
    ----------
    source
        Sessions, or the directory of a run, whose bars are loaded.
    quality
        What a check of the bars found (`rlwb.market.quality.check_bars`); by default what loading them noticed.

    Attributes
    ----------
    view
        The state, a `rlwb.evaluation.market_view.MarketView`.

    Raises
    ------
    DataError
        When there are no sessions.
    """

    def __init__(self, source: Sessions | str | os.PathLike[str], quality: Quality | None = None) -> None:
        super().__init__()
        sessions = source if isinstance(source, Sessions) else workbench(RunDirectory.open(Path(source))).sessions
        self.view = MarketView(sessions, quality)

    def figure(self) -> Figure:
        return self.view.figure()

    def build(self) -> Widget:
        import ipywidgets as w

        self._controls = {
            "instrument": w.Dropdown(description="Instrument"),
            "day": w.Dropdown(description="Day"),
            "picture": w.Dropdown(description="Picture", options=PICTURES),
        }
        self._below, self._found = live(self.view.figure()), w.HTML()
        calendar = self.view.calendar()
        self._ring = ring(calendar, *self.view.place())
        self._calendar = live(calendar)
        self._calendar.mpl_connect("button_press_event", self._clicked)
        self._filling = False
        self._fill()
        for name, control in self._controls.items():
            control.observe(lambda change, name=name: self._chosen(name, change["new"]), "value")
        lists = w.HBox(list(self._controls.values()), layout=w.Layout(flex_flow="row wrap"))
        return w.VBox([self._calendar, lists, self._below, self._found])

    def _clicked(self, event: Any) -> None:
        if event.inaxes is self._calendar.figure.axes[0]:
            self.view.choose_place(event.xdata, event.ydata)
            self._fill()

    @in_turn
    def _chosen(self, name: str, value: str) -> None:
        if not self._filling:
            getattr(self.view, f"choose_{name}")(value)
            self._fill()

    def _fill(self) -> None:
        """Show the view's session and picture, in the lists too."""
        view, controls = self.view, self._controls
        self._filling = True
        controls["instrument"].options, controls["instrument"].value = view.instruments(), view.instrument
        controls["day"].options, controls["day"].value = view.days(), view.day
        controls["picture"].value = view.picture
        self._filling = False
        x, y = view.place()
        self._ring.set_data([x], [y])
        redraw(self._calendar)
        put(self._below, view.figure())
        found = view.findings()
        caption = f"findings; here: {view.instrument} on {view.day}" if len(found) else "Nothing was found."
        self._found.value = table_html(found, caption)

    def close(self) -> None:
        super().close()
        for name in ("_controls", "_below", "_found", "_ring", "_calendar"):
            self.__dict__.pop(name, None)
