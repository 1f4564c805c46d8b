from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.study.members import make_settings, parse_grid, parse_seeds

NOTHING = Layer("--set", {})
EVERY = ["open", "high", "low", "close", "volume", "volatility", "volume_share", "returns"]


@pytest.mark.parametrize(
    ("text", "seeds"), [("1", (0,)), ("3", (0, 1, 2)), ("0,3,7", (0, 3, 7)), (" 5 , 2 ", (5, 2)), ("4,", (4,))]
)
def test_seeds_are_a_number_of_them_or_a_list(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", ",", "1,,", "ten", "2.5", "1,1", "0", "-1", "-1,2", "1,,2"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="seed"):
        parse_seeds(text)


def test_values_of_a_grid_are_read_as_yaml() -> None:
    words = ["reward.penalty=10,20.5", "network=mlp, {name: recurrent, hidden: 8}", "train.patience=[null, 3]"]
    assert parse_grid(words) == {
        "reward.penalty": [10, 20.5],
        "network": ["mlp", {"name": "recurrent", "hidden": 8}],
        "train.patience": [None, 3],
    }


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["reward.penalty"], "reward.penalty"),
        (["=1,2"], "'=1,2'"),
        (["reward.penalty="], "reward.penalty"),
        (["reward.penalty=10,10"], "10"),
        (["reward.penalty=10", "reward.penalty=20"], "reward.penalty"),
        (["seed=1,2"], "--seeds"),
        (["reward.penalty={10"], "reward.penalty"),
    ],
)
def test_a_grid_that_cannot_be_meant_is_refused(words: list[str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        parse_grid(words)


def named(grid: dict[str, list[Any]]) -> list[str]:
    return [one.member(3) for one in make_settings(None, NOTHING, grid)]


def test_without_a_grid_there_is_one_setting() -> None:
    (one,) = make_settings(None, parse_assignments(["train.iterations=7", "seed=5"]), {})
    assert (one.name, one.title, one.member(3)) == ("", "as configured", "seed-3")
    assert one.config.train.iterations == 7
    member = one.of_seed(9)
    assert member.seed == 9
    # All members trade the orders of the configuration's seed.
    assert member.orders.settings["seed"] == 5
    assert member.model_copy(update={"seed": 5}) == one.config


def test_every_combination_is_a_setting_and_the_last_varies_fastest() -> None:
    settings = make_settings(None, NOTHING, {"reward.penalty": [10, 20], "algorithm": ["ppo", "dqn"]})
    assert [one.member(0) for one in settings] == [
        "penalty-10-algorithm-ppo-seed-0",
        "penalty-10-algorithm-dqn-seed-0",
        "penalty-20-algorithm-ppo-seed-0",
        "penalty-20-algorithm-dqn-seed-0",
    ]
    assert settings[3].title == "reward.penalty = 20, algorithm = dqn"
    assert settings[3].config.algorithm.name == "dqn"
    assert settings[3].config.reward.settings["penalty"] == 20
    assert dict(settings[3].grid) == {"reward.penalty": 20, "algorithm": "dqn"}


def test_names_tell_members_apart_and_are_names_of_folders() -> None:
    assert named({"algorithm.learning_rate": [0.001, 1e-5]}) == [
        "learning_rate-0.001-seed-3",
        "learning_rate-1.0e-05-seed-3",
    ]
    both = named({"network.hidden": [8], "train.iterations": [5]})
    assert both == ["hidden-8-iterations-5-seed-3"]
    alike = named({"market.seed": [5, 6], "orders.seed": [1, 2]})
    assert alike[1] == "market.seed-5-orders.seed-2-seed-3"
    parts = named({"network": ["mlp", {"name": "recurrent", "hidden": 8}]})
    assert parts == ["network-mlp-seed-3", "network-name_recurrent_hidden_8-seed-3"]
    long = named({"features.columns": [[*EVERY, "time"], [*EVERY, "gap"]]})
    assert len(set(long)) == 2
    assert all("/" not in name and len(name) < 100 for name in long)


def test_orders_of_ones_own_have_no_seed(tmp_path: Path) -> None:
    (one,) = make_settings(None, parse_assignments(["orders.source=x.csv"]), {})
    assert "seed" not in one.of_seed(4).orders.settings
    (own,) = make_settings(None, parse_assignments(["orders.seed=8"]), {})
    assert own.of_seed(4).orders.settings["seed"] == 8


@pytest.mark.parametrize(
    ("grid", "named"),
    [
        ({"reward.penality": [1, 2]}, "penalty"),
        ({"train.itertions": [1, 2]}, "train.iterations"),
        ({"train.penalty": [10, 20]}, "reward.penalty"),
        ({"train.iterations": [5, "many"]}, "train.iterations"),
        ({"train.iterations": [5, 0]}, "train.iterations"),
    ],
)
def test_a_grid_is_checked_like_set(grid: dict[str, list[Any]], named: str) -> None:
    with pytest.raises(ConfigError, match=f"--grid: .*{named}"):
        make_settings(None, NOTHING, grid)


def test_a_name_in_the_grid_is_not_set_as_well() -> None:
    with pytest.raises(ConfigError, match=r"reward\.penalty"):
        make_settings(None, parse_assignments(["reward.penalty=1"]), {"reward.penalty": [1, 2]})


def test_a_file_is_below_changes_and_grid(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {iterations: 3, episodes_per_iteration: 10}\nreward: {name: pa_penalty, penalty: 1}\n")
    settings = make_settings(file, parse_assignments(["train.iterations=4"]), {"reward.penalty": [5, 6]})
    assert [(one.config.train.iterations, one.config.train.episodes_per_iteration) for one in settings] == [(4, 10)] * 2
    assert [one.config.reward.settings["penalty"] for one in settings] == [5, 6]
