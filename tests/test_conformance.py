"""The built-in parts hold what their protocols promise, and parts that do not are told which promise they break."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlwb.conformance import (
    ConformanceError,
    Stage,
    check_action_interpreter,
    check_baseline,
    check_learner,
    check_policy,
    check_reward,
    check_simulator,
    check_state_interpreter,
    stage,
)
from rlwb.errors import InterpreterError
from rlwb.execution import (
    Baseline,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    ExecutionState,
    FullHistoryStateInterpreter,
    Known,
    OrderExecution,
    Outcome,
    PAPenaltyReward,
    RandomLiquidity,
    SparseReward,
    TwapRelativeActionInterpreter,
)
from rlwb.execution.order import FORMS_OF_FILLS
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.parts import make
from rlwb.policy import DQN, MLP, PPO, ActorCritic, Informed, QNetwork, Recurrent, make_network
from rlwb.reward import Reward


def full(stage: Stage) -> FullHistoryStateInterpreter:
    return FullHistoryStateInterpreter(stage.features, stage.engine.max_step)


def recurrent(learner: Any, head: Any, stage: Stage) -> Any:
    return learner(make_network(lambda: head(Recurrent(stage.features.shape[2], 8), 5), seed=0))


def test_built_in_parts_conform() -> None:
    check_simulator(lambda stage: OrderExecution(stage.engine))
    check_simulator(lambda stage: RandomLiquidity(stage.engine))
    check_state_interpreter(lambda stage: CurrentStepStateInterpreter(stage.engine.max_step))
    check_state_interpreter(full)
    check_action_interpreter(lambda stage: CategoricalActionInterpreter(4))
    check_action_interpreter(lambda stage: TwapRelativeActionInterpreter(stage.engine))
    check_reward(lambda stage: PAPenaltyReward())
    check_reward(lambda stage: SparseReward())
    check_learner(lambda stage: PPO(make_network(lambda: ActorCritic(MLP(8), 5), seed=0)))
    check_learner(
        lambda stage: PPO(make_network(lambda: ActorCritic(Recurrent(stage.features.shape[2], 8), 5), seed=0))
    )
    check_learner(lambda stage: DQN(make_network(lambda: QNetwork(Recurrent(stage.features.shape[2], 8), 5), seed=0)))


def test_a_learner_that_is_told_the_forms_conforms() -> None:
    on = stage()
    sees = FullHistoryStateInterpreter(on.features, on.engine.max_step, forms=True)
    check_state_interpreter(lambda own: FullHistoryStateInterpreter(own.features, own.engine.max_step, forms=True))

    def learner(own: Stage) -> PPO:
        return PPO(make_network(lambda: ActorCritic(Informed(Recurrent(own.features.shape[2], 8), 7), 5), seed=0))

    check_learner(learner, sees=sees)


class Careless(OrderExecution):
    """Draws from numbers that do not depend on the episode's seed."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.rng = np.random.default_rng(0)

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        return super().step(state, np.where(state.known.is_last_step, action, action * self.rng.random(len(state))))


class Boastful(OrderExecution):
    """Says that it honours a form, and fills half of the request at once by the books alone."""

    def __init__(self, engine: Any, form: str) -> None:
        super().__init__(engine)
        self.forms = frozenset({form})

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        ticks = state.step_ticks()
        fill = np.zeros(ticks.shape)
        last = state.known.tick >= state.known.end - 6
        fill[:, 0] = np.where(state.done, 0.0, np.where(last, state.known.position, 0.5 * action))
        return state.traded(np.asarray(action, dtype=float), fill, np.full(ticks.shape, 10.0))


@pytest.mark.parametrize("form", sorted(FORMS_OF_FILLS))
def test_a_simulator_that_states_a_form_and_does_not_honour_it_is_told(form: str) -> None:
    with pytest.raises(ConformanceError, match=form):
        check_simulator(lambda stage: Boastful(stage.engine, form))


