"""A user's own subject, with nothing of order execution: walk a corridor to its better end.

Imports little, so that workers start fast.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.reward import Reward
from rlwb.simulator import Simulator

LENGTH = 5


class Corridor(Simulator[int, "Corridor", int]):
    """Starts at `initial`; the right end pays, the left end does not. A gust may throw the walker one cell back."""

    gusts = False

    def __init__(self, initial: int) -> None:
        super().__init__(initial)
        self.place, self.steps, self.blown = initial, 0, 0

    def step(self, action: int) -> None:
        self.place += action
        self.steps += 1
        if self.gusts and self.env.np_random.random() < 0.3:
            self.place, self.blown = max(self.place - 1, 0), self.blown + 1
        if self.env is not None and self.done():
            self.env.logger.add_scalar("steps_logged_at_the_end", self.steps)

    def get_state(self) -> Corridor:
        if self.env is not None and not self.steps:
            self.env.logger.add_scalar("start_logged_at_the_reset", self.initial)
        return self

    def done(self) -> bool:
        return self.place in (0, LENGTH + 1) or self.steps >= 12

    def metrics(self) -> dict[str, float]:
        figures = {"won": float(self.place > LENGTH), "blown": float(self.blown)}
        return {**figures, "from_the_middle": self.steps} if self.initial == 3 else figures


class Gusty(Corridor):
    gusts = True


class Place(StateInterpreter[Corridor, np.ndarray]):
    observation_space = gym.spaces.Box(0, 1, (LENGTH + 2,), np.float32)

    def interpret(self, state: Corridor) -> np.ndarray:
        return np.eye(LENGTH + 2, dtype=np.float32)[state.place]


class Walk(ActionInterpreter[Corridor, int, int]):
    action_space = gym.spaces.Discrete(2)

    def interpret(self, state: Corridor, action: int) -> int:
        return 2 * int(action) - 1


class Arrival(Reward[Corridor]):
    def reward(self, state: Corridor) -> float:
        return float(state.place > LENGTH) - 0.01
