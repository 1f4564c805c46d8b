"""Plots of market data: single sessions, the stylised facts of many, and what a check of bars found."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy.special import ndtr
from scipy.stats import ecdf

from rlwb.evaluation.plots import style
from rlwb.market import Sessions
from rlwb.market import stylised as facts
from rlwb.market.quality import KINDS, Quality, Window

#: Height of an instrument's row in inches, and how many instruments are named at most.
_ROW, _NAMED = 0.16, 60


@style.styled
def session_bars(sessions: Sessions, row: int) -> Figure:
    """Draw one session: the range and close of each bar, and its volume."""
    title = f"{sessions.instruments[row]} on {sessions.dates[row]}"
    figure, (upper, lower) = style.canvas(title, subtitle="line: close; bars: low to high", rows=2, height=4.0)
    ticks = np.arange(sessions.calendar.num_ticks)
    bar = {name: sessions.fields[name][row] for name in ("low", "high", "close", "volume")}
    upper.vlines(ticks, bar["low"], bar["high"], color=style.GREY, linewidth=2.2, alpha=0.6)
    upper.plot(ticks, bar["close"], color=style.BLUE, linewidth=1.4)
    lower.bar(ticks, bar["volume"], color=style.GREY, width=0.8)
    upper.set_ylabel("price")
    lower.set_ylabel("volume")
    style.time_ticks(lower, [sessions.calendar.time_of(tick) for tick in range(sessions.calendar.num_ticks)])
    return figure


@style.styled
def return_tails(markets: Mapping[str, Sessions]) -> Figure:
    """Draw the share of one-bar returns beyond x standard deviations, beside a normal distribution."""
    figure, (axis,) = style.canvas(
        "Fat tails", subtitle="share of bars whose return is larger than x standard deviations"
    )
    grid = np.linspace(0.0, 8.0, 81)
    for name, sessions in markets.items():
        values = facts.log_returns(sessions)
        share = ecdf(np.abs(values[np.isfinite(values)]) / np.nanstd(values)).sf.evaluate(grid)
        label = f"{name}: excess kurtosis {facts.excess_kurtosis(values):.1f}"
        axis.plot(grid, np.where(share > 0, share, np.nan), label=label)
    axis.plot(grid, 2 * ndtr(-grid), color=style.INK, linewidth=1, linestyle=(0, (4, 2)), label="normal law: 0")
    axis.set(yscale="log", ylim=(1e-6, 1.3), xlabel="size of the return, standard deviations", ylabel="share of bars")
    return figure


@style.styled
def volatility_clustering(markets: Mapping[str, Sessions], lags: int = 20) -> Figure:
    """Draw the autocorrelation of absolute returns by lag, each relative to its time of day."""
    subtitle = "autocorrelation of absolute returns within sessions, each relative to its time of day"
    figure, (axis,) = style.canvas("Volatility clusters", subtitle=subtitle)
    for name, sessions in markets.items():
        values = facts.volatility_autocorrelation(sessions, lags)
        axis.plot(np.arange(1, lags + 1), values, marker="o", markersize=3, label=name)
    axis.axhline(0, color=style.INK, linewidth=0.8)
    axis.set(xlabel="lag, bars", ylabel="autocorrelation")
    style.whole_ticks(axis)
    return figure


@style.styled
def intraday_profiles(sessions: Sessions) -> Figure:
    """Draw volatility and volume by time of day, relative to their mean."""
    figure, (axis,) = style.canvas("The U", subtitle="by time of day, relative to the day's mean")
    ticks = np.arange(sessions.calendar.num_ticks)
    axis.plot(ticks[1:], facts.volatility_profile(sessions), label="volatility (root mean square return)")
    axis.plot(ticks, facts.volume_profile(sessions), label="volume (share of the session's)")
    axis.axhline(1, color=style.INK, linewidth=0.8)
    axis.set_ylabel("relative to the mean")
    style.time_ticks(axis, [sessions.calendar.time_of(tick) for tick in range(sessions.calendar.num_ticks)])
    return figure


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
    figure, (axis,) = style.canvas(
        "Volume and volatility move together",
        subtitle=f"correlation of log volume and absolute return {correlation:.2f}, time of day and session taken out",
    )
    axis.bar(np.arange(1, len(means) + 1), means, color=style.BLUE, alpha=0.75)
    axis.axhline(1, color=style.INK, linewidth=0.8)
    axis.set(xlabel="bars by volume relative to their time of day, tenths from quiet to busy", ylabel="mean |return|")
    style.whole_ticks(axis)
    return figure


@style.styled
def mean_reversion(markets: Mapping[str, Sessions], longest: int = 24) -> Figure:
    """Draw the variance ratio by horizon: 1 for a martingale, below 1 where the price reverts."""
    subtitle = "variance of returns over so many bars, divided by that of as many single bars"
    figure, (axis,) = style.canvas("Mean reversion", subtitle=subtitle)
    horizons = [h for h in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 36, 48) if h <= longest]
    for name, sessions in markets.items():
        ratios = [facts.variance_ratio(sessions, h) for h in horizons]
        axis.plot(horizons, ratios, marker="o", markersize=4, label=name)
    axis.axhline(1, color=style.INK, linewidth=0.8)
    axis.set(xlabel="horizon, bars", ylabel="variance ratio")
    style.whole_ticks(axis)
    return figure


@style.styled
def coverage_calendar(quality: Quality) -> Figure:
    """Draw instruments by days: the share of the session's ticks that have a price."""
    subtitle = "share of the session's ticks that have a price; white: before the first or after the last day"
    return _by_day(quality, quality.coverage, "Coverage", subtitle, "viridis")


