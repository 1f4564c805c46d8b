from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlwb.policy import PPO, ActorCritic, PPOSettings
from rlwb.trainer import TrainingVessel
from tests.trainer.corridor import LENGTH, Arrival, Distance, Place, Walk, corridor


class AsTensor(nn.Module):
    def forward(self, obs: Any) -> Any:
        return torch.as_tensor(obs)


def corridor_vessel(**changes: Any) -> TrainingVessel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        trunk = nn.Sequential(AsTensor(), nn.Linear(LENGTH + 2, 8), nn.Tanh())
        policy = PPO(ActorCritic(trunk, 8, 2), PPOSettings(learning_rate=0.02))
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
