"""The rewards of orders whose fills may be cut, as a piecewise smooth function of what they ask for.

A tick of an order's step asks for its even part of what the step asks for, and fills the lesser of that and its room:
0 at a halt, at a price limit that blocks the side or without volume, `volume_limit` times the volume under a cap. In
the last step a tick asks for all that is due and unfilled (`rlwb.execution.engine`, rules 2 to 4). So what is filled,
what is left after a step, and what all of it earns are the engine's own, with a derivative almost everywhere; where a
fill is cut, what is asked above the room earns nothing more, and the derivative of the fill is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwb.batch import Rows
from rlwb.errors import ConfigError
from rlwb.execution.engine import Engine
from rlwb.execution.kernel import mean_move
from rlwb.execution.metrics import price_advantage
from rlwb.execution.order import OrderBatch
from rlwb.execution.rewards import PAPenaltyReward
from rlwb.execution.rules import BASIS_POINTS

#: The least share whose root is differentiated.
LEAST = 1e-16
#: Rewards that agree to this, of themselves and of 1, are the same: shares are answered in float32.
_CLOSE = 1e-4


@dataclass(frozen=True)
class TickTerms(Rows):
    """The coefficients of N orders of up to K steps of up to W ticks, M ticks in all, in the unit of the reward.

    Attributes
    ----------
    engine
        Whose rules fill.
    penalty
        Weight of the squared share of a tick.
    due : float64 of shape (N, K, W)
        Part of what a step asks for that is due after each of its ticks.
    room : float64 of shape (N, K, W)
        Largest share of the amount that each tick of a step can fill; 0 beyond its ticks.
    catches_up : bool of shape (N, K, W)
        Whether a tick asks for all that is due and unfilled.
    slot : int64 of shape (N, M)
        Place of each tick of the window among the K times W; -1 beyond the window.
    gain, price, whole, inventory : float64 of shape (N, M)
        By ticks from the window's start: the reward of trading all there without penalty and impact, the price, the
        amount as a share of the volume, and the weight of the squared share that is left after it; 0 beyond the window.
    missed : float64 of shape (N,)
        Reward of leaving all untraded.
    """

    engine: Engine
    penalty: float
    due: np.ndarray
    room: np.ndarray
    catches_up: np.ndarray
    slot: np.ndarray
    gain: np.ndarray
    price: np.ndarray
    whole: np.ndarray
    inventory: np.ndarray
    missed: np.ndarray

    def __len__(self) -> int:
        return len(self.gain)

    @property
    def steps(self) -> int:
        """The most steps of an order, K."""
        return self.due.shape[1]

    def trades(self, share: Callable[[list[Any]], Any], start: Any) -> Any:
        """Return the share of the amount that each tick fills, float64 of shape (N, M), by what a policy answers.

        Parameters
        ----------
        share, start
            As those of `StepTerms.trades`; what is left before a step is what the fills before it have left.
        """
        xp, number = _module(start), _numbers(start)
        left, fills = [start * number(np.ones(len(self)))], []
        for k in range(self.steps):
            fills.append(self._fill(k, left[-1] * share(left), xp, number))
            left.append(left[-1] - fills[-1].sum(1))
        flat = xp.concatenate(fills, 1)
        return flat[np.arange(len(self))[:, None], self.slot] * number(self.slot >= 0)

    def _fill(self, k: int, asked: Any, xp: Any, number: Callable[[np.ndarray], Any]) -> Any:
        """Return what the ticks of step k fill, of shape (N, W), where it asks for `asked` of the amount."""
        due, room = self.due[:, k], number(self.room[:, k])
        parts = number(np.diff(due, axis=1, prepend=0.0))
        if not self.catches_up[:, k].any():
            return (asked[:, None] * parts).clip(max=room)
        filled, fills = asked * 0.0, []
        scheduled, late, due = filled, number(self.catches_up[:, k]), number(due)
        for w in range(due.shape[1]):
            now = asked * due[:, w]
            fills.append((now - scheduled + late[:, w] * (scheduled - filled)).clip(max=room[:, w]))
            filled, scheduled = filled + fills[-1], now
        return xp.stack(fills, 1)

    def rewards(self, fills: Any) -> Any:
        """Return the sum of each order's rewards, of shape (N,), where its ticks fill `fills` of shape (N, M).

        The fills are an array or a tensor; of a tensor, so is the result, and it can be differentiated.
        """
        number, terms = _numbers(fills), self.engine.terms
        taken = fills * number(self.whole)

        def power(is_root: bool) -> Any:
            return taken.clip(LEAST) ** 0.5 * (taken > 0) if is_root else taken

        paid = number(self.gain) - self.penalty * fills
        if terms.temporary:
            paid = paid - number(self.price * terms.temporary) * power(terms.temporary_root)
        if terms.permanent:
            moves = terms.permanent * power(terms.permanent_root)
            paid = paid - number(self.price) * (moves.cumsum(1) - moves)
        if terms.transient:
            weights = number(terms.transient * transient_weights(self.engine, fills.shape[1]))
            paid = paid - number(self.price) * (power(terms.transient_root) @ weights)
        left = 1.0 - fills.cumsum(1)
        return (paid * fills - number(self.inventory) * left**2).sum(1) + number(self.missed) * left[:, -1]

    def check_paid(self, fills: np.ndarray, paid: np.ndarray, orders: OrderBatch) -> None:
        """Refuse orders for which the market paid another reward than these terms say, beyond rounding.

        Parameters
        ----------
        fills : float64 of shape (N, M)
            What each tick filled, as `trades` returns it.
        paid : float64 of shape (N,)
            Sums of the rewards.
        """
        check_paid(self.rewards(fills), paid, orders)


def check_paid(found: np.ndarray, paid: np.ndarray, orders: OrderBatch) -> None:
    """Refuse orders for which the market paid, `paid`, another reward than their terms say, `found`, both (N,)."""
    off = ~(np.abs(found - paid) <= _CLOSE * (1.0 + np.abs(paid)))
    if off.any():
        i = int(np.flatnonzero(off)[0])
        raise ConfigError(
            f"{orders.label(i)}: the market paid {paid[i]:.4g}, the replay of what the policy asked for pays "
            f"{found[i]:.4g}, and {int(off.sum())} of {len(off)} orders differ; it fills or pays by something that "
            "cannot be differentiated: choose a learner that needs no derivative, such as ppo."
        )


def is_cut(engine: Engine, orders: OrderBatch) -> bool:
    """Tell whether a tick of an order's step may fill less than its part of the whole amount, or a step nothing."""
    room, priced = engine.room(orders), _has_price(engine.price[orders.session])
    begin, stop = _edges(engine, orders)
    seen = np.pad(priced.cumsum(axis=1), ((0, 0), (1, 0)))
    count = np.take_along_axis(seen, stop, 1) - np.take_along_axis(seen, begin, 1)
    if ((count == 0) & (stop > begin)).any():
        return True
    tick = np.arange(priced.shape[1])
    inside = priced & (tick >= orders.start[:, None]) & (tick < orders.latest_end[:, None])
    step = np.where(inside, engine.cell - engine.cell[orders.start][:, None], 0)
    part = orders.amount[:, None] / np.maximum(np.take_along_axis(count, step, 1), 1)
    return bool((inside & (room < part)).any())


