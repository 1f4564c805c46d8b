"""rlwb's parts for one market folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.market import make_features, make_orders, make_sessions
from benchmarks.network import load_peer_weights, peer_network
from benchmarks.schedule import Schedule
from rlwb.env import NativeVectorEnv
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
)
from rlwb.policy import PPO, PPOSettings
from rlwb.trainer import Episodes, TrainingVessel, collect

#: Where the peer leaves its weights, and what it answers with them.
PEER_NETWORK = "peer-network.pt"


class Parts:
    """Everything that a job needs, made from the schedule as the peer's files were.

    Parameters
    ----------
    folder
        A folder that `benchmarks.market.write_market` has written.

    Attributes
    ----------
    orders, valid
        Orders to train on, and to validate on; None where the schedule has no split.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schedule = schedule = Schedule.read(folder)
        torch.set_num_threads(schedule.threads)
        self.sessions = make_sessions(schedule)
        tables = make_orders(self.sessions, schedule)
        self.features = make_features(self.sessions, tables["train"])
        rules = ExecutionRules(volume_limit=schedule.volume_limit)
        self.simulator = OrderExecution(Engine(self.sessions, schedule.ticks_per_step, rules))
        self.orders: OrderBatch = self.simulator.align(tables["train"])
        self.valid: OrderBatch | None = self.simulator.align(tables["valid"]) if schedule.split else None
        self.state_interpreter = FullHistoryStateInterpreter(self.features, schedule.max_step)
        self.action_interpreter = CategoricalActionInterpreter(schedule.choices)
        self.reward = PAPenaltyReward(schedule.penalty, schedule.reward_scale)

    def policy(self) -> PPO:
        """Return PPO on the peer's network with the peer's settings, and with its weights where they are at hand."""
        schedule = self.schedule
        settings = PPOSettings(
            learning_rate=schedule.learning_rate,
            clip=schedule.clip,
            value_coef=schedule.value_coef,
            entropy_coef=schedule.entropy_coef,
            max_grad_norm=schedule.max_grad_norm,
            value_clip=True,
            batch_size=schedule.batch_size,
            repeat=schedule.repeat,
        )
        net = peer_network(len(self.features.columns), schedule)
        kept = self.folder / PEER_NETWORK
        if kept.exists():
            load_peer_weights(net, torch.load(kept, weights_only=True)["weights"])
        return PPO(net, settings, seed=schedule.seed)

    def vessel(self, policy: PPO, episodes: int) -> TrainingVessel:
        """Return what the peer's vessel is, here."""
        return TrainingVessel(
            simulator=self.simulator,
            state_interpreter=self.state_interpreter,
            action_interpreter=self.action_interpreter,
            policy=policy,
            reward=self.reward,
            train_initial_states=self.orders,
            val_initial_states=self.valid,
            episode_per_iter=episodes,
            seed=self.schedule.seed,
        )

    def tiled(self, count: int) -> OrderBatch:
        """Return the orders repeated to `count`."""
        batch: OrderBatch = self.orders[np.arange(count) % len(self.orders)]
        return batch

    def environment(self, orders: OrderBatch, **kwargs: Any) -> Any:
        """Return the native environment of `orders`."""
        own = {"action_interpreter": self.action_interpreter, "state_interpreter": self.state_interpreter}
        return NativeVectorEnv(self.simulator, orders, **{**own, "reward": self.reward, **kwargs})

    def gather(self, policy: PPO, orders: OrderBatch) -> Episodes:
        """Collect one exploring episode an order, with its transitions."""
        with self.environment(orders) as env:
            return collect(env, policy, seed=(self.schedule.seed, 1), keep=True)
