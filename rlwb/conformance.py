"""Checks that a part of one's own holds what its protocol promises, on a small synthetic market.

Each check takes a function that makes the part on a `Stage`, runs it as environments and training do, and raises
`ConformanceError` with the promise that is broken; without an error the part works with all
built-in parts in every environment::

    from rlwb.conformance import check_reward, check_state_interpreter

    check_reward(lambda stage: MyReward())
    check_state_interpreter(lambda stage: MyObservation(stage.features, stage.engine.max_step))
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.batch import count_rows, take_rows
from rlwb.errors import RlwbError
from rlwb.execution import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    Engine,
    ExecutionState,
    FullHistoryStateInterpreter,
    KnownStateInterpreter,
    OrderBatch,
    OrderExecution,
    align_orders,
    generate_orders,
)
from rlwb.execution.order import FORMS_OF_FILLS
from rlwb.interpreter import ActionInterpreter, StateInterpreter, check_in_space, row_of
from rlwb.learner import Learner
from rlwb.market import MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market.readers.conformance import check_reader as check_reader
from rlwb.reward import Reward
from rlwb.seeds import episode_seeds
from rlwb.simulator import Simulator

#: What a decision is made of, in the order in which each follows from the one before.
CHAIN = ("observation", "encoder", "action", "amount")
#: Prices of a bar between its low and its high, and quotes, of which the first is at most the second.
_INSIDE, _QUOTES = ("open", "close", "vwap"), ("bid", "ask")


def another_future(sessions: Sessions, day: Any, tick: int, rng: np.random.Generator) -> Sessions:
    """Return a panel whose bars from `tick` of `day` on, and all of later days, are others, of every instrument.

    Prices and volumes are multiplied by random numbers from 0.5 to 2, each field of each bar by its own, and adjustment
    factors of later days likewise; highs and lows still enclose the other prices. Bars neither come nor go, so that
    parts which take as known which ticks will have a price pass.
    """
    later = np.zeros((len(sessions), sessions.calendar.num_ticks), dtype=bool)
    later[sessions.dates > day] = True
    later[sessions.dates == day, tick:] = True
    return changed_where(sessions, later, rng)


def changed_where(sessions: Sessions, where: np.ndarray, rng: np.random.Generator) -> Sessions:
    """Return a panel whose bars are others `where`, bool of shape (S, T); see `another_future`."""
    fields = {name: values * rng.uniform(0.5, 2.0, values.shape) for name, values in sessions.fields.items()}
    inside = [fields[name] for name in _INSIDE if name in fields]
    for name, enclosing in (("high", np.fmax.reduce), ("low", np.fmin.reduce)):
        if name in fields:
            fields[name] = np.where(np.isfinite(fields[name]), enclosing([fields[name], *inside]), np.nan)
    if all(name in fields for name in _QUOTES):
        bid, ask = (fields[name] for name in _QUOTES)
        fields["bid"], fields["ask"] = np.minimum(bid, ask), np.maximum(bid, ask)
    fields = {name: np.where(where, values, sessions.fields[name]) for name, values in fields.items()}
    factor = sessions.factor
    if factor is not None:
        factor = np.where(where.all(axis=1), factor * rng.uniform(0.5, 2.0, factor.shape), factor)
    return replace(sessions, fields=fields, factor=factor, directory=None)


class Decision(NamedTuple):
    """The decisions that orders come to together.

    Attributes
    ----------
    tick : int32 of shape (N,)
        The next tick of each order; bars before it are known.
    made
        Of `CHAIN`, what there is: the observation, what the policy's network makes of it, the action, the amount.
    """

    tick: np.ndarray
    made: dict[str, Any]


def decisions(
    simulator: Simulator[Any],
    sees: StateInterpreter[Any],
    acts: ActionInterpreter[Any],
    policy: Any,
    orders: OrderBatch,
    until: int,
) -> list[Decision]:
    """Run a policy on orders of one day, and return its decisions up to and including the tick `until`."""
    state, number, found = simulator.start(orders, episode_seeds(0, np.arange(len(orders)))), np.arange(len(orders)), []
    while not state.done.all() and (state.known.tick[~state.done] <= until).any():
        open_ = np.flatnonzero(~state.done)
        known = state.known[open_]
        told = {"episode": number[open_]} if getattr(policy, "by_episode", False) else {}
        refers = sees.refer(known)
        action = np.asarray(policy.act(refers, **told))
        request = np.zeros(len(orders))
        request[open_] = acts.interpret(known, action)
        seen = None if isinstance(sees, KnownStateInterpreter) else sees.interpret(known)
        made = {"observation": seen, "encoder": _encoded(policy, refers), "action": action, "amount": request[open_]}
        found.append(Decision(known.tick, {name: value for name, value in made.items() if value is not None}))
        state = simulator.step(state, request)
    return found


def _encoded(policy: Any, obs: Any) -> np.ndarray | None:
    """Return what a policy's network makes of observations, None where it has no `rlwb.policy.Network`."""
    trunk = getattr(policy, "trunk", None)
    if trunk is None or not hasattr(trunk, "market_states"):
        return None
    import torch

    with torch.no_grad():
        return np.asarray(trunk(obs).cpu())


