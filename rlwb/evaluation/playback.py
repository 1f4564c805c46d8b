"""Orders executed again, decision by decision, with what the policy expected at each."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import OrderError
from rlwb.evaluation.results import PolicyResult, policy_title
from rlwb.execution import OrderExecution, audit
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import BASIS_POINTS, valid_prices
from rlwb.learner import Expectation
from rlwb.reward import Reward

#: Orders that are kept after they were executed again.
_KEPT = 32
#: Share of an order below which nothing was traded.
_NOTHING = 1e-9
#: Share of an order that is rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Played:
    """One order as one policy executed it.

    Attributes
    ----------
    policy
        Name in tables.
    title
        The order in words.
    start, times, price
        First tick of the window; start of each of its n ticks, text such as ``10:30``; their prices, float64 of shape
        (n,), NaN where there is none.
    benchmark, amount, side
        Price that the PA is against, amount of the order, and +1 for a purchase, -1 for a sale.
    ticks, steps, summary
        See `rlwb.execution.audit`.
    decisions
        One row a step: `first` and `stop`, the ticks ``[first, stop)``; `time` and `until`, text; `held`, `asked` and
        `filled` as shares of the order; `waiting` and `threshold`, what waiting was expected to cost and what it may
        cost at most, bp; `came`, what it came to cost; `pa`, the part of the order's PA that is earned so far, bp.
    actions
        Names of the A actions where the policy chooses among some, else none.
    chances, values
        The chance of each action, and what it is expected to earn, of shape (steps, A); None where there are none.
    """

    policy: str
    title: str
    start: int
    times: tuple[str, ...]
    price: np.ndarray
    benchmark: float
    amount: float
    side: int
    ticks: pd.DataFrame = field(repr=False)
    steps: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame = field(repr=False)
    decisions: pd.DataFrame = field(repr=False)
    actions: tuple[str, ...] = ()
    chances: np.ndarray | None = None
    values: np.ndarray | None = None

    @property
    def name(self) -> str:
        """Name in sentences."""
        return policy_title(self.policy)

    @property
    def pa(self) -> float:
        """PA of the order, bp; NaN where nothing was filled."""
        return float(self.summary["pa"].iloc[0])

    def earned(self) -> np.ndarray:
        """Return the part of the order's PA that is earned after each of the ticks, bp, float64 of shape (ticks,)."""
        filled, price = (self.ticks[name].to_numpy(dtype=np.float64) for name in ("filled", "price"))
        valued = float(self.summary["filled"].iloc[0])
        if not valued > 0:
            return np.full(len(filled), np.nan)
        gained = np.where(filled > 0, filled * (1.0 - price / self.benchmark), 0.0)
        return np.asarray(self.side * gained.cumsum() * BASIS_POINTS / valued)

    def why(self, step: int) -> str:
        """Return in words what the policy did in a step and what it expected there, as far as it has an expectation."""
        if step >= len(self.decisions):
            return f"{self.name} was done at {self.decisions['until'].iloc[-1]}."
        row = self.decisions.iloc[step]
        does = "waits" if row["asked"] <= _NOTHING else f"trades {_percent(row['filled'])} of the order"
        if row["asked"] - row["filled"] > _ROUNDING:
            does += f" of the {_percent(row['asked'])} that it asks for"
        told = [f"{self.name} {does}; {_percent(row['held'])} was left."]
        if not np.isnan(row["waiting"]):
            limit = row["threshold"]
            rule = "" if np.isnan(limit) else f" and trades once it costs more than {_bp(limit)}"
            told.append(f"It expects waiting to {_costs(row['waiting'])}{rule}.")
        if self.chances is not None:
            best = int(self.chances[step].argmax())
            told.append(f"Most probable action: {self.actions[best]} ({_percent(self.chances[step, best])}).")
        if self.values is not None:
            best = int(np.nanargmax(self.values[step]))
            told.append(f"Most valuable action: {self.actions[best]} (reward {self.values[step, best]:.2f}).")
        if self.decisions["waiting"].isna().all() and self.chances is None and self.values is None:
            told.append("It tells no expectation.")
        if not np.isnan(row["came"]):
            came = "cost" if row["came"] >= 0 else "gained"
            waited = "waiting" if row["asked"] <= _NOTHING else "waiting would have"
            told.append(f"In hindsight {waited} {came} {_bp(abs(row['came']))}.")
        return " ".join(told)

    def table(self, step: int | None = None) -> pd.DataFrame:
        """Return the audit for reading: a row a step, or a row a bar of one `step`."""
        if step is not None:
            ticks = self.ticks[self.ticks["step"] == step]
            shown = ticks.drop(columns=["order_id", "tick", "step"])
            return shown.assign(time=[f"{one:%H:%M}" for one in shown["time"]]).set_index("time")
        parts = {one: one.removeprefix("reward_") for one in self.steps if one.startswith("reward_")}
        decided = self.decisions
        named = {
            **{f"{name}, %": 100 * decided[name] for name in ("held", "asked", "filled")},
            "price": self.steps["price"],
            "waiting expected to cost, bp": decided["waiting"],
            "trades above, bp": decided["threshold"],
            "waiting did cost, bp": decided["came"],
            "PA so far, bp": decided["pa"],
            **{f"reward {name}": self.steps[one] for one, name in parts.items()},
            "reward": self.steps["reward"],
        }
        return pd.DataFrame(named).set_index(pd.Index(decided["time"], name="time")).dropna(axis=1, how="all")


