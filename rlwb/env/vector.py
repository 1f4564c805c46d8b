"""Many episodes at once, each initial state exactly once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from rlwb.batch import take_rows
from rlwb.env.batch import empty_batch, write_row
from rlwb.env.data_queue import Dataset, stream
from rlwb.env.logs import LogWriter, wanted_level
from rlwb.env.runner import EnvFn, EpisodeRunner, Outcome, describe, episode_seed
from rlwb.errors import ConfigError, WorkerError

InitialStates = Iterable[Any] | Dataset[Any]
_END = object()


@dataclass
class Active:
    """The episodes that wait for an action.

    Attributes
    ----------
    episode
        Numbers of the episodes, int64 of shape ``(n,)``: the position of each one's initial state in the stream.
    obs
        Their observations: a batch of ``n`` rows (see `rlwb.env.batch`), in arrays of its own.
    """

    episode: np.ndarray
    obs: Any

    def __len__(self) -> int:
        return len(self.episode)


@dataclass
class StepResult:
    """What the step of each row of an `Active` led to.

    Attributes
    ----------
    episode
        Numbers of the episodes that were stepped, int64 of shape ``(n,)``.
    reward
        Rewards, float64 of shape ``(n,)``.
    done
        Whether each episode has ended, bool of shape ``(n,)``.
    metrics
        Number to final metrics of the episodes that have ended now.
    """

    episode: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    metrics: dict[int, dict[str, float]]


class FiniteVectorEnv(ABC):
    """Runs one episode for every initial state of a stream, several at a time, then has nothing more to do.

    ``active = env.reset()``; then ``result, active = env.step(actions)`` with one action a row of `active`, until
    ``len(active) == 0``. An episode that ends makes room for the next state of the stream at once.
    """

    @abstractmethod
    def reset(self) -> Active:
        """Start the stream, from its beginning where it can be started again."""

    @abstractmethod
    def step(self, action: Any) -> tuple[StepResult, Active]:
        """Act: `action` is of shape ``(n, ...)``, a row for each row of the last `Active`."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Slots(ABC):
    """The environments behind a `SlotVectorEnv`: numbered slots, each running one episode at a time.

    A slot writes the observations of resets and steps into its row of `batch`, a batch of as many rows as there are
    slots, which exists after the first `open`.
    """

    batch: Any

    @abstractmethod
    def open(self, n: int) -> None:
        """Make sure that slots ``0 … n-1`` are ready."""

    @abstractmethod
    def reset(self, orders: Sequence[tuple[int, int, Any, int]]) -> list[Outcome]:
        """Start episodes, each given as ``(slot, episode, initial state, seed)``."""

    @abstractmethod
    def step(self, orders: Sequence[tuple[int, int, Any, Any]]) -> list[Outcome]:
        """Make steps, each given as ``(slot, episode, initial state, action)``."""

    @abstractmethod
    def close(self, at_once: bool) -> None:
        """Release everything; `at_once` does not let a step in progress end. May be called twice."""


class SlotVectorEnv(FiniteVectorEnv):
    """A `FiniteVectorEnv` over `Slots`: draws the states, numbers the episodes, keeps the rows, feeds the writers.

    Draws and numbers depend on the actions alone, not on how or where the slots run.
    """

    def __init__(
        self, slots: Slots, initial_states: InitialStates, concurrency: int, loggers: Sequence[LogWriter], seed: int
    ) -> None:
        self.concurrency = concurrency
        self.seed = seed
        self.loggers = tuple(loggers)
        self._slots = slots
        self._initial_states = initial_states
        self._states: Iterator[Any] = iter(())
        self._episodes = 0
        self._running: list[tuple[int, int, Any]] = []  # slot, episode, initial state; in the order of the rows
        self._closed = False

    def reset(self, initial_states: InitialStates | None = None) -> Active:
        """Start the stream, or another one in its place: workers that run already are used again."""
        self._refuse_closed()
        if initial_states is not None:
            self._initial_states = initial_states
        try:
            self._states, self._episodes, self._running = stream(self._initial_states), 0, []
            drawn = self._draw(range(self.concurrency))
            # One slot even for no states: it knows the observation space.
            self._slots.open(max(1, len(drawn)))
            for logger in self.loggers:
                logger.on_env_all_ready()
            self._start(drawn)
            if not self._running:
                self._all_done()
        except BaseException:
            self._abort()
            raise
        return self._active()

    def step(self, action: Any) -> tuple[StepResult, Active]:
        self._refuse_closed()
        actions = np.array(action)  # a copy: an environment may keep its row
        if not self._running:
            raise ConfigError("No episode waits for an action; call reset, and step only while len(active) > 0.")
        if actions.ndim == 0 or len(actions) != len(self._running):
            raise ConfigError(
                f"step got actions of shape {actions.shape} for {len(self._running)} active episodes; give a row each."
            )
        try:
            return self._step(actions)
        except BaseException:
            self._abort()
            raise

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._running = []
            self._slots.close(at_once=False)

    def _step(self, actions: np.ndarray) -> tuple[StepResult, Active]:
        outcomes = self._slots.step([(*row, value) for row, value in zip(self._running, actions, strict=True)])
        result = StepResult(
            episode=np.array([episode for _, episode, _ in self._running], dtype=np.int64),
            reward=np.array([outcome.reward for outcome in outcomes], dtype=np.float64),
            done=np.array([outcome.done for outcome in outcomes], dtype=bool),
            metrics={},
        )
        for (_, episode, _), outcome in zip(self._running, outcomes, strict=True):
            if outcome.done:
                result.metrics[episode] = outcome.metrics
            for logger in self.loggers:
                logger.on_env_step(episode, outcome.reward, outcome.done, outcome.log)
        free = [slot for (slot, _, _), outcome in zip(self._running, outcomes, strict=True) if outcome.done]
        self._running = [row for row in self._running if row[0] not in free]
        if free:
            self._start(self._draw(free))
        if not self._running:
            self._all_done()
        return result, self._active()

    def _draw(self, slots: Iterable[int]) -> list[tuple[int, int, Any]]:
        drawn = []
        for slot in slots:
            state = next(self._states, _END)
            if state is _END:
                break
            drawn.append((slot, self._episodes, state))
            self._episodes += 1
        return drawn

    def _start(self, drawn: list[tuple[int, int, Any]]) -> None:
        if not drawn:
            return
        outcomes = self._slots.reset([(*row, episode_seed(self.seed, row[1])) for row in drawn])
        for (_, episode, _), outcome in zip(drawn, outcomes, strict=True):
            for logger in self.loggers:
                logger.on_env_reset(episode, outcome.log)
        self._running = sorted([*self._running, *drawn], key=lambda row: row[0])

    def _active(self) -> Active:
        rows = np.array([slot for slot, _, _ in self._running], dtype=np.int64)
        episodes = np.array([episode for _, episode, _ in self._running], dtype=np.int64)
        return Active(episodes, take_rows(self._slots.batch, rows))

    def _all_done(self) -> None:
        for logger in self.loggers:
            logger.on_env_all_done()

    def _abort(self) -> None:
        self._closed = True
        self._running = []
        self._slots.close(at_once=True)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigError("The vector environment is closed, or an error has ended it; make a new one.")


