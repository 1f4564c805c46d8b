"""Names, layers and refusals, on a small tree."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import AfterValidator

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig, Section
from rlwb.experiment.layers import RENAMED, Layer, build, leaves, parse_assignments, short_names
from rlwb.parts import Part, complete
from rlwb.values import nearest


@dataclass(frozen=True)
class Rules:
    """Another module's settings."""

    cap: float = 0.1

    def __post_init__(self) -> None:
        if self.cap > 1:
            raise ConfigError(f"cap is {self.cap}; give at most 1.")


class Learn(Section):
    """How to learn."""

    learning_rate: float = 1e-3
    decay: float = 0.0
    names: tuple[str, ...] = ()


class Tree(Section):
    """All."""

    learn: Learn = Learn()
    rules: Rules = Rules()
    reward: Annotated[Part, AfterValidator(partial(complete, "reward"))] = Part(name="pa_penalty")
    seed: int = 0


SLOTS = {"reward": "reward"}


def tree(**values: object) -> Tree:
    return build(Tree, [Layer("test", {name.replace("__", "."): value for name, value in values.items()})], SLOTS)


def layered(*layers: dict[str, Any]) -> Tree:
    return build(Tree, [Layer(str(place), values) for place, values in enumerate(layers)], SLOTS)


def test_names() -> None:
    assert list(leaves(Tree().model_dump())) == [
        *("learn.learning_rate", "learn.decay", "learn.names", "rules.cap"),
        *("reward.name", "reward.penalty", "reward.scale", "reward.weight", "reward.inventory", "seed"),
    ]
    names = short_names({"a": {"x": 1, "y": 2}, "b": {"x": 3}, "c": 4})
    assert names == {"y": "a.y", "c": "c", "a_x": "a.x", "a_y": "a.y", "b_x": "b.x", "a": "a", "b": "b"}


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("learing_rate", "learning_rate"),
        ("lr", "learning_rate"),
        ("learning-rate", "learning_rate"),
        ("quite other", None),
    ],
)
def test_nearest(name: str, guess: str | None) -> None:
    assert nearest(name, ["decay", "learning_rate"]) == guess


def test_layers_lie_on_each_other() -> None:
    result = layered({"learn": {"decay": 1, "learning_rate": 2}}, {"learn.decay": 3, "rules": {"cap": 0.5}})
    assert (result.learn.decay, result.learn.learning_rate, result.rules.cap) == (3, 2, 0.5)
    assert result == layered(result.model_dump())


@pytest.mark.parametrize(
    ("layers", "name", "settings"),
    [
        ([{"reward": "sparse"}], "sparse", {}),
        ([{"reward.name": "sparse"}], "sparse", {}),
        ([{"reward.penalty": 3}], "pa_penalty", {"penalty": 3.0, "scale": 1.0}),
        (
            [{"reward": {"name": "pa_penalty", "penalty": 3}}, {"reward.scale": 2}],
            "pa_penalty",
            {"penalty": 3, "scale": 2},
        ),
        ([{"reward": "pa_penalty", "reward.penalty": 3}], "pa_penalty", {"penalty": 3, "scale": 1}),
        ([{"reward.penalty": 3}, {"reward": "pa_penalty"}], "pa_penalty", {"penalty": 3, "scale": 1}),
        ([{"reward.penalty": 3}, {"reward": "sparse"}], "sparse", {}),
        ([{"reward.penalty": 3}, {"reward": "sparse"}, {"reward": "pa_penalty"}], "pa_penalty", {"scale": 1}),
    ],
)
def test_a_part_of_another_name_brings_none_of_the_old_settings(
    layers: list[dict[str, Any]], name: str, settings: dict[str, Any]
) -> None:
    reward = layered(*layers).reward
    assert reward.name == name
    assert settings.items() <= reward.settings.items()
    if name == "pa_penalty" and "penalty" not in settings:
        assert reward.settings["penalty"] != 3


