"""Figures of a check of bars: what is there, what is empty, where findings lie, and the worst of them from near."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.dates as mdates
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rlwb.evaluation.plots.style import BLUE, FAINT, GREY, VERMILION, canvas, readable, styled
from rlwb.market.quality import KINDS, Quality, Window

_ROW = 0.16
_NAMED = 60


@styled
def coverage_calendar(quality: Quality) -> Figure:
    """Draw instruments by days: which share of the session's ticks has a price."""
    return _by_day(
        quality,
        quality.coverage,
        "Coverage",
        "share of the session's ticks that have a price; white: before the first or after the last day",
        "viridis",
    )


@styled
def zero_volumes(quality: Quality) -> Figure:
    """Draw instruments by days: which share of the bars has a volume of 0."""
    return _by_day(
        quality, quality.zeros, "Zero volume", "share of the bars with a price that traded nothing", "magma_r"
    )


@styled
def finding_days(quality: Quality) -> Figure:
    """Draw when findings lie: a row a kind, a mark a day, larger with more of them."""
    listed = {kind: quality.found.listed[kind] for kind in KINDS if quality.found.listed.get(kind)}
    dated = {kind: [one.date for one in found if one.date] for kind, found in listed.items()}
    dated = {kind: dates for kind, dates in dated.items() if dates}
    height = 1.6 + 0.26 * max(1, len(dated))
    figure, (axis,) = canvas(
        "Findings by day", subtitle="blue: notes, red: faults; larger: more on that day", height=height
    )
    for row, (kind, dates) in enumerate(dated.items()):
        days, count = np.unique(np.array(dates, dtype="datetime64[D]"), return_counts=True)
        color = VERMILION if KINDS[kind].severity == "fault" else BLUE
        axis.scatter(days, np.full(len(days), row), s=8 + 6 * np.log2(count), color=color, alpha=0.7, linewidths=0)
    axis.set_yticks(range(len(dated)), [f"{kind} ({quality.found.counts[kind]:,})" for kind in dated])
    axis.set_ylim(len(dated) - 0.5, -0.5)
    if len(quality.days):
        axis.set_xlim(quality.days[0] - 1, quality.days[-1] + 1)
    axis.xaxis.set_major_formatter(mdates.ConciseDateFormatter(axis.xaxis.get_major_locator()))
    return figure


@styled
def worst_findings(windows: list[Window]) -> Figure:
    """Draw the closes around findings, each with the bar that it is about."""
    rows = max(1, -(-len(windows) // 2))
    figure = Figure(figsize=(7.2, 0.4 + 1.9 * rows), layout="constrained")
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(rows, 2, squeeze=False)).ravel())
    for axis, window in zip(axes, windows, strict=False):
        finding = window.finding
        bars = np.arange(len(window.close))
        axis.plot(bars, window.close, color=GREY, linewidth=1, marker=".", markersize=3)
        axis.axvline(window.at, color=VERMILION, linewidth=1, alpha=0.6)
        axis.plot([window.at], [window.price], color=VERMILION, marker="o", markersize=4)
        axis.set_title(f"{finding.kind}: {readable(finding.instrument or '')} {finding.stamp}", fontsize=8.5)
        axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        labels = window.stamps.astype("datetime64[m]").astype(str)
        axis.xaxis.set_major_formatter(
            FuncFormatter(
                lambda x, _, labels=labels: labels[int(x)][5:].replace("T", " ") if 0 <= x < len(labels) else ""
            )
        )
    for axis in axes[len(windows) :]:
        axis.set_axis_off()
    return figure


def _by_day(quality: Quality, values: np.ndarray, title: str, subtitle: str, colors: str) -> Figure:
    count = max(1, len(quality.instruments))
    height = 1.5 + min(_NAMED, count) * _ROW
    figure, (axis,) = canvas(title, subtitle=subtitle, height=height)
    cmap = mpl.colormaps[colors].with_extremes(bad="white")
    image = axis.imshow(np.ma.masked_invalid(values), aspect="auto", interpolation="nearest", cmap=cmap, vmin=0, vmax=1)
    figure.colorbar(image, ax=axis, shrink=0.8, pad=0.01).outline.set_edgecolor(FAINT)
    if count <= _NAMED:
        axis.set_yticks(range(len(quality.instruments)), [readable(name) for name in quality.instruments], fontsize=6.5)
    else:
        axis.set_ylabel(f"{count:,} instruments, by name")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    days = quality.days
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: str(days[int(x)]) if 0 <= x < len(days) else ""))
    axis.tick_params(axis="x", labelrotation=30)
    axis.grid(visible=False)
    return figure
