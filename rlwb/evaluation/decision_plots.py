"""Plots of what policies do at their decisions."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.evaluation import style

#: Orders that a point needs, so that it is more than the luck of a few.
_LEAST = 15


@style.styled
def decision_curves(decisions: pd.DataFrame, thresholds: pd.Series, *, bins: int = 14, most: int = 3) -> Figure:
    """Draw what policies trade against what waiting is expected to cost, a panel for some numbers of steps left.

    Parameters
    ----------
    decisions, thresholds
        As of `rlwb.experiment.decisions.decision_table`.
    bins
        Ranges of the forecast, each of the same width; a point is the mean over its decisions.
    most
        Most panels, from most steps left to one.
    """
    told = decisions.groupby("steps_left")["forecast"].agg(np.ptp) > 0  # not in a morning when nothing is known yet
    left = told.index[told].to_numpy()[::-1]
    if not len(left):
        return style.note_figure(
            "What is traded, by the forecast",
            "There is no decision at which the forecast tells one order from another.",
        )
    shown = left[np.unique(np.linspace(0, len(left) - 1, min(most, len(left))).round().astype(int))]
    subtitle = "points: means of decisions; dashed: threshold of the simple rule"
    name, first = next(iter(decisions.groupby("policy", sort=False)))
    high_half = first["forecast"] > first["forecast"].median()
    traded = [style.number(100 * first.loc[half, "share"].mean(), "z.0f") for half in (high_half, ~high_half)]
    title = (
        f"{style.readable(str(name))} trades {traded[0]} % where waiting is expected to cost more than at the median "
        f"decision, {traded[1]} % elsewhere"
    )
    figure, axes = style.canvas(title, subtitle, rows=len(shown), height=0.6 + 1.7 * len(shown))
    low, high = decisions["forecast"].quantile([0.02, 0.98])
    edges = np.linspace(low, high, bins + 1)
    for axis, steps in zip(axes, shown, strict=True):
        now = decisions[decisions["steps_left"] == steps]
        grouped = now.groupby("policy", sort=False)
        for (policy, own), (color, marker) in zip(grouped, style.points(len(grouped)), strict=True):
            found = own.groupby(pd.cut(own["forecast"], edges), observed=True)
            mean = found.agg(x=("forecast", "mean"), y=("share", "mean"), n=("share", "size")).query("n >= @_LEAST")
            axis.plot(
                mean["x"], mean["y"], marker=marker, markersize=3.5, color=color, label=style.readable(str(policy))
            )
        if steps in thresholds.index:
            axis.axvline(thresholds[steps], color=style.GREY, linestyle=style.DASHED, linewidth=1.2)
        axis.set_ylabel(f"share traded (1 is all), {style.counted(int(steps), 'step')} left")
        axis.set_ylim(-0.05, 1.05)
    axes[-1].set_xlabel("forecast of what waiting costs the order, in volatilities of a bar")
    return figure
