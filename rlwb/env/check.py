"""A trial episode that finds faults in a user's parts before training does."""

from __future__ import annotations

import traceback
from types import TracebackType

from rlwb.env.slot import EnvFn, EpisodeFigures, describe
from rlwb.errors import InterpreterError, RlwbError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import AuxiliaryInfoCollector, Reward
from rlwb.simulator import Episode, Simulator

_PARTS = (Simulator, Episode, StateInterpreter, ActionInterpreter, Reward, AuxiliaryInfoCollector)


def check_env(env_fn: EnvFn, initial_state: object, *, seed: int = 0, max_steps: int = 100_000) -> dict[str, float]:
    """Run one episode with random actions, and return its figures: ``length``, ``reward`` and its metrics.

    Raises
    ------
    InterpreterError
        Naming class and key, when a simulator, an interpreter or a reward raises or returns something outside its
        contract (a wrong shape or dtype, NaN, None, a missing key), and when the episode does not end within
        `max_steps`. Errors that rlwb itself words (`RlwbError`) are passed on as they are.
    """
    env = env_fn()
    figures, total = EpisodeFigures(), 0.0
    try:
        env.action_space.seed(seed)
        env.reset(seed=seed, options={"initial_state": initial_state})
        for step in range(1, max_steps + 1):
            _, reward, terminated, truncated, info = env.step(env.action_space.sample())
            figures.add(info)
            total += float(reward)
            if terminated or truncated:
                return {"length": float(step), "reward": total, **figures.finish(info)}
    except RlwbError:
        raise
    except Exception as error:
        raise InterpreterError(
            f"{_blame(error.__traceback__)} raised {type(error).__name__} in a trial episode of "
            f"{describe(initial_state)}: {error}; correct it before training."
        ) from error
    finally:
        env.close()
    raise InterpreterError(
        f"The trial episode of {describe(initial_state)} has not ended after {max_steps} steps; check the simulator's "
        "done()."
    )


def _blame(tb: TracebackType | None) -> str:
    """Return class and place of the innermost part of the environment that an exception passed through."""
    place = "env_fn's environment"
    for frame, line in traceback.walk_tb(tb):
        owner = frame.f_locals.get("self")
        if isinstance(owner, _PARTS):
            place = f"{type(owner).__name__}.{frame.f_code.co_name} (line {line} of {frame.f_code.co_filename})"
    return place
