"""The checkpoint explorer: validation against test, and the orders and inventory paths behind each point."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.evaluation import plots
from rlwb.evaluation.playback_plots import ring
from rlwb.experiment.explore import CheckpointView
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.widgets.orders import OrderExplorer
from rlwb.widgets.panel import Panel, in_turn, live, put, redraw, table_html

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure


class CheckpointExplorer(Panel):
    """Validation against test PA of a run's checkpoints; the one that is chosen opens its inventory paths and orders.

    A checkpoint is chosen by a click on its point or from the list, and so is one of its orders, which opens below,
    beside TWAP, in an `rlwb.widgets.OrderExplorer`.

    Parameters
    ----------
    run_dir
        The directory of a run with a backtest.
    bench
        The parts of the run, where they are made already (`rlwb.experiment.orders.workbench`).

    Attributes
    ----------
    view
        The state, a `rlwb.experiment.explore.CheckpointView`.

    Raises
    ------
    CheckpointError
        When the run has no backtest, or judged no checkpoint.
    """

    def __init__(self, run_dir: str | os.PathLike[str], *, bench: Workbench | None = None) -> None:
        super().__init__()
        self._bench = bench
        self.orders: OrderExplorer | None = None
        self.run = RunDirectory.open(Path(run_dir))
        self.view = CheckpointView(self.run)

    def figure(self) -> Figure:
        return self._points()

    def _points(self) -> Figure:
        view = self.view
        figure = plots.validation_against_test(
            view.summary, expected_shrinkage=view.shrinkage, judged_by=view.judged_by
        )
        self._ring = ring(figure, *self.view.point())
        return figure

    def _inventories(self) -> Figure:
        figure = plots.inventory_paths(self.view.inventories())
        figure.set_size_inches(7.2, 3.2)
        return figure

    def build(self) -> Widget:
        import ipywidgets as w

        view = self.view
        self._which = w.Dropdown(
            description="Checkpoint",
            options=[(view.label(one), one) for one in view.names],
            value=view.chosen,
            layout=w.Layout(width="36em"),
        )
        self._order = w.Dropdown(description="Open order", layout=w.Layout(width="36em"))
        self._paths, self._below, self._table = live(self._inventories()), w.Box(), w.HTML()
        self._filling = False
        figure = self._points()
        self._canvas = live(figure)
        self._canvas.mpl_connect("button_press_event", self._clicked)
        self._fill()
        self._which.observe(lambda change: self._chosen(change["new"]), "value")
        self._order.observe(lambda change: self._opened(change["new"]), "value")
        return w.VBox([self._which, self._canvas, self._paths, self._order, self._table, self._below])

    def _clicked(self, event: Any) -> None:
        """Choose the checkpoint nearest to a click."""
        axes = self._canvas.figure.axes[0]
        if event.inaxes is axes:
            (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
            self._which.value = self.view.nearest(event.xdata, event.ydata, right - left, high - low)

    @in_turn
    def _chosen(self, name: str) -> None:
        self.view.choose(name)
        x, y = self.view.point()
        self._ring.set_data([x], [y])
        redraw(self._canvas)
        self._fill()
        if self.orders is not None:
            self._opened(self.orders.view.order_id)

    def _fill(self) -> None:
        """Show the chosen checkpoint's inventory paths and orders."""
        table = self.view.orders()
        put(self._paths, self._inventories())
        labels = [(f"PA {pa:.1f} bp: {name}", name) for name, pa in table["PA, bp"].items()]
        self._filling = True
        self._order.options = [("choose one", ""), *labels]
        self._order.value = ""
        self._filling = False
        self._table.value = table_html(table, f"{escape(self.view.chosen)}: orders with the worst, median and best PA")

    @in_turn
    def _opened(self, order_id: str) -> None:
        """Open an order of the chosen checkpoint below."""
        if self._filling or not order_id:
            return
        beside = [self.view.chosen, *(["twap"] if "twap" in self.view.results else [])]
        self._close_orders()
        self.orders = OrderExplorer(self.run.path, policies=beside, order_id=order_id, bench=self._bench)
        self._below.children = (self.orders.widget,)

    def _close_orders(self) -> None:
        if self.orders is not None:
            self._below.children = ()
            self.orders.close()
            self.orders = None

    def close(self) -> None:
        if self.orders is not None:
            self._close_orders()
        super().close()
        for name in ("_which", "_order", "_paths", "_below", "_table", "_canvas", "_ring"):
            self.__dict__.pop(name, None)