class _Told:
    """A policy, and what it says that it expects at the decisions that it is asked for."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self.expectations: list[Expectation | None] = []

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        expects = getattr(self._policy, "expectation", None)
        self.expectations.append(None if expects is None else expects(obs))
        return np.asarray(self._policy.act(obs))


def play_order(
    simulator: OrderExecution, order: OrderBatch, name: str, playable: tuple[Any, Any, Any], reward: Reward[Any] | None
) -> Played:
    """Execute one order by a policy, asking it before each step what it expects.

    Parameters
    ----------
    order
        A batch of one.
    name
        Name of the policy.
    playable
        The policy, what it sees, and what its actions mean.
    reward
        Whose parts the steps show.
    """
    policy, sees, acts = playable
    told = _Told(policy)
    ticks, steps, summary = audit(
        simulator, order, told, state_interpreter=sees, action_interpreter=acts, reward=reward
    )
    engine, found = simulator.engine, summary.iloc[0]
    calendar, start, end = engine.sessions.calendar, int(order.start[0]), int(order.latest_end[0])
    price = valid_prices(engine.price[order.session[0], start:end])
    amount, side = float(order.amount[0]), int(order.side[0])
    first, stop = steps["start_tick"].to_numpy(), steps["end_tick"].to_numpy()
    fill = steps["fill"].to_numpy()
    paid = np.where(fill > 0, fill * steps["price"].fillna(0.0).to_numpy(), 0.0)
    benchmark, valued = float(found["benchmark"]), float(found["filled"])
    gained = side * (fill - paid / benchmark) * BASIS_POINTS
    expected = pd.DataFrame(
        [
            (np.nan, np.nan) if one is None else (_first(one.waiting), _first(one.threshold))
            for one in told.expectations
        ],
        columns=["waiting", "threshold"],
    )
    decisions = pd.DataFrame(
        {
            "first": first,
            "stop": stop,
            "time": [f"{calendar.time_of(int(one)):%H:%M}" for one in first],
            "until": [_end_of(calendar, int(one)) for one in stop],
            "held": (steps["position"] + fill) / amount,
            "asked": steps["requested"] / amount,
            "filled": fill / amount,
            "waiting": expected["waiting"].where(stop < end),  # after the last step there is nothing to wait for
            "threshold": expected["threshold"],
            "came": [_came(price, int(a) - start, int(b) - start, side) for a, b in zip(first, stop, strict=True)],
            "pa": np.cumsum(gained) / valued if valued > 0 else np.nan,
        }
    )
    chances, values = (
        _stacked([getattr(one, part, None) for one in told.expectations]) for part in ("chances", "values")
    )
    wide = chances if chances is not None else values
    shares = getattr(acts, "shares", None)
    count = 0 if wide is None else wide.shape[1]
    actions = [f"action {one}" for one in range(count)] if shares is None else [f"{100 * one:.3g} %" for one in shares]
    words = "buy" if side > 0 else "sell"
    title = f"{found['instrument']} on {pd.Timestamp(found['date']):%Y-%m-%d}: {words} {amount:,.6g}"
    return Played(
        name,
        title,
        start,
        tuple(f"{calendar.time_of(one):%H:%M}" for one in range(start, end)),
        price,
        benchmark,
        amount,
        side,
        ticks,
        steps,
        summary,
        decisions,
        tuple(actions[:count]),
        chances,
        values,
    )


def _first(values: np.ndarray | None) -> float:
    return np.nan if values is None else float(values[0])


def _stacked(rows: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return (1, A) each as (steps, A); None where one is missing."""
    known = [one for one in rows if one is not None]
    return np.concatenate(known) if known and len(known) == len(rows) else None


