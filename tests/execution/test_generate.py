"""Order generation and splits, cases D among them."""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import OrderSettings, SplitSettings, align_orders, generate_orders, split_orders
from rlwb.execution.generate import OWN_VOLUME
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions
from rlwb.seeds import Stream, normal
from tests.execution.markets import sessions_of

OWN = OrderSettings(volume_days=0)
UNSIZED = "{} sessions have none before them with volume in the window, which sizes an order: no order"


@pytest.fixture(scope="module")
def sessions() -> Sessions:
    return synthetic_sessions(SyntheticSettings(instruments=3, days=20))


def test_amounts_follow_the_recipe() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=20, days=60))
    table = generate_orders(sessions, OWN)
    rows = sessions.rows(table["instrument"], table["date"])
    ratio = np.log(table["amount"] / np.nanmean(sessions.fields["volume"][rows], axis=1))
    assert len(ratio) == 2400
    # Three standard errors of the mean and of the deviation.
    assert ratio.mean() == pytest.approx(-3.28, abs=3 * 1.14 / np.sqrt(2400))
    assert ratio.std() == pytest.approx(1.14, abs=3 * 1.14 / np.sqrt(2 * 2400))


def test_the_amount_is_proportional_to_the_volume_of_the_window() -> None:
    volume = [[100.0, 100.0, 900.0, 900.0]]
    early = OrderSettings(log_std=0.0, log_mean=0.0, end_time="09:32", volume_days=0)
    late = OrderSettings(log_std=0.0, log_mean=0.0, start_time="09:32", volume_days=0)
    sessions = sessions_of([[10.0] * 4], volume)
    assert generate_orders(sessions, early)["amount"].tolist() == [100.0, 100.0]
    assert generate_orders(sessions, late)["amount"].tolist() == [900.0, 900.0]
    assert align_orders(generate_orders(sessions, late), sessions).start.tolist() == [2, 2]


def test_an_amount_is_made_of_seed_instrument_date_and_side_alone() -> None:
    sessions = sessions_of([[10.0] * 4] * 2, [[100.0, 200.0, 300.0, 400.0], [np.nan, 10.0, np.inf, 30.0]])
    table = generate_orders(sessions, OrderSettings(log_mean=-1.0, log_std=0.5, volume_days=0), seed=7)
    drawn = normal((7, Stream.ORDER), zlib.crc32(b"AAA"), [19723, 19723, 19724, 19724], [1, 0, 1, 0])
    np.testing.assert_allclose(table["amount"], np.exp(-1.0 + 0.5 * drawn) * [250.0, 250.0, 20.0, 20.0], rtol=1e-14)
    assert table["order_id"].tolist() == [f"AAA-2024010{day}-{side}" for day in (1, 2) for side in "BS"]
    assert table["direction"].tolist() == ["BUY", "SELL"] * 2


def test_reordered_instruments_change_no_order() -> None:
    prices = [[10.0] * 4] * 2
    one, two = (
        generate_orders(sessions_of(prices, [[5.0] * 4, [9.0] * 4], instruments=names), OWN, seed=3).set_index(
            "order_id"
        )
        for names in (["AAA", "BBB"], ["BBB", "CCC"])
    )
    np.testing.assert_allclose(one.loc["BBB-20240101-B", "amount"] / 9.0, two.loc["BBB-20240101-B", "amount"] / 5.0)


def test_d03_same_seed_same_orders(sessions: Sessions) -> None:
    table = generate_orders(sessions, seed=5)
    pd.testing.assert_frame_equal(generate_orders(sessions, seed=5), table)
    assert not np.allclose(generate_orders(sessions, seed=6)["amount"], table["amount"])
    more = synthetic_sessions(SyntheticSettings(instruments=4, days=20))
    added = generate_orders(more, seed=5)
    old = added[added["instrument"].isin(set(sessions.instruments))].reset_index(drop=True)
    pd.testing.assert_frame_equal(old, table)
    sells = generate_orders(sessions, OrderSettings(directions=("SELL",)), seed=5)
    expected = table[table["direction"] == "SELL"].reset_index(drop=True)
    pd.testing.assert_frame_equal(sells, expected)


def test_d05_fewer_instruments_than_asked_for(sessions: Sessions) -> None:
    table = generate_orders(sessions, OrderSettings(instruments=100))
    assert table["instrument"].nunique() == 3
    assert table.attrs["notes"] == ["100 instruments were asked for, the data have 3", UNSIZED.format(3)]
    assert generate_orders(sessions, OrderSettings(instruments=1))["instrument"].unique().tolist() == ["SYN001"]
    with pytest.raises(ConfigError, match="ask for at least 1"):
        OrderSettings(instruments=0)


