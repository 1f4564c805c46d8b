import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.evaluation import comparison, day_interval
from rlwb.evaluation.bootstrap import statistic_interval
from rlwb.execution import ExecutionRules
from tests.evaluation.tables import baseline, checkpoint, slow_interval


def gain_loss_ratio(pa):
    return pa[pa > 0].mean() / -pa[pa < 0].mean()


def test_hand_computed_row():
    method = checkpoint([4.0, -2.0, np.nan, 1.0], days=2, ffr=[1.0, 1.0, 0.0, 0.5], reward=[3.0, -3.0, 0.0, 2.0])
    even = baseline([1.0, 0.0, 0.0, 0.0], days=2)
    row = comparison({"ours": method, "TWAP": even}, resamples=200).frame.iloc[0]
    assert (row["policy"], row["kind"], row["orders"], row["days"]) == ("ours", "checkpoint", 4, 2)
    assert row["pa_mean"] == pytest.approx(1.0)
    assert row["over_twap"] == pytest.approx((3.0 - 2.0 + 1.0) / 3)
    assert row["glr"] == pytest.approx(2.5 / 2)
    assert row["win_rate"] == pytest.approx(2 / 3)
    assert row["ffr"] == pytest.approx(2.5 / 4)
    assert row["reward"] == pytest.approx(0.5)
    assert math.isnan(row["pa_net"])


def test_the_interval_of_a_mean_is_that_of_the_day_bootstrap():
    rng = np.random.default_rng(1)
    pa = rng.normal(2, 10, 200)
    pa[::17] = np.nan
    method = checkpoint(pa, days=20)
    row = comparison({"ours": method}, level=0.9, resamples=500, seed=5).frame.iloc[0]
    known = day_interval(method.pa, method.dates, np.random.default_rng(5), level=0.9, resamples=500)
    assert (row["pa_mean"], row["pa_lo"], row["pa_hi"]) == pytest.approx(
        (known.estimate, known.lo, known.hi), rel=1e-12
    )


def test_the_interval_of_a_ratio_equals_that_of_drawn_orders():
    """Days drawn one by one, their orders strung together, the ratio taken of them: the specification."""
    pa, day = np.random.default_rng(2).normal(1, 10, 120), np.arange(120) % 12
    row = comparison({"ours": checkpoint(pa, days=12)}, resamples=400, seed=3).frame.iloc[0]
    lo, hi, _ = slow_interval(gain_loss_ratio, [(pa, day)], 3, 400)
    assert (row["glr"], row["glr_lo"], row["glr_hi"]) == pytest.approx((gain_loss_ratio(pa), max(lo, 0.0), hi))


def test_what_cannot_be_computed_is_missing_and_shown_as_such():
    made = comparison({"always wins": checkpoint([1.0, 2.0, 3.0, 4.0], days=2)}, resamples=100, level=0.5)
    row = made.frame.iloc[0]
    assert np.isnan([row["glr"], row["glr_lo"], row["glr_hi"]]).all()
    text = made.to_markdown()
    assert "gain/loss" not in text, "a column without any figure"
    assert "| always wins | 2.50 [" in text
    assert "100.0 % [100.0, 100.0]" in text


def test_one_day_gives_figures_without_intervals():
    found = statistic_interval(
        [np.array([[1.0], [2.0]])], [np.array(["2024-01-02"] * 2)], np.random.default_rng(0), lambda sums: sums[:, 0]
    )
    assert found.estimate == 3.0
    assert np.isnan([found.lo, found.hi]).all()
    assert "[" not in comparison({"a": checkpoint([1.0, -2.0])}, resamples=100).to_markdown().splitlines()[2]


def test_too_few_days_are_explained_below_the_table():
    text = comparison({"a": checkpoint([1.0, -2.0, 3.0], days=3)}, resamples=100).to_markdown()
    assert "[" not in text
    assert "- Intervals of 95 % take at least 6 days of orders; there are 3, and even the span from the worst" in text
    assert "holds the true mean in 75 % of cases only." in text


