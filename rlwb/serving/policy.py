"""A bundle's policy in one's own process: raw bars and orders in, amounts to trade out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from rlwb.batch import Rows
from rlwb.errors import OrderError, RlwbError, ServingError
from rlwb.execution import Engine, OrderBatch
from rlwb.execution.align import window_ticks
from rlwb.execution.engine import EngineState, Fills
from rlwb.execution.kernel import TOLERANCE
from rlwb.execution.metrics import order_metrics
from rlwb.execution.order import FORMS, Order, columns_of
from rlwb.execution.state import Known
from rlwb.execution.table import order_columns
from rlwb.market import Sessions
from rlwb.market.calendar import text_of
from rlwb.serving.backend import Kind, make_backend
from rlwb.serving.live import LiveMarket

if TYPE_CHECKING:
    import pandas as pd

    from rlwb.serving.bundle import Bundle

#: Optional columns of orders that are numbers, which policies may see.
_NUMBERS = tuple(name for name, form in FORMS.items() if form.dtype == "f8")
_FIRST_ORDERS = 64


class Decision(NamedTuple):
    """How much of an order to trade in its current step."""

    order_id: str
    step: int  # number of the step, counted from 0
    tick: int  # tick at which the step starts; bars from it on were not used
    position: float  # amount left before the step
    amount: float  # amount to trade in the step
    action: float | None  # the policy's action; None where a schedule decided
    source: Literal["policy", "schedule"]
    repeated: bool  # whether the step was decided before, and this is the same decision again


@dataclass(frozen=True)
class OrderState:
    """Where an order in flight stands.

    Attributes
    ----------
    order
        The order.
    start, end, latest_end, num_steps
        Ticks of its window and the number of its steps; see `rlwb.execution.OrderBatch`.
    step, tick
        The step of its last decision and the tick at which that starts; before any decision the first.
    position
        Amount left, as last told.
    path : float64 of shape (step + 1,)
        Position before each step so far.
    decided : float64 of shape (step + 1,)
        Amount decided in each step so far; NaN in steps that nobody asked for.
    """

    order: Order
    start: int
    end: int
    latest_end: int
    num_steps: int
    step: int
    tick: int
    position: float
    path: np.ndarray
    decided: np.ndarray


class BundlePolicy:
    """The policy of a bundle, with the live market and the orders in flight that it decides about.

    Features, their normalisation, observations, masks and the meaning of actions are those of training: the live bars
    lie in a panel that the same code reads. Bars at and after the start of a decision's step are never used.

    Parameters
    ----------
    bundle
        What `rlwb.serving.open_bundle` returned.
    backend
        What evaluates the network: ``"torch"``, to the bits of the backtest, or ``"onnx"``, faster one by one.
    capacity
        Sessions kept at most (`LiveMarket`).
    """

    def __init__(self, bundle: Bundle, *, backend: Kind = "torch", capacity: int = 4096) -> None:
        self.bundle = bundle
        self.engine: Engine = bundle.engine
        self.market = LiveMarket(
            bundle.calendar,
            bundle.config.features,
            bundle.normaliser,
            bundle.encoder,
            fields=bundle.spec.bars.fields,
            capacity=capacity,
        )
        self.state_interpreter = bundle.state_interpreter(self.market.features)
        self.action_interpreter = bundle.action_interpreter
        self._backend = make_backend(bundle, backend)
        self._reads_market = bundle.encoder is not None
        self._rows: dict[str, int] = {}
        self._free: list[int] = []
        self._names: list[str] = []
        self._orders: list[Order | None] = []
        self._last: list[Decision | None] = []
        steps = self.engine.max_step
        starts = np.flatnonzero(np.diff(self.engine.cell, prepend=-1))
        self._cell_start = starts.astype(np.int32)
        self._table = _Table(_FIRST_ORDERS, steps)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, order_id: object) -> bool:
        return order_id in self._rows

    @property
    def order_ids(self) -> list[str]:
        """Ids of the orders in flight, the oldest first."""
        return list(self._rows)

    def register(self, orders: Iterable[Order]) -> list[str]:
        """Take orders into flight, all or none, and return their ids.

        Raises
        ------
        OrderError
            When an order's window holds no tick of its session, its id is in flight already, it states its amount as a
            notional, or a form that the training's market did not honour.
        DataError
            When the calendar has no session on its date.
        """
        given = list(orders)
        if not given:
            return []
        calendar = self.bundle.calendar
        columns = order_columns(given, calendar)
        ids = [str(name) for name in columns["order_id"]]
        start, end, latest = window_ticks(columns, calendar)
        for name, order in zip(ids, given, strict=True):
            if name in self._rows:
                raise OrderError(f"order {name} is in flight already; give the new one another order_id.")
            if order.amount is None:
                raise OrderError(f"order {name} states a notional; give its amount, since no arrival price is known.")
        sessions: list[int] = []
        try:
            for order in given:
                sessions.append(self.market.open(order.instrument, order.date))
                self.market.hold(sessions[-1])  # or opening the next one may give it up
            length = np.asarray(self.market.panel.num_ticks)[sessions]
            end, latest = np.minimum(end, length), np.minimum(latest, length)
            for at, order in enumerate(given):
                if not start[at] < end[at] or latest[at] < end[at]:
                    raise OrderError(f"{order}: its window holds no tick of the session; give a start before the end.")
        except RlwbError:
            for session in sessions:
                self.market.release(session)
            raise
        rows = [self._free.pop() if self._free else self._grow() for _ in given]
        table = self._table
        for at, (row, name, order) in enumerate(zip(rows, ids, given, strict=True)):
            self._rows[name] = row
            self._names[row], self._orders[row], self._last[row] = name, order, None
            table.side[row], table.amount[row], table.session[row] = int(order.direction), order.amount, sessions[at]
            table.start[row], table.end[row], table.latest_end[row] = start[at], end[at], latest[at]
            table.num_steps[row] = self.engine.cell[latest[at] - 1] - self.engine.cell[start[at]] + 1
            table.step[row], table.tick[row] = 0, start[at]
            table.path[row], table.decided[row], table.requested[row] = np.nan, np.nan, 0.0
            table.path[row, 0] = order.amount
            for form in _NUMBERS:
                stated = getattr(order, form)
                table.forms[form][row] = np.nan if stated is None else stated
        return ids

    def forget(self, order_id: str) -> None:
        """Let go of an order; its session may be evicted when no other order needs it."""
        row = self._row(order_id)
        del self._rows[order_id]
        self.market.release(int(self._table.session[row]))
        self._orders[row] = self._last[row] = None
        self._free.append(row)

    def restore(self, order_id: str, decisions: Sequence[Decision]) -> None:
        """Put an order back to where these decisions, all that it had, in their sequence, left it."""
        row, table = self._row(order_id), self._table
        table.path[row], table.decided[row] = np.nan, np.nan
        table.path[row, 0], table.step[row], table.tick[row] = table.amount[row], 0, table.start[row]
        table.requested[row] = sum(one.amount for one in decisions)
        self._last[row] = None
        for one in decisions:
            table.path[row, int(table.step[row]) + 1 : one.step] = one.position
            table.path[row, one.step], table.decided[row, one.step] = one.position, one.amount
            table.step[row], table.tick[row] = one.step, one.tick
            self._last[row] = one._replace(repeated=False)

    def state(self, order_id: str) -> OrderState:
        """Return where an order stands."""
        row, table = self._row(order_id), self._table
        order, step = self._orders[row], int(table.step[row])
        assert order is not None
        ints = {name: int(getattr(table, name)[row]) for name in ("start", "end", "latest_end", "num_steps", "tick")}
        path, decided = table.path[row, : step + 1].copy(), table.decided[row, : step + 1].copy()
        return OrderState(order, **ints, step=step, position=float(path[step]), path=path, decided=decided)

    def decide(
        self,
        order: Order,
        bars_so_far: pd.DataFrame | None = None,
        position: float | Sequence[float] | None = None,
    ) -> Decision:
        """Return how much of one order to trade in the step that the market has reached.

        Parameters
        ----------
        order
            Taken into flight if it is not yet.
        bars_so_far
            Raw bars of its instrument up to now, as in training; those that are known already change nothing, those of
            earlier days are the history that features refer to. Without a column ``instrument`` they are the order's.
        position
            Amount left now; or the positions before each step up to the one to decide, for an order that was traded
            before it came here. None is the whole amount, as long as nothing was decided.

        Raises
        ------
        ServingError
            When bars that the step needs are not there (``late_bars``), or the order is over (``order_over``).
        OrderError
            When the position is no amount in [0, amount].
        """
        if bars_so_far is not None:
            self._take(order, bars_so_far)
        name = order.order_id or str(order_columns(order, self.bundle.calendar)["order_id"][0])
        if name not in self._rows:
            self.register([order])
        left = self._set_path(name, position) if isinstance(position, (Sequence, np.ndarray)) else position
        (made,) = self.decide_many([name], [left])
        if isinstance(made, RlwbError):
            raise made
        return made

    def decide_many(
        self,
        order_ids: Sequence[str],
        positions: Sequence[float | None] | None = None,
        *,
        at: Sequence[int | None] | None = None,
        by_schedule: Sequence[bool] | None = None,
    ) -> list[Decision | RlwbError]:
        """Return for each order how much to trade in its current step, or why none can be said.

        The step follows from how far the market has come. Where it has passed whole steps that nobody asked for, the
        position during them counts as the one now told.

        Parameters
        ----------
        order_ids
            Orders in flight; one that stands twice is decided once.
        positions
            Amount left of each; None is the whole amount, as long as nothing was decided.
        at
            Ticks that are over by the caller's clock, where it has one: then the step follows from it, and bars that
            it needs and that are not there are late. None goes by the market's own.
        by_schedule
            Orders that are to trade evenly over the rest of their window, whatever the policy would do.
        """
        count = len(order_ids)
        made: list[Decision | RlwbError | None] = [None] * count
        found = [self._rows.get(name, -1) for name in order_ids]
        rows, first = np.array(found, dtype=np.int64), np.arange(count)
        is_distinct, which = len(set(found)) == count, first
        if not is_distinct:
            _, first, which = np.unique(rows, return_index=True, return_inverse=True)
        once = first
        if -1 in found:
            once = first[rows[first] >= 0]
            for place in np.flatnonzero(rows < 0).tolist():
                made[place] = unknown_order(order_ids[place])
        asked, even = self._begin(rows, once, positions, at, by_schedule, made)
        if asked:
            self._finish(rows, np.asarray(asked), "policy", made)
        if even:
            self._finish(rows, np.asarray(even), "schedule", made)
        for place in () if is_distinct else np.flatnonzero(first[which] != np.arange(count)).tolist():
            same = made[first[which[place]]]
            made[place] = same._replace(repeated=True) if isinstance(same, Decision) else same
        return [one for one in made if one is not None]

    def predict(self, obs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the actions for N observations of the declared space, of shape (N, …).

        Raises
        ------
        ServingError
            Naming the part that is missing, unknown, of another shape, or not in the space (``bad_observation``).
        """
        return np.asarray(self._backend.act(checked(self.state_interpreter.observation_space, obs)))

    def metrics(self, order_id: str, filled: float, notional: float) -> dict[str, float]:
        """Return the figures of an order by what was filled, as in a backtest; NaN where the market does not say.

        Parameters
        ----------
        filled, notional
            Amount filled, and the sum of fill times price.
        """
        row, table = self._row(order_id), self._table
        panel, session, order = self.market.panel, int(table.session[row]), self._orders[row]
        assert order is not None
        fields = {name: values[session : session + 1].copy() for name, values in panel.fields.items()}
        own = (panel.instruments[[session]], panel.dates[[session]], panel.num_ticks[[session]])
        engine = Engine(Sessions(panel.calendar, *own, fields), self.engine.ticks_per_step, self.engine.rules)
        ticks = (table.start[[row]], table.end[[row]])
        orders = OrderBatch(
            columns_of([order]),
            np.zeros(1, np.int64),
            np.zeros(1, np.int32),
            table.side[[row]],
            table.amount[[row]],
            *ticks,
            latest_end=table.latest_end[[row]],
        )
        amount = float(table.amount[row])
        state = engine.reset(orders)
        left = max(amount - filled, 0.0)
        state = EngineState(
            **{
                **vars(state),
                "position": np.array([0.0 if left <= TOLERANCE * amount else left]),
                "filled": np.array([filled]),
                "notional": np.array([notional]),
            }
        )
        found = order_metrics(orders, state, engine.benchmarks(orders), engine.rules)
        return {name: float(values[0]) for name, values in found.items()}

    def _begin(
        self,
        rows: np.ndarray,
        places: np.ndarray,
        positions: Sequence[float | None] | None,
        at: Sequence[int | None] | None,
        by_schedule: Sequence[bool] | None,
        made: list[Decision | RlwbError | None],
    ) -> tuple[list[int], list[int]]:
        """Bring orders to their current steps; return the places that the policy and that a schedule decide."""
        table, own = self._table, rows[places]
        reached = self.market.reached(table.session[own])
        asked: list[int] = []
        even: list[int] = []
        for place, row, bars in zip(places.tolist(), own.tolist(), reached.tolist(), strict=True):
            told = None if at is None else at[place]
            over = bars if told is None else told
            start, latest = int(table.start[row]), int(table.latest_end[row])
            amount, last = float(table.amount[row]), self._last[row]
            is_even = by_schedule is not None and bool(by_schedule[place])
            step = self._step_at(over, start, latest)
            tick = start if step == 0 else int(self._cell_start[self.engine.cell[start] + step])
            position = None if positions is None else positions[place]
            if position is None:
                position = amount if step == 0 or last is None else None
            if over >= latest:
                made[place] = ServingError(f"the window of order {self._names[row]} is over; cancel it.", "order_over")
            elif over < start or (bars < tick and not is_even):
                made[place] = self._late(row, tick, bars)
            elif step < int(table.step[row]):
                made[place] = ServingError(
                    f"order {self._names[row]} is at step {table.step[row]}; the caller's clock is at step {step}.",
                    "clock_behind",
                )
            elif last is not None and last.step == step:
                made[place] = last._replace(repeated=True)
            elif position is None or not 0 <= position <= amount * (1 + TOLERANCE):
                made[place] = OrderError(
                    f"the position {position} of order {self._names[row]} is no amount from 0 to {amount:g}; tell what "
                    "is left."
                )
            else:
                table.path[row, int(table.step[row]) + 1 : step + 1] = position
                table.path[row, step] = position
                table.step[row], table.tick[row] = step, tick
                (even if is_even else asked).append(place)
        return asked, even

    def _finish(
        self,
        rows: np.ndarray,
        places: np.ndarray,
        source: Literal["policy", "schedule"],
        made: list[Decision | RlwbError | None],
    ) -> None:
        """Decide about the orders at `places`, and keep the decisions."""
        own, table = rows[places], self._table
        known = self._known(own)
        actions: Any
        if source == "policy":
            obs = self.state_interpreter.refer(known)
            if self._reads_market:
                obs = {**obs, "market_states": self.market.state_rows(known.session, known.tick)}
            actions = np.asarray(self._backend.act(obs))
            amounts = self.action_interpreter.interpret(known, actions)
            told = actions.tolist()
        else:
            share = self.engine.even_share(known, known)
            amounts = np.where(known.completes, known.position, known.position * share)
            told = [None] * len(own)
        table.decided[own, known.step] = amounts
        table.requested[own] += amounts
        steps, ticks, positions = known.step.tolist(), known.tick.tolist(), known.position.tolist()
        for at, (place, row, amount) in enumerate(zip(places.tolist(), own.tolist(), amounts.tolist(), strict=True)):
            one = Decision(self._names[row], steps[at], ticks[at], positions[at], amount, told[at], source, False)
            self._last[row] = made[place] = one

    def _known(self, rows: np.ndarray) -> Known:
        """Return what is known of orders at their current steps."""
        table, engine = self._table, self.engine
        count = len(rows)
        # take reads some rows in half the time of an index.
        session, start, end, latest_end, num_steps, step, tick = table.whole.take(rows, axis=1)
        amount, requested, *forms = table.real.take(rows, axis=1)
        most = int(step.max()) + 1
        path = table.path.take(rows, axis=0)[:, :most]
        position = path[np.arange(count), step]
        missing = np.full(count, np.nan)
        return Known(
            tick=tick,
            step=step,
            position=position,
            requested=requested,
            filled=amount - position,
            notional=missing,
            done=np.zeros(count, dtype=bool),
            cost=missing,
            permanent_impact=np.zeros(count),
            transient_impact=np.full((count, engine.transient_width), np.nan),
            untraded=missing,
            side=table.side.take(rows),
            amount=amount,
            start=start,
            end=end,
            latest_end=latest_end,
            session=session,
            num_steps=num_steps,
            max_step=engine.max_step,
            complete_at_end=engine.rules.complete_at_end,
            forms=dict(zip(_NUMBERS, forms, strict=True)),
            _steps=_Steps(table.decided.take(rows, axis=0)[:, : most - 1], path),
            _left=tuple(path.T),
            _sessions=self.market.panel,
        )

    def _take(self, order: Order, bars: pd.DataFrame) -> None:
        """Hand bars of one order's instrument to the market: earlier days as history, its own day as live bars."""
        import pandas as pd

        own = bars if "instrument" in bars else bars.assign(instrument=order.instrument)
        days = pd.to_datetime(own["datetime"]).dt.normalize()
        self.market.open(order.instrument, order.date)
        if (days < order.date).any():
            self.market.load_history(own[days < order.date])
        arrived = self.market.add(own[days == order.date])
        if arrived.refused:
            index, reason = arrived.refused[0]
            raise ServingError(
                f"bar {index} of {order.instrument} on {order.date:%Y-%m-%d}: {reason}; correct it.", "bad_bar"
            )

    def _set_path(self, order_id: str, positions: Sequence[float] | np.ndarray) -> float:
        """Take an order's positions before each step up to the current one; return the last."""
        row, table, path = self._row(order_id), self._table, np.asarray(positions, dtype=np.float64)
        amount, over = float(table.amount[row]), int(self.market.reached(table.session[[row]])[0])
        steps = self._step_at(over, int(table.start[row]), int(table.latest_end[row])) + 1
        if path.ndim != 1 or not 1 <= len(path) <= steps or not ((path >= 0) & (path <= amount)).all():
            raise OrderError(
                f"the positions {path.tolist()} of order {order_id} are not 1 to {steps} amounts from 0 to "
                f"{amount:g}; give the one before each step, the current one last."
            )
        table.path[row, : len(path)] = path
        table.step[row] = len(path) - 1
        return float(path[-1])

    def _step_at(self, over: int, start: int, latest: int) -> int:
        """Return the step of a window that begins or goes on when so many ticks are over."""
        return int(self.engine.cell[min(max(over, start), latest - 1)] - self.engine.cell[start])

    def _row(self, order_id: str) -> int:
        if order_id not in self._rows:
            raise unknown_order(order_id)
        return self._rows[order_id]

    def _late(self, row: int, tick: int, bars: int) -> ServingError:
        calendar, order = self.bundle.calendar, self._orders[row]
        assert order is not None
        needed, there = (text_of(calendar.seconds_at(at)) for at in (tick, bars))
        return ServingError(
            f"order {self._names[row]} needs the bars of {order.instrument} until {needed}, and they are there until "
            f"{there}; send bars, or until when the market is over.",
            "late_bars",
        )

    def _grow(self) -> int:
        row = len(self._orders)
        if row == len(self._table.side):
            self._table = self._table.doubled()
        self._names.append("")
        self._orders.append(None)
        self._last.append(None)
        return row


