"""The state of N orders, in two views: what may be known at a decision, and what a step led to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pandas as pd

from rlwb.batch import Rows
from rlwb.errors import OrderError
from rlwb.execution.engine import Benchmarks, Engine, EngineState, Fills, TickRecord
from rlwb.execution.kernel import TOLERANCE
from rlwb.execution.metrics import average_price, order_metrics, price_advantage
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import ExecutionRules
from rlwb.market import MarketFeatures, Sessions


@dataclass(frozen=True, eq=False)
class Known(EngineState):
    """The knowledge of N orders at a decision: how they stand (`EngineState`), the orders, and the market so far.

    It is all that interpreters and policies receive. No public attribute or method gives a bar at or after `tick`, a
    benchmark of the window, or a total of the order's day. ``known[i]`` is order i alone.

    Attributes
    ----------
    side : int8 of shape (N,)
        +1 buy, -1 sell.
    amount : float64 of shape (N,)
    start, end : int32 of shape (N,)
        Ticks of the order's window ``[start, end)``, which schedules and benchmarks go by.
    latest_end : int32 of shape (N,)
        Tick until which the order may go on after its end; the end itself where it states none.
    session : int32 of shape (N,)
        Row of the order's session in the panel, by which features are looked up.
    num_steps : int32 of shape (N,)
        Steps of the whole order, until its latest end.
    max_step
        Largest number of steps that an order can have on this clock.
    complete_at_end
        Whether the rules ask for the whole position at the latest end.
    forms
        The optional columns that the order table has (`rlwb.execution.order.FORMS`), float64 of shape (N,) each; NaN
        where an order states nothing.
    """

    side: np.ndarray
    amount: np.ndarray
    start: np.ndarray
    end: np.ndarray
    latest_end: np.ndarray
    session: np.ndarray
    num_steps: np.ndarray
    max_step: int
    complete_at_end: bool
    forms: Mapping[str, np.ndarray]
    _steps: Iterable[Fills] = field(repr=False)
    _left: tuple[np.ndarray, ...] = field(repr=False)
    _sessions: Sessions = field(repr=False)

    @property
    def aversion(self) -> np.ndarray:
        """Risk aversion of each order per basis point, float64 of shape (N,); 0 where none is stated."""
        return np.nan_to_num(self.forms["aversion"]) if "aversion" in self.forms else np.zeros(np.shape(self.amount))

    @property
    def is_last_step(self) -> np.ndarray:
        """Whether the step to come is the order's last, bool of shape (N,)."""
        return np.asarray(self.step >= self.num_steps - 1)

    @property
    def completes(self) -> np.ndarray:
        """True where the coming step asks for all that is left, as in the last one by default; bool of shape (N,)."""
        return np.asarray(self.is_last_step & self.complete_at_end)

    @property
    def ticks_left(self) -> np.ndarray:
        """Ticks left in the window, int32 of shape (N,), 0 after its end; a lunch break has none."""
        return np.maximum(self.end - self.tick, 0)

    @property
    def instrument(self) -> np.ndarray:
        """Instrument of each order, text of shape (N,)."""
        return np.asarray(self._sessions.instruments[self.session])

    @property
    def date(self) -> np.ndarray:
        """Date of each order, datetime64[D] of shape (N,)."""
        return np.asarray(self._sessions.dates[self.session])

    @property
    def time(self) -> np.ndarray:
        """Start of the next tick in session-local time, datetime64[s] of shape (N,); the close when the day is over."""
        calendar = self._sessions.calendar
        seconds = np.array([calendar.seconds_at(tick) for tick in range(calendar.num_ticks + 1)], "timedelta64[s]")
        return np.asarray(self.date.astype("datetime64[s]") + seconds[self.tick])

    @property
    def position_history(self) -> np.ndarray:
        """Position before step 0, 1, …, float64 of shape (N, max_step + 1); NaN beyond the steps taken."""
        return self._by_step(self._left, 1)

    @property
    def requested_history(self) -> np.ndarray:
        """Amount requested in step 0, 1, …, float64 of shape (N, max_step); NaN beyond the steps taken."""
        return self._by_step([step.requested for step in self._steps])

    @property
    def fill_history(self) -> np.ndarray:
        """Amount filled in step 0, 1, …, float64 of shape (N, max_step); NaN beyond the steps taken."""
        return self._by_step([step.fill for step in self._steps])

    @property
    def price_history(self) -> np.ndarray:
        """Average price of step 0, 1, …, float64 of shape (N, max_step); NaN where nothing was filled."""
        return self._by_step([average_price(step.notional, step.fill) for step in self._steps])

    def bars(self, name: str = "close") -> np.ndarray:
        """Return a field of today's bars so far, float64 of shape (N, T); NaN from `tick` on and where missing."""
        values = self._field(name)[self.session]
        return np.where(np.arange(values.shape[-1]) < self.tick[..., None], values, np.nan)

    def yesterday(self, name: str = "close") -> np.ndarray:
        """Return a field of the previous session's bars, float64 of shape (N, T); NaN where there is none."""
        row = self._sessions.previous[self.session]
        return np.where((row >= 0)[..., None], self._field(name)[np.maximum(row, 0)], np.nan)

    def steps_table(self) -> pd.DataFrame:
        """Return the steps so far for reading, one row an order and step: requested, fill, price, position."""
        known = self if np.ndim(self.amount) else self[None]
        count = sum(1 for _ in known._steps)
        step = np.broadcast_to(np.arange(count), (len(known), count))
        columns = {
            "order": np.broadcast_to(np.arange(len(known))[:, None], step.shape),
            "step": step,
            "requested": known.requested_history[:, :count],
            "fill": known.fill_history[:, :count],
            "price": known.price_history[:, :count],
            "position": known.position_history[:, 1 : count + 1],
        }
        taken = step < known.step[:, None]
        return pd.DataFrame({name: values[taken] for name, values in columns.items()})

    def bars_table(self, row: int = 0) -> pd.DataFrame:
        """Return the bars so far of one order's session for reading, one row a tick, by the time of its start."""
        known = self[row] if np.ndim(self.amount) else self
        times = [self._sessions.calendar.time_of(tick) for tick in range(int(known.tick))]
        return pd.DataFrame({name: known.bars(name)[: len(times)] for name in self._sessions.fields}, index=times)

    def check_features(self, features: MarketFeatures) -> None:
        """Raise `DataError` unless `features` were made of the sessions that the orders belong to."""
        features.check_matches(self._sessions)

    def _field(self, name: str) -> np.ndarray:
        if name not in self._sessions.fields:
            raise OrderError(f"the bars have no field {name!r}; they have {', '.join(sorted(self._sessions.fields))}.")
        return np.asarray(self._sessions.fields[name])

    def _by_step(self, columns: Sequence[np.ndarray], more: int = 0) -> np.ndarray:
        """Return columns side by side, float64 of shape (N, max_step + more); NaN beyond ``step + more`` of them."""
        table = np.full((*np.shape(self.amount), self.max_step + more), np.nan)
        least = int(np.min(self.step, initial=self.max_step)) + more
        for step, values in enumerate(columns):
            table[..., step] = values if step < least else np.where(step < self.step + more, values, np.nan)
        return table


