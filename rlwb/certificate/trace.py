"""Training one policy with a dial on a market with a known frontier, and measuring how near its settings come to it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, TypeVar

from rlwb.certificate.almgren_chriss import WalkMarket
from rlwb.errors import ConfigError
from rlwb.execution import CategoricalActionInterpreter, PositionShareActionInterpreter, step_terms
from rlwb.interpreter import ActionInterpreter
from rlwb.learner import Learner
from rlwb.policy import (
    MLP,
    PPO,
    ActionMask,
    ActorCritic,
    Dialled,
    EvenStart,
    Pathwise,
    PathwiseSettings,
    PPOSettings,
    ShareHead,
    make_network,
)
from rlwb.trainer import Trainer, TrainingVessel

Taught = TypeVar("Taught", bound=Learner)

#: Shares of the amount that PPO chooses among.
_CHOICES = 24
#: What the learners are told in place of their own defaults; chosen on the seeds 10 and 11.
_PATHWISE = {"learning_rate": 5e-3, "batch_size": 4500, "repeat": 1}
_PPO = {"learning_rate": 4e-3, "gae_lambda": 1.0, "entropy_coef": 0.003, "batch_size": 6000, "repeat": 3}


def _fit(
    market: WalkMarket, policy: Taught, seed: int, *, iterations: int, episodes: int, acts: ActionInterpreter[Any]
) -> Taught:
    """Train a policy on orders drawn from the market, each once; the seed is that of the orders and the exploration."""
    vessel = TrainingVessel(
        simulator=market.simulator,
        state_interpreter=market.sees,
        action_interpreter=acts,
        policy=policy,
        reward=market.reward,
        train_initial_states=market.draw(iterations * episodes, seed),
        episode_per_iter=episodes,
        seed=seed,
    )
    Trainer(max_iters=iterations).fit(vessel)
    return policy


def pathwise(
    market: WalkMarket, seed: int, *, iterations: int = 60, episodes: int = 4500, hidden: int = 32, **settings: Any
) -> tuple[Pathwise, PositionShareActionInterpreter]:
    """Train pathwise; `settings` are those of `PathwiseSettings`. Return the policy and its actions."""
    acts, terms = PositionShareActionInterpreter(), partial(step_terms, market.simulator.engine, market.reward)
    network = make_network(lambda: ShareHead(Dialled(MLP(hidden), len(market.objective.dial))), seed)
    given = PathwiseSettings(**{**_PATHWISE, "decay_updates": iterations, **settings})
    policy = Pathwise(network, terms, given, seed=seed, objective=market.objective)
    return _fit(market, policy, seed, acts=acts, iterations=iterations, episodes=episodes), acts


def ppo(
    market: WalkMarket, seed: int, *, iterations: int = 50, episodes: int = 4500, hidden: int = 32, **settings: Any
) -> tuple[PPO, CategoricalActionInterpreter]:
    """Train PPO through the reward; `settings` are those of `PPOSettings`. Return the policy and its actions."""
    acts = CategoricalActionInterpreter(_CHOICES)
    parts: dict[str, Any] = {"mask": ActionMask(acts.shares), "start": EvenStart(acts.shares)}

    def build() -> ActorCritic:
        return ActorCritic(Dialled(MLP(hidden), len(market.objective.dial)), _CHOICES + 1, **parts)

    given = PPOSettings(**{**_PPO, "decay_updates": iterations, **settings})
    policy = PPO(make_network(build, seed), given, seed=seed, objective=market.objective)
    return _fit(market, policy, seed, acts=acts, iterations=iterations, episodes=episodes), acts


#: Name to method.
DIALLED = {"pathwise": pathwise, "ppo": ppo}


def trace(market: WalkMarket, method: str, seed: int, **settings: Any) -> list[dict[str, Any]]:
    """Train a learner on a market once, for all settings of the dial, and measure what it reaches at each.

    Parameters
    ----------
    method, settings
        A name in `DIALLED`, and what it is told in place of its defaults.
    seed
        Of the network's weights, the orders and the exploration.

    Returns
    -------
    list of dict
        One mapping a setting: ``market, aversion, method, seed``; ``mean, sd, cvar`` (of the worst twentieth) of the
        net PA against arrival in basis points; ``distance`` and ``gap`` as `WalkMarket` has them; ``seconds`` of
        training.
    """
    if method not in DIALLED:
        raise ConfigError(f"there is no method {method!r} with a dial; choose one of {', '.join(DIALLED)}.")
    began = time.monotonic()
    policy, acts = DIALLED[method](market, seed, **settings)
    seconds = time.monotonic() - began
    return [
        {
            "market": market.name,
            "aversion": aversion,
            "method": method,
            "seed": seed,
            "mean": point.mean,
            "sd": point.deviation,
            "cvar": point.cvar,
            "distance": market.distance(point),
            "gap": market.gap(point, aversion),
            "seconds": seconds,
        }
        for aversion, point in zip(market.settings.aversions, market.points(policy, acts), strict=True)
    ]
