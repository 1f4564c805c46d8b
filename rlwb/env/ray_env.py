"""Episodes in shards, each stepped by arrays in a process of a Ray cluster."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rlwb.batch import join, split_shared, take
from rlwb.env.ray_actors import ATTEMPTS, Actors, Lost
from rlwb.env.vector import Active, FiniteVectorEnv, NativeVectorEnv, StepResult, check_actions
from rlwb.errors import ConfigError, WorkerError

Make = Callable[[Sequence[Any]], NativeVectorEnv]
"""Makes the native environment of some initial states."""


class RayVectorEnv(FiniteVectorEnv):
    """A `FiniteVectorEnv` whose episodes are divided among processes of Ray's, which step theirs by arrays.

    The policy stays in this process. A step is one call for each shard, whatever the number of its episodes. All
    numbers are those of the `NativeVectorEnv` of all episodes, to the last bit. A shard that is lost, with its process
    or its machine, is made again and repeats the actions so far.

    Parameters
    ----------
    make
        See `Make`. It is sent to the processes once.
    initial_states, seed
        As in `NativeVectorEnv`.
    shards
        Number of processes.
    threads
        Threads of numerical libraries, and CPUs set aside, for each.

    Raises
    ------
    ConfigError
        When the package ray is missing, no cluster can be reached, or `make` cannot be sent.
    """

    def __init__(
        self, make: Make, initial_states: Sequence[Any], shards: int, seed: int = 0, *, threads: int = 1
    ) -> None:
        self.initial_states = initial_states
        self.seed = seed
        self._make = make
        self._shared: dict[str, Any] | None = None
        self._starts: list[int] = []
        self._past: list[list[np.ndarray]] = []  # the actions of each shard since the reset
        self._active: list[Active] = []
        self._columns: dict[str, dict[str, np.ndarray]] = {}
        self._closed = False
        self.actors = Actors(partial(_Shard, make), shards, threads=threads)

    def reset(self) -> Active:
        self._refuse_closed()
        count = len(self.initial_states)
        if self._shared is None and count:
            self._shared = shared_by_all(self._make, self.initial_states)
        bounds = np.linspace(0, count, min(len(self.actors), max(count, 1)) + 1).astype(np.int64)
        self._starts = bounds[:-1].tolist()
        self._past = [[] for _ in self._starts]
        self._columns = {}
        begun = [self.actors.ask(shard, "reset", *self._beginning(shard)) for shard in range(len(self._starts))]
        self._active = [self._result(shard, wait, "reset") for shard, wait in enumerate(begun)]
        return self._joined()

    def step(self, action: Any) -> tuple[StepResult, Active]:
        self._refuse_closed()
        actions = check_actions(action, sum(map(len, self._active)))
        counts = [len(active) for active in self._active]
        parts = dict(enumerate(np.split(actions, np.cumsum(counts)[:-1])))
        going = {shard: part for shard, part in parts.items() if counts[shard]}
        for shard, part in going.items():
            self._past[shard].append(part)
        asked = {shard: self.actors.ask(shard, "step", part) for shard, part in going.items()}
        results = []
        for shard, wait in asked.items():
            result, self._active[shard] = self._result(shard, wait, "step")
            results.append(StepResult(result.episode + self._starts[shard], result.reward, result.done))
        episode, reward, done = (
            np.concatenate([getattr(one, name) for one in results]) for name in ("episode", "reward", "done")
        )
        return StepResult(episode, reward, done), self._joined()

    def metrics(self) -> dict[str, np.ndarray]:
        return self._gathered("metrics")

    def details(self) -> dict[str, np.ndarray]:
        return self._gathered("details")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.actors.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigError("The vector environment is closed, or an error has ended it; make a new one.")

    def _beginning(self, shard: int) -> tuple[Any, ...]:
        """Return what starts a shard: its initial states, the seed, and the number of its first episode."""
        start = self._starts[shard]
        end = self._starts[shard + 1] if shard + 1 < len(self._starts) else len(self.initial_states)
        return take(self.initial_states, np.arange(start, end)), self.seed, self.first_episode + start

    def _result(self, shard: int, wait: Callable[[], Any], name: str) -> Any:
        """Return the answer of a shard; one that is lost is made again and led to where it was."""
        try:
            for attempt in itertools.count(1):
                try:
                    return wait()
                except Lost as error:
                    if attempt == ATTEMPTS:
                        raise WorkerError(
                            f"worker {shard} died {ATTEMPTS} times in {name} ({error}); lack of memory is the usual "
                            "cause: use fewer workers a machine, or larger machines."
                        ) from error
                    self.actors.replace(shard)
                    again = self.actors.ask(shard, "replay", *self._beginning(shard), self._past[shard])
                    wait = partial(self._after_replay, again, name)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _after_replay(again: Callable[[], Any], name: str) -> Any:
        result, active, figures = again()
        return {"reset": active, "step": (result, active)}.get(name, figures.get(name))

    def _joined(self) -> Active:
        """Return what is active in all shards, in the order of the episodes."""
        going = [(start, one) for start, one in zip(self._starts, self._active, strict=True) if len(one)]
        if not going:
            return Active(np.empty(0, dtype=np.int64), {})
        obs = join([one.obs for _, one in going])
        episodes = np.concatenate([one.episode + start for start, one in going])
        return Active(episodes, {**obs, **self._shared} if self._shared else obs)

    def _gathered(self, name: str) -> dict[str, np.ndarray]:
        """Return the figures of all episodes, from all shards; NaN where a shard has none of a name."""
        if name not in self._columns:
            waits = [self.actors.ask(shard, name) for shard in range(len(self._starts))]
            parts = [self._result(shard, wait, name) for shard, wait in enumerate(waits)]
            counts = np.diff([*self._starts, len(self.initial_states)]).tolist()
            self._columns[name] = _laid_out(parts, counts)
        return dict(self._columns[name])


def shared_by_all(make: Make, initial_states: Sequence[Any]) -> dict[str, Any]:
    """Return what all observations share, by key: it stays where it is, since every process has its own."""
    return split_shared(make(take(initial_states, np.arange(1))).reset().obs)[1]


class _Shard:
    """The native environment of some of the episodes."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._env: NativeVectorEnv | None = None

    def reset(self, states: Sequence[Any], seed: int, first: int) -> Active:
        if self._env is None:
            self._env = self._make(states)
        self._env.initial_states, self._env.seed, self._env.first_episode = states, seed, first
        return _without_shared(self._env.reset())

    def step(self, actions: np.ndarray) -> tuple[StepResult, Active]:
        assert self._env is not None
        result, active = self._env.step(actions)
        return result, _without_shared(active)

    def replay(
        self, states: Sequence[Any], seed: int, first: int, past: Sequence[np.ndarray]
    ) -> tuple[StepResult | None, Active, dict[str, Any]]:
        """Start again and repeat actions; return the last step's results, and the figures so far by kind."""
        result, active = None, self.reset(states, seed, first)
        for actions in past:
            result, active = self.step(actions)
        return result, active, {"metrics": self.metrics(), "details": self.details()}

    def metrics(self) -> dict[str, np.ndarray]:
        assert self._env is not None
        return self._env.metrics()

    def details(self) -> dict[str, np.ndarray]:
        assert self._env is not None
        return self._env.details()


def _without_shared(active: Active) -> Active:
    return Active(active.episode, split_shared(active.obs)[0])


def _laid_out(parts: Sequence[Mapping[str, np.ndarray]], counts: Sequence[int]) -> dict[str, np.ndarray]:
    shapes = {name: values.shape[1:] for part in parts for name, values in part.items()}
    return {
        name: np.concatenate(
            [part.get(name, np.full((count, *shape), np.nan)) for part, count in zip(parts, counts, strict=True)]
        )
        for name, shape in shapes.items()
    }
