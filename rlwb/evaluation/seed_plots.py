"""Plots across trainings that differ in their seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.evaluation import style
from rlwb.evaluation.results import PA_TITLES


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
    if not points:
        return style.note_figure(f"Test {name} by seed", "No training has a result yet.")
    first = next((group for group in points if table.loc[group, "kind"] in ("checkpoint", "last")), next(iter(points)))
    row = table.loc[first]
    whose = "" if row["kind"] == "checkpoint" and len(points) == 1 else f"{style.readable(str(row['title']))}: "
    seeds = style.counted(len(points[first]), "seed")
    title = f"{whose}{style.estimate(f'test {name}', row['mean'], row['mean_lo'], row['mean_hi'])} over {seeds}"
    title = title if whose else title[0].upper() + title[1:]
    subtitle = f"circles: seeds; line: mean and {100 * level:g} % interval; diamond: interquartile mean"
    figure, (axis,) = style.canvas(title, subtitle, height=0.9 + 0.36 * len(points))
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
            axis.plot(row["iqm"], at, "D", color=style.ORANGE, markersize=5.5, markeredgecolor=style.PAPER, zorder=4)
        axis.plot([row["mean"]] * 2, [at - 0.28, at + 0.28], color=color, linewidth=1.8, zorder=3)
    axis.set_xlabel(f"mean test {name}, bp")
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
    is_pa = name != PA_TITLES["objective"]
    together = {name: pd.concat(list(some), axis=1).dropna(how="all") for name, some in curves.items() if some}
    if not any(map(len, together.values())):
        return style.note_figure("Learning curves by seed", "No training was validated yet.")
    ends = {name: one.mean(axis=1).iloc[-1] for name, one in together.items() if len(one)}
    best = max(ends, key=lambda one: ends[one])
    whose = f"{style.readable(best)}: " if len(curves) > 1 else ""
    told = style.estimate(f"validation {name}", ends[best])
    title = f"{whose}{told} at the end, mean of {style.counted(len(curves[best]), 'seed')}"
    title = title if whose else title[0].upper() + title[1:]
    figure, (axis,) = style.canvas(
        title, "thin: seeds; thick: their mean" + ("; 0 bp is the benchmark" if is_pa else "")
    )
    for (setting, one), (color, marker) in zip(together.items(), style.points(len(together)), strict=True):
        axis.plot(one, color=color, linewidth=0.7, alpha=0.35)
        look = {"color": color, "linewidth": 2.2, "marker": marker, "markersize": 4, "markevery": 0.2}
        axis.plot(one.mean(axis=1), label=style.readable(setting), **look)
    axis.set_xlabel("iteration")
    axis.set_ylabel(f"validation {name}, bp")
    if is_pa:
        style.zero_line(axis)
    style.whole_ticks(axis)
    return figure
