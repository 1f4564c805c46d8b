"""A live market has, after every bar, what the finished day has up to it, in whatever order the bars came."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError, DataError, ServingError
from rlwb.market import (
    Calendar,
    FeatureSettings,
    MarketFeatures,
    Normaliser,
    Sessions,
    build_sessions,
    feature,
    load_sessions,
    sessions_to_bars,
)
from rlwb.market.catalogue import BUILT_IN, SETS, Block
from rlwb.market.references import References
from rlwb.policy import Attention, Convolution, Recurrent, make_network
from rlwb.policy.encoder import MarketEncoder
from rlwb.policy.market_network import OracleEncoder
from rlwb.policy.qlib import QlibRecurrent
from rlwb.serving.live import Arrivals, LiveMarket

#: A lunch break, and on the last date a half day.
CALENDAR = Calendar(
    segments=(("09:30", "10:30"), ("11:00", "12:00")),
    tick_minutes=10,
    label="end",
    timezone="Asia/Shanghai",
    early_closes={"2024-01-11": "11:20"},
    infer_early_close_minutes=0,
)
DATES = ("2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-10", "2024-01-11")
NAMES = ("A", "B", "FIRST", "NEW")
#: Days on which an instrument has bars: all, or the last ones alone.
DAYS = {"A": 6, "B": 6, "FIRST": 1, "NEW": 2}
OWN = tuple(name for name, one in BUILT_IN.items() if not name.startswith("qlib_") and not one.across)


def random_bars(seed: int = 0, keep: float = 0.8, factors: bool = False) -> pd.DataFrame:
    """Bars with every field, of which some are missing as a whole, and single values of others."""
    rng, frames = np.random.default_rng(seed), []
    for name in NAMES:
        for date in DATES[-DAYS[name] :]:
            ticks = np.arange(CALENDAR.ticks_on(np.array([date], "datetime64[D]"))[0])
            seconds = CALENDAR.tick_start[ticks] + CALENDAR.tick_seconds
            path = 20 * np.exp(np.cumsum(rng.normal(0, 3e-3, (len(ticks), 4)).ravel()).reshape(-1, 4))
            frame = pd.DataFrame({"instrument": name, "datetime": pd.Timestamp(date) + pd.to_timedelta(seconds, "s")})
            frame["open"], frame["close"] = path[:, 0], path[:, 3]
            frame["high"], frame["low"] = path.max(axis=1), path.min(axis=1)
            frame["volume"] = rng.integers(0, 5000, len(ticks)) * float(rng.random() < 0.7)  # some days have none
            frame["bid"], frame["ask"] = path[:, 3] * 0.999, path[:, 3] * 1.001
            frame["bid_size"], frame["ask_size"] = rng.integers(0, 100, (2, len(ticks))).astype(float)
            frame["vwap"] = path.mean(axis=1)
            for column in ("open", "close", "volume", "vwap", "bid_size"):
                frame.loc[rng.random(len(ticks)) < 0.1, column] = np.nan
            if factors:
                frame["factor"] = float(rng.choice([0.5, 1.0, 2.0]))
            frames.append(frame[rng.random(len(ticks)) < keep])
    return pd.concat(frames, ignore_index=True)


def is_today(bars: pd.DataFrame) -> pd.Series:
    return bars["datetime"] >= pd.Timestamp(DATES[-1])


@cache
def finished(
    seed: int, wanted: FeatureSettings, keep: float = 0.8, factors: bool = False
) -> tuple[pd.DataFrame, Sessions, MarketFeatures]:
    bars = random_bars(seed, keep, factors)
    sessions = build_sessions(bars, CALENDAR, min_coverage=0.0)
    training = sessions.dates < np.datetime64(DATES[-2])
    return bars, sessions, MarketFeatures.build(sessions, wanted, fit_rows=training)


class Market:
    """A live market, and the finished one that it must equal."""

    def __init__(
        self,
        wanted: FeatureSettings,
        encoder: MarketEncoder | None = None,
        *,
        seed: int = 0,
        keep: float = 0.8,
        factors: bool = False,
        **options: Any,
    ) -> None:
        self.encoder = encoder
        bars, self.sessions, self.features = finished(seed, wanted, keep, factors)
        self.today, self.history = bars[is_today(bars)], bars[~is_today(bars)]
        options = {"fields": tuple(self.sessions.fields), "min_coverage": 0.0, "capacity": 64, **options}
        self.live = LiveMarket(CALENDAR, wanted, self.features.normaliser, encoder, **options)

    def load(self) -> Market:
        self.live.load_history(self.sessions.select(self.sessions.dates < np.datetime64(DATES[-1])))
        return self

    def assert_equal(self, names: Iterable[str] = NAMES, bits: bool = False) -> None:
        """Panel, features and states equal those of the finished day, up to where each session has come."""
        for name in names:
            row, whole = self.live.row(name, DATES[-1]), self.sessions.row(name, DATES[-1])
            reached = int(self.live.reached(np.array([row]))[0])
            for field, values in self.sessions.fields.items():
                np.testing.assert_array_equal(self.live.panel.fields[field][row, :reached], values[whole, :reached])
            mine, other = self.live.features, self.features
            at, of = np.array([row]), np.array([whole])
            until = np.array([reached])
            np.testing.assert_allclose(mine.block(at, until), other.block(of, until), atol=1e-6, rtol=0)
            np.testing.assert_allclose(mine.block_previous(at), other.block_previous(of), atol=1e-6, rtol=0)
            if self.encoder is None:
                continue
            with torch.no_grad():
                yesterday = torch.tensor(other.block_previous(of)) if self.encoder.previous_day else None
                wanted = self.encoder.encode(torch.tensor(other.rows(of)), yesterday)[0, : reached + 1]
            ticks = np.arange(reached + 1)
            found = self.live.market_states(np.repeat(row, reached + 1), ticks)
            torch.testing.assert_close(found, wanted, atol=1e-6, rtol=0)


def by_minute(bars: pd.DataFrame) -> list[pd.DataFrame]:
    return [group for _, group in bars.groupby("datetime")]


FEATURES = {
    "default": FeatureSettings(),
    "all": FeatureSettings(columns=OWN),
    "all with yesterday": FeatureSettings(columns=OWN, previous_day=True),
    "qlib": FeatureSettings(columns=(*SETS["qlib"], "qlib_vwap")),
    "qlib with yesterday": FeatureSettings(columns=SETS["qlib"], previous_day=True, scaling="qlib"),
}


@pytest.mark.parametrize("factors", [False, True])
@pytest.mark.parametrize("wanted", FEATURES.values(), ids=FEATURES)
def test_every_feature_is_after_each_bar_what_the_finished_day_has(wanted: FeatureSettings, factors: bool) -> None:
    market = Market(wanted, seed=1, factors=factors)
    market.live.load_history(market.history)
    for name in NAMES:
        market.live.open(name, DATES[-1])
    for minute in by_minute(market.today):
        market.live.add(minute)
        market.assert_equal()


class Average(MarketEncoder):
    """An encoder of a user's own: the mean of the ticks so far."""

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        before = torch.zeros_like(today[:, :1]) if yesterday is None else yesterday.mean(dim=1, keepdim=True)
        return torch.cat([before, today], dim=1).cumsum(dim=1)


