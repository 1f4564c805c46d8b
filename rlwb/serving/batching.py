"""Micro-batching: single requests that wait at the same time are answered by one call for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from rlwb.errors import ServingError

Q = TypeVar("Q")
A = TypeVar("A")


class _Waiting(NamedTuple):
    question: object
    answer: asyncio.Future
    deadline: float


class MicroBatcher(Generic[Q, A]):
    """Collects questions and answers them together, in the event loop.

    Parameters
    ----------
    answer
        Answers a sequence of questions: one answer or exception each, in their sequence.
    window
        Seconds to wait for more questions. 0 waits for no longer than the loop takes to hand over those that have
        arrived already, so that a lone question is answered at once.
    most
        Largest batch; 1 turns batching off.
    queue
        Most questions that wait; further ones are refused at once.
    deadline
        Seconds after which a question that still waits is refused.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[Q]], Sequence[A | Exception]],
        *,
        window: float = 0.0,
        most: int = 256,
        queue: int = 1024,
        deadline: float = 1.0,
    ) -> None:
        self._answer = answer
        self.window, self.most, self.queue, self.deadline = window, most, queue, deadline
        self._waiting: deque[_Waiting] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, question: Q) -> A:
        """Return the answer to a question.

        Raises
        ------
        ServingError
            With the reason ``full`` when too many wait, and ``deadline`` when it has waited for too long.
        """
        if len(self._waiting) >= self.queue:
            raise ServingError(f"{self.queue} requests wait already; try again later.", "full")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting.append(_Waiting(question, answer, loop.time() + self.deadline))
        if not self._is_due:
            self._is_due = True
            if self.window > 0 and self.most > 1:
                loop.call_later(self.window, self._flush, loop)
            else:
                loop.call_soon(self._flush, loop)
        return await answer

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        now, batch = loop.time(), list[_Waiting]()
        while self._waiting and len(batch) < self.most:
            one = self._waiting.popleft()
            if one.answer.done():  # the client has gone
                continue
            if one.deadline < now:
                late = f"the request has waited for longer than {self.deadline:g} s; try again later."
                one.answer.set_exception(ServingError(late, "deadline"))
            else:
                batch.append(one)
        self._is_due = bool(self._waiting)
        if self._is_due:
            loop.call_soon(self._flush, loop)
        if batch:
            self._answer_all(batch)

    def _answer_all(self, batch: Sequence[_Waiting]) -> None:
        try:
            answers: Sequence[A | Exception] = self._answer([one.question for one in batch])  # type: ignore[misc]
        except Exception as error:
            answers = [error] * len(batch)
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