@dataclass(frozen=True, eq=False)
class Outcome(Fills, Benchmarks):
    """The outcome of the last step of N orders: what rewards and metrics receive.

    It has the step's `Fills` and the `Benchmarks` of the orders' whole windows.

    Attributes
    ----------
    known
        What is known after the step.
    total_cost : float64 of shape (N,)
        What the order has paid so far for quoted spread and impact; fees are not in it.
    done : bool of shape (N,)
        Whether the step was the order's last.
    rules
        The rules of execution, for costs.
    """

    known: Known
    total_cost: np.ndarray
    done: np.ndarray
    rules: ExecutionRules

    @property
    def step_price(self) -> np.ndarray:
        """Average price of the step's fills, float64 of shape (N,); NaN where nothing was filled."""
        return average_price(self.notional, self.fill)

    @property
    def step_pa(self) -> np.ndarray:
        """Price advantage of the step's fills in basis points, float64 of shape (N,); NaN where nothing was filled."""
        return price_advantage(self.step_price, self.benchmark, self.known.side)


@dataclass(frozen=True, eq=False)
class ExecutionState(Rows):
    """N orders in flight.

    Attributes
    ----------
    engine, orders
        What executes the orders, and the orders.
    seeds : uint64 of shape (N,)
        Seeds of random numbers that a simulator may draw.
    now
        Where the orders stand.
    benchmarks
        Prices of the windows; they know the future.
    num_steps : int32 of shape (N,)
    steps
        What each step so far did.
    left
        The positions before and after each step so far, float64 of shape (N,) each.
    """

    engine: Engine
    orders: OrderBatch
    seeds: np.ndarray
    now: EngineState
    benchmarks: Benchmarks
    num_steps: np.ndarray
    steps: tuple[Fills, ...]
    left: tuple[np.ndarray, ...]

    @classmethod
    def start(cls, engine: Engine, orders: OrderBatch, seeds: np.ndarray | None = None) -> ExecutionState:
        """Return the state of orders that have not traded yet."""
        seeds = np.zeros(len(orders), dtype=np.uint64) if seeds is None else seeds
        now = engine.reset(orders)
        return cls(engine, orders, seeds, now, engine.benchmarks(orders), engine.num_steps(orders), (), (now.position,))

    def after(self, now: EngineState, fills: Fills) -> ExecutionState:
        """Return the state after a step that the engine, or a simulator of one's own, has made."""
        return replace(self, now=now, steps=(*self.steps, fills), left=(*self.left, now.position))

    def traded(self, requested: np.ndarray, fill: np.ndarray, price: np.ndarray) -> ExecutionState:
        """Return the state after a step whose fills a simulator of one's own has found; it does all bookkeeping.

        Parameters
        ----------
        requested : float64 of shape (N,)
        fill, price : float64 of shape (N, K)
            Amount filled in each of the step's ticks (see `step_ticks`), and its price, NaN where nothing is filled.

        Raises
        ------
        OrderError
            When a fill is negative, not finite or has no price, or an order would fill more than its position.
        """
        now, amount = self.now, self.orders.amount
        done = np.asarray(fill).sum(axis=1)
        left = np.where(now.done, 0.0, now.position)
        wrong = ~((fill >= 0) & (fill < np.inf) & ((fill == 0) | (price > 0))).all(axis=1)
        wrong |= done > left + TOLERANCE * amount
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise OrderError(
                f"{self.orders.label(i)}: step {now.step[i]} fills {fill[i].tolist()} at {price[i].tolist()} with "
                f"{float(left[i])!r} left; fill finite amounts of 0 or more at prices above 0, within the position."
            )
        value = np.where(fill > 0, fill * price, 0.0).sum(axis=1)
        position = np.where(now.done, now.position, now.position - done)
        position[position <= TOLERANCE * amount] = 0.0
        stop = self.engine.step_stop(self.orders, now)
        ticks = now.tick[:, None] + np.arange(np.shape(fill)[1])
        volume = self.engine.volume[self.orders.session[:, None], np.minimum(ticks, self.engine.volume.shape[1] - 1)]
        traded = (ticks < stop[:, None]) & (volume > 0)
        untraded = np.where(traded, 0.0, fill).sum(axis=1)
        zero = np.zeros(len(self))
        after = replace(
            now,
            tick=stop,
            step=np.where(now.done, now.step, now.step + 1).astype(np.int32),
            position=position,
            requested=now.requested + requested,
            filled=np.where(position == 0.0, amount, now.filled + done),
            notional=now.notional + value,
            done=now.done | (position == 0.0) | (stop >= self.orders.latest_end),
            untraded=now.untraded + untraded,
        )
        return self.after(after, Fills(requested, done, value, (np.asarray(fill) ** 2).sum(axis=1), zero, untraded))

    def step_ticks(self) -> np.ndarray:
        """Return the ticks of the step to come, int64 of shape (N, K); -1 where an order's step has fewer than K."""
        stop = self.engine.step_stop(self.orders, self.now)
        ticks = self.now.tick[:, None] + np.arange(max(int((stop - self.now.tick).max(initial=0)), 1))
        return np.where(ticks < stop[:, None], ticks, -1)

    def tick_record(self) -> TickRecord:
        """Return what each tick so far did, by executing the requests again; of shape (N, T)."""
        return self.engine.replay(self.orders, (step.requested for step in self.steps))

    @property
    def done(self) -> np.ndarray:
        """Whether each order has ended, bool of shape (N,)."""
        return self.now.done

    @cached_property
    def known(self) -> Known:
        """What interpreters and policies may see."""
        orders = self.orders
        return Known(
            **vars(self.now),
            side=orders.side,
            amount=orders.amount,
            start=orders.start,
            end=orders.end,
            latest_end=orders.latest_end,
            session=orders.session,
            num_steps=self.num_steps,
            max_step=self.engine.max_step,
            complete_at_end=self.engine.rules.complete_at_end,
            forms=orders.forms,
            _steps=self.steps,
            _left=self.left,
            _sessions=self.engine.sessions,
        )

    @cached_property
    def outcome(self) -> Outcome:
        """What rewards and metrics may see."""
        return Outcome(
            **vars(self.steps[-1] if self.steps else Fills.none(len(self))),
            **vars(self.benchmarks),
            known=self.known,
            total_cost=self.now.cost,
            done=self.now.done,
            rules=self.engine.rules,
        )

    def __len__(self) -> int:
        return len(self.orders)

    def take(self, rows: np.ndarray) -> ExecutionState:
        """Return the given orders as a state of their own."""
        return self[rows]

    def text(self, row: int = 0) -> str:
        """Return how one order stands, for reading: the order, what is left when, and a line a step."""
        known, order = self.known[[row]], self.orders[row]
        left, count = float(known.position[0] / known.amount[0]), int(known.num_steps[0])
        when = "done" if self.done[row] else f"step {int(known.step[0]) + 1} of {count}"
        lines = [f"{order}", f"{when} at {pd.Timestamp(known.time[0]):%H:%M}, {100 * left:.1f} % left"]
        steps = known.steps_table().drop(columns="order")
        if len(steps):
            lines.append(steps.to_string(index=False, float_format="{:,.6g}".format, na_rep="-"))
        return "\n".join(lines)

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the figures of the orders as they stand; see `order_metrics`."""
        return order_metrics(self.orders, self.now, self.benchmarks, self.engine.rules)

    def details(self) -> dict[str, np.ndarray]:
        """Return what each order did step by step.

        inventory
            Share of the amount left after 0, 1, … steps, float64 of shape (N, max_step + 1). After its end an order
            keeps its last value.
        requested
            Amount requested in each step, float64 of shape (N, max_step); 0 after the order's end.
        """
        missing = self.engine.max_step - len(self.steps)
        left = [*self.left, *[self.left[-1]] * missing]
        requested = [*(step.requested for step in self.steps), *[np.zeros(len(self))] * missing]
        return {
            "inventory": np.stack(left, axis=1) / self.orders.amount[:, None],
            "requested": np.stack(requested, axis=1),
        }
