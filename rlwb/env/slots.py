"""Environments of one episode side by side, in this process or in workers of their own."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import connection
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import (
    concatenate,
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from rlwb.batch import take_rows
from rlwb.env.data_queue import Dataset, stream
from rlwb.env.vector import Active, FiniteVectorEnv, NativeVectorEnv, StepResult, check_actions
from rlwb.env.workers import CLOSE_SECONDS, SPAWN, SharedPickle, Worker, uninterrupted
from rlwb.env.wrapper import EnvFn, EnvWrapper, EpisodeFigures, describe
from rlwb.errors import ConfigError, WorkerError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Cut
from rlwb.reward import AuxiliaryInfoCollector, Reward
from rlwb.seeds import episode_seeds
from rlwb.simulator import Simulator

FINITE_ENV_TYPES = ("dummy", "subproc", "shmem")
ENV_TYPES = ("native", *FINITE_ENV_TYPES, "ray")

_SEEDS_AT_ONCE = 256


class _Task(NamedTuple):
    """An episode to run, and the seed of its random numbers."""

    episode: int
    state: Any
    seed: int

    def __str__(self) -> str:
        return f"episode {self.episode} ({describe(self.state)})"


class _Answer(NamedTuple):
    """The answer of a slot to a reset or a step.

    `figures` are those of an episode that has ended; `cut` tells that it was cut off, though it was not over.
    """

    obs: Any
    reward: float = 0.0
    done: bool = False
    figures: Mapping[str, float] = {}
    cut: bool = False


class _Slot:
    """An environment that runs an episode at a time; observations go to row `number` of `memory`, if there is one."""

    def __init__(self, env_fn: EnvFn, number: int = 0, memory: Any = None) -> None:
        self.env = env_fn()
        if not isinstance(self.env, gym.Env):
            raise ConfigError(f"env_fn returned {type(self.env).__name__}; return a gymnasium environment.")
        self._number, self._memory = number, memory

    def reset(self, state: Any, seed: int) -> _Answer:
        self._figures = EpisodeFigures()
        obs, _ = self.env.reset(seed=seed, options={"initial_state": state})
        return _Answer(self._laid_down(obs))

    def step(self, action: Any) -> _Answer:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._figures.add(info)
        done = bool(terminated or truncated)
        figures = self._figures.finish(info) if done else {}
        return _Answer(self._laid_down(obs), float(reward), done, figures, bool(truncated and not terminated))

    def close(self) -> None:
        self.env.close()

    def _laid_down(self, obs: Any) -> Any:
        if self._memory is None:
            return obs
        write_to_shared_memory(self.env.observation_space, self._number, obs, self._memory)
        return None


class SlotVectorEnv(FiniteVectorEnv):
    """A `FiniteVectorEnv` of numbered slots with an environment each, in this process; see `vectorize_env`.

    Draws the states, numbers the episodes and keeps the rows. Draws and numbers depend on the actions alone, not on
    how or where the slots run.
    """

    def __init__(self, env_fn: EnvFn, initial_states: Any, concurrency: int, seed: int) -> None:
        self.concurrency = concurrency
        self.seed = seed
        self.initial_states = initial_states
        self._make = partial(_Slot, env_fn)
        self._space: gym.Space[Any] | None = None
        self._slots: list[Any] = []
        self._tasks: Iterator[_Task] = iter(())
        self._running: dict[int, _Task] = {}  # by slot, in the order of the rows
        self._answers: dict[int, _Answer] = {}  # the last of each slot
        self._figures: list[Mapping[str, float]] = []  # of each episode
        self._closed = False

    def reset(self) -> Active:
        """Start the stream of `initial_states`; slots that there are already are used again."""
        self._refuse_closed()
        with self._ending_on_error():
            seeds = _seeds(self.seed, self.first_episode)
            self._tasks = map(_Task, itertools.count(), stream(self.initial_states), seeds)
            self._running, self._figures = {}, []
            return self._start(range(self.concurrency))

    def step(self, action: Any) -> tuple[StepResult, Active]:
        self._refuse_closed()
        running = self._running
        actions = check_actions(action, len(running)).copy()  # an environment may keep its row
        with self._ending_on_error():
            self._ask("step", {slot: (row,) for slot, row in zip(running, actions, strict=True)})
            answers = [self._answers[slot] for slot in running]
            result = StepResult(
                episode=np.array([task.episode for task in running.values()], dtype=np.int64),
                reward=np.array([answer.reward for answer in answers], dtype=np.float64),
                done=np.array([answer.done for answer in answers], dtype=bool),
                cut=self._cut(list(running)),
            )
            free = [slot for slot in running if self._answers[slot].done]
            for slot in free:
                self._figures[running.pop(slot).episode] = self._answers[slot].figures
            return result, self._start(free)

    def metrics(self) -> dict[str, np.ndarray]:
        names = dict.fromkeys(name for figures in self._figures for name in figures)
        return {name: np.array([figures.get(name, np.nan) for figures in self._figures]) for name in names}

    def close(self) -> None:
        """Close the environments; raise `WorkerError` for what that raises."""
        if not self._closed:
            self._closed = True
            _close(self._slots)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigError("The vector environment is closed, or an error has ended it; make a new one.")

    @contextlib.contextmanager
    def _ending_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._abort()
            raise

    def _start(self, free: Iterable[int]) -> Active:
        """Give the free slots their next episodes; return all that run."""
        tasks = dict(zip(free, self._tasks, strict=False))
        if tasks:
            self._figures += [{}] * len(tasks)
            self._open(max(tasks) + 1)
            self._running = dict(sorted({**self._running, **tasks}.items()))
            self._ask("reset", {slot: (task.state, task.seed) for slot, task in tasks.items()})
        episodes = np.array([task.episode for task in self._running.values()], dtype=np.int64)
        return Active(episodes, self._observations(list(self._running)) if self._running else {})

    def _cut(self, slots: list[int]) -> Cut | None:
        """Return the rows whose episodes were cut off, with their last observations, which the next ones replace."""
        rows = [row for row, slot in enumerate(slots) if self._answers[slot].cut]
        return Cut(np.array(rows), self._observations([slots[row] for row in rows])) if rows else None

    def _observations(self, slots: list[int]) -> Any:
        try:
            rows = [self._answers[slot].obs for slot in slots]
            return concatenate(self._space, rows, create_empty_array(self._space, len(slots)))
        except (KeyError, TypeError, ValueError) as error:
            which = " or ".join(map(str, self._running.values()))
            raise WorkerError(f"{type(error).__name__} in the observation of {which}: {error}") from error

    def _open(self, n: int) -> None:
        """Make sure that slots ``0 … n-1`` are ready."""
        while len(self._slots) < n:
            self._slots.append(self._made())

    def _made(self) -> _Slot:
        try:
            slot = self._make()
            _refuse_other_spaces(slot.env.observation_space)
        except Exception as error:
            raise WorkerError(f"{type(error).__name__} in env_fn: {error}") from error
        self._space = slot.env.observation_space
        return slot

    def _ask(self, name: str, arguments: Mapping[int, tuple[Any, ...]]) -> None:
        """Call a method of slots, each with its arguments."""
        for slot, own in arguments.items():
            try:
                self._answers[slot] = getattr(self._slots[slot], name)(*own)
            except (Exception, SystemExit) as error:
                raise WorkerError(f"{type(error).__name__} in {self._place(name, slot)}: {error}") from error

    def _place(self, name: str, slot: int) -> str:
        return f"{name} of {self._running[slot]}" if slot in self._running else name

    def _abort(self) -> None:
        with contextlib.suppress(WorkerError):
            self.close()


class ProcessVectorEnv(SlotVectorEnv):
    """A `SlotVectorEnv` whose slots are processes; with `shared_memory` their observations come through it."""

    def __init__(
        self, env_fn: EnvFn, initial_states: Any, concurrency: int, seed: int, *, shared_memory: bool = False
    ) -> None:
        super().__init__(env_fn, initial_states, concurrency, seed)
        self._owner = os.getpid()
        self._by_memory = shared_memory
        self._memory: Any = None
        try:
            self._shared = SharedPickle(self._make)
        except Exception as error:
            raise ConfigError(
                f"env_fn cannot be sent to worker processes ({type(error).__name__}: {error}); leave out of it what "
                "cannot be pickled, or use finite_env_type='dummy'."
            ) from error

    def close(self) -> None:
        """Close the environments, then end the workers; does nothing in a fork of the process that started them."""
        if os.getpid() != self._owner:
            return
        closed, self._closed = self._closed, True
        try:
            if not closed:
                self._ask("close", dict.fromkeys(range(len(self._slots)), ()))
        finally:
            self._abort()  # again where it is closed: an interrupt may have come before the workers were ended

    def _observations(self, slots: list[int]) -> Any:
        return take_rows(self._rows, np.array(slots)) if self._by_memory else super()._observations(slots)

    def _open(self, n: int) -> None:
        if self._space is None:
            _close([self._made()])
            if self._by_memory:
                self._memory = create_shared_memory(self._space, self.concurrency, SPAWN)
                self._rows = read_from_shared_memory(self._space, self._memory, self.concurrency)
        new = range(len(self._slots), n)
        for slot in new:
            with uninterrupted():  # a process that nobody knows would stay
                self._slots.append(Worker(self._shared, slot, self._memory))
        self._ask("env_fn", dict.fromkeys(new, ()))

    def _ask(self, name: str, arguments: Mapping[int, tuple[Any, ...]]) -> None:
        # The first that has failed or is dead is told at once, however long the others take.
        for slot, own in arguments.items():
            self._slots[slot].send(name, *own)
        closing = name == "close"
        waiting = {self._slots[slot].pipe: slot for slot in arguments}
        while waiting:
            ready: Sequence[Any] = connection.wait(list(waiting), CLOSE_SECONDS if closing else None)
            if not ready:
                raise WorkerError(f"Workers were ended: their environments took more than {CLOSE_SECONDS} s to close.")
            for pipe in ready:
                slot = waiting.pop(pipe)
                place = name if closing else self._place(name, slot)
                try:
                    self._answers[slot], fault = pipe.recv()
                except (EOFError, OSError):
                    if closing:  # it has died since its last answer, by no fault of an episode
                        continue
                    how = self._slots[slot].death()
                    raise WorkerError(f"Worker {slot} {how} in {place}; see its output above.") from None
                if fault is not None:
                    kind, text, trace = fault
                    raise WorkerError(f"{kind} in {place}: {text}\n\n{trace}")

    def _abort(self) -> None:
        self._closed = True
        with uninterrupted():
            for worker in self._slots:
                worker.kill()


def _close(slots: Iterable[_Slot]) -> None:
    """Close all slots of this process; raise `WorkerError` for the first that could not be closed."""
    faults: list[BaseException] = []
    for slot in slots:
        try:
            slot.close()
        except (Exception, SystemExit) as error:
            faults.append(error)
    if faults:
        raise WorkerError(f"{type(faults[0]).__name__} in close: {faults[0]}") from faults[0]


def _seeds(seed: int, first: int) -> Iterator[int]:
    """Yield the seeds of episodes `first`, `first` + 1, …; many are drawn at once, since one takes as long."""
    for low in itertools.count(first, _SEEDS_AT_ONCE):
        yield from episode_seeds(seed, np.arange(low, low + _SEEDS_AT_ONCE)).tolist()


def _refuse_other_spaces(space: gym.Space[Any]) -> None:
    if isinstance(space, (gym.spaces.Dict, gym.spaces.Tuple)):
        for part in space.values() if isinstance(space, gym.spaces.Dict) else space:
            _refuse_other_spaces(part)
    elif not isinstance(space, (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)):
        raise ConfigError(
            f"The observation space {space} has no fixed shape; build it of Box, Discrete, MultiDiscrete and "
            "MultiBinary spaces, in Dict or Tuple spaces."
        )


def check_env_type(finite_env_type: str, concurrency: int, types: Sequence[str]) -> None:
    """Raise `ConfigError` unless the type is one of `types` and the concurrency a whole number from 1 on."""
    if finite_env_type not in types:
        raise ConfigError(f"finite_env_type is {finite_env_type!r}; choose one of {', '.join(types)}.")
    if isinstance(concurrency, bool) or not isinstance(concurrency, (int, np.integer)) or concurrency < 1:
        raise ConfigError(f"concurrency is {concurrency!r}; give the number of parallel episodes, at least 1.")


def vectorize_env(
    env_fn: EnvFn,
    initial_states: Iterable[Any] | Dataset[Any],
    *,
    finite_env_type: str = "dummy",
    concurrency: int = 1,
    seed: int = 0,
) -> SlotVectorEnv:
    """Make a vector environment.

    The same actions give the same observations, rewards, metrics and order of episodes, to the last bit, for every
    type; `concurrency` changes which episodes run side by side, and nothing else.

    Parameters
    ----------
    env_fn
        Makes one environment: an `EnvWrapper`, or another `gymnasium.Env` that takes
        ``reset(options={"initial_state": …})``. Called once a slot, and once more in this process for the space where
        there are workers. They get it by cloudpickle, so it may be a lambda or a function of a notebook; arrays in it
        are shared, not copied.
    initial_states
        The stream: a sequence, a `DataQueue`, any iterable. Read in this process, each state handed out once.
    finite_env_type
        ``"dummy"`` runs in this process, ``"subproc"`` in a process a slot, ``"shmem"`` likewise with observations
        through shared memory. Processes pay off when a step costs more than about a millisecond.
    concurrency
        Most episodes at a time, and most processes.
    seed
        Episode number ``e`` is reset with a seed drawn from ``(seed, e)``.

    Raises
    ------
    WorkerError
        From `reset` and `step`, when an environment raises or its process dies; the vector environment is closed then.
    """
    check_env_type(finite_env_type, concurrency, FINITE_ENV_TYPES)
    if finite_env_type == "dummy":
        return SlotVectorEnv(env_fn, initial_states, concurrency, seed)
    return ProcessVectorEnv(env_fn, initial_states, concurrency, seed, shared_memory=finite_env_type == "shmem")


def make_env(
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    action_interpreter: ActionInterpreter[Any],
    reward: Reward[Any] | None,
    initial_states: Sequence[Any],
    *,
    aux_info_collector: AuxiliaryInfoCollector[Any] | None = None,
    finite_env_type: str = "native",
    concurrency: int = 1,
    seed: int = 0,
) -> FiniteVectorEnv:
    """Return a vector environment of one episode for each initial state.

    Parameters
    ----------
    finite_env_type
        ``"native"`` steps all episodes together, by arrays; ``"dummy"``, ``"subproc"`` and ``"shmem"`` run
        `concurrency` environments of one episode side by side, see `vectorize_env`; ``"ray"`` steps them by arrays in
        `concurrency` processes of a Ray cluster, see `rlwb.env.ray_env`. For the same actions all give the same
        numbers.
    seed
        Episode number e may draw random numbers seeded by (seed, e).

    Raises
    ------
    ConfigError
        When type or concurrency are impossible, or the package ray is missing for ``"ray"``.
    """
    check_env_type(finite_env_type, concurrency, ENV_TYPES)
    parts: dict[str, Any] = {
        "state_interpreter": state_interpreter,
        "action_interpreter": action_interpreter,
        "reward": reward,
        "aux_info_collector": aux_info_collector,
    }
    if finite_env_type == "native":
        return NativeVectorEnv(simulator, initial_states, seed=seed, **parts)
    if finite_env_type == "ray":
        from rlwb.env.ray_env import RayVectorEnv

        return RayVectorEnv(partial(NativeVectorEnv, simulator, **parts), initial_states, concurrency, seed)
    env_fn = partial(EnvWrapper, simulator, **parts)
    return vectorize_env(env_fn, initial_states, finite_env_type=finite_env_type, concurrency=concurrency, seed=seed)
