import io

import numpy as np
import pandas as pd
import pytest

from rlwb.evaluation import FIGURES, SUMMARY_COLUMNS, PolicyResult, figure_table
from tests.evaluation.tables import baseline, checkpoint, order_table, summarise

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
    row = summarise([baseline([10.0, -1.0], filled=[100.0, 10_000.0])]).iloc[0]
    assert row["pa_mean"] == pytest.approx(4.5)
    assert row["pa_value_weighted"] == pytest.approx(-9000 / 10_100)
    assert "each order counting the same" in SUMMARY_COLUMNS["pa_mean"]
    assert "weighted by value" in SUMMARY_COLUMNS["pa_value_weighted"]


def test_a_row_does_not_depend_on_the_other_rows():
    rng = np.random.default_rng(0)
    first, second = checkpoint(rng.normal(size=60), 1, days=10), checkpoint(rng.normal(size=60), 2, days=10)
    both, alone = summarise([first, second]), summarise([second])
    pd.testing.assert_series_equal(both.iloc[1], alone.iloc[0], check_names=False)


def test_nothing_and_too_little_stay_missing_and_survive_the_file():
    optional = order_table([]).drop(columns=["filled", "twap"])
    idle = [PolicyResult("idle", "baseline", optional)]
    frame = pd.concat([summarise(idle), summarise([checkpoint([np.nan])])])
    back = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert back["orders"].to_list() == [0, 1]
    assert back["pa_missing"].to_list() == [0, 1]
    assert back[["pa_mean", "pa_lo", "win_rate", "glr", "pa_value_weighted"]].isna().all(axis=None)
    assert frame["iteration"].isna().to_list() == [True, False]
    assert summarise([]).empty


def test_the_table_is_tidy():
    table = figure_table({"both": [checkpoint([1.0, 3.0], 1, days=2), checkpoint([3.0, 5.0], 2, days=2)]})
    assert table["figure"].tolist() == list(FIGURES)
    row = table[table["figure"] == "pa"].iloc[0]
    assert (row["policy"], row["n"], row["estimate"], row["validation_pa"]) == ("both", 2, 3.0, 2.0)
    assert row["std"] == pytest.approx(np.sqrt(2.0))
    assert table["iteration"].isna().all()


def test_every_figure_has_its_interval():
    rng = np.random.default_rng(3)
    result = checkpoint(rng.normal(1, 5, 200), days=20, pa_net=rng.normal(0, 5, 200), reward=rng.normal(0, 1, 200))
    table = figure_table({"twap": [baseline(rng.normal(0, 1, 200), days=20)], "ours": [result]}, resamples=200)
    ours = table[(table["policy"] == "ours") & (table["figure"] != "net_over_twap")]
    assert ((ours["lo"] <= ours["estimate"]) & (ours["estimate"] <= ours["hi"])).all()
    assert table[table["figure"] == "net_over_twap"]["estimate"].isna().all(), "this TWAP has no net PA"