def test_sessions_without_volume_are_counted() -> None:
    table = generate_orders(sessions_of([[10.0] * 4] * 3, [[0.0] * 4, [5.0] * 4, [5.0] * 4]))
    assert table["date"].nunique() == 1
    assert table.attrs["notes"] == ["1 sessions have no volume in the window and got no order", UNSIZED.format(1)]
    with pytest.raises(OrderError, match="no order could be made"):
        generate_orders(sessions_of([[10.0] * 4], 0.0))


def test_splits_are_disjoint_by_date_and_in_order(sessions: Sessions) -> None:
    parts = split_orders(generate_orders(sessions))
    dates = [set(parts[name]["date"]) for name in ("train", "valid", "test")]
    assert [len(part) for part in dates] == [11, 4, 4]  # the first of the 20 days has none before it
    assert max(dates[0]) < min(dates[1])
    assert max(dates[1]) < min(dates[2])
    assert sum(len(parts[name]) for name in ("train", "valid", "test")) == len(parts["all"])


def test_splits_by_dates(sessions: Sessions) -> None:
    days = sorted(set(sessions.dates.astype(str).tolist()))
    settings = SplitSettings((days[1], days[5]), (days[6], days[7]), (days[10], days[19]))
    parts = split_orders(generate_orders(sessions), settings)
    assert [parts[name]["date"].nunique() for name in ("train", "valid", "test", "all")] == [5, 2, 10, 17]


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (SplitSettings(0.99, 0.001, 0.009), OrderError, "valid 0"),
        (SplitSettings(0.01, 0.5, 0.49), OrderError, "train 0, valid 60, test 54.*19 dates from 2023-01-04"),
        (SplitSettings(0.9, 0.2, 0.2), ConfigError, "sum to at most 1"),
        (SplitSettings(0.9, 0.1, 0.0), ConfigError, "above 0"),
        (
            SplitSettings(("2023-01-03", "2023-01-09"), ("2023-01-09", "2023-01-10"), ("2023-01-11", "2023-01-12")),
            ConfigError,
            "after",
        ),
        (SplitSettings(0.5, ("2023-01-09", "2023-01-10"), 0.2), ConfigError, "train=0.5 is not a pair of dates"),
    ],
)
def test_d01_empty_or_impossible_parts(sessions: Sessions, settings: SplitSettings, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        split_orders(generate_orders(sessions), settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"directions": ("BUY", "HOLD")},
        {"log_mean": float("nan")},
        {"log_mean": 1000.0},
        {"log_std": float("inf")},
        {"log_std": -1.0},
        {"instruments": 1.5},
        {"volume_days": -1},
        {"volume_days": 1.5},
        {"volume_days": True},
    ],
)
def test_impossible_recipes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        OrderSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [-1, 1.5, None, "a", True])
def test_a_seed_is_a_whole_number(sessions: Sessions, seed: object) -> None:
    with pytest.raises(ConfigError, match="the seed is"):
        generate_orders(sessions, seed=seed)  # type: ignore[arg-type]


def test_one_side_may_be_given_without_a_tuple(sessions: Sessions) -> None:
    table = generate_orders(sessions, OrderSettings(directions="BUY"))  # type: ignore[arg-type]
    assert set(table["direction"]) == {"BUY"}


def test_orders_between_the_parts_are_counted() -> None:
    table = generate_orders(sessions_of([[10.0] * 4] * 9), OWN)
    spans = (("2024-01-01", "2024-01-02"), ("2024-01-04", "2024-01-05"), ("2024-01-07", "2024-01-08"))
    union = split_orders(table, SplitSettings(*spans))["all"]
    assert len(union) == 12
    assert union.attrs["notes"] == ["6 orders lie outside train, valid and test, the first on 2024-01-03"]


@pytest.mark.parametrize("train", [(1, 2), ("01/02/2024", "02/02/2024"), (None, None), ("2024-01-01",)])
def test_a_part_that_is_no_pair_of_dates_is_refused(train: object) -> None:
    table = generate_orders(sessions_of([[10.0] * 4] * 9), OWN)
    spans = (train, ("2024-01-04", "2024-01-05"), ("2024-01-07", "2024-01-08"))
    with pytest.raises(ConfigError, match="is not a pair of dates"):
        split_orders(table, SplitSettings(*spans))  # type: ignore[arg-type]


def test_with_lots_amounts_are_whole_lots_and_at_least_one() -> None:
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=4))
    free, lots = generate_orders(sessions, OWN), generate_orders(sessions, OWN, lot_size=20_000.0)
    expected = np.maximum(np.floor(free["amount"] / 20_000.0 + 0.5), 1.0) * 20_000.0
    assert lots["amount"].tolist() == expected.tolist()
    small = int((free["amount"] < 10_000.0).sum())
    assert small
    assert lots.attrs["notes"][1:] == [f"{small} amounts below half a lot of 20000 were raised to one lot"]


