"""Plots of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlwb.evaluation import style
from rlwb.study.space import Dimension


@style.styled
def history(numbers: np.ndarray, values: np.ndarray, whole: np.ndarray, unit: str) -> Figure:
    """Return the value of each trial by its number, and the best so far.

    Parameters
    ----------
    numbers : int64 of shape (trials,)
    values : float64 of shape (trials,)
        NaN where a trial found nothing.
    whole : bool of shape (trials,)
        Whether the trial was seen to its end.
    unit
        What the values are, and their unit after a comma.
    """
    figure, (axis,) = style.canvas(_best(numbers, values, whole, unit), "line: the best so far", height=3.0)
    _points(axis, numbers, values, whole)
    best = np.fmax.accumulate(np.where(whole, values, np.nan))
    axis.step(numbers, best, where="post", color=style.VERMILION, label="best so far")
    axis.set(xlabel="trial, number", ylabel=unit)
    style.whole_ticks(axis)
    return figure


@style.styled
def slices(
    settings: Mapping[str, tuple[Sequence[Any], Dimension]], values: np.ndarray, whole: np.ndarray, unit: str
) -> Figure:
    """Return the value of each trial by each setting alone; `settings` are name to values and the space of these."""
    columns = style.fitting(min(3, len(settings)))
    rows = math.ceil(len(settings) / columns)
    title = f"{_best(np.arange(len(values)), values, whole, unit)}, by {style.counted(len(settings), 'setting')}"
    figure, axes = style.canvas(
        title,
        "each setting alone; the others differ from point to point",
        rows=rows,
        columns=columns,
        height=2.4 * rows,
        share_x=False,
        share_y=True,
    )
    for axis in axes[len(settings) :]:
        axis.set_visible(False)
    for axis, (name, (at, space)) in zip(axes, settings.items(), strict=False):
        if all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in at):
            _points(axis, np.array(at, dtype=np.float64), values, whole)
            if space.kind != "choice":
                edge = 0.03 * (math.log(space.top / space.low) if space.log else space.top - space.low)
                axis.set_xscale("log" if space.log else "linear")
                axis.set_xlim(*(_moved(space, end, by) for end, by in ((space.low, -edge), (space.top, edge))))
            if space.log:
                style.plain_log(axis.xaxis, most=4)
            else:
                axis.locator_params(axis="x", nbins=4)
        else:
            labels = list(dict.fromkeys(map(str, at)))
            places = np.array([labels.index(str(one)) for one in at], dtype=np.float64)
            _points(axis, places, values, whole)
            axis.set_xticks(range(len(labels)), [style.readable(one, longest=14) for one in labels], rotation=90)
        axis.set_xlabel(style.readable(name, longest=40))
    for axis in axes[::columns]:
        axis.set_ylabel(unit)
    return figure


@style.styled
def front(values: np.ndarray, deviations: np.ndarray, on_front: np.ndarray, unit: str) -> Figure:
    """Return mean and deviation of each trial; those on the front, bool of shape (trials,), are joined."""
    best = values[on_front]
    title = f"{style.counted(int(on_front.sum()), 'trial')} that no other passes"
    if np.isfinite(best).any():
        name, _, measure = unit.rpartition(", ")
        ends = [style.number(end, "z.1f") for end in (np.nanmin(best), np.nanmax(best))]
        title += f": {name} {ends[0]} to {ends[1]} {measure}"
    figure, (axis,) = style.canvas(title, "dots that are joined: no other trial has more at the same deviation")
    axis.plot(deviations[~on_front], values[~on_front], "x", color=style.GREY, label="others")
    order = np.argsort(deviations[on_front])
    axis.plot(deviations[on_front][order], best[order], "o-", color=style.BLUE, label="on the front")
    axis.set(xlabel="standard deviation of orders against arrival, bp", ylabel=unit)
    return figure


def _best(numbers: np.ndarray, values: np.ndarray, whole: np.ndarray, unit: str) -> str:
    """Return the highest value of the trials that were seen to their end, and which trial it is of."""
    seen = np.where(whole, values, np.nan)
    if not np.isfinite(seen).any():
        return f"0 of {style.counted(len(values), 'trial')} found a value"
    name, _, measure = unit.rpartition(", ")
    at = int(np.nanargmax(seen))
    best = f"{style.number(seen[at])} {measure}"
    return f"Highest {name} of {style.counted(len(values), 'trial')} {best}, of trial {numbers[at]}"


def _moved(space: Dimension, end: float, by: float) -> float:
    return end * math.exp(by) if space.log else end + by


def _points(axis: Axes, at: np.ndarray, values: np.ndarray, whole: np.ndarray) -> None:
    axis.plot(at[whole], values[whole], "o", color=style.BLUE, markersize=4, alpha=0.8, label="seen to the end")
    if (~whole).any():
        axis.plot(at[~whole], values[~whole], "x", color=style.GREY, markersize=5, label="ended early")