def _came(price: np.ndarray, first: int, stop: int, side: int) -> float:
    """Return what waiting came to cost, bp: the mean of the later prices of the window over that of the step's."""
    now, later = price[first:stop], price[stop:]
    now, later = now[np.isfinite(now)], later[np.isfinite(later)]
    if not len(now) or not len(later):
        return np.nan
    return float(side * (later.mean() / now.mean() - 1.0) * BASIS_POINTS)


def _end_of(calendar: Any, stop: int) -> str:
    """Return when the tick before `stop` ends."""
    begins = dt.datetime.combine(dt.date.min, calendar.time_of(stop - 1))
    return f"{begins + dt.timedelta(minutes=calendar.tick_minutes):%H:%M}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _costs(value: float) -> str:
    return f"cost {_bp(value)}" if round(value, 1) >= 0 else f"gain {_bp(-value)}"


def _bp(value: float) -> str:
    return f"{value:z.1f} bp".replace("-", "\N{MINUS SIGN}")


class Playback:
    """Orders, to be found in lists and executed again by policies side by side.

    Parameters
    ----------
    simulator
        Of the orders; it must keep ticks.
    orders
        All that can be chosen.
    policies
        Name to policy, what it sees, and what its actions mean.
    reward
        Whose parts are shown.
    results
        Of some of the policies on these orders: their PAs stand in the lists of orders.

    Raises
    ------
    OrderError
        When the simulator keeps no ticks, or there are no orders.
    """

    def __init__(
        self,
        simulator: Any,
        orders: OrderBatch,
        policies: Mapping[str, tuple[Any, Any, Any]],
        reward: Reward[Any] | None = None,
        results: Sequence[PolicyResult] = (),
    ) -> None:
        if not isinstance(simulator, OrderExecution):
            raise OrderError("the simulator keeps no ticks; derive it from rlwb.execution.OrderExecution.")
        if not len(orders):
            raise OrderError("there are no orders to choose from; give some.")
        self.simulator, self.policies, self.reward = simulator, policies, reward
        self._orders = orders
        table = orders.table
        self._table = pd.DataFrame(
            {
                "order_id": table["order_id"].astype(str).to_numpy(),
                "instrument": table["instrument"].astype(str).to_numpy(),
                "day": [f"{one:%Y-%m-%d}" for one in pd.to_datetime(table["date"])],
                "row": np.arange(len(table)),
            }
        ).set_index("order_id", drop=False)
        self._pa = {one.policy: pd.Series(one.pa, one.orders["order_id"].astype(str)) for one in results}
        self._played: OrderedDict[tuple[str, str], Played] = OrderedDict()

    def instruments(self) -> list[str]:
        """Return the instruments that have orders, sorted."""
        return sorted(set(self._table["instrument"]))

    def days(self, instrument: str) -> list[str]:
        """Return the days on which an instrument has orders, in order."""
        return sorted(set(self._table.loc[self._table["instrument"] == instrument, "day"]))

    def orders(self, instrument: str, day: str) -> list[str]:
        """Return the ids of an instrument's orders of a day."""
        return list(self._table.query("instrument == @instrument and day == @day")["order_id"])

    def place(self, order_id: str) -> tuple[str, str]:
        """Return the instrument and the day of an order; an `OrderError` where there is no such order."""
        if order_id not in self._table.index:
            raise OrderError(f"there is no order {order_id!r} here; the first is {self._table['order_id'].iloc[0]!r}.")
        return self._table.at[order_id, "instrument"], self._table.at[order_id, "day"]

    def label(self, order_id: str, policy: str) -> str:
        """Return an order in a list: side, amount and window, and a policy's PA where it is known."""
        row = int(self._table.at[order_id, "row"])
        calendar = self.simulator.engine.sessions.calendar
        side = "buy" if self._orders.side[row] > 0 else "sell"
        begins, ends = calendar.time_of(int(self._orders.start[row])), _end_of(calendar, int(self._orders.end[row]))
        pa = self._pa.get(policy, {}).get(order_id, np.nan)
        told = "" if np.isnan(pa) else f", PA {_bp(pa)}"
        return f"{side} {self._orders.amount[row]:,.6g} {begins:%H:%M}-{ends}{told}"

    def typical(self, policy: str) -> str:
        """Return the order with the median PA of a policy; the first where no PA is known."""
        known = self._pa.get(policy, pd.Series(dtype=np.float64)).dropna().sort_values(kind="stable")
        return str(known.index[len(known) // 2]) if len(known) else str(self._table["order_id"].iloc[0])

    def play(self, order_id: str, policy: str) -> Played:
        """Return an order as a policy executes it; the last few are kept."""
        key = order_id, policy
        if key not in self._played:
            self.place(order_id)
            batch = self._orders[[int(self._table.at[order_id, "row"])]]
            self._played[key] = play_order(self.simulator, batch, policy, self.policies[policy], self.reward)
            while len(self._played) > _KEPT:
                self._played.popitem(last=False)
        self._played.move_to_end(key)
        return self._played[key]


class OrderView:
    """The state of an order explorer: what is chosen, what the lists offer, and what is shown of it.

    Parameters
    ----------
    playback
        The orders and policies.
    policies
        Side by side, the first three of the playback by default.
    order_id
        By default the one with the median PA of the first policy.

    Attributes
    ----------
    instrument, day, order_id, policies, step
        What is chosen.
    """

    def __init__(self, playback: Playback, policies: Sequence[str] = (), order_id: str | None = None) -> None:
        self.playback = playback
        self.policies = tuple(dict.fromkeys(policies or list(playback.policies)[:3]))
        self.step = 0
        self.choose_order(order_id or playback.typical(self.read))
        self.move(self.first_wait())

    def choose_instrument(self, instrument: str) -> None:
        """Show an instrument: on the same day where it has orders, else on its next, or its last."""
        days = self.playback.days(instrument)
        day = next((one for one in days if one >= self.day), days[-1])
        self.choose_order(self.playback.orders(instrument, day)[0])

    def choose_day(self, day: str) -> None:
        """Show the first order of a day of the instrument."""
        self.choose_order(self.playback.orders(self.instrument, day)[0])

    def choose_order(self, order_id: str) -> None:
        """Show an order; the step stays, as far as the order has it."""
        self.instrument, self.day = self.playback.place(order_id)
        self.order_id = order_id
        self.move(self.step)

    def choose_policies(self, policies: Sequence[str]) -> None:
        """Lay policies side by side, each once; none leaves what there is."""
        self.policies = tuple(dict.fromkeys(policies)) or self.policies
        self.move(self.step)

    @property
    def read(self) -> str:
        """The first of the policies, whose actions, rewards and audit are shown."""
        return self.policies[0]

    def move(self, step: int) -> None:
        """Go to a step, at most the last."""
        self.step = min(max(step, 0), len(self.steps()) - 1)

    def played(self) -> list[Played]:
        """Return the order as each of the policies executed it."""
        return [self.playback.play(self.order_id, one) for one in self.policies]

    def reading(self) -> Played:
        """Return the order as the policy that is read executed it."""
        return self.playback.play(self.order_id, self.read)

    def longest(self) -> Played:
        """Return the order as the policy executed it that decided most often."""
        return max(self.played(), key=lambda one: len(one.decisions))

    def steps(self) -> list[str]:
        """Return when each step begins, text: the slider's places; of the policy with the most."""
        return self.longest().decisions["time"].tolist()

    def step_at(self, tick: float) -> int:
        """Return the step that holds a place of the x axis, counted in ticks of the window."""
        one = self.longest()
        at = np.searchsorted(one.decisions["stop"].to_numpy() - one.start, tick + 0.5, side="right")
        return min(int(at), len(one.decisions) - 1)

    def first_wait(self) -> int:
        """Return the first step after the first in which the policy that is read waits; 0 where it never does."""
        waits = np.flatnonzero(self.reading().decisions["asked"].to_numpy()[1:] <= _NOTHING)
        return int(waits[0]) + 1 if len(waits) else 0

    def why(self) -> list[str]:
        """Return for each policy what it did in the step and what it expected."""
        return [one.why(self.step) for one in self.played()]
