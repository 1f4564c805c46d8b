"""PPO whose action is a number: its distribution, its updates beside a second implementation, and what it learns."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import kstest, norm
from torch import nn
from torch.distributions import AffineTransform, Normal, SigmoidTransform, TransformedDistribution

from rlwb.env import make_env
from rlwb.errors import ConfigError
from rlwb.execution import (
    PAPenaltyReward,
    PositionShareActionInterpreter,
    TwapRelativeActionInterpreter,
    decision_tree,
)
from rlwb.policy import (
    DQN,
    MLP,
    OPD,
    PPO,
    ActionMask,
    ActorCritic,
    AllActions,
    BoundedActorCritic,
    PPOSettings,
    QNetwork,
    Recurrent,
    make_network,
)
from rlwb.policy.bounded import LogisticNormal
from rlwb.trainer import Checkpoint, Episodes, Trainer, collect
from tests.trainer.small import assert_same_weights, small, small_vessel, weights

SHARE, RATIO = gym.spaces.Box(0.0, 1.0, (), np.float32), gym.spaces.Box(0.0, 10.0, (), np.float32)
INTERPRETERS = {
    "position_share": PositionShareActionInterpreter(),
    "twap_relative": TwapRelativeActionInterpreter(small().simulator.engine),
}


def policy_of(high: float = 1.0, *, seed: int = 0, **settings: Any) -> PPO:
    build = lambda: BoundedActorCritic(Recurrent(small().features.shape[2], 8), high=high)  # noqa: E731
    given = {"learning_rate": 5e-3, "batch_size": 16, "repeat": 2, **settings}
    return PPO(make_network(build, seed), PPOSettings(**given), seed=seed)


def gathered(policy: PPO, interpreter: str = "position_share", env: str = "native") -> Episodes:
    market = small()
    parts = (market.simulator, market.observer, INTERPRETERS[interpreter], PAPenaltyReward(scale=0.1), market.orders)
    with make_env(*parts, finite_env_type=env, concurrency=3) as opened:
        return collect(opened, policy, seed=(7,), keep=True)


# The distribution


def one(location: float, deviation: float, high: float = 1.0) -> LogisticNormal:
    return LogisticNormal(torch.tensor([[location, deviation]], dtype=torch.float64), high)


@pytest.mark.parametrize(
    ("location", "deviation", "high"), [(0.0, 1.0, 1.0), (-2.0, 0.3, 1.0), (1.5, 2.0, 1.0), (-2.2, 1.0, 10.0)]
)
def test_the_density_integrates_to_1_and_is_torchs(location: float, deviation: float, high: float) -> None:
    own = one(location, deviation, high)
    grid = torch.as_tensor(high * expit(location + deviation * np.linspace(-7, 7, 20_001)))
    assert np.trapezoid(own.log_prob(grid).exp(), grid) == pytest.approx(1.0, abs=1e-5)
    theirs = TransformedDistribution(
        Normal(torch.tensor(location).double(), torch.tensor(deviation).double()),
        [SigmoidTransform(), AffineTransform(0.0, high)],
    )
    points = torch.linspace(0.01, 0.99, 40, dtype=torch.float64) * high
    torch.testing.assert_close(own.log_prob(points), theirs.log_prob(points), rtol=1e-5, atol=1e-5)
    assert float(own.entropy()) == pytest.approx(float(theirs.base_dist.entropy()))


def test_noise_draws_the_quantiles() -> None:
    own = one(-1.0, 2.0, 10.0)
    levels = np.array([0.0, 1e-300, 0.1, 0.5, 0.9, np.nextafter(1.0, 0.0)])
    many = LogisticNormal(torch.tensor([[-1.0, 2.0]] * len(levels)), 10.0)
    drawn = many.draw(levels)
    assert drawn.dtype == np.float32
    np.testing.assert_allclose(drawn[2:5], 10 * expit(-1 + 2 * norm.ppf(levels[2:5])), rtol=1e-6)
    assert (np.diff(drawn) >= 0).all()
    assert ((drawn >= 0) & (drawn <= 10)).all()
    assert bool(torch.isfinite(many.log_prob(torch.as_tensor(drawn))).all())
    assert float(own.best()) == pytest.approx(drawn[3])
    n = 20_000
    more = LogisticNormal(torch.tensor([[-1.0, 2.0]] * n), 10.0).draw(np.random.default_rng(0).random(n)) / 10.0
    assert kstest(np.log(more / (1 - more.astype(float))), norm(-1, 2).cdf).pvalue > 1e-3


@given(st.floats(-30, 30), st.floats(1e-3, 20), st.floats(0, 1), st.sampled_from([1.0, 10.0]))
def test_what_is_drawn_has_a_finite_density_and_gradient(
    location: float, deviation: float, noise: float, high: float
) -> None:
    scores = torch.tensor([[location, deviation]], requires_grad=True)
    own = LogisticNormal(scores, high)
    drawn = LogisticNormal(scores.detach(), high).draw(np.array([noise * (1 - 1e-16)]))
    log_prob = own.log_prob(torch.as_tensor(drawn))
    (log_prob + own.entropy()).sum().backward()
    assert bool(torch.isfinite(log_prob).all())
    assert scores.grad is not None
    assert bool(torch.isfinite(scores.grad).all())


# The head


@pytest.mark.parametrize("name", INTERPRETERS)
def test_an_untrained_policy_trades_evenly(name: str) -> None:
    acts = INTERPRETERS[name]
    policy = policy_of(float(acts.action_space.high))
    with torch.no_grad():
        policy.network.actor.weight.zero_()
    market = small()
    state = market.simulator.start(market.orders, np.zeros(len(market.orders), dtype=np.uint64))
    while not state.done.all():
        known, open_ = state.known, ~state.done
        request = acts.interpret(known, policy.act(market.observer.refer(known)))
        steps = known.num_steps - known.step
        if name == "twap_relative":
            even = market.simulator.engine.even_share(known, known)
        else:
            even = 1.0 / np.maximum(steps, 1)
        np.testing.assert_allclose(request[open_], (known.position * even)[open_], rtol=1e-5)
        state = market.simulator.step(state, np.where(state.done, 0.0, request))


def test_in_the_last_step_nothing_is_drawn_and_nothing_learnt() -> None:
    policy = policy_of()
    e = gathered(policy)
    last = e.obs["cur_step"] == e.obs["num_step"] - 1
    assert 0 < last.sum() < len(last)
    assert (e.action[last] == 1.0).all()
    assert (e.action[~last] < 1.0).any()
    scores, _ = policy.network(e.obs)
    own = policy.network.distribution(scores)
    log_prob, entropy = own.log_prob(torch.as_tensor(e.action)), own.entropy()
    assert (log_prob[last] == 0).all()
    assert (entropy[last] == 0).all()
    (log_prob + entropy)[torch.as_tensor(last)].sum().backward()
    assert not any(weight.grad.abs().any() for weight in policy.network.parameters() if weight.grad is not None)


@pytest.mark.parametrize("name", INTERPRETERS)
def test_environments_of_one_order_and_of_all_give_the_same_numbers(name: str) -> None:
    policy = policy_of(float(INTERPRETERS[name].action_space.high))
    ours, theirs = gathered(policy, name), gathered(policy, name, "dummy")
    assert ours.action.dtype == theirs.action.dtype == np.float32
    np.testing.assert_allclose(ours.action, theirs.action, rtol=1e-5)
    np.testing.assert_allclose(ours.reward, theirs.reward, rtol=0, atol=1e-4)


# Updates


def plain_update(net: BoundedActorCritic, adam: Any, s: PPOSettings, e: Episodes, batches: list[np.ndarray]) -> None:
    """Proximal policy optimisation written down once more, by torch's own distributions."""

    def log_prob_and_entropy(scores: torch.Tensor, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        free = np.flatnonzero(e.obs["cur_step"][rows] < e.obs["num_step"][rows] - 1)
        base = Normal(scores[free, 0], scores[free, 1])
        whole = TransformedDistribution(base, [SigmoidTransform(), AffineTransform(0.0, net.high)])
        inside = np.clip(e.action[rows][free] / net.high, 2.0**-24, 1 - 2.0**-24) * net.high
        zero = torch.zeros(len(rows))
        log_prob = whole.log_prob(torch.tensor(inside, dtype=torch.float32))
        return zero.index_put((torch.as_tensor(free),), log_prob), zero.index_put(
            (torch.as_tensor(free),), base.entropy()
        )

    rows = np.arange(len(e.done))
    with torch.no_grad():
        scores, value = net(e.obs)
        old, _ = log_prob_and_entropy(scores, rows)
    v, ends, total = value.double().numpy(), np.flatnonzero(e.done), np.zeros(len(rows))
    for start, stop in zip(np.append(0, ends[:-1] + 1), ends + 1, strict=True):
        total[start:stop] = np.cumsum(e.reward[start:stop][::-1])[::-1]
    advantage, target = (torch.tensor(x, dtype=torch.float32) for x in (total - v, total))
    for part in batches:
        obs = {name: values[part] for name, values in e.obs.items()}
        scores, value = net(obs)
        new, entropy = log_prob_and_entropy(scores, part)
        a = (advantage[part] - advantage[part].mean()) / (advantage[part].std() + 1e-8)
        ratio = torch.exp(new - old[part])
        actor = -torch.minimum(ratio * a, ratio.clip(1 - s.clip, 1 + s.clip) * a).mean()
        loss = actor + s.value_coef * ((target[part] - value) ** 2).mean() - s.entropy_coef * entropy.mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), s.max_grad_norm)
        adam.step()


