"""Plots of orders: which were sampled, and how policies executed single ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rlwb.errors import DataError
from rlwb.evaluation.plots import style


@style.styled
def order_parts(parts: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw which days each part of the orders has, and how large its orders are.

    Parameters
    ----------
    parts
        Name to order table with the columns `date` and `amount` (shares).
    """
    title = "Orders"
    tables = {name: table for name, table in parts.items() if len(table)}
    if not tables:
        return style.note_figure(title, "There are no orders.")
    figure, (upper, lower) = style.canvas(
        title, subtitle="a day belongs to one part only", rows=2, height=4.8, share_x=False
    )
    amounts = np.concatenate([table["amount"] for table in tables.values()])
    edges = np.geomspace(amounts.min() * 0.99, amounts.max() * 1.01, 41)
    for name, table in tables.items():
        days = table.groupby("date").size()
        upper.bar(days.index, days, width=1.0, label=f"{name}: {len(table):,} orders, {len(days)} days")
        share = np.full(len(table), 1 / len(table))
        lower.hist(table["amount"], edges, weights=share, histtype="step", linewidth=1.4)
    style.date_ticks(upper, most=10)
    upper.set_ylabel("orders a day")
    lower.set(xscale="log", xlabel="amount, shares", ylabel="share of orders")
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    return figure


@style.styled
def order_path(runs: Mapping[str, pd.DataFrame], *, title: str = "One order", benchmark: float | None = None) -> Figure:
    """Draw the price of an order's window, where each policy traded, and how much each had left.

    Parameters
    ----------
    runs
        Policy to its tick table (see `rlwb.execution.audit`), all of the same order: columns `time`, `price`,
        `filled`, `left` (shares).
    benchmark
        A price to mark, the window's TWAP.
    """
    tables = {name: ticks.reset_index(drop=True) for name, ticks in runs.items() if len(ticks)}
    if not tables:
        return style.note_figure(title, "Nothing was recorded of this order.")
    figure, (upper, lower) = style.canvas(
        title, subtitle="area of a dot: amount filled at that bar", rows=2, height=5.2
    )
    first = max(tables.values(), key=len)  # one that was filled early has no later ticks
    amount = first["filled"].iloc[0] + first["left"].iloc[0]
    upper.plot(first["price"], color=style.GREY, linewidth=1.1)
    if benchmark is not None:
        label = f"TWAP {style.number(benchmark, '.6g')}"
        upper.axhline(benchmark, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), label=label)
    for color, marker, (name, table) in zip(
        (style.BLUE, style.VERMILION, style.GREEN), "ov^", tables.items(), strict=False
    ):
        done = np.flatnonzero(table["filled"] > 0)
        filled, price = table["filled"][done], table["price"][done]
        paid = float((filled * price).sum() / filled.sum()) if len(done) else np.nan
        label = f"{style.readable(name)}: average {style.number(paid, '.6g')}"
        size = 12 + 900 * filled / amount
        upper.scatter(done, price, s=size, color=color, marker=marker, alpha=0.55, label=label)
        left = np.concatenate([[1.0], table["left"] / amount])
        lower.step(np.arange(len(left)), left, where="post", color=color, linewidth=1.8)
    upper.set_ylabel("price")
    lower.set(ylabel="amount left", ylim=(-0.03, 1.05))
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    style.time_ticks(lower, first["time"].tolist())
    return figure


@style.styled
def price_paths(price: np.ndarray, filled: np.ndarray) -> Figure:
    """Draw price paths with a dot at each fill; a dot's area is the share of the order that was filled.

    Parameters
    ----------
    price : float64 of shape (N, T)
        One row a path, one column a tick.
    filled : float64 of shape (N, T)
        Share of the order's amount filled at each tick.
    """
    if price.ndim != 2 or price.shape != filled.shape:
        raise DataError(f"Prices have the shape {price.shape} and fills {filled.shape}; give both the same (N, T).")
    figure, (axis,) = style.canvas("Prices and fills", subtitle="dots: fills, by their share of the order")
    for row, (line, share) in enumerate(zip(price, filled, strict=True)):
        color = f"C{row}"
        axis.plot(line, color=color, linewidth=1.2, alpha=0.7)
        done = np.flatnonzero(share > 0)
        axis.scatter(done, line[done], s=160 * share[done], color=color, edgecolor="white", zorder=3)
    axis.set(xlabel="tick", ylabel="price")
    style.whole_ticks(axis)
    return figure
