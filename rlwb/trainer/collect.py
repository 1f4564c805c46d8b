"""Running a policy on initial states, each exactly once."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rlwb.batch import join, take
from rlwb.env import FiniteVectorEnv, make_env
from rlwb.errors import CheckpointError, ConfigError, RlwbError
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.learner import Actor, Cut, Learner
from rlwb.record import ACTING, TrainingRecord, check_record
from rlwb.reward import Reward
from rlwb.seeds import Stream, uniform
from rlwb.simulator import Simulator
from rlwb.trainer.checkpoint import load_checkpoint, restoring
from rlwb.trainer.record import record_of, recorded_in

#: Figures of every training iteration beside those of its episodes and of the update.
OF_TRAINING = ("transitions", "seconds")
#: Figures of every collect beside the episodes' own.
OF_ANY_COLLECT = ("episodes", "reward", "length")


@dataclass
class Episodes:
    """What a collect gathered.

    Attributes
    ----------
    count
        Number of episodes E.
    length : int64 of shape (E,)
        Steps of each episode.
    returns : float64 of shape (E,)
        Sum of each episode's rewards.
    metrics
        The episodes' figures, each float64 of shape (E,), NaN where an episode lacks one: those of the simulator, sums
        of the reward's summands under ``reward/`` and means of auxiliary information under ``aux/``.
    details
        What else the environment tells of each episode: arrays of shape (E, …), for order execution ``inventory``.
    obs, action, reward, done
        The transitions of all episodes laid end to end in the order of the episodes; empty unless kept.
    cut
        Which of the kept episodes were cut off though they were not over, and what was seen then; None for none.
    """

    count: int
    length: np.ndarray
    returns: np.ndarray
    metrics: dict[str, np.ndarray]
    details: dict[str, np.ndarray] = field(default_factory=dict)
    obs: Any = field(default_factory=dict)
    action: np.ndarray = field(default_factory=lambda: np.empty(0))
    reward: np.ndarray = field(default_factory=lambda: np.empty(0))
    done: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=bool))
    cut: Cut | None = None

    def means(self) -> dict[str, float]:
        """Return the mean of each figure over the episodes that have it, and ``<name>_count`` where some lack it."""
        out: dict[str, float] = {}
        for name, values in self.metrics.items():
            have = np.isfinite(values)
            out[name] = float(values[have].mean()) if have.any() else float("nan")
            if not have.all():
                out[f"{name}_count"] = int(have.sum())
        return out

    def summary(self) -> dict[str, float]:
        """Return number of episodes, mean reward and mean length, and `means`."""
        own = (self.count, float(self.returns.mean()), float(self.length.mean()))
        means = self.means()
        taken = sorted(means.keys() & {*OF_ANY_COLLECT, *OF_TRAINING, "iteration", "episode"})
        if taken:
            raise ConfigError(f"the simulator's metrics {taken} have names that the trainer uses itself; rename them.")
        return {**dict(zip(OF_ANY_COLLECT, own, strict=True)), **means}

    def without_transitions(self) -> Episodes:
        """Return the episodes with their figures alone."""
        return Episodes(self.count, self.length, self.returns, self.metrics, self.details)

    @staticmethod
    def join(parts: Sequence[Episodes]) -> Episodes:
        """Lay the figures of several collects end to end, without transitions."""
        columns = {
            name: np.concatenate([part.metrics.get(name, np.full(part.count, np.nan)) for part in parts])
            for name in dict.fromkeys(name for part in parts for name in part.metrics)
        }
        return Episodes(
            sum(part.count for part in parts),
            np.concatenate([part.length for part in parts]),
            np.concatenate([part.returns for part in parts]),
            columns,
            join([part.details for part in parts]),
        )


def collect(env: FiniteVectorEnv, actor: Actor, *, seed: Sequence[int] | None = None, keep: bool = False) -> Episodes:
    """Run `actor` on every initial state of `env`.

    Parameters
    ----------
    seed
        Key of the random numbers to explore with, for example the run's seed and the iteration; each depends on its
        episode and step only. None acts greedily.
    keep
        Whether to keep the transitions, for an update.
    """
    active = env.reset()
    kept: list[tuple[Any, ...]] = []
    cuts: list[tuple[np.ndarray, Any]] = []  # numbers of episodes, and what was seen when they were cut off
    steps = np.zeros(max(len(active.episode), 1), dtype=np.int64)
    returns = np.zeros(len(steps))
    while len(active.episode):
        episode = active.episode
        if episode.max() >= len(steps):
            # At least doubled, so that a long stream does not copy them at every step.
            grow = int(episode.max()) + 1
            steps, returns = np.pad(steps, (0, grow)), np.pad(returns, (0, grow))
        noise = None if seed is None else uniform((*seed, Stream.ACTION), env.first_episode + episode, steps[episode])
        told = {"episode": episode} if getattr(actor, "by_episode", False) else {}
        action = actor.act(active.obs, noise, **told)
        result, following = env.step(action)
        if keep:
            kept.append((episode, active.obs, np.asarray(action), result.reward, result.done))
            if result.cut is not None:
                cuts.append((episode[result.cut.rows], result.cut.obs))
        steps[episode] += 1
        returns[episode] += result.reward
        active = following
    count = int((steps > 0).sum())
    if not (steps[:count] > 0).all():
        skipped = int(np.flatnonzero(steps == 0)[0])
        raise RlwbError(f"the environment gave no step of episode {skipped}; number the episodes 0, 1, 2, … in a row.")
    gathered = Episodes(count, steps[:count], returns[:count], env.metrics(), env.details())
    if kept:
        numbers, *transitions = zip(*kept, strict=True)
        # A stable sort keeps each episode's steps in time order.
        order = np.argsort(np.concatenate(numbers), kind="stable")
        gathered.obs, gathered.action, gathered.reward, gathered.done = (join(part, order) for part in transitions)
    if cuts:
        ended, seen = (list(part) for part in zip(*cuts, strict=True))
        order = np.argsort(np.concatenate(ended))
        gathered.cut = Cut(np.flatnonzero(gathered.done)[np.concatenate(ended)[order]], join(seen, order))
    return gathered


def backtest(
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    initial_states: Sequence[Any],
    action_interpreter: ActionInterpreter[Any],
    policy: Actor,
    *,
    reward: Reward[Any] | None = None,
    finite_env_type: str = "native",
    concurrency: int = 1,
    chunk: int = 4096,
    divided: Callable[[Sequence[tuple[int, Sequence[Any]]]], Sequence[Episodes]] | None = None,
) -> Episodes:
    """Run `policy` greedily on every initial state, once.

    Parameters
    ----------
    chunk
        Most episodes at once in the native environment; bounds the memory.
    divided
        What runs the chunks elsewhere, each given as the number of its first episode and its initial states; it returns
        their results in order, as `play_chunk` gives them.

    Returns
    -------
    Episodes
        In the order of `initial_states`, without transitions.

    Raises
    ------
    CheckpointError
        When the policy was trained for other features, bars, steps or actions, naming what differs. Other bars, orders
        and rules are what a backtest is for.
    ConfigError
        When the policy's network does not fit the observations or the actions.
    """
    if not len(initial_states) or chunk < 1:
        raise ConfigError(
            f"backtest got {len(initial_states)} initial states and chunk={chunk}; give at least 1 of each."
        )
    if isinstance(policy, Learner):
        policy.check(state_interpreter.observation_space, action_interpreter.action_space)
        if policy.trained_for is not None:
            here = record_of(simulator, state_interpreter, action_interpreter)
            check_record(policy.trained_for, here, f"the policy {type(policy).__name__}", names=ACTING)
    if finite_env_type != "native":
        chunk = len(initial_states)
    bounds = [(low, min(low + chunk, len(initial_states))) for low in range(0, len(initial_states), chunk)]
    chunks = ((low, take(initial_states, np.arange(low, high))) for low, high in bounds)
    if divided is not None:
        return Episodes.join(divided(list(chunks)))
    kwargs: dict[str, Any] = {"finite_env_type": finite_env_type, "concurrency": concurrency}
    parts = (simulator, state_interpreter, action_interpreter, reward, policy)
    return Episodes.join([play_chunk(*parts, low, states, **kwargs) for low, states in chunks])


def play_chunk(
    simulator: Simulator[Any],
    state_interpreter: StateInterpreter[Any],
    action_interpreter: ActionInterpreter[Any],
    reward: Reward[Any] | None,
    policy: Actor,
    first: int,
    initial_states: Sequence[Any],
    **kwargs: Any,
) -> Episodes:
    """Run `policy` greedily on some of the episodes of a backtest, from number `first` on."""
    with make_env(simulator, state_interpreter, action_interpreter, reward, initial_states, **kwargs) as env:
        env.first_episode = first
        return collect(env, policy)


def restore_policy(policy: Learner, path: str | os.PathLike[str]) -> None:
    """Give an untrained `policy` the weights of a checkpoint, and the record of what they were trained for.

    Raises
    ------
    CheckpointError
        When the checkpoint is damaged or of another network.
    """
    state = load_checkpoint(path)
    if "vessel" not in state:
        raise CheckpointError(f"{path} holds no training; give a checkpoint that a trainer has written.")
    with restoring(path):
        found = recorded_in(state)
        check_record(found, TrainingRecord(**policy.record()), f"the checkpoint {path}", names=("network",))
        policy.load_state_dict(state["vessel"]["policy"])
    policy.trained_for = found


def result_table(orders: pd.DataFrame, episodes: Episodes) -> pd.DataFrame:
    """Return the orders with their figures and rewards, one row an order."""
    return orders.reset_index(drop=True).assign(**episodes.metrics, reward=episodes.returns)


def unknown_figure(who: str, name: str, known: Collection[str]) -> str:
    """Return what is wrong when `who` watches the figure `name`, and which figures there are."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    names = ", ".join(sorted(name for name in known if not name.endswith("_count")))
    return f"{who} watches {name!r}, which is not among the figures {names}{hint}"
