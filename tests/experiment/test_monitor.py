"""How far a training is, as its run's directory tells."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlwb.errors import CheckpointError, ConfigError
from rlwb.evaluation.training_plots import steps_per_second, training_progress
from rlwb.experiment.control import ask
from rlwb.experiment.explore import CheckpointView
from rlwb.experiment.monitor import BackgroundTraining, read_training
from rlwb.experiment.run import PROGRESS, RunDirectory
from tests.experiment.fakes import config

TRAIN = (
    "iteration,pa,transitions,value_loss,entropy,seconds\n1,-2.5,100,9.0,1.6,0.5\n2,1.5,300,0.5,1.5,1.5\n"
    "3,2.0,400,,1.4,2.0\n"
)
VALIDATION = "iteration,pa\n1,3.0\n3,2.0\n"


def begun(place: Path, **settings: object) -> RunDirectory:
    """Return a run after three of ten iterations, the second of which was not validated."""
    run = RunDirectory.create(place, config(train__iterations=10, **settings))
    run.metrics.mkdir()
    (run.metrics / "train.csv").write_text(TRAIN)
    (run.metrics / "validation.csv").write_text(VALIDATION)
    run.update_stage("orders", {"state": "finished"})
    run.update_stage("train", {"state": "running", "started": "2026-01-02T03:04:05+00:00"})
    run.update_status(state="running")
    return run


def test_speed_and_time_left_are_those_of_the_last_iterations(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    with run.lock():
        state = read_training(run)
        assert (state.standing, state.stage, state.part, state.iteration, state.iterations) == (
            *("running", "train", "train"),
            *(3, 10),
        )
        assert state.steps_per_second == 200.0  # 800 steps in 4 s
        assert state.seconds_left == pytest.approx(7 * 4 / 3)  # no better is known without the file of progress
        assert state.requests == ("pause", "stop")
        assert state.sentence() == (
            "running; iteration 3 of 10; 200 steps/s; 9 s left; validation PA 2.00 bp, best 3.00 bp of iteration 1"
        )
        progress = {"title": "train", "unit": "iteration", "done": 3, "total": 10, "left": 70.0, "figures": {}}
        (run.path / PROGRESS).write_text(json.dumps(progress))
        assert read_training(run).seconds_left == 70.0, "which counts the validation too"
        ask(run, "pause")
        assert read_training(run).requests == ("resume", "stop")


def test_what_nobody_works_on_has_no_time_left_and_takes_no_requests(tmp_path: Path) -> None:
    state = read_training(begun(tmp_path / "run"))
    assert (state.standing, state.requests, state.is_working) == ("interrupted", (), False)
    assert math.isnan(state.seconds_left)


def test_of_a_run_over_windows_the_newest_is_shown(tmp_path: Path) -> None:
    whole = RunDirectory.create(tmp_path / "run", config(train__iterations=20))
    begun(whole.path / "windows" / "001")
    state = read_training(whole)
    assert (state.standing, state.window, state.iteration, state.iterations) == ("created", "001", 3, 10)
    assert "window 001, iteration 3 of 10" in state.sentence()
    with pytest.raises(CheckpointError, match="windows/001"):
        CheckpointView(whole)


def test_a_run_that_has_trained_nothing_yet(tmp_path: Path) -> None:
    state = read_training(RunDirectory.create(tmp_path / "run", config()))
    assert (state.standing, state.iteration) == ("created", 0)
    assert state.train.empty
    assert state.validation.empty
    assert math.isnan(state.steps_per_second)


def test_a_training_by_hand_is_finished_though_no_later_stage_is_begun(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.update_stage("train", {"state": "finished"})
    run.update_status(state="created")
    assert run.state == "created"
    assert read_training(run).sentence().startswith("finished; iteration 3 of 10")


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    run.update_status(state="failed", failure={"stage": "train", "error": "the reward is NaN"})
    assert read_training(run).sentence().endswith("the reward is NaN")


def test_while_a_teacher_is_trained_its_figures_are_shown(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", algorithm={"name": "opd", "teacher_iterations": 4})
    for path in (run.metrics, run.checkpoints):
        (path / "teacher").mkdir(parents=True)
    for path in run.metrics.glob("*.csv"):
        path.rename(run.metrics / "teacher" / path.name)
    (run.checkpoints / "teacher" / "0003.pt").write_text("x")
    state = read_training(run)
    assert (state.part, state.iteration, state.iterations) == ("teacher", 3, 4)
    assert "teacher's iteration 3 of 4" in state.sentence()


def test_the_curves_are_those_that_were_logged(tmp_path: Path) -> None:
    state = read_training(begun(tmp_path / "run"))
    figure = training_progress(state.train, state.validation)
    assert [axis.get_ylabel() for axis in figure.axes] == ["PA, bp", "loss (no unit)", "entropy, nats", "steps/s"]
    validated = figure.axes[0].lines[1]
    assert list(validated.get_xdata()) == [1, 3]
    assert list(validated.get_ydata()) == [3.0, 2.0]
    assert list(figure.axes[1].lines[0].get_xdata()) == [1, 2], "a missing loss is no point"
    assert dict(steps_per_second(state.train)) == {1: 200.0, 2: 200.0, 3: 200.0}
    nothing = read_training(RunDirectory.create(tmp_path / "new", config()))
    assert len(training_progress(nothing.train, nothing.validation).axes) == 1


def test_a_training_in_the_background_is_refused_before_a_process_starts(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", config())
    with pytest.raises(ConfigError, match=r"01_orders\.ipynb"):
        BackgroundTraining(run, run.config)
    with run.lock(), pytest.raises(ConfigError, match="another process"):
        BackgroundTraining(RunDirectory(run.path), run.config)
