"""Plots across trainings that differ in their seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.evaluation import style


@style.styled
def seed_points(
    points: Mapping[str, Sequence[float]], table: pd.DataFrame, *, name: str = "PA", level: float
) -> Figure:
    """Draw what each training reaches, a row a group, with mean, interval and interquartile mean.

    Parameters
    ----------
    points
        For each group its trainings' values, basis points.
    table
        The rows of `rlwb.evaluation.seeds.seed_table` of the metric, by group as its index.
    level, name
        The intervals' coverage, and what the metric is called.
    """
    title = f"Test {name} by seed"
    if not points:
        return style.note_figure(title, "No training has a result yet.")
    subtitle = f"circles: seeds; line: mean and {100 * level:g} % interval; diamond: interquartile mean"
    figure, (axis,) = style.canvas(title, subtitle, height=1.5 + 0.36 * len(points))
    for at, (group, values) in enumerate(points.items()):
        row = table.loc[group]
        is_trained = row["kind"] in ("checkpoint", "last")
        color = style.BLUE if is_trained else style.GREY
        if np.isfinite(row["mean_lo"]):
            ends = [row["mean_lo"], row["mean_hi"]]
            axis.plot(ends, [at, at], color=color, linewidth=5, alpha=0.25, solid_capstyle="butt")
        if is_trained:
            look = {"color": color, "markerfacecolor": "none", "markersize": 6, "alpha": 0.9}
            axis.plot(values, np.full(len(values), at), "o", **look)
            axis.plot(row["iqm"], at, "D", color=style.ORANGE, markersize=5.5, markeredgecolor="white", zorder=4)
        axis.plot([row["mean"]] * 2, [at - 0.28, at + 0.28], color=color, linewidth=1.8, zorder=3)
    axis.set_xlabel(f"mean {name}, bp")
    style.name_rows(axis, [str(table.loc[group, "title"]) for group in points])
    return figure


@style.styled
def learning_curves_of_seeds(curves: Mapping[str, Sequence[pd.Series]], *, name: str = "PA") -> Figure:
    """Draw validation by iteration: each seed thin, the mean over seeds thick, a colour for each setting.

    Parameters
    ----------
    curves
        For each setting its trainings' values, basis points, by iteration.
    """
    title = "Learning curves by seed"
    if not any(curves.values()):
        return style.note_figure(title, "No training was validated yet.")
    figure, (axis,) = style.canvas(title, "0 is the benchmark; thin: seeds, thick: their mean", height=4.0)
    for (setting, trainings), (color, _) in zip(curves.items(), _colors(len(curves)), strict=True):
        for one in trainings:
            axis.plot(one, color=color, linewidth=0.7, alpha=0.35)
        together = pd.concat(list(trainings), axis=1)
        whole = together.dropna(how="all").mean(axis=1)
        axis.plot(whole, color=color, linewidth=2.2, label=style.readable(setting))
    axis.set_xlabel("iteration")
    axis.set_ylabel(f"validation {name}, bp")
    style.zero_line(axis)
    style.whole_ticks(axis)
    return figure


def _colors(count: int) -> list[tuple[str, str]]:
    return [style.POINTS[number % len(style.POINTS)] for number in range(count)]
