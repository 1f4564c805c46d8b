"""A user's own subject, with nothing of order execution: walk a corridor to its better end.

Imports little, so that workers start fast.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rlwb.interpreter import ActionInterpreter, StateInterpreter, per_order
from rlwb.reward import AuxiliaryInfoCollector, Reward
from rlwb.simulator import Episode, EpisodeSimulator

LENGTH = 5


class Walker(Episode):
    """Starts at `initial`; the right end pays, the left end does not. A gust may throw the walker one cell back."""

    gusts = False

    def __init__(self, initial: int, rng: np.random.Generator) -> None:
        super().__init__(initial, rng)
        self.place, self.steps, self.blown = initial, 0, 0

    def step(self, action: int) -> None:
        self.place += int(action)
        self.steps += 1
        if self.gusts and self.rng.random() < 0.3:
            self.place, self.blown = max(self.place - 1, 0), self.blown + 1

    def get_state(self) -> Walker:
        return self

    def done(self) -> bool:
        return self.place in (0, LENGTH + 1) or self.steps >= 12

    def metrics(self) -> dict[str, float]:
        figures = {"won": float(self.place > LENGTH), "blown": float(self.blown)}
        return {**figures, "from_the_middle": self.steps} if self.initial == 3 else figures


class GustyWalker(Walker):
    gusts = True


def corridor(walker: type[Walker] = Walker) -> EpisodeSimulator:
    return EpisodeSimulator(walker)


class Place(StateInterpreter[list[Walker]]):
    observation_space = gym.spaces.Box(0, 1, (LENGTH + 2,), np.float32)

    @per_order
    def interpret(self, walker: Walker) -> np.ndarray:
        return np.eye(LENGTH + 2, dtype=np.float32)[walker.place]


class Walk(ActionInterpreter[list[Walker]]):
    action_space = gym.spaces.Discrete(2)

    def interpret(self, walkers: list[Walker], action: np.ndarray) -> np.ndarray:
        return 2 * action - 1


class Arrival(Reward[list[Walker]]):
    @per_order
    def reward(self, walker: Walker) -> dict[str, float]:
        return {"end": float(walker.place > LENGTH), "haste": -0.01}


class Distance(AuxiliaryInfoCollector[list[Walker]]):
    @per_order
    def collect(self, walker: Walker) -> dict[str, float]:
        return {"place": float(walker.place)}
