"""A vector environment out of simulator, interpreters, reward and initial states, of any type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlwb.env.native import NativeVectorEnv
from rlwb.env.vector import FINITE_ENV_TYPES, FiniteVectorEnv, check_env_type, vectorize_env
from rlwb.env.wrapper import EnvWrapper
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import AuxiliaryInfoCollector, Reward
from rlwb.simulator import Simulator

ENV_TYPES = ("native", *FINITE_ENV_TYPES)


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
        `concurrency` environments of one episode side by side, see `vectorize_env`. All give the same numbers.
    seed
        Episode number e may draw random numbers seeded by (seed, e).

    Raises
    ------
    ConfigError
        When type or concurrency are impossible.
    """
    check_env_type(finite_env_type, concurrency, ENV_TYPES)
    if finite_env_type == "native":
        return NativeVectorEnv(
            simulator,
            initial_states,
            state_interpreter=state_interpreter,
            action_interpreter=action_interpreter,
            reward=reward,
            aux_info_collector=aux_info_collector,
            seed=seed,
        )

    def env_fn() -> EnvWrapper:
        return EnvWrapper(
            simulator, state_interpreter, action_interpreter, reward=reward, aux_info_collector=aux_info_collector
        )

    return vectorize_env(env_fn, initial_states, finite_env_type=finite_env_type, concurrency=concurrency, seed=seed)
