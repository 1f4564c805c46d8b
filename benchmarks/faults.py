"""Schedules of faults against the service in this process, each drawn from one integer; writes ``results/faults.json``.

A schedule is a trading day: a feed sends bars, traders register orders, ask for decisions and report fills. Its number
draws all else: which messages are lost, delayed, doubled or overtake others; bars that come late, twice, corrected,
rounded off the grid, or never; callers' clocks that jump; a journal that is locked by another process or finds the disk
full; kills before and after a write, and before the answer to it. Time is a number that the schedule sets, the network
a list, so that nothing sleeps and the same number gives the same day: ``python -m benchmarks.faults --first N
--schedules 1`` replays it.

What must hold on each day: no order, fill or decision that was acknowledged is lost, and nothing counts twice; a
request repeated under its idempotency key has the same answer; an order's step has one decision, before and after a
restart; each decision is the one that a service without faults makes of the same bars; no answer is that of a fault of
the service; and nothing piles up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import json
import logging
import math
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from benchmarks.measure import context
from benchmarks.serving_parts import TINY, Day, as_json, make_bundle
from benchmarks.table import RESULTS
from rlwb.execution.order import Order
from rlwb.experiment.run import RunDirectory
from rlwb.files import write_json
from rlwb.market import Sessions
from rlwb.serving.app import Api, Front
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.events import unpacked
from rlwb.serving.journal import Event, Journal
from rlwb.serving.policy import BundlePolicy, Decision
from rlwb.serving.service import Service

#: A request that is not answered after so many turns of the loop never will be.
_HUNG = 20_000
#: Answers after which the same request may be sent again; the service asks for it.
_AGAIN = (408, 429, 503)
#: Largest difference of an amount, as a share of the order's.
_SAME = 1e-9


class KilledError(BaseException):
    """The process is killed here."""


class BrokenError(AssertionError):
    """What must hold does not."""


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time is set, and which runs work of threads at once."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


@dataclass
class Rates:
    """How likely each fault is, drawn once a schedule; many schedules lack some of them."""

    lost: float  # a request that does not arrive
    unheard: float  # an answer that does not
    doubled: float
    slow: float  # mean delay of a message, in ticks
    kill: float  # at a write
    locked: float  # the journal, at a write
    full: float  # the disk, at a write
    late: float  # bars that come some ticks later
    missing: float  # bars that never come
    corrected: float
    broken: float  # bars and requests that must be refused
    skew: float  # deviation of a caller's clock, in ticks; 0 leaves the clock out
    jump: float  # of the service's clock, at a step

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Rates:
        def rate(most: float) -> float:
            return float(rng.choice([0.0, 0.3, 1.0]) * most)

        return cls(
            *(rate(0.3), rate(0.3), rate(0.3), rate(1.5), rate(0.08), rate(0.1), rate(0.1)),
            *(rate(0.2), rate(0.1), rate(0.2), rate(0.3), rate(4.0), rate(0.05)),
        )


class Disk(Journal):
    """A journal whose writes fail, or end the process, where a schedule says so."""

    def __init__(self, path: Path, world: World) -> None:
        self.world: World | None = None  # nothing fails while it is opened
        self._is_written = False
        super().__init__(path)
        self.world = world

    def write(self, events: Iterable[Event]) -> None:
        given, self._is_written = list(events), False
        try:
            super().write(given)
        finally:
            if self.world is not None and self._is_written:
                self.world.written(given)

    def _commit(self, words: str, rows: Any) -> None:
        if self.world is None:
            super()._commit(words, rows)
            return
        with self.world.fate(self) as dies_after:
            super()._commit(words, rows)
            self._is_written = True
        if dies_after:
            raise KilledError


class _Faults(logging.Handler):
    """Keeps the traceback of the last fault that the service has logged."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.world.fault = "".join(traceback.format_exception(record.exc_info[1]))


@dataclass
class Wanted:
    """A request that someone sends until there is an answer."""

    number: int
    kind: str
    method: str
    path: str
    body: bytes
    key: str | None
    then: Callable[[int, Any], None]
    tries: int = 0
    answer: tuple[int, bytes] | None = None  # the first that was heard


@dataclass
class Ledger:
    """What was acknowledged."""

    orders: dict[str, dict[str, Any]] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    fills: dict[str, dict[str, float]] = field(default_factory=dict)
    decisions: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)