def first_moved(one: Sequence[Decision], two: Sequence[Decision], tick: int) -> tuple[str, int] | None:
    """Return what differs between decisions of which none may, and at which tick.

    It is the first of `CHAIN` that does at the first decision of which anything does. Decisions after `tick` are not
    compared; None where all are the same to the last bit.
    """
    for before, after in zip(one, two, strict=False):
        rows = np.flatnonzero(before.tick <= tick)
        for name in CHAIN if len(before.tick) == len(after.tick) else ():
            if name in before.made and not _equal(*(take_rows(each.made[name], rows) for each in (before, after))):
                return name, int(before.tick[rows].max())
    return None


class ConformanceError(RlwbError):
    """A part breaks a promise of its protocol."""


@dataclass(frozen=True)
class Stage:
    """A small market to try parts on.

    Attributes
    ----------
    sessions
        Two instruments and four days of five-minute bars.
    table
        The orders: a buy and a sell for each session.
    """

    sessions: Sessions
    table: pd.DataFrame

    @cached_property
    def engine(self) -> Engine:
        """Executes orders in steps of six ticks under simple rules."""
        return Engine(self.sessions, 6)

    @cached_property
    def features(self) -> MarketFeatures:
        """Features normalised by the first two sessions."""
        return MarketFeatures.build(self.sessions, fit_rows=np.arange(2))

    @cached_property
    def orders(self) -> OrderBatch:
        """The orders, aligned with the sessions."""
        return OrderExecution(self.engine).align(self.table)

    def with_another_future(self, tick: int) -> Stage:
        """Return the stage with all prices and volumes from `tick` of the third day on changed (`another_future`)."""
        day = np.unique(self.sessions.dates)[2]
        return Stage(another_future(self.sessions, day, tick, np.random.default_rng(tick)), self.table)

    def third_day(self) -> np.ndarray:
        """Return the rows of the orders of the third day."""
        return np.flatnonzero(self.sessions.dates[self.orders.session] == np.unique(self.sessions.dates)[2])


def stage() -> Stage:
    """Return the market that the checks use."""
    sessions = synthetic_sessions(SyntheticSettings(instruments=2, days=4))
    return Stage(sessions, generate_orders(sessions))


def check_simulator(make: Callable[[Stage], Simulator[Any]]) -> None:
    """Check a simulator of orders, whose actions are amounts to trade.

    It must end every order within the steps of the clock; keep ``filled + position == amount``, never trade more than
    is requested beyond rounding except in the last step, and never raise a position; leave the state it is given as it
    was; give each order the same in any batch, and the same again for the same seeds; report metrics of shape (N,); and
    honour the order forms that it names.
    """
    on = stage()
    simulator, count = make(on), len(on.orders)
    seeds, every = episode_seeds(7, np.arange(count)), np.arange(count)
    shares = np.random.default_rng(0).uniform(0, 0.4, (on.engine.max_step, count))

    def play(rows: np.ndarray) -> Iterator[Any]:
        state = simulator.start(on.orders[rows], seeds[rows])
        yield state
        for share in shares[:, rows]:
            if state.done.all():
                return
            known = state.known
            request = np.where(known.is_last_step, known.position, np.minimum(share * known.amount, known.position))
            before = known.position.copy()
            state = simulator.step(state, np.where(known.done, 0.0, request))
            _require(np.array_equal(known.position, before), simulator, "step changed the state that it was given")
            yield state

    states = list(play(every))
    _require(len(states[0]) == count, simulator, f"start gave {len(states[0])} rows for {count} orders")
    _require(not states[0].done.any(), simulator, "an order is done before its first step")
    for earlier, later in itertools.pairwise(states):
        known = later.known
        whole = np.allclose(known.filled + known.position, known.amount, rtol=1e-9)
        _require(whole, simulator, "filled and position do not add up to the amount")
        falls = known.position <= earlier.known.position * (1 + 1e-9)
        _require(falls.all(), simulator, "a position grew in a step")
    _require(states[-1].done.all(), simulator, f"orders are not done after {on.engine.max_step} steps")
    figures = states[-1].metrics()
    for name, values in figures.items():
        _require(np.shape(values) == (count,), simulator, f"metrics[{name!r}] has shape {np.shape(values)}, not (N,)")
    _require(_equal(figures, list(play(every))[-1].metrics()), simulator, "the same seeds gave other figures")
    _alone(simulator, figures, {row: list(play(every[[row]]))[-1].metrics() for row in (0, count - 1)})
    for form in sorted(simulator.forms):
        _check_form(on, simulator, form)


