"""The peer's network on rlwb's causal path: the same layers, the same names, the same numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.schedule import Schedule
from rlwb.policy import ActorCritic, Network, RecurrentEncoder, make_network
from rlwb.policy.gru import states_at


class _Market(RecurrentEncoder):
    """A linear layer in front of the GRU, and a tick of zeros in front of the day."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__(hidden, hidden)
        self.front = nn.Sequential(nn.Linear(channels, hidden), nn.ReLU())

    def embed(self, ticks: torch.Tensor) -> torch.Tensor:
        return self.front(ticks)

    def first(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        # The peer reads its state after k ticks at row k, behind the tick of zeros.
        every = torch.arange(len(today))
        return states_at(self.gru, torch.zeros_like(today[:, :1]), every, torch.ones_like(every), embed=self.embed)


class PeerTrunk(Network):
    """``qlib.rl.order_execution.network.Recurrent``, without the branch that it makes and never uses.

    Parameters
    ----------
    channels
        Market features a tick.
    schedule
        Its widths.
    """

    causal = True

    def __init__(self, channels: int, schedule: Schedule) -> None:
        super().__init__(width=schedule.output)
        width = schedule.hidden
        self.market = _Market(channels, width)
        self.pri_fc = nn.Sequential(nn.Linear(2, width), nn.ReLU())
        self.pri_rnn = nn.GRU(width, width, batch_first=True)
        self.dire_fc = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.fc = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, schedule.output), nn.ReLU())

    def forward(self, obs: Any) -> torch.Tensor:
        buy = torch.as_tensor(obs["acquiring"]).float()
        direction = self.dire_fc(torch.stack([buy, 1 - buy], dim=1))
        return self.fc(torch.cat([self.market(obs), self._private(obs), direction], dim=1))

    def _private(self, obs: Any) -> torch.Tensor:
        """Read one pass over each episode's path, where ``path`` names the last row of each row's episode."""
        history = torch.as_tensor(obs["position_history"]).float()
        step = torch.as_tensor(obs["cur_step"]).long()
        last = row = torch.arange(len(step))
        if "path" in obs:
            last, row = torch.unique(torch.as_tensor(obs["path"]), return_inverse=True)
        share = history[last] / torch.as_tensor(obs["target"]).float()[last, None]
        steps = torch.as_tensor(obs["num_step"]).float()[last, None]
        clock = torch.arange(history.shape[1]) / steps
        read = (step + 1).clamp(max=history.shape[1])
        return states_at(self.pri_rnn, torch.stack([share, clock], dim=2), row, read, embed=self.pri_fc)


def peer_network(channels: int, schedule: Schedule) -> ActorCritic:
    """Return actor and critic on the peer's trunk, with weights from the schedule's seed."""
    return make_network(lambda: ActorCritic(PeerTrunk(channels, schedule), schedule.choices + 1), schedule.seed)


def load_peer_weights(net: ActorCritic, weights: dict[str, torch.Tensor]) -> None:
    """Load the peer's ``PPO.state_dict()`` into `net`."""
    own = {}
    for name in net.state_dict():
        part, _, rest = name.removeprefix("trunk.").removeprefix("market.").partition(".")
        source = {
            "actor": "actor.layer_out.0",
            "critic": "critic.value_out",
            "gru": "actor.extractor.raw_rnn",
            "front": "actor.extractor.raw_fc",
        }.get(part, f"actor.extractor.{part}")
        own[name] = weights[f"{source}.{rest}"]
    net.load_state_dict(own)