@dataclass(frozen=True, eq=False)
class _Steps(Rows):
    """The steps so far of N orders, each made a `Fills` when it is asked for: few policies ask.

    `decided` holds the amounts decided, of shape (N, K), `path` the positions before each step and after the last, of
    shape (N, K + 1).
    """

    decided: np.ndarray
    path: np.ndarray

    def __getitem__(self, rows: Any) -> _Steps:
        return _Steps(self.decided[rows], self.path[rows])

    def __iter__(self) -> Iterator[Fills]:
        filled = self.path[..., :-1] - self.path[..., 1:]
        missing = np.full(filled.shape[:-1], np.nan)
        for at in range(filled.shape[-1]):
            yield Fills(self.decided[..., at], filled[..., at], missing, missing, missing, missing)


class _Table:
    """Numbers of orders in flight; those that a decision takes together lie together."""

    def __init__(self, rows: int, steps: int) -> None:
        self.whole = np.zeros((7, rows), dtype=np.int32)
        self.real = np.full((2 + len(_NUMBERS), rows), np.nan)
        self.side = np.zeros(rows, dtype=np.int8)
        self.path = np.full((rows, steps + 1), np.nan)  # position before each step
        self.decided = np.full((rows, steps), np.nan)  # amount decided in each
        self.session, self.start, self.end, self.latest_end, self.num_steps, self.step, self.tick = self.whole
        self.amount, self.requested, *forms = self.real
        self.forms = dict(zip(_NUMBERS, forms, strict=True))

    def doubled(self) -> _Table:
        """Return a table of twice as many rows, the first of which are these."""
        rows, steps = self.decided.shape
        new = _Table(2 * rows, steps)
        new.whole[:, :rows], new.real[:, :rows] = self.whole, self.real
        new.side[:rows], new.path[:rows], new.decided[:rows] = self.side, self.path, self.decided
        return new


