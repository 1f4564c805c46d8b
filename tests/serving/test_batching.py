"""Micro-batching: who waits together is answered together, in order, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rlwb.errors import ServingError
from rlwb.serving.batching import MicroBatcher


class Doubler:
    """Doubles numbers, keeps the batches, and refuses 13."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, questions: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(questions))
        return [ServingError("unlucky", "thirteen") if one == 13 else 2 * one for one in questions]


def run(batcher: MicroBatcher[int, int], questions: Sequence[int]) -> list[int | BaseException]:
    async def ask() -> list[int | BaseException]:
        return await asyncio.gather(*map(batcher.ask, questions), return_exceptions=True)

    return asyncio.run(ask())


def test_questions_of_one_turn_make_one_batch() -> None:
    doubler = Doubler()
    assert run(MicroBatcher(doubler), range(14, 100)) == [2 * one for one in range(14, 100)]
    assert doubler.batches == [list(range(14, 100))]


@pytest.mark.parametrize(("most", "sizes"), [(1, [1] * 5), (2, [2, 2, 1]), (5, [5])])
def test_a_batch_has_a_largest_size(most: int, sizes: list[int]) -> None:
    doubler = Doubler()
    assert run(MicroBatcher(doubler, most=most), range(5)) == [0, 2, 4, 6, 8]
    assert [len(batch) for batch in doubler.batches] == sizes


def test_a_lone_question_waits_for_no_other() -> None:
    async def ask() -> int:
        batcher = MicroBatcher(Doubler())
        task = asyncio.ensure_future(batcher.ask(4))
        for _ in range(4):  # turns of the loop
            await asyncio.sleep(0)
        assert task.done()
        return task.result()

    assert asyncio.run(ask()) == 8


def test_a_window_gathers_what_comes_within_it() -> None:
    doubler = Doubler()

    async def ask() -> None:
        batcher = MicroBatcher(doubler, window=0.05)
        first = asyncio.ensure_future(batcher.ask(1))
        await asyncio.sleep(0.001)
        assert await batcher.ask(2) == 4
        assert await first == 2

    asyncio.run(ask())
    assert doubler.batches == [[1, 2]]


def test_one_refused_question_leaves_the_others() -> None:
    found = run(MicroBatcher(Doubler()), [1, 13, 3])
    assert found[0] == 2
    assert isinstance(found[1], ServingError)
    assert found[2] == 6


def test_a_full_queue_refuses_at_once_and_serves_who_waits() -> None:
    found = run(MicroBatcher(Doubler(), queue=3), range(5))
    assert found[:3] == [0, 2, 4]
    assert [one.reason for one in found[3:] if isinstance(one, ServingError)] == ["full", "full"]


def test_who_has_waited_too_long_is_refused_and_not_asked_for() -> None:
    doubler = Doubler()

    async def ask() -> list[int | BaseException]:
        batcher = MicroBatcher(doubler, window=0.03, deadline=0.01)
        early = asyncio.ensure_future(batcher.ask(1))
        await asyncio.sleep(0.025)
        late = asyncio.ensure_future(batcher.ask(2))
        return await asyncio.gather(early, late, return_exceptions=True)

    early, late = asyncio.run(ask())
    assert isinstance(early, ServingError)
    assert early.reason == "deadline"
    assert late == 4
    assert doubler.batches == [[2]]


def test_a_client_that_left_is_not_answered() -> None:
    doubler = Doubler()

    async def ask() -> int:
        batcher = MicroBatcher(doubler)
        gone = asyncio.ensure_future(batcher.ask(1))
        stays = asyncio.ensure_future(batcher.ask(2))
        await asyncio.sleep(0)
        gone.cancel()
        return await stays

    assert asyncio.run(ask()) == 4
    assert doubler.batches == [[2]]


def test_a_failing_answer_fails_its_batch_alone() -> None:
    calls = []

    def answer(questions: Sequence[int]) -> list[int]:
        calls.append(list(questions))
        if len(calls) == 1:
            raise ZeroDivisionError
        return [2 * one for one in questions]

    found = run(MicroBatcher(answer, most=2), [1, 2, 3])
    assert [type(one) for one in found] == [ZeroDivisionError, ZeroDivisionError, int]
