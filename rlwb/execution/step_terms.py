"""The rewards of orders as a differentiable function of what they ask for.

Prices of a replayed market do not depend on the policy. So for given orders the reward of trading the share s_k of the
amount in step k is a sum of powers of the shares, whose coefficients are known after the day:

    (gain_k - temporary_k s_k**e - own_k s_k**f - value_k moved_k - passing_k - penalty_k s_k) s_k - inventory_k q_k**2,

with e, f and g 1 for linear and 1/2 for square-root impact, moved_k the sum of ``moves_j s_j**f`` over the steps j
before k, passing_k that of ``passing_kj s_j**g`` over the steps up to k, which is transient impact, and q_k the share
that is left after step k. This is `StepTerms`; it holds where nothing can cut a fill. Where a volume cap, a halt, a
price limit, or a bar without volume or price can, `rlwb.execution.tick_terms` follows the orders tick by tick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwb.batch import Rows
from rlwb.errors import ConfigError
from rlwb.execution.engine import Engine
from rlwb.execution.order import OrderBatch
from rlwb.execution.rewards import PAPenaltyReward
from rlwb.execution.rules import BASIS_POINTS
from rlwb.execution.tick_terms import LEAST, TickTerms, check_paid, is_cut, tick_terms, transient_weights

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

    @property
    def steps(self) -> int:
        """The most steps of an order, K."""
        return self.gain.shape[1]

    def trades(self, share: Callable[[list[Any]], Any], start: Any) -> Any:
        """Return the share of the amount that each step trades, float64 of shape (N, K), by what a policy answers.

        Parameters
        ----------
        share
            Takes the shares of the amount left before the steps so far, a list of (N,), to the share of the position
            that the last one of them asks for, of shape (N,); it must be 1 in an order's last step.
        start
            Ones of shape (N,), an array or a tensor; of a tensor, so is the result, and it can be differentiated.
        """
        left = [start]
        for _ in range(self.steps):
            left.append(left[-1] * (1.0 - share(left)))
        if isinstance(start, np.ndarray):
            return -np.diff(np.stack(left, axis=1), axis=1)
        import torch

        return -torch.stack(left, dim=1).double().diff(dim=1)

    def rewards(self, shares: Any) -> Any:
        """Return the sum of each order's rewards, of shape (N,), where its steps trade `shares` of shape (N, K).

        The shares are an array or a tensor; of a tensor, so is the result, and it can be differentiated.
        """
        is_array = isinstance(shares, np.ndarray)
        c = {name: values if is_array else shares.new_tensor(values) for name, values in vars(self).items()}
        e, f = c["temporary_power"][:, None], c["permanent_power"][:, None]
        root = shares.clip(LEAST) ** f
        moves = c["moves"] * root
        moved = moves.cumsum(1) - moves
        left = 1.0 - shares.cumsum(1)
        paid = c["gain"] - c["temporary"] * shares.clip(LEAST) ** e - c["own"] * root - c["value"] * moved
        if c["passing"].shape[1]:
            paid = paid - (c["passing"] * shares.clip(LEAST)[:, None] ** c["transient_power"][:, None, None]).sum(2)
        return ((paid - c["penalty"] * shares) * shares - c["inventory"] * left**2).sum(1)

    def check_paid(self, shares: np.ndarray, paid: np.ndarray, orders: OrderBatch) -> None:
        """Refuse orders for which the market paid another reward than these terms say, beyond rounding.

        Parameters
        ----------
        shares : float64 of shape (N, K)
            What each step traded, as `trades` returns it.
        paid : float64 of shape (N,)
            Sums of the rewards.
        """
        check_paid(self.rewards(shares), paid, orders)


def step_terms(engine: Engine, reward: Any, orders: OrderBatch) -> StepTerms | TickTerms:
    """Return the coefficients of orders under the engine's rules and a `PAPenaltyReward`.

    They are by step where nothing can cut a fill of these orders, whatever they ask for, and by tick else.

    Raises
    ------
    ConfigError
        Naming the rule, the reward or the form of the orders that has none.
    """
    check_differentiable(engine, reward)
    wrong: list[str] = [name for name in ("would_price", "min_participation") if name in orders.forms]
    if wrong:
        raise _no_derivative(wrong)
    if is_cut(engine, orders):
        return tick_terms(engine, reward, orders)
    rules, market, scale = engine.rules, engine.market, reward.scale
    benchmarks, side = engine.benchmarks(orders), orders.side.astype(np.float64)
    count, steps = len(orders), int(engine.num_steps(orders).max(initial=1))
    sums = {name: np.zeros((count, steps)) for name in ("ticks", "price", "spread", "root", "pressed", "ahead")}
    rows = np.arange(count)
    tick = np.arange(engine.price.shape[1])
    inside = (tick >= orders.start[:, None]) & (tick < orders.latest_end[:, None])
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
            traded = volume[at, t]
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
    left = transient_weights(engine, ticks)
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
        "min_fee": rules.min_fee > 0,
        "complete_at_end: false": not rules.complete_at_end,
        "the reward's weight: requested": getattr(reward, "weight", "filled") == "requested",
        f"the reward {type(reward).__name__}": type(reward) is not PAPenaltyReward,
    }
    if named := [name for name, holds in wrong.items() if holds]:
        raise _no_derivative(named)


def _no_derivative(named: list[str]) -> ConfigError:
    return ConfigError(
        f"{' and '.join(named)} cannot be differentiated by the amounts that an order trades; drop "
        f"{'them' if named[1:] else 'it'}, or choose a learner that needs no derivative, such as ppo."
    )