class Backwards(Average):
    """One whose states depend on the number of ticks that are 0."""

    causal = False

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        return super().encode(today, yesterday) + (today == 0).float().mean()


ENCODERS: dict[str, Any] = {
    "recurrent": lambda c, before: make_network(lambda: Recurrent(c, 8, previous_day=before), 1).market,
    "convolution": lambda c, before: make_network(lambda: Convolution(c, 8, 3, previous_day=before), 1).market,
    "attention": lambda c, before: make_network(lambda: Attention(c, 8, previous_day=before), 1).market,
    "own": lambda c, before: Average(c, c, previous_day=before),
}


def market_with(kind: str, before: bool, **options: Any) -> Market:
    encoder = make_network(lambda: QlibRecurrent(5, 8), 1).market if kind == "qlib" else ENCODERS[kind](5, before)
    return Market(FeatureSettings(previous_day=before), encoder, **options).load()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", [*ENCODERS, "qlib"])
def test_states_advance_with_each_bar(kind: str, before: bool) -> None:
    market = market_with(kind, before, seed=2)
    for name in NAMES:
        market.live.open(name, DATES[-1])
    for minute in by_minute(market.today):
        market.live.add(minute)
        market.assert_equal()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", ["recurrent", "convolution", "attention", "qlib"])
