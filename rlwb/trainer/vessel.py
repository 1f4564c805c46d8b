"""What is trained: simulator, interpreters, policy, reward and initial states, in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlwb.batch import take
from rlwb.env import DataQueue, EnvWrapper, FiniteVectorEnv, check_env, make_env
from rlwb.errors import ConfigError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Learner
from rlwb.record import TrainingRecord
from rlwb.reward import AuxiliaryInfoCollector, Reward
from rlwb.seeds import Stream, derived_seed
from rlwb.simulator import Simulator
from rlwb.trainer.collect import Episodes, collect
from rlwb.trainer.record import record_of


def learn_from(policy: Learner, episodes: Episodes) -> dict[str, float]:
    """Let `policy` learn from kept transitions; return its figures.

    Raises
    ------
    ConfigError
        When episodes were cut off and the learner cannot tell that from their end.
    """
    rows = (episodes.obs, episodes.action, episodes.reward, episodes.done)
    if episodes.cut is None:
        return policy.learn(*rows)
    if "cut" not in inspect.signature(policy.learn).parameters:
        raise ConfigError(
            f"{len(episodes.cut.rows)} episodes were cut off (truncated), and {type(policy).__name__} would take that "
            "for their end; give its learn a parameter cut (rlwb.learner.Cut), or take the time limit away."
        )
    return policy.learn(*rows, cut=episodes.cut)  # type: ignore[call-arg]


class TrainingVessel:
    """Carries all that a training run is about.

    Parameters
    ----------
    simulator
        The dynamics.
    state_interpreter, action_interpreter, reward, aux_info_collector
        The other primitives; the last may be left out.
    policy
        What learns; see `Learner`.
    train_initial_states, val_initial_states, test_initial_states
        Sequences of initial states, for example `OrderBatch`.
    episode_per_iter
        Episodes of a training collect. Training goes through its initial states in epochs, each in a new order.
    seed
        Seeds the order of initial states, the exploration and the simulators' random numbers.
    run
        Hash of all that the training depends on, where something knows it: see `rlwb.record.TrainingRecord.run`.
    on_states
        Called with ``"training"`` and the initial states that an update learnt from, and with ``"validation"`` and
        those that a validation judged.
    """

    on_states: Callable[[str, Sequence[Any]], None] | None = None

    def __init__(
        self,
        *,
        simulator: Simulator[Any],
        state_interpreter: StateInterpreter[Any],
        action_interpreter: ActionInterpreter[Any],
        policy: Learner,
        reward: Reward[Any],
        train_initial_states: Sequence[Any],
        val_initial_states: Sequence[Any] | None = None,
        test_initial_states: Sequence[Any] | None = None,
        aux_info_collector: AuxiliaryInfoCollector[Any] | None = None,
        episode_per_iter: int = 1000,
        seed: int = 0,
        run: str | None = None,
        on_states: Callable[[str, Sequence[Any]], None] | None = None,
    ) -> None:
        policy.check(state_interpreter.observation_space, action_interpreter.action_space)
        self.simulator = simulator
        self.state_interpreter = state_interpreter
        self.action_interpreter = action_interpreter
        self.reward = reward
        self.aux_info_collector = aux_info_collector
        self.on_states = on_states
        self._carry(policy, train_initial_states, val_initial_states, test_initial_states, episode_per_iter, seed, run)

    def _carry(
        self,
        policy: Learner,
        train_initial_states: Sequence[Any],
        val_initial_states: Sequence[Any] | None,
        test_initial_states: Sequence[Any] | None,
        episode_per_iter: int,
        seed: int,
        run: str | None,
    ) -> None:
        """Take what every training has, whatever its environments are made of."""
        if episode_per_iter < 1:
            raise ConfigError(f"episode_per_iter is {episode_per_iter}; a collect needs at least 1 episode.")
        parts = {"train": train_initial_states, "val": val_initial_states, "test": test_initial_states}
        for name, states in parts.items():
            if states is not None and not len(states):
                raise ConfigError(f"{name}_initial_states is empty; give at least one, or none for no such part.")
        self.policy = policy
        self.train_initial_states = train_initial_states
        self.val_initial_states = val_initial_states
        self.test_initial_states = test_initial_states
        self.episode_per_iter = episode_per_iter
        self.seed = seed
        self.run = run
        self._queue = DataQueue(range(len(train_initial_states)), repeat=-1, shuffle=True, seed=seed)

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

    def record(self) -> TrainingRecord:
        """Return the record of this training, which its checkpoints keep."""
        parts = (self.simulator, self.state_interpreter, self.action_interpreter)
        return record_of(*parts, self.policy, self.reward, self.train_initial_states, self.run)

    def make_env(self, states: Sequence[Any], **kwargs: Any) -> FiniteVectorEnv:
        """Return a vector environment of `states`; keywords as in `rlwb.env.make_env`."""
        parts = (self.simulator, self.state_interpreter, self.action_interpreter, self.reward)
        return make_env(*parts, states, aux_info_collector=self.aux_info_collector, **kwargs)

    def env_seed(self, iteration: int) -> int:
        """Return the seed of the random numbers that simulators may draw in an iteration's training episodes."""
        return derived_seed(self.seed, iteration, Stream.ENVIRONMENT)

    def check_env(self) -> dict[str, float]:
        """Run one training episode with random actions, checking every part; see `rlwb.env.check_env`."""
        parts = (self.simulator, self.state_interpreter, self.action_interpreter)
        collector = self.aux_info_collector
        return check_env(
            lambda: EnvWrapper(*parts, reward=self.reward, aux_info_collector=collector), self.train_initial_states[0]
        )

    def train(self, env: FiniteVectorEnv, iteration: int) -> tuple[Episodes, dict[str, float]]:
        """Gather one episode for each initial state of `env` and learn from them; return both results."""
        episodes = collect(env, self.policy, seed=(self.seed, iteration), keep=True)
        return episodes, self.learn(episodes, env.initial_states)

    def learn(self, episodes: Episodes, states: Sequence[Any]) -> dict[str, float]:
        """Learn from kept episodes of these initial states, in their order; return the policy's figures."""
        if self.on_states is not None:
            self.on_states("training", states)
        self.policy.prepare(states)
        return learn_from(self.policy, episodes)

    def validate(self, env: FiniteVectorEnv) -> Episodes:
        """Run the policy greedily on `env`; nothing is learnt."""
        if self.on_states is not None:
            self.on_states("validation", env.initial_states)
        return collect(env, self.policy)

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's state and the position in the stream of initial states."""
        return {"policy": self.policy.state_dict(), "queue": self._queue.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.policy.load_state_dict(state["policy"])
        self._queue.load_state_dict(state["queue"])
