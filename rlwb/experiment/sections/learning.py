"""What learns, and how."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from rlwb.experiment.parameters import Section
from rlwb.experiment.sections.algorithms import DQNConfig, OPDConfig
from rlwb.experiment.sections.fields import Count, CountOrZero, NotNegative, Positive, Share

_UNUSED_BY_ALGORITHM = {
    "ppo": ("dqn", "opd"),
    "dqn": ("gae_lambda", "clip", "entropy", "value_coef", "opd"),
    "opd": ("dqn",),
}


def unused_settings(algorithm: str, reward: str) -> dict[str, str]:
    """Return the settings of `TrainConfig` without effect, each with the setting by which they have none."""
    by_reward = dict.fromkeys(("penalty", "reward_scale") if reward == "sparse" else (), "reward")
    return dict.fromkeys(_UNUSED_BY_ALGORITHM.get(algorithm, ()), "algorithm") | by_reward


class PolicyConfig(Section):
    """The network.

    Parameters
    ----------
    network
        ``recurrent`` reads today's bars by a GRU, ``convolution`` by causal convolutions, ``attention`` by a small
        transformer, and yesterday's with features.previous_day; ``mlp`` sees the order's own state alone.
    hidden
        Width of its layers; larger can hold more and learns slower.
    mask_actions
        Whether of actions that ask for the same amount, like all in an order's last step, one alone can be chosen.
    even_start
        Whether the untrained policy, and random actions, trade evenly on average instead of choosing evenly.
    """

    network: Literal["recurrent", "convolution", "attention", "mlp"] = "recurrent"
    hidden: Count = 64
    mask_actions: bool = False
    even_start: bool = False


class TrainConfig(Section):
    """How the policy is trained.

    Parameters
    ----------
    algorithm
        ``ppo`` learns from each collect and forgets it; ``dqn`` keeps what it has seen and learns the actions' values;
        ``opd`` is ppo that also imitates a teacher which sees the rest of the day.
    iterations
        Collects of episodes, each followed by an update, those before a resume included; a run that has trained for
        more refuses fewer.
    episodes_per_iteration
        Orders executed a collect; larger gives a steadier gradient and takes longer.
    batch_size
        Transitions a gradient step; larger is steadier, smaller takes more steps.
    repeats
        Passes over the collected transitions; larger learns more from each, and drifts further from the policy that
        collected them. With ``dqn``, draws of as many from the kept ones.
    learning_rate
        Step of the optimiser; larger learns faster until it does not learn at all.
    decay_iterations
        Iterations within which the learning rate falls in a line to 0, usually as many as `iterations`; it steadies the
        end of a training. None keeps the rate.
    gamma
        Discount a step; below 1 the policy cares less for what comes later in the order.
    gae_lambda
        1 uses whole episodes (unbiased, noisy), 0 the critic's guess (biased, calm). Not with ``dqn``, like the next
        three.
    clip
        How far one update may move the probabilities of actions.
    entropy
        Weight of the entropy bonus; larger explores more.
    value_coef
        Weight of the critic's loss.
    dqn
        Only with ``dqn``.
    opd
        Only with ``opd``.
    max_grad_norm
        Gradients longer than this are cut.
    action_values
        The policy chooses among 0, 1/n, …, 1 of the amount; this is n.
    reward
        ``pa`` pays each step its price advantage in basis points less a penalty. ``sparse`` pays once, at the end, on
        the price after costs: -1 for one worse than TWAP, 1 for one a tenth better, which is rare in a day, 0 between.
    penalty
        Weight of the penalty on trading in lumps; larger draws the policy towards TWAP. Only with ``pa``.
    reward_scale
        Factor of the reward. Only with ``pa``.
    validate_every
        Iterations between validations; only validated iterations can be chosen for the backtest.
    checkpoint_every
        Iterations between checkpoints.
    keep
        Checkpoints kept: the best by validation and the newest; 0 keeps all.
    patience
        Validations without improvement until training stops; none trains to the end.
    env
        Environments to collect with: ``native`` steps all orders as arrays; ``dummy``, ``subproc`` and ``shmem`` step
        one simulator an order, in this process or in workers. All give the same numbers.
    concurrency
        Orders in progress at a time with ``dummy``, workers with ``subproc`` and ``shmem``; ``native`` takes all orders
        at once and has no use for it.
    device
        ``cpu``, ``cuda``, or ``auto``.
    """

    algorithm: Literal["ppo", "dqn", "opd"] = "ppo"
    iterations: Count = 40
    episodes_per_iteration: Count = 1000
    batch_size: Count = 500
    repeats: Count = 4
    learning_rate: Positive = 2e-3
    decay_iterations: Count | None = None
    gamma: Share = 1.0
    gae_lambda: Share = 1.0
    clip: Positive = 0.2
    entropy: NotNegative = 0.01
    value_coef: NotNegative = 0.5
    dqn: DQNConfig = DQNConfig()
    opd: OPDConfig = OPDConfig()
    max_grad_norm: Positive = 1.0
    action_values: Count = 4
    reward: Literal["pa", "sparse"] = "pa"
    penalty: NotNegative = 20.0
    reward_scale: Positive = 1.0
    validate_every: Count = 1
    checkpoint_every: Count = 1
    keep: CountOrZero = 0
    patience: Count | None = None
    env: Literal["native", "dummy", "subproc", "shmem"] = "native"
    concurrency: Count = 4
    device: Literal["cpu", "cuda", "auto"] = "cpu"

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        for name, chooser in unused_settings(self.algorithm, self.reward).items():
            if getattr(self, name) != type(self).model_fields[name].default:
                chosen = getattr(self, chooser)
                raise ValueError(f"{name} has no effect with {chooser} {chosen!r}; drop it or change the {chooser}.")
        if self.env == "native" and self.concurrency != type(self).model_fields["concurrency"].default:
            raise ValueError("concurrency has no effect with env 'native'; drop it or change the env.")
        return self

    @model_validator(mode="after")
    def _teacher_as_long(self) -> TrainConfig:
        if self.algorithm == "opd" and self.opd.teacher_iterations is None:
            # Settled once, so that a student that is trained for longer keeps its teacher.
            own = self.opd.model_copy(update={"teacher_iterations": self.iterations})
            object.__setattr__(self, "opd", own)
        return self

    @model_validator(mode="after")
    def _decays_to_the_end(self) -> TrainConfig:
        for name, asked in (("iterations", self.iterations), ("opd.teacher_iterations", self.opd.teacher_iterations)):
            if self.decay_iterations is not None and asked is not None and asked > self.decay_iterations:
                raise ValueError(
                    f"decay_iterations is {self.decay_iterations} and {name} {asked}, so the last "
                    f"{asked - self.decay_iterations} would learn nothing; set it to {asked} or more."
                )
        return self
