"""Direct optimisation of amounts through the market's replay (deep hedging: Buehler et al., Quantitative Finance 2019).

Prices of a replayed market do not depend on the policy, so what an order earns is a known function of what its steps
trade, and its derivative by the weights needs no estimate: the policy is unrolled over the steps of whole orders, each
step's share following from the position that the steps before it have left, and the objective over the orders is
differentiated through all of them, with the fills that caps and halts cut. There is no critic, no exploration and no
advantage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rlwb.batch import count_rows, take_rows
from rlwb.errors import ConfigError
from rlwb.objective import Mean, Objective
from rlwb.policy.episodes import check_episodes, dial_settings
from rlwb.policy.learner import NetworkLearner, check_answers, check_settings, fill_up, training_mode
from rlwb.policy.network import Network, even_share, log_odds
from rlwb.seeds import Stream, generator


@dataclass(frozen=True, kw_only=True)
class PathwiseSettings:
    """Settings of pathwise optimisation.

    Parameters
    ----------
    learning_rate
        Step of Adam, above 0.
    batch_size : orders
        Orders a minibatch, 2 or more: the objective is that of a minibatch, so risk takes some hundreds.
    repeat : passes
        Passes over the collected orders, 1 or more.
    max_grad_norm
        Gradients longer than this are scaled down to it, above 0.
    decay_updates : updates
        Updates (training iterations) within which the learning rate falls in a line to 0; None keeps the rate.
    """

    learning_rate: float = 2e-3
    batch_size: int = 500
    repeat: int = 2
    max_grad_norm: float = 1.0
    decay_updates: int | None = None

    def __post_init__(self) -> None:
        check_settings(
            positive={"learning_rate": self.learning_rate, "max_grad_norm": self.max_grad_norm},
            counts={"batch_size": self.batch_size, "repeat": self.repeat, "decay_updates": self.decay_updates},
        )


class ShareHead(nn.Module):
    """A network with a head for the share of the position to trade in the step to come.

    The log odds of the share are those of the even schedule, one over the steps left, plus what the network adds: 0 for
    one that has learnt nothing. In the last step the share is 1.

    Parameters
    ----------
    trunk
        Observations to features.
    actions
        Numbers in an action: 1.
    mask, start
        Of choices among actions; there are none here.
    """

    def __init__(self, trunk: Network, actions: int = 1, *, mask: Any = None, start: Any = None) -> None:
        super().__init__()
        if actions != 1 or mask is not None or start is not None:
            raise ConfigError("a share of the position is one number, without masks or an even start; turn them off.")
        self.trunk = trunk
        self.share = nn.Linear(trunk.width, 1)
        with torch.no_grad():
            self.share.weight.mul_(0.01)
            self.share.bias.zero_()

    def forward(self, obs: Any) -> torch.Tensor:
        """Return the shares, float32 of shape (N,), in [0, 1]."""
        even, is_last = even_share(obs, self.trunk.device)
        added = self.share(self.trunk(obs)).squeeze(-1)
        return torch.where(is_last, torch.ones_like(even), torch.sigmoid(log_odds(even) + added))


class Pathwise(NetworkLearner):
    """Pathwise optimisation of a deterministic policy that answers with the share of the position to trade.

    Parameters
    ----------
    network
        The policy.
    step_terms
        Takes orders to the coefficients of their rewards, an object of as many rows like `rlwb.execution.StepTerms`:
        ``trades(share, start)`` is what the orders trade in ``steps`` steps by the shares that a policy answers, and
        ``rewards(trades)`` the sum of each order's rewards, differentiable.
    settings
        Hyper-parameters.
    seed
        Names, with the number of updates made, the order of the minibatches.
    objective
        What the orders of a minibatch, each with the sum of its rewards, are worth; the mean by default.
    """

    figures: tuple[str, ...] = ("gradient_steps", "loss")
    head = ShareHead
    network: ShareHead
    settings: PathwiseSettings

    def __init__(
        self,
        network: ShareHead,
        step_terms: Callable[[Sequence[Any]], Any],
        settings: PathwiseSettings | None = None,
        *,
        seed: int = 0,
        objective: Objective | None = None,
    ) -> None:
        super().__init__(network, settings or PathwiseSettings(), seed)
        self.step_terms = step_terms
        self.objective = objective or Mean()
        for one in self.objective.dial or (self.objective,):
            one.slope(np.zeros(1))  # refused where there is none
        self._orders: Sequence[Any] = ()

    def check(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        bounds = (0.0, 1.0, ())
        if not isinstance(action_space, gym.spaces.Box) or bounds != _bounds(action_space):
            raise ConfigError(
                f"Pathwise answers with a share of the position, the action interpreter's space is {action_space}; set "
                "action_interpreter to position_share."
            )
        self._check_observations(observation_space)

    def greedy(self, obs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the shares of the position to trade, float32 of shape (N,), as actions and as their scores."""
        share = self.network(obs)
        return share, share

    @torch.no_grad()
    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the shares of the position to trade, float32 of shape (N,); there is nothing to explore by `noise`."""
        share = self.greedy(fill_up(obs))[0][: count_rows(obs)]
        check_answers(share)
        return share.cpu().numpy()

    def prepare(self, initial_states: Sequence[Any]) -> None:
        self._orders = initial_states

    def learn(self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray) -> dict[str, float]:
        """Update on the orders of a collect; return the mean of the loss, minus the objective, over the minibatches."""
        done = np.asarray(done, dtype=bool)
        check_episodes(obs, action, reward, done)
        ends = np.flatnonzero(done)
        starts = np.append(0, ends[:-1] + 1)
        if len(self._orders) != len(ends):
            raise ConfigError(
                f"learn got {len(ends)} episodes of {len(self._orders)} orders; tell their orders by prepare before."
            )
        terms = self.step_terms(self._orders)
        settings = dial_settings(obs, done)
        self._set_learning_rate()
        paid = np.add.reduceat(np.asarray(reward, dtype=np.float64), starts)
        # One row a step of every order; where it had ended before, its last one, at which nothing is left.
        rows = np.minimum(starts[:, None] + np.arange(terms.steps), ends[:, None])
        self._check_paid(terms, np.asarray(action, dtype=np.float64), rows, ends - starts, paid)
        losses = []
        with training_mode(self.network):
            for batch in self._minibatches(len(ends)):
                own_terms = terms[batch]
                share = self._share(obs, rows[batch])
                totals = own_terms.rewards(own_terms.trades(share, torch.ones(len(batch), device=self.device)))
                results = totals.detach().cpu().numpy()
                own = None if settings is None else settings[batch]
                slopes = self.objective.slopes(results, own)
                self._step(-(totals * totals.new_tensor(slopes)).mean())
                values = [one.value(results[at]) * len(at) for one, at in self.objective.groups(own, len(batch))]
                losses.append(-sum(values) / len(batch))
        self.updates += 1
        return {"gradient_steps": len(losses), "loss": float(np.mean(losses))}

    def _minibatches(self, orders: int) -> Iterator[np.ndarray]:
        """Yield the orders of each minibatch, all of them in each pass."""
        rng = generator(self.seed, self.updates, Stream.MINIBATCH)
        for _ in range(self.settings.repeat):
            yield from np.array_split(rng.permutation(orders), max(1, round(orders / self.settings.batch_size)))

    def _share(self, obs: Any, rows: np.ndarray) -> Callable[[list[torch.Tensor]], torch.Tensor]:
        """Return what takes the shares left of n orders before the steps so far to the share of the position to trade.

        What the network reads of the market is read once for all steps; what it reads of the order follows from the
        steps before.
        """
        count = len(rows)
        market = self.network.trunk.market_states(take_rows(obs, rows.T.ravel()))

        def share(left: list[torch.Tensor]) -> torch.Tensor:
            k = len(left) - 1
            now = take_rows(obs, rows[:, k])
            target = torch.as_tensor(now["target"], device=self.device)
            path = [part.to(target.dtype) for part in left]
            now["position"] = target * path[-1]
            if "position_history" in now:
                length = now["position_history"].shape[1]
                history = torch.stack([*path, *[path[0] * 0.0] * max(length - len(path), 0)], dim=1)[:, :length]
                now["position_history"] = history * target[:, None]
            if market is not None:
                now["market_states"] = market[k * count : (k + 1) * count]
            return self.network(now)

        return share

    def _check_paid(self, terms: Any, action: np.ndarray, rows: np.ndarray, last: np.ndarray, paid: np.ndarray) -> None:
        """Refuse orders that were paid otherwise than their terms say."""
        ask = np.where(np.arange(rows.shape[1]) < last[:, None], action[rows], 1.0)
        trades = terms.trades(lambda left: ask[:, len(left) - 1], np.ones(len(rows)))
        terms.check_paid(trades, paid, self._orders)


def _bounds(space: gym.spaces.Box) -> tuple[float, float, tuple[int, ...]]:
    return float(np.min(space.low)), float(np.max(space.high)), space.shape
