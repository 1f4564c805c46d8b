"""An algorithm: REINFORCE without a critic, one update per collect."""

import numpy as np
import torch

from rlwb.policy.heads import ActorCritic
from rlwb.policy.learner import Learner


class Reinforce(Learner):
    """Raises the chance of the actions of orders that earned more than the mean."""

    figures = ("loss",)
    head = ActorCritic

    def __init__(self, network, learning_rate: float = 1e-2) -> None:
        self.network = network
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)

    @torch.no_grad()
    def act(self, obs, noise=None):
        chances = self.network(obs)[0].softmax(dim=1).numpy()
        below = chances.cumsum(axis=1) < (0 if noise is None else noise[:, None])
        return chances.argmax(axis=1) if noise is None else np.minimum(below.sum(axis=1), chances.shape[1] - 1)

    def learn(self, obs, action, reward, done):
        ends = np.flatnonzero(done)
        earned = np.add.reduceat(reward, np.append(0, ends[:-1] + 1))
        gain = np.repeat(earned - earned.mean(), np.diff(np.append(-1, ends))) / (earned.std() + 1e-9)
        chosen = self.network(obs)[0].log_softmax(dim=1)[np.arange(len(action)), action]
        loss = -(torch.as_tensor(gain) * chosen).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": float(loss.detach())}

    def state_dict(self):
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state):
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
