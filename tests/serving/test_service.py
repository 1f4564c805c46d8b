"""The service without a web: all or nothing, the same again, and the same after a kill."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rlwb.errors import BundleError, DataError, FileError, OrderError, RlwbError, ServingError
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.journal import Event, Journal
from rlwb.serving.live import LiveMarket
from rlwb.serving.monitor import FallbackSettings, Monitor
from rlwb.serving.policy import BundlePolicy
from rlwb.serving.service import Service
from rlwb.serving.wire import BarsIn, DecisionIn, DecisionOut, FillIn
from tests.serving.desk import DAY, NEXT, Desk


@pytest.fixture(scope="module")
def bundle(bundle_path: Path) -> Bundle:
    return open_bundle(bundle_path)


@pytest.fixture(scope="module")
def desk(bundle: Bundle) -> Desk:
    return Desk(bundle.calendar)


@pytest.fixture
def service(bundle: Bundle) -> Iterator[Service]:
    made = started(bundle)
    yield made
    made.close()


def started(bundle: Bundle, path: Path | None = None, **settings: object) -> Service:
    settings.setdefault("monitor", Monitor(fallback=FallbackSettings()))
    policy = BundlePolicy(bundle, capacity=16)
    return Service(policy, journal=Journal(path), **settings)  # type: ignore[arg-type]


def desk_columns(desk: Desk, name: str, day: str) -> dict[str, list[Any]]:
    """Return a day of bars as columns."""
    bars = [msgspec.structs.asdict(bar) for bar in desk.bars(name, 0, desk.ticks, day)]
    return {key: [bar[key] for bar in bars] for key in bars[0] if bars[0][key] is not None}


def decide(service: Service, name: str, **fields: object) -> DecisionOut:
    (found,) = service.decide([DecisionIn(order_id=name, **fields)])  # type: ignore[arg-type]
    if isinstance(found, Exception):
        raise found
    return found


def refusal(service: Service, name: str, **fields: object) -> str:
    with pytest.raises(RlwbError) as caught:
        decide(service, name, **fields)
    return getattr(caught.value, "reason", type(caught.value).__name__)


def test_decisions_are_those_of_the_policy_itself(service: Service, bundle: Bundle, desk: Desk) -> None:
    alone = BundlePolicy(bundle, capacity=4)
    service.register([desk.order("o")])
    alone.register([service._entries["o"].order])
    for tick in range(desk.ticks):
        (expected,) = alone.decide_many(["o"], [1000.0])
        found = decide(service, "o", position=1000.0)
        assert (found.step, found.tick, found.amount, found.action) == (
            *(expected.step, expected.tick, expected.amount, expected.action),  # type: ignore[union-attr]
        )
        bars = [desk.bar("AAA", tick)]
        service.bars(bars)
        alone.market.add(service._columns_of(bars))


def test_the_position_is_what_the_fills_leave(service: Service, desk: Desk) -> None:
    service.register([desk.order("o")])
    assert decide(service, "o").position == 1000.0
    assert service.fills([FillIn(fill_id="1", order_id="o", amount=400.0, price=10.0)]) == [600.0]
    service.bars(desk.bars("AAA", 0, desk.ticks // 2))
    assert decide(service, "o").position == 600.0
    assert service.order("o").average_price == 10.0


def test_the_same_again_changes_nothing_and_other_content_is_a_conflict(service: Service, desk: Desk) -> None:
    order, fill = desk.order("o"), FillIn(fill_id="1", order_id="o", amount=400.0, price=10.0)
    assert service.register([order]) == ["o"]
    assert service.register([order, order]) == ["o", "o"]
    assert service.orders().total == 1
    assert service.fills([fill]) == service.fills([fill]) == [600.0]
    for act in (
        lambda: service.register([desk.order("o", amount=999.0)]),
        lambda: service.fills([FillIn(fill_id="1", order_id="o", amount=401.0, price=10.0)]),
        lambda: service.fills([FillIn(fill_id="2", order_id="o", amount=601.0, price=10.0)]),
    ):
        before = service.order("o")
        with pytest.raises(ServingError) as caught:
            act()
        assert caught.value.reason in ("conflict", "overfill")
        assert service.order("o") == before


def test_an_order_without_an_id_gets_the_same_one_each_time(service: Service, desk: Desk) -> None:
    (name,) = service.register([desk.order("")])
    assert service.register([desk.order("")]) == [name]
    assert service.register([desk.order("", amount=5.0)]) != [name]


def test_one_wrong_order_or_fill_keeps_out_all_of_its_request(service: Service, desk: Desk) -> None:
    with pytest.raises(OrderError, match="order b"):
        service.register([desk.order("a"), desk.order("b", start="10:00", end="10:00")])
    with pytest.raises(RlwbError):
        service.register([desk.order("a"), desk.order("b", date="2024-03-03")])  # a Sunday
    assert service.orders().total == len(service.policy) == 0
    service.register([desk.order("a")])
    with pytest.raises(ServingError):
        service.fills([FillIn(fill_id=str(n), order_id=n, amount=1.0, price=1.0) for n in ("a", "unknown")])
    assert service.order("a").filled == 0.0
    assert not list(service.journal.events())[1:]


def test_late_bars_are_refused_without_a_clock_and_fall_back_with_one(service: Service, desk: Desk) -> None:
    service.register([desk.order("o"), desk.order("later", start=f"{desk.calendar.time_of(desk.ticks // 2):%H:%M}")])
    assert refusal(service, "later") == "late_bars"
    half = desk.stamp(desk.ticks // 2)
    found = decide(service, "later", now=half)
    assert (found.source, found.reason, found.step) == ("schedule", "late_bars", 0)
    ticks = desk.ticks - desk.ticks // 2
    step = int(service.policy.engine.ticks_per_step)
    assert found.amount == pytest.approx(1000.0 * min(step, ticks) / ticks)
    again = decide(service, "later", now=half)
    assert (again.amount, again.reason, again.repeated) == (found.amount, "late_bars", True)
    service.monitor.fallback = FallbackSettings(late_bars="off")
    assert refusal(service, "o", now=desk.stamp(desk.ticks // 2)) == "late_bars"


def test_an_order_for_which_the_policy_fails_follows_the_schedule_and_no_other(
    service: Service, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    service.register([desk.order(name, "AAA", amount=480.0) for name in ("a", "b", "c")])
    act = service.policy._backend.act

    def fail(obs: dict[str, np.ndarray]) -> np.ndarray:
        if (np.asarray(obs["target"]) == 480.0).any() and len(obs["target"]) != 1:
            raise ZeroDivisionError
        if failing.pop():
            raise ZeroDivisionError
        return act(obs)

    failing = [False, True, False]
    service.policy._backend.act = fail  # type: ignore[method-assign]
    found = service.decide([DecisionIn(order_id=name) for name in ("a", "b", "c")])
    assert [one.source for one in found] == ["policy", "schedule", "policy"]  # type: ignore[union-attr]
    assert found[1].reason == "policy_failed"  # type: ignore[union-attr]
    assert found[1].amount == pytest.approx(480.0 * service.policy.engine.ticks_per_step / desk.ticks)  # type: ignore[union-attr]
    assert "ZeroDivisionError" in caplog.text


def test_until_says_that_ticks_without_a_bar_had_none(service: Service, desk: Desk) -> None:
    service.register([desk.order("o")])
    half = desk.ticks // 2
    service.bars(BarsIn(until=desk.stamp(half)))
    found = decide(service, "o", position=1000.0, now=desk.stamp(half))
    assert found.source == "policy"
    assert found.tick > 0


def test_an_order_is_over_when_its_window_is_and_finished_when_it_is_filled(service: Service, desk: Desk) -> None:
    service.register([desk.order("o"), desk.order("p", direction="SELL")])
    mean = np.mean([desk.price("AAA", tick) for tick in range(desk.ticks)])
    service.bars(desk.bars("AAA", 0, desk.ticks - 1))
    service.fills([FillIn(fill_id="1", order_id="o", amount=1000.0, price=101.0)])
    assert service.order("o").status == "open"
    service.bars(desk.bars("AAA", desk.ticks - 1, desk.ticks))
    assert service.order("o").status == "finished"
    assert service.order("o").pa_bp == pytest.approx((1 - 101.0 / mean) * 1e4)
    assert service.order("p").status == "over"
    assert refusal(service, "p") == "order_over"
    service.bars(desk.bars("AAA", 0, 1, NEXT))
    assert service.order("p").status == "finished"
    assert service.order("p").pa_bp is None
    assert len(service.policy) == 0
    with pytest.raises(ServingError):
        service.fills([FillIn(fill_id="2", order_id="p", amount=1.0, price=1.0)])


def test_a_cancelled_order_decides_no_more(service: Service, desk: Desk) -> None:
    service.register([desk.order("o")])
    assert service.cancel("o").status == service.cancel("o").status == "cancelled"
    assert refusal(service, "o") == "order_over"
    with pytest.raises(ServingError) as caught:
        service.cancel("unknown")
    assert caught.value.reason == "unknown_order"


def test_orders_come_in_pages(service: Service, desk: Desk) -> None:
    service.register([desk.order(str(number)) for number in range(5)])
    service.cancel("1")
    first = service.orders(status="open", limit=3)
    assert [one.order_id for one in first.orders] == ["0", "2", "3"]
    assert (first.total, first.next) == (4, 3)
    rest = service.orders(status="open", after=3, limit=3)
    assert [one.order_id for one in rest.orders] == ["4"]
    assert rest.next is None


def test_too_many_orders_are_refused(bundle: Bundle, desk: Desk) -> None:
    service = started(bundle, orders=2)
    service.register([desk.order("a"), desk.order("b")])
    with pytest.raises(ServingError) as caught:
        service.register([desk.order("c")])
    assert caught.value.reason == "too_many_orders"
    service.cancel("a")
    service.register([desk.order("c")])


def test_a_killed_service_comes_back_and_goes_on_as_if_nothing_had_been(
    bundle: Bundle, desk: Desk, tmp_path: Path
) -> None:
    """The one is stopped without a word after every tick; the other never."""
    path = tmp_path / "j.db"
    steady = started(bundle)
    orders = [desk.order("o"), desk.order("p", "BBB", direction="SELL", amount=500.0), desk.order("q", "BBB")]
    service = started(bundle, path)
    for each in (service, steady):
        each.register(orders)
        each.bars(desk.bars("AAA", 0, desk.ticks, "2024-03-01"))  # refused: a later session is open
    for tick in range(desk.ticks):
        questions = [DecisionIn(order_id=name, position=600.0) for name in ("o", "q")]
        found, expected = service.decide(questions), steady.decide(questions)
        assert list(map(str, found)) == list(map(str, expected))
        for each in (service, steady):
            if tick == 3:
                each.fills([FillIn(fill_id="1", order_id="p", amount=100.0, price=10.0)])
                each.cancel("q")
            each.bars([desk.bar("AAA", tick), desk.bar("BBB", tick)])
        if tick % 4 == 0:
            service.journal._held.close()  # the process is gone
            service = started(bundle, path)
            assert service.orders() == steady.orders()
    assert service.orders() == steady.orders()
    service.close()


def test_a_decision_that_cannot_be_written_is_not_told_and_not_kept(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    service = started(bundle, tmp_path / "j.db")
    service.register([desk.order("o")])
    first = decide(service, "o")
    service.bars(desk.bars("AAA", 0, desk.ticks // 2))
    before = service.order("o")
    base = service.journal._base
    base.execute("CREATE TRIGGER full BEFORE INSERT ON log BEGIN SELECT RAISE(ABORT, 'disk is full'); END")
    assert refusal(service, "o", position=500.0) == "journal"
    for act in (
        lambda: service.register([desk.order("new")]),
        lambda: service.bars(desk.bars("AAA", desk.ticks // 2, desk.ticks)),
        lambda: service.fills([FillIn(fill_id="1", order_id="o", amount=1.0, price=1.0)]),
        lambda: service.cancel("o"),
    ):
        with pytest.raises(ServingError) as caught:
            act()
        assert caught.value.reason == "journal"
    assert service.order("o") == before
    assert service.orders().total == len(service.policy) == 1
    base.execute("DROP TRIGGER full")
    second = decide(service, "o", position=400.0)
    assert (second.step > first.step, second.position, second.repeated) == (True, 400.0, False)
    service.close()


def test_the_journal_of_another_clock_is_refused(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    service = started(bundle, tmp_path / "j.db")
    text = service.journal.noted("record")
    assert text is not None
    service.journal.note("record", text.replace('"ticks_per_step": ', '"ticks_per_step": 9'))
    service.close()
    with pytest.raises(BundleError, match="ticks_per_step"):
        started(bundle, tmp_path / "j.db")


def test_done_days_leave_the_journal_and_open_orders_stay(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    service = started(bundle, tmp_path / "j.db")
    days = ["2024-03-04", "2024-03-05", "2024-03-06", "2024-03-07", "2024-03-08"]
    for day in days:
        service.register([desk.order(day, date=day, amount=10.0)])
        service.bars(desk.bars("AAA", 0, desk.ticks, day))
    assert len(service.journal.days()) == 3
    service.close()
    again = started(bundle, tmp_path / "j.db")
    assert [one.order_id for one in again.orders(status="over").orders] == ["2024-03-08"]
    assert again.order("2024-03-07").status == "finished"
    again.close()


def test_bars_that_are_refused_and_clocks_of_later_days_make_no_day_done(
    bundle: Bundle, desk: Desk, tmp_path: Path
) -> None:
    service = started(bundle, tmp_path / "j.db")
    service.bars(desk.bars("AAA", 0, desk.ticks))
    service.register([desk.order("o", date=NEXT)])
    for closed in ("2024-03-09", "2024-06-01", "2025-03-01"):
        bar = msgspec.structs.replace(desk.bar("AAA", 0), datetime=desk.stamp(0, closed))
        assert service.bars([bar]).refused[0].reason == "closed_day"
    service.bars(BarsIn(until=desk.stamp(0, "2025-03-03")))
    wanted = [*service.journal.events()]
    service.close()
    again = started(bundle, tmp_path / "j.db")
    assert [*again.journal.events()] == wanted
    again.bars(BarsIn(**desk_columns(desk, "AAA", NEXT), until=desk.stamp(0, "2025-03-04")))
    assert again.order("o").status == "over"
    again.bars(desk.bars("AAA", 0, desk.ticks, "2024-03-06"))
    assert again.order("o").status == "finished"
    again.close()


def test_bars_of_a_day_that_has_begun_nowhere_are_refused_and_end_no_session(bundle: Bundle, desk: Desk) -> None:
    now = np.datetime64(f"{DAY}T20:00").astype("datetime64[s]").astype(int)
    service = started(bundle, clock=lambda: float(now))
    service.register([desk.order("o")])
    service.bars(desk.bars("AAA", 0, 3))
    before = [*service.journal.events()]
    for wrong in (desk.bars("AAA", 0, 1, "2024-03-06"), BarsIn(until=desk.stamp(0, "2025-03-03"))):
        with pytest.raises(ServingError, match=r"202[45]-03-0[36]") as caught:
            service.bars(wrong)  # type: ignore[arg-type]
        assert caught.value.reason == "bad_time"
    assert [*service.journal.events()] == before
    assert service.order("o").status == "open"
    assert service.bars(desk.bars("AAA", 0, 1, NEXT)).accepted == 1  # which has begun east of here
    service.close()


def test_the_journal_keeps_as_many_days_as_features_refer_to(
    bundle: Bundle, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LiveMarket, "depth", 4)
    service = started(bundle, tmp_path / "j.db")
    for day in ("2024-03-04", "2024-03-05", "2024-03-06", "2024-03-07", "2024-03-08"):
        service.bars(desk.bars("AAA", 0, desk.ticks, day))
    assert len(service.journal.days()) == 4
    service.close()


def test_an_instrument_that_was_halted_for_days_has_its_yesterday_after_a_restart(
    bundle: Bundle, desk: Desk, tmp_path: Path
) -> None:
    service = started(bundle, tmp_path / "j.db")
    service.bars(desk.bars("AAA", 0, desk.ticks, "2024-03-01"))
    for day in ("2024-03-04", "2024-03-05", "2024-03-06", "2024-03-07", "2024-03-08", "2024-03-11"):
        service.bars(desk.bars("BBB", 0, desk.ticks, day))
    assert len(service.journal.days()) == 3
    told = [event.body["instrument"] for _, event in service.journal.events() if event.kind == "history"]
    assert told == ["AAA"], "the bars of BBB that its features need are there"
    service.close()
    again = started(bundle, tmp_path / "j.db")
    alone = started(bundle)
    alone.bars(desk.bars("AAA", 0, desk.ticks, "2024-03-01"))
    found = []
    for each in (again, alone):
        each.bars(desk.bars("AAA", 0, 3, "2024-03-11"))
        market = each.policy.market
        row = np.array([market.row("AAA", "2024-03-11")])
        found.append((market.features.rows(row), market.features.block_previous(row)))
        each.close()
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])


def test_another_bundle_takes_over_in_the_middle_of_an_order(bundle: Bundle, desk: Desk) -> None:
    swapped, steady = started(bundle), started(bundle)
    for each in (swapped, steady):
        each.register([desk.order("o")])
        each.decide([DecisionIn(order_id="o")])
        each.bars(desk.bars("AAA", 0, desk.ticks // 2))
    other = BundlePolicy(bundle, capacity=16)
    swapped.check_takes(other)
    events = list(swapped.journal.events())
    swapped.bring_up(other, events[:-1])
    assert swapped.take_over(other, "second", events[-2][0]) == "main"
    assert (swapped.name, swapped.policy) == ("second", other)
    assert decide(swapped, "o", position=700.0) == decide(steady, "o", position=700.0)
    swapped.bars(desk.bars("AAA", desk.ticks // 2, desk.ticks))
    assert swapped.order("o").status == "over"


def test_a_shadow_is_compared_and_its_faults_are_its_own(
    bundle: Bundle, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    shadow = BundlePolicy(bundle, capacity=16)
    service = started(bundle, shadow=shadow)
    service.register([desk.order("o")])
    decide(service, "o")
    service.run_shadow()
    assert service.monitor.overview()["shadow"]["equal"] == 1
    service.bars(desk.bars("AAA", 0, desk.ticks // 2))
    shadow.restore("o", [])
    shadow.state_interpreter = None  # type: ignore[assignment]
    found = decide(service, "o", position=500.0)
    with caplog.at_level(logging.CRITICAL):
        service.run_shadow()
    assert service.shadow_failures == 1
    assert decide(service, "o").amount == found.amount


def test_history_is_there_after_a_restart(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    service = started(bundle, tmp_path / "j.db")
    told = service.load_history(service._columns_of(desk.bars("AAA", 0, desk.ticks, "2024-03-01")))
    assert told.accepted == desk.ticks
    service.register([desk.order("o")])
    row = service.policy.market.row("AAA", DAY)
    before = service.policy.market.features.rows(np.array([row]))
    service.journal._held.close()
    again = started(bundle, tmp_path / "j.db")
    assert np.array_equal(again.policy.market.features.rows(np.array([row])), before)
    again.close()


def test_results_and_drift_are_there_after_a_restart(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    def watched() -> Service:
        monitor = Monitor(bundle.spec.statistics)
        return started(bundle, tmp_path / "j.db", monitor=monitor)

    service = watched()
    for day in (DAY, NEXT):
        service.register([desk.order(day, date=day)])
        service.fills([FillIn(fill_id=day, order_id=day, amount=1000.0, price=100.0)])
        service.bars(desk.bars("AAA", 0, desk.ticks, day))
    before = service.monitor.overview()
    assert before["orders"] == {"live": 0, "finished": 2}
    assert before["pa"]["days"] == before["drift"]["days"] == 1
    service.journal._held.close()
    after = watched().monitor.overview()
    for name in ("orders", "pa", "drift", "fallback"):
        assert after[name] == before[name]


def test_results_outlive_the_days_that_the_journal_forgets(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    def watched() -> Service:
        return started(bundle, tmp_path / "j.db", monitor=Monitor(bundle.spec.statistics, bundle={"name": "main"}))

    days = [str(day) for day in np.busday_offset(DAY, np.arange(7))]
    service = watched()
    for day in days:
        service.register([desk.order(day, date=day)])
        service.fills([FillIn(fill_id=day, order_id=day, amount=1000.0, price=100.0)])
        service.bars(desk.bars("AAA", 0, desk.ticks, day))
    assert len(service.journal.days()) < len(days) - 1
    before = service.monitor.overview()
    assert before["pa"]["days"] == before["drift"]["days"] == len(days) - 1
    service.journal._held.close()
    again = watched()
    after = again.monitor.overview()
    assert after["pa"] == before["pa"]
    assert after["drift"] == before["drift"]
    assert after["fallback"]["parts"] == before["fallback"]["parts"]
    again.close()


def test_bars_without_a_price_or_without_a_field_that_features_need_do_no_harm(
    bundle: Bundle, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    service = started(bundle, tmp_path / "j.db")
    empty = dict.fromkeys(("open", "high", "low", "close", "volume"))
    told = service.bars([msgspec.structs.replace(desk.bar("AAA", 0), **empty)])
    assert told.accepted + len(told.refused) == 1

    needs = type("Feature", (), {"needs": ("close", "vwap")})
    with monkeypatch.context() as patch:
        patch.setattr(service.policy.market, "feature_list", [needs])
        with pytest.raises(ServingError, match="vwap"):
            service.bars(desk.bars("AAA", 1, 2))
    assert len(list(service.journal.events())) == 1

    def refuse(bars: object) -> None:
        raise DataError("close is of text; send numbers.")

    with monkeypatch.context() as patch:
        patch.setattr(service.policy.market, "add", refuse)
        with pytest.raises(DataError):
            service.bars(desk.bars("AAA", 1, 2))
    service.close()
    with monkeypatch.context() as patch:
        patch.setattr("rlwb.serving.live.LiveMarket.add", lambda market, bars: refuse(bars))
        started(bundle, tmp_path / "j.db").close()


def test_an_event_that_makes_no_sense_is_named(bundle: Bundle, desk: Desk, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    journal.write([Event("order", 19_786, {"order_id": "x", "amount": -1})])
    journal.close()
    with pytest.raises(FileError, match="event 1"):
        started(bundle, tmp_path / "j.db")
