"""Many episodes at once, each initial state exactly once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import create_empty_array

from rlwb.batch import take_rows
from rlwb.env.data_queue import Dataset, stream
from rlwb.env.shared import SharedFactory
from rlwb.env.slot import EnvFn, Slot, SlotResult, Task
from rlwb.env.workers import DeadWorkerError, WorkerVectorEnv
from rlwb.errors import ConfigError, WorkerError
from rlwb.seeds import episode_seeds

InitialStates = Iterable[Any] | Dataset[Any]

FINITE_ENV_TYPES = ("dummy", "subproc", "shmem")

_END = object()


@dataclass
class Active:
    """The episodes that wait for an action.

    Attributes
    ----------
    episode
        Numbers of the episodes, int64 of shape ``(n,)``: the position of each one's initial state in the stream.
    obs
        Their observations: a batch of ``n`` rows (see `rlwb.batch`), in arrays of its own.
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
        Number to figures of the episodes that have ended now; see `EpisodeFigures`. Empty where
        `FiniteVectorEnv.metrics` gives all at once.
    """

    episode: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)


class FiniteVectorEnv(ABC):
    """Runs one episode for every initial state of a stream, several at a time, then has nothing more to do.

    ``active = env.reset()``; then ``result, active = env.step(actions)`` with one action a row of `active`, until
    ``len(active) == 0``. An episode that ends makes room for the next state of the stream at once.

    Attributes
    ----------
    initial_states, seed
        What the next reset starts: the stream, and the seed of the episodes' own random numbers. Both may be changed
        between runs, so that one environment, with its workers, serves many.
    first_episode
        What to add to an episode's number for its random numbers, where the stream goes on with another's episodes.
    """

    initial_states: Any
    seed: int
    first_episode: int = 0

    @abstractmethod
    def reset(self) -> Active:
        """Start the stream, from its beginning where it can be started again."""

    @abstractmethod
    def step(self, action: Any) -> tuple[StepResult, Active]:
        """Act: `action` is of shape ``(n, ...)``, a row for each row of the last `Active`."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held; may be called twice."""

    def metrics(self) -> dict[str, np.ndarray]:
        """Return the figures of the E episodes, float64 of shape (E,) each; empty if they came with the steps."""
        return {}

    def details(self) -> dict[str, np.ndarray]:
        """Return what else is known of the E episodes: arrays of shape (E, …)."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class SlotVectorEnv(FiniteVectorEnv):
    """A `FiniteVectorEnv` over one of gymnasium's vector environments, whose environments are numbered slots.

    Draws the states, numbers the episodes and keeps the rows. Draws and numbers depend on the actions alone, not on
    how or where the slots run. See `vectorize_env` for the parameters.
    """

    def __init__(
        self, env_fn: EnvFn, initial_states: InitialStates, finite_env_type: str, concurrency: int, seed: int
    ) -> None:
        self.concurrency = concurrency
        self.seed = seed
        self.initial_states = initial_states
        self._env_fn = env_fn
        self._finite_env_type = finite_env_type
        self._shared_factory = None if finite_env_type == "dummy" else SharedFactory(env_fn)
        self._states: Iterator[Any] = iter(())
        self._episodes = 0
        self._slots: gym.vector.VectorEnv[Any, Any, Any] | None = None
        self._obs: Any = None
        self._running: dict[int, Task] = {}  # by slot, in the order of the rows
        self._closed = False

    def reset(self) -> Active:
        """Start the stream of `initial_states`; workers that run already are used again."""
        self._refuse_closed()
        try:
            self._states, self._episodes, self._running = stream(self.initial_states), 0, {}
            tasks = self._draw(range(self.concurrency))
            # One slot even for no states: it knows the observation space.
            self._open(max(1, len(tasks)))
            self._start(tasks)
        except BaseException:
            self._abort()
            raise
        return self._active()

    def step(self, action: Any) -> tuple[StepResult, Active]:
        self._refuse_closed()
        actions = np.asarray(action)
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
            self._closed, self._running = True, {}
            if self._slots is not None:
                self._slots.close()

    def _step(self, actions: np.ndarray) -> tuple[StepResult, Active]:
        assert self._slots is not None
        tasks = self._running
        # An array of its own: an environment may keep its row.
        commands = np.zeros((self._slots.num_envs, *actions.shape[1:]), actions.dtype)
        commands[list(tasks)] = actions
        outcomes = self._send("step", tasks, lambda slots: slots.step(commands))
        result = StepResult(
            episode=np.array([task.episode for task in tasks.values()], dtype=np.int64),
            reward=np.array([outcome.reward for outcome in outcomes], dtype=np.float64),
            done=np.array([outcome.done for outcome in outcomes], dtype=bool),
        )
        pairs = zip(tasks.values(), outcomes, strict=True)
        result.metrics = {task.episode: outcome.metrics for task, outcome in pairs if outcome.done}
        free = [slot for slot, outcome in zip(tasks, outcomes, strict=True) if outcome.done]
        self._running = {slot: task for slot, task in tasks.items() if slot not in free}
        self._start(self._draw(free))
        return result, self._active()

    def _draw(self, slots: Iterable[int]) -> dict[int, Task]:
        tasks: dict[int, Task] = {}
        for slot in slots:
            state = next(self._states, _END)
            if state is _END:
                break
            tasks[slot] = Task(self._episodes, state)
            self._episodes += 1
        return tasks

    def _open(self, n: int) -> None:
        """Make sure that slots ``0 … n-1`` are ready."""
        if self._slots is not None and self._slots.num_envs >= n:
            return
        if self._slots is not None:
            self._slots.close()
        try:
            if self._shared_factory is None:
                makers = [lambda: Slot(self._env_fn)] * n
                self._slots = SyncVectorEnv(makers, copy=False, autoreset_mode=AutoresetMode.DISABLED)
            else:
                shared = self._finite_env_type == "shmem"
                self._slots = WorkerVectorEnv(self._shared_factory, n, shared_memory=shared)
        except DeadWorkerError as error:
            raise WorkerError(f"{error} in env_fn; see its output above.") from None
        except Exception as error:
            raise WorkerError(f"{type(error).__name__} in env_fn: {error}") from error
        self._obs = create_empty_array(self._slots.single_observation_space, n, fn=np.zeros)

    def _start(self, tasks: dict[int, Task]) -> None:
        if not tasks:
            return
        assert self._slots is not None
        slots = range(self._slots.num_envs)
        episodes = np.array([task.episode for task in tasks.values()])
        seeds = dict(zip(tasks, episode_seeds(self.seed, self.first_episode + episodes).tolist(), strict=True))
        mask = np.array([slot in tasks for slot in slots])

        def reset(env: gym.vector.VectorEnv[Any, Any, Any]) -> Any:
            env.set_attr("task", [tasks.get(slot) for slot in slots])
            return env.reset(seed=[seeds.get(slot) for slot in slots], options={"reset_mask": mask})

        self._send("reset", tasks, reset)
        self._running = dict(sorted((self._running | tasks).items()))

    def _send(self, verb: str, tasks: dict[int, Task], command: Any) -> list[SlotResult]:
        try:
            self._obs, *_, info = command(self._slots)
        except DeadWorkerError as error:
            task = tasks.get(error.number, "another episode")
            raise WorkerError(f"{error} in {verb} of {task}; see its output above.") from None
        except (KeyError, TypeError, ValueError) as error:  # observations that gymnasium cannot lay together
            which = " or ".join(map(str, tasks.values()))
            raise WorkerError(f"{type(error).__name__} around {verb} of {which}: {error}") from error
        outcomes = [info["outcome"][slot] for slot in tasks]
        del info  # an array of objects, whose cycles (error, traceback, this frame) the garbage collector cannot see
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return outcomes

    def _active(self) -> Active:
        episodes = np.array([task.episode for task in self._running.values()], dtype=np.int64)
        return Active(episodes, take_rows(self._obs, np.array(list(self._running), dtype=np.int64)))

    def _abort(self) -> None:
        self._closed, self._running = True, {}
        if isinstance(self._slots, WorkerVectorEnv):
            self._slots.close(terminate=True)
        elif self._slots is not None:
            self._slots.close()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ConfigError("The vector environment is closed, or an error has ended it; make a new one.")


def check_env_type(finite_env_type: str, concurrency: int, types: Sequence[str]) -> None:
    """Raise `ConfigError` unless the type is one of `types` and the concurrency a whole number from 1 on."""
    if finite_env_type not in types:
        raise ConfigError(f"finite_env_type is {finite_env_type!r}; choose one of {', '.join(types)}.")
    if isinstance(concurrency, bool) or not isinstance(concurrency, (int, np.integer)) or concurrency < 1:
        raise ConfigError(f"concurrency is {concurrency!r}; give the number of parallel episodes, at least 1.")


def vectorize_env(
    env_fn: EnvFn,
    initial_states: InitialStates,
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
        Makes one environment, an `EnvWrapper` or another `gymnasium.Env`; called once a slot, and once more in this
        process for the spaces where there are workers. They get it by cloudpickle, so it may be a lambda or a function
        of a notebook; large arrays in it are shared, not copied.
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
    return SlotVectorEnv(env_fn, initial_states, finite_env_type, concurrency, seed)
