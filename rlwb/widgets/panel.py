"""The base of widgets: closed when their cell is run again, and a static figure where nothing can be moved."""

from __future__ import annotations

import functools
import io
import threading
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from rlwb.experiment.notebook import is_attended

if TYPE_CHECKING:
    from ipywidgets import Widget
    from matplotlib.figure import Figure

#: The panels of each cell that was run, with the execution that made them.
_OPEN: dict[str, tuple[str, list[Panel]]] = {}
_CELL = "padding:1px 8px;text-align:"
#: Pictures are drawn light, and turned dark where JupyterLab is: the kernel does not learn of its theme.
_DARK = (
    "<style>[data-jp-theme-light='false'] .rlwb-panel :is(canvas, img)"
    " {filter: invert(0.93) hue-rotate(180deg)}</style>"
)


P = ParamSpec("P")
T = TypeVar("T")
_TURN = threading.RLock()


def in_turn(work: Callable[P, T]) -> Callable[P, T]:
    """Let a function wait for others that work on widgets: a kernel may answer their messages in several threads."""

    @functools.wraps(work)
    def turn(*args: P.args, **kwargs: P.kwargs) -> T:
        with _TURN:
            return work(*args, **kwargs)

    return turn


class Panel(ABC):
    """A widget for the output of a notebook's cell, and the static figure that stands for it elsewhere.

    In JupyterLab the cell shows the widget, and the figure lies beside it in the file, for pages exported from it. The
    figure alone is shown headless (papermill, nbconvert) and where ipywidgets is not installed. Running the cell again
    closes what its last run made: widgets, observers and figures.
    """

    def __init__(self) -> None:
        self._widget: Widget | None = None
        if (cell := _cell()) is not None:
            place, execution = cell
            before, panels = _OPEN.get(place, (execution, []))
            if before != execution:
                for panel in panels:
                    panel.close()
                panels = []
            _OPEN[place] = execution, [*panels, self]

    def figure(self) -> Figure:
        """Return the static form, a figure of its own at each call."""
        raise NotImplementedError

    def static(self) -> dict[str, Any]:
        """Return what stands for the widget elsewhere, by MIME type: the figure, where text does not tell more."""
        return {"text/plain": f"<{type(self).__name__}>", "image/png": _png(self.figure())}

    @abstractmethod
    def build(self) -> Widget:
        """Return what the widget holds, new and with its observers."""

    @property
    def widget(self) -> Widget:
        """The widget, built when it is first asked for; after `close`, a new one."""
        if self._widget is None:
            from ipywidgets import HTML, VBox

            self._widget = VBox([self.build(), HTML(_DARK, layout={"display": "none"})])
            self._widget.add_class("rlwb-panel")
        return self._widget

    def close(self) -> None:
        """Close the widget with all below it, and let its figures go; the panel can be shown again."""
        if self._widget is not None:
            close_tree(self._widget)
            self._widget = None

    @in_turn
    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return what a notebook shows of the panel."""
        bundle = self.static()
        if is_live():
            bundle |= self.widget._repr_mimebundle_() or {}
        return bundle


def is_live() -> bool:
    """Tell whether a cell runs in a notebook's front end, in which widgets can be moved."""
    return bool(_asked()) and is_attended() and _has_ipywidgets()


def live(figure: Figure) -> Any:
    """Return a figure as a widget that can be clicked on and drawn again (ipympl); pyplot does not know of it."""
    from ipympl.backend_nbagg import FigureManager

    canvas = _canvas()(figure)
    canvas.header_visible = canvas.footer_visible = canvas.toolbar_visible = canvas.resizable = False
    FigureManager(canvas, 0)
    return canvas


@functools.cache
def _canvas() -> type[Any]:
    from ipympl.backend_nbagg import Canvas

    class WholeCanvas(Canvas):
        """A canvas that sends whole pictures: of two in a row a front end may drop the first, with its changes."""

        draw = in_turn(Canvas.draw)
        _handle_message = in_turn(Canvas._handle_message)

        def get_diff_image(self) -> Any:
            self._force_full = True
            return super().get_diff_image()

    return WholeCanvas


def put(canvas: Any, figure: Figure) -> None:
    """Let a canvas show another figure; the one before goes, with its callbacks."""
    figure.set_canvas(canvas)
    canvas.figure = figure
    figure.set_dpi(canvas.device_pixel_ratio * figure.dpi)
    canvas.manager.resize(*figure.bbox.size)
    redraw(canvas)


def redraw(canvas: Any) -> None:
    """Draw a canvas and send it; a front end that still waits for a picture would not ask for another (`draw_idle`).

    Before a front end is there nothing is drawn: it asks for its first picture, and breaks on one that came before.
    """
    if not canvas.syncing_data_url:
        canvas.draw()


def close_tree(widget: Widget) -> None:
    """Close a widget and all that it holds: children, layouts, styles and toolbars."""
    for one in list(_tree(widget)):
        one.unobserve_all()
        one.close()


def _tree(widget: Widget) -> Iterator[Widget]:
    from ipywidgets import Widget

    for name in widget.keys:
        value = getattr(widget, name)
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, Widget):
                yield from _tree(one)
    yield widget


def _png(figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi)
    return b64encode(file.getvalue()).decode()


def _has_ipywidgets() -> bool:
    try:
        import ipympl  # noqa: F401
        import ipywidgets  # noqa: F401
    except ImportError:
        return False
    return True


def _cell() -> tuple[str, str] | None:
    """Return what names the cell that runs, its id or else its text, and this execution of it; None in no cell."""
    asked = _asked()
    if asked.get("header", {}).get("msg_type") != "execute_request":
        return None
    return asked.get("metadata", {}).get("cellId") or asked["content"]["code"], asked["header"]["msg_id"]


def _asked() -> Mapping[str, Any]:
    """Return the message that the kernel answers; empty where there is no kernel."""
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    return {} if kernel is None else kernel.get_parent("shell")


def table_html(table: pd.DataFrame, caption: str, *, marked: int | None = None) -> str:
    """Return a table for an HTML widget, numbers to five digits, with one row `marked`."""
    if not len(table):
        return f'<b style="font-size:smaller">{escape(caption)}</b>'
    names = table.index.name or "", *table.columns
    sides = ["left", *("left" if table[one].dtype == object else "right" for one in table)]
    head = "".join(
        f'<th scope="col" style="{_CELL}{side}">{escape(str(one))}</th>'
        for one, side in zip(names, sides, strict=False)
    )
    rows = []
    for place, (name, *values) in enumerate(table.itertuples()):
        look = ' style="background:rgba(230,159,0,0.22);font-weight:bold"' if place == marked else ""
        cells = "".join(
            f'<td style="{_CELL}{side}">{escape(_shown(one))}</td>' for one, side in zip(values, sides[1:], strict=True)
        )
        rows.append(f'<tr{look}><th scope="row" style="{_CELL}left">{escape(str(name))}</th>{cells}</tr>')
    return (
        f'<table style="font-size:smaller;line-height:1.4;margin:8px 0"><caption style="text-align:left;'
        f'font-weight:bold">{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table>"
    )


def _shown(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        number = float(value)
        number = 0.0 if abs(number) < 1e-9 else number  # what rounding leaves of 0
        return "" if number != number else f"{number:z,.5g}" if abs(number) < 1e4 else f"{number:,.0f}"
    return str(value)
