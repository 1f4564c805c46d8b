"""The rules of execution as a slow loop over plain numbers: the specification of `rlwb.execution.engine`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rlwb.execution import ExecutionRules
from rlwb.market import Sessions

TOLERANCE = 1e-9


@dataclass
class Tick:
    price: float
    volume: float
    halted: bool = False
    half_spread: float = 0.0

    @property
    def priced(self) -> bool:
        return self.price > 0 and math.isfinite(self.price)


def ticks_of(sessions: Sessions, row: int, rules: ExecutionRules) -> list[Tick]:
    """What each tick of a session offers under the rules."""
    out = []
    for t in range(sessions.calendar.num_ticks):
        volume = float(sessions.fields["volume"][row, t])
        halted = sessions.halted is not None and bool(sessions.halted[row, t])
        if rules.price_field == "quotes":
            bid, ask = float(sessions.fields["bid"][row, t]), float(sessions.fields["ask"][row, t])
            out.append(Tick(bid + (ask - bid) / 2, volume, halted, max((ask - bid) / 2, 0.0)))
        else:
            out.append(Tick(float(sessions.fields[rules.price_field][row, t]), volume, halted))
    return out


class SpecifiedOrder:
    """One order on one session.

    `cells` is the step-grid cell of each tick of the clock; `limits` the lower and upper price limit; `end` is the
    latest one; `forms` are what the order states.
    """

    def __init__(
        self,
        ticks: list[Tick],
        cells: list[int],
        side: int,
        amount: float,
        start: int,
        end: int,
        rules: ExecutionRules,
        limits: tuple[float, float] = (-math.inf, math.inf),
        forms: Mapping[str, float] | None = None,
        tick_minutes: float = 1.0,
    ) -> None:
        self.forms = {name: value for name, value in (forms or {}).items() if not math.isnan(value)}
        self.ticks, self.cells, self.side, self.amount = ticks, cells, side, amount
        self.end, self.rules, self.limits = end, rules, limits
        self.tick, self.position, self.asked = start, amount, 0.0
        self.odd = 0.0
        if rules.lot_size:
            self.odd = amount - math.floor(amount / rules.lot_size + TOLERANCE) * rules.lot_size
        self.fills: dict[int, float] = {}
        self.costs: dict[int, float] = {}
        self.step_cost = 0.0
        self.moved = 0.0
        self.moves: dict[int, float] = {}
        self.tick_minutes = tick_minutes
        self.done = False

    def rounded(self, amount: float) -> float:
        lot = self.rules.lot_size
        return math.floor(amount / lot + 0.5) * lot

    def is_worse(self, t: int, name: str) -> bool:
        """Whether a buy would pay more, a sell get less, than the price that the order states."""
        tick, stated = self.ticks[t], self.forms[name]
        return self.side * (tick.price + self.side * tick.half_spread - stated) > TOLERANCE * stated

    def share(self, t: int, share: float) -> float:
        """A share of the tick's volume, in whole lots."""
        amount, lot = share * max(self.ticks[t].volume, 0.0) if self.ticks[t].volume > 0 else 0.0, self.rules.lot_size
        return math.floor(amount / lot + TOLERANCE) * lot if lot else amount

    def room(self, t: int) -> float:
        """How much the tick can fill."""
        tick = self.ticks[t]
        lower, upper = self.limits
        if (
            (self.rules.halts and tick.halted)
            or (self.side > 0 and tick.price >= upper)
            or (self.side < 0 and tick.price <= lower)
        ):
            return 0.0
        if "limit_price" in self.forms and self.is_worse(t, "limit_price"):
            return 0.0
        shares = [share for share in (self.rules.volume_limit, self.forms.get("max_participation")) if share]
        return self.share(t, min(shares)) if shares else math.inf

    def charge(self, t: int, fill: float) -> float:
        """What a fill costs beside its price, in currency; it moves the price for later fills."""
        if fill == 0:
            return 0.0
        tick, rules, cost = self.ticks[t], self.rules, 0.0
        if rules.price_field == "quotes":
            cost += fill * tick.half_spread
        if rules.temporary_impact_bps or rules.permanent_impact_bps:
            share = min(fill / tick.volume, 1.0)
            shaped = {"linear": share, "square_root": math.sqrt(share)}
            temporary = rules.temporary_impact_bps / 1e4 * shaped[rules.temporary_impact_shape]
            cost += fill * tick.price * (self.moved + temporary)
            self.moved += rules.permanent_impact_bps / 1e4 * shaped[rules.permanent_impact_shape]
        if rules.transient_impact_bps:
            share, shape = min(fill / tick.volume, 1.0), rules.transient_impact_shape or "square_root"
            move = rules.transient_impact_bps / 1e4 * {"linear": share, "square_root": math.sqrt(share)}[shape]
            mean = {"linear": 1 / 2, "square_root": 2 / 3}[shape]
            cost += fill * tick.price * (self.transient(t) + mean * move)
            self.moves[t] = move
        return cost

    def transient(self, t: int) -> float:
        """What is left at a tick of the moves of the earlier ones."""
        return sum(move * self.left_after(t - earlier) for earlier, move in self.moves.items())

    def left_after(self, ticks: int) -> float:
        """The part of a transient move that is left some ticks later."""
        rules, minutes = self.rules, ticks * self.tick_minutes
        assert rules.transient_half_life
        if rules.transient_decay == "exponential":
            return math.exp(-math.log(2) * minutes / rules.transient_half_life)
        exponent = rules.transient_exponent or 0.5
        tau = rules.transient_half_life / (2 ** (1 / exponent) - 1)
        return float((1 + minutes / tau) ** -exponent)

    def step(self, ask: float) -> float:
        """Execute the next step; return what it filled."""
        step = [t for t in range(self.tick, self.end) if self.cells[t] == self.cells[self.tick]]
        last_step = step[-1] == self.end - 1
        priced = [t for t in step if self.ticks[t].priced]
        odd = self.rules.odd_lot
        trade_odd = odd == "trade_at_end" or (odd == "sell_at_end" and self.side < 0)
        everything = ask >= self.position - TOLERANCE * self.amount
        filled, scheduled = 0.0, 0.0
        self.step_cost = 0.0
        for k, t in enumerate(priced, start=1):
            closing = last_step and k == len(priced) and (self.rules.complete_at_end or everything)
            due = ask if k == len(priced) else ask * k / len(priced)
            if self.rules.lot_size:
                due = self.rounded(self.asked + due) - self.rounded(self.asked)
            available = self.position if closing and trade_odd else self.position - self.odd
            if closing:
                want = available
            elif last_step and self.rules.catch_up:
                want = due - filled
            else:
                want = due - scheduled
            scheduled = due
            want = max(min(want, available), 0.0)
            if "would_price" in self.forms and not self.is_worse(t, "would_price"):
                want = self.position if trade_odd else self.position - self.odd
            elif "min_participation" in self.forms:
                want = max(want, min(self.share(t, self.forms["min_participation"]), available))
            room = self.room(t)
            fill = min(want, room)
            if room >= want and fill > 0 and self.position - fill <= TOLERANCE * self.amount:
                fill = self.position
            self.position -= fill
            filled += fill
            self.fills[t] = fill
            self.costs[t] = self.charge(t, fill)
            self.step_cost += self.costs[t]
        self.asked += ask
        self.tick = step[-1] + 1
        tradable = self.position if trade_odd else self.position - self.odd
        self.done = self.tick >= self.end or tradable <= TOLERANCE * self.amount
        return filled
