"""The tree of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules
from rlwb.experiment.config import SLOTS, RunConfig, Section, parse_assignments
from rlwb.experiment.layers import Layer, short_names
from rlwb.experiment.own_code import check_parts
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.sources import CalendarSettings
from rlwb.market import Calendar
from rlwb.parts import describe, names
from rlwb.signatures import parameter_texts


def changed(**values: object) -> RunConfig:
    return RunConfig.load(None, Layer("test", {name.replace("__", "."): value for name, value in values.items()}))


def refusal(**values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        check_parts(changed(**values))
    return str(caught.value)


def test_every_parameter_says_what_it_does() -> None:
    texts = parameter_texts(RunConfig.__doc__ or "")
    assert set(texts) == set(RunConfig.model_fields)
    for name, field in RunConfig.model_fields.items():
        own = field.annotation
        if isinstance(own, type) and issubclass(own, Section):
            assert set(parameter_texts(own.__doc__ or "")) == set(own.model_fields), name


def test_every_setting_of_a_built_in_part_says_what_it_does() -> None:
    for kind in SLOTS.values():
        for name in names(kind):
            for setting in describe(kind, name):
                assert setting.meaning, f"{kind} {name}: {setting.name}"


def test_the_file_holds_the_last_default(tmp_path: Path) -> None:
    config = changed(train__iterations=3, market__days=10, execution__rules__volume_limit=0.1)
    for described in (False, True):
        (tmp_path / "config.yaml").write_text(config.as_yaml(describe=described))
        assert RunConfig.load(tmp_path / "config.yaml") == config


def test_reading_a_configuration_imports_no_torch() -> None:
    code = "import sys; from rlwb.experiment.config import RunConfig; RunConfig.load().as_yaml(describe=True)"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)


def test_layers_win_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("train: {iterations: 7, keep: 2}\nseed: 4\n")
    config = RunConfig.load(tmp_path / "a.yaml", parse_assignments(["train.iterations=9", "train.patience=none"]))
    assert (config.train.iterations, config.train.keep, config.seed) == (9, 2, 4)
    assert config.train.patience is None


def test_a_part_has_its_own_settings() -> None:
    config = changed(algorithm={"name": "dqn", "n_step": 2, "gamma": 0.9}, network="attention")
    assert (config.algorithm.settings["n_step"], config.algorithm.settings["gamma"]) == (2, 0.9)
    assert config.network.name == "attention"


def test_paths_start_at_the_file_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.yaml").write_text("market: {source: ../bars}\norders: {source: own.csv}\n")
    monkeypatch.chdir(tmp_path)
    config = RunConfig.load(Path("sub/a.yaml"))
    assert config.market.settings["source"] == str(tmp_path / "bars")
    assert config.orders.settings["source"] == str(tmp_path / "sub" / "own.csv")
    assert changed(market__source="bars").market.settings["source"] == str(tmp_path / "bars")
    assert RunConfig().market.name == "synthetic"


def test_calendar_from_preset_and_segments() -> None:
    clock = {"preset": "cn", "tick_minutes": 5, "label": "end"}
    own = changed(market__source="x", market__calendar=clock).market.settings["calendar"]
    assert CalendarSettings(**own).build() == Calendar.preset("cn", tick_minutes=5, label="end")
    assert CalendarSettings(segments=(("09:00", "10:00"),)).build().num_ticks == 60
    layers = [
        Layer("a", {"market": {"source": "x", "calendar": clock}}),
        Layer("b", {"market.calendar.label": "start"}),
    ]
    merged = RunConfig.load(None, *layers).market.settings["calendar"]
    assert (merged["preset"], merged["label"], merged["tick_minutes"]) == ("cn", "start", 5.0)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"market__calendar__preset": "cn"}, ["market", "synthetic", "calendar"]),
        ({"market": {"source": "x", "days": 3}}, ["bars", "days"]),
        ({"market": {"source": "x", "calendar": {"tick_minutes": 7}}}, ["market", "7"]),
        ({"market": {"source": "x", "calendar": {"timezone": "Mars"}}}, ["Mars"]),
        ({"market": {"source": "x", "calendar": {"tick_minuts": 5}}}, ["calendar", "tick_minuts", "tick_minutes"]),
        ({"market__tail": 1}, ["synthetic", "tail", "1"]),
        ({"market__instruments": ["SYN001"]}, ["instruments", "whole number"]),
        ({"market": {"source": "x", "reader": "qlb"}}, ["reader", "qlb", "qlib"]),
        ({"market": {"source": "x", "reader": {"name": "qlib", "frq": "day"}}}, ["qlib", "frq", "freq"]),
        ({"orders": {"source": "x", "log_std": 2}}, ["orders", "table", "log_std"]),
        ({"algorithm__n_step": 3}, ["all_actions", "n_step"]),
        ({"algorithm": {"name": "dqn", "clip": 0.1}}, ["dqn", "clip"]),
        ({"algorithm": {"name": "dqn", "replay_sice": 9}}, ["dqn", "replay_sice", "replay_size"]),
        ({"algorithm": "dqm"}, ["dqm", "dqn"]),
        ({"algorithm": {"name": "opd", "distillation": -1}}, ["opd", "distillation", "-1"]),
        ({"reward": {"name": "sparse", "penalty": 1}}, ["sparse", "penalty"]),
        ({"algorithm__decay_updates": 30}, ["decay_updates", "30", "40", "10"]),
        (
            {"algorithm": {"name": "opd", "decay_updates": 40, "teacher_iterations": 50}},
            ["40", "teacher_iterations 50"],
        ),
        ({"train__env": "natve"}, ["train.env", "did you mean 'native'?"]),
        ({"features__columns": ["opn"]}, ["features", "'opn'", "open"]),
        ({"backtest__confidence": 1}, ["backtest.confidence is 1"]),
        ({"baselines": ["twap", "twap"]}, ["baselines", "twap", "twice"]),
        ({"baselines": ["twapp"]}, ["baselines", "twapp", "twap"]),
        ({"baselines": [{"name": "almgren_chriss", "urgncy": 1}]}, ["almgren_chriss", "urgncy", "urgency"]),
    ],
)
def test_impossible_values_are_refused(values: dict[str, object], named: list[str]) -> None:
    text = refusal(**values)
    for part in named:
        assert part in text


@pytest.mark.parametrize(
    "values",
    [
        {"train__iterations": 0},
        {"train__episodes_per_iteration": 0},
        {"train__patience": 0},
        {"algorithm__max_grad_norm": 0},
        {"algorithm": {"name": "dqn", "target_every": 0}},
        {"algorithm": {"name": "dqn", "huber": 0}},
        {"algorithm": {"name": "opd", "teacher_iterations": 0}},
        {"algorithm__decay_updates": 0},
        {"train__concurrency": 0},
        {"train__iterations": None},
        {"threads": 0},
        {"backtest__top": 0},
    ],
)
def test_e23_limits_of_zero_are_refused_in_one_sentence(values: dict[str, Any]) -> None:
    text = refusal(**values)
    name, value = next(iter(values.items()))
    own = list(value)[-1] if isinstance(value, dict) else name.rpartition("__")[2]
    assert own in text
    assert text.count(". ") == 0


@pytest.mark.parametrize("given", ["[0010]", "[000001]", "[1]"])
def test_a19_instruments_are_text(given: str) -> None:
    with pytest.raises(ConfigError, match="quote it"):
        RunConfig.load(None, parse_assignments(["market.source=x", f"market.instruments={given}"]))
    own = ["market.source=bars.csv", 'market.instruments=["000001", 600000.SH]']
    config = RunConfig.load(None, parse_assignments(own))
    assert config.market.settings["instruments"] == ("000001", "600000.SH")


def test_a19_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("market:\n  instruments: [0010]\n")
    with pytest.raises(ConfigError, match=r'a\.yaml, line 2: 0010 .* quote it: "0010"'):
        RunConfig.load(tmp_path / "a.yaml")


@pytest.mark.parametrize("bad", [["train.iterations"], ["=3"], ["seed=1", "seed=2"], ["seed=["]])
def test_assignments_are_name_and_value(bad: list[str]) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_assignments(bad)


def test_notebooks_have_short_names_for_what_people_change() -> None:
    found = short_names(RunConfig().as_dict())
    for name in ("iterations", "learning_rate", "seed", "signal", "ticks_per_step", "volume_limit", "top", "penalty"):
        assert name in found
    assert found["seed"] == "seed"
    assert found["reward"] == "reward"


def test_a_preset_of_rules_is_what_single_rules_change() -> None:
    full = changed(execution__preset="cn").execution
    assert full.rules == ExecutionRules.preset("cn")
    some = changed(execution__preset="cn", execution__rules__volume_limit=0.1, execution__rules__min_fee=0.0).execution
    assert some.rules == ExecutionRules.preset("cn", volume_limit=0.1, min_fee=0.0)
    with pytest.raises(ConfigError, match=r"execution\.preset is 'eu'"):
        changed(execution__preset="eu", execution__rules__volume_limit=0.1)


def test_a_run_with_a_preset_is_read_back_as_it_was_and_takes_another(tmp_path: Path) -> None:
    config = changed(execution__preset="cn", execution__rules__price_limit=None, execution__rules__commission_bps=1.0)
    (tmp_path / "config.yaml").write_text(config.as_yaml())
    assert RunConfig.load(tmp_path / "config.yaml") == config
    other = RunConfig.load(tmp_path / "config.yaml", parse_assignments(["execution.preset=us"]))
    assert other.execution.rules == ExecutionRules.preset("us")


def test_a_teacher_learns_as_long_as_its_student_and_keeps_that_when_the_student_goes_on(tmp_path: Path) -> None:
    assert changed(algorithm="opd").algorithm.settings["teacher_iterations"] == RunConfig().train.iterations == 40
    some = changed(algorithm="opd", train__iterations=12)
    assert some.algorithm.settings["teacher_iterations"] == 12
    (tmp_path / "config.yaml").write_text(some.as_yaml())
    longer = RunConfig.load(tmp_path / "config.yaml", parse_assignments(["train.iterations=20"]))
    assert (longer.train.iterations, longer.algorithm.settings["teacher_iterations"]) == (20, 12)
    own = changed(algorithm={"name": "opd", "teacher_iterations": 7})
    assert own.algorithm.settings["teacher_iterations"] == 7


def test_every_part_of_a_run_is_named() -> None:
    config = changed(
        market={"source": "x", "reader": {"name": "qlib", "freq": "1min"}},
        features={"columns": ["close", "mine.py:wide"]},
        baselines=["twap", "mine.py:Late"],
    )
    found = [(place, kind, part.name.rpartition("/")[2]) for place, kind, part in config.parts()]
    assert ("market.reader", "reader", "qlib") in found
    assert ("features.columns", "feature", "mine.py:wide") in found
    assert ("baselines", "baseline", "mine.py:Late") in found
    assert ("reward", "reward", "pa_penalty") in found


@pytest.mark.parametrize(
    ("values", "algorithm"),
    [
        ({}, "all_actions"),
        ({"algorithm.learning_rate": 1e-3, "action_interpreter.values": 8, "network": "mlp"}, "all_actions"),
        ({"network": "recurrent"}, "ppo"),
        ({"algorithm.learning_rate": 1e-3, "objective": "cvar"}, "ppo"),
        ({"action_interpreter": "twap_relative"}, "ppo"),
        ({"reward": "sparse"}, "ppo"),
        ({"execution.rules.min_fee": 5.0}, "ppo"),
        ({"execution.rules.volume_limit": 0.1}, "ppo"),
        ({"algorithm": "all_actions", "execution.rules.min_fee": 5.0}, "all_actions"),
        ({"algorithm": "ppo"}, "ppo"),
    ],
)
def test_the_default_algorithm_is_the_one_that_suits_the_run(values: dict[str, object], algorithm: str) -> None:
    config = RunConfig.load(None, Layer("test", values))
    assert config.algorithm.name == algorithm
    if "algorithm.learning_rate" in values:
        assert config.algorithm.settings["learning_rate"] == 1e-3
    assert RunConfig.load(None, Layer("a run's own", config.as_dict())) == config


def test_a_run_that_trains_anew_has_the_default_that_suits_its_changes(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "default", RunConfig())
    recurrent = Layer("test", {"network": "recurrent"})
    assert run.load_config(recurrent).algorithm.name == "all_actions"
    assert run.load_config(recurrent, trains=True).algorithm.name == "ppo"
    assert run.load_config(Layer("test", {"seed": 3}), trains=True).algorithm.name == "all_actions"
    named = Layer("test", {"network": "recurrent", "algorithm": "all_actions"})
    assert run.load_config(named, trains=True).algorithm.name == "all_actions"
    own = RunDirectory.create(tmp_path / "own", RunConfig.load(None, named))
    assert own.load_config(Layer("test", {"seed": 3}), trains=True).algorithm.name == "all_actions"
