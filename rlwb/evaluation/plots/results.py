"""Plots of the results of policies: single orders, groups of orders, the order's steps, test days, and methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rlwb.evaluation.bootstrap import LEVEL, Interval, fewest_days, mean_parts, statistic_interval
from rlwb.evaluation.plots import style
from rlwb.evaluation.results import ZERO_BP, PolicyResult, day_matrix, of_kind
from rlwb.evaluation.tables import Table, is_informative

#: More instruments than this are shown by their extremes.
_MOST_INSTRUMENTS = 40

_NO_PA = "No chosen checkpoint has an order with a PA."
_METHOD_AXES = {
    "net_over_twap": "mean net PA over TWAP on the same order, bp",
    "over_twap": "mean PA over TWAP on the same order, bp",
    "pa": "mean PA, bp",
}


@style.styled
def pa_distribution(results: Sequence[PolicyResult]) -> Figure:
    """Draw the distribution of PA over orders, one row a policy: 5, 25, 50, 75, 95 % points, and the mean.

    A ceiling is no policy and is not drawn.
    """
    title = "PA of single orders"
    pas = [(one, one.pa[np.isfinite(one.pa)]) for one in results if one.kind != "ceiling"]
    pas = [(one, pa) for one, pa in pas if len(pa)]
    if not pas:
        return style.note_figure(title, "No policy has an order with a PA.")
    subtitle = "line: 5 to 95 % of orders; box: 25 to 75 %; bar: median; diamond: mean"
    figure, (axis,) = style.canvas(title, subtitle=subtitle, height=1.5 + 0.3 * len(pas))
    baselines = of_kind(results, "baseline")
    marks = [0.0]
    for row, (result, pa) in enumerate(pas):
        color, _ = style.look(result, baselines)
        p05, p25, p50, p75, p95 = np.quantile(pa, [0.05, 0.25, 0.5, 0.75, 0.95])
        axis.plot([p05, p95], [row, row], color=color, linewidth=1.2, zorder=2)
        axis.barh(row, p75 - p25, left=p25, height=0.55, color=color, alpha=0.35, edgecolor=color, zorder=3)
        axis.plot([p50, p50], [row - 0.275, row + 0.275], color=color, linewidth=2, zorder=4)
        axis.plot(pa.mean(), row, marker="D", markersize=5, color=style.INK, markeredgecolor="white", zorder=5)
        # A schedule whose orders are all 0 says nothing of how wide the axis must be.
        marks += [p05, p95] if p95 - p05 > ZERO_BP else []
    axis.set_xlim(style.robust_limits(np.array(marks[1:] or marks), reach=6.0))
    for row, (_, pa) in enumerate(pas):
        style.label_outside(axis, row, float(pa.mean()))
    low, high = (style.number(end([end(pa) for _, pa in pas]), ",.0f") for end in (np.min, np.max))
    axis.set_xlabel(f"PA, bp    (single orders from {low} to {high} bp)")
    style.name_rows(axis, [one.display_name for one, _ in pas])
    return figure


@style.styled
def pa_by_month(results: Sequence[PolicyResult], *, level: float = LEVEL, seed: int = 0) -> Figure:
    """Draw the mean PA of the selected checkpoints in each month of the test period, with day-clustered intervals."""
    title = "PA by month"
    groups = _by_group(results, lambda one: one.dates.astype("datetime64[M]"), level, seed)
    if not groups:
        return style.note_figure(title, _NO_PA)
    figure, (axis,) = style.canvas(title, subtitle=_interval_line(results, level))
    for x, interval in enumerate(groups.values()):
        axis.vlines(x, interval.lo, interval.hi, color=style.BLUE, linewidth=1.6, alpha=0.5)
        axis.plot(x, interval.estimate, marker="o", markersize=6, color=style.BLUE, markeredgecolor="white")
    labels = [f"{month}\n{interval.days} d" for month, interval in groups.items()]
    step = max(1, -(-len(labels) // 11))
    axis.set_xticks(range(0, len(labels), step), labels[::step])
    axis.set_xlim(-0.6, len(groups) - 0.4)
    axis.grid(visible=False, axis="x")
    axis.set(ylabel="mean PA, bp", xlabel="month and its trading days with a PA")
    style.zero_line(axis)
    return figure


@style.styled
def pa_by_instrument(results: Sequence[PolicyResult], *, level: float = LEVEL, seed: int = 0) -> Figure:
    """Draw the mean PA of the selected checkpoints by instrument, best first, with day-clustered intervals.

    Of many instruments the best and the worst are shown.
    """
    title = "PA by instrument"
    groups = _by_group(results, lambda one: one.orders["instrument"].to_numpy(), level, seed)
    if not groups:
        return style.note_figure(title, _NO_PA)
    ranked = sorted(groups.items(), key=lambda item: -item[1].estimate)
    shown, half = ranked, _MOST_INSTRUMENTS // 2
    if len(ranked) > _MOST_INSTRUMENTS:
        shown = ranked[:half] + ranked[-half:]
        title += f": the {half} best and {half} worst of {len(ranked)}"
    figure, (axis,) = style.canvas(title, subtitle=_interval_line(results, level), height=1.6 + 0.19 * len(shown))
    for row, (_, interval) in enumerate(shown):
        axis.hlines(row, interval.lo, interval.hi, color=style.BLUE, linewidth=1.6, alpha=0.5)
        axis.plot(interval.estimate, row, marker="o", markersize=5, color=style.BLUE, markeredgecolor="white")
    if len(shown) < len(ranked):
        axis.axhline(half - 0.5, color=style.GREY, linewidth=1, linestyle=(0, (4, 2)))
    axis.set_xlabel("mean PA, bp")
    ends = np.array([(one.estimate, one.lo, one.hi) for _, one in shown])
    axis.set_xlim(style.robust_limits(ends[np.isfinite(ends)], reach=6.0))
    for row, (_, interval) in enumerate(shown):
        style.label_outside(axis, row, interval.estimate)
    style.name_rows(axis, [name for name, _ in shown])
    return figure


def _by_group(
    results: Sequence[PolicyResult], group_of: Callable[[PolicyResult], np.ndarray], level: float, seed: int
) -> dict[str, Interval]:
    """Return the interval of the average PA of the checkpoints in each group of orders that has a PA, by group."""
    checkpoints = of_kind(results, "checkpoint")
    labels = [group_of(one).astype(str) for one in checkpoints]
    groups = {}
    for name in sorted(set().union(*labels)):
        parts = [mean_parts(one.pa[label == name]) for one, label in zip(checkpoints, labels, strict=True)]
        dates = [one.dates[label == name] for one, label in zip(checkpoints, labels, strict=True)]
        interval = statistic_interval(parts, dates, np.random.default_rng(seed), level=level, resamples=2_000)
        if interval.orders:
            groups[str(name)] = interval
    return groups


def _interval_line(results: Sequence[PolicyResult], level: float) -> str:
    n = len(of_kind(results, "checkpoint"))
    few = fewest_days(level)
    return f"mean of the chosen checkpoints (n = {n}); bars: {100 * level:g} % intervals by days, from {few} days on"


@style.styled
def inventory_paths(results: Sequence[PolicyResult]) -> Figure:
    """Draw the share of the amount left after each step: mean and bands of the selected, means of the baselines.

    The bands hold the middle 50 and 80 % of all orders of all selected checkpoints. Results without an inventory are
    not drawn.
    """
    title = "Inventory path"
    having = [one for one in results if one.inventory is not None and np.isfinite(one.inventory).any()]
    chosen = of_kind(having, "checkpoint")
    if not having:
        return style.note_figure(title, "No result carries the inventory of its orders.")
    subtitle = f"chosen checkpoints (n = {len(chosen)}): mean, and bands of the middle 50 and 80 % of orders"
    figure, (axis,) = style.canvas(title, subtitle=subtitle if chosen else "")
    if chosen:
        inventories = [np.asarray(one.inventory, dtype=np.float64) for one in chosen]
        width = max(left.shape[1] for left in inventories)  # shorter ones keep their last value
        paths = np.concatenate([np.pad(i, ((0, 0), (0, width - i.shape[1])), mode="edge") for i in inventories])
        p10, p25, p75, p90 = np.nanquantile(paths, [0.1, 0.25, 0.75, 0.9], axis=0)
        axis.fill_between(range(width), p10, p90, color=style.BLUE, alpha=0.13, linewidth=0)
        axis.fill_between(range(width), p25, p75, color=style.BLUE, alpha=0.22, linewidth=0)
        axis.plot(np.nanmean(paths, axis=0), color=style.BLUE, linewidth=2.2, marker="o", markersize=4, label="chosen")
    baselines = of_kind(results, "baseline")
    for result in of_kind(having, "baseline"):
        path = np.nanmean(np.asarray(result.inventory, dtype=np.float64), axis=0)
        color, dash = style.look(result, baselines)
        axis.plot(path, color=color, linestyle=dash, linewidth=1.6, label=style.readable(result.display_name))
    axis.set(xlabel="steps done", ylabel="amount left, share of the order", ylim=(-0.02, 1.04))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    style.whole_ticks(axis)
    return figure


@style.styled
def cumulative_pa(results: Sequence[PolicyResult]) -> Figure:
    """Draw the running sum over test days of each day's mean PA: checkpoints thin, their mean bold, baselines.

    A day on which a policy has no PA is left out of its line. Policies that see the future are not drawn: next to them
    all other lines would look alike.
    """
    title = "Cumulative PA over the test days"
    days = day_matrix(results)
    if days.empty:
        return style.note_figure(title, "No policy has an order with a PA.")
    subtitle = "running sum of day means; each day, and each order of a day, counts the same"
    figure, (axis,) = style.canvas(title, subtitle=subtitle)
    chosen = [one.policy for one in of_kind(results, "checkpoint") if days[one.policy].notna().any()]
    label: str | None = f"chosen checkpoints (n = {len(chosen)})"
    width, alpha = (0.8, 0.45) if len(chosen) > 1 else (2.2, 1.0)
    for policy in chosen:
        _running_sum(axis, days[policy], color=style.BLUE, markersize=4, label=label, linewidth=width, alpha=alpha)
        label = None
    if len(chosen) > 1:
        mean = days[chosen].mean(axis=1)
        _running_sum(axis, mean, color=style.INK, linewidth=2.2, markersize=5, label="their mean")
    baselines = of_kind(results, "baseline")
    for result in results:
        if result.kind in ("last", "baseline") and days[result.policy].notna().any():
            color, dash = style.look(result, baselines)
            name = style.readable(result.display_name)
            _running_sum(axis, days[result.policy], color=color, linestyle=dash, linewidth=1.6, label=name)
    if len(days) <= 6:
        axis.set_xticks(days.index, [str(day.date()) for day in days.index])
    else:
        style.date_ticks(axis, most=8)
    axis.set(ylabel="sum of daily mean PA, bp", xlabel="test day")
    style.zero_line(axis)
    return figure


def _running_sum(axis: Axes, values: pd.Series, **look: object) -> None:
    """Draw a running sum; one too short to be seen as a line has its points marked."""
    line = values.dropna().cumsum()
    axis.plot(line.index, line, marker="o" if len(line) < 3 else None, **look)


@style.styled
def method_intervals(comparison: Table) -> Figure:
    """Draw the mean PA of every method with its interval, in the sequence of the table.

    Ceilings and policies that see the future are left out: next to them all others would look alike. Where TWAP's own
    PA is not 0, the difference to TWAP is drawn instead, and where there are costs that of the net PA.
    """
    title = "Methods on the same orders"
    frame = comparison.frame
    rows = frame[~frame["kind"].isin(["ceiling", "unattainable"])]
    name = next(one for one in _METHOD_AXES if one == "pa" or is_informative(frame, one))
    rows = rows[np.isfinite(rows[name])]
    if rows.empty:
        return style.note_figure(title, "No method has a PA.")
    subtitle = f"mean and {100 * comparison.level:g} % interval over days; grey: fixed policies"
    figure, (axis,) = style.canvas(title, subtitle=subtitle, height=1.6 + 0.34 * len(rows))
    for at, row in enumerate(rows.to_dict("records")):
        color = style.GREY if row["kind"] == "baseline" else style.BLUE
        axis.plot(row[name], at, "o", color=color, markersize=6, markeredgecolor="white", zorder=3)
        if np.isfinite(row[f"{name}_lo"]):
            axis.plot([row[f"{name}_lo"], row[f"{name}_hi"]], [at, at], color=color, linewidth=2, alpha=0.6)
    axis.set_xlabel(_METHOD_AXES[name])
    style.name_rows(axis, rows["policy"].tolist())
    return figure
