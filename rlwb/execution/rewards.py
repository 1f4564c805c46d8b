"""Rewards of order execution."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.costs import net_value, step_costs
from rlwb.execution.metrics import price_advantage, valued_price
from rlwb.execution.rules import BASIS_POINTS
from rlwb.execution.state import Outcome
from rlwb.reward import Reward


class PAPenaltyReward(Reward[Outcome]):
    """Price advantage of what the step filled, less a penalty on trading fast.

    ``scale * (w * PA - penalty * sum_t w_t**2)`` with w the share of the amount filled in the step, w_t in
    the tick, and PA in basis points against the benchmark: against TWAP, the reward of Fang et al. (AAAI 2021,
    arXiv 2103.10860), with the quantity filled in place of the quantity requested. Under rules with costs, a part
    takes off what the step cost, in basis points of the amount at the benchmark; without the penalty, an order's
    rewards then add up to ``scale * ffr`` times its net PA. Where the rules value what stays open, a part at the
    order's end is its share of the amount times its PA, and the sum is ``scale`` times the net PA of the whole amount.

    Parameters
    ----------
    penalty : bp
        Weight of the squared shares, in basis points. It multiplies a sum over ticks: the same trading rate on bars
        five times as long has a sum five times as large, so divide the penalty by five there.
    scale
        Factor of the whole reward.
    weight
        What weighs the PA of a step: the amount that was ``"filled"``, or that was ``"requested"``, as in Qlib.
    inventory : bp
        Weight of the squared share that is left after each step, in basis points: a running penalty on what the market
        can still move against (Jerome et al., mbt_gym, arXiv 2209.07823). More steps have a larger sum.
    """

    def __init__(
        self,
        penalty: float = 20.0,
        scale: float = 1.0,
        weight: Literal["filled", "requested"] = "filled",
        inventory: float = 0.0,
    ) -> None:
        if weight not in ("filled", "requested"):
            raise ConfigError(f"weight is {weight!r}; write 'filled' or 'requested'.")
        self.penalty = penalty
        self.scale = scale
        self.weight = weight
        self.inventory = inventory

    def reward(self, outcome: Outcome) -> dict[str, np.ndarray]:
        amount = outcome.known.amount
        weight = outcome.fill if self.weight == "filled" else outcome.requested
        gained = np.where(outcome.fill > 0, weight / amount * outcome.step_pa, 0.0)
        parts = {
            "pa": self.scale * gained,
            "penalty": -self.scale * self.penalty * outcome.sum_sq_fill / amount**2,
        }
        if self.inventory:
            parts["inventory"] = -self.scale * self.inventory * (outcome.known.position / amount) ** 2
        if outcome.rules.have_costs:
            total, side = outcome.known.notional, outcome.known.side
            cost = step_costs(outcome.notional, outcome.cost, total, outcome.done, side, outcome.rules)
            worth = amount * outcome.benchmark
            share = np.divide(cost, worth, out=np.zeros(len(worth)), where=cost > 0)
            parts["cost"] = -self.scale * share * BASIS_POINTS
        if outcome.rules.values_unfilled:
            rest = np.where(outcome.done, amount - outcome.known.filled, 0.0) / amount
            missed = price_advantage(outcome.unfilled, outcome.benchmark, outcome.known.side)
            parts["opportunity"] = self.scale * rest * missed
        return parts


class SparseReward(Reward[Outcome]):
    """One reward at the end of the episode: -1, 0 or 1.

    With r the executed price, after costs, over the benchmark (its inverse for a buy): -1 for r below 1, 0 from 1 on, 1
    from 1.1 on; against TWAP, the sparse reward of Lin and Beling (IJCAI 2020), over the window. Where the rules value
    what stays open, the price is that of the whole amount. Rounding does not decide: a price that equals the benchmark
    up to 1e-9 of it is as good. An order without a price, of which nothing was filled, earns -1.
    """

    def reward(self, outcome: Outcome) -> np.ndarray:
        known, side = outcome.known, outcome.known.side.astype(np.float64)
        value = net_value(known.notional, outcome.total_cost, side, outcome.rules)
        price = valued_price(value, known.filled, known.amount, outcome.unfilled, outcome.rules)
        ratio = price / outcome.benchmark
        ratio = np.where(side > 0, 1.0 / ratio, ratio) + 1e-9
        final = np.where(ratio >= 1.1, 1.0, np.where(ratio >= 1.0, 0.0, -1.0))
        return np.where(outcome.done, final, 0.0)
