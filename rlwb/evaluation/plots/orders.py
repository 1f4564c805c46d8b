"""Figures on the PAs of single orders: their distribution, and their means by month and by instrument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from rlwb.evaluation.bootstrap import Interval, average_day_interval, fewest_days
from rlwb.evaluation.plots.style import (
    BLUE,
    GREY,
    INK,
    canvas,
    look,
    note_figure,
    number,
    readable,
    robust_limits,
    styled,
    tell_outside,
    zero_line,
)
from rlwb.evaluation.results import PolicyResult, of_kind
from rlwb.evaluation.statistics import ZERO_BP, mean

#: More instruments than this are shown by their extremes.
_MOST_INSTRUMENTS = 40

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@styled
def pa_distribution(results: Sequence[PolicyResult]) -> Figure:
    """Draw the distribution of PA over orders, one row a policy: 5, 25, 50, 75, 95 % points, and the mean.

    A ceiling is no policy and is not drawn.
    """
    title = "PA of single orders"
    drawn = [result for result in results if result.kind != "ceiling" and np.isfinite(result.pa).any()]
    if not drawn:
        return note_figure(title, "No policy has an order with a PA.")
    subtitle = "line: 5 to 95 % of orders; box: 25 to 75 %; bar: median; diamond: mean"
    figure, (axis,) = canvas(title, subtitle=subtitle, height=1.5 + 0.3 * len(drawn))
    baselines = of_kind(results, "baseline")
    marks = []
    for row, result in enumerate(drawn):
        pa = result.pa[np.isfinite(result.pa)]
        color, _ = look(result, baselines)
        p05, p25, p50, p75, p95 = np.quantile(pa, _QUANTILES)
        axis.plot([p05, p95], [row, row], color=color, linewidth=1.2, zorder=2)
        axis.barh(row, p75 - p25, left=p25, height=0.55, color=color, alpha=0.35, edgecolor=color, zorder=3)
        axis.plot([p50, p50], [row - 0.275, row + 0.275], color=color, linewidth=2, zorder=4)
        axis.plot(pa.mean(), row, marker="D", markersize=5, color=INK, markeredgecolor="white", zorder=5)
        # A schedule whose orders are all 0 says nothing of how wide the axis must be.
        marks += [p05, p95] if p95 - p05 > ZERO_BP else []
    axis.set_xlim(robust_limits(np.array(marks or [0.0]), reach=6.0))
    for row, result in enumerate(drawn):
        tell_outside(axis, row, mean(result.pa))
    axis.set_yticks(range(len(drawn)), [readable(r.display_name) for r in drawn])
    axis.set_ylim(len(drawn) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(f"PA, bp{_extremes(drawn)}")
    zero_line(axis, vertical=True)
    return figure


@styled
def pa_by_month(results: Sequence[PolicyResult], *, level: float = 0.95, seed: int = 0) -> Figure:
    """Draw the mean PA of the chosen checkpoints in each month of the test period, with day-clustered intervals."""
    title = "PA by month"
    groups = _by_group(of_kind(results, "checkpoint"), "month", level, seed)
    if not groups:
        return note_figure(title, "No chosen checkpoint has an order with a PA.")
    figure, (axis,) = canvas(title, subtitle=_interval_line(results, level))
    for x, interval in enumerate(groups.values()):
        axis.vlines(x, interval.lo, interval.hi, color=BLUE, linewidth=1.6, alpha=0.5)
        axis.plot(x, interval.estimate, marker="o", markersize=6, color=BLUE, markeredgecolor="white")
    labels = [f"{month}\n{interval.days} d" for month, interval in groups.items()]
    step = max(1, -(-len(labels) // 11))
    axis.set_xticks(range(0, len(labels), step), labels[::step])
    axis.set_xlim(-0.6, len(groups) - 0.4)
    axis.grid(visible=False, axis="x")
    axis.set(ylabel="mean PA, bp", xlabel="month and its trading days with a PA")
    zero_line(axis)
    return figure


@styled
def pa_by_instrument(results: Sequence[PolicyResult], *, level: float = 0.95, seed: int = 0) -> Figure:
    """Draw the mean PA of the chosen checkpoints by instrument, best first, with day-clustered intervals.

    Of many instruments the best and the worst are shown.
    """
    title = "PA by instrument"
    groups = _by_group(of_kind(results, "checkpoint"), "instrument", level, seed)
    if not groups:
        return note_figure(title, "No chosen checkpoint has an order with a PA.")
    ranked = sorted(groups.items(), key=lambda item: -item[1].estimate)
    shown, half = ranked, _MOST_INSTRUMENTS // 2
    if len(ranked) > _MOST_INSTRUMENTS:
        shown = ranked[:half] + ranked[-half:]
        title += f": the {half} best and {half} worst of {len(ranked)}"
    figure, (axis,) = canvas(title, subtitle=_interval_line(results, level), height=1.6 + 0.19 * len(shown))
    for row, (_, interval) in enumerate(shown):
        axis.hlines(row, interval.lo, interval.hi, color=BLUE, linewidth=1.6, alpha=0.5)
        axis.plot(interval.estimate, row, marker="o", markersize=5, color=BLUE, markeredgecolor="white")
    if len(shown) < len(ranked):
        axis.axhline(half - 0.5, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    axis.set_yticks(range(len(shown)), [readable(name) for name, _ in shown])
    axis.set_ylim(len(shown) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("mean PA, bp")
    estimates = np.array([v for _, i in shown for v in (i.estimate, i.lo, i.hi) if np.isfinite(v)])
    axis.set_xlim(robust_limits(estimates, reach=6.0))
    for row, (_, interval) in enumerate(shown):
        tell_outside(axis, row, interval.estimate)
    zero_line(axis, vertical=True)
    return figure


def _by_group(checkpoints: Sequence[PolicyResult], by: str, level: float, seed: int) -> dict[str, Interval]:
    """Return the interval of the checkpoint-averaged PA in each group that has a PA, by the group's name."""
    keys = [r.dates.astype("datetime64[M]") if by == "month" else r.orders[by].to_numpy() for r in checkpoints]
    names = sorted({str(name) for key in keys for name in key})
    labels = [key.astype(str) for key in keys]
    groups = {}
    for name in names:
        masks = [label == name for label in labels]
        interval = average_day_interval(
            [r.pa[mask] for r, mask in zip(checkpoints, masks, strict=True)],
            [r.dates[mask] for r, mask in zip(checkpoints, masks, strict=True)],
            np.random.default_rng(seed),
            level=level,
            resamples=2_000,
        )
        if interval.orders:
            groups[name] = interval
    return groups


def _interval_line(results: Sequence[PolicyResult], level: float) -> str:
    n = len(of_kind(results, "checkpoint"))
    few = fewest_days(level)
    return f"mean of the chosen checkpoints (n = {n}); bars: {100 * level:g} % intervals by days, from {few} days on"


def _extremes(drawn: Sequence[PolicyResult]) -> str:
    low, high = min(np.nanmin(r.pa) for r in drawn), max(np.nanmax(r.pa) for r in drawn)
    return f"    (single orders from {number(low, ',.0f')} to {number(high, ',.0f')} bp)"