def test_over_twap_shows_only_where_it_says_more_than_pa():
    method, even, off = checkpoint([1.0, 2.0], days=2), baseline([0.0, 0.0], days=2), baseline([0.5, 0.5], days=2)
    assert "over TWAP" not in comparison({"ours": method, "TWAP": even}, resamples=100).to_markdown()
    text = comparison({"ours": method, "TWAP": off}, resamples=100, level=0.5).to_markdown()
    assert "over TWAP" in text
    assert "| TWAP | 0.50 [0.50, 0.50] | 0.00 [0.00, 0.00] |" in text


@pytest.mark.parametrize(("benchmark", "is_risk"), [("arrival", True), ("vwap", False), ("close", False)])
def test_only_deviations_against_arrival_are_called_risk_that_a_gain_is_bought_with(
    benchmark: str, is_risk: bool
) -> None:
    methods = {"ours": checkpoint([1.0, 2.0], days=2), "TWAP": baseline([0.5, 0.25], days=2)}
    rules = ExecutionRules(benchmark=benchmark)  # type: ignore[arg-type]
    notes = " ".join(comparison(methods, resamples=100, rules=rules).notes)
    assert ("bought with risk" in notes) == is_risk
    assert "std over TWAP is" in notes
    assert is_risk or f"against {rules.benchmark_title}" in notes


def test_methods_must_have_traded_the_same_orders():
    with pytest.raises(DataError, match="did not trade the same orders"):
        comparison({"a": checkpoint([1.0]), "b": checkpoint([1.0, 2.0])})


def test_k25_a_learner_that_trades_by_a_fixed_schedule_is_named_with_its_penalty() -> None:
    """It sells all at once; each gain has its loss, so the PA alone reads like TWAP's."""
    pa, left = [5.0, -5.0, 3.0, -3.0], np.tile([1.0, 0.0, 0.0], (4, 1))
    hasty = replace(checkpoint(pa, days=2, **{"reward/penalty": [-20.0] * 4}), inventory=left)
    notes = " ".join(comparison({"mine": hasty, "twap": baseline([0.0] * 4, days=2)}, titles={"mine": "Mine"}).notes)
    assert "fixed schedule (Mine)" in notes
    assert "100 % of an order" in notes
    assert "-20.00 an order" in notes
    late = replace(hasty, inventory=np.tile([1.0, 1.0, 0.0], (4, 1)))
    assert "trade 0 %, 100 % of an order" in " ".join(comparison({"mine": late}).notes)
    assert "TWAP" not in notes.split("fixed schedule")[1].split(".")[0], "a baseline is known to be one"

    even = replace(hasty, inventory=np.tile([1.0, 0.5, 0.0], (4, 1)))
    assert "50 %, 50 % of an order" in " ".join(comparison({"mine": even}).notes)
    looks = replace(hasty, inventory=np.array([[1.0, 0.0, 0.0], [1.0, 0.5, 0.0]] * 2))
    assert "fixed schedule" not in " ".join(comparison({"mine": looks}).notes)
    # An order of a shorter window has fewer steps, and the rest of its row is its last value.
    mixed = replace(
        checkpoint(pa, days=2, num_steps=[2, 2, 1, 2]),
        inventory=np.array([[1.0, 0.5, 0.0], [1.0, 0.5, 0.0], [1.0, 0.0, 0.0], [1.0, 0.5, 0.0]]),
    )
    assert "fixed schedule (mine)" in " ".join(comparison({"mine": mixed}).notes)
    # One of the same window that is done sooner shows that the policy does look.
    opened, closed = pd.to_datetime(["2024-01-02 09:30", "2024-01-02 15:00"])
    shorter = [opened, opened, pd.Timestamp("2024-01-02 14:00"), opened]
    for start, fixed in ((shorter, True), ([opened] * 4, False)):
        known = replace(mixed, orders=mixed.orders.assign(start=start, end=closed))
        assert ("fixed schedule (mine)" in " ".join(comparison({"mine": known}).notes)) == fixed