def test_numpy_values_are_values() -> None:
    assert tree(seed=np.int64(3), learn__learning_rate=np.float32(0.5)).seed == 3


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"sed": 1}, ["test", "sed", "did you mean seed?"]),
        ({"learn__lr": 1}, ["learn.lr", "did you mean learn.learning_rate?"]),
        ({"learn": {"decy": 1}}, ["learn.decy", "did you mean learn.decay?"]),
        ({"cap": 1}, ["cap", "did you mean rules.cap?"]),
        ({"lern__decay": 1}, ["lern", "did you mean learn?"]),
        ({"zzz": 1}, ["zzz", "learn, rules, reward, seed"]),
        ({"reward__penlty": 1}, ["reward", "penlty", "did you mean penalty?"]),
        ({"reward": "spars"}, ["reward", "'spars'", "did you mean sparse?"]),
        ({"reward": {"name": "sparse", "penalty": 1}}, ["sparse", "penalty", "none"]),
        ({"reward__penalty": "x"}, ["penalty", "'x'", "number"]),
        ({"learn": 3}, ["learn is 3", "learning_rate, decay, names"]),
        ({"learn": {"decay": 1}, "learn__decay": 2}, ["learn.decay", "twice"]),
        ({"seed": "1"}, ["seed is '1'", "whole number"]),
        ({"seed": True}, ["seed is True", "whole number"]),
        ({"seed": 1.5}, ["seed is 1.5", "whole number"]),
        ({"seed__x": 1}, ["seed"]),
        ({"learn__decay": float("nan")}, ["learn.decay is nan", "finite"]),
        ({"learn__names": "a"}, ["learn.names is 'a'", "[a, b]"]),
        ({"learn__names": ["a", 8]}, ["learn.names[1] is 8", 'quote it as it is meant, like "000008"']),
        ({"rules__cap": 2}, ["rules", "cap is 2.0"]),
        ({"rules__cap": "x"}, ["rules.cap is 'x'", "number"]),
    ],
)
def test_refusals_name_what_is_wrong(values: dict[str, object], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        tree(**values)
    assert str(caught.value).startswith("test: ")
    assert str(caught.value).count("\n") == 0
    for text in named:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        (["2024-01-02"], "['2024-01-02']; a number is needed, or one more value in the list."),
        ("2024-01-02", "'2024-01-02'; a number is needed, or a list, like [a, b]."),
        (["2024-01-02", 3], "['2024-01-02', 3]; a number is needed, or text in the list."),
        (["a", "b", "c"], "['a', 'b', 'c']; a number is needed, or fewer values in the list."),
    ],
)
def test_a_parameter_of_two_types_is_refused_in_one_sentence(given: object, needed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(None, Layer("--set", {"split.train": given}))
    assert str(caught.value) == f"--set: split.train is {needed}"


def test_each_fault_names_where_it_came_from() -> None:
    layers = [Layer("a.yaml", {"seed": "x", "learn.decay": 1}), Layer("--set", {"learn.decay": "y"})]
    with pytest.raises(ConfigError) as caught:
        build(Tree, layers, SLOTS)
    assert "a.yaml: seed is 'x'" in str(caught.value)
    assert "--set: learn.decay is 'y'" in str(caught.value)


def test_an_empty_group_is_no_value() -> None:
    assert tree(learn=None, reward=None) == Tree()


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_an_old_name_is_refused_with_the_new_one(old: str) -> None:
    name = old.replace("*", "days")
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(None, Layer("--set", {name: 3}))
    assert f"--set: {name} is written " in str(caught.value)
    new = str(caught.value).partition("is written ")[2].partition(" now")[0].partition(", as")[0]
    assert new.split(".")[0] in (*RunConfig.model_fields, "a setting of its baseline")


def test_a_setting_that_is_called_like_a_kind_of_part_is_no_part() -> None:
    for layer in (
        Layer("test", {"algorithm": {"name": "tianshou", "algorithm": "A2C"}}),
        parse_assignments(["algorithm.name=tianshou", "algorithm.algorithm=A2C"]),
    ):
        assert RunConfig.load(None, layer).algorithm.settings["algorithm"] == "A2C"


DEEP: list[object] = []
for _ in range(30):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"market": {"source": "a\0b"}}, "market.source is a text with the character #x00"),
        ({"market.source": "\ud800"}, "market.source is a text with the character #xd800"),
        ({"market": {"instruments": ["a", "b\x1b"]}}, r"market.instruments\[1\] is a text with the character #x1b"),
        ({"seed": 2**63}, "seed is 9223372036854775808, beyond 64 bits"),
        ({"seed": 16**5000}, "seed is a int too large to be shown"),
        ({"split": DEEP}, "more than 20 levels deep"),
        ({".".join("a" * 5000): 1}, "cannot be a parameter's name"),
        ({".".join("a" * 50): 1}, "more than 20 levels deep"),
        ({"": 1}, "'' cannot be a parameter's name"),
        ({"...a": None}, "'...a' cannot be a parameter's name"),
        ({"train..iterations": 3}, "'train..iterations' cannot be a parameter's name"),
        ({"train": {"a\nb": 1}}, r"'train.a\\nb' cannot be a parameter's name"),
        ({"train": {"x" * 1000: 1}}, "train is a mapping with the name 'xxx"),
        ({"train": {(1, 2): 1}}, r"train is a mapping with the name \(1, 2\)"),
        ({"market": {"name": ["a"]}}, r"market.name is \['a'\]; text is needed"),
        ({"reward": ["x" * 1000]}, "…; write a name"),
        ({"features.columns": ["a" * 5000]}, "there is no feature 'aaa"),
        ({"algorithm.decay_updates": 0, "train.iterations": 40}, "algorithm.decay_updates is 0"),
        ({"execution": {"rules": "x"}}, "execution.preset is 'x'; it must be"),
        ({"execution.rules": "cn", "execution.preset": "us"}, "execution.rules and execution.preset name two"),
    ],
)
def test_k07_values_that_no_configuration_holds(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        RunConfig.load(None, Layer("here", values))
    assert str(caught.value).startswith("here: ")
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_k07_thousands_of_wrong_names_are_refused_at_once() -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match="no parameter k0"):
        RunConfig.load(None, Layer("here", {f"k{number}": number for number in range(9000)}))
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("split.trian", "did you mean split.train?"),
        ("execution.rules.volume_limt", "did you mean execution.rules.volume_limit?"),
        ("features.colums", "did you mean features.columns?"),
        ("split.rolling.zzzz", "rlwb config"),
    ],
)
def test_an_unknown_name_in_a_group_is_named_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        RunConfig.load(None, Layer("test", {name: 5}))
    assert f"there is no parameter {name}" in str(error.value)
    assert said in str(error.value)


