"""Oracle policy distillation on a market in which the best oracle and the best causal policy are known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch

from rlwb.env import make_env
from rlwb.execution import (
    CategoricalActionInterpreter,
    Engine,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    OrderSettings,
    PAPenaltyReward,
    generate_orders,
)
from rlwb.market import FeatureSettings, MarketFeatures, Normaliser
from rlwb.policy import OPD, PPO, ActionMask, ActorCritic, OPDSettings, Oracle, PPOSettings, Recurrent, make_network
from rlwb.trainer import History, Trainer, TrainingVessel, backtest
from tests.execution.markets import sessions_of

DAYS = 200


@dataclass(frozen=True)
class Trends:
    """Orders to sell within three steps of two ticks, on days that rise or fall at 20 bp a tick from the first on.

    The steps' prices lie 40 bp below, at and above the mean on a day that rises, the other way round on one that falls;
    of 200 days half rise, of the 100 test days half as well. An oracle sells in the best step: 40 bp. Before the first
    step nothing tells the days apart; afterwards the first ticks do. Selling a share x at once and the rest when it is
    known what day it is earns ``(-40 x + 40 (1 - x)) / 2 + (40 x + 0) / 2 = 20 (1 - x)`` on average: at best 20 bp.

    Parameters
    ----------
    since
        The days turn into their opposite at this tick.
    """

    since: int = 7

    @cached_property
    def simulator(self) -> OrderExecution:
        rises = np.random.default_rng(0).permuted(np.tile([1.0, -1.0], (2, DAYS // 4)), axis=1).ravel()
        slope = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.0])  # the last tick is the reference of the next day
        slope[self.since :] *= -1.0
        return OrderExecution(Engine(sessions_of(100 * (1 + 2e-3 * rises[:, None] * slope)), 2))

    @cached_property
    def features(self) -> MarketFeatures:
        settings = FeatureSettings(columns=("close",))
        normaliser = Normaliser(("close",), np.zeros(1), np.full(1, 0.005))
        return MarketFeatures.build(self.simulator.engine.sessions, settings, normaliser=normaliser)

    @cached_property
    def orders(self) -> OrderBatch:
        recipe = OrderSettings(
            log_std=0.0, directions=("SELL",), end_time="09:36", volume_days=0
        )  # orders on day 1 too
        return self.simulator.align(generate_orders(self.simulator.engine.sessions, recipe))

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.simulator, FullHistoryStateInterpreter(self.features, 4), CategoricalActionInterpreter(2)

    def train(self, policy: PPO) -> list[dict[str, float]]:
        simulator, observer, chooser = self.parts
        vessel = TrainingVessel(
            simulator=simulator,
            state_interpreter=observer,
            action_interpreter=chooser,
            policy=policy,
            reward=PAPenaltyReward(penalty=0.0),
            train_initial_states=self.orders[: DAYS // 2],
            episode_per_iter=100,
        )
        history = History()
        Trainer(max_iters=12, callbacks=[history]).fit(vessel)
        return history.train

    def price_advantage(self, policy: PPO) -> float:
        simulator, observer, chooser = self.parts
        return backtest(simulator, observer, self.orders[DAYS // 2 :], chooser, policy).means()["pa"]


MARKET = Trends()
UPDATE = {"learning_rate": 1e-2, "batch_size": 64, "repeat": 4}


def network(kind: type[Recurrent | Oracle], seed: int = 0) -> ActorCritic:
    return make_network(lambda: ActorCritic(kind(1, 16), 3, mask=ActionMask(MARKET.parts[2].shares)), seed)


@pytest.fixture(scope="module")
def teacher() -> PPO:
    policy = PPO(network(Oracle, seed=2), PPOSettings(**UPDATE), seed=2)
    MARKET.train(policy)
    return policy


@dataclass(frozen=True)
class Taught:
    policy: OPD
    history: list[dict[str, float]]


@pytest.fixture(scope="module")
def taught(teacher: PPO) -> dict[float, Taught]:
    students = {}
    for weight in (0.0, 0.1, 1.0):
        policy = OPD(network(Recurrent, seed=2), teacher, OPDSettings(**UPDATE, distillation=weight), seed=2)
        students[weight] = Taught(policy, MARKET.train(policy))
    return students


def test_the_teacher_gains_what_the_future_is_worth_and_no_student_more_than_the_past(
    teacher: PPO, taught: dict[float, Taught]
) -> None:
    assert MARKET.price_advantage(teacher) == pytest.approx(40.0, abs=0.5)
    reached = {weight: MARKET.price_advantage(one.policy) for weight, one in taught.items()}
    assert max(reached.values()) < 20.0 + 1e-6
    assert reached[0.0] == pytest.approx(20.0, abs=0.5)
    assert reached[0.1] == pytest.approx(20.0, abs=0.5)


def test_the_students_move_towards_the_teacher_the_more_the_larger_the_weight(taught: dict[float, Taught]) -> None:
    losses = {w: [row["distillation_loss"] for row in one.history] for w, one in taught.items()}
    assert losses[1.0][-1] < 0.6 * losses[1.0][0]
    assert losses[1.0][-1] < losses[0.1][-1] < losses[0.0][-1]


def chance_to_wait(policy: PPO) -> float:
    """Return the mean probability of trading nothing before the first tick, when nothing is known of the day."""
    env = make_env(*MARKET.parts, None, MARKET.orders)
    with torch.no_grad():
        logits, _ = policy.network(env.reset().obs)
    return float(logits.softmax(dim=1)[:, 0].mean())


def test_what_cannot_be_known_is_imitated_in_vain(taught: dict[float, Taught]) -> None:
    """Before the first tick the teacher's word is a coin's: the more it is heeded, the less a student waits."""
    chances = [chance_to_wait(taught[weight].policy) for weight in (0.0, 0.1, 1.0)]
    assert chances[0] > 0.95
    assert (np.diff(chances) < -0.05).all()


def decide(policy: PPO, market: Trends, until: int) -> list[np.ndarray]:
    """The actions of a policy that reads `market`, at the decisions up to tick `until`; nothing is sold meanwhile."""
    simulator, observer, chooser = market.parts
    env = make_env(simulator, observer, chooser, None, market.orders)
    active, chosen = env.reset(), []
    while len(active) and active.obs["cur_tick"].max() <= until:
        chosen.append(policy.act(active.obs))
        _, active = env.step(np.zeros(len(active), dtype=np.int64))
    return chosen


@pytest.mark.parametrize("since", [2, 4])
def test_later_bars_move_the_teacher_and_never_a_student(teacher: PPO, taught: dict[float, Taught], since: int) -> None:
    for policy in (teacher, *(one.policy for one in taught.values())):
        before, after = decide(policy, MARKET, since), decide(policy, Trends(since), since)
        assert len(before) == len(after) == since // 2 + 1
        same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
        assert all(same) == (policy is not teacher), same
