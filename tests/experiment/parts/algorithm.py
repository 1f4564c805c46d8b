import numpy as np
import torch

from rlwb.policy.heads import ActorCritic
from rlwb.policy.learner import Learner


class Reinforce(Learner):
    """An algorithm: REINFORCE without a critic, which raises the chance of what earned more than the mean."""

    figures = ("loss",)
    head = ActorCritic

    def __init__(self, network, learning_rate: float = 1e-2) -> None:
        self.network, self.optimizer = network, torch.optim.Adam(network.parameters(), lr=learning_rate)

    @torch.no_grad()
    def act(self, obs, noise=None):
        chances = self.network(obs)[0].softmax(dim=1).numpy()
        return chances.argmax(1) if noise is None else (chances.cumsum(1)[:, :-1] < noise[:, None]).sum(1)

    def learn(self, obs, action, reward, done):
        order = done.cumsum() - done  # which order a step belongs to
        earned = np.bincount(order, reward)
        gain = ((earned - earned.mean()) / (earned.std() + 1e-9))[order]
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
