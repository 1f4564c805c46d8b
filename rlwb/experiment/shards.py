"""A backtest divided among processes of a Ray cluster: checkpoints side by side, and the orders of each by chunks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Actor, Learner
from rlwb.reward import Reward
from rlwb.simulator import Simulator

if TYPE_CHECKING:
    from rlwb.env.ray_actors import Actors
    from rlwb.experiment.workbench import Workbench
    from rlwb.trainer import Episodes

One = TypeVar("One")
Other = TypeVar("Other")


class Map(Protocol):
    """A function like `map`."""

    def __call__(self, function: Callable[[One], Other], values: Iterable[One], /) -> Iterable[Other]: ...


class Shards:
    """Processes that run policies on orders, each with the run's market, rules and features.

    A piece of work is a policy on a chunk of orders, cut as a backtest here cuts them, so that every number is
    computed in the same way; see `rlwb.trainer.backtest`.
    """

    def __init__(self, bench: Workbench, sees: StateInterpreter[Any], count: int) -> None:
        from rlwb.env.ray_actors import Actors

        self._simulators = [bench.simulator, *([bench.impact_free[1]] if bench.impact_free is not None else [])]
        self._record = sees.record()
        make = partial(_Judge, tuple(self._simulators), sees, bench.action_interpreter, bench.reward)
        self.actors: Actors = Actors(make, count, threads=bench.config.threads)

    def serves(self, policy: Actor, sees: StateInterpreter[Any], simulator: Simulator[Any]) -> bool:
        """Tell whether the processes have what a policy needs; baselines and other rules stay here."""
        is_known = any(one is simulator for one in self._simulators)
        return isinstance(policy, Learner) and is_known and sees.record() == self._record

    def divided(
        self, policy: Actor, simulator: Simulator[Any]
    ) -> Callable[[Sequence[tuple[int, Sequence[Any]]]], Sequence[Episodes]]:
        """Return what runs a policy on chunks of orders, for `rlwb.trainer.backtest`."""
        assert isinstance(policy, Learner)
        number = next(place for place, one in enumerate(self._simulators) if one is simulator)
        acting = policy.acting()

        def run(chunks: Sequence[tuple[int, Sequence[Any]]]) -> Sequence[Episodes]:
            sent = self.actors.put(acting)
            return self.actors.map("play", [(sent, number, first, orders) for first, orders in chunks])

        return run


class _Judge:
    """Runs policies in a process of Ray's."""

    def __init__(
        self,
        simulators: Sequence[Simulator[Any]],
        sees: StateInterpreter[Any],
        acts: ActionInterpreter[Any],
        reward: Reward[Any],
    ) -> None:
        self._simulators, self._sees, self._acts, self._reward = simulators, sees, acts, reward

    def play(self, policy: Actor, number: int, first: int, orders: Sequence[Any]) -> Episodes:
        from rlwb.trainer.collect import play_chunk

        return play_chunk(self._simulators[number], self._sees, self._acts, self._reward, policy, first, orders)


@contextmanager
def divided_among(bench: Workbench, sees: Callable[[], StateInterpreter[Any]], count: int) -> Iterator[Map]:
    """Let a workbench run policies in `count` processes; yield a function like `map` that judges several at once.

    With 0 processes all stays here, one after the other. `sees` returns the interpreter of the run's checkpoints.
    """
    if not count:
        yield map
        return
    shards = Shards(bench, sees(), count)
    bench.shards = shards
    pool = ThreadPoolExecutor(count + 1, thread_name_prefix="rlwb-backtest")
    try:
        yield pool.map
    finally:
        bench.shards = None
        shards.actors.close()
        pool.shutdown(cancel_futures=True)


#: Policies are made one at a time: libraries below draw initial weights from a state that a process has once.
making = threading.Lock()
