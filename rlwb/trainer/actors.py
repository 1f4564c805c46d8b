"""Several collecting processes, one learner: episodes are gathered on a Ray cluster, and learnt from here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rlwb.batch import join, split_shared, take
from rlwb.env import NativeVectorEnv
from rlwb.env.ray_actors import Actors
from rlwb.env.ray_env import Make, shared_by_all
from rlwb.learner import Actor, Cut
from rlwb.trainer.collect import Episodes, collect
from rlwb.trainer.vessel import TrainingVessel

#: Episodes of a block. It must not depend on the number of processes, so that every one makes the same computations.
BLOCK = 250


class CollectingActors:
    """Processes of a Ray cluster that gather training episodes, each with a copy of the policy.

    The episodes of an iteration are divided into blocks of `BLOCK`, which go to whichever process is free. All act
    with the weights of the iteration's beginning; random numbers depend on the episode and the step alone, and the
    blocks are laid end to end in their order. So the learner, with its replay buffer if it has one, is given the same
    transitions whatever the number of processes, and whichever of them die: their blocks are gathered again.

    Parameters
    ----------
    vessel
        Whose episodes are gathered. Its simulator, interpreters and reward are sent once; an iteration sends the
        weights, and the initial states of each block.
    count
        Number of processes.

    Raises
    ------
    ConfigError
        When the package ray is missing, no cluster can be reached, or a part of the vessel cannot be sent.
    """

    def __init__(self, vessel: TrainingVessel, count: int) -> None:
        self._make: Make = partial(
            NativeVectorEnv,
            vessel.simulator,
            state_interpreter=vessel.state_interpreter,
            action_interpreter=vessel.action_interpreter,
            reward=vessel.reward,
            aux_info_collector=vessel.aux_info_collector,
        )
        self._shared: dict[str, Any] | None = None
        self.actors = Actors(partial(_Collector, self._make), count)

    def collect(self, vessel: TrainingVessel, states: Sequence[Any], iteration: int) -> Episodes:
        """Gather an episode for each of the initial `states` of an iteration; return them with their transitions."""
        if self._shared is None:
            self._shared = shared_by_all(self._make, states)
        policy = self.actors.put(vessel.policy.acting())
        seeds = (vessel.env_seed(iteration), vessel.seed)
        starts = range(0, len(states), BLOCK)
        blocks = [take(states, np.arange(start, min(start + BLOCK, len(states)))) for start in starts]
        asked = [(policy, iteration, block, start, *seeds) for block, start in zip(blocks, starts, strict=True)]
        return _joined(self.actors.map("collect", asked), self._shared)

    def close(self) -> None:
        """End the processes; may be called twice."""
        self.actors.close()


class _Collector:
    """Gathers episodes in a process of Ray's."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._policy: tuple[int, Actor] | None = None

    def collect(
        self, policy: Actor, iteration: int, states: Sequence[Any], first: int, env_seed: int, seed: int
    ) -> Episodes:
        """Gather the episodes of a block, the first of which has a number; what all observations share is left out."""
        if self._policy is None or self._policy[0] != iteration:  # else it has passed over some sessions already
            self._policy = iteration, policy
        env = self._make(states)
        env.seed, env.first_episode = env_seed, first
        episodes = collect(env, self._policy[1], seed=(seed, iteration), keep=True)
        episodes.obs = split_shared(episodes.obs)[0]
        return episodes


def _joined(parts: Sequence[Episodes], shared: dict[str, Any]) -> Episodes:
    """Lay blocks end to end, transitions included."""
    whole = Episodes.join(parts)
    obs = join([part.obs for part in parts])
    whole.obs = {**obs, **shared} if shared else obs
    for name in ("action", "reward", "done"):
        setattr(whole, name, np.concatenate([getattr(part, name) for part in parts]))
    starts = np.cumsum([0, *(len(part.done) for part in parts[:-1])])
    cuts = [(start, part.cut) for start, part in zip(starts, parts, strict=True) if part.cut is not None]
    if cuts:
        whole.cut = Cut(np.concatenate([start + cut.rows for start, cut in cuts]), join([cut.obs for _, cut in cuts]))
    return whole
