"""What is trained: simulator, interpreters, policy, reward and initial states, in one place."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from rlwb.env import DataQueue, DryRun, EnvWrapper, FiniteVectorEnv, LogWriter, dry_check, vectorize_env
from rlwb.errors import ConfigError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward
from rlwb.trainer.collect import Actor, Episodes, collect

if TYPE_CHECKING:
    from rlwb.trainer.trainer import Trainer

_ENV_STREAM = 0x656E7673


class Learner(Actor, Protocol):
    """A policy that learns from episodes.

    If it has `figures`, the names of what `learn` returns, callbacks that watch one are checked before training.
    """

    def learn(
        self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray, **update: Any
    ) -> dict[str, float]:
        """Update on episodes laid end to end, `done` marking their ends; return figures of the update."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


def make_env(
    simulator_fn: Callable[[Any], Any],
    state_interpreter: StateInterpreter[Any, Any],
    action_interpreter: ActionInterpreter[Any, Any, Any],
    reward: Reward[Any] | None,
    initial_states: Sequence[Any],
    *,
    finite_env_type: str = "native",
    concurrency: int = 1,
    loggers: Sequence[LogWriter] = (),
    seed: int = 0,
) -> FiniteVectorEnv:
    """Return a vector environment of one episode for each initial state.

    Parameters
    ----------
    finite_env_type
        ``"native"`` runs all episodes at once and needs a simulator factory with ``vectorize``;
        ``"dummy"``, ``"subproc"`` and ``"shmem"`` run `concurrency` environments side by side and serve any
        simulator.
    seed
        Episode number e may draw random numbers seeded by (seed, e); see `EnvWrapper`.
    """
    if finite_env_type == "native":
        vectorize = getattr(simulator_fn, "vectorize", None)
        if vectorize is None:
            raise ConfigError(
                f"finite_env_type 'native' needs a simulator factory with vectorize(), which {simulator_fn!r} lacks; "
                "use 'dummy', 'subproc' or 'shmem'."
            )
        env: FiniteVectorEnv = vectorize(
            initial_states,
            state_interpreter=state_interpreter,
            action_interpreter=action_interpreter,
            reward=reward,
            loggers=loggers,
        )
        return env

    def env_fn() -> EnvWrapper:
        return EnvWrapper(simulator_fn, state_interpreter, action_interpreter, reward_fn=reward)

    return vectorize_env(
        env_fn,
        initial_states,
        finite_env_type=finite_env_type,
        concurrency=concurrency,
        loggers=loggers,
        seed=seed,
    )