def test_a_run_takes_the_value_beside_a_search_space() -> None:
    space = {"value": 0.5, "search": {"low": 0.1, "high": 1.0}}
    assert tree(learn__decay=space).learn.decay == 0.5
    assert layered({"learn": {"decay": space}}, {"learn.decay": 0.2}).learn.decay == 0.2
    assert layered({"learn.decay": 0.2}, {"learn.decay.search": [1, 2]}).learn.decay == 0.2, "no value leaves it"
    assert tree(reward={"value": "sparse", "search": ["sparse", "pa_penalty"]}).reward.name == "sparse"
    beside = {"value": "pa_penalty", "search": ["pa_penalty"], "penalty": {"value": 7, "search": [7, 8]}}
    assert tree(reward=beside).reward.settings["penalty"] == 7


def test_a_choice_takes_the_place_of_a_space_in_every_layer() -> None:
    layers = [
        Layer("a", {"reward": {"value": "sparse", "search": ["sparse", "pa_penalty"]}, "learn.decay": {"search": [1]}}),
        Layer("b", {"learn.decay": {"value": 3, "search": [4]}}),
    ]
    made = build(Tree, layers, SLOTS, {"reward": {"name": "pa_penalty", "penalty": 4}, "learn.decay": 5})
    assert (made.reward.name, made.reward.settings["penalty"], made.learn.decay) == ("pa_penalty", 4, 5)


def test_spaces_of_parts_in_a_list() -> None:
    baselines = ["twap", {"name": "almgren_chriss", "urgency": {"value": 4, "search": [4, 8]}}]
    config = RunConfig.load(None, Layer("test", {"baselines": baselines}))
    assert config.baselines[1].settings["urgency"] == 4
    with pytest.raises(ConfigError, match=r"baselines\[0\]"):
        RunConfig.load(None, Layer("test", {"baselines": [{"search": ["twap"]}]}))


def test_more_beside_a_space_than_its_value_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"learn\.decay has values"):
        tree(learn__decay={"values": 1, "search": [1]})


def test_a_setting_called_search_of_a_part_is_no_space() -> None:
    with pytest.raises(ConfigError, match="no setting search"):
        tree(reward={"name": "sparse", "search": 3})
