"""Figures on orders before they are judged: what was drawn, and what a policy did with one of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rlwb.evaluation.plots.style import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    VERMILION,
    canvas,
    legend_below,
    note_figure,
    number,
    readable,
    styled,
)

_COLORS = (BLUE, ORANGE, GREEN)


@styled
def order_parts(parts: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw which days each part of the orders has, and how large its orders are.

    Parameters
    ----------
    parts
        Name to order table with the columns `date` and `amount`.
    """
    title = "Orders"
    tables = {name: table for name, table in parts.items() if len(table)}
    if not tables:
        return note_figure(title, "There are no orders.")
    figure, (upper, lower) = canvas(title, subtitle="a day belongs to one part only", rows=2, height=4.8, share_x=False)
    amounts = np.concatenate([table["amount"] for table in tables.values()])
    edges = np.geomspace(amounts.min() * 0.99, amounts.max() * 1.01, 41)
    for color, (name, table) in zip(_COLORS, tables.items(), strict=False):
        days = table.groupby("date").size()
        upper.bar(days.index, days, width=1.0, color=color, label=f"{name}: {len(table):,} orders, {len(days)} days")
        share = np.full(len(table), 1 / len(table))
        lower.hist(table["amount"], edges, weights=share, histtype="step", color=color, linewidth=1.4)
    locator = AutoDateLocator(minticks=3, maxticks=10)
    upper.xaxis.set_major_locator(locator)
    upper.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    upper.set_ylabel("orders a day")
    lower.set_xscale("log")
    lower.set_xlabel("amount, shares")
    lower.set_ylabel("share of orders")
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    legend_below(figure, upper)
    return figure


@styled
def order_path(runs: Mapping[str, pd.DataFrame], *, title: str = "One order", benchmark: float | None = None) -> Figure:
    """Draw the price of an order's window, where each policy traded, and what each had left.

    Parameters
    ----------
    runs
        Policy to its tick table (see `rlwb.execution.audit`), all of the same order: columns `time`, `price`,
        `filled`, `left`.
    benchmark
        A price to mark, the window's TWAP.
    """
    tables = {name: ticks.reset_index(drop=True) for name, ticks in runs.items() if len(ticks)}
    if not tables:
        return note_figure(title, "Nothing was recorded of this order.")
    figure, (upper, lower) = canvas(title, subtitle="area of a dot: amount filled at that bar", rows=2, height=5.2)
    first = max(tables.values(), key=len)  # one that was filled early has no later ticks
    ticks = np.arange(len(first))
    amount = first["filled"].iloc[0] + first["left"].iloc[0]
    upper.plot(ticks, first["price"], color=GREY, linewidth=1.1)
    if benchmark is not None:
        upper.axhline(
            benchmark, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), label=f"TWAP {number(benchmark, '.6g')}"
        )
    for color, marker, (name, table) in zip((BLUE, VERMILION, GREEN), "ov^", tables.items(), strict=False):
        done = (table["filled"] > 0).to_numpy()
        sizes = 12 + 900 * table["filled"][done] / amount
        paid = (
            float((table["filled"] * table["price"])[done].sum() / table["filled"][done].sum())
            if done.any()
            else np.nan
        )
        label = f"{readable(name)}: average {number(paid, '.6g')}"
        look = {"color": color, "marker": marker, "alpha": 0.55, "label": label}
        upper.scatter(np.flatnonzero(done), table["price"][done], s=sizes, **look)
        left = np.concatenate([[1.0], table["left"] / amount])
        lower.step(np.arange(len(left)), left, where="post", color=color, linewidth=1.8)
    upper.set_ylabel("price")
    lower.set(ylabel="amount left", ylim=(-0.03, 1.05))
    lower.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    places = ticks[:: max(1, len(ticks) // 8)]
    lower.set_xticks(places, [f"{first['time'][tick]:%H:%M}" for tick in places])
    lower.set_xlabel("time of day")
    legend_below(figure, upper)
    return figure
