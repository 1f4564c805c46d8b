"""The setup cell of a notebook."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.notebook import check_passed, is_attended, open_stage
from rlwb.experiment.run import PIPELINE_ENV, RunDirectory
from rlwb.experiment.stages import BACKTEST, STABILITY, TRAIN, Stage
from tests.experiment.fakes import FIRST, SECOND, config, first, second


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let a test say what papermill wrote into the notebook."""

    def write(*cells: str) -> None:
        shell = types.SimpleNamespace(user_ns={"In": ["", *cells]})
        monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))

    return write


def test_parameters_are_taken_and_the_run_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = open_stage(FIRST, tmp_path / "r", {"algorithm.gamma": 0.9}, iterations=2, reward="sparse", seed=None)
    assert stage.config.train.iterations == 2
    assert stage.config.algorithm.settings["gamma"] == 0.9
    assert stage.config.reward.name == "sparse"
    assert RunDirectory(tmp_path / "r").config == stage.config
    assert capsys.readouterr().out == "r: created; finished: nothing yet\n"


def test_a_notebook_edited_by_hand_does_not_change_what_rlwb_run_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = RunDirectory.create(tmp_path / "r", config()).config
    monkeypatch.setenv(PIPELINE_ENV, str(tmp_path / "r"))
    assert open_stage(FIRST, str(tmp_path / "r"), {"algorithm.gamma": 0.9}, iterations=9).config == asked
    assert "sets algorithm.gamma, train.iterations, for runs by hand" in capsys.readouterr().out
    monkeypatch.delenv(PIPELINE_ENV)
    assert open_stage(FIRST, str(tmp_path / "r"), iterations=9).config.train.iterations == 9


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"learing_rate": 1e-3}, ["learing_rate", "did you mean learning_rate?"]),
        ({"lr": 1e-3}, ["lr", "did you mean learning_rate?"]),
        ({"half": 3}, ["half"]),
        ({"iterations": "3"}, ["train.iterations", "'3'", "whole number"]),
        ({"settings": {"train.iteratons": 3}}, ["train.iteratons", "train.iterations"]),
        ({"settings": {"market.source": "x", "market.instruments": [8]}}, ['quote it as it is meant, like "000008"']),
    ],
)
def test_g01_unknown_names_and_wrong_values_stop_it(tmp_path: Path, values: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        open_stage(SECOND, tmp_path / "r", **values)
    assert all(text in str(caught.value) for text in named)
    assert not (tmp_path / "r").exists(), "before any work"


def test_g01_a_name_that_papermill_passed_is_unknown(tmp_path: Path, passed: Any) -> None:
    passed("iterations = None", "# Parameters\nlearing_rate = 0.01\n")
    with pytest.raises(ConfigError, match="no parameter learing_rate; did you mean learning_rate"):
        open_stage(SECOND, tmp_path / "r", learning_rate=1e-3)
    with pytest.raises(ConfigError, match=r"no parameter learing_rate; choose among days"):
        check_passed(days=3)


def test_g03_a_lost_tag_is_noticed(tmp_path: Path, passed: Any) -> None:
    passed("# Parameters\niterations = 9\n", "iterations = 3")
    with pytest.raises(ConfigError, match=r"iterations was passed as 9 but is 3: .* lost its tag 'parameters'"):
        open_stage(SECOND, tmp_path / "r", iterations=3)


def test_g03_passed_values_arrive(tmp_path: Path, passed: Any) -> None:
    passed("iterations = None", f"# Parameters\nrun_dir = {str(tmp_path / 'r')!r}\niterations = 9\nsettings = {{}}\n")
    assert open_stage(FIRST, str(tmp_path / "r"), {}, iterations=9, env=None).config.train.iterations == 9


def test_the_runs_configuration_is_under_the_notebooks(tmp_path: Path) -> None:
    """What the notebook does not set comes from the run, and what it sets becomes the run's."""
    run = RunDirectory.create(tmp_path / "r", config(train__keep=7))
    stage = open_stage(FIRST, run.path, seed=2)
    assert stage.config.train.keep == 7
    stage.do(first)
    assert run.config == config(train__keep=7, seed=2)
    again = open_stage(SECOND, run.path, iterations=1)
    again.do(second)
    assert run.state == "created"
    assert "first, second" in run.describe()


@pytest.mark.parametrize("stage", [TRAIN, BACKTEST, STABILITY], ids=lambda stage: stage.name)
def test_k15_a_mistyped_run_dir_leaves_nothing(tmp_path: Path, stage: Stage) -> None:
    RunDirectory.create(tmp_path / "runs" / "mine", config())
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"runs/mime holds no run; did you mean .*/runs/mine\?.*01_orders\.ipynb"):
        open_stage(stage, tmp_path / "runs" / "mime")
    with pytest.raises(ConfigError, match=r"holds no run; correct it, or run 01_orders\.ipynb there first"):
        open_stage(stage, tmp_path / "deep" / "down" / "mine")
    assert sorted(tmp_path.rglob("*")) == before


def test_nobody_watches_a_test() -> None:
    assert not is_attended()


def test_e19_a_setup_cell_says_where_training_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create(tmp_path / "r", config())
    (run.checkpoints / "teacher").mkdir(parents=True)
    (run.checkpoints / "teacher" / "0003.pt").touch()
    run.update_stage("train", {"state": "interrupted"})
    assert run.describe().endswith("; the teacher's training stopped after iteration 3 and goes on from there")
    for iteration in (6, 7):
        (run.checkpoints / f"{iteration:04d}.pt").touch()
    open_stage(SECOND, run.path)
    assert "training stopped after iteration 7 and goes on from there" in capsys.readouterr().out
