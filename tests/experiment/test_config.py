"""The tree of a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.parameters import Layer, descriptions, leaves, short_names
from rlwb.experiment.sections import ExecutionConfig
from rlwb.market import Calendar


def changed(**values: object) -> RunConfig:
    return RunConfig.load(None, Layer("test", {name.replace("__", "."): value for name, value in values.items()}))


def refusal(**values: object) -> str:
    with pytest.raises(ConfigError) as caught:
        changed(**values)
    return str(caught.value)


def test_every_parameter_says_what_it_does() -> None:
    texts = descriptions(RunConfig)
    assert [name for name in texts if not texts[name]] == []
    assert set(leaves(RunConfig)) <= set(texts)


def test_the_file_holds_the_last_default(tmp_path: Path) -> None:
    config = changed(train__iterations=3, market__synthetic__days=10, execution__rules__volume_limit=0.1)
    for describe in (False, True):
        (tmp_path / "config.yaml").write_text(config.as_yaml(describe=describe))
        assert RunConfig.load(tmp_path / "config.yaml") == config


def test_layers_win_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("train: {iterations: 7, repeats: 2}\nseed: 4\n")
    config = RunConfig.load(tmp_path / "a.yaml", parse_assignments(["train.iterations=9", "train.patience=none"]))
    assert (config.train.iterations, config.train.repeats, config.seed) == (9, 2, 4)
    assert config.train.patience is None


def test_dqn_has_its_own_parameters_and_shares_the_rest() -> None:
    config = changed(train__algorithm="dqn", train__dqn__n_step=2, train__gamma=0.9, policy__network="attention")
    assert (config.train.dqn.n_step, config.train.gamma) == (2, 0.9)
    # Without bars in the observations every environment will do.
    assert changed(train__algorithm="dqn", train__env="dummy", policy__network="mlp").train.env == "dummy"


def test_lr_is_learning_rate() -> None:
    assert changed(train__lr=1e-4).train.learning_rate == 1e-4


def test_paths_start_at_the_file_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.yaml").write_text("market: {source: ../bars}\norders: {source: own.csv}\n")
    monkeypatch.chdir(tmp_path)
    config = RunConfig.load(Path("sub/a.yaml"))
    assert config.market.source == str(tmp_path / "bars")
    assert config.orders.source == str(tmp_path / "sub" / "own.csv")
    assert changed(market__source="bars").market.source == str(tmp_path / "bars")
    assert RunConfig().market.source == "synthetic"


def test_calendar_from_preset_and_segments() -> None:
    config = changed(market__source="x", market__calendar={"preset": "cn", "tick_minutes": 5, "label": "end"})
    assert config.market.calendar.build() == Calendar.preset("cn", tick_minutes=5, label="end")
    own = {"preset": None, "segments": [["09:00", "10:00"]]}
    assert changed(market__source="x", market__calendar=own).market.calendar.build().num_ticks == 60


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"market__calendar__preset": "cn"}, "market: calendar has no effect with source 'synthetic'"),
        ({"market__source": "x", "market__synthetic__days": 3}, "market: synthetic has no effect with source"),
        ({"market__source": "x", "market__start": "2024-02-01", "market__end": "2024-01-01"}, "is after end"),
        ({"market__source": "x", "market__calendar__preset": None}, "needs a preset, an exchange, or the segments"),
        ({"market__source": "x", "market__calendar__tick_minutes": 7}, "market.calendar: "),
        ({"market__source": "x", "market__calendar__timezone": "Mars"}, "timezone 'Mars' is unknown"),
        ({"market__start": "2030-01-01"}, "market: start has no effect with source 'synthetic'"),
        ({"market__instruments": ["SYN001"]}, "market: instruments has no effect with source 'synthetic'"),
        ({"market__source_timezone": "UTC"}, "market: source_timezone has no effect with source 'synthetic'"),
        ({"policy__network": "mlp", "features__clip": 3.0}, "features has no effect with policy.network 'mlp'"),
        ({"train__concurrency": 8}, "train: concurrency has no effect with env 'native'"),
        ({"market__kind": "qlib"}, "market: kind has no effect with source 'synthetic'"),
        ({"market__options": {"freq": "day"}}, "market: options has no effect with source 'synthetic'"),
        ({"market__source": "x", "market__kind": "qlb"}, "there is no reader 'qlb'; did you mean 'qlib'?"),
        (
            {"market__source": "x", "market__kind": "qlib", "market__options": {"frq": "day"}},
            "the reader qlib has no option 'frq'; did you mean 'freq'?",
        ),
        (
            {"market__source": "x", "market__kind": "qlib_pickle", "market__options": {"trust_pickle": "yes"}},
            "qlib_pickle's option trust_pickle is 'yes'",
        ),
        (
            {"market__source": "x", "market__kind": "table", "market__options": {"freq": "day"}},
            "the reader table has no option 'freq'",
        ),
        (
            {"market__source": "x", "market__kind": "lean", "market__columns": {"a": "close"}},
            "market: columns has no effect with kind 'lean'",
        ),
        ({"orders__source": "x", "orders__generate__log_std": 2}, "orders: generate has no effect"),
        ({"train__dqn__n_step": 3}, "train: dqn has no effect with algorithm 'ppo'; drop it or change the algorithm"),
        ({"train__algorithm": "dqn", "train__clip": 0.1}, "train: clip has no effect with algorithm 'dqn'"),
        ({"train__algorithm": "dqn", "train__dqn__replay_sice": 9}, "no parameter train.dqn.replay_sice; did you mean"),
        (
            {"train__algorithm": "dqm"},
            "train.algorithm is 'dqm'; it must be 'ppo', 'dqn' or 'opd'; did you mean 'dqn'?",
        ),
        ({"train__algorithm": "dqn", "train__env": "subproc"}, "test: train.algorithm dqn keeps what it has seen"),
        ({"train__opd__distillation": 0.1}, "train: opd has no effect with algorithm 'ppo'"),
        ({"train__algorithm": "opd", "train__dqn__n_step": 3}, "train: dqn has no effect with algorithm 'opd'"),
        (
            {"train__algorithm": "opd", "train__env": "dummy"},
            "train.env dummy end at the current bar; set train.env to",
        ),
        (
            {"train__algorithm": "opd", "train__opd__distillation": 0},
            "train.opd.distillation is 0; it should be greater",
        ),
        (
            {"train__reward": "sparse", "train__penalty": 1},
            "train: penalty has no effect with reward 'sparse'; drop it",
        ),
        (
            {"train__reward": "sparse", "train__reward_scale": 2},
            "train: reward_scale has no effect with reward 'sparse'",
        ),
        (
            {"train__decay_iterations": 30},
            "test: train: decay_iterations is 30 and iterations 40, so the last 10 would learn nothing; set it to",
        ),
        (
            {"train__algorithm": "opd", "train__decay_iterations": 40, "train__opd__teacher_iterations": 50},
            "decay_iterations is 40 and opd.teacher_iterations 50",
        ),
        ({"train__env": "natve"}, "did you mean 'native'?"),
        ({"features__columns": ["opn"]}, "features: there is no feature 'opn'"),
        ({"backtest__confidence": 1}, "backtest.confidence is 1; it should be less than 1"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, object], part: str) -> None:
    assert part in refusal(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"train__iterations": 0},
        {"train__episodes_per_iteration": 0},
        {"train__patience": 0},
        {"train__max_grad_norm": 0},
        {"train__dqn__target_every": 0},
        {"train__dqn__huber": 0},
        {"train__opd__teacher_iterations": 0},
        {"train__decay_iterations": 0},
        {"train__concurrency": 0},
        {"train__iterations": None},
        {"threads": 0},
        {"backtest__top": 0},
    ],
)
def test_e23_limits_of_zero_are_refused_in_one_sentence(values: dict[str, object]) -> None:
    text = refusal(**values)
    assert next(iter(values)).replace("__", ".") in text
    assert text.count(". ") == 0


@pytest.mark.parametrize(
    "assignment", ["market.instruments=[0010]", "market.instruments=[000001]", "market.instruments=[1]"]
)
def test_a19_instruments_are_text(assignment: str) -> None:
    with pytest.raises(ConfigError, match="quote it"):
        RunConfig.load(None, parse_assignments([assignment]))
    own = ["market.source=bars.csv", 'market.instruments=["000001", 600000.SH]']
    config = RunConfig.load(None, parse_assignments(own))
    assert config.market.instruments == ("000001", "600000.SH")


def test_a19_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("market:\n  instruments: [0010]\n")
    with pytest.raises(ConfigError, match=r'a\.yaml, line 2: 0010 .* quote it: "0010"'):
        RunConfig.load(tmp_path / "a.yaml")


@pytest.mark.parametrize("bad", [["train.iterations"], ["=3"], ["seed=1", "seed=2"], ["seed=["]])
def test_assignments_are_name_and_value(bad: list[str]) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_assignments(bad)


def test_notebooks_have_short_names_for_what_people_change() -> None:
    names = short_names(RunConfig)
    for name in ("iterations", "learning_rate", "seed", "signal", "ticks_per_step", "volume_limit", "top", "penalty"):
        assert name in names


def test_a_group_given_in_part_keeps_the_defaults_of_the_run() -> None:
    """The rooms' own defaults may differ from the run's; naming one parameter must not bring them back."""
    assert changed(market__synthetic__seed=5).market.synthetic == dataclasses.replace(
        RunConfig().market.synthetic, seed=5
    )
    assert changed(features__clip=3.0).features == dataclasses.replace(RunConfig().features, clip=3.0)
    assert RunConfig().market.synthetic.days == 240
    assert not RunConfig().features.previous_day


def test_a_preset_of_rules_is_what_single_rules_change() -> None:
    full = changed(execution__preset="cn").execution
    assert full.rules == ExecutionRules.preset("cn")
    some = changed(execution__preset="cn", execution__rules__volume_limit=0.1, execution__rules__min_fee=0.0).execution
    assert some.rules == ExecutionRules.preset("cn", volume_limit=0.1, min_fee=0.0)
    assert ExecutionConfig(preset="us").rules == ExecutionRules.preset("us")
    with pytest.raises(ConfigError, match=r"execution\.preset is 'eu'"):
        changed(execution__preset="eu", execution__rules__volume_limit=0.1)


def test_a_run_with_a_preset_is_read_back_as_it_was(tmp_path: Path) -> None:
    config = changed(execution__preset="cn", execution__rules__price_limit=None, execution__rules__commission_bps=1.0)
    (tmp_path / "config.yaml").write_text(config.as_yaml())
    assert RunConfig.load(tmp_path / "config.yaml") == config


def test_a_teacher_learns_as_long_as_its_student_and_keeps_that_when_the_student_goes_on(tmp_path: Path) -> None:
    assert changed(train__algorithm="opd").train.opd.teacher_iterations == RunConfig().train.iterations == 40
    assert RunConfig().train.opd.teacher_iterations is None
    some = changed(train__algorithm="opd", train__iterations=12)
    assert some.train.opd.teacher_iterations == 12
    (tmp_path / "config.yaml").write_text(some.as_yaml())
    longer = RunConfig.load(tmp_path / "config.yaml", parse_assignments(["train.iterations=20"]))
    assert (longer.train.iterations, longer.train.opd.teacher_iterations) == (20, 12)
    assert changed(train__algorithm="opd", train__opd__teacher_iterations=7).train.opd.teacher_iterations == 7
