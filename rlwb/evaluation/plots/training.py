"""Figures on training and on the choice of checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rlwb.errors import DataError
from rlwb.evaluation.plots.style import (
    BLUE,
    GREY,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    canvas,
    legend_below,
    note_figure,
    number,
    styled,
    zero_line,
)
from rlwb.evaluation.results import PA_TITLES, finite_or_nan


@styled
def learning_curves(
    train: pd.DataFrame, validation: pd.DataFrame, *, chosen: Sequence[int] = (), judged_by: str = "pa"
) -> Figure:
    """Draw PA and reward by iteration, on training and on validation orders.

    Parameters
    ----------
    train, validation
        ``metrics/train.csv`` and ``metrics/validation.csv``: columns `iteration`, `judged_by` (basis points) and,
        optionally, `reward`.
    chosen
        Iterations to mark as chosen for the backtest.
    judged_by
        The PA to draw: ``pa``, or ``pa_net`` where there are costs.
    """
    title = "Learning curves"
    labels = {judged_by: f"mean {PA_TITLES[judged_by]}, bp", "reward": "mean reward of an episode"}
    panels = [(c, label) for c, label in labels.items() if _has_values(train, c) or _has_values(validation, c)]
    if not panels:
        return note_figure(title, "Neither training nor validation has logged a PA or a reward yet.")
    subtitle = "PA 0 is the order's own TWAP; the training policy samples its actions"
    figure, axes = canvas(title, subtitle=subtitle, rows=len(panels), height=1.4 + 2.4 * len(panels))
    for axis, (column, label) in zip(axes, panels, strict=True):
        _draw_training(axis, train, column)
        _draw_validation(axis, validation, column, chosen)
        axis.set_ylabel(label)
        if column == judged_by:
            zero_line(axis)
    axes[-1].set_xlabel("iteration")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend_below(figure, axes[0])
    return figure


@styled
def validation_against_test(summary: pd.DataFrame, *, expected_shrinkage: float | None = None) -> Figure:
    """Draw each checkpoint's test PA against its validation PA, with the line on which both are equal.

    Parameters
    ----------
    summary
        The table that `rlwb.evaluation.summary` makes; rows without a validation PA are not drawn.
    expected_shrinkage
        How far below the line the checkpoints lie on average if the choice was among equals, in basis points.
    """
    title = "Validation against test"
    rows = summary[summary["kind"].isin(["checkpoint", "last"])].dropna(subset=["validation_pa", "pa_mean"])
    if rows.empty:
        return note_figure(title, "No checkpoint has both a validation and a test PA.")
    chosen, last = rows[rows["kind"] == "checkpoint"], rows[rows["kind"] == "last"]
    figure, (axis,) = canvas(title, subtitle=_shrinkage_line(chosen), height=4.8)
    axis.axline((0, 0), slope=1, color=GREY, linewidth=1, label="test = validation")
    if expected_shrinkage is not None:
        label = f"expected if all were equally good ({number(-expected_shrinkage)} bp)"
        axis.axline((0, -expected_shrinkage), slope=1, color=GREY, linewidth=1, linestyle=(0, (4, 2)), label=label)
    _draw_points(axis, chosen, BLUE, "o", f"chosen checkpoints (n = {len(chosen)})")
    if len(chosen) > 1:
        mean = chosen[["validation_pa", "pa_mean"]].mean()
        axis.plot(*mean, marker="+", markersize=14, markeredgewidth=2, color=INK, linestyle="", label="their mean")
    _draw_points(axis, last, ORANGE, "D", "last checkpoint")
    validation = finite_or_nan(rows["validation_pa"])
    ends = finite_or_nan(rows[["validation_pa", "pa_mean", "pa_lo", "pa_hi"]].to_numpy())
    axis.set(xlim=_with_margin(validation), ylim=_with_margin(ends), xlabel="validation PA, bp", ylabel="test PA, bp")
    zero_line(axis)
    legend_below(figure, axis)
    return figure


def _has_values(frame: pd.DataFrame, column: str) -> bool:
    return column in frame and bool(np.isfinite(finite_or_nan(frame[column])).any())


def _points(frame: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    if "iteration" not in frame:
        raise DataError(f"The metrics lack the column 'iteration'; they have {list(frame)}.")
    return frame["iteration"].to_numpy(), finite_or_nan(frame[column])


def _draw_training(axis: Axes, train: pd.DataFrame, column: str) -> None:
    if not _has_values(train, column):
        return
    iteration, values = _points(train, column)
    window = max(1, len(values) // 20)
    style = {"linewidth": 0.8, "alpha": 0.55} if window > 1 else {"linewidth": 1.2, "marker": "o", "markersize": 3}
    axis.plot(iteration, values, color=SKY, label="training", **style)
    if window > 1:
        smooth = pd.Series(values).rolling(window, min_periods=1).mean()
        axis.plot(iteration, smooth, color=SKY, linewidth=1.8, label=f"training, mean of {window} iterations")


def _draw_validation(axis: Axes, validation: pd.DataFrame, column: str, chosen: Sequence[int]) -> None:
    if not _has_values(validation, column):
        return
    iteration, values = _points(validation, column)
    axis.plot(iteration, values, color=BLUE, linewidth=1.4, marker="o", markersize=3, label="validation")
    marked = np.isin(iteration, list(chosen)) & np.isfinite(values)
    if marked.any():
        axis.plot(
            iteration[marked],
            values[marked],
            linestyle="",
            marker="o",
            markersize=7.5,
            markerfacecolor="none",
            markeredgecolor=VERMILION,
            markeredgewidth=1.4,
            label=f"chosen (n = {marked.sum()})",
        )


def _draw_points(axis: Axes, rows: pd.DataFrame, color: str, marker: str, label: str) -> None:
    if rows.empty:
        return
    x, y = rows["validation_pa"].to_numpy(), rows["pa_mean"].to_numpy()
    axis.vlines(x, finite_or_nan(rows["pa_lo"]), finite_or_nan(rows["pa_hi"]), color=color, linewidth=1, alpha=0.35)
    axis.plot(x, y, linestyle="", marker=marker, markersize=6, color=color, markeredgecolor="white", label=label)


def _with_margin(values: np.ndarray) -> tuple[float, float]:
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    margin = max(0.08 * (high - low), 0.1)
    return low - margin, high + margin


def _shrinkage_line(chosen: pd.DataFrame) -> str:
    if chosen.empty:
        return ""
    validation, test = chosen["validation_pa"].mean(), chosen["pa_mean"].mean()
    return (
        f"chosen: mean validation PA {number(validation)} bp, mean test PA {number(test)} bp "
        f"({number(test - validation, '+.2f')})\n"
        "bars: day-clustered intervals of the test PA"
    )
