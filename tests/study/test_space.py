from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.study.space import LEARNER, Dimension, Space, value_at

RATE = {"value": 0.001, "search": {"low": 1e-4, "high": 1e-2, "log": True}}


def space(values: dict[str, Any], *assignments: str, rules: tuple[str, ...] = ()) -> Space:
    return Space.read([Layer("mine.yaml", values), parse_assignments(assignments)], rules)


def test_every_kind_of_setting_can_be_searched() -> None:
    found = space(
        {
            "network": {"value": "recurrent", "search": ["recurrent", "mlp", {"name": "attention", "hidden": 16}]},
            "algorithm": {
                "name": "ppo",
                "learning_rate": RATE,
                "repeat": {"value": 2, "search": {"low": 1, "high": 8}},
            },
            "reward.penalty": {"value": 10, "search": {"low": 0, "high": 20, "step": 5}},
            "head.even_start": {"value": False, "search": [False, True]},
            "train": {"episodes_per_iteration": {"value": 64, "search": [64, 128]}},
            "baselines": ["twap", {"name": "almgren_chriss", "urgency": {"value": 3, "search": {"low": 1, "high": 9}}}],
        }
    )
    kinds = {one.name: one.kind for one in found.dimensions}
    assert kinds == {
        "network": "choice",
        "algorithm.learning_rate": "float",
        "algorithm.repeat": "int",
        "reward.penalty": "float",  # the setting is a number, whatever the ends look like
        "head.even_start": "choice",
        "train.episodes_per_iteration": "choice",
        "baselines[1].urgency": "float",
    }
    assert found.studies() == ["almgren_chriss", LEARNER]
    chosen = {"network": {"name": "attention", "hidden": 16}, "algorithm.repeat": 7, "baselines[1].urgency": 2.5}
    config = found.config(chosen)
    assert (config.network.name, config.network.settings["hidden"]) == ("attention", 16)
    assert config.algorithm.settings["repeat"] == 7
    assert config.algorithm.settings["learning_rate"] == 0.001, "what is not chosen is the value beside the space"
    assert config.baselines[1].settings["urgency"] == 2.5
    assert found.config() == RunConfig.load(None, *found.layers)
    assert found.own(LEARNER) == {
        "network": "recurrent",
        "algorithm.learning_rate": 0.001,
        "algorithm.repeat": 2,
        "reward.penalty": 10.0,
        "head.even_start": False,
        "train.episodes_per_iteration": 64,
    }


def test_a_later_plain_value_ends_a_search_and_a_later_space_takes_its_place() -> None:
    file = {
        "algorithm": {"name": "ppo", "learning_rate": RATE},
        "network": {"name": "mlp", "hidden": {"search": [8, 16]}},
    }
    assert [one.name for one in space(file, "algorithm.learning_rate=0.01").dimensions] == ["network.hidden"]
    assert [one.name for one in space(file, "network=recurrent").dimensions] == ["algorithm.learning_rate"]
    (_, rate) = space(file, "algorithm.learning_rate={search: [0.1, 0.2]}").dimensions
    assert rate.options == ((0.1, 0.1), (0.2, 0.2))
    assert space(file, "algorithm.learning_rate={search: [0.1]}").config().algorithm.settings["learning_rate"] == 0.001


