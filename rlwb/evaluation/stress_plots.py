"""Plots of the stress matrix: a map of all conditions and policies, and curves of those that have a level."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rlwb.evaluation import style

#: Families that are drawn as curves: what the level is, and the level of the base, None where it is not on the curve.
CURVES: dict[str, tuple[str, float | None]] = {
    "commission": ("commission added, bp", 0.0),
    "spread": ("spread added, bp", 0.0),
    "cap": ("most of a bar's volume, %", None),
    "impact": ("impact added, bp", 0.0),
    "size": ("amounts, times", None),
    "latency": ("feed late, bars", 0.0),
    "volatility": ("returns, times", 1.0),
    "noise": ("noise of the feed, bp", 0.0),
    "missing bars": ("bars missing, %", 0.0),
}
_LOGARITHMIC = ("cap", "size")


@style.styled
def stress_map(table: pd.DataFrame, titles: Mapping[str, str], families: Mapping[str, str]) -> Figure:
    """Draw every condition against every policy: the net PA over TWAP in the same condition, by colour and number.

    Parameters
    ----------
    table
        `rlwb.evaluation.stress.StressTable.table`.
    titles
        What each policy that is drawn is called, in the sequence of the columns.
    families
        Family of each condition, in the sequence of the rows.
    """
    some = table[(table["metric"] == "net_over_twap") & table["policy"].isin(titles)]
    if some.empty:
        return style.note_figure("Net PA over TWAP under every condition", "No condition was played yet.")
    grid = some.pivot(index="condition", columns="policy", values="estimate")
    shown = [name for name in families if name in grid.index]
    values = grid.reindex(index=shown, columns=[*titles]).to_numpy(dtype=float)
    first, of_first = next(iter(titles.values())), values[:, 0][np.isfinite(values[:, 0])]
    title = f"Net PA over TWAP of {style.readable(first)}: "
    title += (
        f"{style.number(of_first.min(), 'z.1f')} to {style.number(of_first.max(), 'z.1f')} bp under "
        f"{style.counted(len(of_first), 'condition')}"
        if len(of_first)
        else "0 conditions"
    )
    subtitle = "bp an order, by colour and number; empty: not to be had under that condition"
    figure, (axes,) = style.canvas(title, subtitle, height=2.0 + 0.17 * len(shown))
    far = max(float(np.nanquantile(np.abs(values), 0.98)), 1e-6) if np.isfinite(values).any() else 1.0
    axes.imshow(values, cmap="RdBu", norm=TwoSlopeNorm(0.0, -far, far), aspect="auto", interpolation="nearest")
    for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
        value = values[row, column]
        color = "white" if abs(value) > 0.7 * far else "black"  # on the map's own colours
        axes.text(column, row, style.number(value, "z.1f"), ha="center", va="center", fontsize=5.5, color=color)
    axes.set_xticks(range(len(titles)), [style.readable(one, longest=24) for one in titles.values()], rotation=90)
    axes.set_yticks(range(len(shown)), [style.readable(one) for one in shown], fontsize=6.5)
    axes.set(xlabel="policy", ylabel="condition")
    own = [families[name] for name in shown]
    for row in range(1, len(own)):
        if own[row] != own[row - 1]:
            axes.axhline(row - 0.5, color=style.PAPER, linewidth=1.6)
    axes.grid(visible=False)
    return figure


@style.styled
def stress_curves(table: pd.DataFrame, titles: Mapping[str, str], base: str) -> Figure:
    """Draw the net PA of every policy against the level of each family of conditions.

    Parameters
    ----------
    table, titles
        As in `stress_map`.
    base
        Name of the condition that changes nothing, which is a point of the curves that begin there.
    """
    means = table[(table["metric"] == "pa_net") & table["policy"].isin(titles)]
    points = means.groupby("family")["level"].nunique()
    drawn = [name for name, (_, start) in CURVES.items() if points.get(name, 0) > (1 if start is None else 0)]
    if not drawn:
        return style.note_figure("Net PA against what changes", "No condition with a level was played yet.")
    name, text = next(iter(titles.items()))
    played = means[(means["policy"] == name) & means["family"].isin(drawn)]["estimate"].dropna()
    ends = " to ".join(style.number(end, "z.1f") for end in (played.min(), played.max()))
    title = f"Net PA of {style.readable(text)}: {ends} bp over {style.counted(len(played), 'level')} of what changes"
    columns = style.fitting(3)
    rows = -(-len(drawn) // columns)
    figure, grid = style.canvas(
        title,
        "mean of all orders by the level of each change",
        rows=rows,
        columns=columns,
        height=2.1 * rows,
        share_x=False,
    )
    for axes, family in zip(grid, drawn, strict=False):
        label, start = CURVES[family]
        own = means[means["family"] == family]
        if start is not None:
            own = pd.concat([means[means["condition"] == base].assign(level=start), own])
        for (name, text), (color, marker) in zip(titles.items(), style.points(len(titles)), strict=True):
            curve = own[own["policy"] == name].sort_values("level")
            text = style.readable(text, longest=24)
            axes.plot(
                curve["level"], curve["estimate"], color=color, marker=marker, markersize=3, linewidth=1.1, label=text
            )
        if family in _LOGARITHMIC:
            axes.set_xscale("log")
            levels = sorted(own["level"].dropna().unique())
            levels = levels[:: max(1, -(-len(levels) // 5))]
            axes.set_xticks(levels, [f"{one:g}" for one in levels])
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(label, fontsize=7.5)
        axes.tick_params(labelsize=7)
        style.zero_line(axes)
    for axes in grid[len(drawn) :]:
        axes.set_axis_off()
    for axes in grid[::columns]:
        axes.set_ylabel("net PA, bp", fontsize=7.5)
    return figure
