"""Paper trading: bars are played into a policy in service, and what it decides is executed by the run's rules."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import OrderError, ServingError
from rlwb.execution import (
    AmountActionInterpreter,
    Engine,
    ExecutionState,
    KnownStateInterpreter,
    OrderBatch,
    OrderExecution,
    audit,
)
from rlwb.execution.attribution import IMPACT_OFF, attribute_costs
from rlwb.execution.metrics import average_price
from rlwb.execution.order import FORMS_OF_FILLS, Order
from rlwb.experiment import backtest
from rlwb.experiment.config import RunConfig
from rlwb.experiment.workbench import Workbench
from rlwb.market import Sessions
from rlwb.serving.client import Answer, Client, Fill
from rlwb.serving.exchange import Exchange
from rlwb.serving.feeds import Arrival, Feed, no_bars

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult

#: Columns of decisions and their types.
DECISIONS = {
    "order_id": "object",
    "step": "int64",
    "tick": "int64",
    "position": "float64",
    "amount": "float64",
    "action": "float64",
    "source": "object",
    "reason": "object",
    "seconds": "float64",
    "request": "int64",
}


class PanelBench(Workbench):
    """The parts of a configuration on a panel that is given, whatever market the configuration names."""

    def __init__(self, config: RunConfig, sessions: Sessions) -> None:
        super().__init__(config, is_elsewhere=True)
        self._given = sessions

    @cached_property
    def sessions(self) -> Sessions:
        """The panel."""
        return self._given


class RecordedRequests(OrderExecution):
    """Executes again what was asked for, whatever amounts it is given; it is a policy too, whose answers do not count.

    Parameters
    ----------
    engine
        What executes the orders.
    requests : float64 of shape (rows of the order table, steps)
        Amount asked for in each step; NaN asks for nothing.
    """

    forms = FORMS_OF_FILLS

    def __init__(self, engine: Engine, requests: np.ndarray) -> None:
        super().__init__(engine)
        self._requests = requests

    def act(self, known: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return zeros."""
        return np.zeros(len(known))

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        """Trade what was asked for in the step, as far as it is left."""
        step = np.minimum(state.now.step, self._requests.shape[1] - 1)
        asked = np.nan_to_num(self._requests[state.orders.row, step])
        return super().step(state, np.where(state.done, 0.0, np.minimum(asked, state.now.position)))


@dataclass
class _Together:
    """Orders of one day that start at the same tick, and so step together."""

    state: ExecutionState
    asked: np.ndarray | None = None  # amounts of the step under way, (N,)
    stop: int = 0  # tick at which that step is over


