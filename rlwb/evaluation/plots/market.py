"""Figures on the market itself: how one session looks, and the stylised facts of many."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rlwb.evaluation.plots.style import BLUE, GREEN, GREY, INK, ORANGE, VERMILION, canvas, legend_below, styled
from rlwb.market import Calendar, Sessions
from rlwb.market import stylised as facts

_COLORS = (BLUE, ORANGE, GREEN, VERMILION)


@styled
def session_bars(sessions: Sessions, row: int) -> Figure:
    """Draw one session: the range and close of each bar, and its volume."""
    title = f"{sessions.instruments[row]} on {sessions.dates[row]}"
    figure, (upper, lower) = canvas(title, subtitle="line: close; bars: low to high", rows=2, height=4.0)
    ticks = np.arange(sessions.calendar.num_ticks)
    bar = {name: sessions.fields[name][row] for name in ("low", "high", "close", "volume")}
    upper.vlines(ticks, bar["low"], bar["high"], color=GREY, linewidth=2.2, alpha=0.6)
    upper.plot(ticks, bar["close"], color=BLUE, linewidth=1.4)
    lower.bar(ticks, bar["volume"], color=GREY, width=0.8)
    upper.set_ylabel("price")
    lower.set_ylabel("volume")
    name_ticks(lower, sessions.calendar)
    return figure


@styled
def return_tails(markets: Mapping[str, Sessions]) -> Figure:
    """Draw how often returns of one bar are larger than so many standard deviations, beside a normal law."""
    figure, (axis,) = canvas("Fat tails", subtitle="share of bars whose return is larger than x standard deviations")
    from scipy.special import ndtr

    grid = np.linspace(0.0, 8.0, 81)
    for color, (name, sessions) in zip(_COLORS, markets.items(), strict=False):
        values = facts.log_returns(sessions)
        size = np.sort(np.abs(values[np.isfinite(values)]) / np.nanstd(values))
        share = 1 - np.searchsorted(size, grid) / len(size)
        kurtosis = facts.excess_kurtosis(values)
        axis.plot(
            grid, np.where(share > 0, share, np.nan), color=color, label=f"{name}: excess kurtosis {kurtosis:.1f}"
        )
    axis.plot(grid, 2 * ndtr(-grid), color=INK, linewidth=1, linestyle=(0, (4, 2)), label="normal law: 0")
    axis.set(yscale="log", ylim=(1e-6, 1.3), xlabel="size of the return, standard deviations", ylabel="share of bars")
    legend_below(figure, axis)
    return figure


@styled
def volatility_clustering(markets: Mapping[str, Sessions], lags: int = 20) -> Figure:
    """Draw the autocorrelation of absolute returns by lag, the U divided out."""
    subtitle = "autocorrelation of absolute returns within sessions, each relative to its time of day"
    figure, (axis,) = canvas("Volatility clusters", subtitle=subtitle)
    for color, (name, sessions) in zip(_COLORS, markets.items(), strict=False):
        values = facts.volatility_autocorrelation(sessions, lags)
        axis.plot(np.arange(1, lags + 1), values, color=color, marker="o", markersize=3, label=name)
    axis.axhline(0, color=INK, linewidth=0.8)
    axis.set(xlabel="lag, bars", ylabel="autocorrelation")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axis)
    return figure


@styled
def intraday_profiles(sessions: Sessions) -> Figure:
    """Draw volatility and volume by time of day, relative to their mean."""
    figure, (axis,) = canvas("The U", subtitle="by time of day, relative to the day's mean")
    ticks = np.arange(sessions.calendar.num_ticks)
    axis.plot(ticks[1:], facts.volatility_profile(sessions), color=BLUE, label="volatility (root mean square return)")
    axis.plot(ticks, facts.volume_profile(sessions), color=ORANGE, label="volume (share of the session's)")
    axis.axhline(1, color=INK, linewidth=0.8)
    axis.set_ylabel("relative to the mean")
    name_ticks(axis, sessions.calendar)
    legend_below(figure, axis)
    return figure


@styled
def volume_and_volatility(sessions: Sessions, bins: int = 10) -> Figure:
    """Draw the mean absolute return of bars by how much they traded, both relative to what is usual then."""
    returns = np.abs(facts.log_returns(sessions))
    volume = sessions.fields["volume"][:, 1:]
    usual, traded = np.nanmean(returns, axis=0), np.nanmean(volume, axis=0)
    size = (returns / np.where(usual > 0, usual, np.nan)).ravel()
    load = (volume / np.where(traded > 0, traded, np.nan)).ravel()
    known = np.isfinite(size) & np.isfinite(load)
    order = np.argsort(load[known], kind="stable")
    means = [part.mean() for part in np.array_split(size[known][order], bins) if len(part)]
    correlation = facts.volume_volatility_correlation(sessions)
    figure, (axis,) = canvas(
        "Volume and volatility move together",
        subtitle=f"correlation of log volume and absolute return {correlation:.2f}, time of day and session taken out",
    )
    axis.bar(np.arange(1, len(means) + 1), means, color=BLUE, alpha=0.75)
    axis.axhline(1, color=INK, linewidth=0.8)
    axis.set(xlabel="bars by volume relative to their time of day, tenths from quiet to busy", ylabel="mean |return|")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


@styled
def mean_reversion(markets: Mapping[str, Sessions], longest: int = 24) -> Figure:
    """Draw the variance ratio by horizon: 1 is a martingale, below 1 the price reverts."""
    subtitle = "variance of returns over so many bars, divided by that of as many single bars"
    figure, (axis,) = canvas("Mean reversion", subtitle=subtitle)
    horizons = [h for h in (1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 36, 48) if h <= longest]
    for color, (name, sessions) in zip(_COLORS, markets.items(), strict=False):
        ratios = [facts.variance_ratio(sessions, h) for h in horizons]
        axis.plot(horizons, ratios, color=color, marker="o", markersize=4, label=name)
    axis.axhline(1, color=INK, linewidth=0.8)
    axis.set(xlabel="horizon, bars", ylabel="variance ratio")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_below(figure, axis)
    return figure


def name_ticks(axis: Axes, calendar: Calendar, most: int = 9) -> None:
    """Write times of day under the ticks of a session; a break has no width."""
    every = max(1, -(-calendar.num_ticks // most))
    places = np.arange(0, calendar.num_ticks, every)
    axis.set_xticks(places, [f"{calendar.time_of(int(tick)):%H:%M}" for tick in places])
    axis.set_xlabel("time of day")