def plain(volume_days: int, **changes: object) -> OrderSettings:
    """A recipe whose amount is the mean tick volume itself."""
    return OrderSettings(log_mean=0.0, log_std=0.0, directions=("BUY",), volume_days=volume_days, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("days", "amounts"),
    [
        (0, [100.0, 300.0, 500.0, 700.0]),
        (1, [100.0, 300.0, 500.0]),
        (2, [100.0, 200.0, 400.0]),
        (3, [100.0, 200.0, 300.0]),
        (20, [100.0, 200.0, 300.0]),
    ],
)
def test_j11_an_amount_is_of_the_mean_tick_volume_of_the_sessions_before(days: int, amounts: list[float]) -> None:
    volume = [[50.0, 150.0], [300.0, 300.0], [1000.0, 0.0], [600.0, 800.0]]
    table = generate_orders(sessions_of([[10.0] * 2] * 4, volume), plain(days))
    assert table["amount"].tolist() == amounts
    assert (OWN_VOLUME in table.attrs["notes"]) == (days == 0)
    assert (UNSIZED.format(1) in table.attrs["notes"]) == (days > 0)


def test_j11_a_day_without_volume_in_the_window_sizes_nothing_and_the_one_before_it_does() -> None:
    # Day 2 is suspended, day 3 trades before the window alone, day 4 states no volume; day 5 is sized by day 1.
    volume = [[9.0, 40.0], [0.0, 0.0], [70.0, 0.0], [np.nan, np.nan], [9.0, 80.0]]
    table = generate_orders(sessions_of([[10.0] * 2] * 5, volume), plain(1, start_time="09:31"))
    assert table["date"].tolist() == [pd.Timestamp("2024-01-05")]
    assert table["amount"].tolist() == [40.0]


def test_j11_earlier_volume_counts_in_shares_of_the_orders_own_session() -> None:
    """One share becomes two: before day 3 an adjusted price is 1 and after it 2 times the price of a share."""
    made = sessions_of([[10.0] * 2, [10.0] * 2, [5.0] * 2], [[100.0] * 2, [200.0] * 2, [1.0] * 2])
    split = dataclasses.replace(made, factor=np.array([1.0, 1.0, 2.0]))
    assert generate_orders(made, plain(2))["amount"].tolist() == [100.0, 150.0]
    assert generate_orders(split, plain(2))["amount"].tolist() == [100.0, 300.0]


def test_j11_nothing_of_an_orders_own_day_or_later_moves_its_amount() -> None:
    made = synthetic_sessions(SyntheticSettings(instruments=3, days=8))
    day = np.unique(made.dates)[5]
    rng = np.random.default_rng(1)
    fields = {
        name: np.where((made.dates >= day)[:, None], values * rng.uniform(0.5, 20.0, values.shape), values)
        for name, values in made.fields.items()
    }
    other = Sessions(made.calendar, made.instruments, made.dates, made.num_ticks, fields, halted=made.halted)
    kept = {
        days: [generate_orders(each, OrderSettings(volume_days=days)) for each in (made, other)] for days in (0, 1, 5)
    }
    until = {days: [table[table["date"] <= day] for table in pair] for days, pair in kept.items()}
    for days in (1, 5):
        pd.testing.assert_frame_equal(*until[days])
        assert (until[days][0]["date"] == day).sum() == 6
    assert not np.allclose(until[0][0]["amount"], until[0][1]["amount"])


def test_j11_one_instruments_orders_do_not_depend_on_the_others() -> None:
    many, few = (synthetic_sessions(SyntheticSettings(instruments=n, days=30)) for n in (5, 2))
    table = generate_orders(many)
    both = table[table["instrument"].isin(set(few.instruments))].reset_index(drop=True)
    pd.testing.assert_frame_equal(both, generate_orders(few))


def test_j11_one_day_of_bars_gives_no_order_and_says_what_to_do() -> None:
    with pytest.raises(OrderError, match="volume_days"):
        generate_orders(sessions_of([[10.0] * 4]))


def test_j10_a_window_ends_at_the_close_of_a_half_day_and_not_when_lunch_would_end() -> None:
    """Lunch from 09:32 to 09:40; the second day closes with the morning, the third within it."""
    segments = (("09:30", "09:32"), ("09:40", "09:42"))
    made = sessions_of([[10.0] * 4] * 3, segments=segments, num_ticks=[4, 2, 1])
    table = generate_orders(made, plain(0))
    assert table["end"].dt.strftime("%H:%M").tolist() == ["09:42", "09:32", "09:31"]
    assert align_orders(table, made).end.tolist() == [4, 2, 1]
    morning = generate_orders(made, plain(0, end_time="09:32"))
    assert morning["end"].dt.strftime("%H:%M").tolist() == ["09:32", "09:32", "09:31"]
    assert not align_orders(table, made).noted
    noon = generate_orders(made, plain(0, start_time="09:33"))
    assert noon["start"].dt.strftime("%H:%M").tolist() == ["09:40"]
