import io
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rlwb.evaluation import COLUMNS, METRICS, SUMMARY_COLUMNS, PolicyResult, metric_table, metric_values, summary
from rlwb.evaluation.metrics import wide
from rlwb.evaluation.results import ZERO_BP, mean, standard_deviation
from tests.evaluation.tables import attainable, baseline, checkpoint, order_table, summarise

PAS = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e4, 1e4) | st.just(math.nan))
PROMISED = ["policy", "kind", "iteration", "validation_pa", "pa_mean", "pa_std", "pa_lo", "pa_hi"]
PROMISED += ["win_rate", "glr", "ffr", "orders", "days"]


def test_the_promised_columns_come_first_and_in_order():
    frame = summarise([checkpoint([1.0, 2.0], days=2)])
    assert list(frame)[: len(PROMISED)] == PROMISED
    assert list(frame) == list(SUMMARY_COLUMNS)


def test_hand_computed_row():
    result = checkpoint(
        [4.0, -2.0, np.nan, 1.0], 12, 3.5, days=2, ffr=[1.0, 1.0, 0.0, 0.5], pa_net=[3.0, -3.0, np.nan, 0.0]
    )
    row = summarise([result], level=0.5).iloc[0]
    assert (row["policy"], row["kind"], row["iteration"], row["validation_pa"]) == (
        "checkpoint-0012",
        "checkpoint",
        12,
        3.5,
    )
    assert row["pa_mean"] == pytest.approx(1.0)
    assert row["pa_std"] == pytest.approx(3.0)
    assert row["win_rate"] == pytest.approx(2 / 3)
    assert row["glr"] == pytest.approx(2.5 / 2)
    assert row["ffr"] == pytest.approx(2.5 / 4)
    assert (row["orders"], row["days"], row["pa_missing"]) == (4, 2, 1)
    assert row["pa_net"] == pytest.approx(0.0)
    assert row["pa_lo"] <= row["pa_mean"] <= row["pa_hi"]


def test_f05_both_means_are_labelled():
    row = summarise([baseline([10.0, -1.0], valued=[100.0, 10_000.0])]).iloc[0]
    assert row["pa_mean"] == pytest.approx(4.5)
    assert row["pa_value_weighted"] == pytest.approx(-9000 / 10_100)
    assert "each order counting the same" in METRICS["pa"].meaning
    assert "weighted by value" in METRICS["pa_value_weighted"].meaning


def test_a_row_does_not_depend_on_the_other_rows():
    rng = np.random.default_rng(0)
    first, second = checkpoint(rng.normal(size=60), 1, days=10), checkpoint(rng.normal(size=60), 2, days=10)
    both, alone = summarise([first, second]), summarise([second])
    pd.testing.assert_series_equal(both.iloc[1], alone.iloc[0], check_names=False)


def test_nothing_and_too_little_stay_missing_and_survive_the_file():
    optional = order_table([]).drop(columns=["valued", "benchmark"])
    idle = [PolicyResult("idle", "baseline", optional)]
    frame = pd.concat([summarise(idle), summarise([checkpoint([np.nan])])])
    back = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert back["orders"].to_list() == [0, 1]
    assert back["pa_missing"].to_list() == [0, 1]
    assert back[["pa_mean", "pa_lo", "win_rate", "glr", "pa_value_weighted"]].isna().all(axis=None)
    assert frame["iteration"].isna().to_list() == [True, False]


def test_the_table_is_tidy():
    table = metric_table({"both": [checkpoint([1.0, 3.0], 1, days=2), checkpoint([3.0, 5.0], 2, days=2)]})
    assert table["metric"].tolist() == list(METRICS)
    row = table[table["metric"] == "pa"].iloc[0]
    assert (row["policy"], row["n"], row["estimate"], row["validation_pa"]) == ("both", 2, 3.0, 2.0)
    assert row["std_checkpoints"] == pytest.approx(np.sqrt(2.0))
    assert table["iteration"].isna().all()


def test_every_metric_has_its_interval():
    rng = np.random.default_rng(3)
    result = checkpoint(
        rng.normal(1, 5, 200),
        days=20,
        pa_net=rng.normal(0, 5, 200),
        reward=rng.normal(0, 1, 200),
        objective=rng.normal(0, 1, 200),
        amount=100.0,
        pa_unfilled=rng.normal(0, 1, 200),
    )
    twap, most = baseline(rng.normal(0, 1, 200), days=20), attainable(rng.normal(4, 5, 200), days=20)
    table = metric_table({"twap": [twap], "ours": [result], "most": [most]}, resamples=200)
    ours = table[(table["policy"] == "ours") & ~table["metric"].isin(["net_over_twap", "worst_day"])]
    assert ((ours["lo"] <= ours["estimate"]) & (ours["estimate"] <= ours["hi"])).all()
    assert table[table["metric"] == "net_over_twap"]["estimate"].isna().all(), "this TWAP has no net PA"


def values(pa, **columns):
    return metric_values(checkpoint(pa, **columns))


def test_hand_computed_values():
    pa = np.array([4.0, -1.0, np.nan, 2.0, -3.0, 0.0])
    found = values(pa)
    assert found["pa"] == mean(pa) == pytest.approx(2 / 5)
    assert found["win_rate"] == pytest.approx(2 / 5)
    assert found["glr"] == pytest.approx(3 / 2)
    # deviations 3.6, -1.4, 1.6, -3.4, -0.4: squares sum to 29.2
    assert standard_deviation(pa) == pytest.approx(math.sqrt(29.2 / 4))


