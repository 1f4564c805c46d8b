"""A market of a few sessions, and vessels on it that train within a blink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
    generate_orders,
)
from rlwb.market import FeatureSettings, MarketFeatures
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.policy import PPO, ActorCritic, Network, PPOSettings, Recurrent, make_network
from rlwb.trainer import TrainingVessel

ACTIONS = 5
UPDATE = {"batch_size": 16, "repeat": 2}


@dataclass(frozen=True)
class Small:
    """16 ticks a session, 4 steps of 4 ticks; orders of 1 to 4 steps."""

    simulator: OrderExecution
    features: MarketFeatures
    orders: OrderBatch

    @property
    def observer(self) -> FullHistoryStateInterpreter:
        return FullHistoryStateInterpreter(self.features, self.simulator.engine.max_step)

    @property
    def chooser(self) -> CategoricalActionInterpreter:
        return CategoricalActionInterpreter(ACTIONS - 1)


@cache
def small() -> Small:
    sessions = synthetic_sessions(SyntheticSettings(instruments=3, days=9, tick_minutes=15))
    simulator = OrderExecution(Engine(sessions, 4))
    frame = generate_orders(sessions).sample(frac=1.0, random_state=1).reset_index(drop=True)
    # Windows of every length, mid-step starts included.
    starts = ["09:30", "09:45", "10:30", "13:00", "14:00"]
    ends = ["15:00", "14:15", "11:30", "14:30", "15:00"]
    for name, times in (("start", starts), ("end", ends)):
        texts = [f"{day:%Y-%m-%d} {times[i % len(times)]}" for i, day in enumerate(frame["date"])]
        frame[name] = np.array(texts, dtype="datetime64[ns]")
    features = MarketFeatures.build(sessions, FeatureSettings(previous_day=True), fit_rows=np.arange(12))
    return Small(simulator, features, simulator.align(frame))


def small_network(
    kind: Callable[..., Network] = Recurrent,
    hidden: int = 8,
    *,
    seed: int = 0,
    head: Any = ActorCritic,
    acts: Mapping[str, Any] | None = None,
    **own: Any,
) -> Any:
    """A network that reads the small market's bars, with a head; `acts` are the head's mask and start."""
    channels = small().features.shape[2]
    return make_network(lambda: head(kind(channels, hidden, **own), ACTIONS, **(acts or {})), seed)


def small_ppo(*, seed: int = 0, previous_day: bool = False, hidden: int = 8, **settings: Any) -> PPO:
    net = small_network(Recurrent, hidden, seed=seed, previous_day=previous_day)
    return PPO(net, PPOSettings(**{"learning_rate": 5e-3, **UPDATE, **settings}), seed=seed)


def small_vessel(**changes: Any) -> TrainingVessel:
    market = small()
    parts = {
        "simulator": market.simulator,
        "state_interpreter": market.observer,
        "action_interpreter": market.chooser,
        "policy": changes.pop("policy", None) or small_ppo(),
        "reward": PAPenaltyReward(scale=0.1),
        "train_initial_states": market.orders[:30],
        "val_initial_states": market.orders[30:40],
        "test_initial_states": market.orders[40:],
        "episode_per_iter": 12,
    }
    return TrainingVessel(**{**parts, **changes})


def weights(policy: PPO) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in policy.network.state_dict().items()}


def assert_same_weights(a: PPO, b: PPO) -> None:
    left, right = weights(a), weights(b)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)
