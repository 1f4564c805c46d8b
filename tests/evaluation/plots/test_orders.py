"""Figures of orders before they are judged."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd

from rlwb.evaluation import plots


def ticks(fills: list[float]) -> pd.DataFrame:
    filled = np.array(fills)
    return pd.DataFrame(
        {
            "time": [dt.time(9, 30 + i) for i in range(len(fills))],
            "price": [10.0, 11.0, np.nan][: len(fills)],
            "filled": filled,
            "left": 4.0 - filled.cumsum(),
        }
    )


def test_an_order_beside_another_policy() -> None:
    upper, lower = plots.order_path({"mine": ticks([1, 3, 0]), "even": ticks([2, 2, 0])}, benchmark=10.5).axes
    labels = [text.get_text() for text in upper.figure.legends[0].get_texts()]
    assert labels == ["TWAP 10.5", "mine: average 10.75", "even: average 10.5"]
    np.testing.assert_allclose(lower.lines[0].get_ydata(), [1, 0.75, 0, 0])


def test_an_order_that_was_never_filled() -> None:
    upper, _ = plots.order_path({"mine": ticks([0, 0, 0])}).axes
    assert "mine" in upper.figure.legends[0].get_texts()[0].get_text()
    plots.order_path({})


def test_parts_of_orders() -> None:
    days = pd.to_datetime(["2024-01-02", "2024-01-02", "2024-01-03"])
    table = pd.DataFrame({"date": days, "amount": [10.0, 100.0, 1000.0]})
    upper, lower = plots.order_parts({"training": table, "empty": table.iloc[:0]}).axes
    assert [bar.get_height() for bar in upper.patches] == [2, 1]
    assert upper.figure.legends[0].get_texts()[0].get_text() == "training: 3 orders, 2 days"
    assert lower.get_xscale() == "log"
    plots.order_parts({})
