"""One look for all figures, and how they reach the disk."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlwb.evaluation.results import PolicyResult
from rlwb.files import atomic_path

P = ParamSpec("P")

# Okabe and Ito's palette: told apart with every common form of colour blindness, and in grey by its lightness.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9"
INK, GREY, FAINT = "#222222", "#8A8A8A", "#E3E3E3"

#: Each baseline in its own colour and dash, so that no two share both.
_BASELINE_LOOKS = (
    (VERMILION, (0, (5, 2))),
    (GREEN, (0, (1, 1.2))),
    (PURPLE, (0, (5, 1.5, 1, 1.5))),
    (GREY, (0, (3, 1))),
    (INK, (0, (8, 2, 2, 2))),
)

# Tried in order, letter by letter; whatever of these is not installed is skipped.
_FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "Hiragino Sans",
    "Malgun Gothic",
    "Noto Sans Devanagari",
    "Nirmala UI",
    "Arial Unicode MS",
)

_RC = {
    "font.size": 9,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "svg.hashsalt": "rlwb",
}


@functools.cache
def _fonts() -> tuple[str, ...]:
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    return tuple(font for font in _FONTS if font in installed)


def style() -> dict[str, object]:
    """Return the matplotlib settings of the figures, for use in ``matplotlib.rc_context``."""
    return {**_RC, "font.family": list(_fonts())}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a drawing function under the common style and leave the caller's settings as they were."""

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(style()):
            return draw(*args, **kwargs)

    return wrapper


def save_figure(figure: Figure, stem: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Write ``<stem>.png`` and ``<stem>.svg``, each complete or not at all, and return both paths.

    The same figure gives the same bytes: no dates, no random ids.
    """
    paths = Path(f"{os.fspath(stem)}.png"), Path(f"{os.fspath(stem)}.svg")
    with mpl.rc_context(style()):
        for path, metadata in zip(paths, ({"Software": None}, {"Date": None}), strict=True):
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], metadata=metadata)
    return paths


def canvas(
    title: str, *, subtitle: str = "", rows: int = 1, width: float = 7.2, height: float = 4.2, share_x: bool = True
) -> tuple[Figure, list[Axes]]:
    """Make a figure of `rows` axes above one another that share x if so asked, sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, 1, sharex=share_x)))
    axes[0].set_title(title, pad=9 + 12 * len(subtitle.splitlines()))
    below = axes[0].annotate(
        subtitle,
        (0, 1),
        xytext=(0, 6),
        xycoords="axes fraction",
        textcoords="offset points",
        color=GREY,
        fontsize=8.5,
        linespacing=1.3,
    )
    below.set_in_layout(False)  # a long line would squeeze the axes
    return figure, axes


def note_figure(title: str, note: str) -> Figure:
    """Make the figure that stands where there is nothing to draw, and says why."""
    figure, (axes,) = canvas(title, height=2.2)
    axes.set_axis_off()
    axes.text(0.5, 0.5, note, ha="center", va="center", color=GREY, transform=axes.transAxes, wrap=True)
    return figure


def zero_line(axes: Axes, *, vertical: bool = False) -> None:
    """Mark PA 0, which is the order's own TWAP."""
    (axes.axvline if vertical else axes.axhline)(0, color=INK, linewidth=0.8, zorder=1.5)


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend of `axes` under the figure, where no line can run into it."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) if len(labels) <= 4 else 3)


def look(result: PolicyResult, baselines: Sequence[PolicyResult]) -> tuple[str, object]:
    """Return colour and dash of a policy: blue the chosen, orange the last, pale the unattainable, one a baseline."""
    if result.kind == "checkpoint":
        return BLUE, "solid"
    if result.kind == "last":
        return ORANGE, (0, (6, 1.5))
    if result.kind == "unattainable":
        return SKY, (0, (2, 2))
    names = [baseline.policy for baseline in baselines]
    return _BASELINE_LOOKS[names.index(result.policy) % len(_BASELINE_LOOKS)]


def readable(text: str, *, longest: int = 32) -> str:
    """Prepare a name for a figure.

    Letters that no installed font can draw become their code points; long names lose
    their middle; a dollar sign is escaped, for it would start a formula.
    """
    drawable = _drawable()
    shown = "".join(c if ord(c) in drawable else f"<{ord(c):X}>" for c in str(text)).replace("><", " ")
    if len(shown) > longest:
        shown = f"{shown[: longest // 2]}…{shown[1 - longest // 2 :]}"
    return shown.replace("$", r"\$")


def number(value: float, spec: str = ".2f") -> str:
    """Format a number with a true minus sign, as the axes have it."""
    return format(value, spec).replace("-", "\N{MINUS SIGN}")


def robust_limits(values: np.ndarray, *, reach: float = 3.0) -> tuple[float, float]:
    """Return axis limits that show 0 and the bulk: quartiles and `reach` times their distance, cut to the data.

    With fewer than 8 values, or when nothing lies outside, the limits are those of the data with a margin.
    """
    low, high = float(values.min()), float(values.max())
    if len(values) >= 8:
        q1, q3 = np.quantile(values, [0.25, 0.75])
        spread = (q3 - q1) or float(values.std()) / 10
        low, high = max(low, float(q1 - reach * spread)), min(high, float(q3 + reach * spread))
    low, high = min(low, 0.0), max(high, 0.0)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def tell_outside(axis: Axes, row: float, value: float) -> None:
    """Write the mean of a row at the edge of the axes if its mark lies beyond."""
    low, high = axis.get_xlim()
    if low <= value <= high:
        return
    right = value > high
    axis.annotate(
        f"mean {number(value, ',.0f')} bp →" if right else f"← mean {number(value, ',.0f')} bp",
        (1 if right else 0, row),
        xycoords=("axes fraction", "data"),
        ha="right" if right else "left",
        va="center",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        zorder=6,
    )


@functools.cache
def _drawable() -> frozenset[int]:
    points: set[int] = set()
    for name in _fonts():
        points |= set(font_manager.get_font(font_manager.findfont(name)).get_charmap())
    return frozenset(points)
