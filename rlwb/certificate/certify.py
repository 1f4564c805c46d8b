"""Training a learner on a market with a known optimum, and measuring how much of it is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlwb.certificate.almgren_chriss import WalkMarket
from rlwb.certificate.market import CertifiedMarket
from rlwb.errors import ConfigError
from rlwb.interpreter import ActionInterpreter
from rlwb.learner import Actor, Learner
from rlwb.policy import (
    DQN,
    OPD,
    PPO,
    ActionMask,
    ActorCritic,
    DQNSettings,
    EvenStart,
    OPDSettings,
    Oracle,
    PPOSettings,
    QNetwork,
    Recurrent,
    make_network,
)
from rlwb.trainer import Callback, Trainer, TrainingVessel

Head = TypeVar("Head", ActorCritic, QNetwork)
Taught = TypeVar("Taught", bound=Learner)

#: Trains on a market from a seed, tells the callbacks, and returns the policy: ``method(market, seed, callbacks)``.
Method = Callable[..., Actor]

#: Added to a seed for the orders of a teacher.
_TEACHER = 1_000_000
#: Settings other than the learners' own defaults; of PPO alone, as a teacher and as a student.
_PPO = {"learning_rate": 6e-3, "gae_lambda": 0.9, "entropy_coef": 0.02, "batch_size": 1000, "repeat": 3}
#: Errors are squared: the value of an action is the mean of what it pays, and with Huber's loss, which heeds far errors
#: less, the learner would go by something between the mean and the median.
_DQN = {"learning_rate": 4e-3, "batch_size": 1000, "repeat": 4, "huber": None, "replay_size": 10**6, "epsilon_end": 0.2}


class Curve(Callback):
    """Notes what the policy is worth after every so many iterations and the last, and how long the training takes.

    Attributes
    ----------
    points
        One mapping a judgement: ``iteration``, ``value`` and ``error``, the last two in basis points.
    seconds
        Time of all collects and updates so far, judgements left out.
    """

    rank = 1

    def __init__(self, market: CertifiedMarket, every: int = 5) -> None:
        if every < 1:
            raise ConfigError(f"every is {every}; judge after every 1 or more iterations.")
        self.market = market
        self.every = every
        self.points: list[dict[str, float]] = []
        self.seconds = 0.0

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self.seconds += trainer.metrics["seconds"]
        if trainer.current_iter % self.every == 0 or trainer.is_last_iter:
            value = self.market.value(vessel.policy)
            self.points.append({"iteration": trainer.current_iter, "value": value.mean, "error": value.error})


def fit(
    market: CertifiedMarket | WalkMarket,
    policy: Taught,
    seed: int,
    callbacks: Sequence[Callback] = (),
    *,
    iterations: int,
    episodes: int,
    acts: ActionInterpreter[Any] | None = None,
) -> Taught:
    """Train a policy on orders drawn from the market, each once, by the ordinary path; return it.

    The seed is that of the orders and of the exploration; `episodes` are those of an iteration, and `acts` the actions
    where they are not the market's own.
    """
    if acts is None:
        assert isinstance(market, CertifiedMarket), "a walk has no actions of its own"
        acts = market.acts
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
    Trainer(max_iters=iterations, callbacks=callbacks).fit(vessel)
    return policy


def _network(
    market: CertifiedMarket,
    seed: int,
    hidden: int,
    trunk: type[Recurrent | Oracle] = Recurrent,
    head: type[Head] = ActorCritic,
) -> Head:
    shares, channels = market.acts.shares, market.features.shape[2]

    def build() -> Head:
        acts: dict[str, Any] = {"mask": ActionMask(shares), "start": EvenStart(shares)}
        return head(trunk(channels, hidden), market.lots + 1, **acts)

    return make_network(build, seed)


def ppo(
    market: CertifiedMarket,
    seed: int,
    callbacks: Sequence[Callback] = (),
    *,
    iterations: int = 100,
    episodes: int = 2000,
    hidden: int = 64,
    **settings: Any,
) -> PPO:
    """Train PPO with the recurrent network, at a rate that falls to 0; `settings` are those of `PPOSettings`."""
    given = PPOSettings(**{**_PPO, "decay_updates": iterations, **settings})
    policy = PPO(_network(market, seed, hidden), given, seed=seed)
    return fit(market, policy, seed, callbacks, iterations=iterations, episodes=episodes)


def dqn(
    market: CertifiedMarket,
    seed: int,
    callbacks: Sequence[Callback] = (),
    *,
    iterations: int = 80,
    episodes: int = 2000,
    hidden: int = 64,
    **settings: Any,
) -> DQN:
    """Train DQN with the recurrent network, at a rate that falls to 0; `settings` are those of `DQNSettings`."""
    lengths = {"decay_updates": iterations, "epsilon_updates": max(1, 2 * iterations // 3)}
    given = DQNSettings(**{**_DQN, **lengths, **settings})
    policy = DQN(_network(market, seed, hidden, head=QNetwork), given, seed=seed)
    return fit(market, policy, seed, callbacks, iterations=iterations, episodes=episodes)


def opd(
    market: CertifiedMarket,
    seed: int,
    callbacks: Sequence[Callback] = (),
    *,
    iterations: int = 100,
    teacher_iterations: int | None = None,
    episodes: int = 2000,
    hidden: int = 64,
    distillation: float = 0.01,
    **settings: Any,
) -> OPD:
    """Train a teacher that sees the whole path by PPO, then a student of it that does not; the student is returned.

    The teacher learns for a fifth of the student's iterations where it is not said: what it is to find is plain to see.
    The callbacks are told of the student's training alone; the teacher's time is added to that of a `Curve`.
    """
    lessons = max(1, iterations // 5) if teacher_iterations is None else teacher_iterations
    began = time.monotonic()
    given = PPOSettings(**{**_PPO, "decay_updates": lessons, **settings})
    teacher = PPO(_network(market, seed, hidden, Oracle), given, seed=seed)
    # Orders of the teacher's own, for the student's are drawn from the seed.
    fit(market, teacher, seed + _TEACHER, iterations=lessons, episodes=episodes)
    for curve in callbacks:
        if isinstance(curve, Curve):
            curve.seconds += time.monotonic() - began
    taught = OPDSettings(**{**_PPO, "decay_updates": iterations, "distillation": distillation, **settings})
    student = OPD(_network(market, seed, hidden), teacher, taught, seed=seed)
    return fit(market, student, seed, callbacks, iterations=iterations, episodes=episodes)


#: Name to method.
METHODS: dict[str, Method] = {"ppo": ppo, "dqn": dqn, "opd": opd}


def certify(market: CertifiedMarket, method: str, seed: int, *, every: int = 5, **settings: Any) -> dict[str, Any]:
    """Train a learner on a market and measure what the last of its policies is worth when it acts greedily.

    Parameters
    ----------
    method, settings
        A name in `METHODS`, and what it is told in place of its defaults.
    seed
        Of the network's weights, the orders and the exploration.
    every
        Iterations from one point of the curve to the next.

    Returns
    -------
    dict
        ``market, method, seed``; ``value, error, optimum, twap`` in basis points, as `CertifiedMarket` has them;
        ``share``, NaN where the optimum is not above TWAP; ``seconds`` of training; and ``curve``, a list of
        ``iteration, value, error``.
    """
    if method not in METHODS:
        raise ConfigError(f"there is no method {method!r}; choose one of {', '.join(METHODS)}.")
    curve = Curve(market, every)
    METHODS[method](market, seed, [curve], **settings)
    last = curve.points[-1]
    return {
        "market": market.name,
        "method": method,
        "seed": seed,
        "value": last["value"],
        "error": last["error"],
        "optimum": market.optimum,
        "twap": market.twap,
        "share": market.share(last["value"]),
        "seconds": curve.seconds,
        "curve": curve.points,
    }
