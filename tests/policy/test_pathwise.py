"""Pathwise optimisation: its derivative, its replay beside the engine's, what it finds, and how it goes on."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from rlwb.batch import take_rows
from rlwb.env import make_env
from rlwb.errors import ConfigError
from rlwb.execution import (
    CurrentStepStateInterpreter,
    Engine,
    ExecutionRules,
    FullHistoryStateInterpreter,
    OrderBatch,
    OrderExecution,
    PAPenaltyReward,
    PositionShareActionInterpreter,
    align_orders,
    step_terms,
)
from rlwb.objective import MeanVariance, Objective, Quantile
from rlwb.policy import (
    MLP,
    Attention,
    Convolution,
    Dialled,
    Pathwise,
    PathwiseSettings,
    Recurrent,
    ShareHead,
    make_network,
)
from rlwb.trainer import Trainer, TrainingVessel, collect
from tests.execution.markets import order, sessions_of
from tests.trainer.small import small

REWARD = PAPenaltyReward(penalty=3.0, inventory=1.0)
NETWORKS = {
    "mlp": lambda channels: MLP(8),
    "recurrent": lambda channels: Recurrent(channels, 8, previous_day=True),
    "convolution": lambda channels: Convolution(channels, 8, layers=2),
    "attention": lambda channels: Attention(channels, 8),
}


def learner(name: str = "mlp", objective: Objective | None = None, seed: int = 0, **settings: Any) -> Pathwise:
    market = small()
    dial = len(objective.dial) if objective else 0

    def build() -> ShareHead:
        body = NETWORKS[name](market.features.shape[2])
        return ShareHead(Dialled(body, dial) if dial else body)

    network = make_network(build, seed)
    with torch.no_grad():  # away from the even schedule
        network.share.weight.mul_(200.0)
    terms = partial(step_terms, market.simulator.engine, REWARD)
    return Pathwise(network, terms, PathwiseSettings(**{"batch_size": 100, **settings}), seed=seed, objective=objective)


def vessel(policy: Pathwise, **changes: Any) -> TrainingVessel:
    market = small()
    engine = market.simulator.engine
    parts = {
        "simulator": market.simulator,
        "state_interpreter": FullHistoryStateInterpreter(market.features, engine.max_step, policy.objective),
        "action_interpreter": PositionShareActionInterpreter(),
        "policy": policy,
        "reward": REWARD,
        "train_initial_states": market.orders[:30],
        "episode_per_iter": 30,
    }
    return TrainingVessel(**{**parts, **changes})


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("env", ["native", "dummy"])
def test_the_unrolled_shares_are_those_that_the_market_traded(name: str, env: str) -> None:
    policy = learner(name)
    own = vessel(policy)
    with own.make_env(small().orders[:30], finite_env_type=env, concurrency=7) as opened:
        episodes = collect(opened, policy, keep=True)
    ends = np.flatnonzero(episodes.done)
    rows = np.minimum(np.append(0, ends[:-1] + 1)[:, None] + np.arange(4), ends[:, None])
    terms = policy.step_terms(small().orders[:30])
    shares = terms.trades(policy._share(episodes.obs, rows), torch.ones(30)).detach().numpy()
    left = np.concatenate([np.ones((30, 1)), 1.0 - shares.cumsum(axis=1)], axis=1)
    traded = episodes.details["inventory"][:, :5] if env == "native" else left
    assert left == pytest.approx(traded, abs=2e-6)
    assert shares.std(axis=0).min() > 1e-3
    assert terms.rewards(shares) == pytest.approx(episodes.returns, abs=1e-2)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_gradient_is_that_of_the_objective(name: str) -> None:
    """A step of all weights along it, and one back, against its length; a longer one crosses kinks of the layers."""
    objective = MeanVariance(0.02)
    policy, orders = learner(name, objective), small().orders[:30]
    with vessel(policy).make_env(orders) as env:
        episodes = collect(env, policy, keep=True)
    ends = np.flatnonzero(episodes.done)
    rows = np.minimum(np.append(0, ends[:-1] + 1)[:, None] + np.arange(4), ends[:, None])
    terms = policy.step_terms(orders)

    def worth() -> torch.Tensor:
        return terms.rewards(terms.trades(policy._share(episodes.obs, rows), torch.ones(len(orders))))

    totals = worth()
    (totals * torch.as_tensor(objective.slopes(totals.detach().numpy()))).mean().backward()
    moved = [(weight, weight.grad.clone()) for weight in policy.network.parameters() if weight.grad is not None]
    length = float(torch.sqrt(sum((grad**2).sum() for _, grad in moved)))

    def value(step: float) -> float:
        with torch.no_grad():
            for weight, grad in moved:
                weight += step * grad / length
            found = objective.value(worth().numpy())
            for weight, grad in moved:
                weight -= step * grad / length
        return found

    assert length > 1e-2
    assert (value(5e-4) - value(-5e-4)) / 1e-3 == pytest.approx(length, rel=0.01)


def test_an_untrained_policy_trades_evenly() -> None:
    network = ShareHead(MLP(8))
    with torch.no_grad():
        network.share.weight.zero_()
    obs = {"target": np.ones(4, np.float32), "position": np.array([1, 0.75, 0.5, 0.25], np.float32)}
    obs |= {"cur_step": np.arange(4), "num_step": np.full(4, 4), "acquiring": np.zeros(4, np.int64)}
    assert network(obs).detach().numpy() == pytest.approx([1 / 4, 1 / 3, 1 / 2, 1.0])


def on_two_orders(engine: Engine, reward: PAPenaltyReward, batch: OrderBatch) -> tuple[Pathwise, TrainingVessel]:
    policy = Pathwise(
        make_network(lambda: ShareHead(MLP(16)), 0),
        partial(step_terms, engine, reward),
        PathwiseSettings(learning_rate=0.02),
    )
    return policy, TrainingVessel(
        simulator=OrderExecution(engine),
        state_interpreter=CurrentStepStateInterpreter(engine.max_step),
        action_interpreter=PositionShareActionInterpreter(),
        policy=policy,
        reward=reward,
        train_initial_states=batch,
        episode_per_iter=2,
    )


def test_it_finds_the_best_schedule_under_impact_and_known_drift() -> None:
    """Prices rise by 1 a step: a buy trades early, against linear impact; the best shares solve a linear system."""
    rules = ExecutionRules(volume_limit=1.0, temporary_impact_bps=1000.0, benchmark="arrival")
    sessions = sessions_of([[100.0, 100.1, 100.2, 100.3]] * 2, volumes=1000.0)
    engine = Engine(sessions, 1, rules)
    reward = PAPenaltyReward(penalty=0.0)
    batch = align_orders([order(200, "BUY", day=day) for day in (1, 2)], sessions, rules)
    terms = step_terms(engine, reward, batch)
    policy, own = on_two_orders(engine, reward, batch)
    Trainer(max_iters=150).fit(own)
    # Maximise gain s - temporary s² over shares with sum 1.
    gain, temporary = terms.gain[0], terms.temporary[0]
    price = ((gain / (2 * temporary)).sum() - 1) / (1 / (2 * temporary)).sum()
    best = (gain - price) / (2 * temporary)
    assert (best > 0).all()
    episodes = collect(own.make_env(batch), policy)
    assert -np.diff(episodes.details["inventory"][0]) == pytest.approx(best, abs=0.01)


def test_a_training_goes_on_to_the_last_bit(tmp_path: Path) -> None:
    from rlwb.trainer import Checkpoint

    objective = MeanVariance([0.0, 0.01])
    orders = small().orders
    dealt = small().simulator.align(orders.table.assign(aversion=np.arange(len(orders)) % 2 * 0.01))[:30]
    whole, first, second = (learner("recurrent", objective, batch_size=10) for _ in range(3))
    Trainer(max_iters=3).fit(vessel(whole, train_initial_states=dealt))
    Trainer(max_iters=2, callbacks=[Checkpoint(tmp_path)]).fit(vessel(first, train_initial_states=dealt))
    Trainer(max_iters=3).fit(vessel(second, train_initial_states=dealt), tmp_path / "0002.pt")
    for left, right in zip(whole.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(left, right)


def test_it_finds_the_best_fills_under_a_cap_that_leaves_the_even_schedule_unfilled() -> None:
    """Of 200 a buy can fill 100, 100, 15 and 15, so evenly 130 of it, while the price rises by 0, 50, 100 and 400 bp.

    A share s costs its rise times s, and 100 s**2; what stays open costs 400 a share. The best fills are 0.5 (all there
    is room for), 0.425, 0.075 (all there is room for) and 0: one more in the second costs 50 + 200 * 0.425 = 135.
    """
    rules = ExecutionRules(volume_limit=0.1, benchmark="arrival")
    sessions = sessions_of([[100.0, 100.5, 101.0, 104.0]] * 2, [[1000.0, 1000.0, 150.0, 150.0]] * 2)
    engine = Engine(sessions, 1, rules)
    reward = PAPenaltyReward(penalty=100.0)
    batch = align_orders([order(200, "BUY", day=day) for day in (1, 2)], sessions, rules)
    policy, own = on_two_orders(engine, reward, batch)
    even = collect(own.make_env(batch), policy).details["inventory"][0]
    assert even == pytest.approx([1.0, 0.75, 0.5, 0.425, 0.35], abs=0.02)
    Trainer(max_iters=100).fit(own)
    episodes = collect(own.make_env(batch), policy)
    assert -np.diff(episodes.details["inventory"][0]) == pytest.approx([0.5, 0.425, 0.075, 0.0], abs=0.01)
    best = -25.0 - 0.425 * (50.0 + 42.5) - 0.075 * (100.0 + 7.5)
    assert episodes.returns == pytest.approx([best, best], rel=0.05)  # evenly -204


@pytest.mark.parametrize("name", NETWORKS)
def test_the_unrolled_fills_are_those_of_a_market_that_cuts_them(name: str) -> None:
    market = small()
    engine = Engine(market.simulator.engine.sessions, 4, ExecutionRules(volume_limit=1e-3))
    policy = learner(name)
    policy.step_terms = partial(step_terms, engine, REWARD)
    own = vessel(policy, simulator=OrderExecution(engine))
    with own.make_env(market.orders[:30]) as env:
        episodes = collect(env, policy, keep=True)
    ends = np.flatnonzero(episodes.done)
    rows = np.minimum(np.append(0, ends[:-1] + 1)[:, None] + np.arange(4), ends[:, None])
    terms = policy.step_terms(market.orders[:30])
    fills = terms.trades(policy._share(episodes.obs, rows), torch.ones(30)).detach().numpy()
    left = episodes.details["inventory"][np.arange(30), np.diff(ends, prepend=-1)]
    assert 1.0 - fills.sum(axis=1) == pytest.approx(left, abs=2e-6)
    assert 0.05 < left.mean() < 0.95
    assert terms.rewards(fills) == pytest.approx(episodes.returns, abs=1e-2)
    Trainer(max_iters=1).fit(own)


def test_what_does_not_fit_is_refused() -> None:
    policy = learner()
    space = FullHistoryStateInterpreter(small().features, 4).observation_space
    with pytest.raises(ConfigError, match="position_share"):
        policy.check(space, gym.spaces.Discrete(5))
    with pytest.raises(ConfigError, match="position_share"):
        policy.check(space, gym.spaces.Box(0.0, 10.0, (), np.float32))
    with pytest.raises(ConfigError, match="Quantile"):
        learner(objective=Quantile())
    with pytest.raises(ConfigError, match="even start"):
        ShareHead(MLP(8), 5)
    with make_env(
        small().simulator,
        vessel(policy).state_interpreter,
        PositionShareActionInterpreter(),
        REWARD,
        small().orders[:3],
    ) as env:
        episodes = collect(env, policy, keep=True)
    with pytest.raises(ConfigError, match="prepare"):
        policy.learn(take_rows(episodes.obs, np.arange(1)), episodes.action[:1], episodes.reward[:1], np.array([True]))
