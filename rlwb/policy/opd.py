"""Oracle policy distillation (Fang et al., AAAI 2021, arXiv 2103.10860): PPO that also imitates an oracle's actions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tianshou.algorithm.modelfree.a2c import A2CTrainingStats
from tianshou.data import ReplayBuffer, SequenceSummaryStats

from rlwb.errors import CheckpointError, ConfigError
from rlwb.policy.networks import ActorCritic
from rlwb.policy.ppo import PPO, PPOSettings


@dataclass(frozen=True)
class OPDSettings(PPOSettings):
    """Settings of oracle policy distillation: those of `PPOSettings` and one more.

    Parameters
    ----------
    distillation
        Weight mu of the distillation loss; larger imitates the teacher more and heeds the own reward less. 0 is PPO.
    """

    distillation: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.distillation >= 0:
            raise ConfigError(f"distillation is {self.distillation}; it must be 0 or more.")


@dataclass(kw_only=True)
class _Stats(A2CTrainingStats):
    distillation_loss: SequenceSummaryStats


class OPD(PPO):
    """The student: PPO whose loss has a term that draws it to the actions of a teacher that knows the future.

    ``L = L_PPO + mu L_d`` with ``L_d = -mean log pi(a | s)``, where s are the states that the student visited and a
    is the action that the teacher holds the most probable there.

    Parameters
    ----------
    net
        Network of the student; it decides on what it has seen, whatever its teacher knows.
    teacher
        A trained policy with the same actions, usually on a network of `make_teacher`. It learns nothing here.
    settings
        Hyper-parameters.
    seed
        See `PPO`.

    Notes
    -----
    A teacher and its student are trained one after the other, each as any policy::

        teacher = PPO(make_teacher(shape, actions, features=features))
        Trainer(max_iters=100).fit(TrainingVessel(policy=teacher, **parts))
        student = OPD(make_network(shape, actions, features=features), teacher)
        Trainer(max_iters=100).fit(TrainingVessel(policy=student, **parts))

    What the paper calls student only (OPD-S) is the same network trained by the same reward without a teacher: `PPO`.
    In the authors' code (``examples/trade`` of Qlib's history) the teacher's actions are those that it took at the same
    time in executing the order itself. Here it is asked in the student's place, with the position that the student has
    left, since an answer to another position may not be possible, let alone good. Their weight mu is 0.01; an adaptive
    penalty on the change of the policy, which they add to PPO, is left out.

    Once trained, the student is an ordinary policy: a `PPO` with its network takes its state, without a teacher. The
    state holds a fingerprint of the teacher's weights, so that a training goes on under the same teacher or not at all.
    """

    figures: tuple[str, ...] = (*PPO.figures, "distillation_loss")
    settings: OPDSettings
    teacher: PPO

    def __init__(self, net: ActorCritic, teacher: PPO, settings: OPDSettings | None = None, *, seed: int = 0) -> None:
        super().__init__(net, settings or OPDSettings(), seed=seed)
        if not _same_actions(net, teacher.net):
            raise ConfigError(
                "teacher and student differ in their number of actions or in their masks, so an action of the one is "
                "not one of the other; build both networks with the same."
            )
        # Past torch, which would make the teacher's weights this policy's own.
        self.__dict__["teacher"] = teacher
        self._terms: list[tuple[float, float]] = []

    def _preprocess_batch(self, batch: Any, buffer: ReplayBuffer, indices: np.ndarray) -> Any:
        batch = super()._preprocess_batch(batch, buffer, indices)
        answer = self.teacher.act(self._rows(batch, np.arange(len(batch))))
        batch.teacher_act = torch.as_tensor(answer, device=batch.act.device)
        return batch

    def _losses(self, batch: Any, at: torch.Tensor, logits: torch.Tensor, value: torch.Tensor) -> tuple[Any, Any, Any]:
        """Return the losses of PPO, that of the policy with the weighted distillation loss in it."""
        actor_loss, value_loss, entropy = super()._losses(batch, at, logits, value)
        distillation = torch.nn.functional.cross_entropy(logits, batch.teacher_act[at])
        self._terms.append((float(actor_loss.detach()), float(distillation.detach())))
        if self.settings.distillation:
            actor_loss = actor_loss + self.settings.distillation * distillation
        return actor_loss, value_loss, entropy

    def _update_with_batch(self, batch: Any, batch_size: int | None, repeat: int) -> _Stats:
        self._terms.clear()
        stats = super()._update_with_batch(batch, batch_size, repeat)
        actor, distillation = (SequenceSummaryStats.from_sequence(part) for part in zip(*self._terms, strict=True))
        return _Stats(**{**vars(stats), "actor_loss": actor, "distillation_loss": distillation})

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Return what `PPO.state_dict` does, and the fingerprint of the teacher."""
        return {**super().state_dict(*args, **kwargs), "_teacher": fingerprint(self.teacher)}

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> None:
        """Load the state of a student, to go on with its training.

        Raises
        ------
        CheckpointError
            When it is another policy's state, or that of a student of another teacher.
        """
        if state_dict.get("_teacher") != fingerprint(self.teacher):
            raise CheckpointError(
                "the state is not that of a student of this teacher; give the teacher that it was trained by, or train "
                "a new student."
            )
        super().load_state_dict(state_dict, *args, **kwargs)


def fingerprint(policy: PPO) -> str:
    """Return a hash of the weights of a policy's network."""
    digest = hashlib.sha256()
    for name, value in policy.net.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _same_actions(one: ActorCritic, other: ActorCritic) -> bool:
    if one.actor.out_features != other.actor.out_features:
        return False
    if one.mask is None or other.mask is None:
        return one.mask is other.mask
    return torch.equal(one.mask.distinct, other.mask.distinct) and torch.equal(one.mask.rank, other.mask.rank)
