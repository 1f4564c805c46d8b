"""Weights from elsewhere: what is brought into a policy's form, and what is refused by the name of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rlwb import cli
from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.policy import DQN, PPO, ActorCritic, QNetwork, Recurrent
from rlwb.policy.qlib import QlibRecurrent
from rlwb.serving.bundle import open_bundle
from rlwb.serving.conversion import convert_state, read_state
from rlwb.serving.export import export_run, find_checkpoint
from rlwb.serving.spec import read_spec
from tests.policy.test_qlib import ppo as qlib_ppo

State = dict[str, Any]


def policy(seed: int) -> PPO:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return PPO(ActorCritic(Recurrent(5, 4), 5))


THEIRS = policy(1)
WEIGHTS: State = {name: value.clone() for name, value in THEIRS.network.state_dict().items()}


def under(prefix: str) -> State:
    return {f"{prefix}{name}": value for name, value in WEIGHTS.items()}


def converted(state: Mapping[str, Any]) -> tuple[PPO, str]:
    mine = policy(2)
    return mine, convert_state(state, mine, "theirs.pt")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (WEIGHTS, "the policy's own names"),
        (under("network."), "the policy's own names"),
        (under("module."), "the policy's own names"),
        (under("policy.module._orig_mod."), "under policy."),
        ({"state_dict": under("model."), "epoch": 3, "optimizer_states": [{}]}, "under state_dict.model."),
        (THEIRS.state_dict(), "the policy's own names; without optimizer.state.0.step"),
        ({"vessel": {"policy": THEIRS.state_dict()}, "format": 2}, "under vessel.policy.; without"),
        ({**under("policy."), "optim.state.0.exp_avg": torch.ones(2)}, "without optim.state.0.exp_avg"),
        ({**under("policy."), "policy_old.actor.bias": torch.ones(5)}, "without policy_old.actor.bias"),
    ],
    ids=["alone", "wrapped", "parallel", "compiled", "lightning", "learner", "checkpoint", "optimiser", "old"],
)
def test_a_policy_under_any_wrapper_is_the_policy(state: State, told: str) -> None:
    mine, said = converted(state)
    assert told in said
    for name, value in mine.network.state_dict().items():
        assert torch.equal(value, WEIGHTS[name]), name


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_other_numbers_become_the_networks_own_and_that_is_said(kind: torch.dtype) -> None:
    mine, said = converted({name: value.to(kind) for name, value in WEIGHTS.items()})
    assert f"{kind} to float32".removeprefix("torch.") in said
    assert all(value.dtype == torch.float32 for value in mine.network.state_dict().values())
    assert torch.equal(mine.network.actor.bias, WEIGHTS["actor.bias"].to(kind).float())


def test_an_actor_without_its_critic_acts_and_that_is_said() -> None:
    mine, said = converted({name: value for name, value in WEIGHTS.items() if not name.startswith("critic")})
    assert "critic.weight" in said
    assert torch.equal(mine.network.actor.weight, WEIGHTS["actor.weight"])


def without(name: str) -> Callable[[State], State]:
    return lambda state: {key: value for key, value in state.items() if key != name}


def with_(name: str, value: Any) -> Callable[[State], State]:
    return lambda state: {**state, name: value}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without("trunk.market.gru.bias_hh_l0"), r"lacks trunk\.market\.gru\.bias_hh_l0"),
        (without("actor.weight"), r"lacks actor\.weight"),
        (with_("trunk.extra.weight", torch.ones(2)), r"trunk\.extra\.weight"),
        (with_("actor.bias", torch.zeros(4)), r"actor\.bias.*\(4,\).*\(5,\)"),
        (with_("actor.bias", torch.zeros(5, dtype=torch.int64)), r"actor\.bias.*int64"),
        (with_("actor.bias", torch.zeros(5, dtype=torch.complex64)), r"actor\.bias.*complex64"),
        (with_("actor.bias", torch.full((5,), torch.nan)), r"actor\.bias.*NaN"),
        (lambda _: {"a": 1}, "no tensors"),
        (lambda _: {"w": torch.ones(1)}, "w"),
    ],
)
def test_a_state_of_another_policy_is_refused_by_the_name_of_the_key(
    change: Callable[[State], State], named: str
) -> None:
    mine = policy(2)
    before = {name: value.clone() for name, value in mine.network.state_dict().items()}
    with pytest.raises(CheckpointError, match=named):
        convert_state(change(WEIGHTS), mine, "theirs.pt")
    assert all(torch.equal(value, before[name]) for name, value in mine.network.state_dict().items())


def test_qlibs_weights_are_read_by_their_own_names() -> None:
    state = qlib_ppo()
    gates, channels = state["actor.extractor.raw_rnn.weight_ih_l0"], state["actor.extractor.raw_fc.0.weight"]
    width, output = gates.shape[1], len(state["actor.extractor.fc.2.weight"])
    mine = PPO(ActorCritic(QlibRecurrent(channels.shape[1], width, output), len(state["actor.layer_out.0.bias"])))
    assert "Qlib" in convert_state({"vessel": {"policy": state}}, mine, "latest.pth")
    assert torch.equal(mine.network.actor.weight, state["actor.layer_out.0.weight"])
    with pytest.raises(ConfigError, match="qlib_recurrent"):
        convert_state(state, policy(0), "latest.pth")
    with pytest.raises(CheckpointError, match=r"head\.weight"):
        convert_state(state, DQN(QNetwork(QlibRecurrent(channels.shape[1], width, output), 5)), "latest.pth")


def test_files_are_read_without_running_code(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "a.safetensors")
    torch.save({"policy": WEIGHTS}, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        mine, _ = converted(read_state(tmp_path / name))
        assert torch.equal(mine.network.actor.weight, WEIGHTS["actor.weight"])
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "a.safetensors").read_bytes()[:60])
    torch.save({"policy": policy(0).network}, tmp_path / "module.pt")
    for name in ("cut.safetensors", "nowhere.safetensors", "nowhere.pt", "module.pt"):
        with pytest.raises(CheckpointError, match=name.partition(".")[0]):
            read_state(tmp_path / name)


def test_weights_take_the_place_of_a_runs_checkpoint_and_the_card_says_so(
    finished_run: RunDirectory, bundle_path: Path, tmp_path: Path
) -> None:
    last = find_checkpoint(finished_run, "3")
    out = export_run(finished_run.path, tmp_path / "bundle", weights=last)
    bundle, spec = open_bundle(out), read_spec(out)
    state = torch.load(last, weights_only=True)["vessel"]["policy"]["network"]
    assert torch.equal(bundle.learner.network.actor.weight, state["actor.weight"])
    assert spec.origin.iteration is None
    assert spec.conversion is not None
    assert spec.conversion in (out / "card.md").read_text()


def test_a_configuration_with_weights_is_a_bundle_without_any_run(
    finished_run: RunDirectory, bundle_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(dump_yaml(finished_run.config.as_dict()))
    words = ["export", str(tmp_path / "mine.yaml"), "--out", str(tmp_path / "b"), "--weights"]
    with pytest.raises(SystemExit) as stop:
        cli.main([*words, str(bundle_path / "weights.safetensors")])
    assert not stop.value.code, capsys.readouterr().err
    mine, theirs = open_bundle(tmp_path / "b"), open_bundle(bundle_path)
    assert np.array_equal(mine.normaliser.mean, theirs.normaliser.mean)
    assert mine.spec.cases == theirs.spec.cases
    assert RunConfig.load(tmp_path / "mine.yaml").network == mine.config.network
