from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlwb.policy import PPO, ActorCritic, Network, PPOSettings, make_network
from rlwb.trainer import TrainingVessel
from tests.trainer.corridor import LENGTH, Arrival, Distance, Place, Walk, corridor


class Positions(Network):
    """A layer on an observation that is an array."""

    def __init__(self) -> None:
        super().__init__(width=8)
        self.layer = nn.Linear(LENGTH + 2, 8)

    def forward(self, obs: Any) -> torch.Tensor:
        return torch.tanh(self.layer(torch.as_tensor(obs)))


def corridor_vessel(*, batch_size: int = 64, repeat: int = 2, **changes: Any) -> TrainingVessel:
    network = make_network(lambda: ActorCritic(Positions(), 2), seed=0)
    policy = PPO(network, PPOSettings(learning_rate=0.02, batch_size=batch_size, repeat=repeat))
    parts: dict[str, Any] = {
        "simulator": corridor(),
        "state_interpreter": Place(),
        "action_interpreter": Walk(),
        "reward": Arrival(),
        "aux_info_collector": Distance(),
        "policy": policy,
        "train_initial_states": [1, 2, 3, 4, 5],
        "val_initial_states": [1, 3, 5],
        "test_initial_states": [2, 3],
        "episode_per_iter": 40,
    }
    return TrainingVessel(**{**parts, **changes})
