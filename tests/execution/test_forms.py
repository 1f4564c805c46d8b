"""Order forms: optional columns of an order table, what they do to fills, and where they are refused."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import OrderError
from rlwb.execution import (
    MPC,
    TWAP,
    CurrentStepStateInterpreter,
    Engine,
    ExecutionRules,
    ExecutionState,
    Order,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
    RandomLiquidity,
    TickRecord,
    align_orders,
    hindsight_table,
    order_table,
    read_orders,
    write_orders,
)
from rlwb.execution.order import COLUMNS, FORMS
from rlwb.experiment.workbench import Workbench
from rlwb.market import Sessions
from rlwb.policy import Informed
from tests.execution.markets import run, sessions_of
from tests.execution.specification import SpecifiedOrder, ticks_of
from tests.execution.test_baselines_hindsight import assert_not_beaten, played
from tests.execution.test_benchmark import JUDGED, ROUNDING_BP
from tests.execution.test_benchmark import played as judged_play
from tests.execution.test_engine import batch_of, problems
from tests.execution.test_properties import IMPACT, SCHEDULES, finish
from tests.experiment.test_work import tiny

SESSIONS = sessions_of([[10.0, 11.0, 12.0, 13.0, 14.0, 15.0]] * 2)
ROWS = pd.DataFrame(
    {"instrument": "AAA", "date": ["2024-01-01", "2024-01-02"], "direction": "BUY", "amount": [5.0, 6.0]}
)


def test_a_form_goes_through_table_file_batch_and_state_and_back(tmp_path: Path) -> None:
    table = order_table(ROWS.assign(Aversion=["", "1e-6"]), SESSIONS.calendar)
    assert list(table) == [*COLUMNS, "aversion"]
    for name in ("orders.parquet", "orders.csv"):
        if name.endswith("csv"):
            table.to_csv(tmp_path / name, index=False)
        else:
            write_orders(tmp_path / name, table)
        pd.testing.assert_frame_equal(read_orders(tmp_path / name, SESSIONS.calendar), table)
    batch = align_orders(table, SESSIONS)
    assert [one.aversion for one in batch] == [None, 1e-6]
    assert align_orders(list(batch), SESSIONS).fingerprint == batch.fingerprint
    assert repr(batch[1]).endswith("open to close, aversion 1e-06>")
    known = ExecutionState.start(Engine(SESSIONS, 2), batch).known
    assert known.aversion.tolist() == [0.0, 1e-6]
    assert known[1].aversion == 1e-6
    assert known[np.array([1])].aversion.tolist() == [1e-6]


def test_without_a_form_nothing_is_different(tmp_path: Path) -> None:
    plain = order_table(ROWS, SESSIONS.calendar)
    empty = order_table(ROWS.assign(**dict.fromkeys(FORMS, "")), SESSIONS.calendar)
    pd.testing.assert_frame_equal(plain, empty)
    written = []
    for table in (plain, empty):
        write_orders(tmp_path / "orders.parquet", table)
        written.append((tmp_path / "orders.parquet").read_bytes())
    assert written[0] == written[1]
    batch = align_orders(plain, SESSIONS)
    stated = align_orders(order_table(ROWS.assign(aversion=1.0), SESSIONS.calendar), SESSIONS)
    assert batch.fingerprint == align_orders(empty, SESSIONS).fingerprint != stated.fingerprint
    assert batch.forms == {}
    np.testing.assert_array_equal(ExecutionState.start(Engine(SESSIONS, 2), batch).known.aversion, [0.0, 0.0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aversion", -1.0),
        ("aversion", math.inf),
        ("aversion", "much"),
        ("limit_price", 0.0),
        ("would_price", -2.0),
        ("min_participation", 1.5),
        ("max_participation", 0.0),
        ("notional", math.inf),
        ("latest_end", "noon"),
    ],
)
def test_an_impossible_form_is_refused_with_row_and_value(name: str, value: Any) -> None:
    with pytest.raises(OrderError, match="row 1 .AAA.: " + name) as refusal:
        order_table(ROWS.assign(**{name: pd.Series([None, value], dtype=object)}), SESSIONS.calendar)
    assert repr(value) in str(refusal.value)
    with pytest.raises(OrderError, match=f"{name} {value!r} of AAA"):
        Order("AAA", "2024-01-02", "BUY", 5.0, **{name: value})  # type: ignore[arg-type]


def test_a_least_participation_above_the_most_is_refused() -> None:
    both = {"min_participation": 0.2, "max_participation": 0.1}
    with pytest.raises(OrderError, match=r"row 0 .*min_participation 0\.2 is above"):
        order_table(ROWS.assign(**both), SESSIONS.calendar)
    with pytest.raises(OrderError, match=r"min_participation 0\.2 of AAA is above"):
        Order("AAA", "2024-01-02", "BUY", 5.0, **both)  # type: ignore[arg-type]


def batch_with(orders: list[tuple[int, float, int, int]], forms: dict[str, Any], latest: Any = None) -> OrderBatch:
    """Orders of the second session that state the forms, and may go on until `latest`."""
    plain = batch_of(orders)
    source = {name: plain.source[name].to_numpy() for name in COLUMNS} | {
        name: np.broadcast_to(np.asarray(value, dtype=float), len(orders)) for name, value in forms.items()
    }
    if latest is None:
        return dataclasses.replace(plain, source=source)
    return dataclasses.replace(plain, source=source, latest_end=np.array(latest, dtype=np.int32))


@st.composite
def formed(draw: st.DrawFn) -> tuple[Sessions, ExecutionRules, int, OrderBatch, np.ndarray, dict[str, np.ndarray]]:
    """A problem whose orders state some forms each."""
    sessions, rule, ticks_per_step, orders, shares = draw(problems())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    drawn = {
        "limit_price": rng.choice([8.0, 9.0, 10.0, 11.0, 12.3], len(orders)),
        "would_price": rng.choice([7.0, 9.0, 10.0, 11.0], len(orders)),
        "min_participation": rng.choice([0.02, 0.1, 1.0], len(orders)),
        "max_participation": rng.choice([0.05, 0.2, 1.0], len(orders)),
    }
    names = rng.choice(sorted(drawn), rng.integers(1, 4), replace=False).tolist()
    forms = {name: np.where(rng.random(len(orders)) < 0.7, drawn[name], np.nan) for name in names}
    last = sessions.calendar.num_ticks
    latest = [int(rng.integers(end, last + 1)) for *_, end in orders] if draw(st.booleans()) else None
    return sessions, rule, ticks_per_step, batch_with(orders, forms, latest), np.array(shares), forms


@settings(max_examples=400, deadline=None)
@given(formed())
def test_the_engine_equals_the_specification_exactly(problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rule, ticks_per_step, batch, shares, forms = problem
    engine, ticks = Engine(sessions, ticks_per_step, rule), ticks_of(sessions, 1, rule)
    limits = (9.0 + 1e-7, 11.0 - 1e-7) if rule.price_limit else (-math.inf, math.inf)
    specified = [
        SpecifiedOrder(
            ticks,
            engine.cell.tolist(),
            int(batch.side[i]),
            float(batch.amount[i]),
            int(batch.start[i]),
            int(batch.latest_end[i]),
            rule,
            limits,
            {name: float(values[i]) for name, values in forms.items()},
        )
        for i in range(len(batch))
    ]
    state, record, room = engine.reset(batch), TickRecord.empty(len(batch), len(ticks)), engine.room(batch)
    steps = np.zeros(len(batch), dtype=int)
    for step in range(len(ticks)):
        assert state.done.tolist() == [one.done for one in specified]
        if state.done.all():
            break
        ask = shares[:, step] * np.where(state.done, 0.0, state.position)
        steps += ~state.done
        state, fills = engine.step(batch, state, ask, record)
        for i, one in enumerate(specified):
            assert fills.fill[i] == (0.0 if one.done else one.step(float(ask[i])))
        assert state.position.tolist() == [one.position for one in specified]
        assert state.permanent_impact.tolist() == [one.moved for one in specified]
    assert state.done.all()
    assert (steps <= engine.num_steps(batch)).all()
    np.testing.assert_allclose(record.fill.sum(axis=1) + state.position, batch.amount, rtol=1e-12)
    assert (record.fill <= room * (1 + 1e-9)).all()
    for i, one in enumerate(specified):
        inside = range(int(batch.start[i]), int(batch.latest_end[i]))
        priced = [t for t in inside if ticks[t].priced]
        assert room[i].tolist() == [one.room(t) if t in priced else 0.0 for t in range(len(ticks))]


@settings(max_examples=400, deadline=None)
@given(formed(), st.integers(0, 2**32 - 1))
def test_no_policy_beats_the_ceiling(problem: tuple, seed: int) -> None:  # type: ignore[type-arg]
    sessions, rule, ticks_per_step, batch, shares, _ = problem
    engine, rng = Engine(sessions, ticks_per_step, rule), np.random.default_rng(seed)
    steps = (len(batch), engine.max_step)
    for asked in (shares, np.zeros(steps), np.ones(steps), rng.random(steps) ** 4, rng.integers(0, 2, steps)):
        assert_not_beaten(engine, batch, played(engine, batch, asked))


@settings(max_examples=200, deadline=None)
@given(formed(), JUDGED, st.integers(0, 2**32 - 1))
def test_no_policy_passes_the_ceiling_by_any_benchmark(problem: tuple, judged: dict[str, Any], seed: int) -> None:  # type: ignore[type-arg]
    """Whatever counts for what a form keeps open."""
    sessions, rule, ticks_per_step, batch, shares, _ = problem
    engine = Engine(sessions, ticks_per_step, dataclasses.replace(rule, **judged))
    found, rng = engine.benchmarks(batch), np.random.default_rng(seed)
    have = np.isfinite(found.twap) & np.isfinite(found.benchmark)
    batch, shares = batch[have], shares[have]
    ceiling = hindsight_table(engine, batch)["pa"].to_numpy()
    for asked in (shares, np.zeros(shares.shape), rng.integers(0, 2, shares.shape).astype(float)):
        figures, _ = judged_play(engine, batch, asked, PAPenaltyReward())
        share = np.ones(len(batch)) if engine.rules.values_unfilled else figures["ffr"]
        slack = ROUNDING_BP * np.maximum(1.0, 1e-2 / np.maximum(share, 1e-300))
        some = np.isfinite(figures["pa"])
        assert (figures["pa"][some] <= (ceiling + slack)[some]).all()


PRICES = [10.0, 11.0, 12.0, 11.0, 9.0, 10.0]


def filled(amount: float, rules: ExecutionRules | None = None, *, side: str = "BUY", **forms: Any) -> pd.DataFrame:
    """Ticks of one order by TWAP over six minutes of 1000 shares each, in steps of two; a sell sees 20 less the prices.

    Prices among the forms are those of the buy.
    """
    prices = np.array(PRICES)
    if side == "SELL":
        prices = 20.0 - prices
        forms = {name: 20.0 - value if name.endswith("price") else value for name, value in forms.items()}
    one = Order("AAA", "2024-01-01", side, amount, **forms)  # type: ignore[arg-type]
    return run(sessions_of([prices]), [one], 2, TWAP, rules)[0]


CAPPED = ExecutionRules(volume_limit=0.1)
CASES: dict[str, tuple[float, ExecutionRules | None, dict[str, Any], list[float], dict[int, str]]] = {
    # 100 a step and 50 a tick; 12 is too dear, so that the last step has 150 to trade.
    "limit": (
        300.0,
        None,
        {"limit_price": 11.0},
        [50.0, 50.0, 0.0, 50.0, 75.0, 75.0],
        {2: "limit price"},
    ),
    "limit that all but two ticks miss": (
        300.0,
        None,
        {"limit_price": 9.5},
        [0.0, 0.0, 0.0, 0.0, 150.0, 0.0],
        {0: "limit price", 5: "limit price"},
    ),
    # At 9 all that is left is asked for.
    "would": (300.0, None, {"would_price": 9.0}, [50.0, 50.0, 50.0, 50.0, 100.0, 0.0], {}),
    # At 10 all 300 are asked for and 100 filled; the second step trades half of the 150 left, the third 75 at 9.
    "would under a cap": (
        300.0,
        CAPPED,
        {"would_price": 10.0},
        [100.0, 50.0, 37.5, 37.5, 75.0, 0.0],
        {0: "volume cap"},
    ),
    # 6 % of 1000 a tick at least, so that 60 are asked for where 50 are due, and the end comes sooner.
    "min": (300.0, None, {"min_participation": 0.06}, [60.0, 60.0, 60.0, 60.0, 60.0, 0.0], {}),
    "min under a cap": (
        300.0,
        ExecutionRules(volume_limit=0.055),
        {"min_participation": 0.06},
        [55.0] * 5 + [25.0],
        {},
    ),
    # 2 % of 1000 a tick at most, which leaves 180 of 300 open.
    "max": (300.0, None, {"max_participation": 0.02}, [20.0] * 6, {0: "max participation", 5: "max participation"}),
    "the tighter of two caps": (900.0, CAPPED, {"max_participation": 0.2}, [100.0] * 6, {0: "volume cap"}),
    # Lots of 7: a cap of 20 is two of them.
    "max in lots": (300.0, ExecutionRules(lot_size=7.0), {"max_participation": 0.02}, [14.0] * 6, {}),
    "limit and would": (
        300.0,
        None,
        {"limit_price": 11.0, "would_price": 9.0},
        [50.0, 50.0, 0.0, 50.0, 150.0, 0.0],
        {2: "limit price"},
    ),
    "limit and min": (
        300.0,
        None,
        {"limit_price": 11.0, "min_participation": 0.06},
        [60.0, 60.0, 0.0, 60.0, 60.0, 60.0],
        {2: "limit price"},
    ),
    "would and max": (
        300.0,
        None,
        {"would_price": 9.0, "max_participation": 0.08},
        [50.0, 50.0, 50.0, 50.0, 80.0, 20.0],
        {4: "max participation"},
    ),
    "min and max": (
        300.0,
        None,
        {"min_participation": 0.055, "max_participation": 0.055},
        [55.0] * 5 + [25.0],
        {},
    ),
    "limit and max": (
        300.0,
        None,
        {"limit_price": 11.0, "max_participation": 0.02},
        [20.0, 20.0, 0.0, 20.0, 20.0, 20.0],
        {2: "limit price", 3: "max participation"},
    ),
    "would and min": (300.0, None, {"would_price": 9.0, "min_participation": 0.06}, [60.0] * 5 + [0.0], {}),
    # 10 % of 1000 is three lots of 30.
    "min in lots": (
        300.0,
        ExecutionRules(lot_size=30.0),
        {"min_participation": 0.1},
        [90.0, 90.0, 90.0, 30.0, 0.0, 0.0],
        {},
    ),
    # An order of 45 in lots of 20: 5 trade at the would price with the rest, as they would at the end.
    "would with an odd lot": (
        45.0,
        ExecutionRules(lot_size=20.0),
        {"would_price": 9.0},
        [0.0, 20.0, 0.0, 0.0, 25.0, 0.0],
        {},
    ),
}


@pytest.mark.parametrize("side", ["BUY", "SELL"])
@pytest.mark.parametrize("case", list(CASES))
def test_fills_by_hand(case: str, side: str) -> None:
    amount, rules, forms, expected, constraints = CASES[case]
    ticks = filled(amount, rules, side=side, **forms)
    got = ticks["filled"].tolist()
    assert got + [0.0] * (6 - len(got)) == pytest.approx(expected)
    assert {tick: ticks["constraint"][tick] for tick in constraints} == constraints


def test_what_is_open_at_the_end_goes_on_until_the_latest_end() -> None:
    """300 in two minutes under a cap of 100 a minute; TWAP asks for all that is left as soon as the end is past."""
    sessions = sessions_of([PRICES])
    one = Order("AAA", "2024-01-01", "BUY", 300.0, "09:30", "09:32", latest_end="09:36")
    plain = Order("AAA", "2024-01-01", "BUY", 300.0, "09:30", "09:32")
    for order_, expected, steps in ((one, [100.0, 100.0, 50.0, 50.0], 2), (plain, [100.0, 100.0], 1)):
        ticks, _, summary = run(sessions, [order_], 2, TWAP, CAPPED)
        assert ticks["filled"].tolist() == expected
        assert summary["num_steps"].tolist() == [steps]
        assert summary["twap"].tolist() == [10.5], "benchmarks are those of the window"
    engine = Engine(sessions, 2, CAPPED)
    state = ExecutionState.start(engine, align_orders([one], sessions))
    seen = []
    while not state.done.all():  # which asks for nothing, so that the rules complete the order as far as they can
        known = state.known
        seen.append((int(known.tick[0]), int(known.ticks_left[0]), bool(known.is_last_step[0])))
        state = state.after(*engine.step(state.orders, state.now, np.zeros(1)))
    assert seen == [(0, 2, False), (2, 0, False), (4, 0, True)]
    assert state.now.filled.tolist() == [100.0], "completion is asked for at the latest end alone"
    assert state.known.latest_end.tolist() == [6]
    assert state.details()["inventory"].shape == (1, engine.max_step + 1)


def test_a_latest_end_before_the_end_is_refused_and_one_after_the_close_is_the_close() -> None:
    for stamps in ({"end": "09:33", "latest_end": "09:32"}, {"end": None, "latest_end": "09:32"}):
        with pytest.raises(OrderError, match="its latest_end is before its end"):
            align_orders([Order("AAA", "2024-01-01", "BUY", 1.0, **stamps)], SESSIONS)  # type: ignore[arg-type]
    table = ROWS.assign(end="09:33", latest_end=["24:00", ""])
    batch = align_orders(order_table(table, SESSIONS.calendar), SESSIONS)
    assert (batch.end.tolist(), batch.latest_end.tolist()) == ([3, 3], [6, 3])
    assert batch[np.array([1])].latest_end.tolist() == [3]
    assert align_orders(list(batch), SESSIONS).fingerprint == batch.fingerprint


def test_a_notional_is_converted_at_the_arrival_price_and_kept() -> None:
    table = order_table(ROWS.assign(amount=["", 7.0], notional=[600.0, ""], start=["09:31", ""]), SESSIONS.calendar)
    assert table["amount"].isna().tolist() == [True, False]
    batch = align_orders(table, SESSIONS)
    assert batch.amount.tolist() == [600.0 / 11.0, 7.0], "the open of the bar that the order begins with"
    assert batch.table["notional"].tolist()[0] == 600.0
    assert align_orders(batch.table, SESSIONS).fingerprint == batch.fingerprint
    assert str(Order("AAA", "2024-01-01", "BUY", notional=600.0)).endswith("BUY for 600 AAA on 2024-01-01")
    lots = align_orders(table[:1], SESSIONS, ExecutionRules(lot_size=10.0))
    assert lots.amount.tolist() == [50.0], "54.5 in whole lots"
    with pytest.raises(OrderError, match="below one lot"):
        align_orders(table[:1], SESSIONS, ExecutionRules(lot_size=100.0))
    with pytest.raises(OrderError, match="not what its notional comes to"):
        align_orders(ROWS.assign(notional=600.0), SESSIONS)
    only = ROWS.drop(columns="amount").assign(notional=600.0)
    assert align_orders(only, SESSIONS).amount.tolist() == [60.0, 60.0]
    with pytest.raises(OrderError, match=r"row 1 .*amount"):
        order_table(ROWS.assign(amount="", notional=[600.0, ""]), SESSIONS.calendar)


class Own(OrderExecution):
    """Fills the request at the first tick of the step."""

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        return super().step(state, action)


class Honest(Own):
    forms = frozenset({"limit_price"})


def test_a_simulator_that_does_not_honour_a_form_refuses_the_orders_that_state_it() -> None:
    engine = Engine(SESSIONS, 2)
    table = ROWS.assign(limit_price=[None, 11.0], aversion=1.0)
    with pytest.raises(OrderError, match=r"AAA-20240102-B .*the simulator does not honour its limit_price"):
        Own(engine).align(table)
    for simulator in (OrderExecution(engine), RandomLiquidity(engine), Honest(engine)):
        assert len(simulator.align(table)) == 2
    with pytest.raises(OrderError, match="does not honour its would_price"):
        Honest(engine).align(ROWS.assign(would_price=11.0))
    assert len(Own(engine).align(ROWS.assign(limit_price=""))) == 2
    kept = align_orders(table, SESSIONS, forms=(), on_refused="drop")
    assert len(kept) == 1


def test_a_form_that_cannot_act_is_told() -> None:
    engine = Engine(SESSIONS, 2, CAPPED)

    def told(**forms: Any) -> str:
        return " ".join(engine.idle_rules(align_orders(ROWS.assign(**forms), SESSIONS)))

    assert told() == told(limit_price=10.0, would_price=10.0, max_participation=[0.2, 0.05]) == ""
    assert "limit_price: 1 of 2 orders" in told(limit_price=[10.0, 9.9])
    assert "would_price: 2 of 2 orders" in told(would_price=9.9)
    assert "max_participation: no order's" in told(max_participation=[0.2, None])
    assert "latest_end: no order's" in told(end="09:33", latest_end="09:33")


def test_under_quotes_a_limit_is_of_what_is_paid() -> None:
    """Bid 9.99 and ask 10.01: a buy limit of 10.01 fills, one of 10 does not; a sell by the bid."""
    plain = sessions_of([[10.0] * 4])
    fields = {**plain.fields, "bid": np.full((1, 4), 9.99), "ask": np.full((1, 4), 10.01)}
    sessions = Sessions(plain.calendar, plain.instruments, plain.dates, plain.num_ticks, fields)
    for side, limit, share in (("BUY", 10.01, 1.0), ("BUY", 10.0, 0.0), ("SELL", 9.99, 1.0), ("SELL", 10.0, 0.0)):
        one = Order("AAA", "2024-01-01", side, 8.0, limit_price=limit)  # type: ignore[arg-type]
        assert run(sessions, [one], 2, TWAP, ExecutionRules(price_field="quotes"))[2]["ffr"].tolist() == [share]


BASELINES = {**SCHEDULES, "mpc": partial(MPC, forecast=None, impact=IMPACT, risk_aversion=50.0)}


@pytest.mark.parametrize("name", list(BASELINES))
@settings(max_examples=60, deadline=None)
@given(formed())
def test_every_baseline_trades_orders_with_forms_to_their_end(name: str, problem: tuple) -> None:  # type: ignore[type-arg]
    sessions, rule, ticks_per_step, batch, _, _ = problem
    engine = Engine(sessions, ticks_per_step, rule)
    state = finish(ExecutionState.start(engine, batch), BASELINES[name](engine))
    assert_not_beaten(engine, batch, state.now)
    assert (state.tick_record().fill <= engine.room(batch) * (1 + 1e-9)).all()
    assert (state.now.step <= state.num_steps).all()


def test_a_schedule_that_leaves_out_the_close_goes_on_after_the_end() -> None:
    one = Order("AAA", "2024-01-01", "BUY", 300.0, "09:30", "09:32", latest_end="09:36")
    for minutes, expected in ((0, [100.0, 100.0, 50.0, 50.0]), (2, [100.0, 100.0, 50.0, 50.0]), (4, [100.0, 100.0])):
        rules = ExecutionRules(volume_limit=0.1, complete_at_end=False)
        ticks = run(sessions_of([PRICES]), [one], 2, partial(TWAP, skip_close=minutes), rules)[0]
        assert ticks["filled"].tolist()[: len(expected)] == expected
        assert ticks["filled"].sum() == sum(expected)


def test_a_state_interpreter_tells_forms_as_numbers() -> None:
    """After two of six minutes at 10 and 11: 12.1 is 10 % above 11, 11.55 is 5 % and 9.9 is 10 % below."""
    table = pd.DataFrame(
        {
            "instrument": "AAA",
            "date": "2024-01-01",
            "direction": ["BUY", "SELL", "BUY", "BUY"],
            "amount": 60.0,
            "end": ["09:33", "", "", ""],
            "latest_end": ["09:36", "", "", ""],
            "limit_price": [11.55, 11.55, None, 100.0],
            "would_price": [9.9, 12.1, None, None],
            "min_participation": [0.01, None, None, None],
            "max_participation": [0.02, 0.25, None, None],
        }
    )
    sessions = sessions_of([PRICES])
    engine = Engine(sessions, 2)
    simulator = OrderExecution(engine)
    sees = CurrentStepStateInterpreter(engine.max_step, forms=True)
    state = simulator.start(simulator.align(table), np.zeros(4, dtype=np.uint64))  # type: ignore[arg-type]
    first = sees.interpret(state.known)["forms"]
    np.testing.assert_allclose(first[0], [1, 0, 1, 0, 0.01, 0.02, 0.5], rtol=1e-6)
    state = simulator.step(state, np.zeros(4))
    numbers = sees.interpret(state.known)["forms"]
    expected = [
        [1, 5, 1, -10, 0.01, 0.02, 0.5],
        [1, -5, 1, -10, 0, 0.25, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [1, 10, 0, 0, 0, 0, 0],
    ]
    np.testing.assert_allclose(numbers, expected, rtol=1e-5)
    assert sees.observation_space["forms"].contains(numbers[3])
    assert "forms" not in CurrentStepStateInterpreter(engine.max_step).interpret(state.known)


def test_a_run_can_learn_from_forms() -> None:
    bench = Workbench(tiny(**{"state_interpreter.forms": True}))
    features = bench.features(bench.make_orders()[0]["train"])
    assert any(isinstance(part, Informed) for part in bench.learner(features).network.modules())  # type: ignore[attr-defined]
    plain = Workbench(tiny()).learner(features)
    assert not any(isinstance(part, Informed) for part in plain.network.modules())  # type: ignore[attr-defined]
