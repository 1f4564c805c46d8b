"""The service against a plain book of orders, through any sequence of requests, kills and swaps."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rlwb.errors import RlwbError, ServingError
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.journal import Journal
from rlwb.serving.policy import BundlePolicy
from rlwb.serving.service import Service
from rlwb.serving.wire import DecisionIn, DecisionOut, FillIn
from tests.serving.desk import Desk

NAMES = st.sampled_from(["a", "b", "c", "d"])
AMOUNTS = st.sampled_from([100.0, 250.0])
INSTRUMENTS = st.sampled_from(["AAA", "BBB"])


class Book(RuleBasedStateMachine):
    """A service, and what it should know: amounts, fills and decisions, in dictionaries."""

    bundle: ClassVar[Bundle]
    desk: ClassVar[Desk]

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "j.db"
        self.amounts: dict[str, tuple[str, float]] = {}
        self.fills: dict[str, tuple[str, float]] = {}
        self.ended: set[str] = set()
        self.told: dict[tuple[str, int], DecisionOut] = {}
        self.ticks = {"AAA": 0, "BBB": 0}
        self.start()

    def start(self) -> None:
        self.service = Service(BundlePolicy(self.bundle, capacity=4), journal=Journal(self.path))

    def left(self, name: str) -> float:
        return self.amounts[name][1] - sum(amount for order, amount in self.fills.values() if order == name)

    def attempt(self, reason: str | None, act: Any) -> Any:
        """Do something, which must be refused for a reason if there is one."""
        if reason is None:
            return act()
        with pytest.raises(RlwbError) as caught:
            act()
        assert isinstance(caught.value, ServingError)
        assert caught.value.reason == reason
        return None

    @rule(name=NAMES, instrument=INSTRUMENTS, amount=AMOUNTS)
    def register(self, name: str, instrument: str, amount: float) -> None:
        known = self.amounts.get(name)
        reason = None if known in (None, (instrument, amount)) else "conflict"
        self.attempt(reason, lambda: self.service.register([self.desk.order(name, instrument, amount=amount)]))
        self.amounts.setdefault(name, (instrument, amount))

    @rule(name=NAMES, number=st.integers(0, 5), amount=st.sampled_from([40.0, 60.0, 300.0]))
    def fill(self, name: str, number: int, amount: float) -> None:
        key = str(number)
        if key in self.fills:
            reason = None if self.fills[key] == (name, amount) else "conflict"
        elif name not in self.amounts:
            reason = "unknown_order"
        elif self.is_finished(name):
            reason = "order_over"
        else:
            reason = "overfill" if amount > self.left(name) else None
        one = FillIn(fill_id=key, order_id=name, amount=amount, price=10.0)
        found = self.attempt(reason, lambda: self.service.fills([one]))
        if reason is None:
            self.fills[key] = (name, amount)
            assert found == [self.left(name)]

    @rule(instrument=INSTRUMENTS, count=st.integers(1, 30))
    def bars(self, instrument: str, count: int) -> None:
        first = self.ticks[instrument]
        last = min(first + count, self.desk.ticks)
        if last > first:
            assert self.service.bars(self.desk.bars(instrument, first, last)).accepted == last - first
            self.ticks[instrument] = last

    @rule(name=NAMES)
    def decide(self, name: str) -> None:
        reason = "unknown_order" if name not in self.amounts else "order_over" if self.is_over(name) else None
        made = self.service.decide([DecisionIn(order_id=name)])[0]
        if reason is not None:
            assert isinstance(made, ServingError)
            assert made.reason == reason
            return
        assert isinstance(made, DecisionOut)
        known = self.told.get((name, made.step))
        assert made.repeated == (known is not None)
        if known is None:
            assert made.position == self.left(name)
            assert 0 <= made.amount <= made.position
            assert made.tick <= self.ticks[self.amounts[name][0]]
            self.told[name, made.step] = made
        else:
            assert (made.position, made.amount, made.tick) == (known.position, known.amount, known.tick)

    @rule(name=NAMES)
    def cancel(self, name: str) -> None:
        self.attempt("unknown_order" if name not in self.amounts else None, lambda: self.service.cancel(name))
        if name in self.amounts:
            self.ended.add(name)

    @rule()
    def kill(self) -> None:
        self.service.journal._held.close()
        self.start()

    @rule()
    def swap(self) -> None:
        other = BundlePolicy(self.bundle, capacity=4)
        events = list(self.service.journal.events())
        self.service.bring_up(other, events)
        self.service.take_over(other, "main", events[-1][0] if events else 0)

    def is_over(self, name: str) -> bool:
        return name in self.ended or self.ticks[self.amounts[name][0]] == self.desk.ticks

    def is_finished(self, name: str) -> bool:
        past = self.ticks[self.amounts[name][0]] == self.desk.ticks
        return past and self.service.order(name).status == "finished"

    @invariant()
    def agrees(self) -> None:
        found = {one.order_id: one for one in self.service.orders().orders}
        assert found.keys() == self.amounts.keys()
        for name, one in found.items():
            assert (one.instrument, one.amount) == self.amounts[name]
            assert one.position == self.left(name)
            steps = {step for order, step in self.told if order == name}
            assert [each.step for each in one.steps] == sorted(steps)
            over = self.ticks[one.instrument] == self.desk.ticks
            if one.status == "open":
                assert not over
                assert name not in self.ended
            elif one.status == "over":
                assert over
                assert self.left(name) > 0
            elif one.status == "cancelled":
                assert name in self.ended
            else:
                assert over
                assert (one.pa_bp is not None and math.isfinite(one.pa_bp)) == (self.left(name) < one.amount)

    def teardown(self) -> None:
        if hasattr(self, "service"):
            self.service.close()
            self.folder.cleanup()


def test_any_sequence_of_requests_leaves_the_book_that_a_reader_would_keep(bundle_path: Path) -> None:
    Book.bundle = open_bundle(bundle_path)
    Book.desk = Desk(Book.bundle.calendar)
    run_state_machine_as_test(Book, settings=settings(max_examples=12, stateful_step_count=25, deadline=None))
