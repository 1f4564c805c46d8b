"""The rewards of orders as a differentiable function of what their steps trade.

Prices of a replayed market do not depend on the policy. So for given orders the reward of trading the share s_k of the
amount in step k is a sum of powers of the shares, whose coefficients are known after the day:

    (gain_k - temporary_k s_k**e - own_k s_k**f - value_k moved_k - passing_k - penalty_k s_k) s_k - inventory_k q_k**2,

with e, f and g 1 for linear and 1/2 for square-root impact, moved_k the sum of ``moves_j s_j**f`` over the steps j
before k, passing_k that of ``passing_kj s_j**g`` over the steps up to k, which is transient impact, and q_k the share
that is left after step k. The engine and `PAPenaltyReward` pay it where nothing cuts a fill;
`StepTerms.check_paid` tells where something did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwb.batch import Rows
from rlwb.errors import ConfigError
from rlwb.execution.engine import Engine
from rlwb.execution.kernel import mean_move
from rlwb.execution.order import OrderBatch
from rlwb.execution.rewards import PAPenaltyReward
from rlwb.execution.rules import BASIS_POINTS

#: The least share whose root is differentiated.
_LEAST = 1e-16
#: Rewards that agree to this, of themselves and of 1, are the same: shares are answered in float32.
_CLOSE = 1e-4
#: Numbers of an array of orders, steps and ticks held at once.
_CELLS = 1 << 22


@dataclass(frozen=True)
class StepTerms(Rows):
    """The coefficients of N orders of up to K steps, in the unit of the reward; 0 beyond an order's steps.

    Attributes
    ----------
    gain, temporary, own, value, moves, penalty, inventory : float64 of shape (N, K)
    passing : float64 of shape (N, K, K)
        What trading all in step j costs in step k by transient impact, 0 for j above k; of shape (N, 0, 0) without it.
    temporary_power, permanent_power, transient_power : float64 of shape (N,)
        The powers e, f and g of the impact.
    """

    gain: np.ndarray
    temporary: np.ndarray
    own: np.ndarray
    value: np.ndarray
    moves: np.ndarray
    penalty: np.ndarray
    inventory: np.ndarray
    passing: np.ndarray
    temporary_power: np.ndarray
    permanent_power: np.ndarray
    transient_power: np.ndarray

    def __len__(self) -> int:
        return len(self.gain)

    def rewards(self, shares: Any) -> Any:
        """Return the sum of each order's rewards, of shape (N,), where its steps trade `shares` of shape (N, K).

        The shares are an array or a tensor; of a tensor, so is the result, and it can be differentiated.
        """
        is_array = isinstance(shares, np.ndarray)
        c = {name: values if is_array else shares.new_tensor(values) for name, values in vars(self).items()}
        e, f = c["temporary_power"][:, None], c["permanent_power"][:, None]
        root = shares.clip(_LEAST) ** f
        moves = c["moves"] * root
        moved = moves.cumsum(1) - moves
        left = 1.0 - shares.cumsum(1)
        paid = c["gain"] - c["temporary"] * shares.clip(_LEAST) ** e - c["own"] * root - c["value"] * moved
        if c["passing"].shape[1]:
            paid = paid - (c["passing"] * shares.clip(_LEAST)[:, None] ** c["transient_power"][:, None, None]).sum(2)
        return ((paid - c["penalty"] * shares) * shares - c["inventory"] * left**2).sum(1)

    def check_paid(self, shares: np.ndarray, paid: np.ndarray, orders: OrderBatch) -> None:
        """Refuse orders for which the market paid another reward than these terms say: something cut their fills.

        Parameters
        ----------
        shares : float64 of shape (N, K)
            What was asked for in each step.
        paid : float64 of shape (N,)
            Sums of the rewards.
        """
        found = self.rewards(shares)
        off = ~(np.abs(found - paid) <= _CLOSE * (1.0 + np.abs(paid)))
        if off.any():
            i = int(np.flatnonzero(off)[0])
            raise ConfigError(
                f"{orders.label(i)}: the market paid {paid[i]:.4g}, its prices and what the policy asked for would pay "
                f"{found[i]:.4g}, and {int(off.sum())} of {len(off)} orders differ; a volume cap, a halt or a bar "
                "without volume cuts fills, which cannot be differentiated: lift it, or choose a learner such as ppo."
            )


def step_terms(engine: Engine, reward: Any, orders: OrderBatch) -> StepTerms:
    """Return the coefficients of orders under the engine's rules and a `PAPenaltyReward`.

    Raises
    ------
    ConfigError
        Naming the rule or the reward that has none.
    """
    check_differentiable(engine, reward)
    rules, market, scale = engine.rules, engine.market, reward.scale
    benchmarks, side = engine.benchmarks(orders), orders.side.astype(np.float64)
    count, steps = len(orders), int(engine.num_steps(orders).max(initial=1))
    sums = {name: np.zeros((count, steps)) for name in ("ticks", "price", "spread", "root", "pressed", "ahead")}
    rows = np.arange(count)
    tick = np.arange(engine.price.shape[1])
    inside = (tick >= orders.start[:, None]) & (tick < orders.end[:, None])
    step = np.where(inside, engine.cell - engine.cell[orders.start][:, None], 0)
    price, volume = market.price[orders.session], market.volume[orders.session]
    inside &= (price > 0) & (price < np.inf)
    for t in tick[inside.any(axis=0)]:
        at = rows[inside[:, t]]
        k, p = step[at, t], price[at, t]
        sums["ticks"][at, k] += 1
        sums["price"][at, k] += p
        if market.half_spread.shape[0]:
            sums["spread"][at, k] += market.half_spread[orders.session[at], t]
        if rules.temporary_impact_bps or rules.permanent_impact_bps:
            traded = volume[at, t]  # without any, the impact is no number, and `check_paid` refuses the order
            part = np.divide(orders.amount[at], traded, out=np.full(len(at), np.nan), where=traded > 0)
            taken = np.sqrt(part) if rules.temporary_impact_shape == "square_root" else part
            sums["root"][at, k] += p * taken
            # The permanent impact of the step's earlier ticks acts on this one.
            sums["ahead"][at, k] += p * sums["pressed"][at, k]
            sums["pressed"][at, k] += np.sqrt(part) if rules.permanent_impact_shape == "square_root" else part
    n = np.maximum(sums["ticks"], 1.0)
    e, f, g = (
        0.5 if is_root else 1.0
        for is_root in (engine.terms.temporary_root, engine.terms.permanent_root, engine.terms.transient_root)
    )
    benchmark = benchmarks.benchmark[:, None]
    unit = scale * BASIS_POINTS / benchmark
    rate = rules.half_spread_bps + rules.commission_bps + np.where(side < 0, rules.sell_tax_bps, 0.0)
    mean = sums["price"] / n
    is_step = sums["ticks"] > 0
    gain = unit * (side[:, None] * (benchmark - mean) - sums["spread"] / n - mean * rate[:, None] / BASIS_POINTS)
    temporary, permanent = rules.temporary_impact_bps / BASIS_POINTS, rules.permanent_impact_bps / BASIS_POINTS
    passing = np.zeros((count, 0, 0))
    if rules.transient_impact_bps:
        passing = _passing(engine, orders, np.where(inside, price, 0.0), step, steps)
        passing = unit[:, None] * passing / (n[:, :, None] * n[:, None] ** g)
    exists = np.arange(steps) < engine.num_steps(orders)[:, None]
    return StepTerms(
        gain=np.where(is_step, gain, 0.0),
        temporary=unit * temporary * sums["root"] / n ** (1 + e),
        own=unit * permanent * sums["ahead"] / n ** (1 + f),
        value=unit * mean,
        moves=permanent * sums["pressed"] / n**f,
        penalty=scale * reward.penalty / n * is_step,
        inventory=scale * reward.inventory * exists,
        passing=passing,
        temporary_power=np.full(count, e),
        permanent_power=np.full(count, f),
        transient_power=np.full(count, g),
    )


def _passing(engine: Engine, orders: OrderBatch, price: np.ndarray, step: np.ndarray, steps: int) -> np.ndarray:
    """Return the transient move of trading all in each tick of step j, summed over the price of step k's, (N, K, K).

    Parameters
    ----------
    price, step : of shape (N, T)
        Price of the ticks that trade, 0 elsewhere, and the step of each tick.
    """
    terms, count, ticks = engine.terms, *price.shape
    lag = np.arange(ticks) - np.arange(ticks)[:, None]
    left = engine.rules.transient_left(np.maximum(lag, 0) * engine.sessions.calendar.tick_minutes)
    left = np.where(lag > 0, left, np.where(lag == 0, mean_move(1.0, terms.transient_root), 0.0))
    found, block = np.zeros((count, steps, steps)), max(1, _CELLS // (steps * ticks))
    for low in range(0, count, block):
        rows = slice(low, low + block)
        volume, trades = engine.market.volume[orders.session[rows]], price[rows] > 0
        whole = np.where(volume > 0, orders.amount[rows, None], np.nan) / volume
        moves = np.where(trades, np.sqrt(whole) if terms.transient_root else whole, 0.0)
        of_step = step[rows, None] == np.arange(steps)[:, None]
        felt = np.where(of_step, moves[:, None], 0.0) @ left
        found[rows] = np.where(of_step, price[rows, None], 0.0) @ felt.swapaxes(1, 2)
    return terms.transient * found


def check_differentiable(engine: Engine, reward: Any) -> None:
    """Refuse, by name, rules and rewards whose result is no smooth function of what the steps trade."""
    rules = engine.rules
    wrong = {
        "lot_size": rules.lot_size > 0,
        "price_limit": rules.price_limit is not None,
        "min_fee": rules.min_fee > 0,
        "complete_at_end: false": not rules.complete_at_end,
    }
    named = [name for name, holds in wrong.items() if holds]
    if type(reward) is not PAPenaltyReward:
        named.append(f"the reward {type(reward).__name__}")
    if named:
        raise ConfigError(
            f"{' and '.join(named)} cannot be differentiated by the amounts that an order trades; drop "
            f"{'them' if named[1:] else 'it'}, or choose a learner that needs no derivative, such as ppo."
        )
