"""Paper trading: what a service decides is executed as in a backtest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import OrderError
from rlwb.execution import AmountActionInterpreter, KnownStateInterpreter, Order, OrderBatch
from rlwb.experiment import backtest
from rlwb.experiment.config import Layer, RunConfig
from rlwb.market import Sessions
from rlwb.serving.client import Answer, Fill
from rlwb.serving.exchange import PanelExchange
from rlwb.serving.feeds import Arrival, Feed, SessionsFeed
from rlwb.serving.paper import PanelBench, PaperTrading, executed
from tests.execution.markets import order, sessions_of


class Scripted:
    """A service that decides by a function of the position and writes down what it is told."""

    def __init__(self, amount: Callable[[str, float], float | None] = lambda name, left: left / 2) -> None:
        self.amount, self.said = amount, list[tuple[Any, ...]]()
        self.orders: dict[str, Order] = {}
        self.until: pd.Timestamp | None = None

    def register(self, orders: Sequence[Order]) -> list[str]:
        self.orders |= {one.order_id: one for one in orders}
        self.said.append(("register", *(one.order_id for one in orders)))
        return [one.order_id for one in orders]

    def load_history(self, bars: pd.DataFrame) -> list[str]:
        self.said.append(("history", *bars["close"]))
        return []

    def add_bars(self, bars: pd.DataFrame, until: pd.Timestamp | None = None) -> list[str]:
        self.until = until or self.until
        self.said += [("bars", *bars["close"])] if len(bars) else []
        return []

    def decide(self, order_ids: Sequence[str], positions: Sequence[float]) -> list[Answer]:
        self.said.append(("decide", f"{self.until:%H:%M}", dict(zip(order_ids, positions, strict=True))))
        amounts = [self.amount(*each) for each in zip(order_ids, positions, strict=True)]
        return [
            Answer(np.nan, None, "refused", "queue_full") if one is None else Answer(one, 1, "policy", None)
            for one in amounts
        ]

    def report(self, fills: Sequence[Fill]) -> None:
        self.said.append(("fills", *((one.order_id, one.amount, one.price) for one in fills)))

    def forget(self, order_ids: Iterable[str]) -> None:
        self.said.append(("forget", *order_ids))

    def describe(self) -> dict[str, Any]:
        return {}


def bench_of(panel: Sessions, ticks_per_step: int = 2, **rules: Any) -> PanelBench:
    values = {f"execution.rules.{name}": value for name, value in rules.items()}
    layer = Layer("test", {"execution.ticks_per_step": ticks_per_step, "baselines": ["twap"], **values})
    return PanelBench(RunConfig.load(None, layer), panel)


def named(name: str, *args: Any, **kwargs: Any) -> Order:
    import dataclasses

    return dataclasses.replace(order(*args, **kwargs), order_id=name)


def trade(
    bench: PanelBench, orders: OrderBatch, service: Scripted | None = None, feed: Feed | None = None, **how: Any
) -> pd.DataFrame:
    exchange = PanelExchange(bench, orders)
    return PaperTrading(exchange, service or Scripted()).trade(feed or SessionsFeed(bench.sessions), **how)


def test_the_day_goes_in_the_market_s_order() -> None:
    bench = bench_of(sessions_of([[10.0, 20.0, 30.0, 40.0]]))
    orders = bench.align([named("whole", 8.0), named("late", 6.0, "SELL", start="09:32")])
    service = Scripted()
    made = trade(bench, orders, service)
    assert service.said == [
        ("register", "whole", "late"),
        ("decide", "09:30", {"whole": 8.0}),
        ("bars", 10.0),
        ("bars", 20.0),
        ("fills", ("whole", 4.0, 15.0)),
        ("decide", "09:32", {"whole": 4.0, "late": 6.0}),
        ("bars", 30.0),
        ("bars", 40.0),
        ("fills", ("whole", 4.0, 37.5), ("late", 6.0, 37.5)),  # 1 and 3 of 4, 1.5 and 4.5 of 6
        ("forget", "whole", "late"),
    ]
    assert made[["order_id", "step", "tick", "position", "amount"]].to_numpy().tolist() == [
        ["whole", 0, 0, 8.0, 4.0],
        ["whole", 1, 2, 4.0, 2.0],
        ["late", 0, 2, 6.0, 3.0],
    ]
    assert set(made["source"]) == {"policy"}


class Half:
    """Trades half of what is left."""

    def act(self, known: Any, noise: Any = None) -> np.ndarray:
        return known.position / 2


class AsAsked(AmountActionInterpreter):
    """Takes an amount as it is, in the last step too."""

    def interpret(self, known: Any, action: np.ndarray) -> np.ndarray:
        return action


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"volume_limit": 0.1, "commission_bps": 2.0, "lot_size": 1.0},
        {"temporary_impact_bps": 10.0, "permanent_impact_bps": 5.0, "volume_limit": 1.0},
        {"transient_impact_bps": 10.0, "transient_half_life": 2.0, "volume_limit": 1.0},
    ],
)
def test_the_result_is_that_of_a_backtest_order_by_order(rules: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    close = 10 * np.exp(0.01 * rng.standard_normal((4, 7)).cumsum(axis=1))
    close[1, 2], close[3, 6] = np.nan, np.nan
    panel = sessions_of(close, rng.uniform(50, 500, close.shape))
    bench = bench_of(panel, 3, **rules)
    orders = bench.align(
        [
            named("a", 80.0, day=2),
            named("b", 30.5, "SELL", "09:31", "09:36", day=2),
            named("c", 55.0, "SELL", "09:34", day=4),
            named("d", 12.0, "BUY", "09:30", "09:35", day=4),
            named("e", 12.0, "BUY", "09:32", "09:33", day=4),
        ]
    )
    made = trade(bench, orders)
    paper, ticks, steps = executed(bench, orders, made, "paper")
    playable = Half(), KnownStateInterpreter(), AsAsked()
    reference = backtest.judged(bench, "paper", "checkpoint", playable, orders)
    pd.testing.assert_frame_equal(paper.orders, reference.orders, check_exact=True)
    np.testing.assert_array_equal(paper.inventory, reference.inventory)
    assert ticks.groupby("order_id")["filled"].sum().to_dict() == pytest.approx(
        paper.orders.set_index("order_id")["filled"].to_dict()
    )
    assert steps[["order_id", "step"]].merge(made).shape[0] == len(steps) == len(made)


def test_what_gets_no_answer_trades_evenly_and_is_told() -> None:
    bench = bench_of(sessions_of([[10.0] * 6]))
    orders = bench.align([named("a", 6.0), named("b", 6.0)])
    service = Scripted(lambda name, left: None if name == "a" else 0.0)
    made = trade(bench, orders, service)
    a, b = (made[made["order_id"] == name] for name in "ab")
    assert a["amount"].tolist() == [2.0, 2.0, 2.0]
    assert a["source"].tolist() == ["refused"] * 3
    assert a["reason"].tolist() == ["queue_full"] * 3
    assert b["amount"].tolist() == [0.0, 0.0, 0.0]
    result, _, _ = executed(bench, orders, made, "paper")
    assert result.orders["ffr"].tolist() == [1.0, 1.0], "the rules complete an order at its end"


def test_earlier_days_are_told_once_and_in_the_order_of_time() -> None:
    bench = bench_of(sessions_of([[1.0, 1.5], [2.0, 2.5], [3.0, 3.5], [4.0, 4.5]]))
    orders = bench.align([named("a", 6.0, day=2), named("b", 6.0, day=4)])
    service = Scripted()
    trade(bench, orders, service, SessionsFeed(bench.sessions, ["2024-01-02", "2024-01-04"]))
    told = [said for said in service.said if said[0] in ("bars", "history")]
    first = [("history", 1.0, 1.5), ("bars", 2.0), ("bars", 2.5)]
    assert told == [*first, ("history", 3.0, 3.5), ("bars", 4.0), ("bars", 4.5)]


def test_bars_of_days_without_orders_are_told_too() -> None:
    bench = bench_of(sessions_of([[1.0, 1.5], [2.0, 2.5]]))
    service = Scripted()
    trade(bench, bench.align([named("a", 6.0, day=2)]), service)
    assert [said[0] for said in service.said] == ["bars"] * 2 + [
        "register",
        "decide",
        "bars",
        "bars",
        "fills",
        "forget",
    ]


class Jumps(SessionsFeed):
    """Says nothing of the time but with the bars of every third tick."""

    def __iter__(self) -> Any:
        told = [*super().__iter__()]
        for at in range(3, len(told), 3):
            yield Arrival(told[at].time, pd.concat([one.bars for one in told[at - 2 : at + 1]]))


def test_a_feed_that_jumps_is_followed() -> None:
    bench = bench_of(sessions_of([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]]))
    orders = bench.align([named("a", 8.0)])
    service = Scripted()
    made = trade(bench, orders, service, Jumps(bench.sessions))
    assert [said[1] for said in service.said if said[0] == "decide"] == ["09:30", "09:32", "09:34", "09:36"]
    assert made["tick"].tolist() == [0, 2, 4, 6]


def test_orders_of_days_that_are_not_played_are_named() -> None:
    bench = bench_of(sessions_of([[1.0, 1.5], [2.0, 2.5]]))
    orders = bench.align([named("a", 6.0), named("b", 6.0, day=2)])
    with pytest.raises(OrderError, match=r"1 of 2 orders .* b"):
        trade(bench, orders, feed=SessionsFeed(bench.sessions, ["2024-01-01"]))


def test_whatever_stops_it_takes_its_orders_out_of_the_service() -> None:
    bench = bench_of(sessions_of([[1.0, 1.5, 2.0, 3.0], [2.0, 2.5, 3.0, 3.5]]))
    orders = bench.align([named("a", 6.0), named("b", 6.0, day=2)])
    done: list[str] = []

    def stopped(feed: Any) -> Any:
        for number, arrival in enumerate(feed):
            if number == 6:
                raise KeyboardInterrupt
            yield arrival

    service = Scripted()
    with pytest.raises(KeyboardInterrupt):
        trade(bench, orders, service, arrivals=stopped, on_day=lambda day, made: done.append(str(day)))
    assert service.said[-1] == ("forget", "b")
    assert done == ["2024-01-01"]
