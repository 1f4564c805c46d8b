"""Figures along time: how orders are worked off within the day, and how PA adds up over the test days."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlwb.evaluation.plots.style import BLUE, INK, canvas, legend_below, look, note_figure, readable, styled, zero_line
from rlwb.evaluation.results import PolicyResult, day_matrix, of_kind


@styled
def inventory_paths(results: Sequence[PolicyResult]) -> Figure:
    """Draw the share of the amount left after each step: mean and bands of the chosen, means of the baselines.

    The bands hold the middle 50 and 80 % of all orders of all chosen checkpoints. Results without an inventory
    are not drawn.
    """
    title = "Inventory path"
    having = [r for r in results if r.inventory is not None and np.isfinite(r.inventory).any()]
    chosen = [r for r in having if r.kind == "checkpoint"]
    if not having:
        return note_figure(title, "No result carries the inventory of its orders.")
    subtitle = f"chosen checkpoints (n = {len(chosen)}): mean, and bands of the middle 50 and 80 % of orders"
    figure, (axis,) = canvas(title, subtitle=subtitle if chosen else "")
    if chosen:
        paths = _stack(chosen)
        steps = np.arange(paths.shape[1])
        p10, p25, p75, p90 = np.nanquantile(paths, [0.1, 0.25, 0.75, 0.9], axis=0)
        axis.fill_between(steps, p10, p90, color=BLUE, alpha=0.13, linewidth=0)
        axis.fill_between(steps, p25, p75, color=BLUE, alpha=0.22, linewidth=0)
        axis.plot(steps, np.nanmean(paths, axis=0), color=BLUE, linewidth=2.2, marker="o", markersize=4, label="chosen")
    baselines = of_kind(results, "baseline")
    for result in having:
        if result.kind == "baseline":
            path = np.nanmean(_stack([result]), axis=0)
            color, dash = look(result, baselines)
            axis.plot(path, color=color, linestyle=dash, linewidth=1.6, label=readable(result.display_name))
    axis.set(xlabel="steps done", ylabel="amount left, share of the order", ylim=(-0.02, 1.04))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    legend_below(figure, axis)
    return figure


@styled
def cumulative_pa(results: Sequence[PolicyResult]) -> Figure:
    """Draw the running sum over test days of each day's mean PA: checkpoints thin, their mean bold, baselines.

    A day on which a policy has no PA is left out of its line. What sees the future is not drawn: its line would press
    all others together.
    """
    title = "Cumulative PA over the test days"
    days = day_matrix(results)
    if days.empty:
        return note_figure(title, "No policy has an order with a PA.")
    chosen = [r.policy for r in of_kind(results, "checkpoint") if days[r.policy].notna().any()]
    figure, (axis,) = canvas(
        title, subtitle="running sum of day means; each day, and each order of a day, counts the same"
    )
    for number, policy in enumerate(chosen):
        line = days[policy].dropna().cumsum()
        label = f"chosen checkpoints (n = {len(chosen)})" if number == 0 else None
        width, alpha = (0.8, 0.45) if len(chosen) > 1 else (2.2, 1.0)
        axis.plot(
            line.index, line, color=BLUE, marker=_dot(line), markersize=4, label=label, linewidth=width, alpha=alpha
        )
    if len(chosen) > 1:
        line = days[chosen].mean(axis=1).dropna().cumsum()
        axis.plot(line.index, line, color=INK, linewidth=2.2, marker=_dot(line), markersize=5, label="their mean")
    baselines = of_kind(results, "baseline")
    for result in results:
        line = days[result.policy].dropna().cumsum()
        if result.kind in ("checkpoint", "unattainable", "ceiling") or line.empty:
            continue
        color, dash = look(result, baselines)
        axis.plot(
            line.index,
            line,
            color=color,
            linestyle=dash,
            linewidth=1.6,
            marker=_dot(line),
            label=readable(result.display_name),
        )
    if len(days) <= 6:
        axis.set_xticks(days.index, [str(day.date()) for day in days.index])
    else:
        locator = AutoDateLocator(minticks=3, maxticks=8)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axis.set(ylabel="sum of daily mean PA, bp", xlabel="test day")
    zero_line(axis)
    legend_below(figure, axis)
    return figure


def _stack(results: Sequence[PolicyResult]) -> np.ndarray:
    """Stack inventories to ``(all orders, steps + 1)``; shorter ones keep their last value."""
    inventories = [np.asarray(r.inventory, dtype=np.float64) for r in results]
    width = max(inventory.shape[1] for inventory in inventories)
    return np.concatenate([np.pad(i, ((0, 0), (0, width - i.shape[1])), mode="edge") for i in inventories])


def _dot(line: object) -> str | None:
    """Mark the points of a line too short to be seen as a line."""
    return "o" if len(line) < 3 else None  # type: ignore[arg-type]
