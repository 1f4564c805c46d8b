"""Untrained learners of every kind on the small market, and observations of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.batch import join
from rlwb.execution import FullHistoryStateInterpreter, PAPenaltyReward, step_terms
from rlwb.learner import Learner
from rlwb.objective import MeanVariance
from rlwb.policy import (
    DQN,
    MLP,
    OPD,
    PPO,
    ActionMask,
    ActorCritic,
    Attention,
    BoundedActorCritic,
    Convolution,
    Dialled,
    EvenStart,
    Informed,
    Network,
    Oracle,
    Pathwise,
    QlibRecurrent,
    QNetwork,
    Recurrent,
    ShareHead,
    make_network,
)
from tests.trainer.small import ACTIONS, small, small_network


class Averages(Network):
    """A network of one's own: the mean of the bars so far, and the order's numbers."""

    def __init__(self, channels: int) -> None:
        super().__init__(width=8)
        self.join = nn.Linear(channels + 3, 8)

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.tanh(self.join(torch.cat([self.today(obs).mean(dim=1), self.scalars(obs)], dim=1)))


NETWORKS: dict[str, Callable[[int], Network]] = {
    "mlp": lambda channels: MLP(8),
    "recurrent": lambda channels: Recurrent(channels, 8),
    "recurrent, yesterday": lambda channels: Recurrent(channels, 8, previous_day=True),
    "convolution": lambda channels: Convolution(channels, 8, layers=2),
    "convolution, yesterday": lambda channels: Convolution(channels, 8, layers=2, previous_day=True),
    "attention": lambda channels: Attention(channels, 8, layers=1),
    "attention, yesterday": lambda channels: Attention(channels, 8, layers=1, previous_day=True),
    "qlib": lambda channels: QlibRecurrent(channels, 8, 8),
    "informed": lambda channels: Informed(Recurrent(channels, 8), 7),
    "dialled": lambda channels: Dialled(Recurrent(channels, 8), 2),
    "own": lambda channels: Averages(channels),
    "both": lambda channels: Dialled(Informed(MLP(8), 7), 2),
}
_SHARES = np.linspace(0.0, 1.0, ACTIONS)


def learner(algorithm: str, network: str = "recurrent", *, plain: bool = False, complete_at_end: bool = True) -> Any:
    """Return a learner whose decisions vary from row to row; without mask and even start where `plain`."""
    numbers = {"pathwise": ShareHead, "ppo of shares": BoundedActorCritic}
    head = {"dqn": QNetwork, **numbers}.get(algorithm, ActorCritic)
    options: dict[str, Any] = {}
    if not plain and algorithm not in numbers:
        options = {"mask": ActionMask(_SHARES, complete_at_end=complete_at_end), "start": EvenStart(_SHARES)}

    def build() -> Any:
        body = NETWORKS[network](small().features.shape[2])
        return head(body) if algorithm in numbers else head(body, ACTIONS, **options)

    net = make_network(build, 0)
    with torch.no_grad():  # away from the even start
        for part in net.children():
            if isinstance(part, torch.nn.Linear):
                part.weight.mul_(300.0 if algorithm != "dqn" else 1.0)
    if algorithm == "pathwise":
        return Pathwise(net, partial(step_terms, small().simulator.engine, PAPenaltyReward()))
    if algorithm == "opd":
        return OPD(net, PPO(small_network(Oracle, acts=options)))
    return {"dqn": DQN}.get(algorithm, PPO)(net)


@cache
def observations(*, refer: bool = False) -> dict[str, Any]:
    """Return the observations of random episodes, terminal ones too, with a dial of two settings and forms.

    With `refer` they are those of a policy in this process.
    """
    market, rng = small(), np.random.default_rng(0)
    count, engine = len(market.orders), market.simulator.engine
    number = np.arange(len(market.orders.source["amount"]))
    forms = {"aversion": np.where(number % 2, 0.05, 0.01), "limit_price": np.where(number % 3, np.nan, 10.0)}
    orders = replace(market.orders, source={**market.orders.source, **forms})
    observe = FullHistoryStateInterpreter(market.features, engine.max_step, MeanVariance([0.01, 0.05]), forms=True)
    state = market.simulator.start(orders, np.zeros(count, dtype=np.uint64))
    seen = []
    for _ in range(engine.max_step + 1):
        obs = (observe.refer if refer else observe.interpret)(state.known)
        seen.append(obs)
        left = np.where(state.done, 0.0, state.now.position)
        ask = np.minimum(rng.choice(_SHARES, count) * orders.amount, left)
        state = market.simulator.step(state, np.where(state.known.completes, left, ask))
    together: dict[str, Any] = join(seen)
    return together


def with_states(of: Learner, obs: dict[str, Any]) -> dict[str, Any]:
    """Return observations with the state of the market that the learner's network makes of them."""
    with torch.no_grad():
        states = of.trunk.market_states(obs)  # type: ignore[attr-defined]
    return obs if states is None else {**obs, "market_states": states.numpy()}
