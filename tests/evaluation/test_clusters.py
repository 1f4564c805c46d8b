"""Intervals by day, by instrument and by both, against plain loops."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import t

from rlwb.evaluation import cluster_table, metric_table
from rlwb.evaluation.clusters import METHODS
from tests.evaluation.tables import baseline, checkpoint

DAYS, NAMES = 9, "ABCDEFGH"


def crossed(seed=0, pairs=1):
    """PAs of orders on every day and instrument, with a part of each; days alternate, so that none follows another."""
    rng = np.random.default_rng(seed)
    number = np.arange(DAYS * len(NAMES) * pairs)  # 9 and 8 have no common divisor: every pair of both comes once
    by_day, by_name = np.abs(rng.normal(0, 4, DAYS)) * (-1.0) ** np.arange(DAYS), rng.normal(0, 3, len(NAMES))
    return by_day[number % DAYS] + by_name[number % len(NAMES)] + rng.normal(0, 2, len(number))


def rows(*members):
    return cluster_table({"one": members}, resamples=400, seed=4).set_index("method")


def square(values, keys):
    """The variance of the mean where values with a key in common are one cluster of as many as there are keys."""
    names = set(keys)
    sums = [sum(v - np.mean(values) for v, k in zip(values, keys, strict=True) if k == name) for name in names]
    return len(names) / (len(names) - 1) * sum(one**2 for one in sums) / len(values) ** 2


def test_the_interval_by_both_is_that_of_a_plain_loop():
    pa = crossed()
    days, names = np.arange(len(pa)) % DAYS, np.arange(len(pa)) % len(NAMES)
    table = rows(checkpoint(pa, days=DAYS, instruments=NAMES))
    over = [square(pa, keys) for keys in (days.tolist(), names.tolist(), list(zip(days, names, strict=True)))]
    error = math.sqrt(over[0] + over[1] - over[2])
    freedom = (over[0] + over[1]) ** 2 / (over[0] ** 2 / (DAYS - 1) + over[1] ** 2 / (len(NAMES) - 1))
    far = t.ppf(0.975, freedom) * error
    both = table.loc["both"]
    assert [both["standard_error"], both["lo"], both["hi"]] == pytest.approx([error, pa.mean() - far, pa.mean() + far])
    alone = table.loc["order"]
    assert alone["standard_error"] == pytest.approx(pa.std(ddof=1) / math.sqrt(len(pa)))
    assert alone["hi"] - pa.mean() == pytest.approx(t.ppf(0.975, len(pa) - 1) * alone["standard_error"])
    assert table["clusters"].to_dict() == {"order": 72, "day": 9, "instrument": 8, "both": 8}
    assert list(table.index) == list(METHODS)
    assert table["estimate"].tolist() == pytest.approx([pa.mean()] * 4)


def test_that_by_day_is_the_interval_of_the_table_of_results():
    one = checkpoint(crossed(1), days=DAYS, instruments=NAMES)
    known = metric_table({"one": [one]}, resamples=400, seed=4).set_index("metric").loc["pa"]
    names = ["estimate", "lo", "hi", "standard_error"]
    assert rows(one).loc["day", names].tolist() == known[names].tolist()


def test_that_by_instrument_is_that_by_day_where_instruments_are_the_days():
    """Eight days that alternate, each with an instrument of its own: the clusters and the resamples are the same."""
    pa = np.tile([5.0, -4.0, 6.0, -5.0, 4.0, -6.0, 3.0, -3.0], 3)
    table = rows(checkpoint(pa, days=8, instruments=NAMES))
    names = ["estimate", "lo", "hi", "standard_error", "clusters"]
    assert table.loc["instrument", names].tolist() == pytest.approx(table.loc["day", names].tolist(), rel=1e-12)


def test_the_mean_of_policies_counts_and_orders_without_a_pa_are_left_out():
    pa = crossed(2)
    mean = checkpoint(pa, days=DAYS, instruments=NAMES)
    shifted = [checkpoint(pa + by, days=DAYS, instruments=NAMES) for by in (-1.0, 3.0)]
    for method, lo, hi in rows(*shifted)[["lo", "hi"]].itertuples():
        assert [lo - 1.0, hi - 1.0] == pytest.approx(rows(mean).loc[method, ["lo", "hi"]].tolist())
    lacking = checkpoint([*pa, math.nan, math.nan], days=DAYS, instruments=NAMES)
    whole = checkpoint([*pa, pa[0], pa[1]], days=DAYS, instruments=NAMES)
    assert rows(lacking)["clusters"].to_dict() == {"order": 72, "day": 9, "instrument": 8, "both": 8}
    assert rows(lacking).loc["both", "lo"] == pytest.approx(rows(mean).loc["both", "lo"])
    assert rows(lacking).loc["both", "lo"] != rows(whole).loc["both", "lo"]


def test_few_instruments_have_no_interval():
    table = rows(baseline(np.arange(45.0) % 7, days=9, instruments="ABCDE"))
    assert np.isfinite(table.loc[["order", "day"], "lo"]).all()
    assert table.loc[["instrument", "both"], ["lo", "hi"]].isna().all(axis=None)


@pytest.mark.parametrize("pa", [[math.nan] * 4, [1.0, *[math.nan] * 3]])
def test_of_no_pa_or_one_there_is_no_interval(pa):
    table = rows(baseline(pa, days=2, instruments="AB"))
    assert table[["lo", "hi", "standard_error"]].isna().all(axis=None)


def test_policies_that_differ_on_instruments_alone_vary_by_instrument():
    pa = np.array([float(day % 2 == 0) + 10.0 * (name % 2) for day, name in product(range(12), range(8))])
    orders = {"date": np.repeat(np.datetime64("2024-01-02") + np.arange(12), 8), "instrument": list(NAMES) * 12}
    table = rows(checkpoint(pa, **orders))
    width = table["hi"] - table["lo"]
    assert width["instrument"] > 5 * width["day"]
    assert width["both"] >= width["instrument"] - 1.0
