from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rlwb.errors import CheckpointError, ConfigError
from rlwb.execution import CurrentStepStateInterpreter
from rlwb.policy import MLP, OPD, PPO, ActionMask, ActorCritic, OPDSettings, Oracle, PPOSettings, make_network
from rlwb.policy.opd import TaughtSamples
from rlwb.trainer import Trainer, load_checkpoint, save_checkpoint
from tests.policy.conftest import Rollout, learn
from tests.trainer.small import (
    ACTIONS,
    UPDATE,
    assert_same_weights,
    small,
    small_network,
    small_ppo,
    small_vessel,
    weights,
)


def small_teacher(seed: int = 0, **settings: Any) -> PPO:
    net = small_network(Oracle, seed=seed)
    with torch.no_grad():
        net.actor.weight.mul_(1000)  # an untrained one that does not say the same always
    return PPO(net, PPOSettings(**{**UPDATE, **settings}), seed=seed)


def student(teacher: PPO, *, seed: int = 0, hidden: int = 8, **settings: Any) -> OPD:
    net = small_network(hidden=hidden, seed=seed)
    return OPD(net, teacher, OPDSettings(**{"learning_rate": 5e-3, **UPDATE, **settings}), seed=seed)


def test_without_weight_it_is_ppo_to_the_last_bit(rollout: Rollout) -> None:
    plain, taught = small_ppo(), student(small_teacher(), distillation=0.0)
    for _ in range(2):
        expected = learn(plain, rollout, batch_size=16, repeat=2)
        figures = learn(taught, rollout, batch_size=16, repeat=2)
        assert figures.pop("distillation_loss") > 0
        assert figures == expected
    assert_same_weights(plain, taught)


def test_the_gradient_of_the_term_by_hand() -> None:
    """Logits (0, ln 3) mean probabilities (1/4, 3/4); the gradient of -log p(a) is p less 1 at a."""
    logits = torch.log(torch.tensor([[1.0, 3.0], [1.0, 3.0], [2.0, 2.0]])).requires_grad_()
    policy = student(small_teacher(), distillation=0.7, entropy_coef=0.0)

    zeros, says = torch.zeros(9), torch.tensor([1, 1, 0, 1, 1, 0, 1, 1, 1])
    samples = TaughtSamples(None, np.ones(9, dtype=bool), zeros.long(), zeros, zeros, zeros, zeros, says)
    at = torch.tensor([2, 0, 5])  # where the teacher says 0, 1, 0
    losses = policy._losses(samples, at, logits, torch.zeros(3))
    losses["loss"].backward()
    # Without advantages and errors of the value, and without the bonus, the policy's own gradient is 0.
    by_hand = 0.7 / 3 * torch.tensor([[-0.75, 0.75], [0.25, -0.25], [-0.5, 0.5]])
    torch.testing.assert_close(logits.grad, by_hand, rtol=1e-6, atol=1e-7)
    assert float(losses["loss"].detach()) == pytest.approx(0.7 / 3 * np.log(4 * 4 / 3 * 2))


def test_the_figures_keep_the_losses_apart(rollout: Rollout) -> None:
    teacher = small_teacher()
    figures = learn(student(teacher, distillation=0.5, entropy_coef=0.0), rollout, batch_size=10**6, repeat=1)
    assert set(figures) == set(OPD.figures)
    total = figures["policy_loss"] + 0.5 * figures["value_loss"] + 0.5 * figures["distillation_loss"]
    assert figures["loss"] == pytest.approx(total, rel=1e-5)
    plain = learn(small_ppo(entropy_coef=0.0), rollout, batch_size=10**6, repeat=1)
    assert figures["policy_loss"] == plain["policy_loss"]
    # The loss of the first minibatch is that of the untrained student.
    with torch.no_grad():
        log_p = small_ppo().network(rollout.reference.obs)[0].log_softmax(dim=1).numpy()
    says = teacher.act(rollout.reference.obs)
    assert len(np.unique(says)) > 1
    assert figures["distillation_loss"] == pytest.approx(-log_p[np.arange(len(says)), says].mean(), rel=1e-5)


def test_the_teacher_is_no_part_of_the_student(rollout: Rollout) -> None:
    teacher = small_teacher()
    before, policy = weights(teacher), student(teacher, distillation=1.0)
    optimised = {id(weight) for weight in policy.optimizer.weights}
    assert optimised == {id(parameter) for parameter in policy.network.parameters()}
    assert not optimised & {id(parameter) for parameter in teacher.network.parameters()}
    learn(policy, rollout, batch_size=16, repeat=2)
    np.testing.assert_equal(weights(teacher), before)
    assert all(parameter.grad is None for parameter in teacher.network.parameters())
    assert teacher.updates == 0
    assert policy.state_dict().keys() - small_ppo().state_dict().keys() == {"teacher"}


