"""Plots of training: learning curves, the selection of checkpoints, and learning towards a known optimum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlwb.errors import DataError
from rlwb.evaluation.plots import style
from rlwb.evaluation.results import PA_TITLES, finite_or_nan


@style.styled
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
        Iterations to mark as selected for the backtest.
    judged_by
        The PA to draw: ``pa``, or ``pa_net`` where there are costs.
    """
    title = "Learning curves"
    labels = {judged_by: f"mean {PA_TITLES[judged_by]}, bp", "reward": "mean reward of an episode"}
    curves = {name: (_curve(train, name), _curve(validation, name)) for name in labels}
    curves = {name: pair for name, pair in curves.items() if any(map(len, pair))}
    if not curves:
        return style.note_figure(title, "Neither training nor validation has logged a PA or a reward yet.")
    subtitle = "PA 0 is the order's own TWAP; the training policy samples its actions"
    figure, axes = style.canvas(title, subtitle=subtitle, rows=len(curves), height=1.4 + 2.4 * len(curves))
    for axis, (name, (training, validated)) in zip(axes, curves.items(), strict=True):
        if len(training):
            _draw_training(axis, training)
        if len(validated):
            axis.plot(validated, color=style.BLUE, linewidth=1.4, marker="o", markersize=3, label="validation")
        marked = validated[validated.index.isin(chosen)].dropna()
        if len(marked):
            ring = {"markerfacecolor": "none", "markeredgecolor": style.VERMILION, "markeredgewidth": 1.4}
            label = f"chosen (n = {len(marked)})"
            axis.plot(marked, linestyle="", marker="o", markersize=7.5, **ring, label=label)
        axis.set_ylabel(labels[name])
        if name == judged_by:
            style.zero_line(axis)
    axes[-1].set_xlabel("iteration")
    style.whole_ticks(axes[-1])
    return figure