@pytest.mark.parametrize("name", INTERPRETERS)
def test_updates_equal_plain_torch(name: str) -> None:
    policy = policy_of(float(INTERPRETERS[name].action_space.high), return_scaling=False, batch_size=24)
    e, start, net = gathered(policy, name, "dummy"), weights(policy), copy.deepcopy(policy.network)
    adam = torch.optim.Adam(net.parameters(), lr=policy.settings.learning_rate)
    for _ in range(2):  # the second one depends on Adam's moments
        batches = list(policy._minibatches(e.done))
        assert len(batches) > 4
        plain_update(net, adam, policy.settings, e, batches)
        figures = policy.learn(e.obs, e.action, e.reward, e.done)
    assert set(figures) == set(PPO.figures)
    for key, value in net.state_dict().items():
        moved = np.abs(value.numpy() - start[key]).max()
        assert moved > 1e-4, f"{key} has not moved"
        np.testing.assert_allclose(weights(policy)[key], value.numpy(), rtol=0, atol=5e-3 * moved, err_msg=key)


def test_it_learns_a_share_for_each_step() -> None:
    """What is paid is best for a tenth in the first step and nine tenths in the second."""
    network = make_network(lambda: BoundedActorCritic(MLP(16)), seed=0)
    policy = PPO(network, PPOSettings(learning_rate=0.02, batch_size=200, decay_updates=60), seed=0)
    step = np.tile([0, 1], 100)
    obs = {
        "acquiring": np.zeros(200, np.int64),
        "cur_step": step,
        "num_step": np.full(200, 4),
        "target": np.ones(200, np.float32),
        "position": np.ones(200, np.float32),
    }
    best = np.where(step == 0, 0.1, 0.9)
    for update in range(60):
        action = policy.act(obs, np.random.default_rng(update).random(200))
        policy.learn(obs, action, -np.square(action - best), np.ones(200, dtype=bool))
    np.testing.assert_allclose(policy.act(obs), best, atol=0.08)
    assert network.log_deviation.item() < np.log(3.0), "it has become surer"


