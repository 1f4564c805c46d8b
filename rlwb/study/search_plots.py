"""Plots of a search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from rlwb.study.space import Dimension

_WHOLE, _PRUNED, _LINE = "#0072b2", "#999999", "#d55e00"
#: Plots of single settings in a row.
_A_ROW = 3


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
        What the values are.
    """
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axis = figure.subplots()
    _points(axis, numbers, values, whole)
    best = np.fmax.accumulate(np.where(whole, values, np.nan))
    axis.step(numbers, best, where="post", color=_LINE, label="best so far")
    axis.set(xlabel="trial", ylabel=unit)
    axis.legend(frameon=False)
    return figure


def slices(
    settings: Mapping[str, tuple[Sequence[Any], Dimension]], values: np.ndarray, whole: np.ndarray, unit: str
) -> Figure:
    """Return the value of each trial by each setting alone; `settings` are name to values and the space of these."""
    rows = math.ceil(len(settings) / _A_ROW)
    columns = min(len(settings), _A_ROW)
    figure = Figure(figsize=(max(4.0, 3.0 * columns), 2.8 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for axis in axes.flat[len(settings) :]:
        axis.set_visible(False)
    for axis, (name, (at, space)) in zip(axes.flat, settings.items(), strict=False):
        if all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in at):
            _points(axis, np.array(at, dtype=np.float64), values, whole)
            if space.kind != "choice":
                edge = 0.03 * (math.log(space.top / space.low) if space.log else space.top - space.low)
                axis.set_xscale("log" if space.log else "linear")
                axis.set_xlim(*(_moved(space, end, by) for end, by in ((space.low, -edge), (space.top, edge))))
            if space.log:
                axis.xaxis.set_minor_formatter(NullFormatter())  # the numbers of a decade lie on each other
        else:
            labels = list(dict.fromkeys(map(str, at)))
            places = np.array([labels.index(str(one)) for one in at], dtype=np.float64)
            _points(axis, places, values, whole)
            axis.set_xticks(
                range(len(labels)), [one if len(one) < 15 else f"{one[:14]}…" for one in labels], rotation=20
            )
        axis.set_xlabel(name)
    for axis in axes[:, 0]:
        axis.set_ylabel(unit)
    return figure


def front(values: np.ndarray, deviations: np.ndarray, on_front: np.ndarray, unit: str) -> Figure:
    """Return mean and deviation of each trial; those on the front, bool of shape (trials,), are joined."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    axis.plot(deviations[~on_front], values[~on_front], ".", color=_PRUNED)
    order = np.argsort(deviations[on_front])
    axis.plot(deviations[on_front][order], values[on_front][order], "o-", color=_WHOLE)
    axis.set(xlabel="standard deviation of orders against arrival, bp", ylabel=unit)
    return figure


def _moved(space: Dimension, end: float, by: float) -> float:
    return end * math.exp(by) if space.log else end + by


def _points(axis: Axes, at: np.ndarray, values: np.ndarray, whole: np.ndarray) -> None:
    axis.plot(at[whole], values[whole], "o", color=_WHOLE, markersize=4, alpha=0.8, label="whole")
    if (~whole).any():
        axis.plot(at[~whole], values[~whole], "x", color=_PRUNED, markersize=5, label="ended early")