@style.styled
def zero_volumes(quality: Quality) -> Figure:
    """Draw instruments by days: the share of bars with a volume of 0."""
    subtitle = "share of the bars with a price that traded nothing"
    return _by_day(quality, quality.zeros, "Zero volume", subtitle, "magma_r")


@style.styled
def finding_days(quality: Quality) -> Figure:
    """Draw on which days findings lie: a row a kind, a mark a day, larger with more of them."""
    listed = quality.found.listed
    dated = {kind: [one.date for one in listed.get(kind, ()) if one.date] for kind in KINDS}
    dated = {kind: dates for kind, dates in dated.items() if dates}
    height = 1.6 + 0.26 * max(1, len(dated))
    subtitle = "blue: notes, red: faults; larger: more on that day"
    figure, (axis,) = style.canvas("Findings by day", subtitle=subtitle, height=height)
    for row, (kind, dates) in enumerate(dated.items()):
        days, count = np.unique(np.array(dates, dtype="datetime64[D]"), return_counts=True)
        color = style.VERMILION if KINDS[kind].severity == "fault" else style.BLUE
        axis.scatter(days, np.full(len(days), row), s=8 + 6 * np.log2(count), color=color, alpha=0.7, linewidths=0)
    axis.set_yticks(range(len(dated)), [f"{kind} ({quality.found.counts[kind]:,})" for kind in dated])
    axis.set_ylim(len(dated) - 0.5, -0.5)
    if len(quality.days):
        axis.set_xlim(quality.days[0] - 1, quality.days[-1] + 1)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(axis.xaxis.get_major_locator()))
    return figure


@style.styled
def worst_findings(windows: list[Window]) -> Figure:
    """Draw the closes around single findings, and mark the bar of each."""
    rows = max(1, -(-len(windows) // 2))
    figure = Figure(figsize=(7.2, 0.4 + 1.9 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).ravel()
    for axis, window in zip(axes, windows, strict=False):
        finding = window.finding
        axis.plot(window.close, color=style.GREY, linewidth=1, marker=".", markersize=3)
        axis.axvline(window.at, color=style.VERMILION, linewidth=1, alpha=0.6)
        axis.plot([window.at], [window.price], color=style.VERMILION, marker="o", markersize=4)
        axis.set_title(f"{finding.kind}: {style.readable(finding.instrument or '')} {finding.stamp}", fontsize=8.5)
        stamps = window.stamps.astype("datetime64[m]").astype(str)
        _name_places(axis, [stamp[5:].replace("T", " ") for stamp in stamps], most=4)
    for axis in axes[len(windows) :]:
        axis.set_axis_off()
    return figure


def _by_day(quality: Quality, values: np.ndarray, title: str, subtitle: str, colors: str) -> Figure:
    """Draw `values`, float of shape ``(instruments, days)``, as an image; NaN is white."""
    count = max(1, len(quality.instruments))
    figure, (axis,) = style.canvas(title, subtitle=subtitle, height=1.5 + min(_NAMED, count) * _ROW)
    cmap = mpl.colormaps[colors].with_extremes(bad="white")
    image = axis.imshow(np.ma.masked_invalid(values), aspect="auto", interpolation="nearest", cmap=cmap, vmin=0, vmax=1)
    figure.colorbar(image, ax=axis, shrink=0.8, pad=0.01).outline.set_edgecolor(style.FAINT)
    if count <= _NAMED:
        axis.set_yticks(
            range(len(quality.instruments)), [style.readable(name) for name in quality.instruments], fontsize=6.5
        )
    else:
        axis.set_ylabel(f"{count:,} instruments, by name")
        axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    _name_places(axis, [str(day) for day in quality.days], most=8)
    axis.tick_params(axis="x", labelrotation=30)
    axis.grid(visible=False)
    return figure


def _name_places(axis: Axes, names: list[str], most: int) -> None:
    """Write the names of places 0, 1, 2, … under the x axis, at most `most` of them."""
    axis.xaxis.set_major_locator(MaxNLocator(most, integer=True))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: names[int(x)] if 0 <= x < len(names) else ""))