def tick_terms(engine: Engine, reward: PAPenaltyReward, orders: OrderBatch) -> TickTerms:
    """Return the coefficients of orders by tick under the engine's rules and a reward; see `step_terms`."""
    rules, market, rows = engine.rules, engine.market, np.arange(len(orders))[:, None]
    benchmarks, side = engine.benchmarks(orders), orders.side.astype(np.float64)
    ticks = int((orders.latest_end - orders.start).max(initial=1))
    tick = orders.start[:, None] + np.arange(ticks)
    inside = tick < orders.latest_end[:, None]
    tick = np.minimum(tick, engine.price.shape[1] - 1)
    at = (orders.session[:, None], tick)
    priced = inside & _has_price(market.price[at])
    price, volume = np.where(priced, market.price[at], 0.0), market.volume[at]
    amount, benchmark = orders.amount[:, None], benchmarks.benchmark[:, None]
    room = np.where(priced, np.minimum(engine.room(orders)[rows, tick] / amount, 1.0), 0.0)
    whole = np.divide(amount, volume, out=np.zeros(price.shape), where=priced & (volume > 0))
    rate = rules.half_spread_bps + rules.commission_bps + np.where(side < 0, rules.sell_tax_bps, 0.0)
    spread = np.where(priced, market.half_spread[at], 0.0) if market.half_spread.shape[0] else 0.0
    unit = reward.scale * BASIS_POINTS / benchmark
    gain = unit * (side[:, None] * (benchmark - price) - spread - price * rate[:, None] / BASIS_POINTS)

    begin, stop = (edge - orders.start[:, None] for edge in _edges(engine, orders))
    width = int((stop - begin).max(initial=1))
    is_last = np.arange(begin.shape[1]) == engine.num_steps(orders)[:, None] - 1
    within = begin[:, :, None] + np.arange(width)
    valid = within < stop[:, :, None]
    seen, place = np.pad(priced.cumsum(axis=1), ((0, 0), (1, 0))), rows[:, :, None]
    before = np.take_along_axis(seen, begin, 1)
    count = np.take_along_axis(seen, stop, 1) - before
    since = seen[place, np.minimum(within + 1, stop[:, :, None])] - before[:, :, None]
    within = np.minimum(within, ticks - 1)
    step = np.where(inside, engine.cell[tick] - engine.cell[orders.start][:, None], 0)
    left = np.zeros(price.shape)
    exists = np.nonzero(stop > begin)
    left[exists[0], stop[exists] - 1] = reward.scale * reward.inventory
    missed = np.zeros(len(orders))
    if rules.values_unfilled:
        missed = reward.scale * price_advantage(benchmarks.unfilled, benchmarks.benchmark, side)
    return TickTerms(
        engine=engine,
        penalty=reward.scale * reward.penalty,
        due=since / np.maximum(count, 1)[:, :, None],
        room=np.where(valid, room[place, within], 0.0),
        catches_up=is_last[:, :, None] & (rules.catch_up | (since == count[:, :, None])),
        slot=np.where(inside, step * width + np.arange(ticks) - np.take_along_axis(begin, step, 1), -1),
        gain=np.where(priced, gain, 0.0),
        price=unit * price,
        whole=whole,
        inventory=left,
        missed=missed,
    )