#: Forms that are checked by requests of nothing, since they fill more or go on for longer.
_RAISING = ("would_price", "min_participation", "latest_end")


def _check_form(on: Stage, simulator: Simulator[Any], form: str) -> None:
    """Check that a simulator honours a form, by a step that requests all, or for what raises a request, nothing."""
    _require(form in FORMS_OF_FILLS, simulator, f"forms has {form!r}, which is none of {sorted(FORMS_OF_FILLS)}")
    plain = on.orders
    buys = plain.side > 0
    price, volume = (values[plain.session] for values in (on.engine.price, on.engine.volume))
    stop = on.engine.step_stop(plain, on.engine.reset(plain))
    first = (np.arange(price.shape[1]) >= plain.start[:, None]) & (np.arange(price.shape[1]) < stop[:, None])
    stated: dict[str, Any] = {
        "limit_price": np.where(buys, 0.99, 1.01) * np.where(buys, price.min(axis=1), price.max(axis=1)),
        "would_price": np.where(buys, price.max(axis=1), price.min(axis=1)),
        "min_participation": 0.5,
        "max_participation": 1e-3,
        "latest_end": plain.table["end"],
    }
    window = {"end": plain.table["start"] + pd.Timedelta(hours=1)} if form == "latest_end" else {}
    orders = align_orders(plain.table.assign(**{form: stated[form], **window}), on.sessions, forms=(form,))
    state = simulator.start(orders, episode_seeds(7, np.arange(len(orders))))
    request = np.zeros(len(orders)) if form in _RAISING else orders.amount
    for _ in range(int(on.engine.num_steps(orders).max()) - 1 if form == "latest_end" else 1):
        state = simulator.step(state, request)
    filled, most = state.known.filled, 1e-3 * np.where(first, volume, 0.0).sum(axis=1)
    holds = {
        "limit_price": filled == 0,
        "would_price": filled > 0,
        "min_participation": filled > 0,
        "max_participation": filled <= most * (1 + 1e-9),
        "latest_end": ~np.asarray(state.done),
    }
    _require(holds[form].all(), simulator, f"forms has {form!r}, but an order that states it is filled otherwise")


def check_state_interpreter(make: Callable[[Stage], StateInterpreter[Any]]) -> None:
    """Check a state interpreter of orders.

    All observations, the terminal ones included, must lie in the declared space; an order's observation must be the
    same bits in any batch; and no change of later bars may move it.
    """
    on = stage()
    interpreter = make(on)
    space = interpreter.observation_space
    for state in _states(on):
        batch = interpreter.interpret(state.known)
        for row in range(len(state)):
            check_in_space(space, row_of(batch, row, space), type(interpreter).__name__)
        _alone(interpreter, batch, {row: interpreter.interpret(one.known) for row, one in _each(state)})
    _look_ahead(on, interpreter, lambda each: (make(each), AmountActionInterpreter(), _Requests()))


def check_action_interpreter(make: Callable[[Stage], ActionInterpreter[Any]]) -> None:
    """Check an action interpreter of orders, whose answers are amounts to trade.

    For actions from its space the amounts must be of shape (N,), finite and from 0 to the position, and the same in
    any batch; and no change of later bars may move them.
    """
    on = stage()
    interpreter = make(on)
    space = interpreter.action_space
    space.seed(0)
    for state in _open(on):
        action = np.stack([np.asarray(space.sample()) for _ in range(len(state))])
        amounts = np.asarray(interpreter.interpret(state.known, action))
        shape = amounts.shape == (len(state),)
        _require(shape, interpreter, f"the amounts have shape {amounts.shape}, not ({len(state)},)")
        inside = (amounts >= 0) & (amounts <= state.known.position * (1 + 1e-9))
        _require(inside.all(), interpreter, "an amount is not from 0 to the position")
        answers = {row: interpreter.interpret(one.known, action[[row]]) for row, one in _each(state)}
        _alone(interpreter, amounts, answers)
    _look_ahead(on, interpreter, lambda each: (KnownStateInterpreter(), make(each), _Samples(space)))