class World:
    """One schedule: a service, its clients, and the network between them.

    Parameters
    ----------
    number
        The integer that all is drawn from.
    bundle, day
        What is served, and the market of the day.
    folder
        Where the journals lie; emptied at the end.
    """

    def __init__(self, number: int, bundle: Bundle, day: Day, folder: Path) -> None:
        self.rng = np.random.default_rng(np.random.SeedSequence([0xFA17, number]))
        self.bundle, self.day, self.folder = bundle, day, folder
        self.rates, self.ledger, self.lives = Rates.drawn(self.rng), Ledger(), 0
        self.loop = Clock()
        self.loop.set_exception_handler(_without_kills)
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.inbox: list[Wanted] = []
        self.now, self.turn, self.is_calm = 0.0, 0, False
        self.is_dead = True
        self.open_requests: dict[int, Wanted] = {}
        self.decided: dict[tuple[str, int], tuple[Decision, np.ndarray, dict[str, np.ndarray]]] = {}
        self.requests = 0
        self.fault = ""
        self.price = float(day.sessions.fields["close"][day.rows[0], 0])
        self.rows = day.rows[: int(self.rng.integers(1, len(day.rows) + 1))].tolist()
        self.steps = bundle.engine.ticks_per_step
        # What is known of the day's bars by what the journal has taken.
        self.known = {
            str(day.sessions.instruments[row]): {name: np.full(day.num_ticks, np.nan) for name in day.sessions.fields}
            for row in self.rows
        }
        dates = np.unique(day.sessions.dates)
        earlier = np.flatnonzero(day.sessions.dates == dates[dates < day.date][-1])
        # Sessions are read some 100 times faster than bars are built into them; few schedules hand over bars.
        self.tells_history, self.history = (
            bool(self.rng.random() < 0.02),
            day.columns(earlier.tolist(), 0, day.num_ticks),
        )
        self.earlier = _part(day.sessions, earlier)
        self.start()

    # The service and its disk

    @property
    def file(self) -> Path:
        return self.folder / f"journal-{self.lives}.sqlite"

    def start(self) -> None:
        """Begin another life on what the last one left on the disk."""
        self.journal = Disk(self.file, self)
        self.journal.world = None  # coming back is not where it fails
        policy = BundlePolicy(self.bundle, capacity=8)
        if not self.tells_history:
            policy.market.load_history(self.earlier)
        self.service = Service(policy, journal=self.journal)
        if self.tells_history and self.lives == 0:
            self.service.load_history(self.history)
        with mock.patch("rlwb.serving.app.make_pages"):  # nobody asks for a page, and making them takes a while
            self.front = Front(Api(self.service))
        self.journal.world = self
        self.is_dead = False
        self.ledger.counts["lives"] += 1
        if self.lives:
            self.audit()

    def kill(self) -> None:
        """End the process: what is on the disk stays, all else is gone."""
        self.ledger.counts["kills"] += 1
        before = self.file
        self.is_dead = True
        self.lives += 1
        for suffix in ("", "-wal"):
            if (path := Path(f"{before}{suffix}")).exists():
                shutil.copyfile(path, f"{self.file}{suffix}")
        self._let_go()
        for path in self.folder.glob(f"{before.name}*"):
            path.unlink()
        self.at(float(self.rng.exponential(1.0)) if not self.is_calm else 0.0, self.start)

    def stop(self) -> None:
        """End it in peace, and begin again."""
        self.ledger.counts["stops"] += 1
        self.service.close()
        self.is_dead = True
        self.start()

    def _let_go(self) -> None:
        self.journal._held.close()

    @contextlib.contextmanager
    def fate(self, journal: Disk) -> Any:
        """Let a write fail, or let the process die before it; yield whether it dies after it."""
        if self.is_dead:
            raise KilledError
        draw = self.rng.random(4)
        kind = self.rates if not self.is_calm else None
        base, full, other = journal._base, False, None
        if kind is not None and draw[0] < kind.kill / 2:
            self.is_dead = True
            raise KilledError
        try:
            if kind is not None and draw[1] < kind.locked:
                self.ledger.counts["locked"] += 1
                other = sqlite3.connect(self.file, isolation_level=None, timeout=0)
                other.execute("BEGIN IMMEDIATE")
            elif kind is not None and draw[2] < kind.full:
                self.ledger.counts["full"] += 1
                full = True
                (pages,) = base.execute("PRAGMA page_count").fetchone()
                base.execute(f"PRAGMA max_page_count={pages}").fetchone()
            dies = kind is not None and draw[3] < kind.kill / 2
            yield dies
            self.is_dead = self.is_dead or dies
        finally:
            if other is not None:
                other.close()
            if full:
                base.execute("PRAGMA max_page_count=1073741823").fetchone()

    def written(self, events: Sequence[Event]) -> None:
        """Note what the journal has taken."""
        for event in events:
            if event.kind == "bars":
                self._learn(event)
            elif event.kind == "decisions":
                for *values, _ in event.body:
                    made = Decision(*values, False)
                    order = self.service.policy.state(made.order_id)
                    known = {one: field.copy() for one, field in self.known[order.order.instrument].items()}
                    self.decided[made.order_id, made.step] = made, order.path, known

    def _learn(self, event: Event) -> None:
        columns = unpacked(event.body)
        ticks = {stamp: tick for tick, stamp in enumerate(self._stamps().tolist())}
        for at, name in enumerate(columns["instrument"]):
            tick = ticks.get(columns["datetime"][at].astype("datetime64[us]").item())
            values = {one: float(columns[one][at]) for one in self.day.sessions.fields if one in columns}
            if tick is None or name not in self.known or len(values) < len(self.day.sessions.fields):
                continue
            if values["high"] < values["low"] or values["close"] < 0 or values["volume"] < 0:
                continue
            for one, value in values.items():
                self.known[name][one][tick] = value

    def _stamps(self) -> np.ndarray:
        return self.day.stamps(self.day.date.astype("datetime64[D]"), np.arange(self.day.num_ticks))

    # The network

    def at(self, delay: float, do: Callable[[], None]) -> None:
        """Do something later."""
        self.turn += 1
        heapq.heappush(self.events, (self.now + delay, self.turn, do))

    def ask(
        self,
        kind: str,
        path: str,
        body: Any = None,
        then: Callable[[int, Any], None] = lambda status, body: None,
        *,
        method: str = "POST",
        keyed: bool | None = None,
    ) -> None:
        """Send a request until it is answered."""
        self.requests += 1
        if keyed is None:
            keyed = bool(self.rng.random() < 0.7)
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        key = f"key-{self.requests}" if keyed and method == "POST" else None
        self.send(Wanted(self.requests, kind, method, path, raw, key, then))

    def _chance(self, rate: float) -> bool:
        return not self.is_calm and bool(self.rng.random() < rate)

    def _delay(self) -> float:
        return 0.0 if self.is_calm else float(self.rng.exponential(self.rates.slow)) if self.rates.slow else 0.0

    def send(self, one: Wanted) -> None:
        if one.answer is not None:
            return
        one.tries += 1
        self.open_requests[one.number] = one
        if not self._chance(self.rates.lost):
            self.at(self._delay(), lambda: self.inbox.append(one))
        if self._chance(self.rates.doubled):
            self.ledger.counts["doubled"] += 1
            self.at(self._delay() + 0.5, lambda: self.inbox.append(one))
        self.at(2.0 if not self.is_calm else 0.5, lambda: self.send(one))

    def heard(self, one: Wanted, status: int, body: bytes) -> None:
        """Hand an answer to who asked, unless it is lost."""
        self.ledger.counts[f"status {status}"] += 1
        told = json.loads(body)
        if status >= 500 and (status != 503 or told.get("reason") == "fault"):
            raise BrokenError(f"{one.method} {one.path} was answered by {status}: {self.fault or body[:300]}")
        if status == 200 and one.kind == "decide":
            for each in told if isinstance(told, list) else [told]:
                self._check_decision(each)
        if self._chance(self.rates.unheard):
            self.ledger.counts["unheard"] += 1
            return
        if one.answer is not None:
            if one.key is not None and status == 200 and one.answer[0] == 200 and one.answer[1] != body:
                raise BrokenError(f"{one.path} under {one.key} was answered by {one.answer[1]!r}, then by {body!r}")
            return
        if status in _AGAIN:
            return  # the timer sends it again
        one.answer = (status, body)
        self.open_requests.pop(one.number, None)
        one.then(status, told)

    def _check_decision(self, told: dict[str, Any]) -> None:
        if "error" in told:
            return
        place = told["order_id"], told["step"]
        plain = {name: told[name] for name in ("tick", "position", "amount", "action", "source")}
        known = self.ledger.decisions.setdefault(place, plain)
        if known != plain:
            raise BrokenError(f"step {place[1]} of order {place[0]} was decided as {known}, then as {plain}")

    # Turns of the clock

    async def _answer(self, one: Wanted) -> tuple[Wanted, int, bytes]:
        sent: list[dict[str, Any]] = []
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        if one.key is not None:
            headers.append((b"idempotency-key", one.key.encode()))
        headers.append((b"content-length", str(len(one.body)).encode()))
        cut = len(one.body) // 2
        parts = [one.body] if self.turn % 2 else [one.body[:cut], one.body[cut:]]
        messages = [
            {"type": "http.request", "body": part, "more_body": at + 1 < len(parts)} for at, part in enumerate(parts)
        ]

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if self.is_dead:  # another request of the same moment has ended the process
                raise KilledError
            sent.append(message)

        scope = {
            "type": "http",
            "method": one.method,
            "path": one.path,
            "raw_path": one.path.encode(),
            "query_string": b"",
            "headers": headers,
        }
        await self.front(scope, receive, send)
        return one, sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    def serve(self) -> None:
        """Answer what has arrived, all at once; a killed service answers nothing of what is not answered yet."""
        given, self.inbox = self.inbox, []
        if self.is_dead or not given:
            return
        given = [given[at] for at in self.rng.permutation(len(given))]
        jump = self._chance(self.rates.jump)

        async def all_at_once() -> list[asyncio.Task[Any]]:
            tasks = [asyncio.ensure_future(self._answer(one)) for one in given]
            for turn in range(_HUNG):
                if self.is_dead or all(task.done() for task in tasks):
                    break
                if jump and turn == 1:
                    self.ledger.counts["jumps"] += 1
                    self.loop.now += 100.0
                self.loop.now += 1e-4
                await asyncio.sleep(0)
            else:
                raise BrokenError(f"no answer after {_HUNG} turns: {[one.path for one in given]}")
            return tasks

        tasks = self.loop.run_until_complete(all_at_once())
        answers = [task.result() for task in tasks if task.done() and task.exception() is None]
        for task in tasks:
            if task.done() and isinstance(error := task.exception(), Exception):
                raise error
        if self.is_dead:
            self._bury(tasks)
        for one, status, body in answers:
            self.heard(one, status, body)
        if self.is_dead:
            self.kill()

    def _bury(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """End the tasks that the killed process has left."""
        journal, self.journal.world = self.journal.world, self
        for task in tasks:
            task.cancel()
        with contextlib.suppress(KilledError):
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.journal.world = journal

    def run_until(self, end: float) -> None:
        """Let time pass."""
        while self.events and self.events[0][0] <= end:
            moment = self.events[0][0]
            self.now = max(self.now, moment)
            while self.events and self.events[0][0] <= moment + 0.05:
                _, _, do = heapq.heappop(self.events)
                do()
            self.loop.now += 0.01
            self.serve()
        self.now = end

    # The day

    def script(self) -> None:
        """Put the day's messages on the calendar."""
        rng, day = self.rng, self.day
        calendar = day.sessions.calendar
        for row in self.rows:
            for number in range(int(rng.integers(1, 3))):
                first = int(rng.integers(0, 3)) * self.steps
                last = day.num_ticks - int(rng.integers(0, 3)) * self.steps
                order = {
                    "order_id": f"{day.sessions.instruments[row]}-{number}",
                    "instrument": str(day.sessions.instruments[row]),
                    "date": str(day.date),
                    "direction": "BUY" if rng.random() < 0.5 else "SELL",
                    "amount": float(np.round(rng.uniform(10, 1000), 2)),
                    "start": _text(calendar.tick_start[first]),
                    "end": _text(calendar.tick_start[last - 1] + calendar.tick_seconds),
                }
                self.at(float(rng.uniform(0, first + 1)), lambda order=order: self._register(order))
                for cell in range(first, last, self.steps):
                    if rng.random() < 0.9:
                        self.at(cell + 0.2, lambda order=order, cell=cell: self._decide(order, cell))
                if rng.random() < 0.1:
                    self.at(float(rng.uniform(0, day.num_ticks)), lambda order=order: self._cancel(order))
        for tick in range(day.num_ticks):
            self.at(tick + 1.0, lambda tick=tick: self._feed(tick))
        for _ in range(int(rng.poisson(20 * self.rates.broken))):
            self.at(float(rng.uniform(0, day.num_ticks)), self._garbage)
        if rng.random() < 0.3:
            self.at(float(rng.uniform(1, day.num_ticks)), lambda: None if self.is_dead else self.stop())
        if rng.random() < 0.5 and self.rates.kill:
            self.at(float(rng.uniform(1, day.num_ticks)), lambda: None if self.is_dead else self.kill())

    def _register(self, order: dict[str, Any]) -> None:
        def then(status: int, told: Any) -> None:
            if status == 200:
                self.ledger.orders[order["order_id"]] = order

        self.ask("order", "/v1/orders", order if self.rng.random() < 0.5 else [order], then)

    def _cancel(self, order: dict[str, Any]) -> None:
        name = order["order_id"]

        def then(status: int, told: Any) -> None:
            if status == 200 and told["status"] == "cancelled":
                self.ledger.cancelled.add(name)

        self.ask("cancel", f"/v1/orders/{name}", None, then, method="DELETE")

    def _feed(self, tick: int) -> None:
        rng, rates = self.rng, self.rates
        whole: list[int] = []
        for row in self.rows:
            if rng.random() < rates.missing:
                continue
            if rng.random() < rates.late:
                self.at(float(rng.uniform(1, 5)), lambda row=row: self._bars([row], tick))
            else:
                whole.append(row)
            if rng.random() < rates.corrected:
                self.at(float(rng.uniform(0, 4)), lambda row=row: self._bars([row], tick, 1.0 + rng.normal(0, 1e-3)))
        if whole:
            self._bars(whole, tick)

    def _bars(self, rows: Sequence[int], tick: int, factor: float = 1.0) -> None:
        columns = self.day.columns(rows, tick, tick + 1)
        for name in ("open", "high", "low", "close"):
            columns[name] = columns[name] * factor
        told = as_json(columns)
        if self.rng.random() < 0.3 * self.rates.broken:  # a bar off the grid beside the others
            for name in told:
                told[name] = [*told[name], told[name][-1]]
            told["datetime"][-1] = told["datetime"][-1][:-2] + "07"
        if self.rng.random() < 0.3:
            told = [dict(zip(told, one, strict=True)) for one in zip(*told.values(), strict=True)]  # type: ignore[assignment]
        self.ask("bars", "/v1/bars", told)

    def _decide(self, order: dict[str, Any], cell: int, again: int = 0) -> None:
        question: dict[str, Any] = {"order_id": order["order_id"]}
        if self.rates.skew and self.rng.random() < 0.5:
            skewed = self.now + float(self.rng.normal(0, self.rates.skew))
            question["now"] = _now(self.day, skewed)

        def then(status: int, told: Any) -> None:
            one = told[0] if isinstance(told, list) else told
            if status == 200 and "error" not in one:
                self._trade(order, one)
            elif again < 4:  # late bars, or an order that is not there yet
                self.at(1.0, lambda: self._decide(order, cell, again + 1))

        self.ask("decide", "/v1/decisions", question if self.rng.random() < 0.7 else [question], then)

    def _trade(self, order: dict[str, Any], told: dict[str, Any]) -> None:
        share = float(self.rng.choice([0.0, 0.5, 1.0]))
        amount = told["amount"] * share
        if amount <= 0:
            return
        name = f"{order['order_id']}-{told['step']}-{self.requests}"
        fill = {"fill_id": name, "order_id": order["order_id"], "amount": amount, "price": self.price}

        def then(status: int, told: Any) -> None:
            if status == 200:
                self.ledger.fills.setdefault(order["order_id"], {})[name] = amount

        self.ask("fill", "/v1/fills", fill if self.rng.random() < 0.5 else [fill], then)

    def _garbage(self) -> None:
        bodies = (b"", b"{", b"\xff\xfe", b"[" * 5000, b'{"order_id": 1}', b'[{"order_id": "x"}]', b"null", b'"x"')
        paths = ("/v1/orders", "/v1/bars", "/v1/fills", "/v1/decisions", "/predict", "/v1/bundle", "/v1/orders/x/y")
        body, path = bodies[int(self.rng.integers(len(bodies)))], paths[int(self.rng.integers(len(paths)))]
        self.ask("garbage", path, body, keyed=bool(self.rng.random() < 0.5))

    # What must hold

    def audit(self) -> None:
        """Compare the service with the ledger."""
        for name, order in self.ledger.orders.items():
            try:
                found = self.service.order(name)
            except Exception as error:
                raise BrokenError(f"the acknowledged order {name} is lost: {error}") from error
            if (found.instrument, found.direction, found.amount) != (
                *(order["instrument"], order["direction"]),
                order["amount"],
            ):
                raise BrokenError(f"the acknowledged order {name} is another one: {found}")
            least = math.fsum(self.ledger.fills.get(name, {}).values())
            if found.filled < least * (1 - _SAME):
                raise BrokenError(f"order {name} has fills of {found.filled}, acknowledged were {least}")
            if name in self.ledger.cancelled and found.status != "cancelled":
                raise BrokenError(f"order {name} was cancelled and is {found.status}")
            steps = {step.step: step for step in found.steps}
            for (owner, number), told in self.ledger.decisions.items():
                if owner == name and (number not in steps or steps[number].amount != told["amount"]):
                    raise BrokenError(f"the decision of step {number} of order {name} is lost: {told}")

    def settle(self) -> None:
        """End the day in calm, kill the service once more, and see that all is there and nothing more."""
        self.is_calm = True
        self.run_until(self.now + 20.0)
        if self.open_requests:
            raise BrokenError(f"requests stay unanswered: {[one.path for one in self.open_requests.values()]}")
        self.audit()
        self._check_totals()
        self.kill()
        self.run_until(self.now + 1.0)
        self.audit()
        self._check_totals()
        self._check_market()
        self._check_size()
        self._check_decisions()

    def _check_totals(self) -> None:
        for name in self.ledger.orders:
            told = math.fsum(self.ledger.fills.get(name, {}).values())
            found = self.service.order(name).filled
            if abs(found - told) > _SAME * max(told, 1.0):
                raise BrokenError(f"order {name} has fills of {found}, acknowledged were {told}")

    def _check_market(self) -> None:
        market = self.service.policy.market
        for name, fields in self.known.items():
            row = market.row(name, self.day.date)
            for one, values in fields.items():
                there = market.panel.fields[one][row] if row >= 0 else np.full_like(values, np.nan)
                if not np.array_equal(there, values, equal_nan=True):
                    raise BrokenError(f"{one} of {name} is {there}, in the journal {values}")

    def _check_size(self) -> None:
        counts = self.service.counts
        flying, waiting = len(self.service.policy), len(self.front.api.batcher)
        if waiting or self.front._active or flying != counts["open"] + counts["over"]:
            raise BrokenError(f"{waiting} wait, {self.front._active} are active, {flying} are in flight of {counts}")
        if len(self.service.policy.market) > len(self.rows):
            raise BrokenError(f"{len(self.service.policy.market)} sessions are open")

    def _check_decisions(self) -> None:
        """Make each decision again by a service that knows the same bars, in their order, and has no faults."""
        for decision, path, bars in self.decided.values():
            order = self._order(decision.order_id)
            plain = BundlePolicy(self.bundle, capacity=8)
            plain.market.load_history(self.earlier)
            columns = {
                "instrument": [order.instrument] * decision.tick,
                "datetime": self._stamps()[: decision.tick],
                **{name: values[: decision.tick] for name, values in bars.items()},
            }
            there = np.isfinite(columns["close"])
            columns = {
                name: [v for v, fine in zip(values, there, strict=True) if fine] for name, values in columns.items()
            }
            row = plain.market.open(order.instrument, order.date)
            if there.any():
                plain.market.add(columns)
            plain.market.reach(row, decision.tick)
            plain.register([order])
            if decision.source == "policy":
                again = plain.decide(order, None, path)
            else:
                plain._set_path(decision.order_id, path)
                (again,) = plain.decide_many([decision.order_id], [float(path[-1])], by_schedule=[True])
            if not isinstance(again, Decision):
                raise BrokenError(f"without faults {decision} is refused: {again}")
            if again.action != decision.action or abs(again.amount - decision.amount) > _SAME * order.amount:
                raise BrokenError(f"without faults {decision} is {again}")

    def _order(self, name: str) -> Order:
        return self.service._entries[name].order

    def close(self) -> None:
        """Let go of files and tasks."""
        self._let_go()
        self.loop.close()
        for path in self.folder.glob("journal-*"):
            path.unlink()


def _without_kills(loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
    if not isinstance(told.get("exception"), KilledError):
        loop.default_exception_handler(told)


def _part(sessions: Sessions, rows: np.ndarray) -> Sessions:
    """Return some sessions of a panel."""
    fields = {name: values[rows] for name, values in sessions.fields.items()}
    return Sessions(
        sessions.calendar, sessions.instruments[rows], sessions.dates[rows], sessions.num_ticks[rows], fields
    )


def _text(seconds: float) -> str:
    seconds = int(seconds)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"


def _now(day: Day, ticks: float) -> str:
    calendar = day.sessions.calendar
    tick = int(np.clip(ticks, 0, day.num_ticks - 1))
    seconds = float(calendar.tick_start[tick]) + (ticks - tick) * calendar.tick_seconds
    stamp = day.date.astype("datetime64[s]") + np.timedelta64(int(seconds), "s")
    return str(stamp)


def run_one(number: int, bundle: Bundle, day: Day, folder: Path) -> Ledger:
    """Run one schedule to its end; raise `BrokenError` with its number where something does not hold."""
    world = World(number, bundle, day, folder)
    logger, handler = logging.getLogger("rlwb.serving"), _Faults(world)
    logger.addHandler(handler)
    try:
        world.script()
        world.run_until(day.num_ticks + 6.0)
        world.settle()
    except BrokenError as error:
        raise BrokenError(f"schedule {number}: {error}") from error
    except Exception as error:
        raise BrokenError(f"schedule {number}: {type(error).__name__}: {error}") from error
    finally:
        logger.removeHandler(handler)
        world.close()
    counts = world.ledger.counts
    counts["requests"], counts["decisions"] = world.requests, len(world.decided)
    counts["orders"], counts["fills"] = len(world.ledger.orders), sum(map(len, world.ledger.fills.values()))
    return world.ledger


def run(numbers: Iterable[int], bundle: Bundle, day: Day, folder: Path) -> tuple[Counter[str], list[str]]:
    """Run schedules; return what happened in them, and what did not hold."""
    logger = logging.getLogger("rlwb.serving")
    before, threads = logger.propagate, torch.get_num_threads()
    logger.propagate = False
    torch.set_num_threads(1)
    total, failures = Counter[str](), []
    try:
        for number in numbers:
            try:
                total += run_one(number, bundle, day, folder).counts
            except BrokenError as error:
                failures.append(str(error))
                print(f"{error}\nreplay: python -m benchmarks.faults --first {number} --schedules 1", flush=True)
                traceback.print_exc()
    finally:
        logger.propagate = before
        torch.set_num_threads(threads)
    return total, failures


def _job(asked: tuple[list[int], str, str]) -> tuple[Counter[str], list[str]]:
    numbers, run_path, path = asked
    with tempfile.TemporaryDirectory(prefix="rlwb-faults-") as folder:
        return run(numbers, open_bundle(Path(path)), Day.of(RunDirectory(run_path)), Path(folder))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, help="where the figures go; without it, fewer than 2,000 are not written")
    asked = parser.parse_args(arguments)
    numbers, began = list(range(asked.first, asked.first + asked.schedules)), time.monotonic()
    total, failures = Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="rlwb-faults-") as folder:
        run_, path = make_bundle(Path(folder), TINY)
        parts = [numbers[at :: asked.jobs] for at in range(asked.jobs)]
        with ProcessPoolExecutor(asked.jobs, get_context("spawn")) as pool:
            for counts, wrong in pool.map(_job, [(part, str(run_.path), str(path)) for part in parts if part]):
                total += counts
                failures += wrong
    found = {
        "schedules": len(numbers),
        "first": asked.first,
        "failed": len(failures),
        **dict(sorted(total.items())),
        "failures": failures,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(found, indent=2))
    if asked.out or asked.schedules >= 2000:
        write_json(asked.out or RESULTS.with_name("faults.json"), {**context(), **found})
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
