"""Figures of markets with a known optimum."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rlwb.errors import DataError
from rlwb.evaluation.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    canvas,
    legend_below,
    note_figure,
    number,
    readable,
    styled,
)

_COLORS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY)


@styled
def certificate_curves(curves: pd.DataFrame, *, optimum: float, twap: float = 0.0) -> Figure:
    """Draw what policies are worth as their training goes on, between the lines of TWAP and the optimum.

    Parameters
    ----------
    curves
        Columns `method`, `iteration`, `value` and `error`, the last two in basis points. Twice the error is shaded.
    optimum, twap
        What the best policy and TWAP are worth, in basis points.
    """
    title = "Learning towards a known optimum"
    missing = [name for name in ("method", "iteration", "value", "error") if name not in curves]
    if missing and len(curves):
        raise DataError(f"The curves lack the column {missing[0]!r}; they have {list(curves)}.")
    if curves.empty:
        return note_figure(title, "No method was trained.")
    figure, (axis,) = canvas(title, subtitle="value of the greedy policy after so many iterations")
    axis.axhline(optimum, color=INK, linewidth=1.2, label=f"optimum ({_bp(optimum)})")
    label = f"TWAP ({_bp(twap)})"
    axis.axhline(twap, color=GREY, linewidth=1.2, linestyle=(0, (5, 2)), label=label)
    for place, (method, points) in enumerate(curves.groupby("method", sort=False)):
        color = _COLORS[place % len(_COLORS)]
        at, value = points["iteration"].to_numpy(), points["value"].to_numpy()
        spread = 2 * points["error"].to_numpy()
        if (spread > 0).any():
            axis.fill_between(at, value - spread, value + spread, color=color, alpha=0.15, linewidth=0)
        name = f"{readable(str(method))} ({_bp(value[-1])})"
        axis.plot(at, value, color=color, linewidth=1.6, marker="o", markersize=3, label=name)
    axis.set(xlabel="iteration", ylabel="value, bp")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend_below(figure, axis)
    return figure


@styled
def price_paths(price: np.ndarray, filled: np.ndarray) -> Figure:
    """Draw prices tick by tick, with a dot where an order was filled, as large as the share that was.

    Parameters
    ----------
    price : float64 of shape (N, T)
        One row a path.
    filled : float64 of shape (N, T)
        Share of the order's amount that each tick filled.
    """
    if price.ndim != 2 or price.shape != filled.shape:
        raise DataError(f"Prices have the shape {price.shape} and fills {filled.shape}; give both the same (N, T).")
    figure, (axis,) = canvas("Prices and fills", subtitle="dots: fills, by their share of the order")
    tick = np.arange(price.shape[1])
    for row, (line, share) in enumerate(zip(price, filled, strict=True)):
        color = _COLORS[row % len(_COLORS)]
        axis.plot(tick, line, color=color, linewidth=1.2, alpha=0.7)
        had = share > 0
        axis.scatter(tick[had], line[had], s=160 * share[had], color=color, edgecolor="white", zorder=3)
    axis.set(xlabel="tick", ylabel="price")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure


def _bp(value: float) -> str:
    """Format basis points; what rounds to 0 has no sign."""
    return f"{number(round(value, 2) + 0.0)} bp"