def _curve(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a column by iteration; empty where nothing of it was logged."""
    values = finite_or_nan(frame[column]) if column in frame else np.array([])
    if not np.isfinite(values).any():
        return pd.Series(dtype=np.float64)
    if "iteration" not in frame:
        raise DataError(f"The metrics lack the column 'iteration'; they have {list(frame)}.")
    return pd.Series(values, index=frame["iteration"].to_numpy())


def _draw_training(axis: Axes, curve: pd.Series) -> None:
    """Draw a training curve; a long one pale, with its moving average."""
    window = max(1, len(curve) // 20)
    look = {"linewidth": 0.8, "alpha": 0.55} if window > 1 else {"linewidth": 1.2, "marker": "o", "markersize": 3}
    axis.plot(curve, color=style.SKY, label="training", **look)
    if window > 1:
        smooth = curve.rolling(window, min_periods=1).mean()
        axis.plot(smooth, color=style.SKY, linewidth=1.8, label=f"training, mean of {window} iterations")


@style.styled
def validation_against_test(summary: pd.DataFrame, *, expected_shrinkage: float | None = None) -> Figure:
    """Draw each checkpoint's test PA against its validation PA, with the line on which both are equal.

    Parameters
    ----------
    summary
        The table that `rlwb.evaluation.summary` makes; rows without a validation PA are not drawn.
    expected_shrinkage
        How far below the line the checkpoints lie on average if all candidates were equally good, in basis points.
    """
    title = "Validation against test"
    rows = summary[summary["kind"].isin(["checkpoint", "last"])].dropna(subset=["validation_pa", "pa_mean"])
    if rows.empty:
        return style.note_figure(title, "No checkpoint has both a validation and a test PA.")
    chosen, last = rows[rows["kind"] == "checkpoint"], rows[rows["kind"] == "last"]
    mean = chosen[["validation_pa", "pa_mean"]].mean()
    subtitle = (
        f"chosen: mean validation PA {style.number(mean.iloc[0])} bp, mean test PA {style.number(mean.iloc[1])} bp "
        f"({style.number(mean.iloc[1] - mean.iloc[0], '+.2f')})\nbars: day-clustered intervals of the test PA"
    )
    figure, (axis,) = style.canvas(title, subtitle=subtitle if len(chosen) else "", height=4.8)
    axis.axline((0, 0), slope=1, color=style.GREY, linewidth=1, label="test = validation")
    if expected_shrinkage is not None:
        label = f"expected if all were equally good ({style.number(-expected_shrinkage)} bp)"
        axis.axline(
            (0, -expected_shrinkage), slope=1, color=style.GREY, linewidth=1, linestyle=(0, (4, 2)), label=label
        )
    _draw_checkpoints(axis, chosen, style.BLUE, "o", f"chosen checkpoints (n = {len(chosen)})")
    if len(chosen) > 1:
        axis.plot(
            *mean, marker="+", markersize=14, markeredgewidth=2, color=style.INK, linestyle="", label="their mean"
        )
    _draw_checkpoints(axis, last, style.ORANGE, "D", "last checkpoint")
    x, y = (_limits(rows[columns]) for columns in (["validation_pa"], ["validation_pa", "pa_mean", "pa_lo", "pa_hi"]))
    axis.set(xlim=x, ylim=y, xlabel="validation PA, bp", ylabel="test PA, bp")
    style.zero_line(axis)
    return figure


def _draw_checkpoints(axis: Axes, rows: pd.DataFrame, color: str, marker: str, label: str) -> None:
    if rows.empty:
        return
    x = rows["validation_pa"].to_numpy()
    axis.vlines(x, rows["pa_lo"].to_numpy(), rows["pa_hi"].to_numpy(), color=color, linewidth=1, alpha=0.35)
    look = {"marker": marker, "markersize": 6, "color": color, "markeredgecolor": "white"}
    axis.plot(x, rows["pa_mean"].to_numpy(), linestyle="", label=label, **look)


def _limits(values: pd.DataFrame) -> tuple[float, float]:
    """Return the span of the values with a margin."""
    low, high = values.min(axis=None), values.max(axis=None)
    margin = max(0.08 * (high - low), 0.1)
    return low - margin, high + margin


@style.styled
def certificate_curves(curves: pd.DataFrame, *, optimum: float, twap: float = 0.0) -> Figure:
    """Draw the value of policies during training, between the lines of TWAP and the optimum.

    Parameters
    ----------
    curves
        Columns `method`, `iteration`, `value` and `error`, the last two in basis points. Twice the error is shaded.
    optimum, twap
        The value of the best policy and of TWAP, in basis points.
    """
    title = "Learning towards a known optimum"
    missing = [name for name in ("method", "iteration", "value", "error") if name not in curves]
    if missing and len(curves):
        raise DataError(f"The curves lack the column {missing[0]!r}; they have {list(curves)}.")
    if curves.empty:
        return style.note_figure(title, "No method was trained.")
    figure, (axis,) = style.canvas(title, subtitle="value of the greedy policy after so many iterations")
    axis.axhline(optimum, color=style.INK, linewidth=1.2, label=f"optimum ({style.number(optimum, 'z.2f')} bp)")
    label = f"TWAP ({style.number(twap, 'z.2f')} bp)"
    axis.axhline(twap, color=style.GREY, linewidth=1.2, linestyle=(0, (5, 2)), label=label)
    for place, (method, points) in enumerate(curves.groupby("method", sort=False)):
        color = f"C{place}"
        at, value = points["iteration"].to_numpy(), points["value"].to_numpy()
        spread = 2 * points["error"].to_numpy()
        if (spread > 0).any():
            axis.fill_between(at, value - spread, value + spread, color=color, alpha=0.15, linewidth=0)
        name = f"{style.readable(str(method))} ({style.number(value[-1], 'z.2f')} bp)"
        axis.plot(at, value, color=color, linewidth=1.6, marker="o", markersize=3, label=name)
    axis.set(xlabel="iteration", ylabel="value, bp")
    style.whole_ticks(axis)
    return figure
