"""Plots of results, training, orders and markets. Each function takes results and returns a matplotlib `Figure`.

A title states the finding's figure; `rlwb.evaluation.style` has what they share: themes, widths, the plot in words.
pyplot is not used: no display is touched, and a figure belongs to the caller alone.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator, PercentFormatter
from scipy.special import ndtr

from rlwb.errors import DataError
from rlwb.evaluation import style
from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, Draws, Interval, fewest_days, mean_parts, statistic_interval
from rlwb.evaluation.costs import TOTAL, wide_costs
from rlwb.evaluation.frontier import BEYOND, frontier_mean, non_dominated
from rlwb.evaluation.metrics import wide_name
from rlwb.evaluation.results import PA_TITLES, TESTED, ZERO_BP, PolicyResult, day_matrix, finite_or_nan, of_kind
from rlwb.evaluation.tables import Table, is_informative
from rlwb.execution.attribution import PARTS
from rlwb.files import atomic_path
from rlwb.market import Sessions
from rlwb.market import stylised as facts
from rlwb.market.quality import KINDS, Quality, Window

#: Kind of picture to what of its metadata would differ from one time to the next.
_UNDATED: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
#: Name of the words in place of a picture in its metadata.
_WORDS = {"png": "Description", "svg": "Description", "pdf": "Subject"}


def save_figure(
    figure: Figure, stem: str | os.PathLike[str], *, kinds: Sequence[str] = ("png", "svg")
) -> tuple[Path, ...]:
    """Write ``<stem>.png`` and ``<stem>.svg``, or other `kinds`, each complete or not at all, and return the paths.

    The same figure gives the same bytes: no dates, no random ids. Letters in a PDF are its own (TrueType). A PNG and an
    SVG hold the plot in words (`rlwb.evaluation.style.alt_of` reads those of a PNG).
    """
    paths = tuple(Path(f"{os.fspath(stem)}.{kind}") for kind in kinds)
    with mpl.rc_context({**style.settings(), "pdf.fonttype": 42}):
        for kind, path in zip(kinds, paths, strict=True):
            words = {_WORDS[kind]: figure.alt} if isinstance(figure, style.Plot) else {}
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=kind, metadata={**_UNDATED[kind], **words})
    return paths


def rename(figure: Figure, name: Callable[[str], str]) -> Figure:
    """Return the figure with its titles, axes and legends as `name` writes them."""
    for text in figure.findobj(Text):
        if (named := name(text.get_text())) != text.get_text():
            text.set_text(named)
    if isinstance(figure, style.Plot):
        figure.title, figure.subtitle = name(figure.title), name(figure.subtitle)
        figure.lay_out()
    return figure


# Policies on the test orders.

#: More instruments than this are shown by their extremes.
_MOST_INSTRUMENTS = 40
_NO_PA = "No chosen checkpoint has an order with a PA."
#: Colour of each part of a cost, and its hatch.
_PART_LOOKS = {
    "delay": ("INK", ""),
    "drift": ("GREY", ""),
    "selection": ("BLUE", ""),
    "spread": ("ORANGE", ""),
    "temporary_impact": ("VERMILION", ""),
    "permanent_impact": ("PURPLE", ""),
    "transient_impact": ("VERMILION", "////"),
    "within_bar": ("BLUE", "////"),
    "commission": ("SKY", ""),
    "tax": ("SKY", "////"),
    "opportunity": ("GREEN", ""),
}
_METHOD_AXES = {
    "net_over_twap": "mean net PA less that of TWAP on the same order, bp",
    "over_twap": "mean PA less that of TWAP on the same order, bp",
    "pa": "mean PA, bp",
}


def order_figures(
    results: Sequence[PolicyResult], *, level: float = LEVEL, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Figure]:
    """Return the figures of policies on one set of test orders, by name; the settings are those of the intervals."""
    how: dict[str, Any] = {"level": level, "seed": seed, "resamples": resamples}
    return {
        "pa_distribution": pa_distribution(results, **how),
        "pa_by_month": pa_by_month(results, **how),
        "pa_by_instrument": pa_by_instrument(results, **how),
        "inventory_paths": inventory_paths(results),
        "cumulative_pa": cumulative_pa(results),
    }


def _own(results: Sequence[PolicyResult]) -> list[PolicyResult]:
    """Return the policies that the figure is about: the chosen checkpoints, or else the first that has a PA."""
    having = [one for one in results if one.kind != "ceiling" and np.isfinite(one.pa).any()]
    return of_kind(having, "checkpoint") or having[:1]


def _finding(results: Sequence[PolicyResult], level: float, seed: int, resamples: int) -> str:
    """Return the mean PA with its interval, as the headline of a run has it, and over how many days it is."""
    own = _own(results)
    parts, dates = [mean_parts(one.pa) for one in own], [one.dates for one in own]
    found = statistic_interval(parts, dates, Draws(resamples, seed), level=level, resamples=resamples)
    whose = "PA" if own[0].kind == "checkpoint" else f"{own[0].display_name}: PA"
    return f"{style.estimate(whose, found.estimate, found.lo, found.hi)} over {style.counted(found.days, 'day')}"


def _beside(results: Sequence[PolicyResult]) -> list[PolicyResult]:
    """Return what stands beside the run's own policies, each of which has a look of its own."""
    return [one for kind in ("baseline", "control", "policy") for one in of_kind(results, kind)]


@style.styled
def pa_distribution(
    results: Sequence[PolicyResult], *, level: float = LEVEL, seed: int = 0, resamples: int = RESAMPLES
) -> Figure:
    """Draw the distribution of PA over orders, one row a policy: 5, 25, 50, 75, 95 % points, and the mean.

    A ceiling is no policy and is not drawn.
    """
    pas = [(one, one.pa[np.isfinite(one.pa)]) for one in results if one.kind != "ceiling"]
    pas = [(one, pa) for one, pa in pas if len(pa)]
    if not pas:
        return style.note_figure("PA of single orders", "No policy has an order with a PA.")
    q1, q3 = np.quantile(np.concatenate([one.pa[np.isfinite(one.pa)] for one in _own(results)]), [0.25, 0.75])
    half = f"middle half of orders {style.number(q1, 'z.0f')} to {style.number(q3, 'z.0f')} bp"
    subtitle = "line: 5 to 95 % of orders; box: 25 to 75 %; bar: median; diamond: mean"
    title = f"{_finding(results, level, seed, resamples)}; {half}"
    figure, (axis,) = style.canvas(title, subtitle, height=1.0 + 0.3 * len(pas))
    baselines = _beside(results)
    marks = []
    for row, (result, pa) in enumerate(pas):
        color, _ = style.look(result, baselines)
        p05, p25, p50, p75, p95 = np.quantile(pa, [0.05, 0.25, 0.5, 0.75, 0.95])
        axis.plot([p05, p95], [row, row], color=color, linewidth=1.2, zorder=2)
        axis.barh(row, p75 - p25, left=p25, height=0.55, color=color, alpha=0.35, edgecolor=color, zorder=3)
        axis.plot([p50, p50], [row - 0.275, row + 0.275], color=color, linewidth=2, zorder=4)
        axis.plot(pa.mean(), row, marker="D", markersize=5, color=style.INK, markeredgecolor=style.PAPER, zorder=5)
        # A schedule whose orders are all 0 says nothing of how wide the axis must be.
        marks += [p05, p95] if max(abs(p05), abs(p95)) > ZERO_BP else []
    axis.set_xlim(style.robust_limits(np.array(marks or [0.0]), reach=6.0))
    for row, (_, pa) in enumerate(pas):
        style.label_outside(axis, row, float(pa.mean()))
    low, high = (style.number(end([end(pa) for _, pa in pas]), ",.0f") for end in (np.min, np.max))
    axis.set_xlabel(f"PA, bp (single orders from {low} to {high} bp)")
    style.name_rows(axis, [one.display_name for one, _ in pas])
    return figure