def test_the_teacher_is_asked_once_an_update_about_every_row(rollout: Rollout, monkeypatch: pytest.MonkeyPatch) -> None:
    teacher, asked = small_teacher(), []
    act = teacher.act
    monkeypatch.setattr(teacher, "act", lambda obs, noise=None: asked.append((obs, noise)) or act(obs, noise))
    learn(student(teacher), rollout, batch_size=16, repeat=3)
    ((obs, noise),) = asked
    assert noise is None
    np.testing.assert_array_equal(obs["position"], rollout.reference.obs["position"])


def test_five_iterations_and_five_more_equal_ten(tmp_path) -> None:
    teacher = small_teacher()
    whole, first, second = (small_vessel(policy=student(teacher, distillation=0.2)) for _ in range(3))
    Trainer(max_iters=4).fit(whole)
    trainer = Trainer(max_iters=2)
    trainer.fit(first)
    save_checkpoint(tmp_path / "a.pt", trainer.state_dict())
    Trainer(max_iters=4).fit(second, tmp_path / "a.pt")
    assert_same_weights(whole.policy, second.policy)


def test_a_trained_student_is_an_ordinary_policy(rollout: Rollout, tmp_path) -> None:
    """Its state acts, and learns on, without a teacher."""
    taught, alone = student(small_teacher()), small_ppo(seed=3)
    learn(taught, rollout, batch_size=16, repeat=2)
    save_checkpoint(tmp_path / "a.pt", {"policy": taught.state_dict()})
    alone.load_state_dict(load_checkpoint(tmp_path / "a.pt")["policy"])
    assert_same_weights(taught, alone)
    np.testing.assert_array_equal(taught.act(rollout.reference.obs), alone.act(rollout.reference.obs))
    before = weights(alone)
    learn(alone, rollout, batch_size=16, repeat=1)
    assert any((weights(alone)[name] != before[name]).any() for name in before)


def test_another_teacher_than_the_one_it_began_with_is_refused(rollout: Rollout) -> None:
    state = student(small_teacher(seed=9)).state_dict()
    student(small_teacher(seed=9)).load_state_dict(state)
    before = weights(other := student(small_teacher(seed=8), seed=5))
    for wrong in (state, small_ppo().state_dict()):
        with pytest.raises(CheckpointError, match="not that of a student of this teacher"):
            other.load_state_dict(wrong)
    np.testing.assert_equal(weights(other), before)


def test_a_teacher_of_other_actions_is_refused() -> None:
    net = small_network(acts={"mask": ActionMask([0, 0.25, 0.5, 0.75, 1])})

    def teacher(actions: int, mask: ActionMask | None) -> PPO:
        return PPO(ActorCritic(Oracle(small().features.shape[2], 8), actions, mask=mask))

    for actions, given in ((3, None), (ACTIONS, None), (ACTIONS, ActionMask([0, 0.1, 0.5, 0.75, 1]))):
        with pytest.raises(ConfigError, match="number of actions or in their masks"):
            OPD(net, teacher(actions, given))
    same = ActionMask([0, 0.25, 0.5, 0.75, 1])
    OPD(net, teacher(ACTIONS, same))


def test_observations_that_end_at_the_current_tick_are_refused(rollout: Rollout) -> None:
    with pytest.raises(ConfigError, match="collect in the native environment"):
        learn(student(small_teacher()), rollout, "blocks")


def test_a_student_of_scalars_learns_from_a_teacher_of_markets() -> None:
    net = make_network(lambda: ActorCritic(MLP(8), ACTIONS), seed=0)
    trainer = Trainer(max_iters=1)
    trainer.fit(small_vessel(policy=OPD(net, small_teacher())))
    assert np.isfinite(trainer.metrics["distillation_loss"])
    scalars = CurrentStepStateInterpreter(small().simulator.engine.max_step)
    with pytest.raises(ConfigError, match="the teacher reads"):
        Trainer(max_iters=1).fit(small_vessel(policy=OPD(net, small_teacher()), state_interpreter=scalars))


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"distillation is -0\.1"):
        OPDSettings(distillation=-0.1)
    with pytest.raises(ConfigError, match="distillation is nan"):
        OPDSettings(distillation=float("nan"))
    with pytest.raises(ConfigError, match="clip is 0"):
        OPDSettings(clip=0)
