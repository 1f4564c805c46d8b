"""A live market has, after every bar, what the finished day has up to it, in whatever order the bars came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlwb.market import Calendar, FeatureSettings, MarketFeatures, build_sessions
from rlwb.market.catalogue import BUILT_IN, SETS
from rlwb.policy import Attention, Convolution, Recurrent, make_network
from rlwb.policy.encoder import MarketEncoder
from rlwb.policy.qlib import QlibRecurrent
from rlwb.serving.live import LiveMarket

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
OWN = tuple(name for name in BUILT_IN if not name.startswith("qlib_"))


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
            frame["volume"] = rng.integers(0, 5000, len(ticks)).astype(float)
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


class Market:
    """A live market, and the finished one that it must equal."""

    def __init__(
        self, bars: pd.DataFrame, wanted: FeatureSettings, encoder: MarketEncoder | None = None, **options: Any
    ) -> None:
        self.bars, self.encoder = bars, encoder
        self.sessions = build_sessions(bars, CALENDAR, min_coverage=0.0)
        self.features = MarketFeatures.build(
            self.sessions, wanted, fit_rows=self.sessions.dates < np.datetime64("2024-01-10")
        )
        options = {"fields": tuple(self.sessions.fields), "min_coverage": 0.0, **options}
        self.live = LiveMarket(CALENDAR, wanted, self.features.normaliser, encoder, **options)
        self.today = bars[is_today(bars)]
        self.live.load_history(bars[~is_today(bars)])

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
    market = Market(random_bars(1, factors=factors), wanted)
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


def market_with(kind: str, before: bool, bars: pd.DataFrame, **options: Any) -> Market:
    wanted = FeatureSettings(previous_day=before)
    encoder = make_network(lambda: QlibRecurrent(5, 8), 1).market if kind == "qlib" else ENCODERS[kind](5, before)
    return Market(bars, wanted, encoder, **options)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", [*ENCODERS, "qlib"])
def test_states_advance_with_each_bar(kind: str, before: bool) -> None:
    market = market_with(kind, before, random_bars(2))
    for name in NAMES:
        market.live.open(name, DATES[-1])
    for minute in by_minute(market.today):
        market.live.add(minute)
        market.assert_equal()


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", ["recurrent", "convolution", "attention", "qlib"])
def test_built_in_encoders_do_not_read_the_day_again(kind: str, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    market = market_with(kind, before, random_bars(3))

    def encode(self: MarketEncoder, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        raise AssertionError("a whole day is read")

    with monkeypatch.context() as patch:
        patch.setattr(type(market.encoder), "encode", encode)
        for minute in by_minute(market.today):
            market.live.add(minute)
    market.assert_equal(market.today["instrument"].unique())


@pytest.mark.parametrize("kind", [*ENCODERS, "qlib"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10_000), data=st.data())
def test_the_order_of_arrival_leaves_no_trace(kind: str, seed: int, data: st.DataObject) -> None:
    """Shuffled bars, with repeats, wrong ones that are corrected later, and gaps, come to the finished day."""
    rng = np.random.default_rng(seed)
    market = market_with(kind, data.draw(st.booleans()) and kind != "qlib", random_bars(seed, keep=rng.uniform(0.3, 1)))
    columns = list(market.today.columns)
    wrong = market.today.assign(close=market.today["close"] * 1.001, volume=7.0)
    bars = pd.concat([wrong[rng.random(len(wrong)) < 0.3], market.today])[columns]
    bars = pd.concat([bars, bars[rng.random(len(bars)) < 0.3]])
    # The right bar of each tick comes last.
    right = bars.reset_index(drop=True).sample(frac=1.0, random_state=seed)
    last = market.today.sample(frac=1.0, random_state=seed + 1)
    stream = pd.concat([right, last])
    while len(stream):
        size = data.draw(st.integers(1, 9))
        arrived = market.live.add(stream.iloc[:size])
        assert arrived.accepted + arrived.repeated + arrived.corrected == min(size, len(stream))
        assert not arrived.refused
        stream = stream.iloc[size:]
    names = sorted(set(market.today["instrument"]))
    market.assert_equal(names)
    for name in names:
        row = market.live.row(name, DATES[-1])
        market.live.reach(row, 99)
        assert market.live.reached(np.array([row]))[0] == 8  # the half day
    market.assert_equal(names)


def test_a_day_that_was_followed_in_part_does_not_take_the_place_of_its_whole_history() -> None:
    bars = random_bars()
    market = Market(bars, FeatureSettings(previous_day=True))
    fields, settings_ = tuple(market.sessions.fields), market.live.settings
    live = LiveMarket(CALENDAR, settings_, market.features.normaliser, fields=fields, min_coverage=0.0)
    noon = pd.Timestamp(f"{DATES[-2]} 11:10")
    live.add(bars[(bars["datetime"] >= pd.Timestamp(DATES[-2])) & (bars["datetime"] < noon)])
    live.load_history(bars[~is_today(bars)])
    market.live = live
    live.add(market.today)
    market.assert_equal(("A", "B"))
