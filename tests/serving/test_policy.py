"""Decisions of a bundle's policy on live bars: those of the backtest, and what else may be asked of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError, RlwbError, ServingError
from rlwb.execution import Order, OrderBatch
from rlwb.experiment.backtest import checkpoint_policy
from rlwb.experiment.orders import load_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.market import Sessions
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.export import export_run
from rlwb.serving.policy import BundlePolicy, Decision, checked
from rlwb.trainer import list_checkpoints


@pytest.fixture(scope="module")
def bundle(finished_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    target = tmp_path_factory.mktemp("bundle") / "bundle"
    export_run(finished_run.path, target)
    return open_bundle(target)


@pytest.fixture(scope="module")
def bench(finished_run: RunDirectory) -> Workbench:
    return workbench(finished_run, finished_run.config)


@pytest.fixture(scope="module")
def orders(finished_run: RunDirectory, bench: Workbench) -> OrderBatch:
    return bench.align(load_orders(finished_run, bench, "test"))


def bars_of(sessions: Sessions, row: int, first: int = 0, last: int | None = None) -> pd.DataFrame:
    """Return raw bars of one session, as a vendor sends them."""
    calendar = sessions.calendar
    ticks = range(first, int(sessions.num_ticks[row]) if last is None else last)
    ends = calendar.tick_seconds if calendar.label == "end" else 0
    stamps = [sessions.dates[row] + np.timedelta64(calendar.seconds_at(tick) + ends, "s") for tick in ticks]
    values = {name: field[row, ticks.start : ticks.stop] for name, field in sessions.fields.items()}
    return pd.DataFrame({"instrument": str(sessions.instruments[row]), "datetime": stamps, **values})


def with_history(policy: BundlePolicy, sessions: Sessions, row: int, days: int = 8) -> None:
    earlier = range(max(int(sessions.first[row]), row - days), row)
    if len(earlier):
        policy.market.load_history(pd.concat([bars_of(sessions, one) for one in earlier]))


def made(found: Decision | RlwbError) -> Decision:
    assert isinstance(found, Decision), found
    return found


@pytest.mark.parametrize("backend", ["torch", "onnx"])
def test_every_decision_on_live_bars_is_that_of_the_backtest(
    bundle: Bundle, bench: Workbench, orders: OrderBatch, finished_run: RunDirectory, backend: str
) -> None:
    best = list_checkpoints(finished_run.checkpoints)[bundle.spec.origin.iteration]
    learner, sees, acts = checkpoint_policy(bench, best)
    policy = BundlePolicy(bundle, backend=backend)  # type: ignore[arg-type]
    state = bench.simulator.start(orders, np.zeros(len(orders), np.uint64))
    sessions, sent = bench.sessions, np.zeros(len(bench.sessions), dtype=int)
    for row in np.unique(orders.session):
        with_history(policy, sessions, int(row))
    ids = policy.register(list(orders))
    while not state.done.all():
        known = state.known
        live = np.flatnonzero(~state.done)
        for at in live:
            row, tick = int(orders.session[at]), int(known.tick[at])
            if sent[row] < tick:
                policy.market.add(bars_of(sessions, row, sent[row], tick))
                sent[row] = tick
        found = [made(one) for one in policy.decide_many([ids[at] for at in live], known.position[live].tolist())]
        wanted = acts.interpret(known, learner.act(sees.refer(known)))
        np.testing.assert_array_equal([one.amount for one in found], wanted[live])
        np.testing.assert_array_equal([one.tick for one in found], known.tick[live])
        np.testing.assert_array_equal([one.step for one in found], known.step[live])
        state = bench.simulator.step(state, np.where(state.done, 0.0, wanted))


def one_order(orders: OrderBatch, sessions: Sessions, at: int = 0) -> tuple[Order, int]:
    return orders[at], int(orders.session[at])


def test_one_call_takes_order_bars_and_position(bundle: Bundle, bench: Workbench, orders: OrderBatch) -> None:
    order, row = one_order(orders, bench.sessions)
    policy, sessions = BundlePolicy(bundle), bench.sessions
    with_history(policy, sessions, row)
    first = policy.decide(order, bars_of(sessions, row, 0, int(orders.start[0])), order.amount)
    assert (first.step, first.tick, first.position) == (0, orders.start[0], order.amount)
    again = policy.decide(order, bars_of(sessions, row, 0, int(orders.start[0])), order.amount)
    assert again == first._replace(repeated=True)
    tick = int(orders.start[0]) + bundle.engine.ticks_per_step
    second = policy.decide(order, bars_of(sessions, row, 0, tick), order.amount - first.amount)
    assert (second.step, second.tick) == (1, tick)
    state = policy.state(order.order_id)
    assert state.path.tolist() == [order.amount, order.amount - first.amount]
    assert state.decided.tolist() == [first.amount, second.amount]


def test_a_path_of_positions_serves_an_order_that_was_traded_elsewhere(
    bundle: Bundle, bench: Workbench, orders: OrderBatch
) -> None:
    order, row = one_order(orders, bench.sessions)
    assert order.amount is not None
    sessions, tick = bench.sessions, int(orders.start[0]) + bundle.engine.ticks_per_step
    policy, fresh = BundlePolicy(bundle), BundlePolicy(bundle)
    for one in (policy, fresh):
        with_history(one, sessions, row)
    policy.decide(order, bars_of(sessions, row, 0, int(orders.start[0])), order.amount)
    left = 0.5 * order.amount
    second = policy.decide(order, bars_of(sessions, row, 0, tick), left)
    assert fresh.decide(order, bars_of(sessions, row, 0, tick), [order.amount, left]) == second
    with pytest.raises(OrderError, match=order.order_id):
        BundlePolicy(bundle).decide(order, bars_of(sessions, row, 0, tick), [order.amount, -1.0])


def test_what_cannot_be_decided_is_named(bundle: Bundle, bench: Workbench, orders: OrderBatch) -> None:
    order, row = one_order(orders, bench.sessions)
    assert order.amount is not None
    policy, sessions = BundlePolicy(bundle), bench.sessions
    (unknown,) = policy.decide_many(["nobody"])
    assert isinstance(unknown, ServingError)
    assert unknown.reason == "unknown_order"
    with_history(policy, sessions, row)
    (name,) = policy.register([order])
    with pytest.raises(OrderError, match=name):
        policy.register([order])
    step = bundle.engine.ticks_per_step
    start = int(orders.start[0])
    policy.market.add(bars_of(sessions, row, 0, start))
    late, twice, same = policy.decide_many([name, name, name], [order.amount] * 3, at=[start + step] * 3)
    assert isinstance(late, ServingError)
    assert late.reason == "late_bars"
    assert order.instrument in str(late)
    assert twice is late
    assert same is late
    one, two = policy.decide_many([name, name], [order.amount] * 2)
    assert two == made(one)._replace(repeated=True)
    policy.market.add(bars_of(sessions, row, start, start + step))
    (wrong,) = policy.decide_many([name], [2 * order.amount])
    assert isinstance(wrong, OrderError)
    (untold,) = policy.decide_many([name])
    assert isinstance(untold, OrderError)
    policy.market.reach(policy.market.row(order.instrument, order.date), int(orders.latest_end[0]))
    (over,) = policy.decide_many([name], [1.0])
    assert isinstance(over, ServingError)
    assert over.reason == "order_over"
    policy.forget(name)
    assert name not in policy


def test_late_bars_may_be_bridged_by_the_even_schedule(bundle: Bundle, bench: Workbench, orders: OrderBatch) -> None:
    order, row = one_order(orders, bench.sessions)
    assert order.amount is not None
    policy, start, step = BundlePolicy(bundle), int(orders.start[0]), bundle.engine.ticks_per_step
    with_history(policy, bench.sessions, row)
    (name,) = policy.register([order])
    (found,) = policy.decide_many([name], [order.amount], at=[start + step], by_schedule=[True])
    told = made(found)
    assert (told.source, told.step, told.action) == ("schedule", 1, None)
    ticks = int(orders.end[0]) - start - step
    assert told.amount == pytest.approx(order.amount * step / ticks)


def test_steps_that_nobody_asked_for_count_with_the_position_told_next(
    bundle: Bundle, bench: Workbench, orders: OrderBatch
) -> None:
    order, row = one_order(orders, bench.sessions)
    assert order.amount is not None
    policy, start, step = BundlePolicy(bundle), int(orders.start[0]), bundle.engine.ticks_per_step
    with_history(policy, bench.sessions, row)
    (name,) = policy.register([order])
    policy.market.add(bars_of(bench.sessions, row, 0, start))
    policy.decide_many([name], [order.amount])
    policy.market.add(bars_of(bench.sessions, row, start, start + 3 * step))
    (found,) = policy.decide_many([name], [0.25 * order.amount])
    assert made(found).step == 3
    path = policy.state(name).path
    np.testing.assert_array_equal(path, order.amount * np.array([1, 0.25, 0.25, 0.25]))
    assert np.isnan(policy.state(name).decided[1:3]).all()


def test_figures_of_a_filled_order_are_those_of_the_backtest(
    bundle: Bundle, bench: Workbench, orders: OrderBatch, finished_run: RunDirectory
) -> None:
    table = pd.read_parquet(next((finished_run.backtest / "orders").glob("checkpoint-*.parquet")))
    policy = BundlePolicy(bundle)
    for at in range(0, len(orders), 7):
        order, row = one_order(orders, bench.sessions, at)
        with_history(policy, bench.sessions, row)
        (name,) = policy.register([order])
        policy.market.add(bars_of(bench.sessions, row))
        wanted = table.loc[table["order_id"] == name].iloc[0]
        found = policy.metrics(name, wanted["filled"], wanted["filled"] * wanted["price"])
        for figure in ("pa", "twap", "arrival", "ffr"):
            assert found[figure] == pytest.approx(wanted[figure], abs=1e-9, rel=1e-12), figure
        policy.forget(name)


def test_observations_that_do_not_fit_are_named(bundle: Bundle, bench: Workbench, orders: OrderBatch) -> None:
    policy = BundlePolicy(bundle)
    known = bench.simulator.start(orders, np.zeros(len(orders), np.uint64)).known
    features = bench.features(normaliser=bundle.normaliser)
    learner_sees = bench.state_interpreter(features)
    obs = learner_sees.interpret(known)
    np.testing.assert_array_equal(policy.predict(obs), bundle.learner.act(learner_sees.refer(known)))
    space = learner_sees.observation_space
    for wrong, named in (
        ({name: part for name, part in obs.items() if name != "target"}, "target"),
        ({**obs, "mine": obs["target"]}, "mine"),
        ({**obs, "target": obs["target"][:1]}, "rows"),
        ({**obs, "target": obs["target"] * np.nan}, "target"),
        ({**obs, "acquiring": obs["acquiring"] + 2}, "acquiring"),
        ({**obs, "target": np.array(["x"] * len(orders))}, "target"),
    ):
        with pytest.raises(ServingError, match=named):
            checked(space, wrong)


def test_many_orders_grow_the_tables(bundle: Bundle, bench: Workbench, orders: OrderBatch, tmp_path: Path) -> None:
    policy = BundlePolicy(bundle)
    order, row = one_order(orders, bench.sessions)
    with_history(policy, bench.sessions, row)
    many = [Order(order.instrument, order.date, order.direction, 100.0 + at, order_id=f"o{at}") for at in range(200)]
    assert len(policy.register(many)) == 200
    policy.forget("o7")
    assert policy.register([many[7]]) == ["o7"]
    assert policy.state("o150").position == 250.0
    assert len(policy) == 200


def test_orders_of_one_call_keep_their_sessions_or_none_is_taken(
    bundle: Bundle, bench: Workbench, orders: OrderBatch
) -> None:
    order, _ = one_order(orders, bench.sessions)
    two = [Order(name, order.date, order.direction, 100.0, order_id=name) for name in ("A", "B")]
    policy = BundlePolicy(bundle, capacity=1)
    with pytest.raises(ServingError) as caught:
        policy.register(two)
    assert caught.value.reason == "full"
    assert len(policy) == 0
    assert policy.register(two[1:]) == ["B"]  # nothing holds the session any more
    roomy = BundlePolicy(bundle, capacity=2)
    roomy.register(two)
    assert [roomy.market.panel.instruments[roomy.market.row(name, order.date)] for name in "AB"] == ["A", "B"]


def test_what_was_asked_for_so_far_comes_back_with_the_decisions(
    bundle: Bundle, bench: Workbench, orders: OrderBatch
) -> None:
    order, row = one_order(orders, bench.sessions)
    policy, again = BundlePolicy(bundle), BundlePolicy(bundle)
    for one in (policy, again):
        with_history(one, bench.sessions, row)
        one.register([order])
    step = bundle.engine.ticks_per_step
    decisions = []
    for stop in (int(orders.start[0]), int(orders.start[0]) + step):
        policy.market.add(bars_of(bench.sessions, row, 0, stop))
        decisions.append(made(policy.decide_many([order.order_id], [order.amount])[0]))
    again.restore(order.order_id, decisions)
    known = again._known(np.array([0]))
    assert known.requested.tolist() == [sum(one.amount for one in decisions)]
    again.restore(order.order_id, decisions[:1])
    assert again._known(np.array([0])).requested.tolist() == [decisions[0].amount]


def test_a_path_beyond_the_step_that_the_market_has_reached_changes_nothing(
    bundle: Bundle, bench: Workbench, orders: OrderBatch
) -> None:
    order, row = one_order(orders, bench.sessions)
    assert order.amount is not None
    policy = BundlePolicy(bundle)
    with_history(policy, bench.sessions, row)
    bars = bars_of(bench.sessions, row, 0, int(orders.start[0]))
    with pytest.raises(OrderError, match="1 to 1"):
        policy.decide(order, bars, [order.amount, order.amount / 2])
    assert policy.decide(order, bars, order.amount).step == 0