@pytest.mark.parametrize(
    ("assignment", "named"),
    [
        ("algorithm.learning_rate={search: {low: 1, high: 0.1}}", "low must be below high"),
        ("algorithm.learning_rate={search: {low: 0, high: 0.1, log: true}}", "low must be above 0"),
        ("algorithm.learning_rate={search: {lo: 0, high: 0.1}}", "did you mean low"),
        ("algorithm.learning_rate={search: {high: 0.1}}", "has low None"),
        ("algorithm.learning_rate={search: {low: 0.1, high: .inf}}", "high inf"),
        ("algorithm.learning_rate={search: 3}", "is 3"),
        ("algorithm.learning_rate={search: []}", r"is \[\]"),
        ("algorithm.learning_rate={search: [0.1, 0.1]}", "each once"),
        ("algorithm.learning_rate={search: [fast]}", "cannot take 'fast'"),
        ("algorithm.learning_rate={search: {low: -1, high: 0.1}}", "algorithm.learning_rate cannot take -1"),
        ("algorithm.repeat={search: {low: 1, high: 2.5}}", "whole number"),
        ("algorithm.repeat={search: {low: 1, high: 8, step: 9}}", "step 9"),
        ("algorithm.repeat={search: {low: 1, high: 8, step: 2, log: true}}", "keep one"),
        ("algorithm.repeat={search: {low: 1, high: 8, points: 1}}", "points 1"),
        ("algorithm.learning_rat={search: [1, 2]}", "did you mean"),
        ("network={search: [mlp, lstm]}", "network cannot take 'lstm'"),
        ("seed={search: [0, 1]}", "seed says what is measured"),
        ("market={search: [synthetic]}", "market says what is measured"),
        ("split.test={search: [0.1, 0.2]}", "split.test says what is measured"),
        ("execution.rules.volume_limit={search: [0.1, 0.2]}", "execution.rules.volume_limit says what is measured"),
    ],
)
def test_what_cannot_be_searched_is_named(assignment: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        space({}, assignment).check()
    assert "\n" not in str(caught.value)


def test_rules_have_usual_spaces_unless_the_configuration_gives_one() -> None:
    own = {"baselines": ["twap", {"name": "almgren_chriss", "urgency": {"value": 3, "search": [1, 3]}}]}
    found = space(own, rules=("pov", "almgren_chriss"))
    assert found.studies() == ["almgren_chriss", "pov"]
    assert [one.name for one in found.of("pov")] == ["baselines[2].rate", "baselines[2].days"]
    assert found.of("almgren_chriss")[0].options == ((1, 1), (3, 3))
    assert [one.name for one in found.config().baselines] == ["twap", "almgren_chriss", "pov"]
    with pytest.raises(ConfigError, match="hindsight"):
        space({}, rules=("hindsight",))
    with pytest.raises(ConfigError, match="bertsimas_lo"):
        space({}, rules=("bertsimas_lo",))


def test_a_grid_has_as_many_values_of_each_range_as_the_trials_allow() -> None:
    found = space(
        {
            "algorithm": {
                "name": "ppo",
                "learning_rate": RATE,
                "gamma": {"value": 1.0, "search": {"low": 0.9, "high": 1.0}},
            }
        }
    )
    cells = found.grid(LEARNER, 10)
    assert len(cells) == 9
    rates = sorted({one["algorithm.learning_rate"] for one in cells})
    assert rates == pytest.approx([1e-4, 1e-3, 1e-2])
    assert sorted({one["algorithm.gamma"] for one in cells}) == pytest.approx([0.9, 0.95, 1.0])
    with pytest.raises(ConfigError, match=r"4 cells.*--trials 4"):
        found.grid(LEARNER, 3)


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(1, 50),
    width=st.integers(1, 50),
    points=st.integers(2, 12),
    log=st.booleans(),
    step=st.none() | st.integers(1, 5),
    whole=st.booleans(),
)
def test_a_grid_lies_in_its_range_each_value_once(
    low: int, width: int, points: int, log: bool, step: int | None, whole: bool
) -> None:
    one = Dimension("x", "int" if whole else "float", (), low, low + width, log, None if log else step)
    cells = one.grid(points)
    assert len(set(cells)) == len(cells) >= 1
    for cell in cells:
        assert low <= cell <= low + width
        assert one.distribution()._contains(one.distribution().to_internal_repr(cell))


def test_a_place_that_is_not_there_has_no_value() -> None:
    assert value_at({"a": [{"b": 3}]}, "a[0].b") == 3
    assert value_at({"a": [{"b": 3}]}, "a[1].b") is None
