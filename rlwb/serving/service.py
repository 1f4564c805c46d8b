"""The service without a web: orders, bars, fills and decisions of one bundle, journalled, from one thread.

What is answered is in the journal. Orders, bars, fills and cancellations are written before they take effect; decisions
are written before they are told, and taken back when that fails. A service that is started again with the journal of a
killed one stands where that one stood, for its events are applied again in their sequence.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import msgspec
import numpy as np

from rlwb.errors import BundleError, CheckpointError, FileError, RlwbError, ServingError
from rlwb.execution.kernel import TOLERANCE
from rlwb.execution.order import Order
from rlwb.execution.rules import tick_prices
from rlwb.market.schema import REQUIRED
from rlwb.record import ACTING, TrainingRecord, check_record
from rlwb.serving.events import (
    EPOCH,
    add_history,
    apply,
    date_of,
    day_of,
    id_of,
    order_of,
    packed,
    reach,
    unpacked,
)
from rlwb.serving.feeds import bars_of
from rlwb.serving.journal import Event, Journal
from rlwb.serving.monitor import Monitor, advantage_by_source
from rlwb.serving.policy import Decision
from rlwb.serving.wire import (
    BAR_FIELDS,
    ArrivalsOut,
    BarIn,
    BarsIn,
    DecisionIn,
    DecisionOut,
    FillIn,
    OrderIn,
    OrderOut,
    OrdersOut,
    RefusedBar,
    StepOut,
)

if TYPE_CHECKING:
    from rlwb.serving.live import Arrivals
    from rlwb.serving.policy import BundlePolicy

log = logging.getLogger("rlwb.serving")

#: What two bundles must agree in for orders in flight to go on under the other; features are normalised anew.
_SAME = tuple(name for name in ACTING if name != "normaliser")
#: Days of which the journal keeps the events at least; more where features refer to more.
KEPT_DAYS = 3


@dataclass
class _Entry:
    """An order that the service knows."""

    order: Order
    content: OrderIn
    day: int
    start: int
    end: int
    latest_end: int
    status: str = "open"
    filled: float = 0.0
    notional: float = 0.0
    pa: float | None = None
    decisions: list[Decision] = field(default_factory=list)
    reasons: dict[int, str] = field(default_factory=dict)
    fills: list[str] = field(default_factory=list)

    @property
    def amount(self) -> float:
        return self.content.amount

    @property
    def position(self) -> float:
        left = self.content.amount - self.filled
        return left if left > TOLERANCE * self.content.amount else 0.0


@dataclass
class _Questions:
    """Questions to a policy: of each order what is left, ticks over by the caller's clock, and why by schedule."""

    ids: list[str] = field(default_factory=list)
    positions: list[float] = field(default_factory=list)
    at: list[int | None] = field(default_factory=list)
    reasons: list[str | None] = field(default_factory=list)

    def add(self, order_id: str, position: float, at: int | None, reason: str | None) -> None:
        self.ids.append(order_id)
        self.positions.append(position)
        self.at.append(at)
        self.reasons.append(reason)

    def take(self, places: Iterable[int]) -> _Questions:
        rows = list(places)
        return _Questions(*([values[row] for row in rows] for values in vars(self).values()))

    def put_to(self, policy: BundlePolicy) -> list[Decision | RlwbError]:
        by_schedule = [reason is not None for reason in self.reasons]
        return policy.decide_many(self.ids, self.positions, at=self.at, by_schedule=by_schedule)