def test_a_simulator_that_states_what_is_no_form_is_told() -> None:
    with pytest.raises(ConformanceError, match="aversion"):
        check_simulator(lambda stage: Boastful(stage.engine, "aversion"))


class Forgetful(OrderExecution):
    """Lets an order start over."""

    def step(self, state: ExecutionState, action: np.ndarray) -> ExecutionState:
        after = super().step(state, action)
        after.now.position[:] = after.orders.amount
        return after


class Peek(StateInterpreter[Known]):
    """Sees the next price through the panel that it was given."""

    observation_space = gym.spaces.Box(-1e9, 1e9, (1,), np.float32)

    def __init__(self, stage: Stage) -> None:
        self.price = stage.engine.price

    def interpret(self, known: Known) -> np.ndarray:
        tick = np.minimum(known.tick, self.price.shape[1] - 1)
        return self.price[known.session, tick][:, None].astype(np.float32)


class Ranked(StateInterpreter[Known]):
    """An observation that depends on the orders beside it."""

    observation_space = gym.spaces.Box(0, 1e9, (1,), np.float32)

    def interpret(self, known: Known) -> np.ndarray:
        return (known.position / known.position.sum()).astype(np.float32)[:, None]


class Greedy(ActionInterpreter[Known]):
    """Asks for more than there is."""

    action_space = gym.spaces.Discrete(3)

    def interpret(self, known: Known, action: np.ndarray) -> np.ndarray:
        return known.amount * action


class Endless(Reward[Outcome]):
    """A price where nothing was filled."""

    def reward(self, outcome: Outcome) -> np.ndarray:
        return outcome.step_price - outcome.twap


class Moody:
    """Draws without being given noise."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def act(self, obs: Any, noise: np.ndarray | None = None) -> np.ndarray:
        return self.rng.integers(0, 5, len(obs["position"]))


class Hides(PPO):
    """Keeps something under the name of a method."""

    def __init__(self) -> None:
        super().__init__(make_network(lambda: ActorCritic(MLP(8), 5), seed=0))
        self.weights = {}  # type: ignore[assignment, method-assign]


class Foresight(Baseline):
    """Buys by what the day will close at."""

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        return np.mod(self.engine.sessions.fields["close"][obs.session, -1] * 1e3, 1.0) * obs.position


class Herd(Baseline):
    """Trades more, the more orders there are."""

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        return obs.position * len(obs) / 100


class Short(Baseline):
    """Trades against its order."""

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        return -self.even(obs)


@pytest.mark.parametrize("name", ["twap", "vwap", "pov", "almgren_chriss", "bertsimas_lo", "forecast"])
def test_built_in_baselines_conform(name: str) -> None:
    check_baseline(lambda stage: make("baseline", {"name": name}, engine=stage.engine))


@pytest.mark.parametrize(
    ("check", "make", "named"),
    [
        (check_simulator, lambda stage: Careless(stage.engine), "Careless.*seeds"),
        (check_simulator, lambda stage: Forgetful(stage.engine), "Forgetful.*add up"),
        (check_state_interpreter, Peek, "Peek.*from tick 0"),
        (check_state_interpreter, lambda stage: Ranked(), "Ranked.*batch"),
        (check_action_interpreter, lambda stage: Greedy(), "Greedy.*position"),
        (check_reward, lambda stage: Endless(), "Endless"),
        (check_policy, lambda stage: Moody(), "Moody.*noise"),
        (check_learner, lambda stage: Hides(), "Hides.*weights"),
        (check_baseline, lambda stage: Foresight(stage.engine), "Foresight.*from tick"),
        (check_baseline, lambda stage: Herd(stage.engine), "Herd.*beside"),
        (check_baseline, lambda stage: Short(stage.engine), "Short.*below 0"),
    ],
)
def test_a_broken_promise_is_named(check: Callable[..., None], make: Callable[[Stage], Any], named: str) -> None:
    with pytest.raises((ConformanceError, InterpreterError), match=named):
        check(make)
