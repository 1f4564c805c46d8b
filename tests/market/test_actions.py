"""Suspected splits: what is told, what is not, and that nothing is adjusted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.market import Calendar, build_sessions, load_sessions
from rlwb.market.actions import COLUMNS, RATIOS, describe_splits, suspected_splits
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from tests.market.helpers import day_bars

CLOCK = Calendar(segments=(("10:00", "10:10"),), infer_early_close_minutes=0)
DATES = pd.bdate_range("2024-01-08", periods=8).strftime("%Y-%m-%d").tolist()


def market(price: list[float], volume: list[float], instrument: str = "A") -> pd.DataFrame:
    """Return one instrument's days, each at one price and one volume a tick."""
    days = zip(DATES, price, volume, strict=False)
    return pd.concat([day_bars(CLOCK, date, instrument, close=p, volume=v) for date, p, v in days])


def splits(*frames: pd.DataFrame) -> pd.DataFrame:
    return suspected_splits(build_sessions(pd.concat(frames), CLOCK))


def test_a_split_of_two_for_one_by_hand() -> None:
    found = splits(market([100, 101, 50, 51], [1000, 1200, 2100, 2000]), market([9, 9, 9, 9], [5, 5, 5, 5], "B"))
    assert tuple(found.columns) == COLUMNS
    (row,) = found.itertuples(index=False)
    assert (row.instrument, row.split, row.ratio) == ("A", "2:1", 2.0)
    assert (row.date, row.previous_date) == (pd.Timestamp("2024-01-10"), pd.Timestamp("2024-01-09"))
    assert (row.close_before, row.open_after) == (101.0, 50.0)
    assert row.volume_ratio == 2100 / 1100  # over the median of the two days before


@pytest.mark.parametrize(
    ("after", "volume", "split"),
    [
        (100.0, 1000.0, None),  # nothing happens
        (50.0, 1000.0, None),  # halves, but no more shares change hands than usual
        (50.0, 30_000.0, None),  # halves on news: turnover 15 times the usual
        (50.0, 0.0, None),  # nothing trades
        (52.5, 2000.0, None),  # 5 % from 2:1
        (51.5, 2000.0, "2:1"),
        (1000.0, 100.0, "1:10"),
        (1000.0, 1000.0, None),
        (66.0, 1600.0, "3:2"),
        (14.2, 6500.0, "7:1"),
        (80.0, 1300.0, "5:4"),
        (90.0, 1100.0, None),  # a tenth is a move like others
    ],
)
def test_price_and_volume_must_agree(after: float, volume: float, split: str | None) -> None:
    found = splits(market([100, 100, 100, after], [1000, 1000, 1000, volume]))
    assert found["split"].tolist() == ([] if split is None else [split])


def test_one_busy_day_before_does_not_hide_a_split() -> None:
    found = splits(market([100, 100, 100, 100, 50], [1000, 1000, 1000, 6000, 2000]))
    assert found["volume_ratio"].tolist() == [2.0]


def test_an_instruments_first_session_is_compared_with_nothing() -> None:
    assert splits(market([100], [1000]), market([50], [2000], "B")).empty


def test_every_ratio_is_found_under_its_own_name() -> None:
    for new, old in RATIOS:
        found = splits(market([100, 100, 100 * old / new], [1000, 1000, 1000 * new / old]))
        assert found["split"].tolist() == [f"{new}:{old}"]


def test_the_report_names_each_split_and_the_panel_holds_the_bars_as_they_are() -> None:
    bars = pd.concat([market([100, 100, 50], [10, 10, 20], name) for name in ("A", "B")])
    sessions = build_sessions(bars, CLOCK)
    assert sessions.report.counts["split_suspected"] == 2
    assert [one.instrument for one in sessions.report.listed["split_suspected"]] == ["A", "B"]
    for name in "AB":
        assert f"{name} 2024-01-10 10:00:00: like 2:1, 100 to 50" in sessions.report.as_text()
    assert not sessions.report.problems()
    np.testing.assert_array_equal(sessions.fields["close"][:, 0], [100, 100, 50, 100, 100, 50])


def test_words_say_what_to_do() -> None:
    table = splits(market([100, 100, 50], [10, 10, 20]))
    text = describe_splits(table)
    assert text.startswith(
        "A 2024-01-10: like a split 2:1, the price goes from 100 to 50 and the volume a tick times 2"
    )
    assert "column factor" in text
    assert describe_splits(table.head(0)) == "no split is suspected"


def test_the_embedded_market_has_none() -> None:
    assert suspected_splits(synthetic_sessions(SyntheticSettings(instruments=4, days=60))).empty


DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"real market data are not at {DATA}")
def test_the_split_of_apple_in_2014_is_found_in_its_unadjusted_bars() -> None:
    bars = DATA / "us_equity_1min_quotes" / "bars.parquet"
    found = suspected_splits(load_sessions(bars, Calendar.preset("us")))
    (row,) = found.itertuples(index=False)
    assert (row.instrument, str(row.date.date()), row.split) == ("AAPL", "2014-06-09", "7:1")