class Service:
    """Orders, bars, fills and decisions of one bundle.

    Parameters
    ----------
    policy
        Decides.
    name
        The bundle's name among `bundles`.
    journal
        What survives a restart; without one, a journal in memory.
    monitor
        Watches, and says when to fall back to the schedule.
    shadow
        A second policy, which decides beside the first and is compared with it.
    orders
        Most orders that may be open.
    finished
        Finished orders that are still shown; the oldest go first.
    clock
        Returns seconds since 1970: bars of a day that has begun nowhere yet are refused, since a later day ends the
        sessions before it.

    Raises
    ------
    FileError, BundleError
        When the journal is damaged, or its orders were decided by a bundle that does not agree with this one.
    """

    def __init__(
        self,
        policy: BundlePolicy,
        *,
        name: str = "main",
        journal: Journal | None = None,
        monitor: Monitor | None = None,
        shadow: BundlePolicy | None = None,
        orders: int = 100_000,
        finished: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policy, self.name, self.shadow = policy, name, shadow
        self.journal = journal or Journal()
        self.monitor = monitor or Monitor()
        self.shadow_failures = 0
        self._most_orders, self._most_finished = orders, finished
        self._entries: dict[str, _Entry] = {}
        self._fills: dict[str, FillIn] = {}
        self._done: deque[str] = deque()
        self._by_instrument: dict[str, dict[int, set[str]]] = {}  # orders that are not ended, by day
        self._to_shadow: deque[tuple[_Questions, list[Decision]]] = deque()
        self._calendar = policy.bundle.calendar
        self._zone = ZoneInfo(self._calendar.timezone) if self._calendar.timezone else None
        self._tick_ends = self._calendar.tick_start + self._calendar.tick_seconds
        self._last_day = 0
        self._wall_clock = clock
        self._come_back()

    # What comes in

    def register(self, orders: Sequence[OrderIn]) -> list[str]:
        """Take orders, all or none, and return their ids; orders that are known already change nothing.

        Raises
        ------
        ServingError
            When an id belongs to another order (``conflict``), or too many orders are open (``too_many_orders``).
        OrderError, DataError
            When an order cannot be executed; see `BundlePolicy.register`.
        """
        ids = [one.order_id or id_of(one) for one in orders]
        new: dict[str, tuple[OrderIn, Order]] = {}
        for name, given in zip(ids, orders, strict=True):
            content = msgspec.structs.replace(given, order_id=name)
            known = self._entries[name].content if name in self._entries else new[name][0] if name in new else None
            if known is not None and known != content:
                raise ServingError(
                    f"order {name} is known with other content; give the new one another id.", "conflict"
                )
            if known is None:
                new[name] = (content, order_of(content))
        if len(self._entries) - len(self._done) + len(new) > self._most_orders:
            raise ServingError(
                f"{self._most_orders} orders may be open; cancel some, or raise the limit.", "too_many_orders"
            )
        if new:
            made = [order for _, order in new.values()]
            self.policy.register(made)
            try:
                self.journal.write(
                    Event("order", day_of(content.date), msgspec.to_builtins(content)) for content, _ in new.values()
                )
            except ServingError:
                for name in new:
                    self.policy.forget(name)
                raise
            for name, (content, order) in new.items():
                self._enter(name, content, order)
            self.monitor.registered(len(new))
            self._beside("orders", lambda shadow: shadow.register(made))
            for instrument in {content.instrument for content, _ in new.values()}:
                self._look_at(instrument)
        return ids

    def bars(self, bars: BarsIn | Sequence[BarIn]) -> ArrivalsOut:
        """Take bars in any order of arrival and return what became of them.

        Raises
        ------
        ServingError
            When columns differ in length (``bad_bars``), or a stamp cannot be brought to the calendar or is of a day
            to come (``bad_time``).
        """
        columns = self._columns_of(bars)
        until = None if not isinstance(bars, BarsIn) or bars.until is None else self._plain(bars.until)
        if not len(columns["datetime"]) and until is None:
            return ArrivalsOut(0, 0, 0, [])
        events: list[Event] = []
        over: tuple[int, int, list[str]] | None = None
        day = int(columns["datetime"].max(initial=_FIRST).astype("datetime64[D]").astype(np.int64))
        if len(columns["datetime"]):
            events.append(Event("bars", day, packed(columns)))
        if until is not None:
            over = self._over_until(until, columns)
            events.append(Event("until", over[0], over))
            day = max(day, over[0])
        if day > self._wall_clock() // 86_400 + 1:  # a day ahead of UTC's is the furthest that a zone can be
            raise ServingError(f"{date_of(day)} is a day to come; correct the date of the bars.", "bad_time")
        names = sorted({*columns["instrument"], *(over[2] if over else ())})
        self.journal.write(events)
        before = self._reached(names, day)
        arrivals = self.policy.market.add(columns)
        self.monitor.arrived(arrivals)
        self._beside("bars", lambda shadow: shadow.market.add(columns))
        if over is not None:
            reach(self.policy, *over)
            self._beside("until", lambda shadow: reach(shadow, *over))
        self._observe(names, day, before)
        for name in self._by_instrument.keys() & names:
            self._look_at(name, day)
        if (taken := _last_taken(columns["datetime"], arrivals)) > self._last_day:
            self._begin_day(taken)
        return _told(arrivals)

    def _reached(self, instruments: Sequence[str], day: int) -> list[tuple[int, int]]:
        """Return row and ticks over of each instrument's session of a day; -1 and 0 where it is not open."""
        if self.monitor.drift is None or not instruments:
            return []
        market, on = self.policy.market, date_of(day)
        rows = np.array([market.row(name, on) for name in instruments], dtype=np.int64)
        reached = np.where(rows >= 0, market.reached(np.maximum(rows, 0)), 0)
        return list(zip(rows.tolist(), reached.tolist(), strict=True))

    def _observe(self, instruments: Sequence[str], day: int, before: Sequence[tuple[int, int]]) -> None:
        """Show the monitor the features of the ticks that have ended."""
        if not before:
            return
        market, names, ticks, values = self.policy.market, [], [], []
        after = self._reached(instruments, day)
        grown = [at for at, ((_, end), (_, start)) in enumerate(zip(after, before, strict=True)) if end > start]
        if not grown:
            return
        features = market.features.rows(np.array([after[at][0] for at in grown]))
        for place, at in enumerate(grown):
            start, end = before[at][1], after[at][1]
            names += [instruments[at]] * (end - start)
            ticks.append(np.arange(start, end))
            values.append(features[place, start:end])
        date_ = np.datetime64(date_of(day))
        self.monitor.observe(names, date_, np.concatenate(ticks), np.concatenate(values))

    def _over_until(self, until: datetime, columns: Mapping[str, Any]) -> tuple[int, int, list[str]]:
        """Return the day and tick of a time, and the instruments of the bars and of the day's orders."""
        day, tick = until.toordinal() - EPOCH, self._ticks_over(until)
        names = {name for name, days in self._by_instrument.items() if day in days}
        return day, tick, sorted({*names, *columns["instrument"]})

    def load_history(self, bars: Mapping[str, Any]) -> ArrivalsOut:
        """Take bars of earlier whole sessions, as columns, for features that refer to them."""
        columns = _plain_columns(bars)
        if len(columns["datetime"]):
            day = int(columns["datetime"].max().astype("datetime64[D]").astype(np.int64))
            event = Event("history", day, packed(columns))
            if any(known == event for _, known in self.journal.events()):  # of an earlier start
                return ArrivalsOut(0, len(columns["datetime"]), 0, [])
            self.journal.write([event])
        arrivals = add_history(self.policy, columns)
        self._beside("history", lambda shadow: add_history(shadow, columns))
        return _told(arrivals)

    def fills(self, fills: Sequence[FillIn]) -> list[float]:
        """Take reported fills, all or none, and return what is left of the order of each.

        Raises
        ------
        ServingError
            When an order is unknown or finished, a fill's id belongs to another fill (``conflict``), or more would be
            filled than the order has (``overfill``).
        """
        new: dict[str, FillIn] = {}
        added: dict[str, float] = {}
        for fill in fills:
            known = self._fills.get(fill.fill_id) or new.get(fill.fill_id)
            if known is not None:
                if known != fill:
                    raise ServingError(f"fill {fill.fill_id} is known with other content; give another id.", "conflict")
                continue
            entry = self._entry(fill.order_id)
            if entry.status == "finished":
                raise ServingError(f"order {fill.order_id} is finished; its fills are settled.", "order_over")
            added[fill.order_id] = added.get(fill.order_id, 0.0) + fill.amount
            if entry.filled + added[fill.order_id] > entry.amount * (1 + TOLERANCE):
                told = f"fill {fill.fill_id} fills {fill.amount:g} of order {fill.order_id}"
                raise ServingError(f"{told}, of which {entry.position:g} is left; correct the amount.", "overfill")
            new[fill.fill_id] = fill
        self.journal.write(
            Event("fill", self._entries[fill.order_id].day, msgspec.to_builtins(fill)) for fill in new.values()
        )
        for fill in new.values():
            self._fill(fill)
        for name in added:
            self._settle(name)
        return [self._entry(fill.order_id).position for fill in fills]

    def cancel(self, order_id: str) -> OrderOut:
        """Take an order out of flight, and return it; one whose window is over is finished by it."""
        entry = self._entry(order_id)
        if entry.status == "over":
            self._finish(order_id)
        elif entry.status == "open":
            self.journal.write([Event("cancelled", entry.day, order_id)])
            self._end(order_id, "cancelled")
            self.monitor.cancelled()
        return self.order(order_id)

    # What goes out

    def decide(self, questions: Sequence[DecisionIn]) -> list[DecisionOut | RlwbError]:
        """Return for each question how much to trade in the order's current step, or why none can be said."""
        began = time.perf_counter()
        answers: list[DecisionOut | RlwbError | None] = [None] * len(questions)
        asked: list[int] = []
        put = _Questions()
        for index, question in enumerate(questions):
            entry = self._entries.get(question.order_id)
            if entry is None:
                answers[index] = _unknown(question.order_id)
                continue
            if entry.status != "open":
                answers[index] = _ended(question.order_id, entry.status)
                continue
            try:
                now = None if question.now is None else self._clock(entry, question.now)
            except ServingError as error:
                answers[index] = error
                continue
            position = entry.position if question.position is None else question.position
            put.add(question.order_id, position, now, self._reason(entry))
            asked.append(index)
        made = self._ask(put) if asked else []
        self._fall_back(put, made)
        told = self._written(put, made)
        for index, one in zip(asked, told, strict=True):
            answers[index] = one
        decisions = [one for one in made if isinstance(one, Decision)]
        self.monitor.decided(time.perf_counter() - began, decisions)
        if self.shadow is not None:
            new = [place for place, one in enumerate(made) if isinstance(one, Decision) and not one.repeated]
            self._to_shadow.append((put.take(new), [one for one in decisions if not one.repeated]))
        return [one for one in answers if one is not None]

    def predict(self, observations: Mapping[str, Any]) -> list[Any]:
        """Return the actions for observations of the bundle's declared space; nothing is kept of it."""
        try:
            arrays = {name: np.asarray(values) for name, values in observations.items()}
        except ValueError:
            raise ServingError("the observations are not arrays with equally long rows.", "bad_observation") from None
        if wrong := sorted(name for name, values in arrays.items() if values.dtype.kind not in "biuf"):
            raise ServingError(f"{wrong[0]} is not made of numbers.", "bad_observation")
        actions: list[Any] = self.policy.predict(arrays).tolist()
        return actions

    def order(self, order_id: str) -> OrderOut:
        """Return an order as it stands."""
        entry = self._entry(order_id)
        content = entry.content
        return OrderOut(
            order_id=order_id,
            instrument=content.instrument,
            date=content.date,
            direction=content.direction,
            amount=content.amount,
            start=entry.start,
            end=entry.end,
            status=entry.status,
            filled=entry.filled,
            average_price=entry.notional / entry.filled if entry.filled else None,
            position=entry.position,
            pa_bp=entry.pa,
            steps=[StepOut(one.step, one.tick, one.position, one.amount, one.source) for one in entry.decisions],
        )

    def orders(self, *, status: str | None = None, after: int = 0, limit: int = 100) -> OrdersOut:
        """Return a page of orders, the oldest first, of one status or all."""
        names = [name for name, entry in self._entries.items() if status in (None, entry.status)]
        page = names[after : after + limit]
        more = after + limit if after + limit < len(names) else None
        return OrdersOut([self.order(name) for name in page], len(names), more)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of orders by status."""
        found = dict.fromkeys(("open", "over", "finished", "cancelled"), 0)
        for entry in self._entries.values():
            found[entry.status] += 1
        return found

    # Another bundle

    def check_takes(self, other: BundlePolicy) -> None:
        """Require that orders in flight can go on under another bundle: features, calendar and actions agree.

        Raises
        ------
        BundleError
            Naming what differs.
        """
        found, wanted = (TrainingRecord.from_dict(one.bundle.spec.record) for one in (other, self.policy))
        _agree(found, wanted, f"the bundle {other.bundle.path}", "start a service of its own with it.")

    def bring_up(self, other: BundlePolicy, events: Sequence[tuple[int, Event]]) -> None:
        """Give another policy bars and orders; it touches nothing of the service, so another thread may call it."""
        for _, event in events:
            apply(other, event)

    def take_over(self, other: BundlePolicy, name: str, after: int = 0) -> str:
        """Let another policy decide from now on, and return the name of the one before.

        Parameters
        ----------
        other, name
            The policy, after `bring_up`, and the name of its bundle.
        after
            Number of the last event that it was given.
        """
        for _, event in self.journal.events(after):
            apply(other, event)
        for order_id, entry in self._entries.items():
            if order_id in other:
                other.restore(order_id, entry.decisions)
        self.journal.note("bundle", name)
        before, self.name, self.policy = self.name, name, other
        log.info("bundle swapped from=%s to=%s open_orders=%d", before, name, self.counts["open"])
        return before

    def run_shadow(self) -> None:
        """Let the second bundle decide what was decided since; its failures are counted and change nothing."""
        while self._to_shadow:
            self._compare(*self._to_shadow.popleft())

    def close(self) -> None:
        """Finish the shadow's work and close the journal."""
        self.run_shadow()
        self.journal.close()

    # How it works

    def _ask(self, put: _Questions) -> list[Decision | RlwbError]:
        """Ask the policy; an order for which it fails follows the schedule, and the others do not suffer."""
        try:
            return put.put_to(self.policy)
        except Exception as error:
            made: list[Decision | RlwbError] = []
            if len(put.ids) > 1:
                for place in range(len(put.ids)):
                    alone = put.take([place])
                    made += self._ask(alone)
                    put.reasons[place] = alone.reasons[0]
                return made
            log.error("policy failed order_id=%s error=%r", put.ids[0], error, exc_info=error)
            self.monitor.alert("policy_failed", f"order {put.ids[0]}: {error}")
            put.reasons[0] = "policy_failed"
            return put.put_to(self.policy)

    def _fall_back(self, put: _Questions, made: list[Decision | RlwbError]) -> None:
        """Let orders whose bars are late by their caller's clock follow the schedule, where the monitor says so."""
        late: list[int] = []
        for place, one in enumerate(made):
            if isinstance(one, ServingError) and one.reason == "late_bars" and put.at[place] is not None:
                put.reasons[place] = self._reason(self._entries[put.ids[place]], late=True)
                if put.reasons[place] is not None:
                    late.append(place)
        if late:
            for place, one in zip(late, put.take(late).put_to(self.policy), strict=True):
                made[place] = one

    def _written(self, put: _Questions, made: list[Decision | RlwbError]) -> list[DecisionOut | RlwbError]:
        """Return the answers when new decisions are in the journal; take them back when they cannot be written."""
        entries, ids = self._entries, put.ids
        rows: dict[int, list[tuple[Any, ...]]] = {}
        new: list[int] = []
        for index, one in enumerate(made):
            if not isinstance(one, Decision):
                continue
            entry = entries[one.order_id]
            is_new = not entry.decisions or entry.decisions[-1].step < one.step
            made[index] = one = one._replace(repeated=not is_new)
            if is_new:
                reason = put.reasons[index] if one.source == "schedule" else None
                rows.setdefault(entry.day, []).append((*one[:7], reason))
                new.append(index)
                entry.decisions.append(one)
                if reason is not None:
                    entry.reasons[one.step] = reason
        try:
            self.journal.write(Event("decisions", day, some) for day, some in rows.items())
        except ServingError as error:
            for index in new:
                entry = entries[ids[index]]
                entry.reasons.pop(entry.decisions.pop().step, None)
                self.policy.restore(ids[index], entry.decisions)
            undone = {ids[index] for index in new}
            made[:] = [error if name in undone else one for name, one in zip(ids, made, strict=True)]
        return [
            DecisionOut(*one[:7], entries[one.order_id].reasons.get(one.step), one.repeated)
            if isinstance(one, Decision)
            else one
            for one in made
        ]

    def _compare(self, put: _Questions, made: Sequence[Decision]) -> None:
        try:
            assert self.shadow is not None
            theirs = put.put_to(self.shadow)
        except Exception:
            self.shadow_failures += 1
            log.exception("shadow failed orders=%d", len(put.ids))
            return
        for mine, other in zip(made, theirs, strict=True):
            if not isinstance(other, Decision):
                self.shadow_failures += 1
                log.warning("shadow failed order_id=%s error=%s", mine.order_id, other)
                continue
            entry = self._entries.get(mine.order_id)
            if entry is not None:
                self.monitor.shadowed(mine.amount, other.amount, entry.amount, mine.order_id)

    def _beside(self, what: str, do: Callable[[BundlePolicy], Any]) -> None:
        """Do for the shadow what was done for the policy."""
        if self.shadow is not None:
            try:
                self.run_shadow()  # what it was asked before comes first
                do(self.shadow)
            except Exception:
                self.shadow_failures += 1
                log.exception("shadow failed what=%s", what)

    def _reason(self, entry: _Entry, *, late: bool = False) -> str | None:
        """Return why an order is to follow the schedule, or None."""
        content = entry.content
        return self.monitor.should_fall_back(
            content.instrument,
            side=int(entry.order.direction),
            amount=content.amount,
            late=late,
            order_id=content.order_id,
        )

    def _entry(self, order_id: str) -> _Entry:
        if order_id not in self._entries:
            raise _unknown(order_id)
        return self._entries[order_id]

    def _enter(self, name: str, content: OrderIn, order: Order) -> None:
        state = self.policy.state(name)
        self._entries[name] = _Entry(order, content, day_of(content.date), state.start, state.end, state.latest_end)
        days = self._by_instrument.setdefault(content.instrument, {})
        days.setdefault(self._entries[name].day, set()).add(name)

    def _fill(self, fill: FillIn) -> None:
        entry = self._entries[fill.order_id]
        self._fills[fill.fill_id] = fill
        entry.fills.append(fill.fill_id)
        entry.filled = min(entry.filled + fill.amount, entry.amount)
        entry.notional += fill.amount * fill.price

    def _look_at(self, instrument: str, day: int = 0) -> None:
        """See which orders of an instrument are over by the market's clock, and which of them are settled.

        Those of an earlier day than `day` are finished, if the instrument has a session on it.
        """
        market, entries = self.policy.market, self._entries
        for own, names in list(self._by_instrument.get(instrument, {}).items()):
            row = market.row(instrument, date_of(own))
            reached = int(market.reached(np.array([row]))[0]) if row >= 0 else self._calendar.num_ticks
            over = [name for name in names if entries[name].latest_end <= reached]
            is_past = own < day and market.row(instrument, date_of(day)) >= 0
            for name in list(names) if is_past else over:
                entries[name].status = "over"
                if is_past:
                    self._finish(name)
                else:
                    self._settle(name)

    def _settle(self, name: str) -> None:
        """Finish an order whose window is over and whose fills are complete."""
        entry = self._entries[name]
        if entry.status == "over" and entry.position == 0.0:
            self._finish(name)

    def _finish(self, name: str) -> None:
        entry = self._entries[name]
        try:
            pa = self.policy.metrics(name, entry.filled, entry.notional)["pa"]
            parts = self._parts(name, entry)
        except RlwbError as error:
            log.warning("no figures order_id=%s error=%s", name, error)
            pa, parts = math.nan, {}
        pa_bp = pa if math.isfinite(pa) else None
        try:
            self.journal.write([Event("finished", entry.day, [name, pa_bp, parts])])
        except ServingError as error:  # nothing was asked; it is finished again after a restart
            log.error("finished order not in the journal order_id=%s error=%s", name, error)
        entry.pa = pa_bp
        self._end(name, "finished")
        log.info("order finished order_id=%s filled=%r pa_bp=%s", name, entry.filled, pa_bp)
        self.monitor.finished(np.datetime64(date_of(entry.day)), pa, parts)

    def _parts(self, name: str, entry: _Entry) -> dict[str, tuple[float, float]]:
        """Return by who decided what share of an order was traded and how well."""
        engine, market = self.policy.engine, self.policy.market
        row = np.array([market.row(entry.content.instrument, entry.order.date)])
        prices = np.asarray(tick_prices(market.panel, engine.rules, row))[0, entry.start : entry.end]
        steps = engine.cell[entry.start : entry.end] - engine.cell[entry.start]
        decided = [(one.step, one.amount, one.source) for one in entry.decisions]
        return advantage_by_source(prices, steps, int(entry.order.direction), entry.amount, decided)

    def _end(self, name: str, status: str) -> None:
        entry = self._entries[name]
        entry.status = status
        self._leave(name, entry.content.instrument)
        self.policy.forget(name)
        self._beside("end", lambda shadow: shadow.forget(name))
        self._done.append(name)
        while len(self._done) > self._most_finished:
            self._drop(self._done.popleft())

    def _drop(self, name: str) -> None:
        for fill_id in self._entries.pop(name).fills:
            del self._fills[fill_id]

    def _leave(self, name: str, instrument: str) -> None:
        """Take an order out of those of its instrument that are not ended."""
        days, day = self._by_instrument[instrument], self._entries[name].day
        days[day].discard(name)
        if not days[day]:
            del days[day]
        if not days:
            del self._by_instrument[instrument]

    def _begin_day(self, day: int) -> None:
        """Settle orders of which no more is heard, and let the journal forget what no one refers to."""
        before, self._last_day = self._last_day, day
        for name, entry in list(self._entries.items()):
            if entry.day < before and entry.status in ("open", "over"):
                self._finish(name)
        try:
            self._compact()
        except ServingError as error:
            log.error("journal not compacted error=%s", error)

    def _compact(self) -> None:
        told = np.array([day for day in self.journal.days() if day <= self._last_day], dtype="datetime64[D]")
        days = told[self._calendar.is_open(told)].astype(np.int64).tolist()  # bars of closed days were refused
        used = [entry.day for entry in self._entries.values() if entry.status in ("open", "over")]
        kept = max(KEPT_DAYS, self.policy.market.depth)
        if len(days) > kept:
            first = min([days[-kept], *used])
            then = min(day for day in days if day > first)
            state = self.monitor.state(*(np.datetime64(date_of(day)) for day in (first, then)))
            self.journal.note("monitor", json.dumps(state))
            past = self.policy.market.past(np.datetime64(date_of(first)))
            if past is not None:  # of instruments that had no bars for days
                bars, _ = bars_of(past, np.arange(len(past)))
                self.journal.write([Event("history", first, packed(_plain_columns(bars)))])
            self.journal.forget_before(first)

    def _come_back(self) -> None:
        """Apply the events of the journal; afterwards let it forget the days that are done."""
        self._check_record()
        if (kept := self.journal.noted("monitor")) is not None:
            self.monitor.restore(json.loads(kept))
        began, count = time.perf_counter(), 0
        for count, (number, event) in enumerate(self.journal.events(), 1):  # noqa: B007
            try:
                self._play(event)
                self._note(event)
            except (RlwbError, LookupError, TypeError, ValueError) as error:
                told = f"event {number} ({event.kind}) of the journal {self.journal.path} cannot be applied ({error})"
                raise FileError(f"{told}; restore it, or name another file.") from None
            self._beside(event.kind, partial(apply, event=event))
        for name, entry in self._entries.items():
            for policy in (self.policy, self.shadow):
                if policy is not None and name in policy:
                    policy.restore(name, entry.decisions)
        for instrument in list(self._by_instrument):
            self._look_at(instrument)
        self._compact()
        if count:
            seconds = time.perf_counter() - began
            log.info("journal read events=%d open_orders=%d seconds=%.3f", count, self.counts["open"], seconds)

    def _play(self, event: Event) -> None:
        """Do to the policy what an event of the journal did, under the eyes of the monitor."""
        names: list[str] = []
        if self.monitor.drift is not None and event.kind in ("bars", "until"):
            told = event.body["instrument"] if event.kind == "bars" else event.body[2]
            names = [told] if isinstance(told, str) else sorted(set(told))
        before = self._reached(names, event.day)
        arrivals = apply(self.policy, event)
        if arrivals is not None:
            stamps = unpacked(event.body)["datetime"]
            self._last_day = max(self._last_day, _last_taken(stamps, arrivals))
        self._observe(names, event.day, before)

    def _check_record(self) -> None:
        """Require that the journal's decisions were made by a bundle that agrees with this one."""
        record = self.policy.bundle.spec.record
        there = self.journal.noted("record")
        if there is None:
            self.journal.note("record", json.dumps(record, default=str))
        else:
            found, wanted = (
                TrainingRecord.from_dict(json.loads(text)) for text in (json.dumps(record, default=str), there)
            )
            what = f"the journal {self.journal.path} is of another bundle: this one"
            _agree(found, wanted, what, "start it with the bundle that it is of, or name another file.")

    def _note(self, event: Event) -> None:
        """Keep what an event of the journal says of orders."""
        body = event.body
        if event.kind == "order":
            content = msgspec.convert(body, OrderIn)
            self._enter(content.order_id, content, order_of(content))
            self.monitor.registered()
        elif event.kind == "fill":
            self._fill(msgspec.convert(body, FillIn))
        elif event.kind == "decisions":
            for *values, reason in body:
                entry = self._entries.get(values[0])
                if entry is not None:
                    entry.decisions.append(Decision._make((*values, False)))
                    if reason is not None:
                        entry.reasons[values[1]] = reason
        elif event.kind == "cancelled":
            self._note_end(body, "cancelled", None)
            self.monitor.cancelled()
        elif event.kind == "finished":
            name, pa, parts = body
            self._note_end(name, "finished", pa)
            told = {by: (share, math.nan if bp is None else bp) for by, (share, bp) in parts.items()}
            self.monitor.finished(np.datetime64(date_of(event.day)), math.nan if pa is None else pa, told)

    def _note_end(self, name: str, status: str, pa: float | None) -> None:
        entry = self._entries.get(name)
        if entry is not None:
            entry.status, entry.pa = status, pa
            self._leave(name, entry.content.instrument)
            self._done.append(name)

    def _columns_of(self, bars: BarsIn | Sequence[BarIn]) -> dict[str, Any]:
        """Return bars as columns: names, session-local stamps as datetime64[us], and float64."""
        if isinstance(bars, BarsIn):
            count = len(bars.datetime)
            names = [bars.instrument] * count if isinstance(bars.instrument, str) else bars.instrument
            given = {name: values for name in BAR_FIELDS if (values := getattr(bars, name)) is not None}
            stamps = bars.datetime
        else:
            names, stamps, count = [one.instrument for one in bars], [one.datetime for one in bars], len(bars)
            rows = {name: [getattr(one, name) for one in bars] for name in BAR_FIELDS}
            there = {
                name for name, values in rows.items() if name in REQUIRED or any(one is not None for one in values)
            }
            given = {name: values for name, values in rows.items() if name in there}
        needed = {name for one in self.policy.market.feature_list for name in one.needs}
        if count and (missing := sorted(needed - given.keys())):
            raise ServingError(f"the bars have no {missing[0]}, which the policy's features need.", "bad_bars")
        for name, values in {"instrument": names, **given}.items():
            if len(values) != count:
                raise ServingError(f"{name} has {len(values)} values and datetime {count}; give one a bar.", "bad_bars")
        columns: dict[str, Any] = {"instrument": list(names), "datetime": self._local(stamps)}
        return columns | {name: np.array(values, dtype=np.float64) for name, values in given.items()}

    def _local(self, stamps: Sequence[datetime]) -> np.ndarray:
        """Return stamps in the session's own time, datetime64[us]."""
        plain = [self._plain(stamp) if stamp.tzinfo is not None else stamp for stamp in stamps]
        found = np.array(plain, dtype="datetime64[us]")
        if len(found) and not (_FIRST <= found.min() <= found.max() < _LAST):
            raise ServingError(
                f"the stamps run from {found.min()} to {found.max()}; give dates of 1970 to 2099.", "invalid"
            )
        return found

    def _plain(self, stamp: datetime) -> datetime:
        """Return a stamp in the session's own time, without a zone."""
        if stamp.tzinfo is not None:
            if self._zone is None:
                told = f"{stamp.isoformat()} has a zone and the calendar has none; give local time."
                raise ServingError(told, "bad_time")
            try:
                stamp = stamp.astimezone(self._zone).replace(tzinfo=None)
            except OverflowError:
                raise _no_day(stamp.isoformat()) from None
        if not 1970 <= stamp.year < 2100:
            raise _no_day(stamp.isoformat())
        return stamp

    def _clock(self, entry: _Entry, now: datetime) -> int:
        """Return how many ticks of an order's session are over at a time."""
        local = self._plain(now)
        days = local.toordinal() - EPOCH - entry.day
        over = self._ticks_over(local) if not days else -1 if days < 0 else self._calendar.num_ticks
        if over < entry.start:
            told = f"order {entry.content.order_id} begins at tick {entry.start}, after {now.isoformat()}; ask later."
            raise ServingError(told, "not_begun")
        return over

    def _ticks_over(self, local: datetime) -> int:
        seconds = local.hour * 3600 + local.minute * 60 + local.second
        return int(np.searchsorted(self._tick_ends, seconds, side="right"))


_FIRST, _LAST = np.datetime64("1970-01-01", "us"), np.datetime64("2100-01-01", "us")


def _last_taken(stamps: np.ndarray, arrivals: Arrivals) -> int:
    """Return the last day of bars that were not refused, counted since 1970; 0 where all were."""
    taken = np.delete(stamps, [index for index, _ in arrivals.refused])
    return int(taken.astype("datetime64[D]").astype(np.int64).max(initial=0))


def _plain_columns(bars: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of bars as arrays, names as a list, and stamps in microseconds."""
    columns = {name: np.asarray(values) for name, values in bars.items()}
    stamps = columns["datetime"].astype("datetime64[us]")
    return {**columns, "instrument": columns["instrument"].tolist(), "datetime": stamps}


def _told(arrivals: Arrivals) -> ArrivalsOut:
    refused = [RefusedBar(index, reason) for index, reason in arrivals.refused]
    return ArrivalsOut(arrivals.accepted, arrivals.repeated, arrivals.corrected, refused)


def _no_day(stamp: str) -> ServingError:
    return ServingError(f"{stamp} is no time of a session; give dates of 1970 to 2099.", "bad_time")


def _unknown(order_id: str) -> ServingError:
    return ServingError(f"there is no order {order_id!r}; register it.", "unknown_order")


def _ended(order_id: str, status: str) -> ServingError:
    told = "its window is over" if status == "over" else f"it is {status}"
    return ServingError(f"order {order_id} cannot be decided: {told}.", "order_over")


def _agree(found: TrainingRecord, wanted: TrainingRecord, what: str, do: str) -> None:
    try:
        check_record(found, wanted, what, names=_SAME, do=do)
    except CheckpointError as error:
        raise BundleError(str(error)) from None
