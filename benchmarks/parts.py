"""What rlwb runs for one market folder: the market and orders of both sides, the peer's network, PPO."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.schedule import Schedule
from rlwb.env import NativeVectorEnv
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    OrderSettings,
    PAPenaltyReward,
    SplitSettings,
    generate_orders,
    split_orders,
)
from rlwb.market import FeatureSettings, MarketFeatures, Sessions
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.policy import PPO, ActorCritic, PPOSettings, QlibRecurrent, from_qlib, make_network
from rlwb.trainer import Episodes, TrainingVessel, collect

#: The peer infers names from the number of features and wants this sequence.
_COLUMNS = ("high", "low", "open", "close", "volume")
#: Where the peer leaves its weights, and what it answers with them.
PEER_NETWORK = "peer-network.pt"


class Parts:
    """Everything that a job needs, made from the schedule that a folder holds, as the peer's files are.

    Attributes
    ----------
    tables
        The orders by part, each over a whole session: ``train``, and ``valid`` where the schedule splits them. Without
        a split there is one sell order a session, in a random sequence. No two share a session: sharing is where rlwb
        gains most.
    orders, valid
        Orders to train on, and to validate on; None where the schedule has no split.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.schedule = schedule = Schedule.read(folder)
        torch.set_num_threads(schedule.threads)
        size = {"instruments": schedule.instruments, "days": schedule.days, "tick_minutes": 240 // schedule.ticks}
        self.sessions: Sessions = synthetic_sessions(SyntheticSettings(session="cn", seed=schedule.seed, **size))
        if schedule.split:
            parts = split_orders(generate_orders(self.sessions, seed=schedule.seed), SplitSettings())
            self.tables = {name: parts[name] for name in ("train", "valid")}
        else:
            orders = generate_orders(self.sessions, OrderSettings(directions=("SELL",)), seed=schedule.seed)
            self.tables = {"train": orders.sample(frac=1.0, random_state=schedule.seed, ignore_index=True)}
        fitted = np.isin(self.sessions.dates, _days(self.tables["train"]))
        self.features = MarketFeatures.build(self.sessions, FeatureSettings(columns=_COLUMNS), fit_rows=fitted)
        rules = ExecutionRules(volume_limit=schedule.volume_limit)
        self.simulator = OrderExecution(Engine(self.sessions, schedule.ticks_per_step, rules))
        self.orders: OrderBatch = self.simulator.align(self.tables["train"])
        self.valid: OrderBatch | None = self.simulator.align(self.tables["valid"]) if schedule.split else None
        self.state_interpreter = FullHistoryStateInterpreter(self.features, schedule.max_step)
        self.action_interpreter = CategoricalActionInterpreter(schedule.choices)
        self.reward = PAPenaltyReward(schedule.penalty, schedule.reward_scale)

    def policy(self) -> PPO:
        """Return PPO on the peer's network with the peer's settings, and with its weights where they are at hand."""
        names = ("learning_rate", "clip", "value_coef", "entropy_coef", "max_grad_norm", "batch_size", "repeat")
        settings = PPOSettings(value_clip=True, **{name: getattr(self.schedule, name) for name in names})
        net, kept = peer_network(len(self.features.columns), self.schedule), self.folder / PEER_NETWORK
        if kept.exists():
            load_peer_weights(net, torch.load(kept, weights_only=True)["weights"])
        return PPO(net, settings, seed=self.schedule.seed)

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

    def first(self, count: int) -> OrderBatch:
        """Return at most so many of the orders."""
        batch: OrderBatch = self.orders[np.arange(min(count, len(self.orders)))]
        return batch

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


def _days(orders: pd.DataFrame) -> np.ndarray:
    return orders["date"].to_numpy().astype("datetime64[D]")


def write_market(schedule: Schedule, folder: Path) -> None:
    """Write schedule, market and orders to `folder`: JSON and NumPy's format, which need no other package."""
    folder.mkdir(parents=True, exist_ok=True)
    schedule.write(folder)
    parts = Parts(folder)
    sessions, features = parts.sessions, parts.features
    tables = {}
    for part, table in parts.tables.items():
        tables[f"{part}_instrument"] = table["instrument"].to_numpy().astype(str)
        tables[f"{part}_date"] = _days(table)
        tables[f"{part}_amount"] = table["amount"].to_numpy()
        tables[f"{part}_buy"] = (table["direction"] == "BUY").to_numpy()
    np.savez(
        folder / "market.npz",
        instruments=sessions.instruments.astype(str),
        dates=sessions.dates.astype("datetime64[D]"),
        tick_seconds=sessions.calendar.tick_start,
        close=sessions.fields["close"],
        volume=sessions.fields["volume"],
        today=features.today,
        previous=features.block_previous(np.arange(len(sessions))),
        **tables,
    )


def peer_network(channels: int, schedule: Schedule) -> ActorCritic:
    """Return actor and critic on the peer's trunk, with weights from the schedule's seed."""
    trunk = partial(QlibRecurrent, channels, schedule.hidden, schedule.output)
    return make_network(lambda: ActorCritic(trunk(), schedule.choices + 1), schedule.seed)


def load_peer_weights(net: ActorCritic, weights: dict[str, torch.Tensor]) -> None:
    """Load the peer's ``PPO.state_dict()`` into `net`."""
    net.load_state_dict(from_qlib(weights).policy.network.state_dict())
