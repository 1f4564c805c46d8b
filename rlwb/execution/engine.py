"""The engine: the rules of execution as functions over arrays of N orders.

Rules of a step, for one order (the compiled loop is `rlwb.execution.kernel.advance`):

1. The session is cut into cells of `ticks_per_step` ticks, anchored at the start of each segment, or of the session
   under `step_grid` ``"session"``. A step covers the part of one cell that lies in the order's window.
2. The request is spread equally over the step's ticks that have a price (finite and above 0). After the
   k-th of n such ticks, ``request * k / n`` is due; the tick requests what has become due with it.
3. A tick fills what it requests, cut to 0 when the session is halted or a price limit blocks the side, and
   to ``volume_limit * volume`` when there is a cap. What is cut stays in the position.
4. In the order's last step a tick requests all that is due and unfilled (catch-up, unless it is off), and the last
   priced tick requests the whole position, with `complete_at_end` off only if the step's request was all of it.
5. With lots, what is due is rounded to the nearest lot on the order's cumulative schedule, a cap is
   rounded down, and the odd lot (the part of the amount below one lot) trades where the last priced tick requests
   the whole position, or never.
6. Forms that an order states change what a tick requests and fills. At a price (under `price_field` ``"quotes"`` the
   ask of a buy, the bid of a sell) at or better than `would_price` it requests the whole position; else at least
   ``min_participation * volume``, as far as that is left. At a price worse than `limit_price` it fills nothing, and
   never more than ``max_participation * volume``. With a `latest_end` the steps go on until then, the last step is the
   last before it, and `end` is what schedules and benchmarks go by. Prices are compared up to 1e-9 of the form's.
7. What a tick's fill costs beside its price is added up in currency: half the spread under `price_field`
   ``"quotes"``, and ``fill * price * (P + temporary * f(fill / volume))`` of impact, after which the fill moves
   the price of the order's later fills: ``P += permanent * g(fill / volume)``, with P the order's permanent impact so
   far and f and g the identity or the square root. With transient impact a fill pays ``fill * price * (R + m * D)``
   more, and then moves the price by ``D = transient * h(fill / volume)``, of which m = 1/2 (h the identity) or 2/3 (h
   the root) is the mean over its own shares. R is the sum of the order's earlier moves, each times the part that is
   left after the time since its tick: ``2 ** (-t / half_life)``, or ``(1 + t / tau) ** -exponent`` with
   ``tau = half_life / (2 ** (1 / exponent) - 1)``. Time counts in ticks of the session. The benchmark is not moved.
8. An order is done when at most 1e-9 of its amount is left, or only an odd lot that may not trade, or when its window
   has ended, or that of its latest end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlwb.batch import Rows
from rlwb.errors import ConfigError, OrderError
from rlwb.execution.kernel import (
    NO_ROWS,
    TOLERANCE,
    Market,
    Progress,
    StepSums,
    TickArrays,
    Windows,
    advance,
    arrival_prices,
    count_priced,
    outer_prices,
    window_prices,
    window_room,
)
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import ExecutionRules, check_data, half_spreads, outer_fields, tick_prices
from rlwb.market import Sessions
from rlwb.market.references import previous_close
from rlwb.market.store import prefetch

_BLOCK = 4096  # orders looked at together
#: Forms that the compiled loop reads, in its order.
_FORMS = ("limit_price", "would_price", "min_participation", "max_participation")


@dataclass(frozen=True)
class EngineState(Rows):
    """Where N orders stand.

    Attributes
    ----------
    tick, step : int32 of shape (N,)
        Next tick and number of steps taken.
    position : float64 of shape (N,)
        Amount left.
    requested, filled, notional : float64 of shape (N,)
        Sum of the requests, of the fills (the amount once nothing is left), and of fill times price.
    done : bool of shape (N,)
    cost : float64 of shape (N,)
        Currency paid for the spread of the quotes and for impact, beside the notional; fees are not in it.
    permanent_impact : float64 of shape (N,)
        Cumulative permanent impact of this order's fills, as a fraction of the price.
    transient_impact : float64 of shape (N, K)
        Transient impact of this order's fills, as a fraction of the price: what is left of it at `tick` under an
        exponential decay, where K is 1; each tick's own move under a power one, where K is T. K is 0 without the rule.
    untraded : float64 of shape (N,)
        Amount filled in ticks for which the market states no volume, or none at all.
    """

    tick: np.ndarray
    step: np.ndarray
    position: np.ndarray
    requested: np.ndarray
    filled: np.ndarray
    notional: np.ndarray
    done: np.ndarray
    cost: np.ndarray
    permanent_impact: np.ndarray
    transient_impact: np.ndarray
    untraded: np.ndarray

    def __len__(self) -> int:
        return len(self.tick)


@dataclass(frozen=True)
class Fills(Rows):
    """What one step did to N orders; rows of orders that were done hold 0.

    Attributes
    ----------
    requested, fill, notional, sum_sq_fill : float64 of shape (N,)
        Amount requested and filled, sum over ticks of fill times price, and of squared fill (shares²).
    cost : float64 of shape (N,)
        Currency paid for the spread of the quotes and for impact.
    untraded : float64 of shape (N,)
        The part of the fill in ticks for which the market states no volume, or none at all.
    """

    requested: np.ndarray
    fill: np.ndarray
    notional: np.ndarray
    sum_sq_fill: np.ndarray
    cost: np.ndarray
    untraded: np.ndarray

    @classmethod
    def none(cls, orders: int) -> Fills:
        """Return the fills before the first step: zeros."""
        zero = np.zeros(orders)
        return cls(zero, zero, zero, zero, zero, zero)

    def __len__(self) -> int:
        return len(self.fill)


@dataclass(frozen=True)
class TickRecord(Rows):
    """The record of N orders by tick: amounts requested and filled, what cut them, and costs.

    Attributes
    ----------
    requested, fill, cost : float64 of shape (N, T)
        Amount requested (after catch-up and lot rounding) and filled, and currency paid for spread and impact.
    constraint : int8 of shape (N, T)
        What cut the fill: an index of `rlwb.execution.kernel.CONSTRAINTS`.
    """

    requested: np.ndarray
    fill: np.ndarray
    constraint: np.ndarray
    cost: np.ndarray

    @classmethod
    def empty(cls, orders: int, ticks: int) -> TickRecord:
        """Return a record of nothing."""
        requested, fill, cost = (np.zeros((orders, ticks)) for _ in range(3))
        return cls(requested, fill, np.zeros((orders, ticks), dtype=np.int8), cost)

    def __len__(self) -> int:
        return len(self.fill)


_NO_RECORD = TickArrays(**vars(TickRecord.empty(0, 0)))


@dataclass(frozen=True)
class Benchmarks(Rows):
    """Prices of each order's window and session, float64 of shape (N,): NaN where there is none.

    Attributes
    ----------
    twap
        Mean of the valid prices.
    vwap
        Volume-weighted mean price.
    arrival
        Price as the window begins: the open of its first bar; where that has none, the last close before the window in
        the session; where that has none either, the first valid price of the window. Prices of earlier days do not
        count, since the move overnight is no cost of the order. Under ``price_field: quotes`` the last mid before the
        window goes first, since quotes are those at a bar's end. The price advantage against it, `pa_arrival` of
        `order_metrics`, is minus the implementation shortfall of what was filled.
    open, close
        First price of the session, the open of its first bar, and its last one, the close of its last bar.
    volume
        Volume of the window.
    benchmark
        The one of these prices that the rules name: the benchmark of the price advantage.
    unfilled
        Price of the part that stays open: the last one of the window under `unfilled_at` ``"end"``, else `close`.
    """

    twap: np.ndarray
    vwap: np.ndarray
    arrival: np.ndarray
    open: np.ndarray
    close: np.ndarray
    volume: np.ndarray
    benchmark: np.ndarray
    unfilled: np.ndarray

    def __len__(self) -> int:
        return len(self.twap)


class Window(Protocol):
    """Orders as the step grid needs them: their session, the end of their window, and until when they may go on."""

    @property
    def session(self) -> np.ndarray: ...

    @property
    def end(self) -> np.ndarray: ...

    @property
    def latest_end(self) -> np.ndarray: ...


class Clock(Protocol):
    """The standing of orders as the step grid needs it: the next tick, and whether they are done."""

    @property
    def tick(self) -> np.ndarray: ...

    @property
    def done(self) -> np.ndarray: ...


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
        half_spread = half_spreads(sessions) if self.rules.price_field == "quotes" else NO_ROWS
        halted = sessions.halted if self.rules.halts else None
        #: What the ticks offer: price (the field of the rules, or the mid of the quotes), volume, halts and limits.
        self.market = Market(
            _plain(tick_prices(sessions, self.rules)),
            _plain(sessions.fields["volume"]),
            _plain(half_spread),
            _plain(NO_ROWS if halted is None else halted, np.bool_),
            *self._price_limits(),
        )
        self._opening, self._closing = (_plain(each) for each in outer_fields(sessions, self.rules, self.price))
        #: The rules in numbers.
        self.terms = self.rules.terms(sessions.calendar.tick_minutes, sessions.calendar.num_ticks)
        whole_day = np.arange(sessions.calendar.num_ticks) // ticks_per_step
        by_segment = self.rules.step_grid == "segment"
        self.cell = (sessions.calendar.cells(ticks_per_step) if by_segment else whole_day).astype(np.int32)
        self._cell_stop = np.searchsorted(self.cell, self.cell, side="right").astype(np.int32)
        #: Largest number of steps an order can have on this clock.
        self.max_step = int(self.cell[-1]) + 1

    @property
    def price(self) -> np.ndarray:
        """Price of each tick, float64 of shape (S, T); a tick whose price is not finite or not above 0 has none."""
        return self.market.price

    @property
    def volume(self) -> np.ndarray:
        """Volume of each tick, float64 of shape (S, T)."""
        return self.market.volume

    @property
    def transient_width(self) -> int:
        """Numbers an order that the transient impact needs: K of `EngineState.transient_impact`."""
        return max(len(self.terms.decay), 1) if self.terms.transient else 0

    def __repr__(self) -> str:
        return f"Engine({self.sessions!r}, ticks_per_step={self.ticks_per_step}, {self.rules.describe()})"

    def num_steps(self, orders: OrderBatch) -> np.ndarray:
        """Return how many cells of the step grid each order meets until its latest end, int32 of shape (N,)."""
        return (self.cell[orders.latest_end - 1] - self.cell[orders.start] + 1).astype(np.int32)

    def benchmarks(self, orders: OrderBatch) -> Benchmarks:
        """Return the prices that the orders are judged by."""
        for values in (self.price, self.volume):
            prefetch(values, orders.session)
        windows = (orders.session, orders.start, orders.end)
        twap, vwap, volume = window_prices(self.price, self.volume, *windows)
        quoted = self.rules.price_field == "quotes"
        arrival = arrival_prices(self._opening, self._closing, self.price, quoted, *windows)
        opened, close, end = outer_prices(self._opening, self._closing, self.price, orders.session, orders.latest_end)
        named = {"twap": twap, "vwap": vwap, "arrival": arrival, "open": opened, "close": close}
        unfilled = end if self.rules.unfilled_at == "end" else close
        return Benchmarks(**named, volume=volume, benchmark=named[self.rules.benchmark], unfilled=unfilled)

    def room(self, orders: OrderBatch, *, capped: bool = True) -> np.ndarray:
        """Return the most that each tick of each order's window can fill, float64 of shape (N, T).

        0 before the window, after the latest end and where the tick has no price, is halted, at a price limit that
        blocks the side or at a price worse than the order's own; infinity where nothing caps it, with `capped` off a
        `max_participation` alone; in whole lots. It is of the whole session, and so knows the future.
        """
        cap = self.terms.volume_limit if capped else np.inf
        return window_room(self.market, self._windows(orders), cap, self.rules.lot_size)

    def idle_rules(self, orders: OrderBatch) -> list[str]:
        """Return a sentence for each rule or form that cannot act, on these data, on some or all of the orders.

        Of halts nothing is said: the rule is on by default, and `sessions.halted` tells whether the data mark any.
        """
        rules, count, found = self.rules, len(orders), []
        if rules.price_limit is not None:
            lower, upper = self.market.lower[orders.session], self.market.upper[orders.session]
            if free := int(np.isinf(upper).sum()):
                found.append(f"price_limit: {free} of {count} orders have no earlier close to count it from")
            if low := int((np.isfinite(lower) & (lower <= rules.price_tick * 1e-5)).sum()):
                found.append(
                    f"price_limit: for {low} of {count} orders a price_tick of {rules.price_tick:g} is not below the "
                    "earlier close, and no price reaches the lower limit"
                )
        if rules.volume_limit is not None:
            traded = self.benchmarks(orders).volume
            if dry := int((traded == 0).sum()):
                found.append(f"volume_limit: {dry} of {count} orders have a window without volume, and fill nothing")
        if rules.odd_lot != type(rules).odd_lot:
            odd = orders.amount - np.floor(orders.amount / rules.lot_size + TOLERANCE) * rules.lot_size
            if not (odd > TOLERANCE * orders.amount).any():
                found.append(f"odd_lot {rules.odd_lot}: every amount is a whole number of lots")
        if rules.sell_tax_bps and not (orders.side < 0).any():
            found.append("sell_tax_bps: no order sells")
        for name, then in {"limit_price": ", and fill nothing", "would_price": ""}.items():
            if name in orders.forms and (idle := int((~self._reached(orders, name)).sum())):
                found.append(f"{name}: {idle} of {count} orders have one that no price of theirs reaches{then}")
        cap = rules.volume_limit
        if cap and not (orders.forms.get("max_participation", np.zeros(1)) < cap).any():
            found.append(f"max_participation: no order's is below the volume_limit of {cap:g}")
        if "latest_end" in orders.source and (orders.latest_end == orders.end).all():
            found.append("latest_end: no order's is after its end")
        return found

    def _reached(self, orders: OrderBatch, name: str) -> np.ndarray:
        """Return which orders state no such price or have a tick at it or a better one, bool of shape (N,)."""
        found = []
        for first in range(0, len(orders), _BLOCK):
            some = orders[first : first + _BLOCK]
            stated = np.full((len(_FORMS), len(some)), np.nan)
            stated[0] = some.forms[name]
            room = window_room(self.market, self._windows(some)._replace(forms=stated), np.inf, 0.0)
            found.append(room.any(axis=1) | np.isnan(stated[0]))
        return np.concatenate(found)

    def reset(self, orders: OrderBatch) -> EngineState:
        """Return the state before the first step."""
        n = len(orders)
        return EngineState(
            tick=orders.start.copy(),
            step=np.zeros(n, dtype=np.int32),
            position=orders.amount.astype(np.float64, copy=True),
            requested=np.zeros(n),
            filled=np.zeros(n),
            notional=np.zeros(n),
            done=np.zeros(n, dtype=bool),
            cost=np.zeros(n),
            permanent_impact=np.zeros(n),
            transient_impact=np.zeros((n, self.transient_width)),
            untraded=np.zeros(n),
        )

    def step_stop(self, orders: Window, state: Clock) -> np.ndarray:
        """Return the tick at which each order's next step ends, int32 of shape (N,); `orders` as in `even_share`."""
        return np.where(
            state.done,
            state.tick,
            np.minimum(orders.latest_end, self._cell_stop[np.minimum(state.tick, len(self.cell) - 1)]),
        ).astype(np.int32)

    def even_share(self, orders: Window, state: Clock) -> np.ndarray:
        """Return the share of the position that an even schedule trades in the next step, float64 of shape (N,).

        Even means even over the window's ticks that have a price, as the TWAP benchmark weighs them: which ticks
        have a price is taken as known, what the prices are is not. After the window's end the share is 1.

        Parameters
        ----------
        orders, state
            The orders and where they stand; a `Known` is both.
        """
        stop = self.step_stop(orders, state)
        now = count_priced(self.price, orders.session, state.tick, stop)
        left = count_priced(self.price, orders.session, state.tick, orders.end)
        left = np.maximum(left, now)
        return np.divide(now, left, out=np.zeros(len(now)), where=left > 0)

    def step(
        self, orders: OrderBatch, state: EngineState, request: np.ndarray, record: TickRecord | None = None
    ) -> tuple[EngineState, Fills]:
        """Execute one step of every order that is not done.

        Parameters
        ----------
        orders, state
            The orders and where they stand; neither is changed.
        request
            Amount to trade in this step, float64 of shape (N,), in ``[0, position]``; 0 for orders that
            are done.
        record
            Filled tick by tick, if given.

        Raises
        ------
        OrderError
            When a request is not finite, negative, or above the position by more than the tolerance.
        """
        request = np.array(request, dtype=np.float64)
        left = np.where(state.done, 0.0, state.position)
        wrong = ~((request >= 0.0) & (request <= left + TOLERANCE * orders.amount))
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise OrderError(
                f"{orders.label(i)}: step {state.step[i]} requests {float(request[i])!r} with {float(left[i])!r} left "
                "to trade; request an amount between 0 and the position."
            )
        request = np.minimum(request, left)
        stop = self.step_stop(orders, state)
        windows = self._windows(orders)
        impact = state.permanent_impact.copy() if self.terms.permanent else state.permanent_impact
        moves = state.transient_impact.copy() if self.terms.transient else state.transient_impact
        progress = Progress(state.position.copy(), state.requested.copy(), impact, moves)
        sums = StepSums(*(np.zeros(len(request)) for _ in StepSums._fields))
        arrays = _NO_RECORD if record is None else TickArrays(**vars(record))
        advance(self.market, self.terms, windows, state.tick, stop, request, progress, sums, arrays)
        position, lot = progress.position, self.rules.lot_size
        nothing_left = position <= TOLERANCE * orders.amount
        if lot and not windows.trades_odd.all():
            whole = np.floor(orders.amount / lot + TOLERANCE) * lot
            nothing_left |= ~windows.trades_odd & (position - (orders.amount - whole) <= TOLERANCE * orders.amount)
        after = EngineState(
            tick=stop,
            step=np.where(state.done, state.step, state.step + 1).astype(np.int32),
            position=position,
            requested=progress.requested,
            # Not the amount less the position, which has no digits for small fills of a huge order.
            filled=np.where(position == 0.0, orders.amount, state.filled + sums.fill),
            notional=state.notional + sums.notional,
            done=state.done | nothing_left | (stop >= orders.latest_end),
            cost=state.cost + sums.cost if self.rules.costs_by_tick else state.cost,
            permanent_impact=impact,
            transient_impact=moves,
            untraded=state.untraded + sums.untraded,
        )
        return after, Fills(request, *sums)

    def replay(self, orders: OrderBatch, requests: Iterable[np.ndarray]) -> TickRecord:
        """Return what each tick did, of shape (N, T), by executing the requests of the steps again, (N,) each."""
        record, now = TickRecord.empty(len(orders), self.sessions.calendar.num_ticks), self.reset(orders)
        for request in requests:
            now, _ = self.step(orders, now, np.where(now.done, 0.0, np.minimum(request, now.position)), record)
        return record

    def _windows(self, orders: OrderBatch) -> Windows:
        odd, stated, forms = self.rules.trades_odd(orders.side), orders.forms, NO_ROWS
        if stated and not stated.keys().isdisjoint(_FORMS):
            none = np.full(len(orders), np.nan)
            forms = np.stack([stated.get(name, none) for name in _FORMS])
        return Windows(orders.session, orders.side, orders.amount, orders.start, orders.latest_end, odd, forms)

    def _price_limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper limit of each session, of shape (S,); no rows without the rule."""
        if self.rules.price_limit is None:
            return np.empty(0), np.empty(0)
        reference = previous_close(self.sessions)
        unit, limit = self.rules.price_tick, self.rules.price_limit
        known = reference[np.isfinite(reference)]
        if len(known) and unit >= known.max():
            raise ConfigError(
                f"price_tick is {unit:g}, and no close of the data is above {known.max():g}, so that no price reaches "
                "a lower limit; give the smallest price move of these prices."
            )
        # A hundred-thousandth of a price tick forgives the rounding of stored prices.
        slack = 1e-5 * unit
        upper = np.maximum(np.floor(reference * (1 + limit) / unit + 0.5 + 1e-9) * unit, reference + unit) - slack
        lower = np.minimum(np.floor(reference * (1 - limit) / unit + 0.5 + 1e-9) * unit, reference - unit) + slack
        return np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