def check_reward(make: Callable[[Stage], Reward[Any]]) -> None:
    """Check a reward of orders: one finite number an order, the same in any batch."""
    on = stage()
    reward = make(on)
    for state in _states(on)[1:]:
        parts = reward.parts(state.outcome)
        _alone(reward, parts, {row: reward.parts(one.outcome) for row, one in _each(state)})


def check_baseline(make: Callable[[Stage], Any]) -> None:
    """Check a baseline: ``fit(orders)`` and ``act(known)``, which returns amounts.

    Fitted on the orders of the first two days, it must answer finite numbers of shape (N,) that are at least 0, the
    same when asked again and, up to rounding, for each order in any batch. No change of later bars may move an answer.
    """
    on = stage()

    def fitted(each: Stage) -> Any:
        baseline = make(each)
        dates = each.sessions.dates
        baseline.fit(each.orders[np.flatnonzero(dates[each.orders.session] < np.unique(dates)[2])])
        return baseline

    baseline = fitted(on)
    for state in _open(on):
        amounts = np.asarray(baseline.act(state.known))
        shape = amounts.shape == (len(state),)
        _require(shape, baseline, f"the amounts have shape {amounts.shape}, not ({len(state)},)")
        _require(np.isfinite(amounts).all() and (amounts >= 0).all(), baseline, "an amount is below 0 or not finite")
        _require(_equal(amounts, np.asarray(baseline.act(state.known))), baseline, "acting twice gave two answers")
        alone = np.concatenate([np.asarray(baseline.act(one.known)) for _, one in _each(state)])
        same = np.allclose(amounts, alone, rtol=1e-9)
        _require(same, baseline, "an order's amount depends on which orders are beside it")
    parts = (KnownStateInterpreter(), AmountActionInterpreter())
    _look_ahead(on, baseline, lambda each: (*parts, fitted(each)))