class TrainingVessel:
    """Carries all that a training run is about.

    Parameters
    ----------
    simulator_fn
        Initial state to simulator.
    state_interpreter, action_interpreter, reward
        The three other primitives.
    policy
        What learns; see `Learner`.
    train_initial_states, val_initial_states, test_initial_states
        Sequences of initial states, for example `OrderBatch`.
    episode_per_iter
        Episodes of a training collect. Training goes through its initial states in epochs, each in a new order.
    update_kwargs
        What ``policy.learn`` is called with beside the episodes, for PPO ``batch_size`` and ``repeat``.
    seed
        Seeds the order of initial states and the exploration.
    """

    def __init__(
        self,
        *,
        simulator_fn: Callable[[Any], Any],
        state_interpreter: StateInterpreter[Any, Any],
        action_interpreter: ActionInterpreter[Any, Any, Any],
        policy: Learner,
        reward: Reward[Any],
        train_initial_states: Sequence[Any],
        val_initial_states: Sequence[Any] | None = None,
        test_initial_states: Sequence[Any] | None = None,
        episode_per_iter: int = 1000,
        update_kwargs: dict[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        if episode_per_iter < 1:
            raise ConfigError(f"episode_per_iter is {episode_per_iter}; a collect needs at least 1 episode.")
        parts = {"train": train_initial_states, "val": val_initial_states, "test": test_initial_states}
        for name, states in parts.items():
            if states is not None and not len(states):
                raise ConfigError(f"{name}_initial_states is empty; give at least one, or none for no such part.")
        self.simulator_fn = simulator_fn
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.policy = policy
        self.reward = reward
        self.train_initial_states = train_initial_states
        self.val_initial_states = val_initial_states
        self.test_initial_states = test_initial_states
        self.episode_per_iter = episode_per_iter
        self.update_kwargs = dict(update_kwargs or {})
        self.seed = seed
        self._queue = DataQueue(range(len(train_initial_states)), repeat=-1, shuffle=True, seed=seed)
        self._trainer: weakref.ref[Trainer] | None = None

    def assign_trainer(self, trainer: Trainer) -> None:
        """Let the vessel know its trainer, weakly."""
        self._trainer = weakref.ref(trainer)

    @property
    def trainer(self) -> Trainer:
        """The trainer that runs this vessel."""
        trainer = self._trainer() if self._trainer is not None else None
        if trainer is None:
            raise ConfigError("the vessel has no trainer; call Trainer.fit(vessel) or Trainer.test(vessel).")
        return trainer

    def train_seed_iterator(self, episodes: int | None = None) -> Sequence[Any]:
        """Take the initial states of the next collect from the stream."""
        rows = np.array([next(self._queue) for _ in range(episodes or self.episode_per_iter)])
        return take(self.train_initial_states, rows)

    def val_seed_iterator(self) -> Sequence[Any] | None:
        """Return the initial states of a validation, always the same; None without a validation part."""
        return self.val_initial_states

    def test_seed_iterator(self) -> Sequence[Any] | None:
        """Return the initial states of a test; None without a test part."""
        return self.test_initial_states

    def make_env(self, states: Sequence[Any], **kwargs: Any) -> FiniteVectorEnv:
        """Return a vector environment of `states`; keywords as in `make_env`."""
        parts = (self.simulator_fn, self.state_interpreter, self.action_interpreter, self.reward)
        return make_env(*parts, states, **kwargs)

    def env_seed(self, iteration: int) -> int:
        """Return the seed of the random numbers that simulators may draw in an iteration's training episodes."""
        return int(np.random.SeedSequence([self.seed, iteration, _ENV_STREAM]).generate_state(1)[0])

    def rehearse(self) -> DryRun:
        """Run one training episode with random actions, checking every part; see `rlwb.env.dry_check`."""
        parts = (self.simulator_fn, self.state_interpreter, self.action_interpreter)
        return dry_check(lambda: EnvWrapper(*parts, reward_fn=self.reward), self.train_initial_states[0])

    def train(self, env: FiniteVectorEnv, iteration: int) -> dict[str, float]:
        """Gather one episode for each initial state of `env` and learn from them; return the figures."""
        episodes = collect(env, self.policy, seed=(self.seed, iteration), keep=True)
        losses = self.policy.learn(episodes.obs, episodes.action, episodes.reward, episodes.done, **self.update_kwargs)
        return {**summarise(episodes), "transitions": len(episodes.reward), **losses}

    def validate(self, env: FiniteVectorEnv) -> Episodes:
        """Run the policy greedily on `env`; nothing is learnt."""
        return collect(env, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's state and the position in the stream of initial states."""
        return {"policy": self.policy.state_dict(), "queue": self._queue.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.policy.load_state_dict(state["policy"])
        self._queue.load_state_dict(state["queue"])


def take(states: Sequence[Any], rows: np.ndarray) -> Sequence[Any]:
    """Return ``states[rows]``, by array indexing where the sequence has it."""
    try:
        picked: Sequence[Any] = states[rows]  # type: ignore[call-overload]
    except TypeError:
        picked = [states[int(row)] for row in rows]
    return picked


def summarise(episodes: Episodes) -> dict[str, float]:
    """Return the figures of a collect: episodes, mean reward and length, and the mean of every metric."""
    own = {
        "episodes": episodes.count,
        "reward": float(episodes.returns.mean()),
        "length": float(episodes.length.mean()),
    }
    means = episodes.means()
    taken = sorted(means.keys() & {*own, "iteration", "transitions", "seconds"})
    if taken:
        raise ConfigError(f"the simulator's metrics {taken} have names that the trainer uses itself; rename them.")
    return {**own, **means}
