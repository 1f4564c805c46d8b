"""Names, layers and refusals, on a small tree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.parameters import Layer, Section, build, descriptions, leaves, nearest, short_names


@dataclass(frozen=True)
class Rules:
    """Another room's settings.

    Parameters
    ----------
    cap
        Largest share.
    """

    cap: float = 0.1

    def __post_init__(self) -> None:
        if self.cap > 1:
            raise ConfigError(f"cap is {self.cap}; give at most 1.")


class Learn(Section):
    """How to learn.

    Parameters
    ----------
    learning_rate, decay
        Step of the optimiser,
        and its decay.
    names
        Who learns.
    """

    learning_rate: float = 1e-3
    decay: float = 0.0
    names: tuple[str, ...] = ()


class Tree(Section):
    """All.

    Parameters
    ----------
    learn
        How to learn.
    other
        Another group.
    rules
        Rules.
    seed
        Of everything.

    Returns
    -------
    seed
        Not a parameter.
    """

    learn: Learn = Learn()
    other: Learn = Learn()
    rules: Rules = Rules()
    seed: int = 0


def tree(**values: object) -> Tree:
    return build(Tree, [Layer("test", {name.replace("__", "."): value for name, value in values.items()})])


def test_names() -> None:
    assert leaves(Tree)[:3] == ("learn.learning_rate", "learn.decay", "learn.names")
    assert leaves(Tree)[-2:] == ("rules.cap", "seed")
    names = short_names(Tree)
    assert names["cap"] == names["rules_cap"] == "rules.cap"
    assert "decay" not in names, "two groups have it"
    assert names["learn_decay"] == "learn.decay"


def test_descriptions_come_from_the_docstrings() -> None:
    texts = descriptions(Tree)
    assert texts["learn.decay"] == texts["learn.learning_rate"] == "Step of the optimiser, and its decay."
    assert texts["rules.cap"] == "Largest share."
    assert texts["seed"] == "Of everything."


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
    result = build(
        Tree,
        [
            Layer("a", {"learn": {"decay": 1, "learning_rate": 2}}),
            Layer("b", {"learn.decay": 3, "rules": {"cap": 0.5}}),
        ],
    )
    assert (result.learn.decay, result.learn.learning_rate, result.rules.cap) == (3, 2, 0.5)
    assert result == build(Tree, [Layer("c", result.model_dump())])


def test_numpy_values_are_values() -> None:
    assert tree(seed=np.int64(3), learn__learning_rate=np.float32(0.5)).seed == 3


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"sed": 1}, "test: there is no parameter sed; did you mean seed?"),
        ({"learn__lr": 1}, "test: there is no parameter learn.lr; did you mean learn.learning_rate?"),
        ({"learn": {"decy": 1}}, "test: there is no parameter learn.decy; did you mean learn.decay?"),
        ({"cap": 1}, "test: there is no parameter cap; did you mean rules.cap?"),
        ({"lern__decay": 1}, "test: there is no parameter lern; did you mean learn?"),
        ({"seed__x": 1}, "test: there is no parameter seed.x; seed is a single value."),
        ({"zzz": 1}, "test: there is no parameter zzz; the names here are learn, other, rules, seed."),
        ({"learn": 3}, "test: learn is 3, but it is a group of parameters; give one of learning_rate, decay, names."),
        ({"learn": {"decay": 1}, "learn__decay": 2}, "test: learn.decay is given twice; keep one of the two."),
        ({"seed": "1"}, "test: seed is '1'; a whole number is needed."),
        ({"seed": True}, "test: seed is True; a whole number is needed."),
        ({"seed": 1.5}, "test: seed is 1.5; a whole number is needed."),
        ({"learn__decay": float("nan")}, "test: learn.decay is nan; it should be a finite number."),
        ({"learn__names": "a"}, "test: learn.names is 'a'; a list is needed, like [a, b]."),
        ({"rules__cap": 2}, "test: rules: cap is 2.0; give at most 1."),
        ({"rules__cap": "x"}, "test: rules.cap is 'x'; a number is needed."),
    ],
)
def test_refusals_are_sentences(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tree(**values)
    assert str(caught.value) == sentence


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
        RunConfig.load(None, Layer("--set", {"orders.split.train": given}))
    assert str(caught.value) == f"--set: orders.split.train is {needed}"


def test_a19_an_id_that_arrived_as_a_number_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r'learn.names\[1\] is 8; text is needed, so quote it as it is meant, like "000008"'
    ):
        tree(learn__names=["a", 8])


def test_each_fault_names_where_it_came_from() -> None:
    layers = [Layer("a.yaml", {"seed": "x", "learn.decay": 1}), Layer("--set", {"learn.decay": "y"})]
    with pytest.raises(ConfigError) as caught:
        build(Tree, layers)
    assert "a.yaml: seed is 'x'" in str(caught.value)
    assert "--set: learn.decay is 'y'" in str(caught.value)


def test_an_empty_group_is_no_value() -> None:
    assert tree(learn=None) == Tree()