def check_policy(make: Callable[[Stage], Any], *, sees: StateInterpreter[Any] | None = None) -> None:
    """Check a policy: ``act(obs, noise)`` of five actions on the observations of `sees`.

    Without noise it must answer the same again, and for each order the same in any batch; with noise from 0 to just
    below 1 it must answer whole numbers from 0 to 4. No change of later bars may move an answer.

    Parameters
    ----------
    sees
        Its observations; by default those of `FullHistoryStateInterpreter`, passed by reference, with which alone the
        policy is tried for look-ahead.
    """
    on = stage()
    policy, act = make(on), CategoricalActionInterpreter(4)
    observe = sees or FullHistoryStateInterpreter(on.features, on.engine.max_step)
    for state in _open(on):
        obs = observe.refer(state.known)
        chosen = np.asarray(policy.act(obs))
        act.interpret(state.known, chosen)
        _require(_equal(chosen, np.asarray(policy.act(obs))), policy, "acting twice gave two answers without noise")
        for level in (0.0, 0.5, np.nextafter(1.0, 0.0)):
            act.interpret(state.known, np.asarray(policy.act(obs, np.full(len(state), level))))
        half = np.arange(len(state) // 2)
        part = np.asarray(policy.act(observe.refer(state.take(half).known)))
        _require(_equal(chosen[half], part), policy, "an order's action depends on which orders are beside it")

    if sees is None:  # one that is there sees one market alone

        def parts(each: Stage) -> Any:
            return FullHistoryStateInterpreter(each.features, each.engine.max_step), act, make(each)

        _look_ahead(on, policy, parts)


def check_learner(make: Callable[[Stage], Any], *, sees: StateInterpreter[Any] | None = None) -> None:
    """Check a learner: all that `check_policy` asks, finite figures of an update, and a state that goes through a file.

    After ``learn``, loading ``state_dict`` into a second learner must make it act and learn the same from then on, and
    loading ``weights`` into a third must make it act the same.
    """
    from rlwb.env import NativeVectorEnv
    from rlwb.execution import PAPenaltyReward
    from rlwb.trainer import collect

    own = make(stage())
    for name, method in vars(Learner).items():
        if callable(method) and not name.startswith("_"):
            hidden = f"its attribute {name} hides the method of that name; call it otherwise"
            _require(callable(getattr(own, name, method)), own, hidden)
    check_policy(make, sees=sees)
    on = stage()
    learner, second, third = make(on), make(on), make(on)
    env = NativeVectorEnv(
        OrderExecution(on.engine),
        on.orders,
        state_interpreter=sees or FullHistoryStateInterpreter(on.features, on.engine.max_step),
        action_interpreter=CategoricalActionInterpreter(4),
        reward=PAPenaltyReward(),
    )

    def lesson(pupil: Any, iteration: int) -> dict[str, float]:
        gathered = collect(env, pupil, seed=(0, iteration), keep=True)
        figures: dict[str, float] = pupil.learn(gathered.obs, gathered.action, gathered.reward, gathered.done)
        return figures

    for name, value in lesson(learner, 1).items():
        _require(np.isfinite(value), learner, f"learn returned {value!r} as {name!r}, not a finite number")
    second.load_state_dict(copy.deepcopy(learner.state_dict()))  # as through a file
    obs = env.reset().obs
    _require(_equal(learner.act(obs), second.act(obs)), learner, "a loaded state acts otherwise")
    third.load_weights(copy.deepcopy(learner.weights()))
    _require(_equal(learner.act(obs), third.act(obs)), learner, "loaded weights act otherwise")
    _require(_equal(lesson(learner, 2), lesson(second, 2)), learner, "a loaded state learns otherwise")


class _Requests:
    """Asks for random shares of orders, the same at each step whatever is seen."""

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        count = count_rows(obs)
        return np.random.default_rng(count).uniform(0.0, 500.0, count)


class _Samples:
    """Answers with random actions of a space, the same at each step."""

    def __init__(self, space: Any) -> None:
        self.space = space

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        self.space.seed(0)
        return np.stack([np.asarray(self.space.sample()) for _ in range(len(obs))])


def _look_ahead(
    on: Stage, part: Any, make: Callable[[Stage], tuple[StateInterpreter[Any], ActionInterpreter[Any], Any]]
) -> None:
    """Require that no change of later bars moves a decision of what `make` gives: what sees, what acts, a policy."""
    for tick in (0, 6, 12):
        one, two = (
            decisions(OrderExecution(each.engine), *make(each), each.orders[each.third_day()], tick)
            for each in (on, on.with_another_future(tick))
        )
        moved = first_moved(one, two, tick)
        _require(
            moved is None, part, f"changing bars from tick {tick} on moved an {moved and moved[0]} made at or before it"
        )


def _states(on: Stage) -> list[ExecutionState]:
    """Return the states of an episode of random requests, from the first to the terminal one."""
    simulator, orders = OrderExecution(on.engine), on.orders
    rng = np.random.default_rng(1)
    states = [simulator.start(orders, np.zeros(len(orders), dtype=np.uint64))]
    while not states[-1].done.all():
        known = states[-1].known
        request = AmountActionInterpreter().interpret(known, rng.uniform(0, 0.2, len(known)) * known.amount)
        states.append(simulator.step(states[-1], np.where(known.done, 0.0, request)))
    return states


def _open(on: Stage) -> list[ExecutionState]:
    """Return the states in which no order is done."""
    return [state for state in _states(on) if not state.done.any()]


def _each(state: ExecutionState) -> list[tuple[int, ExecutionState]]:
    """Return each row's number with its state alone."""
    return [(row, state.take(np.array([row]))) for row in range(len(state))]


def _alone(part: Any, batch: Any, answers: Mapping[int, Any]) -> None:
    """Require that rows of a batch of answers are what the part answered to each of them alone."""
    for row, alone in answers.items():
        own = take_rows(batch, np.array([row]))
        _require(_equal(own, alone), part, f"row {row} alone gives something else than in a batch")


def _require(holds: Any, part: Any, promise: str) -> None:
    if not holds:
        raise ConformanceError(f"{type(part).__name__}: {promise}; correct it before it is used.")


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(_equal(value, two[name]) for name, value in one.items())
    if isinstance(one, tuple):
        return len(one) == len(two) and all(_equal(*pair) for pair in zip(one, two, strict=True))
    return np.array_equal(one, two, equal_nan=np.asarray(one).dtype.kind == "f")