def test_a05_missing_pa_is_left_out_never_zero():
    assert values([10.0, np.nan])["pa"] == 10.0
    assert values([10.0, np.nan, np.inf])["win_rate"] == 1.0
    assert summarise([checkpoint([10.0, np.nan, np.inf])])["pa_missing"].tolist() == [2]


def test_rounding_around_zero_is_neither_gain_nor_loss():
    twap = values([1e-13, -2e-13, 0.0])
    assert twap["win_rate"] == 0.0
    assert math.isnan(twap["glr"])


@pytest.mark.parametrize("pa", [[], [np.nan]])
def test_what_cannot_be_computed_is_missing(pa):
    assert all(math.isnan(value) for name, value in values(pa).items() if name not in ("ffr", "untraded"))
    assert math.isnan(mean(np.array(pa)))
    assert math.isnan(standard_deviation(np.array(pa)))
    assert math.isnan(standard_deviation(np.array([1.0, *pa])))
    assert math.isnan(values([1.0, 2.0])["glr"]), "without a loss"


def test_value_weighted_mean_leaves_out_what_is_missing_on_either_side():
    found = values([1.0, np.nan, 5.0, 7.0], valued=[2.0, 9.0, np.nan, 0.0])
    assert found["pa_value_weighted"] == 1.0
    assert math.isnan(values([1.0], valued=[0.0])["pa_value_weighted"])


def test_over_twap_is_taken_order_by_order():
    even = baseline([0.0, np.nan, 3.0, 1.0])
    even.orders.sort_index(ascending=False, inplace=True)
    assert metric_values(checkpoint([4.0, 9.0, np.nan, 3.0]), even)["over_twap"] == pytest.approx((4.0 + 2.0) / 2)


def test_net_over_twap_is_the_difference_of_the_net_pas_order_by_order():
    even = baseline([0.0, 0.0], pa_net=[-1.0, -2.0])
    assert metric_values(checkpoint([4.0, 9.0], pa_net=[3.0, 5.0]), even)["net_over_twap"] == pytest.approx(5.5)


@given(pa=PAS, extra=st.integers(0, 5))
def test_missing_values_change_nothing(pa, extra):
    padded = np.concatenate([pa, np.full(extra, np.nan)])
    assert values(padded) == pytest.approx(values(pa), nan_ok=True)
    for measure in (mean, standard_deviation):
        assert measure(padded) == pytest.approx(measure(pa), nan_ok=True)


@given(pa=PAS)
def test_turning_the_sign_inverts_the_gain_loss_ratio(pa):
    product = values(pa)["glr"] * values(-pa)["glr"]
    assert product == pytest.approx(1.0) or math.isnan(values(pa)["glr"])


@given(pa=PAS, value=st.floats(1e-3, 1e6))
def test_equal_values_give_the_plain_mean(pa, value):
    found = values(pa, valued=value)
    assert found["pa_value_weighted"] == pytest.approx(found["pa"], rel=1e-9, abs=1e-9, nan_ok=True)


def test_a_pa_of_the_zero_limit_is_neither_gain_nor_loss():
    found = values([ZERO_BP, -ZERO_BP, 2.0, -4.0])
    assert found["win_rate"] == 1 / 4
    assert found["glr"] == 2.0 / 4.0


def test_shares_are_marked_as_such():
    assert [name for name, metric in METRICS.items() if metric.is_share] == [
        *("attained", "win_rate", "ffr", "untraded", "unfilled")
    ]


def test_a_day_whose_orders_have_no_value_is_no_day_of_the_value_weighted_mean():
    one = checkpoint([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], days=6, valued=[1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    table = metric_table(groups={"one": [one]}, resamples=100).set_index("metric")
    assert np.isfinite(table.loc["pa", "lo"])
    assert np.isnan(table.loc["pa_value_weighted", "lo"]), "five days are too few for 95 %"


def test_k27_what_is_within_rounding_of_zero_is_zero_and_no_more() -> None:
    rounding = metric_table({"twap": [baseline([-1.56e-13, 1e-13] * 10, days=20)]}, resamples=100).set_index("metric")
    assert rounding.loc["pa", ["estimate", "lo", "hi"]].tolist() == [0.0, 0.0, 0.0]
    small = metric_table({"twap": [baseline([1e-6, 1e-6], days=2)]}, resamples=100).set_index("metric")
    assert small.loc["pa", "estimate"] == pytest.approx(1e-6)


def test_k27_every_column_of_a_table_of_policies_has_a_unit_and_a_meaning() -> None:
    table = metric_table({"both": [checkpoint([1.0, 3.0], 1, days=2), checkpoint([3.0, 5.0], 2, days=2)]})
    for frame in (table, wide(table), summary(table)):
        assert not set(frame) - set(COLUMNS)
    assert COLUMNS["win_rate"].unit == COLUMNS["ffr_lo"].unit == "share"
    assert COLUMNS["pa_mean"].unit == COLUMNS["pa_net_hi"].unit == "bp"
    assert all(one.meaning for one in COLUMNS.values())
    assert wide(table).loc[0, "pa_std_checkpoints"] == pytest.approx(np.sqrt(2.0)), "over checkpoints"
    alone = wide(metric_table({"one": [checkpoint([1.0, 3.0], days=2)]}))
    assert alone.loc[0, "pa_std"] == pytest.approx(np.sqrt(2.0)), "over orders"
