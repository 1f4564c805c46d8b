"""From bars to results on any clock, against plain pandas on the stamps."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import OrderError
from rlwb.execution import TWAP, Engine, ExecutionRules, align_orders
from rlwb.market import Calendar, build_sessions
from tests.execution.markets import run

DAY = pd.Timestamp("2024-03-11")  # the Monday after New York's clocks went forward


def text(minutes: float) -> str:
    seconds = round(minutes * 60)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


@st.composite
def clocks(draw: st.DrawFn) -> Calendar:
    tick = draw(st.sampled_from([1 / 60, 0.5, 1, 5, 30]))
    count = draw(st.integers(1, 3))
    gaps = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    lengths = draw(st.lists(st.integers(1, 10), min_size=count, max_size=count))
    at, segments = min(draw(st.sampled_from([0, 570, 900])), 1440 - (sum(gaps) + sum(lengths)) * tick), []
    for gap, length in zip(gaps, lengths, strict=True):
        at += gap * tick
        segments.append((text(at), text(at + length * tick)))
        at += length * tick
    if draw(st.booleans()):
        segments = [(text(1440 - lengths[0] * tick), "24:00")]
    label = draw(st.sampled_from(["start", "end"]))
    zone = draw(st.sampled_from([None, "America/New_York", "UTC"]))
    return Calendar(tuple(segments), tick, label, zone, infer_early_close_minutes=0)


@settings(max_examples=50, deadline=None)
@given(clocks(), st.data())
def test_benchmarks_steps_and_windows_are_those_of_the_stamps(calendar: Calendar, data: st.DataObject) -> None:
    ticks, tick = calendar.num_ticks, pd.Timedelta(seconds=calendar.tick_seconds)
    opens = DAY + pd.to_timedelta(calendar.tick_start, unit="s")
    kept = np.array(data.draw(st.lists(st.sampled_from([True, True, True, False]), min_size=ticks, max_size=ticks)))
    kept[data.draw(st.integers(0, ticks - 1))] = True
    close = np.round(
        10 + np.cumsum(np.array(data.draw(st.lists(st.integers(-9, 9), min_size=ticks, max_size=ticks)))) / 64, 6
    )
    close, volume = np.maximum(close, 1.0), np.arange(ticks) % 4 * 100.0
    bars = pd.DataFrame({"instrument": "000001", "datetime": opens + (tick if calendar.label == "end" else 0 * tick)})
    bars = bars.assign(open=close + 0.5, high=close + 0.5, low=close, close=close, volume=volume)[kept]
    if calendar.timezone is not None:
        bars["datetime"] = bars["datetime"].dt.tz_localize(calendar.timezone).dt.tz_convert("Asia/Tokyo")
    shuffled = bars.sample(frac=1.0, random_state=data.draw(st.integers(0, 9)))
    sessions = build_sessions(pd.concat([shuffled, bars.iloc[:1]]), calendar, min_coverage=0.0)

    edges = [
        DAY + pd.Timedelta(seconds=int(s)) for s in np.unique(np.append(calendar.tick_start, calendar.close_seconds))
    ]
    start, end = sorted(data.draw(st.tuples(st.sampled_from(edges), st.sampled_from(edges))))
    end += (
        data.draw(st.sampled_from([0, 0, 7])) * dt.timedelta(milliseconds=100) if end < edges[-1] else dt.timedelta(0)
    )
    field = data.draw(st.sampled_from(["close", "open"]))
    inside = (opens >= start) & (opens + tick <= end)
    row = {"instrument": "000001", "date": DAY, "direction": "S", "amount": 7.0, "start": start, "end": end}
    rules = ExecutionRules(price_field=field)  # type: ignore[arg-type]
    expected = pd.Series(close + (0.5 if field == "open" else 0.0))[inside & kept]
    if expected.empty:
        with pytest.raises(OrderError, match="cannot be executed"):
            align_orders(pd.DataFrame([row]), sessions, rules)
        return
    per_step = data.draw(st.integers(1, ticks))
    _, _, results = run(sessions, pd.DataFrame([row]), per_step, TWAP, rules)
    result = results.iloc[0]
    assert result["twap"] == pytest.approx(expected.mean(), rel=1e-12)
    first = int(np.flatnonzero(inside)[0])
    before = close[:first][kept[:first]]
    at_start = close[first] + 0.5 if kept[first] else before[-1] if len(before) else expected.iloc[0]
    assert result["arrival"] == at_start
    assert result["pa"] == pytest.approx(0.0, abs=1e-8)
    assert result["ffr"] == 1.0
    within = pd.Series(np.arange(ticks)).groupby(calendar.segment).cumcount().to_numpy() // per_step
    cells = {(int(s), int(c)) for s, c in zip(calendar.segment[inside], within[inside], strict=True)}
    orders = align_orders(pd.DataFrame([row]), sessions, rules)
    assert Engine(sessions, per_step, rules).num_steps(orders).tolist() == [len(cells)]
    weight = volume[inside & kept]
    if weight.sum() > 0:
        assert result["vwap"] == pytest.approx((expected * weight).sum() / weight.sum(), rel=1e-12)
    else:
        assert np.isnan(result["vwap"])
