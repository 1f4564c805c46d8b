"""Impact from fills: what was planted is found, what the fills do not say is not, and books are walked by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.impact import (
    DECAY_MINUTES,
    DECAYS,
    PASSING,
    PLANTED,
    Trading,
    passing_rules,
    planted_fills,
    planted_rules,
)
from rlwb.errors import ConfigError, OrderError
from rlwb.evaluation.bootstrap import day_interval
from rlwb.evaluation.impact import SHAPES, ImpactFit, book_walk, designs, fit_impact, fit_shape
from rlwb.execution import ExecutionRules
from rlwb.market import Sessions

RESAMPLES = 500


def fitted(fills: pd.DataFrame, sessions: Sessions, seed: int = 0, **settings: Any) -> ImpactFit:
    return fit_impact(fills, sessions, np.random.default_rng(seed), resamples=RESAMPLES, **settings)


@pytest.fixture(scope="module")
def small() -> tuple[pd.DataFrame, Sessions]:
    return planted_fills(planted_rules("linear"), Trading(orders=250), seed=3)


@pytest.mark.parametrize("shape", SHAPES)
def test_planted_costs_are_found_within_their_intervals(shape: str) -> None:
    fit = fitted(*planted_fills(planted_rules(shape), Trading(), seed=5))
    assert fit.shapes == {"temporary_impact": shape, "permanent_impact": shape}
    for name, value in PLANTED.items():
        one = fit.estimates[name]
        assert not one.lacks
        assert one.interval.lo <= value <= one.interval.hi
        assert one.interval.hi - one.interval.lo < 0.8 * value
    assert fit.estimates["reversal_bps"].lacks
    assert fit.estimates["decay_minutes"].lacks
    rules = fit.rules()
    assert set(rules) - {"volume_limit"} == {*PLANTED} | (
        {f"{n}_shape" for n in fit.shapes} if "root" in shape else set()
    )
    assert ExecutionRules(**rules).volume_limit == pytest.approx(fit.participation[3], abs=1e-3)
    assert (fit.orders, fit.days) == (500, 100)


def test_a_decay_that_was_planted_is_found_and_does_not_spoil_the_rest() -> None:
    fit = fitted(*planted_fills(planted_rules("linear"), Trading(decay_minutes=DECAY_MINUTES), seed=1))
    decay = fit.estimates["decay_minutes"]
    assert not decay.lacks
    assert decay.interval.lo <= DECAY_MINUTES <= decay.interval.hi
    temporary = fit.estimates["temporary_impact_bps"].interval
    assert temporary.lo <= PLANTED["temporary_impact_bps"] <= temporary.hi
    assert any("decays slowly" in note for note in fit.notes)


@pytest.mark.parametrize("decay", DECAYS)
def test_planted_transient_impact_is_found_within_its_intervals(decay: Any) -> None:
    fit = fitted(*planted_fills(passing_rules(decay), Trading(), seed=5), transient=decay)
    assert fit.shapes["transient_impact"] == DECAYS[decay]
    for name, value in PASSING.items():
        one = fit.estimates[name]
        assert not one.lacks
        assert one.interval.lo <= value <= one.interval.hi
        assert one.interval.hi - one.interval.lo < 0.5 * value
    rules = ExecutionRules(**fit.rules())
    assert (rules.temporary_impact_bps, rules.transient_decay or "power") == (0.0, decay)
    assert rules.transient_left(np.array([10.0])) == pytest.approx([0.5], abs=0.05)
    assert fit.as_dict()["decay"] == decay


def test_transient_impact_that_was_not_planted_is_not_written() -> None:
    rules = ExecutionRules(half_spread_bps=3.0, volume_limit=1.0, complete_at_end=False, catch_up=False)
    fit = fitted(*planted_fills(rules, Trading(), seed=2), transient="power")
    assert list(fit.rules()) == ["half_spread_bps"]
    assert fit.estimates["transient_half_life"].lacks


def test_without_transient_impact_the_rest_is_of_a_fit_without_it() -> None:
    rules = dataclasses.replace(planted_rules("linear"), temporary_impact_bps=0.0)
    fit = fitted(*planted_fills(rules, Trading(), seed=2), transient="power")
    assert fit.estimates["transient_impact_bps"].lacks
    assert any("without it" in note for note in fit.notes)
    assert {"half_spread_bps", "permanent_impact_bps"} <= set(fit.rules())
    for name in ("half_spread_bps", "permanent_impact_bps"):
        one = fit.estimates[name].interval
        assert one.lo <= PLANTED[name] <= one.hi
    permanent = fit.estimates["permanent_impact_bps"].interval
    assert permanent.hi - permanent.lo < 6.0, "in a joint fit, in which the two can stand for each other, it is 8"
    assert fit.estimates["permanent_impact_bps"].unit == "bp at a tick's whole volume"


def test_what_was_not_planted_is_not_written() -> None:
    rules = ExecutionRules(half_spread_bps=3.0, volume_limit=1.0, complete_at_end=False, catch_up=False)
    fit = fitted(*planted_fills(rules, Trading(), seed=2))
    assert fit.estimates["temporary_impact_bps"].lacks
    assert fit.estimates["permanent_impact_bps"].lacks
    assert list(fit.rules()) == ["half_spread_bps"]
    spread = fit.estimates["half_spread_bps"].interval
    assert spread.lo <= 3.0 <= spread.hi
    assert "holds 0" in fit.as_text()
    assert fit.as_dict()["estimates"]["temporary_impact_bps"]["found"] is False


def test_the_same_seed_gives_the_same_figures(small: tuple[pd.DataFrame, Sessions]) -> None:
    shuffled = small[0].sample(frac=1.0, random_state=0)
    assert fitted(*small).as_dict() == fitted(shuffled, small[1]).as_dict()


def test_executions_of_one_tick_count_as_one(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    halves = fills.assign(quantity=fills["quantity"] / 2)
    fit = fitted(pd.concat([halves, halves]), sessions)
    whole = fitted(fills, sessions)
    assert (fit.fills, fit.ticks) == (2 * whole.fills, whole.ticks)
    assert fit.estimates["temporary_impact_bps"].interval.estimate == pytest.approx(
        whole.estimates["temporary_impact_bps"].interval.estimate
    )


def test_gross_errors_hardly_move_the_fit(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    rng = np.random.default_rng(0)
    wrong = rng.random(len(fills)) < 0.02
    spoilt = fills.assign(price=fills["price"] * np.where(wrong, rng.choice([0.9, 1.1], len(fills)), 1.0))
    clean, robust = (fitted(table, sessions).estimates["temporary_impact_bps"].interval for table in (fills, spoilt))
    assert abs(robust.estimate - clean.estimate) < clean.standard_error


def test_too_few_orders_and_days_are_refused(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    days = np.unique(fills["time"].dt.date)
    with pytest.raises(OrderError, match="195 orders on 39 days"):
        fitted(fills[fills["time"].dt.date.isin(days[:39])], sessions)
    with pytest.raises(OrderError, match=r"0 orders on 0 days.*250 of 250 orders.*more than the bar's volume"):
        fitted(fills.assign(quantity=fills["quantity"] * 1e4), sessions)
    with pytest.raises(OrderError, match="from the price before"):
        fitted(fills.assign(price=fills["price"] * 100), sessions)
    with pytest.raises(OrderError, match="lie outside the bars"):
        fitted(fills.assign(instrument="else"), sessions)
    with pytest.raises(ConfigError, match="after_minutes"):
        fitted(fills, sessions, after_minutes=1)


def test_orders_that_do_not_fit_the_bars_are_left_out_whole_and_counted(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    first = fills["order_id"].unique()[:2]
    quantity = fills["quantity"].where(fills["order_id"] != first[0], 1e12)
    time = fills["time"].where(fills["order_id"] != first[1], fills["time"].dt.normalize())
    fit = fitted(fills.assign(quantity=quantity, time=time), sessions)
    assert fit.orders == 248
    assert any("1 of 250" in note and "volume" in note for note in fit.notes)
    assert any("1 of 250" in note and "outside" in note for note in fit.notes)


def test_without_variation_of_size_there_is_no_impact(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    seconds = (fills["time"] - fills["time"].dt.normalize()).dt.total_seconds().to_numpy()
    tick = np.searchsorted(sessions.calendar.tick_start, seconds, side="right") - 1
    row = sessions.rows(fills["instrument"], fills["time"].dt.normalize().to_numpy())
    even = fills.assign(quantity=0.05 * sessions.fields["volume"][row, tick])
    fit = fitted(even, sessions)
    assert "hardly vary" in fit.estimates["temporary_impact_bps"].lacks
    assert "temporary_impact_bps" not in fit.rules()


def test_orders_until_the_close_tell_nothing_of_what_stays(small: tuple[pd.DataFrame, Sessions]) -> None:
    fit = fitted(*small, after_minutes=235.0)
    for name in ("permanent_impact_bps", "decay_minutes"):
        assert "before the close" in fit.estimates[name].lacks
    assert "temporary_impact_bps" in fit.rules()


def test_the_price_before_is_the_mid_where_there_are_quotes(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    close = sessions.fields["close"]
    fields = {**sessions.fields, "close": close * 1.01, "bid": close - 0.02, "ask": close + 0.02}
    quoted = dataclasses.replace(sessions, fields=fields)
    mids, trades = (fitted(fills, bars).estimates["half_spread_bps"].interval for bars in (quoted, sessions))
    assert mids.estimate == pytest.approx(trades.estimate)


def test_crowded_orders_are_told(small: tuple[pd.DataFrame, Sessions]) -> None:
    fills, sessions = small
    twin = fills.assign(order_id=fills["order_id"] + "b")
    assert any("250 orders begin while another" in note for note in fitted(pd.concat([fills, twin]), sessions).notes)


def test_an_exact_law_is_found_exactly() -> None:
    rng = np.random.default_rng(0)
    share, days = rng.uniform(0.01, 0.5, 400), np.repeat(np.arange(40), 10).astype("M8[D]")
    for shape, of in SHAPES.items():
        cost = 2.0 + 30.0 * of(share)
        both = designs({name: f(share) for name, f in SHAPES.items()})
        (constant, slope), best, r2 = fit_shape(both, cost, np.ones(400), days, rng=rng, resamples=200)
        assert (best, r2[best]) == (shape, pytest.approx(1.0))
        assert constant.estimate == pytest.approx(2.0)
        assert (slope.lo, slope.estimate, slope.hi) == pytest.approx((30.0, 30.0, 30.0))


def test_the_interval_of_a_constant_is_that_of_the_mean_with_each_day_left_out() -> None:
    """With D days of one size, leaving a day out makes its deviation D / (D - 1) times as large."""
    rng = np.random.default_rng(1)
    values, days = rng.normal(size=300), np.repeat(np.arange(60), 5).astype("M8[D]")
    one = {name: np.ones((300, 1)) for name in SHAPES}
    plain = day_interval(values, days, np.random.default_rng(2), resamples=400)
    (found,), _, _ = fit_shape(
        one, values, np.ones(300), days, robust=False, rng=np.random.default_rng(2), resamples=400
    )
    assert found.estimate == pytest.approx(plain.estimate)
    assert found.hi - found.estimate == pytest.approx((plain.hi - plain.estimate) * 60 / 59)
    assert found.lo - found.estimate == pytest.approx((plain.lo - plain.estimate) * 60 / 59)


def book(*levels: tuple[float, float, float, float]) -> pd.DataFrame:
    names = ("bid_price", "bid_size", "ask_price", "ask_size")
    return pd.DataFrame(
        [{f"{n}_{i}": v for i, level in enumerate(levels, 1) for n, v in zip(names, level, strict=True)}]
    )


def test_a_book_is_walked_by_hand() -> None:
    state = book((99.0, 10, 101.0, 10), (98.0, 10, 103.0, 30))
    # mid 100; 20 shares buy 10 at 101 and 10 at 103: 102 on average; sell at 98.5; 50 are not there
    assert book_walk(state, np.array([5, 10, 20, 40, 41]), 1)[0] == pytest.approx(
        [100, 100, 200, 250, np.nan], nan_ok=True
    )
    assert book_walk(state, np.array([10, 20, 21]), -1)[0] == pytest.approx([100, 150, np.nan], nan_ok=True)
    holes = state.assign(bid_price_2=np.nan)
    assert book_walk(holes, np.array([10, 20]), -1)[0] == pytest.approx([100, np.nan], nan_ok=True)
    assert np.isnan(book_walk(state.assign(ask_price_1=np.nan), np.array([1.0]), 1)).all()
    with pytest.raises(ConfigError, match="ask_price_1"):
        book_walk(pd.DataFrame({"a": [1]}), np.array([1.0]), 1)


@given(
    st.lists(st.tuples(st.floats(0.01, 2.0), st.integers(1, 100)), min_size=1, max_size=6),
    st.lists(st.integers(1, 600), min_size=2, max_size=6),
)
def test_larger_walks_cost_no_less_and_both_sides_of_a_mirrored_book_the_same(
    levels: list[tuple[float, int]], sizes: list[int]
) -> None:
    depth = np.cumsum([gap for gap, _ in levels])
    state = book(*((100.0 - d, size, 100.0 + d, size) for d, (_, size) in zip(depth, levels, strict=True)))
    order = np.sort(sizes).astype(float)
    buy, sell = (book_walk(state, order, side)[0] for side in (1, -1))
    np.testing.assert_allclose(buy, sell, rtol=1e-9, atol=1e-9)
    shown = buy[np.isfinite(buy)]
    assert (np.diff(shown) >= -1e-9).all()
    assert np.isfinite(buy).tolist() == (order <= sum(size for _, size in levels)).tolist()
