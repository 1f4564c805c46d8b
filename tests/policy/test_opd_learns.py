"""Oracle policy distillation on a market in which the best oracle and the best causal policy are known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest
import torch

from rlwb.execution import (
    CategoricalActionInterpreter,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecutionFactory,
    OrderSettings,
    PAPenaltyReward,
    generate_orders,
)
from rlwb.market import FeatureSettings, MarketFeatures, Normaliser
from rlwb.policy import OPD, PPO, ActionMask, NetworkSettings, OPDSettings, PPOSettings, make_network, make_teacher
from rlwb.trainer import Trainer, TrainingVessel, backtest
from rlwb.trainer.progress import History
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
    def factory(self) -> OrderExecutionFactory:
        rises = np.random.default_rng(0).permuted(np.tile([1.0, -1.0], (2, DAYS // 4)), axis=1).ravel()
        slope = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.0])  # the last tick is the reference of the next day
        slope[self.since :] *= -1.0
        return OrderExecutionFactory(sessions_of(100 * (1 + 2e-3 * rises[:, None] * slope)), 2)

    @cached_property
    def features(self) -> MarketFeatures:
        settings = FeatureSettings(columns=("close",))
        normaliser = Normaliser(("close",), np.zeros(1), np.full(1, 0.005))
        return MarketFeatures.build(self.factory.engine.sessions, settings, normaliser=normaliser)

    @cached_property
    def orders(self) -> OrderBatch:
        recipe = OrderSettings(log_std=0.0, directions=("SELL",), end_time="09:36")
        return self.factory.bind(generate_orders(self.factory.engine.sessions, recipe))

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.factory, FullHistoryStateInterpreter(self.features, 4), CategoricalActionInterpreter(2)

    def train(self, policy: PPO) -> list[dict[str, float]]:
        simulator, observer, chooser = self.parts
        vessel = TrainingVessel(
            simulator_fn=simulator,
            state_interpreter=observer,
            action_interpreter=chooser,
            policy=policy,
            reward=PAPenaltyReward(penalty=0.0),
            train_initial_states=self.orders[: DAYS // 2],
            episode_per_iter=100,
            update_kwargs={"batch_size": 64, "repeat": 4},
        )
        history = History()
        Trainer(max_iters=12, callbacks=[history]).fit(vessel)
        return history.train

    def price_advantage(self, policy: PPO) -> float:
        simulator, observer, chooser = self.parts
        return backtest(simulator, observer, self.orders[DAYS // 2 :], chooser, policy).means()["pa"]


MARKET = Trends()
SHAPE = NetworkSettings(hidden=16)


def mask() -> ActionMask:
    return ActionMask(MARKET.parts[2].shares)


@pytest.fixture(scope="module")
def teacher() -> PPO:
    policy = PPO(
        make_teacher(SHAPE, 3, features=MARKET.features, seed=1, mask=mask()), PPOSettings(learning_rate=1e-2), seed=1
    )
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
        net = make_network(SHAPE, 3, features=MARKET.features, seed=2, mask=mask())
        policy = OPD(net, teacher, OPDSettings(learning_rate=1e-2, distillation=weight), seed=2)
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


def test_what_cannot_be_known_is_imitated_in_vain(taught: dict[float, Taught]) -> None:
    """Before the first step the teacher's word is a coin's: to follow it is worth less than to wait."""
    assert MARKET.price_advantage(taught[1.0].policy) < 10.0


def decide(policy: PPO, market: Trends, until: int) -> list[np.ndarray]:
    """The logits of a policy that reads `market`, at the decisions up to tick `until`; nothing is sold meanwhile."""
    make = make_teacher if policy.net.sees_future else make_network
    net = make(SHAPE, 3, features=market.features, mask=mask())
    net.load_state_dict(policy.net.state_dict())
    simulator, observer, chooser = market.parts
    env = simulator.vectorize(market.orders, state_interpreter=observer, action_interpreter=chooser, reward=None)
    active, chosen = env.reset(), []
    while len(active) and active.obs["cur_tick"].max() <= until:
        with torch.no_grad():
            chosen.append(net(active.obs)[0].numpy())
        _, active = env.step(np.zeros(len(active), dtype=np.int64))
    return chosen


@pytest.mark.parametrize("since", [2, 4])
def test_later_bars_move_the_teacher_and_never_a_student(teacher: PPO, taught: dict[float, Taught], since: int) -> None:
    for policy in (teacher, *(one.policy for one in taught.values())):
        before, after = decide(policy, MARKET, since), decide(policy, Trends(since), since)
        assert len(before) == len(after) == since // 2 + 1
        same = [np.array_equal(a, b) for a, b in zip(before, after, strict=True)]
        assert all(same) == (policy is not teacher), same