class PaperTrading:
    """Orders worked on paper: a feed tells the bars, a policy in service decides, the engine executes.

    At each tick's end the service is told the bars that are over. Steps that end then are executed on them, by the
    exchange, and the fills reported; then orders whose next step starts there ask how much to trade in
    it. An order that gets no answer trades evenly over the rest of its window. Positions that the service is told
    are exact, so that it decides as in a backtest.

    Parameters
    ----------
    exchange
        The orders, and what executes them.
    client
        The policy in service.
    """

    def __init__(self, exchange: Exchange, client: Client) -> None:
        self.exchange, self.client = exchange, client
        #: How many bars the service has refused, by its reasons.
        self.refused: Counter[str] = Counter()
        self._day: np.datetime64 | None = None
        self._told: np.datetime64 | None = None  # last date whose bars the service knows
        self._groups: list[_Together] = []
        self._boundary = -1
        self._requests = 0
        self._decided: list[dict[str, Any]] = []
        self._days: list[pd.DataFrame] = []

    def trade(
        self,
        feed: Feed,
        *,
        arrivals: Callable[[Feed], Any] = iter,
        on_day: Callable[[np.datetime64, pd.DataFrame], None] | None = None,
    ) -> pd.DataFrame:
        """Work the orders through all that a feed tells; return the decisions, one row an order and step.

        Parameters
        ----------
        feed
            Orders of days that it does not tell of are an `OrderError`.
        arrivals
            Makes the arrivals out of the feed, for example at their pace (`rlwb.serving.feeds.paced`).
        on_day
            Called with the date of a day and its decisions when it is over.

        Returns
        -------
        pandas.DataFrame
            order_id; step and tick, at which it starts; position before it; amount and action decided; source
            (``policy``, ``schedule`` of the service, ``refused``) and reason; the number of the request
            by which it was asked for together with others of its tick, and the seconds that its answer took.
        """
        self._on_day, self._days = on_day, []
        try:
            for arrival in arrivals(feed):
                self._arrive(feed, arrival)
            self._close()
        except BaseException:
            self._let_go()
            raise
        traded = set().union(*(day["order_id"] for day in self._days))
        every = self.exchange.order_ids
        missing = [name for name in every if name not in traded]
        if missing:
            raise OrderError(
                f"the feed ended before {len(missing)} of {len(every)} orders could be traded, first {missing[0]}; "
                "play their days too, or leave them out."
            )
        return pd.concat(self._days, ignore_index=True)

    def _arrive(self, feed: Feed, arrival: Arrival) -> None:
        """Take what a feed tells, and do what is due by then."""
        day = np.datetime64(arrival.time.normalize(), "D")
        if day != self._day:
            self._close()
            self._open(feed, day)
        calendar = self.exchange.calendar
        seconds = (arrival.time - arrival.time.normalize()).total_seconds()
        over = int(calendar.end_ticks(np.array(seconds)))
        for boundary in range(self._boundary + 1, over):  # of ticks that nobody told a bar of
            self._tell(no_bars(), boundary)
        self._tell(arrival.bars, over)

    def _tell(self, bars: pd.DataFrame, over: int) -> None:
        """Tell bars, and that so many ticks are over; do what is due then."""
        calendar, day = self.exchange.calendar, pd.Timestamp(self._day)
        is_new = over > self._boundary
        end = calendar.tick_start[over - 1] + calendar.tick_seconds if over else calendar.tick_start[0]
        if len(bars) or (is_new and self._groups):
            self.refused.update(self.client.add_bars(bars, day + pd.Timedelta(seconds=int(end)) if is_new else None))
        self.exchange.add(bars)
        if is_new:
            self._reach(over)
            if self._decided and over == calendar.num_ticks:
                self._keep()

    def _open(self, feed: Feed, day: np.datetime64) -> None:
        """Begin a day: tell what features refer to, and register its orders."""
        state = self.exchange.begin(day)
        self._day, self._boundary, self._decided = day, -1, []
        history = feed.history(day)
        if self._told is not None:
            history = history[history["datetime"].to_numpy().astype("datetime64[D]") > self._told]
        if len(history):
            self.refused.update(self.client.load_history(history))
        self._told = day
        if state is None:
            return
        own = state.orders
        self.client.register([self._registered(own, i) for i in range(len(own))])
        for start in np.unique(own.start):
            self._groups.append(_Together(state[np.flatnonzero(own.start == start)]))

    def _registered(self, orders: OrderBatch, i: int) -> Order:
        """Return an order as the service is told it: its window as the panel has it, and its amount."""
        calendar, order = self.exchange.calendar, orders[i]

        def time_at(tick: int, length: int = 0) -> pd.Timestamp:
            return order.date + pd.Timedelta(seconds=int(calendar.tick_start[tick]) + length)

        latest = time_at(int(orders.latest_end[i]) - 1, calendar.tick_seconds)
        return dataclasses.replace(
            order,
            amount=float(orders.amount[i]),
            notional=None,
            start=time_at(int(orders.start[i])),
            end=time_at(int(orders.end[i]) - 1, calendar.tick_seconds),
            latest_end=None if order.latest_end is None else latest,
        )

    def _reach(self, boundary: int) -> None:
        """Execute the steps that end where tick `boundary` starts, and ask for those that start there."""
        self._boundary = boundary
        fills: list[Fill] = []
        over = [group for group in self._groups if group.asked is not None and group.stop <= boundary]
        market = self.exchange.market if over else None
        for group in over:
            assert market is not None
            fills += _execute(market, group)
        if fills:
            self.client.report(fills)
        due = [group for group in self._groups if self._is_due(group, boundary)]
        if due:
            self._ask(due)

    def _is_due(self, group: _Together, boundary: int) -> bool:
        open_ = ~group.state.done
        return group.asked is None and bool(open_.any()) and int(group.state.now.tick[open_][0]) <= boundary

    def _ask(self, groups: Sequence[_Together]) -> None:
        """Ask how much to trade in the steps that start now."""
        rows = [np.flatnonzero(~group.state.done) for group in groups]
        ids = [
            group.state.orders.table["order_id"].to_numpy()[open_] for group, open_ in zip(groups, rows, strict=True)
        ]
        left = [group.state.now.position[open_] for group, open_ in zip(groups, rows, strict=True)]
        begun = time.perf_counter()
        try:
            answers = self.client.decide(np.concatenate(ids).tolist(), np.concatenate(left).tolist())
        except ServingError as error:  # a desk goes on without it
            answers = [Answer(np.nan, None, "refused", error.reason)] * sum(map(len, ids))
        seconds, at = time.perf_counter() - begun, 0
        self._requests += 1
        for group, open_, names in zip(groups, rows, ids, strict=True):
            state, asked = group.state, np.zeros(len(group.state))
            even = state.now.position * state.engine.even_share(state.orders, state.now)
            for row, name in zip(open_.tolist(), names.tolist(), strict=True):
                answer: Answer = answers[at]
                at += 1
                given = np.isfinite(answer.amount)
                asked[row] = np.clip(answer.amount, 0.0, state.now.position[row]) if given else even[row]
                self._decided.append(
                    {
                        "order_id": name,
                        "step": int(state.now.step[row]),
                        "tick": int(state.now.tick[row]),
                        "position": float(state.now.position[row]),
                        "amount": float(asked[row]),
                        "action": np.nan if answer.action is None else float(answer.action),
                        "source": answer.source,
                        "reason": answer.reason,
                        "seconds": seconds,
                        "request": self._requests,
                    }
                )
            group.asked = asked
            group.stop = int(state.engine.step_stop(state.orders, state.now)[open_].max())

    def _keep(self) -> None:
        """Keep the decisions of a day whose orders are done."""
        made = pd.DataFrame(self._decided, columns=list(DECISIONS)).astype(DECISIONS)
        self._decided = []
        self._days.append(made)
        if self._on_day is not None:
            assert self._day is not None
            self._on_day(self._day, made)

    def _close(self) -> None:
        """End a day: what is over by its close is executed, and its orders are let go of."""
        last = self.exchange.calendar.num_ticks
        while self._decided and self._boundary < last:
            self._tell(no_bars(), self._boundary + 1)
        self._let_go()
        self._day = None

    def _let_go(self) -> None:
        """Take the day's orders out of the service."""
        names = [name for group in self._groups for name in group.state.orders.table["order_id"]]
        self._groups = []
        if names:
            self.client.forget(names)


