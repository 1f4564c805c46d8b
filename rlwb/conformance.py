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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from rlwb.batch import take_rows
from rlwb.errors import RlwbError
from rlwb.execution import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    Engine,
    ExecutionState,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    align_orders,
    generate_orders,
)
from rlwb.execution.order import FORMS_OF_FILLS
from rlwb.interpreter import ActionInterpreter, StateInterpreter, check_in_space, row_of
from rlwb.market import MarketFeatures, Sessions, SyntheticSettings, synthetic_sessions
from rlwb.market.readers.conformance import check_reader as check_reader
from rlwb.reward import Reward
from rlwb.seeds import episode_seeds
from rlwb.simulator import Simulator


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
        """Return the stage with all prices and volumes from `tick` of the third day on multiplied by random numbers.

        Bars neither come nor go, so that parts which take as known which ticks will have a price pass.
        """
        rng = np.random.default_rng(tick)
        day = np.unique(self.sessions.dates)[2]
        later = np.zeros((len(self.sessions), self.sessions.calendar.num_ticks), dtype=bool)
        later[self.sessions.dates > day] = True
        later[self.sessions.dates == day, tick:] = True
        fields = {
            name: np.where(later, values * rng.uniform(0.5, 2.0, values.shape), values)
            for name, values in self.sessions.fields.items()
        }
        own = self.sessions
        return Stage(Sessions(own.calendar, own.instruments, own.dates, own.num_ticks, fields), self.table)

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
    for tick in (0, 6, 12):
        seen = []
        for each in (on, on.with_another_future(tick)):
            part, states = make(each), _states(each, each.third_day())
            seen.append([part.interpret(state.known) for state in states if (state.known.tick <= tick).all()])
        same = all(_equal(one, two) for one, two in zip(*seen, strict=True))
        _require(same, interpreter, f"changing bars from tick {tick} on moved an observation made at or before it")


def check_action_interpreter(make: Callable[[Stage], ActionInterpreter[Any]]) -> None:
    """Check an action interpreter of orders, whose answers are amounts to trade.

    For actions from its space the amounts must be of shape (N,), finite and from 0 to the position, and the same in
    any batch.
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


def check_reward(make: Callable[[Stage], Reward[Any]]) -> None:
    """Check a reward of orders: one finite number an order, the same in any batch."""
    on = stage()
    reward = make(on)
    for state in _states(on)[1:]:
        parts = reward.parts(state.outcome)
        _alone(reward, parts, {row: reward.parts(one.outcome) for row, one in _each(state)})


def check_policy(make: Callable[[Stage], Any], *, sees: StateInterpreter[Any] | None = None) -> None:
    """Check a policy: ``act(obs, noise)`` of five actions on the observations of `sees`.

    Without noise it must answer the same again, and for each order the same in any batch; with noise from 0 to just
    below 1 it must answer whole numbers from 0 to 4.

    Parameters
    ----------
    sees
        Its observations; by default those of `FullHistoryStateInterpreter`, passed by reference.
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


def check_learner(make: Callable[[Stage], Any], *, sees: StateInterpreter[Any] | None = None) -> None:
    """Check a learner: all that `check_policy` asks, finite figures of an update, and a state that goes through a file.

    After ``learn``, loading ``state_dict`` into a second learner must make it act and learn the same from then on, and
    loading ``weights`` into a third must make it act the same.
    """
    from rlwb.env import NativeVectorEnv
    from rlwb.execution import PAPenaltyReward
    from rlwb.trainer import collect

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


def _states(on: Stage, rows: np.ndarray | None = None) -> list[ExecutionState]:
    """Return the states of an episode of random requests, from the first to the terminal one."""
    simulator = OrderExecution(on.engine)
    orders = on.orders if rows is None else on.orders[rows]
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
