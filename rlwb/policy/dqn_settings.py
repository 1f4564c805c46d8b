"""What deep Q-learning can be told."""

from __future__ import annotations

from dataclasses import dataclass

from rlwb.errors import ConfigError
from rlwb.policy.algorithms import check_decay


@dataclass(frozen=True)
class DQNSettings:
    """Settings of DQN.

    Parameters
    ----------
    learning_rate
        Of Adam. Larger learns faster and breaks sooner; usual 1e-4 to 1e-3.
    gamma
        Discount a step. Episodes are short and all reward counts: 1.
    n_step
        Rewards that are summed before the network's own guess stands for the rest. More brings news from an order's end
        sooner, but with the rewards of actions that were tried at random or are long out of use.
    double
        Whether the network chooses the next action and its older copy values it, which overestimates less (van
        Hasselt et al., arXiv 1509.06461); otherwise the copy does both.
    huber
        Errors beyond this count in proportion instead of squared, in units of the returns' deviation where they are
        scaled; None squares all.
    target_every
        Gradient steps between two copies of the network for the targets; more is steadier and slower.
    epsilon_start, epsilon_end, epsilon_updates
        Share of random actions while collecting: falls in a line from start to end within so many updates.
    replay_size
        Most transitions kept; a collect must fit.
    max_grad_norm
        Gradients are scaled down to this norm.
    decay_updates
        The learning rate falls in a line to nothing within so many updates; None keeps it.
    return_scaling
        Whether rewards are divided by the deviation of the first collect's returns, so that the loss ignores their
        unit.
    """

    learning_rate: float = 1e-3
    gamma: float = 1.0
    n_step: int = 1
    double: bool = True
    huber: float | None = 1.0
    target_every: int = 50
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_updates: int = 20
    replay_size: int = 100_000
    max_grad_norm: float = 1.0
    decay_updates: int | None = None
    return_scaling: bool = True

    def __post_init__(self) -> None:
        positive = {"learning_rate": self.learning_rate, "huber": self.huber, "max_grad_norm": self.max_grad_norm}
        for name, value in positive.items():
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; it must be above 0.")
        shares = {"gamma": self.gamma, "epsilon_start": self.epsilon_start, "epsilon_end": self.epsilon_end}
        for name, value in shares.items():
            if not 0 <= value <= 1:
                raise ConfigError(f"{name} is {value}; it must lie in [0, 1].")
        check_decay(self.decay_updates)
        for name in ("n_step", "target_every", "epsilon_updates", "replay_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1.")

    def epsilon(self, updates: int) -> float:
        """Return the share of random actions after so many updates."""
        left = max(0.0, 1.0 - updates / self.epsilon_updates)
        return self.epsilon_end + (self.epsilon_start - self.epsilon_end) * left
