"""A small market in pure NumPy: sell an amount over a few steps at prices drawn from the order's own seed."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from rlwb.env import EnvWrapper
from rlwb.interpreter import ActionInterpreter, StateInterpreter, per_order
from rlwb.reward import AuxiliaryInfoCollector, Reward, RewardCombination
from rlwb.simulator import Episode, EpisodeSimulator

MAX_STEPS = 13


@dataclass(frozen=True)
class ToyOrder:
    number: int
    steps: int = 4
    amount: float = 1.0

    def __str__(self) -> str:
        return f"toy order {self.number}"


@dataclass
class ToyState:
    order: ToyOrder
    step: int
    position: float
    prices: np.ndarray
    last_fill: float
    noise: float


class ToySimulator(Episode):
    def __init__(self, initial: ToyOrder, rng: np.random.Generator) -> None:
        super().__init__(initial, rng)
        self.prices = 10 + np.random.default_rng(initial.number).normal(size=initial.steps).cumsum() / 10
        self.count, self.position, self.last_fill, self.paid = 0, initial.amount, 0.0, 0.0
        self.noise = rng.random()

    def step(self, action: float) -> None:
        last = self.count + 1 == self.initial.steps
        self.last_fill = self.position if last else min(action, self.position)
        self.paid += self.last_fill * self.prices[self.count]
        self.position -= self.last_fill
        self.count += 1
        self.noise = self.rng.random()

    def get_state(self) -> ToyState:
        return ToyState(self.initial, self.count, self.position, self.prices, self.last_fill, self.noise)

    def done(self) -> bool:
        return self.count >= self.initial.steps

    def metrics(self) -> dict[str, float]:
        filled = self.initial.amount - self.position
        pa = (self.paid / filled / self.prices.mean() - 1) * 1e4 if filled else float("nan")
        return {"pa": pa, "ffr": filled / self.initial.amount, "odd": 1.0 if self.initial.number % 2 else float("nan")}


class ToyObservation(StateInterpreter):
    observation_space = gym.spaces.Dict(
        {
            "position": gym.spaces.Box(0, 1, (), np.float32),
            "noise": gym.spaces.Box(0, 1, (), np.float32),
            "step": gym.spaces.Box(0, MAX_STEPS, (), np.int32),
            "prices": gym.spaces.Box(0, 1000, (MAX_STEPS, 2), np.float32),
        }
    )

    @per_order
    def interpret(self, state: ToyState) -> dict:
        return self.observe(state)

    def observe(self, state: ToyState) -> dict:
        prices = np.zeros((MAX_STEPS, 2), np.float32)
        prices[: state.step, 0] = state.prices[: state.step]
        return {
            "position": np.array(state.position, np.float32),
            "noise": np.array(state.noise, np.float32),
            "step": np.array(state.step, np.int32),
            "prices": prices,
        }


class ToyAction(ActionInterpreter):
    action_space = gym.spaces.Discrete(5)

    @per_order
    def interpret(self, state: ToyState, action: int) -> float:
        return float(action) / 4 * state.order.amount


class ToyPrice(Reward):
    @per_order
    def reward(self, state: ToyState) -> float:
        return state.last_fill * float(state.prices[state.step - 1] / state.prices.mean() - 1)


class ToyHaste(Reward):
    @per_order
    def reward(self, state: ToyState) -> float:
        return -(state.last_fill**2) * state.step


class ToyInfo(AuxiliaryInfoCollector):
    @per_order
    def collect(self, state: ToyState) -> dict:
        # Nothing is known of the second step.
        return {"price": float("nan") if state.step == 2 else float(state.prices[state.step - 1])}


def toy_env(states=None, simulator=ToySimulator, obs=ToyObservation, action=ToyAction, reward=None) -> EnvWrapper:
    if reward is None:
        reward = RewardCombination({"price": (ToyPrice(), 1.0), "haste": (ToyHaste(), 0.1)})
    return EnvWrapper(EpisodeSimulator(simulator), obs(), action(), states, reward, ToyInfo())


def env_fn(**parts):
    """A factory that pickles by reference."""
    return functools.partial(toy_env, **parts)


def orders(n: int) -> list[ToyOrder]:
    """Orders of 1 to 13 steps."""
    return [ToyOrder(number, steps=number * 7 % MAX_STEPS + 1) for number in range(n)]


def act(active) -> np.ndarray:
    """A policy that depends on the observation alone."""
    noise, position = active.obs["noise"].astype(np.float64), active.obs["position"]
    return (np.floor(noise * 97 + position * 31).astype(np.int64)) % 5
