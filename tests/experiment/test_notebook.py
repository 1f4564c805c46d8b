"""The setup cell of a notebook, called with the namespaces that notebooks have."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import nbformat
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.notebook import (
    check_arrival,
    check_passed,
    is_attended,
    open_stage,
    parameters_in,
    tagged_parameters,
)
from rlwb.experiment.run import RunDirectory
from tests.experiment.fakes import FIRST, SECOND, config, first, notebook, second


def after(*cells: str, **more: Any) -> dict[str, Any]:
    """Return the namespace of a notebook that executed `cells`."""
    namespace: dict[str, Any] = {"In": ["", *cells], "Out": {}, **more}
    for cell in cells:
        exec(cell, namespace)
    return namespace


def test_parameters_are_taken_and_the_run_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage = open_stage(SECOND, after(f"run_dir = '{tmp_path / 'r'}'\niterations = 2"))
    assert stage.config.train.iterations == 2
    assert RunDirectory(tmp_path / "r").config == stage.config
    assert capsys.readouterr().out == "r: created; finished: nothing yet\n"


def test_a_script_passes_a_plain_mapping(tmp_path: Path) -> None:
    stage = open_stage(
        SECOND, {"run_dir": tmp_path / "r", "seed": 3, "datetime": datetime, "open_stage": open_stage, "_x": 1}
    )
    assert stage.config.seed == 3


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("learing_rate = 1e-3", "there is no parameter learing_rate; did you mean learning_rate?"),
        ("lr = 1e-3", "there is no parameter lr; did you mean learning_rate?"),
        ("half = 3", "there is no parameter half; "),
        ("iterations = '3'", "train.iterations is '3'; a whole number is needed"),
        ("market_instruments = [8]", 'quote it as it is meant, like "000008"'),
    ],
)
def test_g01_unknown_names_and_wrong_values_stop_it(tmp_path: Path, line: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_stage(SECOND, after(f"run_dir = '{tmp_path / 'r'}'\n{line}"))
    assert sentence in str(caught.value)
    assert not (tmp_path / "r").exists(), "before any work"


def test_g01_a_name_that_papermill_injected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no parameter learing_rate; did you mean learning_rate"):
        open_stage(
            SECOND, after(f"run_dir = '{tmp_path / 'r'}'\nlearning_rate = 1e-3", "# Parameters\nlearing_rate = 0.01\n")
        )


def test_run_dir_is_needed() -> None:
    with pytest.raises(ConfigError, match="run_dir is missing"):
        open_stage(SECOND, {"seed": 1})


def test_g03_a_lost_tag_is_noticed(tmp_path: Path) -> None:
    cells = ("# Parameters\niterations = 9\n", f"run_dir = '{tmp_path / 'r'}'\niterations = 3")
    with pytest.raises(ConfigError, match=r"iterations was passed as 9 but is 3: .* lost its tag 'parameters'"):
        open_stage(SECOND, after(*cells))


def test_g03_annotations_and_passed_values_arrive(tmp_path: Path) -> None:
    cells = (
        f"run_dir = '{tmp_path / 'r'}'\niterations: int = 3\nenv: Literal['native'] = 'native'",
        "# Parameters\niterations = 9\nenv = 'dummy'\npatience = None\nlearning_rate = 1e-3\n",
    )
    stage = open_stage(SECOND, after("from typing import Literal", *cells))
    assert (stage.config.train.iterations, stage.config.train.env, stage.config.train.patience) == (9, "dummy", None)


def test_values_that_are_no_literals_are_passed_over() -> None:
    check_arrival(after("# Parameters\nx = float('nan')\n"))


def test_a_setup_cell_may_run_again(tmp_path: Path) -> None:
    """Variables of later cells are no parameters; the last edition of the cell of parameters counts."""
    namespace = after(
        f"run_dir = '{tmp_path / 'r'}'\niterations = 3",
        "frame = [1, 2]\nfigure = 3",
        f"run_dir = '{tmp_path / 'r'}'\niterations = 5",
    )
    open_stage(SECOND, namespace)
    assert open_stage(SECOND, namespace).config.train.iterations == 5
    assert set(parameters_in(namespace)) == {"run_dir", "iterations"}


def test_magic_cells_are_no_parameters() -> None:
    assert parameters_in({"In": ["%matplotlib inline", "run_dir = 'x'", "!ls"], "run_dir": "x"}) == {"run_dir": "x"}


def test_g13_a_parameter_changed_after_the_setup_cell(tmp_path: Path) -> None:
    namespace = after(f"run_dir = '{tmp_path / 'r'}'\nseed = 3")
    stage = open_stage(FIRST, namespace)
    namespace["seed"] = 4
    with pytest.raises(ConfigError, match="seed is 4 now but was 3 when the setup cell ran; run that cell again"):
        stage.do(first)


def test_the_runs_configuration_is_under_the_notebooks(tmp_path: Path) -> None:
    """What the notebook does not set comes from the run, and what it sets becomes the run's."""
    run = RunDirectory.create(tmp_path / "r", config(train__repeats=7))
    namespace = {"run_dir": str(run.path), "seed": 2}
    stage = open_stage(FIRST, namespace)
    assert stage.config.train.repeats == 7
    stage.do(first)
    assert run.config == config(train__repeats=7, seed=2)
    again = open_stage(SECOND, {"run_dir": str(run.path), "iterations": 1})
    again.do(second)
    assert run.state == "created"
    assert "first, second" in run.describe()


def test_tagged_parameters(tmp_path: Path) -> None:
    nbformat.write(notebook("a = 1\nb: int = 2\nprint(a)", "c = 3"), tmp_path / "n.ipynb")
    assert tagged_parameters(tmp_path / "n.ipynb") == ("a", "b")
    nbformat.write(notebook("a = 1", tagged=None), tmp_path / "n.ipynb")
    with pytest.raises(ConfigError, match="0 cells are tagged 'parameters'; tag exactly one"):
        tagged_parameters(tmp_path / "n.ipynb")


def test_g01_a_notebook_without_a_stage_refuses_what_it_does_not_have() -> None:
    cells = ("days = 240\nlearning_rate = 2e-3", "# Parameters\nlearing_rate = 1\n")
    with pytest.raises(ConfigError, match=r"there is no parameter learing_rate; did you mean learning_rate\?"):
        check_passed(after(*cells))
    with pytest.raises(ConfigError, match="there is no parameter xyz; there are days, learning_rate"):
        check_passed(after(cells[0], "# Parameters\nxyz = 1\n"))
    check_passed(after(cells[0], "# Parameters\ndays = 5\n"))


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
    open_stage(SECOND, {"run_dir": str(run.path)})
    assert "training stopped after iteration 7 and goes on from there" in capsys.readouterr().out