def test_built_in_encoders_do_not_read_the_day_again(kind: str, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    market = market_with(kind, before, seed=3)

    def encode(self: MarketEncoder, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        raise AssertionError("a whole day is read")

    with monkeypatch.context() as patch:
        patch.setattr(type(market.encoder), "encode", encode)
        for minute in by_minute(market.today):
            market.live.add(minute)
    market.assert_equal(market.today["instrument"].unique())


def test_states_of_a_recurrent_encoder_are_those_of_a_backtest_to_the_bit() -> None:
    market = market_with("recurrent", True, seed=4)
    assert market.encoder is not None
    row, whole = market.live.open("A", DATES[-1]), market.sessions.row("A", DATES[-1])
    for minute in by_minute(market.today):
        market.live.add(minute)
        ticks = market.live.reached(np.array([row]))
        with torch.no_grad():
            wanted = market.encoder({"session": np.array([whole]), "cur_tick": ticks, "features": market.features})
        assert torch.equal(market.live.market_states(np.array([row]), ticks), wanted)


def shuffled(market: Market, rng: np.random.Generator, data: st.DataObject) -> None:
    """Send the day's bars in any order, with repeats and wrong ones, of which the right one of each tick comes last."""
    wrong = market.today.assign(close=market.today["close"] * 1.001, volume=7.0)
    bars = pd.concat([wrong[rng.random(len(wrong)) < 0.3], market.today])
    bars = pd.concat([bars, bars[rng.random(len(bars)) < 0.3]])
    stream = pd.concat([part.iloc[rng.permutation(len(part))] for part in (bars, market.today)])
    while len(stream):
        size = data.draw(st.integers(1, 9))
        arrived = market.live.add(stream.iloc[:size])
        assert arrived.accepted + arrived.repeated + arrived.corrected == min(size, len(stream))
        assert not arrived.refused
        stream = stream.iloc[size:]


@pytest.mark.parametrize("kind", [*ENCODERS, "qlib"])
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), before=st.booleans(), keep=st.sampled_from([0.4, 0.8, 1.0]), data=st.data())
def test_the_order_of_arrival_leaves_no_trace(
    kind: str, seed: int, before: bool, keep: float, data: st.DataObject
) -> None:
    market = market_with(kind, before and kind != "qlib", seed=seed % 3, keep=keep)
    shuffled(market, np.random.default_rng(seed), data)
    names = sorted(set(market.today["instrument"]))
    market.assert_equal(names)
    for name in names:
        row = market.live.row(name, DATES[-1])
        market.live.reach(row, 99)
        assert market.live.reached(np.array([row]))[0] == 8  # the half day
    market.assert_equal(names)


@pytest.mark.parametrize("wanted", [FEATURES["all with yesterday"], FEATURES["qlib with yesterday"]], ids=str)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), data=st.data())
def test_no_feature_shows_the_order_of_arrival(wanted: FeatureSettings, seed: int, data: st.DataObject) -> None:
    market = Market(wanted, seed=seed % 3, factors=True).load()
    shuffled(market, np.random.default_rng(seed), data)
    market.assert_equal(sorted(set(market.today["instrument"])))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_feature_that_needs_its_tick_alone_has_the_same_value_of_that_tick_alone(name: str) -> None:
    one = BUILT_IN[name]
    sessions = finished(0, FeatureSettings())[1]
    references = References(sessions)
    rows = np.flatnonzero(np.isfinite(references.volume))
    whole = one(Block(references, rows))
    alone = [
        one(Block(references, rows, slice(tick, tick + 1))) if one.scope == "tick" else whole[:, tick : tick + 1]
        for tick in range(CALENDAR.num_ticks)
    ]
    np.testing.assert_array_equal(np.concatenate(alone, axis=1), whole)


@pytest.mark.parametrize("name", [*(name for name, one in BUILT_IN.items() if one.across), "close@A"])
def test_features_across_instruments_are_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        plain(columns=("close", name))