def unknown_order(order_id: str) -> ServingError:
    """Return the refusal of an order that is not in flight."""
    return ServingError(f"there is no order {order_id!r} in flight; register it.", "unknown_order")


def checked(space: gym.Space[Any], obs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return N observations of a ``Dict`` space as arrays of its parts' types; refuse what does not fit.

    Raises
    ------
    ServingError
        Naming the part.
    """
    parts = space.spaces if isinstance(space, gym.spaces.Dict) else {}
    if wrong := sorted(set(parts) ^ set(obs)):
        verb = "is missing" if wrong[0] in parts else "is unknown"
        raise ServingError(f"{wrong[0]} {verb}; observations hold {', '.join(parts)}.", "bad_observation")
    arrays = {name: np.asarray(obs[name]) for name in parts}
    counts = {len(array) if array.ndim else 0 for array in arrays.values()}
    if len(counts) != 1 or not counts or not min(counts):
        raise ServingError("the parts of the observations have other numbers of rows; give N each.", "bad_observation")
    for name, part in parts.items():
        array = arrays[name]
        try:
            with np.errstate(invalid="ignore", over="ignore"):  # what does not fit is not finite, or not equal below
                cast = array.astype(part.dtype)
        except (TypeError, ValueError):
            raise ServingError(f"{name} is not made of numbers.", "bad_observation") from None
        fits = array.shape[1:] == (part.shape or ()) and bool(np.isfinite(cast).all())
        if fits and isinstance(part, gym.spaces.Box):
            fits = bool(((cast >= part.low) & (cast <= part.high)).all())
        elif fits and isinstance(part, gym.spaces.Discrete):
            fits = bool(((cast >= part.start) & (cast < part.start + part.n) & (cast == array)).all())
        if not fits:
            raise ServingError(f"{name} of shape {array.shape} does not fit {part}, N times.", "bad_observation")
        arrays[name] = cast
    return arrays
