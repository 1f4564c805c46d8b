"""Oracle policy distillation (Fang et al., AAAI 2021, arXiv 2103.10860): PPO that also imitates an oracle's actions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlwb.errors import CheckpointError, ConfigError
from rlwb.policy.heads import ActorCritic
from rlwb.policy.learner import check_settings
from rlwb.policy.ppo import PPO, PPOSettings, Samples


@dataclass(frozen=True, kw_only=True)
class OPDSettings(PPOSettings):
    """Settings of oracle policy distillation: those of `PPOSettings`, and more.

    Parameters
    ----------
    distillation
        Weight mu of the distillation loss, 0 or more; larger imitates the teacher more and heeds the own reward less. 0
        is PPO, too large also copies what only the future tells.
    teacher_iterations : iterations
        Iterations that a run trains the teacher for before the student begins, 1 or more; None means as many as the
        student's. The class itself is given a trained teacher.
    """

    distillation: float = 0.01
    teacher_iterations: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_settings(
            weights={"distillation": self.distillation}, counts={"teacher_iterations": self.teacher_iterations}
        )


@dataclass
class TaughtSamples(Samples):
    """Samples, and what the teacher would have done: int64 of shape (N,)."""

    teacher_action: torch.Tensor


class OPD(PPO):
    """The student: PPO whose loss has a term that draws it to the actions of a teacher that knows the future.

    ``L = L_PPO + mu L_d`` with ``L_d = -mean log pi(a | s)``, where s are the states that the student visited and a
    is the action that the teacher holds the most probable there.

    Parameters
    ----------
    network
        Network of the student; it decides on what it has seen, whatever its teacher knows.
    teacher
        A trained policy with the same actions, usually on an `Oracle` network. It learns nothing here.
    settings
        Hyper-parameters.
    seed
        See `PPO`.

    Notes
    -----
    A teacher and its student are trained one after the other::

        teacher = PPO(ActorCritic(Oracle(channels), actions))
        Trainer(max_iters=100).fit(TrainingVessel(policy=teacher, **parts))
        student = OPD(ActorCritic(Recurrent(channels), actions), teacher)
        Trainer(max_iters=100).fit(TrainingVessel(policy=student, **parts))

    What the paper calls student only (OPD-S) is `PPO` with the same network and reward. In the authors' code
    (``examples/trade`` of Qlib's history) the teacher's actions are those that it took at the same time in executing
    the order itself. Here it is asked in the student's place, with the position that the student has left, since an
    answer to another position may not be possible, let alone good. Their mu is 0.01; the adaptive penalty on the change
    of the policy, which they add to PPO, is left out.

    Once trained, a `PPO` with the student's network takes its state, without a teacher. The state holds a fingerprint
    of the teacher's weights, so that a training goes on under the same teacher or not at all.
    """

    figures: tuple[str, ...] = (*PPO.figures, "distillation_loss")
    number_head = None
    settings: OPDSettings

    def __init__(
        self, network: ActorCritic, teacher: PPO, settings: OPDSettings | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(network, settings or OPDSettings(), seed=seed)
        if _actions(network) != _actions(teacher.network):
            raise ConfigError(
                "teacher and student differ in their number of actions or in their masks, so an action of the one is "
                "not one of the other; build both networks with the same."
            )
        self.teacher = teacher

    def _evaluate(self, obs: Any, action: np.ndarray, reward: np.ndarray, done: np.ndarray) -> TaughtSamples:
        samples = super()._evaluate(obs, action, reward, done)
        answer = self.teacher.act(self._rows(obs, done, np.arange(len(done))))
        return TaughtSamples(**vars(samples), teacher_action=torch.as_tensor(answer, device=samples.value.device))

    def _losses(
        self, samples: Samples, at: torch.Tensor, scores: torch.Tensor, value: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        assert isinstance(samples, TaughtSamples)
        losses = super()._losses(samples, at, scores, value)
        distillation = nn.functional.cross_entropy(scores, samples.teacher_action[at])
        if self.settings.distillation:
            losses["loss"] = losses["loss"] + self.settings.distillation * distillation
        return {**losses, "distillation_loss": distillation}

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "teacher": fingerprint(self.teacher)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a student, to go on with its training.

        Raises
        ------
        CheckpointError
            When it is another policy's state, or that of a student of another teacher.
        """
        if state.get("teacher") != fingerprint(self.teacher):
            raise CheckpointError(
                "the state is not that of a student of this teacher; give the teacher that it was trained by, or train "
                "a new student."
            )
        super().load_state_dict(state)


def fingerprint(policy: PPO) -> str:
    """Return a hash of the weights of a policy's network."""
    digest = hashlib.sha256()
    for name, value in policy.network.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _actions(network: ActorCritic) -> tuple[int, list[float] | None]:
    """Return the number of actions, and what shares their mask takes them for."""
    mask = network.mask
    return network.actions, None if mask is None else mask.distinct[mask.rank].tolist()
