"""A configuration that is filled in field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.form import ConfigurationState, Field
from rlwb.experiment.layers import Layer, leaves


def field(state: ConfigurationState, name: str) -> Field:
    return next(one for one in state.fields(name.partition(".")[0]) if one.name == name)


def test_a_field_says_what_it_takes_its_default_unit_and_meaning() -> None:
    state = ConfigurationState()
    iterations = field(state, "train.iterations")
    assert (iterations.text, iterations.default, iterations.unit) == ("40", "40", "iterations")
    assert iterations.takes == "whole number from 1"
    assert iterations.meaning.startswith("Collects of episodes")
    assert field(state, "train.env").options == ("native", "dummy", "subproc", "shmem", "ray")
    assert field(state, "execution.rules.halts").options == ("true", "false")
    assert field(state, "execution.preset").options == ("cn", "us", "crypto", "qlib", "null")
    patience = field(state, "train.patience")
    assert (patience.text, patience.default) == ("", "none")
    assert field(state, "baselines").text.startswith("[twap, vwap, pov, almgren_chriss, forecast, hindsight,")


def test_every_parameter_of_a_run_has_a_field() -> None:
    state = ConfigurationState()
    named = {one.name for section in state.sections() for one in state.fields(section)}
    assert all(field(state, name) for name in named), "each by one name"
    tree = RunConfig().as_dict()
    known = {name.removesuffix(".name") for name in leaves(tree)}
    assert known - {"split.rolling"} <= named


def test_what_a_part_refuses_is_told_too_and_tried_again_with_another_part() -> None:
    state = ConfigurationState()
    state.set("algorithm.learning_rate", "-1")
    assert "learning_rate is -1.0" in field(state, "algorithm.learning_rate").error
    state.set("algorithm.learning_rate", "0.01")
    state.set("objective", "mean_variance")
    state.set("objective.aversion", "0.01")
    assert not state.errors
    state.set("algorithm", "dqn")
    assert "mean_variance" in state.errors["algorithm"]
    state.set("objective", "")
    assert not state.errors
    assert (state.config.algorithm.name, state.config.objective.name) == ("dqn", "mean")


def test_a_name_that_is_no_part_s_leaves_the_settings_of_the_one_that_is_there() -> None:
    state = ConfigurationState()
    state.set("algorithm.learning_rate", "0.01")
    state.set("algorithm", "nonsense")
    state.set("algorithm.repeat", "2")
    assert state.errors.keys() == {"algorithm"}
    assert state.tree() == {"algorithm": {"learning_rate": 0.01, "repeat": 2}}


def test_a_part_that_needs_a_setting_has_its_fields_and_is_taken_once_that_is_there(tmp_path: Path) -> None:
    state = ConfigurationState()
    state.set("market", "bars")
    assert state.chosen("market") == "bars"
    assert "source" in state.errors["market"]
    assert field(state, "market.min_coverage").text == "0.5"
    state.set("market.source", str(tmp_path / "nowhere"))
    assert "nowhere" in state.errors["market.source"]
    state.set("market.source", "")
    assert state.chosen("market") == "bars", "still, although what it lacks was taken back"
    state.set("market.source", str(tmp_path))
    assert not state.errors
    assert state.tree() == {"market": {"name": "bars", "source": str(tmp_path)}}
    state.set("market", "synthetic")
    assert state.config == RunConfig()


def test_what_is_refused_is_told_beside_its_field_in_the_sentence_of_the_library_and_counts_for_nothing(
    tmp_path: Path,
) -> None:
    state = ConfigurationState()
    state.set("train.iterations", "0")
    assert field(state, "train.iterations").text == "0"
    assert field(state, "train.iterations").error == state.errors["train.iterations"]
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(None, Layer("x", {"train": {"iterations": 0}}))
    assert str(caught.value) == f"x: {state.errors['train.iterations']}"
    assert state.config == RunConfig()
    with pytest.raises(ConfigError, match=r"train\.iterations"):
        state.save(tmp_path / "mine.yaml")
    assert not list(tmp_path.iterdir())
    state.set("train.iterations", "")
    assert not state.errors
    assert field(state, "train.iterations").text == "40"


def test_what_did_not_fit_to_another_field_is_tried_again_when_that_changes() -> None:
    state = ConfigurationState()
    state.set("train.validate_every", "60")
    assert "train.iterations" in state.errors["train.validate_every"]
    state.set("train.iterations", "120")
    assert not state.errors
    assert (state.config.train.validate_every, state.config.train.iterations) == (60, 120)


def test_a_part_brings_its_own_settings() -> None:
    state = ConfigurationState()
    state.set("network", "recurrent")
    state.set("network.hidden", "8")
    assert field(state, "network").is_part
    assert "recurrent" in field(state, "network").options
    state.set("network.hidden", "many")
    assert state.errors
    state.set("network", "mlp")
    assert not state.errors, "its setting is gone with the part"
    assert state.config.network.name == "mlp"
    assert state.tree() == {"network": {"name": "mlp"}}
    state.set("network", "nonsense")
    assert "there is no network 'nonsense'" in state.errors["network"]


def test_the_file_has_what_differs_and_reads_back_the_same(tmp_path: Path) -> None:
    state, path = ConfigurationState(), tmp_path / "mine.yaml"
    assert state.text() == ""
    for name, text in {
        "execution.preset": "cn",
        "execution.rules.lot_size": "100",  # which the preset says too
        "execution.rules.volume_limit": "0.1",
        "algorithm": "ppo",
        "algorithm.learning_rate": "1e-3",
        "train.iterations": "40",  # the default
        "split.rolling.train": "60",
        "baselines": "[twap, {name: almgren_chriss, urgency: 5}]",
        "seed": "7",
    }.items():
        state.set(name, text)
        assert not state.errors, name
    state.save(path)
    assert RunConfig.load(path) == state.config
    assert set(leaves(state.tree())) == {
        *("execution.preset", "execution.rules.volume_limit", "algorithm.name", "algorithm.learning_rate"),
        *("split.rolling.train", "baselines", "seed"),
    }
    again = ConfigurationState()
    again.load(path)
    assert again.text() == state.text()
    assert again.config == state.config
    whole = ConfigurationState()
    whole.take(state.config)
    assert whole.tree() == state.tree(), "of a run, whose file has all its settings"


def test_a_file_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    state = ConfigurationState()
    state.set("seed", "3")
    (tmp_path / "wrong.yaml").write_text("train: {itertions: 3}\n")
    (tmp_path / "space.yaml").write_text("seed: {value: 1, search: [1, 2]}\n")
    for name, said in (("wrong", "did you mean"), ("space", "seed has a search space"), ("none", "none.yaml")):
        with pytest.raises(ConfigError, match=said):
            state.load(tmp_path / f"{name}.yaml")
    assert state.tree() == {"seed": 3}