def bar(time: str = "2024-01-10 09:40", name: Any = "A", **values: Any) -> dict[str, list[Any]]:
    """One bar as a mapping of lists."""
    given = {"open": 10.0, "high": 11.0, "low": 9.0, "close": 10.5, "volume": 100.0} | values
    return {"instrument": [name], "datetime": [time]} | {key: [value] for key, value in given.items()}


def plain(capacity: int = 8, columns: tuple[str, ...] = ("close", "volume"), **options: Any) -> LiveMarket:
    """A market of two features, without history, whose values are the raw ones."""
    normaliser = Normaliser(columns, np.zeros(len(columns)), np.ones(len(columns)))
    fields = options.pop("fields", ("open", "high", "low", "close", "volume"))
    wanted = FeatureSettings(columns=columns, previous_day=options.pop("previous_day", False))
    return LiveMarket(CALENDAR, wanted, normaliser, fields=fields, capacity=capacity, **options)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (bar("2024-01-13 09:40"), "closed_day"),
        (bar("2024-01-10 09:30"), "off_session"),
        (bar("2024-01-10 10:45"), "off_session"),
        (bar("2024-01-10 09:45"), "off_grid"),
        (bar("2024-01-11 11:30"), "after_early_close"),
        (bar(close=-1.0), "price_negative"),
        (bar(close=np.inf), "price_infinite"),
        (bar(high=8.0), "high_below_low"),
        (bar(volume=-1.0), "volume_negative"),
        (bar(volume=np.inf), "volume_negative"),
        (bar("soon"), "datetime"),
        (bar("now"), "datetime"),
        (bar(None), "datetime"),  # type: ignore[arg-type]
        (bar(1_700_000_000), "datetime"),  # type: ignore[arg-type]
        (bar(name=""), "instrument"),
        (bar(name="A" * 65), "instrument"),
        (bar(name=600000), "instrument"),
        (bar(name="A\0"), "instrument"),
        (bar("9999-01-08 09:40"), "outside_calendar"),
        (bar("0001-01-08T09:40Z"), "outside_calendar"),
        (bar("2024-01-09 09:40"), "earlier_date"),
    ],
    ids=str,
)
def test_a_bar_that_cannot_be_is_refused_and_the_others_are_taken(wrong: dict[str, list[Any]], reason: str) -> None:
    live = plain()
    live.add(bar("2024-01-10 09:50"))
    good = bar("2024-01-10 10:00")
    arrived = live.add({key: [*wrong[key], *good[key]] for key in good})
    assert arrived == Arrivals(accepted=1, repeated=0, corrected=0, refused=((0, reason),))
    assert len(live) == 1
    row = live.row("A", "2024-01-10")
    np.testing.assert_array_equal(np.isfinite(live.panel.fields["close"][row]), np.isin(np.arange(12), [1, 2]))


def test_values_are_repaired_as_in_training() -> None:
    values = {"open": 12.0, "low": 0.0, "bid": 10.6, "ask": 10.5, "bid_size": 3.0, "ask_size": None, "vwap": 10.0}
    bars = bar(**values)
    live = plain(fields=tuple(bars)[2:])
    assert live.add(bars).accepted == 1
    calendar = replace(CALENDAR, early_closes={})
    trained = build_sessions(pd.DataFrame(bars), calendar, min_coverage=0.0)
    row = live.row("A", "2024-01-10")
    for name, field in trained.fields.items():
        np.testing.assert_array_equal(live.panel.fields[name][row], field[0])
    assert live.panel.fields["high"][row, 0] == 12.0
    assert np.isnan(live.panel.fields["bid"][row, 0])


def test_repeats_corrections_and_late_bars_are_told_apart() -> None:
    live = plain()
    assert live.add(bar("2024-01-10 09:50")) == Arrivals(1, 0, 0, ())
    assert live.add(bar("2024-01-10 09:50")) == Arrivals(0, 1, 0, ())
    assert live.add(bar("2024-01-10 09:40")) == Arrivals(1, 0, 0, (), late=1)
    assert live.add(bar("2024-01-10 09:40", close=10.6)) == Arrivals(0, 0, 1, ())
    row = live.row("A", "2024-01-10")
    assert live.panel.fields["close"][row, :3].tolist()[:2] == [10.6, 10.5]
    # Without history a close is referred to by the day's first price, the open of the first tick.
    first = np.log(np.array([10.6, 10.5]) / 10.0)
    np.testing.assert_allclose(live.features.rows(np.array([row]))[0, :2, 0], first, rtol=1e-6)
    strict = plain(on_correction="refuse")
    strict.add(bar())
    assert strict.add(bar(close=10.6)).refused == ((0, "correction"),)
    assert strict.add(bar()).repeated == 1
    assert strict.panel.fields["close"][strict.row("A", "2024-01-10"), 0] == 10.5


