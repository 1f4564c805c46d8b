"""Rewards of order execution, each for one state and, in the same bits, for a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlwb.execution.costs import net_value, step_costs
from rlwb.execution.metrics import average_price, price_advantage
from rlwb.execution.rules import BASIS_POINTS
from rlwb.execution.state import BatchState, OrderState
from rlwb.reward import Reward


class _BatchReward(Reward[OrderState]):
    """A reward that is computed on a batch; one state is a batch of one."""

    def reward(self, state: OrderState) -> float:
        return float(self.reward_batch(state.batch)[0])

    def parts(self, state: OrderState) -> dict[str, float]:
        return {name: float(values[0]) for name, values in self.parts_batch(state.batch).items()}

    def reward_batch(self, states: Sequence[OrderState]) -> np.ndarray:
        return np.asarray(sum(self.parts_batch(states).values()))


class PAPenaltyReward(_BatchReward):
    """Price advantage of what the step filled, less a penalty on trading fast.

    ``scale * (w * PA - penalty * sum_t w_t**2)`` with w the share of the amount filled in the step, w_t in
    the tick, and PA in basis points against the TWAP of the order's window: the reward of Fang et al. (AAAI 2021,
    arXiv 2103.10860), with the quantity filled in place of the quantity asked. Under rules with costs, a third part
    takes off what the step cost, in basis points of the amount at TWAP; without the penalty, an order's rewards then
    add up to ``scale * ffr`` times its net PA.

    Parameters
    ----------
    penalty
        Weight of the squared shares. It is a sum over ticks: the same trading rate on bars five times as
        long has a sum five times as large.
    scale
        Factor of the whole reward.
    """

    def __init__(self, penalty: float = 100.0, scale: float = 1.0) -> None:
        self.penalty = penalty
        self.scale = scale

    def parts_batch(self, states: Sequence[OrderState]) -> dict[str, np.ndarray]:
        batch: BatchState = states  # type: ignore[assignment]
        fills, amount = batch.fills, batch.orders.amount
        price = average_price(fills.notional, fills.fill)
        pa = price_advantage(price, batch.benchmarks.twap, batch.orders.side.astype(np.float64))
        gained = np.where(fills.fill > 0, fills.fill / amount * pa, 0.0)
        parts = {
            "pa": self.scale * gained,
            "penalty": -self.scale * self.penalty * fills.squares / amount**2,
        }
        rules = batch.engine.rules
        if rules.have_costs:
            now, side = batch.now, batch.orders.side
            cost = step_costs(fills.notional, fills.cost, now.notional, now.done, side, rules)
            worth = amount * batch.benchmarks.twap
            share = np.divide(cost, worth, out=np.zeros(len(worth)), where=cost > 0)
            parts["cost"] = -self.scale * share * BASIS_POINTS
        return parts


class PPOReward(_BatchReward):
    """One sparse reward at the end of the episode.

    With r the executed price, after costs, over the TWAP of the order's window (its inverse for a buy): -1 for r
    below 1, 0 from 1 on, 1 from 1.1 on; the sparse reward of Lin and Beling (IJCAI 2020), over the window. Rounding
    does not decide: a price that equals the TWAP up to 1e-9 of it is as good. An order of which nothing was filled
    earns -1.
    """

    _ROUNDING = 1e-9

    def parts_batch(self, states: Sequence[OrderState]) -> dict[str, np.ndarray]:
        batch: BatchState = states  # type: ignore[assignment]
        now, side = batch.now, batch.orders.side.astype(np.float64)
        price = average_price(net_value(now.notional, now.cost, side, batch.engine.rules), now.filled)
        ratio = price / batch.benchmarks.twap
        ratio = np.where(batch.orders.side > 0, 1.0 / ratio, ratio)
        ratio = ratio + self._ROUNDING
        final = np.where(ratio >= 1.1, 1.0, np.where(ratio >= 1.0, 0.0, -1.0))
        return {"ppo": np.where(batch.now.done, final, 0.0)}
