"""The order explorer: an order by several policies, step by step, and why each did what it did."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlwb.evaluation.playback import OrderView, Playback
from rlwb.evaluation.playback_plots import OrderFigure
from rlwb.evaluation.results import policy_title
from rlwb.experiment.explore import judged_runs, run_playback
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.widgets.panel import Panel, in_turn, live, put, redraw, table_html

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure

#: The lists of the policies side by side.
_BESIDE = ("Policy", "Beside", "And")


class OrderExplorer(Panel):
    """Prices, fills, inventory, expectations, chances of actions and rewards of an order, with a slider over its steps.

    Instrument, day, order and policies are chosen from lists; of a run, other runs beside it too. A click into the
    left part of the picture goes to the step there.

    Parameters
    ----------
    source
        The directory of a run with a backtest, of one over windows, or of several, or a
        `rlwb.evaluation.playback.Playback`.
    policies
        Side by side, at most three; of a run by default its best checkpoint, its best simple rule and TWAP.
    order_id
        By default the order with the median PA of the first policy.
    bench
        The parts of the run, where they are made already (`rlwb.experiment.orders.workbench`).

    Attributes
    ----------
    view
        The state, a `rlwb.evaluation.playback.OrderView`.

    Raises
    ------
    CheckpointError
        When there is no run with a backtest, or no such policy.
    OrderError
        When there is no such order, or the run's simulator keeps no ticks.
    """

    def __init__(
        self,
        source: Playback | str | os.PathLike[str],
        *,
        policies: Sequence[str] = (),
        order_id: str | None = None,
        bench: Workbench | None = None,
    ) -> None:
        super().__init__()
        self.runs: dict[str, RunDirectory] = {}
        self.run = ""
        if isinstance(source, Playback):
            self.view = OrderView(source, policies, order_id)
        else:
            path = Path(source)
            self.runs = judged_runs(path)
            self.run = path.resolve().name if path.resolve().name in self.runs else next(iter(self.runs))
            self._open(policies, order_id, bench)

    def _open(self, policies: Sequence[str] = (), order_id: str | None = None, bench: Workbench | None = None) -> None:
        self.view = OrderView(run_playback(self.runs[self.run], bench), policies, order_id)

    def choose_run(self, name: str) -> None:
        """Show another run, from its typical order on."""
        self.run = name
        self._open()

    def figure(self) -> Figure:
        return self._drawn(told=True).figure

    def _drawn(self, *, told: bool = False) -> OrderFigure:
        plays = self.view.played()
        return OrderFigure(plays, self.view.step, told=told)

    def build(self) -> Widget:
        import ipywidgets as w

        wide = w.Layout(width="19em")
        self._controls: dict[str, Any] = {
            **({"run": w.Dropdown(description="Run", layout=wide)} if self.runs else {}),
            "instrument": w.Dropdown(description="Instrument", layout=wide),
            "day": w.Dropdown(description="Day", layout=wide),
            "order": w.Dropdown(description="Order", layout=w.Layout(width="30em")),
            **{name: w.Dropdown(description=name, layout=w.Layout(width="30em")) for name in _BESIDE},
            "step": w.SelectionSlider(description="Step", options=["-"], layout=w.Layout(width="60em")),
        }
        self._order = self._drawn()
        self._canvas, self._why, self._audit = live(self._order.figure), w.HTML(), w.HTML()
        self._filling = False
        self._fill()
        self._show()
        for name, control in self._controls.items():
            control.observe(
                lambda change, name=name: self._chosen(name, change["new"]), "index" if name == "step" else "value"
            )
        lists = [self._controls[name] for name in ("run", "instrument", "day") if name in self._controls]
        chosen = [self._controls[name] for name in ("order", *_BESIDE)]
        head = w.HBox([w.VBox(lists), w.VBox(chosen)], layout=w.Layout(flex_flow="row wrap"))
        return w.VBox([head, self._controls["step"], self._why, self._canvas, self._audit])

    @in_turn
    def _chosen(self, name: str, value: Any) -> None:
        """Take what a control was set to, by a person and not by `_fill`."""
        if self._filling or value is None:
            return
        if name == "step":
            self.view.move(value)
            self._mark()
            return
        if name in _BESIDE:
            self.view.choose_policies([one for place in _BESIDE if (one := self._controls[place].value)])
        else:
            choose = self.choose_run if name == "run" else getattr(self.view, f"choose_{name}")
            choose(value)
        self._fill()
        self._order = self._drawn()
        put(self._canvas, self._order.figure)
        self._show()

    def _fill(self) -> None:
        """Let the controls offer what the view has, and show what is chosen."""
        view, playback = self.view, self.view.playback
        orders = playback.orders(view.instrument, view.day)
        offered: dict[str, tuple[Any, Any]] = {
            "run": (list(self.runs), self.run or None),
            "instrument": (playback.instruments(), view.instrument),
            "day": (playback.days(view.instrument), view.day),
            "order": ([(playback.label(one, view.read), one) for one in orders], view.order_id),
        }
        for place, name in enumerate(_BESIDE):
            nobody = [] if place == 0 else [("none", "")]
            named = [(policy_title(one), one) for one in playback.policies]
            offered[name] = [*nobody, *named], view.policies[place] if place < len(view.policies) else ""
        self._filling = True
        for name, control in self._controls.items():
            if name != "step":
                control.options, control.value = offered[name]
        self._controls["step"].options = view.steps()
        self._controls["step"].index = view.step
        self._filling = False

    def _show(self) -> None:
        """Listen to clicks into the picture, which is new, and tell of the step."""
        self._canvas.mpl_connect("button_press_event", self._clicked)
        self._tell()

    def _clicked(self, event: Any) -> None:
        if event.inaxes in self._order.left:
            self._controls["step"].index = self.view.step_at(self._order.tick_at(event.xdata))

    def _mark(self) -> None:
        """Go to the view's step in the picture."""
        self._order.move(self.view.step)
        redraw(self._canvas)
        self._tell()

    def _tell(self) -> None:
        """Write what happened in the step and why, and the audit of it."""
        view, reading = self.view, self.view.reading()
        lines = "".join(f"<li>{escape(one)}</li>" for one in view.why())
        time = escape(view.steps()[view.step])
        said = f'<b>{time}</b><ul style="margin:0;line-height:1.4">{lines}</ul>'
        self._why.value = f'<div role="status" aria-live="polite">{said}</div>'
        bars = reading.table(view.step)
        tables = [table_html(reading.table(), f"{reading.title}, step by step", marked=view.step)]
        tables += [table_html(bars, f"the bars of {time}")] if len(bars) else []
        self._audit.value = "".join(tables)

    def close(self) -> None:
        super().close()
        for name in ("_controls", "_canvas", "_why", "_audit", "_order"):
            self.__dict__.pop(name, None)