def test_one_batch_may_repeat_and_correct_itself() -> None:
    live, parts = plain(), [bar(), bar(), bar(close=10.6), bar(close=10.6), bar("2024-01-10 09:50")]
    arrived = live.add({key: [part[key][0] for part in parts] for key in parts[0]})
    assert arrived == Arrivals(accepted=2, repeated=2, corrected=1, refused=())


@pytest.mark.parametrize(
    "stamp",
    [
        "2024-01-10T09:40:00",
        "2024-01-10T01:40:00Z",
        "2024-01-10 03:40+02:00",
        pd.Timestamp("2024-01-10 09:40"),
        pd.Timestamp("2024-01-10 01:40", tz="UTC"),
        dt.datetime(2024, 1, 10, 1, 40, tzinfo=dt.UTC),
        np.datetime64("2024-01-10T09:40"),
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["lists", "frame"])
def test_stamps_are_local_unless_they_name_a_zone(stamp: Any, form: str) -> None:
    live, bars = plain(), bar(stamp)
    live.add(bars if form == "lists" else pd.DataFrame(bars))
    assert np.isfinite(live.panel.fields["close"][live.row("A", "2024-01-10"), 0])


@pytest.mark.parametrize(
    ("bars", "named"),
    [
        ({"instrument": ["A"], "datetime": ["2024-01-10 09:40"], "close": [1.0]}, "volume"),
        (bar(close="ten"), "close"),
        (bar() | {"close": [1.0, 2.0]}, "close"),
        (bar() | {"datetime": []}, "datetime"),
        (bar() | {"datetime": "2024-01-10 09:40"}, "datetime"),
        (bar() | {"instrument": 5}, "instrument"),
        (bar(close=10**400), "close"),
    ],
)
def test_a_batch_that_is_no_table_of_bars_is_refused_whole(bars: dict[str, list[Any]], named: str) -> None:
    live = plain()
    with pytest.raises(DataError, match=named):
        live.add(bars)
    assert len(live) == 0


def test_a_field_that_the_policy_reads_must_be_there() -> None:
    live = plain(columns=("close", "vwap"), fields=("vwap",))
    with pytest.raises(DataError, match="vwap"):
        live.add(bar())


def test_the_clock_makes_ticks_missing_and_states_wait_for_bars() -> None:
    market = market_with("recurrent", False)
    live, row = market.live, market.live.open("A", DATES[-1])
    assert live.reached(np.array([row])).tolist() == [0]
    live.reach(row, 3)
    live.reach(row, 2)
    assert live.reached(np.array([row])).tolist() == [3]
    states = live.market_states(np.array([row, row]), np.array([0, 3]))
    assert states is not None
    assert not torch.equal(states[0], states[1])
    with pytest.raises(ServingError) as caught:
        live.market_states(np.array([row]), np.array([4]))
    assert caught.value.reason == "late_bars"


@pytest.mark.parametrize("wanted", [FEATURES["all with yesterday"], FEATURES["qlib with yesterday"]], ids=str)
def test_a_session_that_another_follows_is_yesterday(wanted: FeatureSettings) -> None:
    """Days that were streamed are the history of those after them, as if they had been loaded."""
    market = Market(wanted, seed=5, keep=0.9)
    for minute in by_minute(pd.concat([market.history, market.today])):
        assert not market.live.add(minute).refused
    market.assert_equal(market.today["instrument"].unique())


def test_bars_of_an_open_day_before_change_the_yesterday_of_the_next() -> None:
    market = Market(FeatureSettings(columns=OWN, previous_day=True), seed=5, keep=1.0)
    before = market.history["datetime"] >= pd.Timestamp(DATES[-2])
    market.live.load_history(market.history[~before])
    days = [part[part["instrument"].isin(["A", "B"])] for part in (market.history[before], market.today)]
    for name in ("A", "B"):
        for date in DATES[-2:]:
            market.live.hold(market.live.open(name, date))
    for day in reversed(days):
        assert not market.live.add(day).refused
    market.assert_equal(("A", "B"))
    # What was loaded whole is not replaced by a part of it.
    whole = Market(FeatureSettings(columns=OWN, previous_day=True), seed=5, keep=1.0).load()
    whole.live.add(days[0].groupby("instrument").head(9))
    whole.live.add(whole.today)
    whole.assert_equal(("A", "B"))


def test_a_day_that_was_followed_in_part_does_not_take_the_place_of_its_whole_history() -> None:
    market = Market(FeatureSettings(previous_day=True))
    before, noon = market.history["datetime"] >= pd.Timestamp(DATES[-2]), pd.Timestamp(f"{DATES[-2]} 11:10")
    market.live.add(market.history[before & (market.history["datetime"] < noon)])
    market.load()
    market.live.add(market.today)
    market.assert_equal(("A", "B"))


def test_history_may_come_after_the_first_bars() -> None:
    market = Market(FEATURES["all with yesterday"], Average(len(OWN), len(OWN), previous_day=True), seed=6)
    market.live.add(market.today)
    market.load()
    market.assert_equal(market.today["instrument"].unique())


def test_sparse_sessions_are_no_history() -> None:
    live = plain(previous_day=True)
    parts = [bar(f"2024-01-09 {time}") for time in ("09:40", "09:50", "10:00", "10:10", "10:20", "10:30")]
    parts += [bar("2024-01-08 09:40"), bar("2024-01-09 09:40", close=-1.0)]
    arrived = live.load_history({key: [part[key][0] for part in parts] for key in parts[0]})
    assert arrived == Arrivals(6, 0, 0, ((6, "sparse_session"), (7, "price_negative")))
    row = live.open("A", "2024-01-10")
    assert live.panel.dates[live.panel.previous[row]] == np.datetime64("2024-01-09")


def test_the_least_used_session_that_no_order_holds_makes_room() -> None:
    live = plain(capacity=2)
    a, b = live.open("A", "2024-01-10"), live.open("B", "2024-01-10")
    live.hold(a)
    live.open("A", "2024-01-10")
    live.open("C", "2024-01-10")
    assert [live.row(name, "2024-01-10") for name in "ABC"] == [a, -1, b]
    live.hold(live.row("C", "2024-01-10"))
    with pytest.raises(ServingError) as caught:
        live.open("D", "2024-01-10")
    assert caught.value.reason == "full"
    assert live.add(bar(name="D")).refused == ((0, "full"),)
    live.release(a)
    assert live.add(bar(name="D")).accepted == 1
    assert live.row("A", "2024-01-10") == -1
    with pytest.raises(ServingError):
        live.release(b + 1)


def test_a_session_that_was_given_up_counts_when_its_bars_are_back() -> None:
    live = plain(capacity=1)
    live.add(bar("2024-01-10 09:40"))
    live.add(bar("2024-01-10 09:50"))
    live.open("B", "2024-01-10")
    live.add(bar("2024-01-10 09:50"))
    rows = np.array([live.row("A", "2024-01-10")])
    assert live.reached(rows).tolist() == [0]
    live.add(bar("2024-01-10 09:40"))
    assert live.reached(rows).tolist() == [2]


def test_more_sessions_than_fit_leave_no_trace_on_each_other() -> None:
    """Sessions take the places of others, days in turn; each has its own values."""
    market = Market(FeatureSettings(previous_day=True), Average(5, 5, previous_day=True), seed=7, capacity=3).load()
    for name in NAMES:
        market.live.add(market.today[market.today["instrument"] == name])
        market.assert_equal([name])


def test_the_first_bar_may_state_the_factor() -> None:
    columns = ("close", "volume")
    live = plain(columns=columns)
    days = [bar(f"2024-01-09 {time}", factor=1.0) for time in ("09:40", "09:50", "10:00", "10:10", "10:20", "10:30")]
    live.load_history({key: [part[key][0] for part in days] for key in days[0]})
    row = live.open("A", "2024-01-10")
    live.reach(row, 1)
    # Two shares out of one: yesterday's close of 10.5 is 5.25 today, its volume of 100 a tick 200.
    live.add(bar("2024-01-10 09:50", low=5.0, close=5.25, volume=200.0, factor=2.0))
    np.testing.assert_allclose(live.features.rows(np.array([row]))[0, 1], [0.0, np.log(2.0)], atol=1e-7)
    assert live.add(bar("2024-01-10 10:00", factor=2.1)).refused == ((0, "factor"),)
    assert live.add(bar("2024-01-10 10:00", factor=None)).accepted == 1


def test_a_feature_of_ones_own_says_how_far_it_looks_back() -> None:
    def weekly(block: Block) -> np.ndarray:
        return block["close"] - block.earlier("close", 7)

    feature("weekly_short", needs=("close",))(weekly)
    feature("weekly_long", needs=("close",), lookback=7)(weekly)
    live = plain(columns=("weekly_short",))
    with pytest.raises(ConfigError, match="lookback=7"):
        live.add(bar())
    assert plain(columns=("weekly_long",)).add(bar()).accepted == 1


def test_sessions_that_cannot_be_are_not_opened() -> None:
    live = plain()
    for name, date in (
        ("A", "2024-01-13"),
        ("A", "9999-01-08"),
        ("A", "soon"),
        ("", "2024-01-10"),
        ("A" * 65, "2024-01-10"),
    ):
        with pytest.raises(DataError):
            live.open(name, date)
    live.open("A", "2024-01-10")
    with pytest.raises(ServingError) as caught:
        live.open("A", "2024-01-09")
    assert caught.value.reason == "earlier_date"
    assert live.open("A", dt.date(2024, 1, 10)) == live.panel.row("A", "2024-01-10")
    assert live.panel.rows(["A", "B"], ["2024-01-10", "2024-01-10"]).tolist() == [live.row("A", "2024-01-10"), -1]


def test_a_market_refuses_what_it_cannot_serve() -> None:
    market = finished(0, FeatureSettings())[2]
    for options in ({"capacity": 0}, {"on_correction": "ask"}, {"encoder": OracleEncoder(5, 4)}):
        with pytest.raises(ConfigError):
            LiveMarket(CALENDAR, FeatureSettings(), market.normaliser, fields=(), **options)
    with pytest.raises(DataError):
        LiveMarket(CALENDAR, FeatureSettings(columns=("close",)), market.normaliser, fields=())
    with pytest.raises(TypeError):
        pickle.dumps(plain())


DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "us_equity_1min_2025"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"real market data are not at {DATA}")
@pytest.mark.parametrize("kind", ["recurrent", "convolution", "attention"])
def test_a_real_day_is_served_as_it_is_trained_on(kind: str) -> None:
    calendar = Calendar.preset("us", early_closes={"2025-11-28": "13:00"}, infer_early_close_minutes=0)
    sessions = load_sessions(DATA, calendar, start="2025-11-24", end="2025-11-28")
    dates = np.unique(sessions.dates)
    sessions = sessions.select(np.isin(sessions.instruments, sessions.index.names[:6]))
    assert len(dates) == 4
    wanted = FeatureSettings(previous_day=True)
    features = MarketFeatures.build(sessions, wanted, fit_rows=sessions.dates < dates[-1])
    encoder = ENCODERS[kind](5, True)
    live = LiveMarket(calendar, wanted, features.normaliser, encoder, fields=tuple(sessions.fields), capacity=8)
    live.load_history(sessions.select(sessions.dates < dates[-1]))
    today = sessions.select(sessions.dates == dates[-1])
    bars = sessions_to_bars(today)
    for minute in by_minute(bars):
        assert not live.add(minute).refused
    rows = np.array([live.row(name, dates[-1]) for name in today.instruments])
    whole = sessions.rows(today.instruments, today.dates)
    length = today.num_ticks
    assert set(length.tolist()) == {210}
    np.testing.assert_allclose(live.features.block(rows, length), features.block(whole, length), atol=1e-6, rtol=0)
    with torch.no_grad():
        states = encoder.encode(torch.tensor(features.rows(whole)), torch.tensor(features.block_previous(whole)))
    for tick in (0, 1, 100, 210):
        found = live.market_states(rows, np.full(len(rows), tick))
        torch.testing.assert_close(found, states[:, tick], atol=1e-6, rtol=0)
