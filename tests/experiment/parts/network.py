"""A network: an LSTM over the bars so far, joined with the numbers of the order."""

import torch
from torch import nn

from rlwb.policy import Network


class LSTM(Network):
    """Reads the bars by an LSTM.

    Parameters
    ----------
    channels
        Features a tick.
    hidden
        Width of the LSTM and of the result.
    """

    def __init__(self, channels: int, hidden: int = 16) -> None:
        super().__init__(width=hidden)
        self.market = nn.LSTM(channels, hidden, batch_first=True)
        self.join = nn.Linear(hidden + 3, hidden)

    def forward(self, obs):
        _, (state, _) = self.market(self.today(obs))
        return torch.relu(self.join(torch.cat([state[0], self.scalars(obs)], dim=1)))