# A training


def vessel(policy: PPO, name: str = "position_share") -> Any:
    return small_vessel(policy=policy, action_interpreter=INTERPRETERS[name])


def test_a_training_goes_on_to_the_last_bit(tmp_path: Path) -> None:
    whole, first, second = (policy_of(10.0) for _ in range(3))
    Trainer(max_iters=3).fit(vessel(whole, "twap_relative"))
    Trainer(max_iters=2, callbacks=[Checkpoint(tmp_path)]).fit(vessel(first, "twap_relative"))
    Trainer(max_iters=3).fit(vessel(second, "twap_relative"), tmp_path / "0002.pt")
    assert_same_weights(whole, second)


def test_what_does_not_fit_is_refused() -> None:
    anything = gym.spaces.Dict({})
    policy_of().check(anything, SHARE)
    policy_of(10.0).check(anything, RATIO)
    wrong = [RATIO, gym.spaces.Discrete(5), gym.spaces.Box(-1.0, 1.0, (), np.float32), gym.spaces.Box(0, 1, (1,))]
    for space in wrong:
        with pytest.raises(ConfigError, match="position_share"):
            policy_of().check(anything, space)
    for high, space in ((0.5, gym.spaces.Box(0.0, 0.5, (), np.float32)), (np.inf, gym.spaces.Box(0, np.inf, ()))):
        with pytest.raises(ConfigError, match="max_ratio"):
            policy_of(float(high)).check(anything, space)
    with pytest.raises(ConfigError, match="even start"):
        BoundedActorCritic(MLP(8), mask=ActionMask([0.0, 1.0]))


def test_learners_that_choose_name_what_to_set() -> None:
    net = make_network(lambda: ActorCritic(MLP(8), 1), seed=0)
    acts = INTERPRETERS["position_share"]
    tree = partial(decision_tree, small().simulator, small().observer, acts, PAPenaltyReward())
    for own in (DQN(QNetwork(MLP(8), 1)), PPO(net), OPD(net, PPO(net)), AllActions(net, tree)):
        with pytest.raises(ConfigError, match=r"categorical.* ppo or pathwise"):
            own.check(gym.spaces.Dict({}), SHARE)
    number = BoundedActorCritic(MLP(8))
    for own in (OPD(number, PPO(number)), AllActions(number, tree)):
        with pytest.raises(ConfigError, match="categorical"):
            own.check(gym.spaces.Dict({}), SHARE)