def _execute(market: OrderExecution, group: _Together) -> list[Fill]:
    """Execute the step under way; return its fills."""
    assert group.asked is not None
    state = market.step(group.state, group.asked)
    group.state, group.asked = state, None
    ids, last = state.orders.table["order_id"].tolist(), state.steps[-1]
    price = average_price(last.notional, last.fill)
    step = len(state.steps) - 1
    return [
        Fill(f"{ids[i]}/{step}", ids[i], float(last.fill[i]), float(price[i]))
        for i in np.flatnonzero(last.fill > 0).tolist()
    ]


def executed(
    bench: Workbench, orders: OrderBatch, decisions: pd.DataFrame, name: str, **known: Any
) -> tuple[PolicyResult, pd.DataFrame, pd.DataFrame]:
    """Return the result of decided amounts, as a backtest has it, and the audit by tick and by step.

    Parameters
    ----------
    orders
        The orders, aligned.
    decisions
        See `PaperTrading.trade`.
    name, known
        What the result is called, and what else is known of the policy (`rlwb.evaluation.PolicyResult`).
    """
    rows = pd.Series(orders.row, orders.table["order_id"]).reindex(decisions["order_id"]).to_numpy()
    requests = np.full((int(orders.row.max()) + 1, bench.engine.max_step), np.nan)
    requests[rows.astype(np.int64), decisions["step"].to_numpy()] = decisions["amount"].to_numpy()

    def play(engine: Engine) -> tuple[RecordedRequests, Any]:
        market = RecordedRequests(engine, requests)
        return market, backtest.play(
            bench, (market, KnownStateInterpreter(), AmountActionInterpreter()), orders, market
        )

    market, episodes = play(bench.engine)
    made = backtest.result(name, "checkpoint", orders, episodes, **known)
    costs = attribute_costs(bench.engine, orders, episodes.metrics, episodes.details["requested"])
    if bench.impact_free is not None:
        engine = bench.impact_free[0]
        _, again = play(engine)
        costs[IMPACT_OFF] = attribute_costs(engine, orders, again.metrics, again.details["requested"])["cost"]
    ticks, steps, _ = audit(market, orders, market, reward=bench.reward)
    told = decisions.set_index(["order_id", "step"])[["action", "source"]]
    steps = steps.drop(columns="action").join(told, on=["order_id", "step"])
    return dataclasses.replace(made, orders=made.orders.assign(**costs)), ticks, steps
