"""The common look of all plots."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator

from rlwb.evaluation.results import PolicyResult

P = ParamSpec("P")

# Okabe and Ito's palette: told apart with every common form of colour blindness, and in grey by its lightness. As C0
# to C5 in this sequence.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GREY, FAINT = "#222222", "#8A8A8A", "#E3E3E3"
DASHED = (0, (4, 2))

_LOOKS: dict[str, tuple[str, object]] = {
    "checkpoint": (BLUE, "solid"),
    "last": (ORANGE, (0, (6, 1.5))),
    "fills": (INK, "solid"),
    "attainable": (GREEN, (0, (8, 2))),
    "unattainable": (SKY, (0, (2, 2))),
}

#: Each baseline in its own colour and dash, so that no two share both.
_BASELINE_LOOKS = (
    (VERMILION, (0, (5, 2))),
    (GREEN, (0, (1, 1.2))),
    (PURPLE, (0, (5, 1.5, 1, 1.5))),
    (GREY, (0, (3, 1))),
    (INK, (0, (8, 2, 2, 2))),
)

#: Colour and marker of points that are told apart by a legend.
POINTS = tuple(
    (color, marker) for marker in "osD^v" for color in (BLUE, ORANGE, VERMILION, GREEN, PURPLE, SKY, INK, GREY)
)


@functools.cache
def settings() -> dict[str, Any]:
    """Return the settings of ``rlwb.mplstyle`` for ``matplotlib.rc_context``, with the fonts that are installed."""
    sheet = mpl.rc_params_from_file(Path(__file__).with_name("rlwb.mplstyle"), use_default_template=False)
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    return {**sheet, "font.family": [font for font in sheet["font.family"] if font in installed]}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a drawing function under the common style, and put the legend of its first axes under the figure.

    No text is read as a formula.
    """

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(settings()):
            figure = draw(*args, **kwargs)
            handles, labels = figure.axes[0].get_legend_handles_labels()
            if handles:
                figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) if len(labels) <= 4 else 3)
            for text in figure.findobj(Text):
                text.set_parse_math(False)
            return figure

    return wrapper


def canvas(
    title: str, subtitle: str = "", *, rows: int = 1, height: float = 4.2, share_x: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a figure of `rows` axes above one another, `height` inches high; they share x unless told otherwise."""
    figure = Figure(figsize=(7.2, height), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, 1, sharex=share_x)))
    axes[0].set_title(readable(title, longest=80), pad=9 + 12 * len(subtitle.splitlines()))
    look = {"color": GREY, "fontsize": 8.5, "linespacing": 1.3}
    place = {"xytext": (0, 6), "xycoords": "axes fraction", "textcoords": "offset points"}
    below = axes[0].annotate(subtitle, (0, 1), **place, **look)
    below.set_in_layout(False)  # a long line would squeeze the axes
    return figure, axes


def note_figure(title: str, note: str) -> Figure:
    """Return a figure that says why there is nothing to draw."""
    figure, (axes,) = canvas(title, height=2.2)
    axes.set_axis_off()
    axes.text(0.5, 0.5, note, ha="center", va="center", color=GREY, transform=axes.transAxes, wrap=True)
    return figure


def zero_line(axes: Axes, *, vertical: bool = False) -> None:
    """Mark PA 0, which is the order's own TWAP."""
    (axes.axvline if vertical else axes.axhline)(0, color=INK, linewidth=0.8, zorder=1.5)


def whole_ticks(axes: Axes) -> None:
    """Put ticks of the x axis at whole numbers only."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def date_ticks(axes: Axes, most: int) -> None:
    """Put 3 to `most` dates under the x axis."""
    locator = AutoDateLocator(minticks=3, maxticks=most)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def time_ticks(axes: Axes, times: Sequence[dt.time]) -> None:
    """Write times of day under places 0, 1, 2, … of the x axis, at most 9 of them; a break has no width."""
    places = range(0, len(times), max(1, -(-len(times) // 9)))
    axes.set_xticks(places, [f"{times[place]:%H:%M}" for place in places])
    axes.set_xlabel("time of day")


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of a horizontal plot from the top down, and mark PA 0."""
    axes.set_yticks(range(len(names)), [readable(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    zero_line(axes, vertical=True)


def look(result: PolicyResult, baselines: Sequence[PolicyResult]) -> tuple[str, object]:
    """Return colour and dash of a policy: its kind's, or one of its own for each of the `baselines`."""
    if result.kind in _LOOKS:
        return _LOOKS[result.kind]
    names = [baseline.policy for baseline in baselines]
    return _BASELINE_LOOKS[names.index(result.policy) % len(_BASELINE_LOOKS)]


def readable(text: str, *, longest: int = 32) -> str:
    """Return a name as a plot can show it.

    Letters that no installed font can draw become their code points; long names lose their middle; before an
    underscore, which would keep a name out of the legend, stands a space.
    """
    drawable = _drawable()
    shown = "".join(c if ord(c) in drawable else f"<{ord(c):X}>" for c in text).replace("><", " ")
    if len(shown) > longest:
        shown = f"{shown[: longest // 2]}…{shown[1 - longest // 2 :]}"
    return f"\N{NO-BREAK SPACE}{shown}" if shown.startswith("_") else shown


@functools.cache
def _drawable() -> frozenset[int]:
    """Return the code points that the installed fonts can draw."""
    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in settings()["font.family"]]
    return frozenset().union(*(font.get_charmap() for font in fonts))


def number(value: float, spec: str = "z.2f") -> str:
    """Format a number with a true minus sign, as the axes have it."""
    return format(value, spec).replace("-", "\N{MINUS SIGN}")


def robust_limits(values: np.ndarray, *, reach: float = 3.0) -> tuple[float, float]:
    """Return axis limits that show 0 and the bulk of the data, float64 of shape ``(N,)`` without NaN.

    From 8 values on they reach `reach` times the distance of the quartiles beyond these, at most to the data.
    """
    low, high = float(values.min()), float(values.max())
    if len(values) >= 8:
        q1, q3 = np.quantile(values, [0.25, 0.75])
        spread = (q3 - q1) or float(values.std()) / 10
        low, high = max(low, float(q1 - reach * spread)), min(high, float(q3 + reach * spread))
    low, high = min(low, 0.0), max(high, 0.0)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def label_outside(axes: Axes, row: float, value: float) -> None:
    """Write the mean of a row at the edge of the axes if its mark lies beyond."""
    low, high = axes.get_xlim()
    if low <= value <= high:
        return
    mean = f"mean {number(value, ',.0f')} bp"
    place, side, text = (1, "right", f"{mean} →") if value > high else (0, "left", f"← {mean}")
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    across = axes.get_yaxis_transform()
    axes.text(place, row, text, transform=across, ha=side, va="center", fontsize=8, bbox=box, zorder=6)
