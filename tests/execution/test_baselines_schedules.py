"""TWAP, VWAP and POV: figures by hand."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, OrderError
from rlwb.execution import (
    MPC,
    POV,
    TWAP,
    VWAP,
    AlmgrenChriss,
    BertsimasLo,
    Engine,
    ExecutionRules,
    ImpactParameters,
    SignalParameters,
)
from rlwb.execution.metrics import order_metrics
from rlwb.execution.state import ExecutionState
from rlwb.market import Sessions
from tests.execution.markets import order, run, sessions_of
from tests.execution.test_engine import batch_of


@pytest.mark.parametrize("ticks_per_step", [1, 3, 5, 12])
def test_twap_has_no_advantage_in_any_window(ticks_per_step: int) -> None:
    """All 78 windows of a day with a lunch break and two gaps, buys and sells; 1e-9 bp is rounding."""
    price = np.random.default_rng(3).uniform(5, 15, size=(1, 12))
    price[0, [4, 9]] = math.nan
    clock = (("09:30", "09:37"), ("13:00", "13:05"))
    engine = Engine(sessions_of(price, segments=clock), ticks_per_step)  # type: ignore[arg-type]
    windows = [(side, 7.0, a, b) for side in (1, -1) for a in range(12) for b in range(a + 1, 13)]
    state, policy = ExecutionState.start(engine, batch_of(windows, 0)), TWAP(engine)
    while not state.now.done.all():
        state = state.after(
            *engine.step(state.orders, state.now, np.where(state.now.done, 0.0, policy.act(state.known)))
        )
    pa = order_metrics(state.orders, state.now, state.benchmarks, engine.rules)["pa"]
    priced = np.array([np.isfinite(price[0, a:b]).any() for _, _, a, b in windows])
    assert np.isnan(pa[~priced]).all()
    np.testing.assert_allclose(pa[priced], 0.0, atol=1e-9)


def test_vwap_follows_the_shares_of_earlier_days_alone() -> None:
    """Shares of 1/2, 1/4, 1/8, 1/8 on a busy day and 1/4 each on a calm one, and a session that is not looked at."""
    volume = [[9000.0, 0, 0, 0], [4000.0, 2000, 1000, 1000], [10.0] * 4, [1.0, 1, 1, 997]]
    sessions = sessions_of([[10.0] * 4] * 4, volume)
    assert run(sessions, [order(160.0, day=4)], 1, partial(VWAP, days=2))[1]["fill"].tolist() == [
        60.0,
        40.0,
        30.0,
        30.0,
    ]
    assert run(sessions, [order(160.0, day=2)], 1, partial(VWAP, days=2))[1]["fill"].tolist() == [160.0]
    assert run(sessions, [order(160.0, day=1)], 1, partial(VWAP, days=2))[1]["fill"].tolist() == [40.0] * 4


def test_pov_forecasts_by_earlier_days_and_makes_up_for_what_it_missed() -> None:
    """Usual volumes are 100, 200, 300, 400; today brings twice as much, which is known from the second minute on.

    At a rate of a tenth: 10 are due by the forecast of 100. Then 20 are due for the 200 that came and 2 * 200 / 10 for
    the forecast, less the 10 that are done; then (200 + 400 + 600) / 10 - 60.
    """
    sessions = sessions_of([[10.0] * 4] * 3, [[50.0, 100, 150, 200], [150.0, 300, 450, 600], [200.0, 400, 600, 800]])
    _, steps, _ = run(sessions, [order(1000.0, day=3)], 1, partial(POV, rate=0.1, days=2))
    np.testing.assert_allclose(steps["fill"], [10.0, 50.0, 60.0, 880.0])
    _, steps, _ = run(sessions, [order(100.0, day=3)], 1, partial(POV, rate=0.1, days=2))
    np.testing.assert_allclose(steps["fill"], [10.0, 50.0, 40.0], err_msg="it ends where the order is filled")


def test_pov_without_earlier_days_takes_todays_mean() -> None:
    """Nothing is known at first: an even part. Then 300 and (300 + 100) / 2 a minute are the forecasts."""
    sessions = sessions_of([[10.0] * 4], [[300.0, 100.0, 200.0, 500.0]])
    _, steps, _ = run(sessions, [order(400.0)], 1, partial(POV, rate=0.25))
    np.testing.assert_allclose(steps["fill"], [100.0, 0.25 * 600 - 100, 0.25 * (400 + 200) - 150, 250.0])


def test_pov_of_its_own_rate_ends_with_the_window_on_a_day_as_usual() -> None:
    """100 of 1000 usual shares is a tenth; from the second minute on of 900, a ninth; and today is as usual."""
    usual = [100.0, 200, 300, 400]
    sessions = sessions_of([[10.0] * 4] * 2, [usual, usual])
    _, steps, _ = run(sessions, [order(100.0, day=2)], 1, POV)
    np.testing.assert_allclose(steps["fill"], [10.0, 20.0, 30.0, 40.0])
    _, steps, _ = run(sessions, [order(90.0, day=2, start="09:31")], 2, POV)
    np.testing.assert_allclose(steps["fill"], [20.0, 70.0])


def test_pov_makes_up_for_what_a_cap_cut() -> None:
    """The forecast of the first minute asks for 50 of which the cap leaves 10."""
    sessions = sessions_of([[10.0] * 3] * 2, [[500.0, 500, 500], [20.0, 500, 500]])
    _, steps, _ = run(sessions, [order(150.0, day=2)], 1, partial(POV, rate=0.1), ExecutionRules(volume_limit=0.5))
    assert steps["fill"].iloc[0] == 10.0
    assert steps["requested"].iloc[1] == pytest.approx(0.0), (
        "a 25th of the usual is expected from here on: 0.1 * 40 < 10"
    )


def test_a_volume_that_is_missing_counts_as_none() -> None:
    sessions = sessions_of([[10.0] * 3] * 2, [[100.0, math.nan, 300], [100.0, math.nan, 300]])
    assert run(sessions, [order(40.0, day=2)], 1, VWAP)[1]["fill"].tolist() == [10.0, 0.0, 30.0]
    np.testing.assert_allclose(run(sessions, [order(40.0, day=2)], 1, POV)[1]["fill"], [10.0, 0.0, 30.0])


@pytest.mark.parametrize("kind", [POV, VWAP])
@pytest.mark.parametrize("days", [0, -1, 2.0, True, "3", None])
def test_days_are_a_whole_number(kind: type, days: object) -> None:
    engine = Engine(sessions_of([[10.0] * 2]), 1)
    with pytest.raises(ConfigError, match="give the number of earlier sessions to look back to, 1 or more"):
        kind(engine, days=days)
    assert kind(engine, days=np.int64(3)).days == 3


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, math.nan])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(ConfigError, match="the participation rate is"):
        POV(Engine(sessions_of([[10.0] * 2]), 1), rate)


def test_days_look_back_no_further_than_the_instruments_first_session() -> None:
    sessions: Sessions = sessions_of([[10.0] * 2] * 2, [[100.0, 300.0], [1.0, 1.0]])
    assert run(sessions, [order(40.0, day=2)], 1, partial(VWAP, days=10**9))[1]["fill"].tolist() == [10.0, 30.0]


def test_pov_reads_earlier_volumes_in_shares_of_today() -> None:
    """Overnight a share became two: 100, 200, 300, 400 of yesterday are 200, 400, 600, 800 of today."""
    plain = sessions_of([[10.0] * 4] * 2, [[100.0, 200, 300, 400], [200.0, 400, 600, 800]])
    factor = np.array([1.0, 2.0])
    parts = (plain.calendar, plain.instruments, plain.dates, plain.num_ticks, dict(plain.fields))
    sessions = Sessions(*parts, factor=factor)
    _, steps, _ = run(sessions, [order(1000.0, day=2)], 1, partial(POV, rate=0.1))
    np.testing.assert_allclose(steps["fill"], [20.0, 40.0, 60.0, 880.0])
    _, steps, _ = run(plain, [order(1000.0, day=2)], 1, partial(POV, rate=0.1))
    np.testing.assert_allclose(steps["fill"].iloc[0], 10.0)


@pytest.mark.filterwarnings("error")
def test_pov_stands_volumes_next_to_nothing() -> None:
    """100 over 1e-310 is more than a number holds: everything at once."""
    for volume in ([[1e-310] * 4, [1e-310] * 4], [[1e-310] * 4, [1000.0] * 4]):
        _, steps, summary = run(sessions_of([[10.0] * 4] * 2, volume), [order(100.0, day=2)], 1, POV)
        assert summary["ffr"].iloc[0] == 1.0
        assert steps["fill"].iloc[0] > 0


def test_pov_makes_up_for_what_its_cap_cut_within_the_cap() -> None:
    """500 a minute are usual; today's first minute brings 2000, of which a fifth is due, and a quarter is the most.

    A fifth of 500 is asked for at first. Then 0.2 * (2000 + 4 * 500) - 100 = 700 are due, and a quarter of 2000 is 500;
    with 500 in the second minute 0.2 * (2500 + 1250) - 600 = 150. A quarter of nothing is nothing.
    """
    sessions = sessions_of([[10.0] * 5] * 2, [[500.0] * 5, [2000.0, 500.0, 500.0, 0.0, 0.0]])
    policy, rules = partial(POV, rate=0.2, cap=0.25), ExecutionRules(complete_at_end=False)
    _, steps, orders = run(sessions, [order(5000.0, day=2)], 1, policy, rules)
    asked = [100.0, 500.0]
    done = [2000.0, 2500.0, 3000.0, 3000.0, 3000.0]
    for minute in (2, 3, 4):
        to_come = 500.0 * done[minute - 1] / (500.0 * minute)
        asked.append(max(min(0.2 * (done[minute - 1] + to_come) - sum(asked), 0.25 * to_come), 0.0))
    np.testing.assert_allclose(steps["fill"], asked)
    assert orders["filled"].iloc[0] < 5000.0, "the last step asks for what is due where nothing completes the order"
    _, steps, _ = run(sessions, [order(5000.0, day=2)], 1, policy)
    assert steps["position"].iloc[-1] == 0.0, "and for everything where the rules complete it"


def test_a_capped_pov_waits_until_it_can_forecast() -> None:
    _, steps, _ = run(sessions_of([[10.0] * 3], [[100.0] * 3]), [order(300.0)], 1, partial(POV, rate=0.5, cap=0.5))
    assert steps["fill"].tolist() == [0.0, 50.0, 250.0]
    _, steps, _ = run(sessions_of([[10.0] * 3], [[100.0] * 3]), [order(300.0)], 1, partial(POV, rate=0.5))
    assert steps["fill"].tolist() == [100.0, 0.0, 200.0]


@pytest.mark.parametrize("settings", [{"cap": 0.0}, {"cap": 1.1}, {"cap": 0.1, "rate": 0.2}, {"cap": math.nan}])
def test_caps_that_cannot_hold_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"the cap is {settings['cap']}"):
        POV(Engine(sessions_of([[10.0] * 4]), 1), **settings)


SKIPPING = {
    "twap": TWAP,
    "vwap": partial(VWAP, days=1),
    "pov": partial(POV, rate=1.0, days=1),
    "almgren_chriss": partial(
        AlmgrenChriss, risk_aversion=0.0, impact=ImpactParameters(("AAA",), (100.0,), (0.01,), (0.02,), (0.01,))
    ),
}


@pytest.mark.parametrize("name", list(SKIPPING))
def test_minutes_at_open_and_close_are_left_out(name: str) -> None:
    """Of 8 minutes the first two and the last, and of a day that closes after 6 its fifth and sixth: 5 and 3 remain."""
    sessions = sessions_of([[10.0] * 8] * 3, 60.0, num_ticks=[8, 8, 6])
    policy = partial(SKIPPING[name], skip_open=2, skip_close=1)
    fill = run(sessions, [order(300.0, day=2)], 1, policy)[1]["fill"]
    np.testing.assert_allclose(fill, [0, 0, *[60.0] * 5], atol=1e-9)
    fill = run(sessions, [order(180.0, day=3)], 1, policy)[1]["fill"]
    np.testing.assert_allclose(fill, [0, 0, *[60.0] * 3], atol=1e-9)
    fill = run(sessions, [order(120.0, day=2, start="09:33", end="09:35")], 1, policy)[1]["fill"]
    np.testing.assert_allclose(fill, [60.0] * 2, atol=1e-9)


@pytest.mark.parametrize(
    ("segments", "skipped", "expected"),
    [
        (None, (1.0, 0.0), [0, 100, 100, 100]),
        (None, (0.5, 3.2), [0, 300]),
        ((("09:30", "09:35"), ("13:00", "13:07")), (5.0, 4.0), [0, 0, 300]),
    ],
)
def test_a_step_that_reaches_into_skipped_minutes_trades_nothing(
    segments: Any, skipped: tuple[float, float], expected: list[float]
) -> None:
    """12 minutes in steps of 3, or in steps of 3, 2, 3, 3 and 1 around a break."""
    sessions = sessions_of([[10.0] * 12], segments=segments)
    policy = partial(TWAP, skip_open=skipped[0], skip_close=skipped[1])
    np.testing.assert_allclose(run(sessions, [order(300.0)], 3, policy)[1]["fill"], expected, atol=1e-9)


def test_what_is_cut_is_asked_for_in_the_last_step_where_the_rules_complete() -> None:
    sessions = sessions_of([[10.0] * 6], [[1e3, 1e3, 1e3, 10.0, 1e3, 1e3]])
    policy = partial(TWAP, skip_close=2)
    for completes, last in ((True, [0.0, 95.0]), (False, [0.0, 0.0])):
        rules = ExecutionRules(volume_limit=0.5, complete_at_end=completes)
        fill = run(sessions, [order(400.0)], 1, policy, rules)[1]["fill"]
        np.testing.assert_allclose(fill, [100.0, 100.0, 100.0, 5.0, *last])


def test_skipping_all_of_a_session_or_window_is_refused() -> None:
    sessions = sessions_of([[10.0] * 8])
    engine = Engine(sessions, 2)
    for settings, named in (((5, 3), "nothing"), ((-1, 0), "skip_open"), ((0, math.inf), "skip_close")):
        with pytest.raises(ConfigError, match=named):
            TWAP(engine, *settings)
    policy = TWAP(engine, skip_open=3)
    policy.check(batch_of([(1, 5.0, 0, 8), (1, 5.0, 3, 5)], 0))
    with pytest.raises(OrderError, match=r"AAA on 2024-01-01.*09:31"):
        policy.check(batch_of([(1, 5.0, 0, 8), (1, 5.0, 1, 4)], 0))
    with pytest.raises(OrderError, match="AAA"):
        run(sessions, [order(5.0, end="09:33")], 2, policy)


@pytest.mark.parametrize("name", [*SKIPPING, "bertsimas_lo", "mpc"])
@pytest.mark.parametrize("ticks_per_step", [1, 4])
def test_with_a_flexible_end_schedules_are_of_the_window_and_the_rest_follows(name: str, ticks_per_step: int) -> None:
    """Four minutes and four more; a cap of 20 a minute leaves 40 of 120, which the fifth and sixth minute take."""
    impact = ImpactParameters(("AAA",), (100.0,), (0.01,), (0.02,), (0.01,))
    more = {
        "bertsimas_lo": partial(BertsimasLo, impact=impact, signal=SignalParameters(0.0, 0.0)),
        "mpc": partial(MPC, impact=impact, risk_aversion=0.0, forecast=None),
    }
    sessions = sessions_of([[10.0] * 8] * 2, 40.0)
    end, latest = (pd.Timestamp(f"2024-01-02 09:{minute}") for minute in (34, 38))
    flexible = dataclasses.replace(order(120.0, day=2), end=end, latest_end=latest)
    policy = (SKIPPING | more)[name]
    _, steps, _ = run(sessions, [flexible], ticks_per_step, policy, ExecutionRules(volume_limit=0.5))
    filled = steps["fill"].to_numpy()
    np.testing.assert_allclose(filled, [20.0] * 6 if ticks_per_step == 1 else [80.0, 40.0], atol=1e-6)


def test_skipped_minutes_at_the_close_cut_a_flexible_end() -> None:
    sessions = sessions_of([[10.0] * 8] * 2, 40.0)
    end, latest = (pd.Timestamp(f"2024-01-02 09:{minute}") for minute in (34, 38))
    flexible = dataclasses.replace(order(120.0, day=2), end=end, latest_end=latest)
    rules = ExecutionRules(volume_limit=0.5, complete_at_end=False)
    fill = run(sessions, [flexible], 1, partial(TWAP, skip_close=3), rules)[1]["fill"]
    np.testing.assert_allclose(fill, [*[20.0] * 5, 0.0, 0.0, 0.0], atol=1e-9)
