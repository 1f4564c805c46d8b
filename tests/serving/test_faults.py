"""Schedules of faults, each drawn from one integer, and that they notice what they look for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks import faults
from benchmarks.serving_parts import TINY, Day, make_bundle
from rlwb.serving.bundle import Bundle, open_bundle
from rlwb.serving.journal import Journal
from rlwb.serving.policy import BundlePolicy
from rlwb.serving.service import Service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Day]:
    run, path = make_bundle(tmp_path_factory.mktemp("faults"), TINY)
    return open_bundle(path), Day.of(run)


@pytest.fixture
def run(served: tuple[Bundle, Day], tmp_path: Path) -> Callable[[int], faults.Ledger]:
    return partial(faults.run_one, bundle=served[0], day=served[1], folder=tmp_path)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_schedule_loses_or_doubles_anything(first: int, served: tuple[Bundle, Day], tmp_path: Path) -> None:
    counts, failures = faults.run(range(first, first + 20), *served, tmp_path)
    assert not failures, failures
    for kind in ("kills", "locked", "full", "unheard", "doubled", "orders", "fills", "decisions"):
        assert counts[kind] > 0, kind
    assert not list(tmp_path.iterdir())


def test_the_same_number_gives_the_same_day(run: Callable[[int], faults.Ledger]) -> None:
    first, again, other = run(7), run(7), run(8)
    assert first == again
    assert first.decisions != other.decisions


def forgets(events: Any) -> Any:
    """Return the events of a journal without the last fill and the last decisions."""
    kept = list(events)
    for kind in ("fill", "decisions"):
        last = max((at for at, (_, event) in enumerate(kept) if event.kind == kind), default=None)
        if last is not None:
            del kept[last]
    return iter(kept)


def broken(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break one promise of the service."""
    events, fills, decide = Journal.events, Service._fill, BundlePolicy.decide_many
    write = Journal.write

    def twice(service: Service, fill: Any) -> None:
        fills(service, fill)
        service._entries[fill.order_id].filled += fill.amount / 2

    def other(policy: BundlePolicy, ids: Any, *given: Any, **settings: Any) -> Any:
        made = decide(policy, ids, *given, **settings)
        return [one._replace(amount=one.amount * 0.999) if hasattr(one, "amount") else one for one in made]

    def unwritten(journal: Journal, given: Any) -> None:
        write(journal, [one for one in given if one.kind != "order"])

    patches: dict[str, tuple[Any, str, Any]] = {
        "a journal that forgets": (Journal, "events", lambda journal, *after: forgets(events(journal, *after))),
        "fills that count again": (Service, "_fill", twice),
        "orders that are not journalled": (Journal, "write", unwritten),
        "other decisions than the policy's": (BundlePolicy, "decide_many", other),
    }
    owner, name, value = patches[kind]
    monkeypatch.setattr(owner, name, value)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("a journal that forgets", "is lost|acknowledged were"),
        ("fills that count again", "acknowledged were|was answered by 500"),
        ("orders that are not journalled", "is lost|KeyError|refused"),
        ("other decisions than the policy's", "without faults|was decided as"),
    ],
)
def test_a_broken_promise_is_noticed(
    kind: str, told: str, run: Callable[[int], faults.Ledger], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(kind, monkeypatch)
    with pytest.raises(faults.BrokenError, match=rf"^schedule \d+: .*({told})"):
        list(map(run, range(20)))