@style.styled
def pa_by_month(
    results: Sequence[PolicyResult], *, level: float = LEVEL, seed: int = 0, resamples: int = RESAMPLES
) -> Figure:
    """Draw the mean PA of the selected checkpoints in each month of the test period, with day-clustered intervals."""
    groups = _by_group(results, lambda one: one.dates.astype("datetime64[M]"), level, seed)
    if not groups:
        return style.note_figure("PA by month", _NO_PA)
    title = f"{_finding(results, level, seed, resamples)}; {_above_zero(groups, 'month')}"
    figure, (axis,) = style.canvas(title, _interval_line(results, level))
    for x, interval in enumerate(groups.values()):
        axis.vlines(x, interval.lo, interval.hi, color=style.BLUE, linewidth=1.6, alpha=0.5)
        axis.plot(x, interval.estimate, marker="o", markersize=6, color=style.BLUE, markeredgecolor=style.PAPER)
    labels = [f"{month}\n{interval.days} d" for month, interval in groups.items()]
    step = max(1, -(-len(labels) // (5 if style.is_narrow() else 11)))
    axis.set_xticks(range(0, len(labels), step), labels[::step])
    axis.set_xlim(-0.6, len(groups) - 0.4)
    axis.grid(visible=False, axis="x")
    axis.set(ylabel="mean PA, bp", xlabel="month, and its trading days (d) with a PA")
    style.zero_line(axis)
    return figure


@style.styled
def pa_by_window(windows: pd.DataFrame, *, is_net: bool = False) -> Figure:
    """Draw the mean PA of each window of a walk-forward, or the net PA, with its day-clustered interval.

    Parameters
    ----------
    windows
        One row a window: `window`, `test_first`, `days`, and `pa_mean` or `pa_net` in basis points with the ends of its
        interval, `_lo` and `_hi`.
    """
    name, title = ("pa_net", "net PA") if is_net else ("pa", "PA")
    means = windows["pa_net" if is_net else "pa_mean"]
    low, high = (style.number(end, "z.1f") for end in (means.min(), means.max()))
    count = style.counted(len(windows), "window")
    finding = f"{title} from {low} to {high} bp in {count}; above 0 in {(means > 0).sum()}"
    subtitle = "dots: mean of each window's chosen checkpoints on its test days; bars: intervals by days"
    figure, (axis,) = style.canvas(finding[0].upper() + finding[1:], subtitle)
    axis.vlines(range(len(windows)), windows[f"{name}_lo"], windows[f"{name}_hi"], color=style.BLUE, alpha=0.5)
    axis.plot(
        range(len(windows)),
        means,
        "o",
        markersize=6,
        color=style.BLUE,
        markeredgecolor=style.PAPER,
    )
    labels = [f"{row.window}\n{row.test_first}\n{row.days} d" for row in windows.itertuples()]
    step = max(1, -(-len(labels) // (3 if style.is_narrow() else 7)))
    axis.set_xticks(range(0, len(labels), step), labels[::step])
    axis.set_xlim(-0.6, len(windows) - 0.4)
    axis.grid(visible=False, axis="x")
    axis.set(ylabel=f"mean {title}, bp", xlabel="window, its first test day, and its test days (d)")
    style.zero_line(axis)
    return figure


@style.styled
def pa_by_instrument(
    results: Sequence[PolicyResult], *, level: float = LEVEL, seed: int = 0, resamples: int = RESAMPLES
) -> Figure:
    """Draw the mean PA of the selected checkpoints by instrument, best first, with day-clustered intervals.

    Of many instruments the best and the worst are shown.
    """
    groups = _by_group(results, lambda one: one.orders["instrument"].to_numpy(), level, seed)
    if not groups:
        return style.note_figure("PA by instrument", _NO_PA)
    subtitle = _interval_line(results, level)
    shown = ranked = sorted(groups.items(), key=lambda item: -item[1].estimate)
    half = _MOST_INSTRUMENTS // 2
    if len(ranked) > _MOST_INSTRUMENTS:
        shown = ranked[:half] + ranked[-half:]
        subtitle = f"the {half} best and {half} worst of {len(ranked)}; {subtitle}"
    title = f"{_finding(results, level, seed, resamples)}; {_above_zero(groups, 'instrument')}"
    figure, (axis,) = style.canvas(title, subtitle, height=1.0 + 0.19 * len(shown))
    for row, (_, interval) in enumerate(shown):
        axis.hlines(row, interval.lo, interval.hi, color=style.BLUE, linewidth=1.6, alpha=0.5)
        axis.plot(interval.estimate, row, marker="o", markersize=5, color=style.BLUE, markeredgecolor=style.PAPER)
    if len(shown) < len(ranked):
        axis.axhline(half - 0.5, color=style.GREY, linewidth=1, linestyle=style.DASHED)
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


def _above_zero(groups: Mapping[str, Interval], name: str) -> str:
    above = sum(one.estimate > 0 for one in groups.values())
    return f"above 0 in {above:,} of {style.counted(len(groups), name)}"


def _interval_line(results: Sequence[PolicyResult], level: float) -> str:
    n, few = len(of_kind(results, "checkpoint")), fewest_days(level)
    return f"mean of the chosen checkpoints (n = {n}); bars: {100 * level:g} % intervals by days, from {few} days on"


@style.styled
def inventory_paths(results: Sequence[PolicyResult]) -> Figure:
    """Draw the share of the amount left after each step: mean and bands of the selected, means of the baselines.

    The bands hold the middle 50 and 80 % of all orders of all selected checkpoints. Results without an inventory are
    not drawn.
    """
    having = [one for one in results if one.inventory is not None and np.isfinite(one.inventory).any()]
    if not having:
        return style.note_figure("Amount left by step", "No result carries the inventory of its orders.")
    chosen = [np.asarray(one.inventory, dtype=np.float64) for one in of_kind(having, "checkpoint")]
    own = [one for one in having if one.kind == "checkpoint"] or having[:1]
    label = f"chosen checkpoints (n = {len(chosen)})" if len(chosen) > 1 else style.readable(own[0].display_name)
    subtitle = f"{label}: mean, and bands of the middle 50 and 80 % of orders"
    means = [np.nanmean(np.asarray(one.inventory, dtype=np.float64), axis=0) for one in own]
    steps = max(map(len, means)) - 1
    half = np.mean([mean[min(steps // 2, len(mean) - 1)] for mean in means])
    whose = "" if chosen else f"{own[0].display_name}: "
    title = f"{whose}{style.number(100 * half, 'z.0f')} % left after {steps // 2} of {style.counted(steps, 'step')}"
    figure, (axis,) = style.canvas(title, subtitle if chosen else "")
    if chosen:
        width = max(left.shape[1] for left in chosen)  # shorter ones keep their last value
        paths = np.concatenate([np.pad(i, ((0, 0), (0, width - i.shape[1])), mode="edge") for i in chosen])
        p10, p25, p75, p90 = np.nanquantile(paths, [0.1, 0.25, 0.75, 0.9], axis=0)
        axis.fill_between(range(width), p10, p90, color=style.BLUE, alpha=0.13, linewidth=0)
        axis.fill_between(range(width), p25, p75, color=style.BLUE, alpha=0.22, linewidth=0)
        axis.plot(np.nanmean(paths, axis=0), color=style.BLUE, linewidth=2.2, marker="o", markersize=4, label=label)
    baselines = _beside(results)
    for result in _beside(having):
        path = np.nanmean(np.asarray(result.inventory, dtype=np.float64), axis=0)
        color, dash = style.look(result, baselines)
        axis.plot(path, color=color, linestyle=dash, linewidth=1.6, label=style.readable(result.display_name))
    axis.set(xlabel="steps done", ylabel="amount left of the order, %", ylim=(-0.02, 1.04))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    style.whole_ticks(axis)
    return figure


@style.styled
def answer_times(seconds: np.ndarray) -> Figure:
    """Draw how long the answers of a service took, on a logarithmic axis.

    Parameters
    ----------
    seconds : float of shape (requests,)
    """
    title = "Time of an answer"
    taken = 1e3 * np.asarray(seconds, dtype=np.float64)
    taken = taken[np.isfinite(taken) & (taken > 0)]
    if not len(taken):
        return style.note_figure(title, "No request was answered.")
    p50, p99 = np.quantile(taken, [0.5, 0.99])
    title = (
        f"{len(taken):,} requests; half within {style.number(p50, '.3g')} ms, 99 % within {style.number(p99, '.3g')} ms"
    )
    figure, (axis,) = style.canvas(title, "time from a request to its answer; lines: half, and 99 % of them")
    low, high = taken.min() / 1.1, taken.max() * 1.1
    axis.hist(taken, bins=np.geomspace(low, high, 40), color=style.BLUE, alpha=0.6)
    for value, dash in ((p50, style.DASHED), (p99, ":")):
        axis.axvline(value, color=style.INK, linewidth=0.9, linestyle=dash)
    axis.set_xscale("log")
    axis.set(xlim=(low, high), xlabel="time of an answer, ms", ylabel="requests, count")
    style.plain_log(axis.xaxis)
    return figure


@style.styled
def cumulative_pa(results: Sequence[PolicyResult]) -> Figure:
    """Draw the running sum over test days of each day's mean PA: checkpoints thin, their mean bold, baselines.

    A day on which a policy has no PA is left out of its line. Policies that see the future are not drawn: next to them
    all other lines would look alike.
    """
    days = day_matrix(results)
    if days.empty:
        return style.note_figure("Cumulative PA", "No policy has an order with a PA.")
    own = days[[one.policy for one in _own(results)]].mean(axis=1).dropna()
    whose = "PA" if of_kind(results, "checkpoint") else f"{_own(results)[0].display_name}: PA"
    title = f"{whose} adds up to {style.number(own.sum(), ',.0f')} bp over {style.counted(len(own), 'day')}"
    figure, (axis,) = style.canvas(
        title, "running sum of day means; each day, and each order of a day, counts the same"
    )
    having = [one for one in results if days[one.policy].notna().any()]
    chosen = [one.policy for one in of_kind(having, "checkpoint")]
    width, alpha = (0.8, 0.45) if len(chosen) > 1 else (2.2, 1.0)
    for place, policy in enumerate(chosen):
        label = None if place else f"chosen checkpoints (n = {len(chosen)})"
        _running_sum(axis, days[policy], color=style.BLUE, markersize=4, label=label, linewidth=width, alpha=alpha)
    if len(chosen) > 1:
        mean = days[chosen].mean(axis=1)
        _running_sum(axis, mean, color=style.INK, linewidth=2.2, markersize=5, label="their mean")
    for result in having:
        if result.kind in ("last", "policy", "baseline", "control", "attainable"):
            color, dash = style.look(result, _beside(results))
            name = style.readable(result.display_name)
            _running_sum(axis, days[result.policy], color=color, linestyle=dash, linewidth=1.6, label=name)
    if len(days) <= (2 if style.is_narrow() else 6):
        axis.set_xticks(days.index, [str(day.date()) for day in days.index])
    else:
        style.date_ticks(axis, most=8)
    axis.set(ylabel="sum of daily mean PA, bp", xlabel="test day")
    style.zero_line(axis)
    return figure


@style.styled
def cost_parts(costs: pd.DataFrame) -> Figure:
    """Draw what orders cost by part, one stacked bar a policy: gains to the left of 0, costs to the right.

    Parameters
    ----------
    costs
        What `rlwb.evaluation.cost_table` returns.
    """
    table = wide_costs(costs)
    if TOTAL not in table or not np.isfinite(table[TOTAL]).any():
        return style.note_figure("Cost against arrival by part", "No policy has an order whose cost is known.")
    subtitle = "value-weighted, bp of the value at arrival; above 0 is bad; diamond: the sum of all parts"
    first, *others = table.dropna(subset=TOTAL).itertuples()
    shown = [f"{one.title} {style.number(getattr(one, TOTAL), 'z.1f')} bp" for one in (first, *others[:1])]
    title = f"Cost against arrival: {', '.join(shown)}"
    figure, (axis,) = style.canvas(title, subtitle, height=0.8 + 0.36 * len(table))
    rows, ends = np.arange(len(table)), {True: np.zeros(len(table)), False: np.zeros(len(table))}
    for part in PARTS:
        values = np.nan_to_num(table[part].to_numpy(dtype=np.float64)) if part in table else np.zeros(len(table))
        if (np.abs(values) <= ZERO_BP).all():
            continue
        left = np.where(values < 0, ends[True], ends[False])
        name, hatch = _PART_LOOKS[part]
        look = {"facecolor": getattr(style, name), "edgecolor": style.PAPER, "linewidth": 0.4, "hatch": hatch}
        axis.barh(rows, values, left=left, height=0.62, label=part.replace("_", " "), zorder=2, **look)
        for is_gain in (True, False):
            ends[is_gain] = ends[is_gain] + np.where((values < 0) == is_gain, values, 0.0)
    axis.plot(table[TOTAL], rows, "D", color=style.INK, markersize=5, markeredgecolor=style.PAPER, zorder=5)
    axis.use_sticky_edges = False  # a diamond at the end of a bar is whole
    style.zero_line(axis, vertical=True)
    axis.use_sticky_edges = False  # a diamond at the end of a bar would be cut
    axis.set_xlabel("cost, bp of the value at arrival")
    style.name_rows(axis, table["title"].tolist())
    return figure


def _running_sum(axis: Axes, values: pd.Series, **look: object) -> None:
    """Draw a running sum; one too short to be seen as a line has its points marked."""
    line = values.dropna().cumsum()
    axis.plot(line.index, line, marker="o" if len(line) < 3 else None, **look)


@style.styled
def frontier(table: pd.DataFrame) -> Figure:
    """Draw mean against deviation of the orders of each policy, with intervals, and the frontier of all of them.

    Parameters
    ----------
    table
        What `rlwb.evaluation.frontier_table` returns. Kinds of `BEYOND` are named at the upper edge.
    """
    known = table[np.isfinite(table["arrival_mean"]) & np.isfinite(table["arrival_std"])]
    own = known[~known["kind"].isin(BEYOND)]
    if own.empty:
        return style.note_figure(
            "Mean and deviation against arrival", "No policy has a mean and a deviation against its arrival price."
        )
    beyond = [
        f"{row.title}{', before costs' if row.kind == 'ceiling' else ''}: {style.number(row.arrival_mean)} bp at "
        f"{style.number(row.arrival_std)} bp"
        for row in known[known["kind"].isin(BEYOND)].itertuples()
    ]
    subtitle = "\n".join(
        ["single orders against their arrival prices, after costs; lines are intervals over days", *beyond]
    )
    rank = own["kind"].map({"checkpoint": 0, "last": 2}).fillna(1)  # the policy that was chosen, where there is one
    first = own.loc[rank.idxmin()]
    title = (
        f"{first['title']}: mean {style.number(first['arrival_mean'], 'z.1f')} bp at a deviation of "
        f"{style.number(first['arrival_std'], 'z.1f')} bp"
    )
    figure, (axis,) = style.canvas(title[0].upper() + title[1:], subtitle, height=4.2)
    mean, deviation = own["arrival_mean"].to_numpy(), own["arrival_std"].to_numpy()
    kept = non_dominated(mean, deviation)
    at = np.linspace(deviation[kept].min(), deviation[kept].max(), 200)
    axis.plot(at, frontier_mean(at, mean, deviation), color=style.GREY, linewidth=1.2, zorder=1.5)
    families: dict[str, list[dict[Any, Any]]] = {}
    for row in own.to_dict("records"):
        families.setdefault(_family(row)[0], []).append(row)
    for (name, rows), (color, marker) in zip(families.items(), itertools.cycle(style.POINTS), strict=False):
        places = sorted((row["arrival_std"], row["arrival_mean"]) for row in rows)
        look = {"color": color, "markersize": 7, "markeredgecolor": style.PAPER, "zorder": 4}
        line = {"linestyle": (0, (1, 2)) if len(rows) > 1 else "none", "linewidth": 0.8}
        axis.plot(*zip(*places, strict=True), marker=marker, label=style.readable(name, longest=44), **look, **line)
        for row in rows:
            at_std, at_mean = row["arrival_std"], row["arrival_mean"]
            axis.hlines(at_mean, row["arrival_std_lo"], row["arrival_std_hi"], color=color, linewidth=1, alpha=0.35)
            axis.vlines(at_std, row["arrival_mean_lo"], row["arrival_mean_hi"], color=color, linewidth=1, alpha=0.35)
            aside = {"xytext": (5, 5), "textcoords": "offset points", "fontsize": 8, "color": style.INK}
            axis.annotate(_family(row)[1], (at_std, at_mean), **aside)
    style.zero_line(axis)
    axis.set(xlabel="standard deviation of orders, bp", ylabel="mean gain against arrival, bp")
    return figure


def _family(row: Mapping[Any, Any]) -> tuple[str, str]:
    """Return the common title of the policies that differ in a setting, and that of one; of others there is none."""
    between = " at " if " at " in row["policy"] else "-" if row["kind"] == "baseline" else ""
    setting = row["policy"].partition(between)[2] if between else ""
    if not setting:
        return row["title"], ""
    name, _, value = setting.rpartition("=")
    title = row["title"].partition(" at " if between == " at " else " with ")[0]
    return f"{title} by {name.replace('_', ' ') or 'aversion'}", value


@style.styled
def method_intervals(comparison: Table) -> Figure:
    """Draw the mean PA of every method with its interval, in the sequence of the table.

    Ceilings and policies that see the future are left out: next to them all others would look alike. Where TWAP's own
    PA is not 0, the difference to TWAP is drawn instead, and where there are costs that of the net PA.
    """
    frame = comparison.frame
    name = next(one for one in _METHOD_AXES if one == "pa" or is_informative(frame, one))
    estimate = wide_name(name)
    rows = frame[~frame["kind"].isin(["ceiling", "unattainable"]) & np.isfinite(frame[estimate])]
    if rows.empty:
        return style.note_figure("Methods on the same orders", "No method has a PA.")
    subtitle = f"mean and {100 * comparison.level:g} % interval over days; grey: fixed policies"
    top = rows.loc[rows[estimate].idxmax()]
    what = _METHOD_AXES[name].partition(",")[0].replace("mean ", "").replace(" on the same order", ":")
    highest = style.estimate(what, top[estimate], top[f"{name}_lo"], top[f"{name}_hi"])
    title = f"Highest of {style.counted(len(rows), 'method')}: {style.readable(str(top['title']))}, {highest}"
    figure, (axis,) = style.canvas(title, subtitle, height=1.0 + 0.34 * len(rows))
    for at, row in enumerate(rows.to_dict("records")):
        color = style.GREY if row["kind"] in ("baseline", "control", "attainable") else style.BLUE
        axis.plot(row[estimate], at, "o", color=color, markersize=6, markeredgecolor=style.PAPER, zorder=3)
        if np.isfinite(row[f"{name}_lo"]):
            axis.plot([row[f"{name}_lo"], row[f"{name}_hi"]], [at, at], color=color, linewidth=2, alpha=0.6)
    axis.set_xlabel(_METHOD_AXES[name])
    style.name_rows(axis, rows["title"].tolist())
    return figure


# Training.


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
        The figure to draw: ``pa``, ``pa_net`` where there are costs, or ``objective``, which training does not log.
    """
    labels = {judged_by: f"mean {PA_TITLES[judged_by]}, bp", "reward": "mean reward an episode (no unit)"}
    curves = {name: (_curve(train, name), _curve(validation, name)) for name in labels}
    curves = {name: pair for name, pair in curves.items() if any(map(len, pair))}
    if not curves:
        return style.note_figure("Learning curves", "Neither training nor validation has logged a PA or a reward yet.")
    shown = next(iter(curves))
    name, unit = (PA_TITLES[judged_by], "bp") if shown == judged_by else ("mean reward an episode", "")
    is_pa = shown == judged_by != "objective"
    told = ["0 bp is the benchmark"] if is_pa else []
    if any(len(training) for training, _ in curves.values()):
        told.append("in training the policy tries actions out")
    title, subtitle = _best_iteration(*curves[shown], name=name, unit=unit), "; ".join(told)
    figure, axes = style.canvas(title, subtitle, rows=len(curves), height=0.8 + 2.2 * len(curves))
    for axis, (name, (training, validated)) in zip(axes, curves.items(), strict=True):
        window = max(1, len(training) // 20)
        look = {"linewidth": 0.8, "alpha": 0.55} if window > 1 else {"linewidth": 1.2, "marker": "o", "markersize": 3}
        if len(training):
            axis.plot(training, color=style.SKY, label="training", **look)
        if window > 1:
            smooth = training.rolling(window, min_periods=1).mean()
            axis.plot(smooth, color=style.SKY, linewidth=1.8, label=f"training, mean of {window} iterations")
        if len(validated):
            axis.plot(validated, color=style.BLUE, linewidth=1.4, marker="o", markersize=3, label="validation")
        marked = validated[validated.index.isin(chosen)].dropna()
        if len(marked):
            ring = {"markerfacecolor": "none", "markeredgecolor": style.VERMILION, "markeredgewidth": 1.4}
            label = f"chosen (n = {len(marked)})"
            axis.plot(marked, linestyle="", marker="o", markersize=7.5, **ring, label=label)
        axis.set_ylabel(labels[name])
        if name == judged_by and is_pa:
            style.zero_line(axis)
    axes[-1].set_xlabel("iteration")
    style.whole_ticks(axes[-1])
    return figure


def _best_iteration(training: pd.Series, validated: pd.Series, *, name: str, unit: str) -> str:
    """Return the highest value of validation, or of training without one, and the iteration that it is of."""
    found, whose = (validated, "validation") if len(validated) else (training, "training")
    at, last = found.idxmax(), max(one.index.max() for one in (training, validated) if len(one))
    return f"Highest {whose} {style.estimate(name, found.loc[[at]].max(), unit=unit)}, at iteration {at} of {last}"


def _curve(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a column by iteration; empty where nothing of it was logged."""
    values = finite_or_nan(frame[column]) if column in frame else np.array([])
    if not np.isfinite(values).any():
        return pd.Series(dtype=np.float64)
    if "iteration" not in frame:
        raise DataError(f"The metrics lack the column 'iteration'; they have {list(frame)}.")
    return pd.Series(values, index=frame["iteration"].to_numpy())


@style.styled
def validation_against_test(
    summary: pd.DataFrame, *, expected_shrinkage: float | None = None, judged_by: str = "pa"
) -> Figure:
    """Draw each checkpoint's test PA against its validation PA, with the line on which both are equal.

    Parameters
    ----------
    summary
        The table that `rlwb.evaluation.summary` makes; rows without a validation PA are not drawn.
    expected_shrinkage
        How far below the line the checkpoints lie on average if all candidates were equally good, in basis points.
    judged_by
        The figure that checkpoints were chosen by: ``pa``, ``pa_net`` or ``objective``.
    """
    name, (test, *ends) = PA_TITLES[judged_by], TESTED[judged_by]
    rows = summary[summary["kind"].isin(["checkpoint", "last"])].dropna(subset=["validation_pa", test])
    if rows.empty:
        return style.note_figure("Validation against test", f"No checkpoint has both a validation and a test {name}.")
    chosen, last = rows[rows["kind"] == "checkpoint"], rows[rows["kind"] == "last"]
    mean = (chosen if len(chosen) else last)[["validation_pa", test]].mean()
    title = (
        f"Mean validation {name} {style.number(mean.iloc[0])} bp, mean test {name} {style.number(mean.iloc[1])} bp "
        f"({style.number(mean.iloc[1] - mean.iloc[0], '+z.2f')} bp)"
    )
    subtitle = f"dots: checkpoints; bars: day-clustered intervals of the test {name}"
    figure, (axis,) = style.canvas(title, subtitle, height=3.8)
    axis.axline((0, 0), slope=1, color=style.GREY, linewidth=1, label="test = validation")
    if expected_shrinkage is not None:
        label = f"expected if all were equally good ({style.number(-expected_shrinkage)} bp)"
        look = {"color": style.GREY, "linewidth": 1, "linestyle": style.DASHED}
        axis.axline((0, -expected_shrinkage), slope=1, label=label, **look)
    _draw_checkpoints(axis, chosen, [test, *ends], style.BLUE, "o", f"chosen checkpoints (n = {len(chosen)})")
    if len(chosen) > 1:
        cross = {"marker": "+", "markersize": 14, "markeredgewidth": 2, "color": style.INK}
        axis.plot(*mean, linestyle="", label="their mean", **cross)
    _draw_checkpoints(axis, last, [test, *ends], style.ORANGE, "D", "last checkpoint")
    x, y = (_limits(rows[columns]) for columns in (["validation_pa"], ["validation_pa", test, *ends]))
    axis.set(xlim=x, ylim=y, xlabel=f"validation {name}, bp", ylabel=f"test {name}, bp")
    style.zero_line(axis)
    return figure


def _draw_checkpoints(axis: Axes, rows: pd.DataFrame, columns: list[str], color: str, marker: str, label: str) -> None:
    if rows.empty:
        return
    x = rows["validation_pa"].to_numpy()
    y, low, high = (rows[column].to_numpy() for column in columns)
    axis.vlines(x, low, high, color=color, linewidth=1, alpha=0.35)
    look = {"marker": marker, "markersize": 6, "color": color, "markeredgecolor": style.PAPER}
    axis.plot(x, y, linestyle="", label=label, **look)


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
    if curves.empty:
        return style.note_figure("Learning towards a known optimum", "No method was trained.")
    missing = [name for name in ("method", "iteration", "value", "error") if name not in curves]
    if missing:
        raise DataError(f"The curves lack the column {missing[0]!r}; they have {list(curves)}.")
    ends = curves.groupby("method", sort=False)["value"].last()
    title = (
        f"{style.readable(str(ends.idxmax()))} reaches {style.number(ends.max())} bp of the optimum's "
        f"{style.number(optimum)} bp"
    )
    figure, (axis,) = style.canvas(title, "value of the greedy policy after so many iterations; band: two errors")
    axis.axhline(optimum, color=style.INK, linewidth=1.2, label=f"optimum ({style.number(optimum)} bp)")
    label = f"TWAP ({style.number(twap)} bp)"
    axis.axhline(twap, color=style.GREY, linewidth=1.2, linestyle=(0, (5, 2)), label=label)
    grouped = curves.groupby("method", sort=False)
    for (method, points), (color, marker) in zip(grouped, style.points(len(grouped)), strict=True):
        at, value, error = (points[name].to_numpy() for name in ("iteration", "value", "error"))
        if (error > 0).any():
            axis.fill_between(at, value - 2 * error, value + 2 * error, color=color, alpha=0.15, linewidth=0)
        name = f"{style.readable(str(method))} ({style.number(value[-1])} bp)"
        axis.plot(at, value, color=color, linewidth=1.6, marker=marker, markersize=3, label=name)
    axis.set(xlabel="iteration", ylabel="value of the policy, bp")
    style.whole_ticks(axis)
    return figure


# Orders, and how single ones were executed.


@style.styled
def order_parts(parts: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw which days each part of the orders has, and how large its orders are.

    Parameters
    ----------
    parts
        Name to order table with the columns `date` and `amount` (shares).
    """
    tables = {name: table for name, table in parts.items() if len(table)}
    if not tables:
        return style.note_figure("Orders", "There are no orders.")
    count, held = sum(map(len, tables.values())), sum(table["date"].nunique() for table in tables.values())
    title = f"{style.counted(count, 'order')} on {style.counted(held, 'day')}"
    figure, (upper, lower) = style.canvas(title, "a day belongs to one part only", rows=2, height=4.2, share_x=False)
    amounts = np.concatenate([table["amount"] for table in tables.values()])
    edges = np.geomspace(amounts.min() * 0.99, amounts.max() * 1.01, 41)
    for name, table in tables.items():
        days = table.groupby("date").size()
        upper.bar(days.index, days, width=1.0, label=f"{name}: {len(table):,} orders, {len(days)} d")
        share = np.full(len(table), 1 / len(table))
        lower.hist(table["amount"], edges, weights=share, histtype="step", linewidth=1.4)
    style.date_ticks(upper, most=5 if style.is_narrow() else 10)
    upper.set(ylabel="orders a day, count", xlabel="day")
    lower.set(xscale="log", xlabel="amount, shares", ylabel="share of orders, %")
    style.plain_log(lower.xaxis)
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    return figure


@style.styled
def order_path(
    runs: Mapping[str, pd.DataFrame],
    *,
    title: str = "One order",
    benchmark: float | None = None,
    name: str = "TWAP",
) -> Figure:
    """Draw the price of an order's window, where each policy traded, and how much each had left.

    Parameters
    ----------
    runs
        Policy to its tick table (see `rlwb.execution.audit`), all of the same order: columns `time`, `price`,
        `filled`, `left` (shares).
    benchmark, name
        A price to mark, and what it is.
    """
    tables = {name: ticks.reset_index(drop=True) for name, ticks in runs.items() if len(ticks)}
    if not tables:
        return style.note_figure(title, "Nothing was recorded of this order.")
    first = max(tables.values(), key=len)  # one that was filled early has no later ticks
    amount = first["filled"].iloc[0] + first["left"].iloc[0]
    paid = {name: _average_price(table) for name, table in tables.items()}
    shown = [f"{style.readable(one, longest=40)} at {style.number(price, '.6g')}" for one, price in paid.items()]
    beside = "" if benchmark is None else f"{name} {style.number(benchmark, '.6g')}"
    figure, (upper, lower) = style.canvas(
        f"{title}: {', '.join(shown)}{beside and '; '}{beside}",
        "title: average prices of the fills; area of a dot: amount filled at that bar; grey gaps: closed hours",
        rows=2,
        height=4.4,
    )
    clock = style.Clock.of(first["time"].tolist())
    upper.plot(*clock.line(first["price"].to_numpy()), color=style.GREY, linewidth=1.1)
    if benchmark is not None:
        upper.axhline(benchmark, color=style.INK, linewidth=0.9, linestyle=style.DASHED, label=beside)
    for (color, marker), (policy, table) in zip(style.points(len(tables)), tables.items(), strict=True):
        done = np.flatnonzero(table["filled"] > 0)
        size = 12 + 900 * table["filled"][done] / amount
        label = f"{style.readable(policy)}: average {style.number(paid[policy], '.6g')}"
        look = {"color": color, "marker": marker, "alpha": 0.55, "linewidths": 0, "label": label}
        upper.scatter(clock.at[done], table["price"][done], s=size, **look)
        left = np.concatenate([[1.0], table["left"] / amount])
        lower.plot(*clock.steps(left), drawstyle="steps-post", color=color, linewidth=1.8)
    upper.set_ylabel("price, currency a share")
    upper.margins(y=0.12)  # dots at the highest and at the lowest price are drawn whole
    lower.set(ylabel="amount left, %", ylim=(-0.03, 1.05))
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    clock.label(lower)
    return figure


def _average_price(ticks: pd.DataFrame) -> float:
    """Return the average price of the fills; NaN without any."""
    filled = ticks["filled"].to_numpy(dtype=np.float64)
    priced = filled > 0
    return float((filled * ticks["price"])[priced].sum() / filled[priced].sum()) if priced.any() else np.nan


@style.styled
def price_paths(price: np.ndarray, filled: np.ndarray) -> Figure:
    """Draw price paths with a dot at each fill; a dot's area is the share of the order that was filled.

    Parameters
    ----------
    price, filled : float64 of shape (N, T)
        One row a path, one column a tick: the price, and the share of the order's amount that was filled.
    """
    if price.ndim != 2 or price.shape != filled.shape:
        raise DataError(f"Prices have the shape {price.shape} and fills {filled.shape}; give both the same (N, T).")
    paths, ticks = style.counted(len(price), "price path"), style.counted(price.shape[1], "tick")
    title = f"{paths} of {ticks} with {style.counted(int((filled > 0).sum()), 'fill')}"
    figure, (axis,) = style.canvas(title, "dots: fills, by their share of the order")
    for line, share, (color, marker) in zip(price, filled, style.points(len(price)), strict=True):
        axis.plot(line, color=color, linewidth=1.2, alpha=0.7)
        done = np.flatnonzero(share > 0)
        look = {"color": color, "marker": marker, "edgecolor": style.PAPER, "zorder": 3}
        axis.scatter(done, line[done], s=160 * share[done], **look)
    axis.set(xlabel="tick, number", ylabel="price, currency a share")
    style.whole_ticks(axis)
    return figure


# Markets: single sessions, and the stylised facts of many.


@style.styled
def session_bars(sessions: Sessions, row: int) -> Figure:
    """Draw one session: the range and close of each bar, and its volume."""
    bar = {name: sessions.fields[name][row] for name in ("low", "high", "close", "volume")}
    closes = bar["close"][np.isfinite(bar["close"])]
    moved = "no bar has a price"
    if len(closes):
        change = style.number(100 * (closes[-1] / closes[0] - 1), "+z.2f")
        moved = f"close {closes[0]:.6g} to {closes[-1]:.6g} ({change} %)"
    title = f"{sessions.instruments[row]} on {sessions.dates[row]}: {moved}"
    figure, (upper, lower) = style.canvas(
        title, "line: close; bars: low to high; closed hours are grey gaps", rows=2, height=3.6
    )
    clock = style.Clock(sessions.calendar.tick_start)
    upper.vlines(clock.at, bar["low"], bar["high"], color=style.GREY, linewidth=2.2, alpha=0.6)
    upper.plot(*clock.line(bar["close"]), color=style.BLUE, linewidth=1.4)
    lower.bar(clock.at, bar["volume"], color=style.GREY, width=0.8)
    upper.set_ylabel("price, currency a share")
    lower.set_ylabel("volume, shares")
    lower.yaxis.set_major_formatter(EngFormatter())
    clock.label(lower)
    return figure


@style.styled
def return_tails(markets: Mapping[str, Sessions]) -> Figure:
    """Draw the share of one-bar returns beyond x standard deviations, beside a normal distribution."""
    subtitle = "share of bars whose return is larger than x standard deviations"
    returns = {name: facts.log_returns(sessions) for name, sessions in markets.items()}
    kurtosis = {name: facts.excess_kurtosis(values) for name, values in returns.items()}
    title = f"Excess kurtosis {_listed(kurtosis, 'z.1f')}; of a normal law 0"
    figure, (axis,) = style.canvas(title, subtitle)
    grid = np.linspace(0.0, 8.0, 81)
    for name, values in returns.items():
        sizes = np.sort(np.abs(values[np.isfinite(values)]) / np.nanstd(values))
        share = 1 - np.searchsorted(sizes, grid, side="right") / len(sizes)
        label = f"{style.readable(name)}: excess kurtosis {style.number(kurtosis[name], 'z.1f')}"
        axis.plot(grid, np.where(share > 0, share, np.nan), label=label)
    axis.plot(grid, 2 * ndtr(-grid), color=style.INK, linewidth=1, linestyle=style.DASHED, label="normal law: 0")
    axis.set(yscale="log", ylim=(1e-6, 1.3), ylabel="share of bars (1 is all)")
    axis.set_xlabel("size of the return, standard deviations")
    style.plain_log(axis.yaxis)
    return figure


@style.styled
def volatility_clustering(markets: Mapping[str, Sessions], lags: int = 20) -> Figure:
    """Draw the autocorrelation of absolute returns by lag, each relative to its time of day."""
    subtitle = "autocorrelation of absolute returns within sessions, each relative to its time of day"
    found = {name: facts.volatility_autocorrelation(sessions, lags) for name, sessions in markets.items()}
    title = f"Autocorrelation of absolute returns at lag 1: {_listed({name: one[0] for name, one in found.items()})}"
    figure, (axis,) = style.canvas(title, subtitle)
    for (name, values), (color, marker) in zip(found.items(), style.points(len(found)), strict=True):
        look = {"color": color, "marker": marker, "markersize": 3, "label": style.readable(name)}
        axis.plot(np.arange(1, lags + 1), values, **look)
    axis.axhline(0, color=style.INK, linewidth=0.8)
    axis.set(xlabel="lag, bars", ylabel="autocorrelation (no unit)")
    style.whole_ticks(axis)
    return figure


@style.styled
def mean_reversion(markets: Mapping[str, Sessions], longest: int = 24) -> Figure:
    """Draw the variance ratio by horizon: 1 for a martingale, below 1 where the price reverts."""
    subtitle = "variance of returns over so many bars, divided by that of as many single bars"
    horizons = [h for h in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 36, 48) if h <= longest]
    found = {name: [facts.variance_ratio(sessions, h) for h in horizons] for name, sessions in markets.items()}
    ends = _listed({name: ratios[-1] for name, ratios in found.items()})
    title = f"Variance ratio over {style.counted(horizons[-1], 'bar')}: {ends}; of a martingale 1"
    figure, (axis,) = style.canvas(title, subtitle)
    for (name, ratios), (color, marker) in zip(found.items(), style.points(len(found)), strict=True):
        axis.plot(horizons, ratios, color=color, marker=marker, markersize=4, label=style.readable(name))
    axis.axhline(1, color=style.INK, linewidth=0.8)
    axis.set(xlabel="horizon, bars", ylabel="variance ratio (no unit)")
    style.whole_ticks(axis)
    return figure


@style.styled
def intraday_profiles(sessions: Sessions) -> Figure:
    """Draw volatility and volume by time of day, relative to their mean."""
    volatility, volume = facts.volatility_profile(sessions), facts.volume_profile(sessions)
    ends = [
        f"{name} {style.number(np.nanmin(values), 'z.2f')} to {style.number(np.nanmax(values), 'z.2f')}"
        for name, values in (("volatility", volatility), ("volume", volume))
        if np.isfinite(values).any()
    ]
    title = f"By time of day, times the day's mean: {', '.join(ends) or 'nothing is known'}"
    figure, (axis,) = style.canvas(title, "1 is the mean of the day; closed hours are grey gaps")
    clock = style.Clock(sessions.calendar.tick_start)
    axis.plot(*clock.line(np.insert(volatility, 0, np.nan)), label="volatility (root mean square return)")
    axis.plot(*clock.line(volume), label="volume (share of the session's)", linestyle=style.DASHED)
    axis.axhline(1, color=style.INK, linewidth=0.8)
    axis.set_ylabel("times the day's mean")
    clock.label(axis)
    return figure


def _listed(figures: Mapping[str, float], spec: str = "z.2f") -> str:
    """Return named figures as a title lists them."""
    return ", ".join(f"{style.readable(name)} {style.number(value, spec)}" for name, value in figures.items())


@style.styled
def volume_and_volatility(sessions: Sessions, bins: int = 10) -> Figure:
    """Draw the mean absolute return of bars by their volume, both relative to the mean at that time of day."""
    returns = np.abs(facts.log_returns(sessions))
    volume = sessions.fields["volume"][:, 1:]
    usual, traded = np.nanmean(returns, axis=0), np.nanmean(volume, axis=0)
    size = (returns / np.where(usual > 0, usual, np.nan)).ravel()
    load = (volume / np.where(traded > 0, traded, np.nan)).ravel()
    known = np.isfinite(size) & np.isfinite(load)
    order = np.argsort(load[known], kind="stable")
    means = [part.mean() for part in np.array_split(size[known][order], bins) if len(part)]
    correlation = facts.volume_volatility_correlation(sessions)
    title = f"Correlation of log volume and absolute return {style.number(correlation)}"
    figure, (axis,) = style.canvas(title, "time of day and session are taken out; 1 is the mean at that time of day")
    axis.bar(np.arange(1, len(means) + 1), means, color=style.BLUE, alpha=0.75)
    axis.axhline(1, color=style.INK, linewidth=0.8)
    axis.set(
        xlabel=f"bars from quiet to busy by volume at their time of day, {bins} parts of equal count",
        ylabel="mean |return|, times its mean",
    )
    style.whole_ticks(axis)
    return figure


# What a check of bars found.

#: Height of an instrument's row in inches, and how many instruments are named at most.
_ROW, _NAMED = 0.16, 60
#: Cells of a calendar that are parted by lines: of so many days at most.
_PARTED = 130
#: What a session is by its ticks with a price, from the least, and its colour.
_COVERED = {
    "no price": "INK",
    "up to 50 % of ticks": "VERMILION",
    "up to 90 %": "ORANGE",
    "above 90 %": "BLUE",
    "full, closed early": "GREEN",
    "full": "SKY",
}


@style.styled
def coverage_calendar(quality: Quality, *, tallest: float = _NAMED * _ROW) -> Figure:
    """Draw instruments by days: how many of the session's ticks have a price, in six kinds, with their counts.

    Parameters
    ----------
    quality
        What a check found.
    tallest
        Largest height of the calendar, inches; where instruments have less room than for a name, some are named.
    """
    share = quality.coverage
    early = np.zeros(share.shape, dtype=bool) if quality.early is None else quality.early
    place = np.searchsorted([0.0, 0.5, 0.9], share, side="left").astype(np.float64)  # 0, to 50, to 90, to 100 %
    place = np.where(share >= 1.0, np.where(early, 4.0, 5.0), place)
    kinds = {name: int((place[np.isfinite(share)] == n).sum()) for n, name in enumerate(_COVERED)}
    subtitle = "a cell is a session; empty: before the instrument's first day or after its last"
    figure, axis, _ = _by_day(
        quality,
        np.where(np.isfinite(share), place, np.nan),
        f"{_share(share)} of ticks have a price",
        subtitle,
        ListedColormap([getattr(style, color) for color in _COVERED.values()]),
        (-0.5, len(_COVERED) - 0.5),
        tallest,
    )
    for name, color in reversed(_COVERED.items()):
        if kinds[name]:
            label = f"{name}: {style.counted(kinds[name], 'session')}"
            axis.add_patch(Rectangle((0, 0), 0, 0, color=getattr(style, color), label=label))
    if max(quality.coverage.shape, default=0) <= _PARTED:
        axis.hlines(np.arange(0.5, len(quality.instruments)), -0.5, len(quality.days) - 0.5, style.PAPER, linewidth=0.6)
        axis.vlines(np.arange(0.5, len(quality.days)), -0.5, len(quality.instruments) - 0.5, style.PAPER, linewidth=0.6)

    return figure


@style.styled
def zero_volumes(quality: Quality) -> Figure:
    """Draw instruments by days: the share of bars with a volume of 0."""
    subtitle = "share of the bars with a price that traded nothing"
    finding = f"{_share(quality.zeros)} of bars with a price traded nothing"
    figure, axis, image = _by_day(quality, quality.zeros, finding, subtitle, mpl.colormaps["magma_r"], (0.0, 1.0))
    bar = figure.colorbar(image, ax=axis, shrink=0.8, pad=0.01, format=PercentFormatter(1.0, symbol=" %"))
    bar.set_label("share of the bars, %")
    bar.outline.set_edgecolor(style.FAINT)
    return figure


def _share(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    return f"{style.number(100 * known.mean(), 'z.2f')} %" if len(known) else "Nothing is known: no share"


def _by_day(
    quality: Quality,
    values: np.ndarray,
    finding: str,
    subtitle: str,
    colors: Colormap,
    ends: tuple[float, float],
    tallest: float = _NAMED * _ROW,
) -> tuple[Figure, Axes, AxesImage]:
    """Draw `values`, float of shape ``(instruments, days)``, as an image; NaN has no colour."""
    count = max(1, len(quality.instruments))
    whose = f"{style.counted(len(quality.instruments), 'instrument')}, {style.counted(len(quality.days), 'day')}"
    figure, (axis,) = style.canvas(f"{finding}: {whose}", subtitle, height=1.0 + min(count * _ROW, tallest))
    image = axis.imshow(
        np.ma.masked_invalid(values),
        aspect="auto",
        interpolation="nearest",
        cmap=colors.with_extremes(bad=style.PAPER),
        vmin=ends[0],
        vmax=ends[1],
    )
    if count <= _NAMED:
        shown = range(0, len(quality.instruments), max(1, -int(-count * _ROW // tallest)))
        axis.set_yticks(list(shown), [style.readable(quality.instruments[row]) for row in shown], fontsize=6.5)
        axis.set_ylabel("instrument")
    else:
        axis.set_ylabel(f"{count:,} instruments, by name")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    _name_places(axis, [str(day) for day in quality.days], most=2 if style.is_narrow() else 6)
    axis.set_xlabel("day")
    axis.grid(visible=False)
    return figure, axis, image


@style.styled
def finding_days(quality: Quality) -> Figure:
    """Draw on which days findings lie: a row a kind, a mark a day, larger with more of them."""
    listed = quality.found.listed
    dated = {kind: [one.date for one in listed.get(kind, ()) if one.date] for kind in KINDS}
    dated = {kind: dates for kind, dates in dated.items() if dates}
    subtitle = "blue dots: notes; red diamonds: faults; larger: more on that day"
    found, drawn = sum(quality.found.counts[kind] for kind in dated), sum(map(len, dated.values()))
    if drawn < found:
        subtitle += f"; drawn are the {drawn:,} that the check lists"
    title = f"{style.counted(found, 'finding')} with a day, of {style.counted(len(dated), 'kind')}"
    figure, (axis,) = style.canvas(title, subtitle, height=1.4 + 0.26 * max(1, len(dated)))
    for row, (kind, dates) in enumerate(dated.items()):
        days, count = np.unique(np.array(dates, dtype="datetime64[D]"), return_counts=True)
        color, marker = (style.VERMILION, "D") if KINDS[kind].severity == "fault" else (style.BLUE, "o")
        look = {"color": color, "marker": marker, "alpha": 0.7, "linewidths": 0}
        axis.scatter(days, np.full(len(days), row), s=8 + 6 * np.log2(count), **look)
    names = [f"{kind} ({quality.found.counts[kind]:,})" for kind in dated]
    axis.set_yticks(range(len(dated)), names, fontsize=7.5 if style.is_narrow() else None)
    axis.set_ylim(len(dated) - 0.5, -0.5)
    if len(quality.days):
        axis.set_xlim(quality.days[0] - 1, quality.days[-1] + 1)
    axis.set(xlabel="day", ylabel="kind of finding (how many)")
    style.date_ticks(axis, most=4 if style.is_narrow() else 8)
    return figure


@style.styled
def worst_findings(windows: list[Window]) -> Figure:
    """Draw the closes around single findings, and mark the bar of each."""
    columns = style.fitting(2, least=2.6)
    rows = max(1, -(-len(windows) // columns))
    title = f"{style.counted(len(windows), 'finding')}, each with the bars around it"
    figure, axes = style.canvas(
        title,
        "line: close; dot: the bar that it is about; closed hours are grey gaps",
        rows=rows,
        columns=columns,
        height=0.3 + 1.9 * rows,
        share_x=False,
    )
    for axis, window in zip(axes, windows, strict=False):
        finding, seconds = window.finding, window.stamps.astype("datetime64[s]").astype(np.int64)
        clock = style.Clock(seconds)
        axis.plot(*clock.line(window.close), color=style.GREY, linewidth=1, marker=".", markersize=3)
        axis.axvline(clock.at[window.at], color=style.VERMILION, linewidth=1, alpha=0.6)
        axis.plot([clock.at[window.at]], [window.price], color=style.VERMILION, marker="o", markersize=4)
        clock.shade(axis)
        name = f"{finding.kind}: {style.readable(finding.instrument or '')} {finding.stamp}"
        axis.set_title(name if len(name) < 50 else name.replace(": ", ":\n", 1), fontsize=8, fontweight="normal")
        stamps = np.datetime_as_string(window.stamps.astype("datetime64[m]"))
        shown = [*range(0, len(stamps), max(1, -(-len(stamps) // 3)))]
        axis.set_xticks(clock.at[shown], [stamps[one][5:].replace("T", "\n") for one in shown])
        axis.set_ylabel("close, currency a share", fontsize=7.5)
        axis.set_xlabel("day and time of day", fontsize=7.5)
    for axis in axes[len(windows) :]:
        axis.set_axis_off()
    return figure


def _name_places(axis: Axes, names: list[str], most: int) -> None:
    """Write the names of places 0, 1, 2, … under the x axis, at most `most` of them."""
    axis.xaxis.set_major_locator(MaxNLocator(most, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: names[int(x)] if 0 <= x < len(names) else ""))
