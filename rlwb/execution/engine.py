"""The engine: the rules of execution as functions over arrays of N orders.

Rules of a step, for one order (the compiled loop is `rlwb.execution.kernel.advance`):

1. The session is cut into cells of `ticks_per_step` ticks, anchored at the start of each segment. A
   step covers the part of one cell that lies in the order's window.
2. The ask is spread equally over the step's ticks that have a price (finite and above 0). After the
   k-th of n such ticks, ``ask * k / n`` is due; the tick asks for what has become due with it.
3. A tick fills what it asks, cut to 0 when the session is halted or a price limit blocks the side, and
   to ``volume_limit * volume`` when there is a cap. What is cut stays in the position.
4. In the order's last step a tick asks for all that is due and unfilled (catch-up), and the last priced
   tick asks for the whole position, with `complete_at_end` off only if the step's ask was all of it.
5. With lots, what is due is rounded to the nearest lot on the order's cumulative schedule, a cap is
   rounded down, and the part of the amount below one lot trades where the last priced tick asks for the whole
   position, or never.
6. What a tick's fill costs beside its price is added up in currency: half the spread under `price_field`
   ``"quotes"``, and ``fill * price * (moved + temporary * f(fill / volume))`` of impact, after which the fill moves
   the price of the order's later fills: ``moved += permanent * g(fill / volume)``, with f and g the identity or the
   square root. The benchmark is not moved.
7. An order is done when at most 1e-9 of its amount is left, or only an odd remainder that may not
   trade, or when its window has ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlwb.errors import ConfigError, OrderError
from rlwb.execution.kernel import TOLERANCE, advance, count_priced, window_prices, window_room
from rlwb.execution.order import OrderBatch
from rlwb.execution.prices import check_data, half_spreads, tick_prices
from rlwb.execution.rules import BASIS_POINTS, ExecutionRules
from rlwb.market import Sessions
from rlwb.market.mapped import prefetch
from rlwb.market.references import previous_close

_NO_ROWS = np.empty((0, 0))


@dataclass(frozen=True)
class EngineState:
    """Where N orders stand.

    Attributes
    ----------
    tick, step : int32 of shape (N,)
        Next tick and number of steps taken.
    position : float64 of shape (N,)
        Amount left.
    asked, filled, notional : float64 of shape (N,)
        Sum of the asks, of the fills (the amount once nothing is left), and of fill times price.
    done : bool of shape (N,)
    cost : float64 of shape (N,)
        Currency paid for the spread of the quotes and for impact, beside the notional; fees are not in it.
    moved : float64 of shape (N,)
        How far the order's fills have moved the price against it for good, as a share of the price.
    """

    tick: np.ndarray
    step: np.ndarray
    position: np.ndarray
    asked: np.ndarray
    filled: np.ndarray
    notional: np.ndarray
    done: np.ndarray
    cost: np.ndarray
    moved: np.ndarray


@dataclass(frozen=True)
class Fills:
    """What one step did to N orders; rows of orders that were done hold 0.

    Attributes
    ----------
    ask, fill, notional, squares : float64 of shape (N,)
        Amount asked and filled, sum over ticks of fill times price, and of squared fill.
    cost : float64 of shape (N,)
        Currency paid for the spread of the quotes and for impact.
    """

    ask: np.ndarray
    fill: np.ndarray
    notional: np.ndarray
    squares: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True)
class TickRecord:
    """What each tick did, of shape (N, T): amount asked, amount filled, what bound it (a code), and cost paid."""

    ask: np.ndarray
    fill: np.ndarray
    bound: np.ndarray
    cost: np.ndarray

    @classmethod
    def empty(cls, orders: int, ticks: int) -> TickRecord:
        ask, fill, cost = (np.zeros((orders, ticks)) for _ in range(3))
        return cls(ask, fill, np.zeros((orders, ticks), dtype=np.int8), cost)


_NO_RECORD = TickRecord.empty(0, 0)


@dataclass(frozen=True)
class Benchmarks:
    """Prices of each order's window, float64 of shape (N,): NaN where there is none.

    Attributes
    ----------
    twap
        Mean of the valid prices; the benchmark of the price advantage.
    vwap
        Volume-weighted mean price.
    arrival
        First valid price.
    volume
        Volume of the window.
    """

    twap: np.ndarray
    vwap: np.ndarray
    arrival: np.ndarray
    volume: np.ndarray


def _plain(array: np.ndarray, dtype: type = np.float64) -> np.ndarray:
    """Return a read-only C-contiguous view: one compiled signature serves memory and memory-mapped arrays."""
    view = np.ascontiguousarray(array, dtype=dtype).view(np.ndarray)[:]
    view.flags.writeable = False
    return view


class Engine:
    """Executes orders on the sessions of one panel.

    Parameters
    ----------
    sessions
        The panel.
    ticks_per_step
        Ticks that one decision covers, at least 1.
    rules
        Market rules; the default is the simple simulator: no cap, no lots, no limits.
    """

    def __init__(self, sessions: Sessions, ticks_per_step: int, rules: ExecutionRules | None = None) -> None:
        whole = isinstance(ticks_per_step, (int, np.integer)) and not isinstance(ticks_per_step, bool)
        if not whole or not 1 <= ticks_per_step <= sessions.calendar.num_ticks:
            raise ConfigError(
                f"ticks_per_step is {ticks_per_step!r}; it must be a whole number between 1 and the session's "
                f"{sessions.calendar.num_ticks} ticks."
            )
        self.rules = rules or ExecutionRules()
        check_data(self.rules, sessions)
        self.sessions = sessions
        self.ticks_per_step = ticks_per_step
        #: Price of each tick, float64 of shape (S, T): the field of the rules, or the mid of the quotes.
        self.price = _plain(tick_prices(sessions, self.rules))
        self.volume = _plain(sessions.fields["volume"])
        self._half_spread = _plain(half_spreads(sessions)) if self.rules.price_field == "quotes" else _plain(_NO_ROWS)
        halted = sessions.halted if self.rules.halts else None
        self._halted = _plain(_NO_ROWS if halted is None else halted, np.bool_)
        self._lower, self._upper = self._price_limits()
        self._cap = np.inf if self.rules.volume_limit is None else self.rules.volume_limit
        self.cell = sessions.calendar.cells(ticks_per_step).astype(np.int32)
        self._cell_stop = np.searchsorted(self.cell, self.cell, side="right").astype(np.int32)
        #: Largest number of steps an order can have on this clock.
        self.max_step = int(self.cell[-1]) + 1

    def num_steps(self, orders: OrderBatch) -> np.ndarray:
        """Return how many cells of the step grid each window meets, int32 of shape (N,)."""
        return (self.cell[orders.end - 1] - self.cell[orders.start] + 1).astype(np.int32)

    def benchmarks(self, orders: OrderBatch) -> Benchmarks:
        """Return the prices that the orders are judged by."""
        for values in (self.price, self.volume):
            prefetch(values, orders.session)
        return Benchmarks(*window_prices(self.price, self.volume, orders.session, orders.start, orders.end))

    def room(self, orders: OrderBatch, *, capped: bool = True) -> np.ndarray:
        """Return the most that each tick of each order's window can fill, float64 of shape (N, T).

        0 outside of the window and where the tick has no price, is halted or at a limit that blocks the side; infinity
        where nothing caps it, as everywhere with `capped` off; in whole lots. It is of the whole session, and so knows
        the future.
        """
        return window_room(
            self.price,
            self.volume,
            self._halted,
            self._lower,
            self._upper,
            orders.session,
            orders.side,
            orders.start,
            orders.end,
            self._cap if capped else np.inf,
            self.rules.lot_size,
        )

    def reset(self, orders: OrderBatch) -> EngineState:
        """Return the state before the first step."""
        n = len(orders)
        return EngineState(
            tick=orders.start.copy(),
            step=np.zeros(n, dtype=np.int32),
            position=orders.amount.astype(np.float64, copy=True),
            asked=np.zeros(n),
            filled=np.zeros(n),
            notional=np.zeros(n),
            done=np.zeros(n, dtype=bool),
            cost=np.zeros(n),
            moved=np.zeros(n),
        )

    def step_stop(self, orders: OrderBatch, state: EngineState) -> np.ndarray:
        """Return the tick at which each order's next step ends, int32 of shape (N,)."""
        return np.where(
            state.done, state.tick, np.minimum(orders.end, self._cell_stop[np.minimum(state.tick, len(self.cell) - 1)])
        ).astype(np.int32)

    def even_share(self, orders: OrderBatch, state: EngineState) -> np.ndarray:
        """Return the share of the position that an even schedule trades in the next step, float64 of shape (N,).

        Even means even over the ticks that have a price, as the TWAP benchmark weighs them: which ticks
        have a price is taken as known, what the prices are is not.
        """
        stop = self.step_stop(orders, state)
        now = count_priced(self.price, orders.session, state.tick, stop)
        left = count_priced(self.price, orders.session, state.tick, orders.end)
        return np.divide(now, left, out=np.zeros(len(now)), where=left > 0)

    def step(
        self, orders: OrderBatch, state: EngineState, ask: np.ndarray, record: TickRecord | None = None
    ) -> tuple[EngineState, Fills]:
        """Execute one step of every order that is not done.

        Parameters
        ----------
        orders, state
            The orders and where they stand; neither is changed.
        ask
            Amount to trade in this step, float64 of shape (N,), in ``[0, position]``; 0 for orders that
            are done.
        record
            Filled tick by tick, if given.

        Raises
        ------
        OrderError
            When an ask is not finite, negative, or above the position by more than the tolerance.
        """
        ask = np.array(ask, dtype=np.float64)
        left = np.where(state.done, 0.0, state.position)
        wrong = ~((ask >= 0.0) & (ask <= left + TOLERANCE * orders.amount))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise OrderError(
                f"{orders.label(i)}: step {state.step[i]} asks for {ask[i]!r} with {left[i]!r} left to trade; "
                "ask for an amount between 0 and the position."
            )
        ask = np.minimum(ask, left)
        stop = self.step_stop(orders, state)
        rules = self.rules
        trades_odd = rules.trades_odd(orders.side)
        position, asked, moved = state.position.copy(), state.asked.copy(), state.moved
        if rules.permanent_impact_bps:
            moved = moved.copy()
        fill, notional, squares, cost = (np.zeros(len(ask)) for _ in range(4))
        ticks = record or _NO_RECORD
        advance(
            self.price,
            self.volume,
            self._halted,
            self._lower,
            self._upper,
            orders.session,
            orders.side,
            orders.amount,
            orders.end,
            stop,
            state.tick,
            ask,
            position,
            asked,
            fill,
            notional,
            squares,
            cost,
            moved,
            self._cap,
            rules.complete_at_end,
            rules.lot_size,
            trades_odd,
            self._half_spread,
            rules.temporary_impact_bps / BASIS_POINTS,
            rules.temporary_impact_shape == "square_root",
            rules.permanent_impact_bps / BASIS_POINTS,
            rules.permanent_impact_shape == "square_root",
            ticks.ask,
            ticks.fill,
            ticks.bound,
            ticks.cost,
        )
        nothing_left = position <= TOLERANCE * orders.amount
        if rules.lot_size and not trades_odd.all():
            lots = np.floor(orders.amount / rules.lot_size + TOLERANCE) * rules.lot_size
            nothing_left |= ~trades_odd & (position - (orders.amount - lots) <= TOLERANCE * orders.amount)
        after = EngineState(
            tick=stop,
            step=np.where(state.done, state.step, state.step + 1).astype(np.int32),
            position=position,
            asked=asked,
            # Not the amount less the position, which has no digits for small fills of a huge order.
            filled=np.where(position == 0.0, orders.amount, state.filled + fill),
            notional=state.notional + notional,
            done=state.done | nothing_left | (stop >= orders.end),
            cost=state.cost + cost if rules.costs_by_tick else state.cost,
            moved=moved,
        )
        return after, Fills(ask, fill, notional, squares, cost)

    def _price_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper limit of each session, of shape (S,); no rows without the rule."""
        if self.rules.price_limit is None:
            return np.empty(0), np.empty(0)
        reference = previous_close(self.sessions)
        unit, limit = self.rules.price_tick, self.rules.price_limit
        # A hundred-thousandth of a price tick forgives the rounding of stored prices.
        slack = 1e-5 * unit
        upper = np.maximum(np.floor(reference * (1 + limit) / unit + 0.5 + 1e-9) * unit, reference + unit) - slack
        lower = np.minimum(np.floor(reference * (1 - limit) / unit + 0.5 + 1e-9) * unit, reference - unit) + slack
        return np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