class DummySlots(Slots):
    """Environments in this process, one after the other."""

    def __init__(self, env_fn: EnvFn, concurrency: int, loglevel: int) -> None:
        self._env_fn = env_fn
        self._concurrency = concurrency
        self._loglevel = loglevel
        self._runners: list[EpisodeRunner] = []

    def open(self, n: int) -> None:
        while len(self._runners) < n:
            try:
                self._runners.append(EpisodeRunner(self._env_fn, self._loglevel))
            except Exception as error:
                raise WorkerError(f"{type(error).__name__} in env_fn: {error}") from error
            if len(self._runners) == 1:
                self.batch = empty_batch(self._runners[0].observation_space, self._concurrency)

    def reset(self, orders: Sequence[tuple[int, int, Any, int]]) -> list[Outcome]:
        return [self._run("reset", *order) for order in orders]

    def step(self, orders: Sequence[tuple[int, int, Any, Any]]) -> list[Outcome]:
        return [self._run("step", *order) for order in orders]

    def close(self, at_once: bool) -> None:
        runners, self._runners = self._runners, []
        for runner in runners:
            runner.close()

    def _run(self, verb: Literal["reset", "step"], slot: int, episode: int, state: Any, argument: Any) -> Outcome:
        runner = self._runners[slot]
        try:
            outcome = runner.reset(state, argument) if verb == "reset" else runner.step(argument)
            if outcome.obs is not None:
                write_row(self.batch, slot, outcome.obs)
        except Exception as error:
            # Of the same class as a worker's error, so that the environment type makes no difference.
            raise WorkerError(
                f"{type(error).__name__} in {verb} of episode {episode} ({describe(state)}): {error}"
            ) from error
        return outcome


def vectorize_env(
    env_fn: EnvFn,
    initial_states: InitialStates,
    *,
    finite_env_type: str = "dummy",
    concurrency: int = 1,
    loggers: Sequence[LogWriter] | LogWriter = (),
    seed: int = 0,
) -> SlotVectorEnv:
    """Make a vector environment.

    The same actions give the same observations, rewards, metrics and order of episodes, to the last bit, for every
    type; `concurrency` changes which episodes run side by side, and nothing else.

    Parameters
    ----------
    env_fn
        Makes one environment, an `EnvWrapper` or another `gymnasium.Env`; called once a slot. Workers get it by
        cloudpickle, so it may be a lambda or a function of a notebook; large arrays in it are shared, not copied.
    initial_states
        The stream: a sequence, a `DataQueue`, any iterable. Read in this process, each state handed out once.
    finite_env_type
        ``"dummy"`` runs in this process, ``"subproc"`` in a process a slot, ``"shmem"`` likewise with observations
        through shared memory. Processes pay off when a step costs more than about a millisecond.
    concurrency
        Most episodes at a time, and most processes.
    loggers
        Writers that get what the episodes log.
    seed
        Episode number ``e`` is reset with a seed drawn from ``(seed, e)``.

    Raises
    ------
    WorkerError
        From `reset` and `step`, when an environment raises or its process dies; the vector environment is closed then.
    """
    if isinstance(concurrency, bool) or not isinstance(concurrency, (int, np.integer)) or concurrency < 1:
        raise ConfigError(f"concurrency is {concurrency!r}; give the number of parallel episodes, at least 1.")
    writers = (loggers,) if isinstance(loggers, LogWriter) else tuple(loggers)
    level = wanted_level(writers)
    slots: Slots
    if finite_env_type == "dummy":
        slots = DummySlots(env_fn, concurrency, level)
    elif finite_env_type in ("subproc", "shmem"):
        from rlwb.env.workers import WorkerSlots

        slots = WorkerSlots(env_fn, concurrency, level, shared=finite_env_type == "shmem")
    else:
        raise ConfigError(f"finite_env_type is {finite_env_type!r}; choose 'dummy', 'subproc' or 'shmem'.")
    return SlotVectorEnv(slots, initial_states, concurrency, writers, seed)