def _edges(engine: Engine, orders: OrderBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return the ticks ``[begin, stop)`` of each order's steps, int64 of shape (N, K); the end of the window after."""
    steps = int(engine.num_steps(orders).max(initial=1))
    cell = engine.cell[orders.start][:, None] + np.arange(steps)
    end = orders.latest_end[:, None]
    begin = np.maximum(orders.start[:, None], np.searchsorted(engine.cell, cell))
    return np.minimum(begin, end), np.minimum(end, np.searchsorted(engine.cell, cell, side="right"))


def _has_price(price: np.ndarray) -> np.ndarray:
    return (price > 0) & (price < np.inf)


def _module(values: Any) -> Any:
    """Return the module of an array or a tensor."""
    if isinstance(values, np.ndarray):
        return np
    import torch

    return torch


def _numbers(like: Any) -> Callable[[np.ndarray], Any]:
    """Return what makes numbers of an array, float64, of the same kind as `like` and on its device."""
    if isinstance(like, np.ndarray):
        return lambda values: values.astype(np.float64, copy=False)
    import torch

    return lambda values: torch.as_tensor(values, dtype=torch.float64, device=like.device)


def transient_weights(engine: Engine, ticks: int) -> np.ndarray:
    """Return what a tick's transient move weighs in the price of each tick, float64 of shape (ticks, ticks).

    In row j and column t it is what is left of the move of tick j in tick t; in a move's own tick the part that the
    fill itself pays, and 0 before.
    """
    lag = np.arange(ticks) - np.arange(ticks)[:, None]
    left = engine.rules.transient_left(np.maximum(lag, 0) * engine.sessions.calendar.tick_minutes)
    return np.where(lag > 0, left, np.where(lag == 0, mean_move(1.0, engine.terms.transient_root), 0.0))
