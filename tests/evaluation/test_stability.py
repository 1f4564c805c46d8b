"""Stability by groups and over time, on results whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlwb.evaluation import PolicyResult
from rlwb.evaluation.stability import (
    DRIFT_COLUMNS,
    STABILITY_COLUMNS,
    drift_table,
    stability_labels,
    stability_table,
    traded_labels,
)
from rlwb.execution import Engine, align_orders
from rlwb.market import Sessions
from tests.evaluation.tables import order_table
from tests.execution.markets import order, sessions_of

DAYS, NAMES = 24, ("A", "B", "C", "D", "E", "F")
SETTINGS = {"resamples": 500, "seed": 1}


def result(pa: np.ndarray, **columns) -> PolicyResult:  # type: ignore[no-untyped-def]
    """Make a checkpoint's result with an order of each of six instruments on each of 24 days."""
    table = order_table(pa.ravel(), days=1, instruments=NAMES, **columns)
    table["date"] = np.repeat(np.datetime64("2023-05-01") + np.arange(DAYS), len(NAMES))
    return PolicyResult("checkpoint-0001", "checkpoint", table)


def by_name(table):  # type: ignore[no-untyped-def]
    return table.set_index("group")


def labels_of(one: PolicyResult) -> dict[str, dict[str, np.ndarray]]:
    names = one.orders["instrument"].to_numpy()
    return {"instrument": {name: names == name for name in NAMES}}


def test_an_instrument_that_alone_carries_the_gain_is_named() -> None:
    noise = np.random.default_rng(0).standard_normal((DAYS, len(NAMES)))
    gain = 12.0 * noise
    gain[:, 2] += 20.0
    one = result(gain)
    ids = one.orders["order_id"].to_numpy()
    table = stability_table({"checkpoints": [one]}, labels_of(one), ids, np.ones(len(ids), dtype=int), **SETTINGS)
    assert table.columns.tolist() == list(STABILITY_COLUMNS)
    found = by_name(table)
    above = (found["p_adjusted"] <= 0.05) & (found["over_rest"] > 0)
    assert found.index[above].tolist() == ["C"]
    assert found["over_rest"].idxmax() == "C"
    assert found.loc["C", "judged"] == pytest.approx(gain[:, 2].mean())
    rest = gain[:, [0, 1, 3, 4, 5]].mean()
    assert found.loc["C", "over_rest"] == pytest.approx(gain[:, 2].mean() - rest)
    assert found.loc["C", "over_rest_lo"] > 0
    assert (found["days"] == DAYS).all()
    assert (found["orders"] == DAYS).all()


def test_of_several_checkpoints_the_mean_of_each_order_counts_after_costs() -> None:
    gain = np.random.default_rng(1).standard_normal((DAYS, len(NAMES)))
    members = [result(gain, pa_net=(gain + shift).ravel()) for shift in (1.0, 3.0)]
    ids = members[0].orders["order_id"].to_numpy()[::-1]
    labels = {"all": {"all": np.ones(len(ids), dtype=bool)}}
    row = stability_table({"checkpoints": members}, labels, ids, np.ones(len(ids), dtype=int), **SETTINGS).iloc[0]
    assert row["judged"] == pytest.approx(gain.mean() + 2.0)
    assert math.isnan(row["over_rest"])
    assert math.isnan(row["p_adjusted"])


def test_a_group_of_few_days_is_not_compared() -> None:
    one = result(np.random.default_rng(2).standard_normal((DAYS, len(NAMES))))
    days = one.orders["date"].to_numpy().astype("M8[D]")
    first = days < days.min() + 3
    ids = one.orders["order_id"].to_numpy()
    labels = {"month": {"first": first, "rest": ~first}}
    table = by_name(stability_table({"one": [one]}, labels, ids, np.ones(len(ids), dtype=int), **SETTINGS))
    assert table["days"].tolist() == [3, DAYS - 3]
    assert np.isnan(table.loc["first", ["judged_lo", "over_rest", "p"]].astype(float)).all()
    assert np.isfinite(table.loc["rest", "p"])


def test_months_instruments_and_volatility_are_told_apart() -> None:
    calm, wild = [10.0, 10.01, 10.0, 10.01], [10.0, 12.0, 9.0, 11.0]
    days = [calm] * 31 + [wild] * 3
    sessions: Sessions = sessions_of(days)
    orders = align_orders([order(1.0, day=1), order(2.0, day=31)], sessions)
    labels = stability_labels(Engine(sessions, 1), orders)
    assert [*labels] == ["side", "size", "window", "month", "instrument", "volatility"]
    assert {name: rows.tolist() for name, rows in labels["month"].items()} == {"2024-01": [True, True]}
    assert {name: rows.tolist() for name, rows in labels["instrument"].items()} == {"AAA": [True, True]}
    assert [rows.tolist() for rows in labels["volatility"].values()] == [[True, True]]  # the same on both days


def test_when_a_policy_traded_is_the_mean_place_of_its_fills() -> None:
    left = np.array([[1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 0.5, 0.5, 0.5, 0], [1, 0, 0, 0, 0]], dtype=float)
    one = PolicyResult("x", "checkpoint", order_table([0.0] * 4), inventory=left)
    # Means at 1/8, 7/8, 1/2 and, in a window of two steps, 1/4 of the window.
    found = traded_labels([one], np.array([4, 4, 4, 2]))
    assert {name: np.flatnonzero(rows).tolist() for name, rows in found.items()} == {
        "early": [0, 3],
        "in the middle": [2],
        "late": [1],
    }
    assert traded_labels([PolicyResult("x", "last", order_table([0.0]))], np.array([4])) == {}
    assert traded_labels([PolicyResult("x", "last", order_table([0.0]), inventory=left[:1])], np.array([4])) == {}


def test_a_drift_is_the_slope_of_a_regression() -> None:
    noise = np.random.default_rng(5).standard_normal((DAYS, len(NAMES)))
    drifting = 2.0 * np.arange(DAYS)[:, None] + noise
    day = np.repeat(np.arange(DAYS), len(NAMES))
    table = drift_table({"drifts": [result(drifting)], "stays": [result(noise)]}, **SETTINGS)
    assert table.columns.tolist() == list(DRIFT_COLUMNS)
    found = table.set_index("policy")
    assert found.loc["drifts", "slope"] == pytest.approx(np.polyfit(day, drifting.ravel(), 1)[0])
    assert found.loc["drifts", "p_adjusted"] <= 0.05 < found.loc["stays", "p_adjusted"]
    assert found.loc["drifts", "slope_lo"] < 2.0 < found.loc["drifts", "slope_hi"]
    assert found.loc["drifts", "first_half"] == pytest.approx(drifting[: DAYS // 2].mean())
    assert found.loc["drifts", "second_half"] == pytest.approx(drifting[DAYS // 2 :].mean())


def test_two_days_have_no_drift() -> None:
    one = PolicyResult("x", "checkpoint", order_table([1.0, 2.0, 3.0, 4.0], days=2))
    row = drift_table({"x": [one]}, **SETTINGS).iloc[0]
    assert math.isnan(row["slope"])
    assert math.isnan(row["p"])
    assert row["first_half"] == 2.0
    assert row["second_half"] == 3.0
