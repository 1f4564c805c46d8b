"""Whole runs of two small notebooks: to the end, again, into a fault, stopped, and side by side."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec

from rlwb import cli
from rlwb.errors import ConfigError, DataError, RlwbError
from rlwb.experiment import pipeline, stages
from rlwb.experiment.pipeline import (
    Lines,
    NotebookError,
    _killed,
    execute,
    find_notebooks,
    kernel_environment,
    run_pipeline,
)
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import ORDERS, TRAIN
from tests.experiment.fakes import FAKES, PARAMETERS, config, notebook, stage_notebook, write_notebooks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # kernels find the tests' fakes from there


def go(run: RunDirectory, notebooks: Path, **settings: object) -> list[str]:
    said: list[str] = []
    run_pipeline(run, config(**settings), stages=FAKES, notebooks=notebooks, echo=said.append)
    assert said.pop() == f"report: {run.report}"
    return said


def test_a_run_goes_to_its_end_and_is_not_done_twice(tmp_path: Path) -> None:
    notebooks = write_notebooks(tmp_path / "nb")
    run = RunDirectory.create(tmp_path / "run", config())
    said = go(run, notebooks)
    assert [re.sub(r"in [\d.]+ s", "in some time", line) for line in said] == [
        "first: 1.ipynb",
        "first: done in some time",
        "second: 2.ipynb",
        *(f"  iteration {i} of 3" for i in (1, 2, 3)),
        "second: done in some time",
    ]
    assert run.state == "finished"
    assert run.status["failure"] is None
    executed = nbformat.read(run.notebooks / "2.ipynb", as_version=4)
    assert f'run_dir = "{run.path}"' in executed.cells[1].source

    assert go(run, notebooks) == ["first: unchanged, kept", "second: unchanged, kept"]
    said = go(run, notebooks, train__iterations=5)
    assert said[:2] == ["first: unchanged, kept", "second: 2.ipynb"]
    assert said[2:4] == ["  iteration 4 of 5", "  iteration 5 of 5"]
    assert json.loads((run.path / "manifest.json").read_text())["status"] == "finished"


def test_g05_a_failing_cell_leaves_everything_to_be_seen(tmp_path: Path) -> None:
    notebooks = write_notebooks(tmp_path / "nb", second=stage_notebook(2, "print('so far')", "1 / 0"))
    run = RunDirectory.create(tmp_path / "run", config())
    with pytest.raises(NotebookError, match=r"2\.ipynb, cell 5: ZeroDivisionError: division by zero") as caught:
        go(run, notebooks)
    assert "1 / 0" in caught.value.trace
    assert "\x1b" not in caught.value.trace
    assert run.state == "failed"
    failure = run.status["failure"]
    assert failure["stage"] == "second"
    assert failure["notebook"] == "notebooks/2.ipynb"
    assert failure["cell"] == 5
    assert "ZeroDivisionError" in failure["error"]
    assert failure["resume"].startswith("Go on with: rlwb run --resume --run-dir ")
    executed = nbformat.read(run.notebooks / "2.ipynb", as_version=4)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    assert [output.ename for output in outputs if output.output_type == "error"] == ["ZeroDivisionError"]
    assert json.loads((run.path / "manifest.json").read_text())["status"] == "failed"
    assert "This run is not finished: " in run.report.read_text()

    assert go(run, write_notebooks(tmp_path / "nb"))[0] == "first: unchanged, kept"
    assert run.state == "finished"


LOST_TAG = stage_notebook(1, tagged=None)
KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
DISK = "import errno\nraise OSError(errno.ENOSPC, 'No space left on device')"
USER = "from rlwb.errors import DataError\nraise DataError('bars.csv: no volume')"


@pytest.mark.parametrize(
    ("first", "kind", "words"),
    [
        pytest.param(notebook(PARAMETERS[1], USER), DataError, r"^bars\.csv: no volume$", id="a user's fault"),
        pytest.param(LOST_TAG, ConfigError, "run_dir was passed as .* has lost its tag", id="g03: a lost tag"),
        pytest.param(notebook(PARAMETERS[1]), NotebookError, r"1\.ipynb ran to its end without", id="it does nothing"),
        pytest.param(notebook(PARAMETERS[1], DISK), RlwbError, "the disk is full", id="e09: a full disk"),
        pytest.param(notebook(PARAMETERS[1], KILL), RlwbError, r"killed from outside; .* MB", id="k09: killed"),
        pytest.param(notebook(PARAMETERS[1], "raise MemoryError"), RlwbError, "too little memory", id="k12: memory"),
    ],
)
def test_g03_e09_a_first_notebook_that_fails_is_told_in_a_sentence(
    tmp_path: Path, first: nbformat.NotebookNode, kind: type[Exception], words: str
) -> None:
    run = RunDirectory.create(tmp_path / "run", config())
    with pytest.raises(kind, match=words):
        go(run, write_notebooks(tmp_path / "nb", first=first))
    assert run.state == "failed"
    assert run.stage("first") == {}, "before any work"


def command(notebooks: Path, *words: str) -> subprocess.Popen[str]:
    code = (
        "import sys; from functools import partial; from pathlib import Path\n"
        "from rlwb import cli; from rlwb.experiment import pipeline; from tests.experiment.fakes import FAKES\n"
        "pipeline.run_pipeline = partial(pipeline.run_pipeline, stages=FAKES, notebooks=Path(sys.argv[1]))\n"
        "cli.main(sys.argv[2:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(notebooks), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_stopped_and_resumed(tmp_path: Path) -> None:
    """A terminated run ends its kernel, says interrupted, and goes on where it was."""
    wait = "import os, pathlib, time\npathlib.Path(run_dir, 'kernel').write_text(str(os.getpid()))\ntime.sleep(60)"
    notebooks = write_notebooks(tmp_path / "nb", second=stage_notebook(2, wait))
    run = RunDirectory(tmp_path / "run")
    process = command(notebooks, "run", "--run-dir", str(run.path), "--set", "train.iterations=2")
    deadline = time.monotonic() + 60
    while not (run.path / "kernel").is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.1)
    assert run.state == "running"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "rlwb: stopped" in err
    assert "Go on with: rlwb run --resume --run-dir" in out
    assert run.state == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int((run.path / "kernel").read_text()), 0)

    write_notebooks(tmp_path / "nb")
    again = command(notebooks, "run", "--run-dir", str(run.path), "--resume")
    out, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert "first: unchanged, kept" in out
    assert run.state == "finished"
    assert run.config.train.iterations == 2
    assert run.report.is_file()


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    notebooks = write_notebooks(tmp_path / "nb")
    monkeypatch.setattr(pipeline, "run_pipeline", partial(run_pipeline, stages=FAKES, notebooks=notebooks))
    monkeypatch.setattr(pipeline.signal, "signal", lambda *_: None)
    return tmp_path


def test_the_command_line_end_to_end(fakes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(list(words))
        return (int(stop.value.code or 0), *capsys.readouterr())

    where = ("--run-dir", str(fakes / "run"))
    (fakes / "mine.yaml").write_text("train: {iterations: 2}\n")
    code, out, _ = call("run", str(fakes / "mine.yaml"), *where, "--set", "seed=4")
    assert code == 0
    assert out.endswith(f"report: {fakes / 'run' / 'report.html'}\n")
    code, _, err = call("run", *where)
    assert code == 2
    assert err.count("\n") == 1
    assert "holds a run already (finished; finished: first, second)" in err
    code, out, _ = call("run", *where, "--resume")
    assert code == 0
    assert "second: unchanged, kept" in out
    code, _, err = call("run", "--resume")
    assert code == 2
    assert err == "rlwb: --resume needs the run to go on with; name its directory with --run-dir.\n"

    write_notebooks(fakes / "nb", second=stage_notebook(2, "1 / 0"))
    code, _, err = call("run", *where, "--resume", "--set", "algorithm.learning_rate=1", "--debug")
    assert code == 1
    assert "Traceback" in err
    assert "\nrlwb: 2.ipynb, cell 4: ZeroDivisionError" in err


UNLUCKY = (
    "from rlwb.errors import ConfigError\nif stage.config.seed == 13: raise ConfigError('seed 13 brings bad luck')"
)


@pytest.mark.parametrize("words", [(), ("--set", "train.iterations=2")], ids=["a file", "a file and --set"])
def test_k05_a_corrected_file_is_read_by_the_command_that_was_printed(
    fakes: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    write_notebooks(fakes / "nb", first=stage_notebook(1, UNLUCKY))
    file, run = fakes / "my own.yaml", RunDirectory(fakes / "run")
    file.write_text("seed: 13\n")

    def call(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(list(words))
        return (int(stop.value.code or 0), *capsys.readouterr())

    start = ("run", str(file), *words, "--run-dir", str(run.path))
    code, out, err = call(*start)
    assert (code, err) == (2, "rlwb: seed 13 brings bad luck\n")
    again = ["run", str(file), *words, "--resume", "--run-dir", str(run.path)]
    ways = {
        "printed at the end": out,
        "kept in status.json": run.status["failure"]["resume"],
        "printed by a second start": call(*start)[2],
    }
    for way, said in ways.items():
        printed = re.search("Go on with: rlwb (.*)", said)
        assert printed, way
        assert shlex.split(printed[1]) == again, way
    code, _, err = call(*again)
    assert (code, err) == (2, "rlwb: seed 13 brings bad luck\n"), "nothing is corrected yet"
    file.write_text("seed: 14\n")
    code, out, _ = call(*again)
    assert code == 0
    assert run.config.seed == 14
    assert run.config.train.iterations == (2 if words else 40)
    assert run.state == "finished"
    assert run.how_to_resume() == f"Go on with: rlwb run --resume --run-dir {run.path}", "as it is"


def test_k05_changes_of_a_resume_stay_in_what_is_printed(fakes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_notebooks(fakes / "nb", first=stage_notebook(1, UNLUCKY))
    file, run = fakes / "mine.yaml", RunDirectory(fakes / "run")
    file.write_text("train: {iterations: 2}\n")
    words = ("--run-dir", str(run.path))
    for call in (
        ("run", str(file), *words, "--set", "seed=13", "--set", "threads=1"),
        ("run", "--resume", *words, "--set", "seed= 13"),
    ):
        with pytest.raises(SystemExit):
            cli.main(list(call))
        printed = re.search("Go on with: rlwb (.*)", capsys.readouterr().out)
        assert printed
        assert sorted(shlex.split(printed[1])) == sorted(
            [
                "run",
                str(file),
                "--set",
                call[-1] if "--resume" in call else "seed=13",
                "--set",
                "threads=1",
                "--resume",
                *words,
            ]
        )
    file.unlink()
    assert str(file) not in run.how_to_resume(), "a command that works"


def test_k05_an_interrupted_run_goes_on_as_it_was(fakes: Path) -> None:
    """What the file says meanwhile is for another run."""
    file, run = fakes / "mine.yaml", RunDirectory(fakes / "run")
    file.write_text("train: {iterations: 2}\n")
    write_notebooks(fakes / "nb", first=stage_notebook(1, "raise KeyboardInterrupt"))
    launched: list[str] = []
    with pytest.raises(BaseException):  # noqa: B017 - whatever tells of it
        pipeline.launch(file, [], run.path, resume=False, echo=launched.append)
    run.update_status(state="interrupted")
    assert run.how_to_resume() == f"Go on with: rlwb run --resume --run-dir {run.path}"


def test_k02_the_sentence_says_how_to_go_on(fakes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory(fakes / "run")
    pipeline.launch(None, ["train.iterations=2"], run.path, resume=False, echo=lambda line: None)
    capsys.readouterr()

    def call(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(list(words))
        return int(stop.value.code or 0), capsys.readouterr().err

    file, resume = run.path / "config.yaml", ("run", "--resume", "--run-dir", str(run.path))
    file.write_text(file.read_text().replace("iterations: 2\n", "iterations: 3\n"))
    code, err = call(*resume)
    printed = re.search(r"on purpose: rlwb (.*)\.$", err.strip())
    assert code == 2
    assert printed
    assert call(*shlex.split(printed[1])) == (0, "")
    assert run.config.train.iterations == 3
    assert len(list(run.checkpoints.iterdir())) == 3

    for cut in ("", file.read_text()[:200]):
        file.write_text(cut)
        code, err = call(*resume)
        assert (code, "delete it" in err, "on purpose" in err) == (2, True, False)
        code, err = call("run", str(file), *resume[1:])
        assert code == 2, "the run's own file is complete, or it is refused under its name too"
        file.unlink()
        assert call(*resume) == (0, "")
        assert run.config.train.iterations == 3


def test_the_notebooks_are_found() -> None:
    if not (ROOT / "notebooks" / stages.ORDERS.notebook).is_file():
        with pytest.raises(ConfigError, match="the notebooks are not at"):
            find_notebooks()
    else:
        folder = find_notebooks()
        for stage in stages.STAGES:
            assert (folder / stage.notebook).is_file()


def test_lines_are_whole_and_last_states() -> None:
    got: list[str] = []
    lines = Lines(got.append)
    for text in ("one\ntw", "o\n", " 10%\r 20%\r100%\n", "\n", "  indented\r\n", "rest"):
        lines.write(text)
    lines.flush()
    assert got == ["one", "two", "100%", "  indented"]
    lines.write("\n")
    assert got[-1] == "rest"


def test_g11_threads_are_bounded() -> None:
    environment = kernel_environment(2, RLWB_PIPELINE="x")
    assert (
        environment["OMP_NUM_THREADS"]
        == environment["OPENBLAS_NUM_THREADS"]
        == environment["VECLIB_MAXIMUM_THREADS"]
        == "2"
    )
    assert environment["RLWB_PIPELINE"] == "x"


def test_a_kernel_is_this_interpreter_whatever_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel spec named python3 of another interpreter, or none at all, makes no difference."""
    spec = tmp_path / "data" / "kernels" / "python3"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        '{"argv": ["/nonexistent/python"], "display_name": "Other", "language": "python"}'
    )
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    cells = ("x = 1", "import sys, os; print(sys.executable); print(os.environ['OMP_NUM_THREADS']); print('x =', x)")
    nbformat.write(notebook(*cells), tmp_path / "in.ipynb")
    got: list[str] = []
    execute(
        tmp_path / "in.ipynb",
        tmp_path / "out" / "{x}.ipynb",
        {"x": 5},
        environment=kernel_environment(3),
        echo=got.append,
    )
    assert got == [sys.executable, "3", "x = 5"]
    book = nbformat.read(tmp_path / "out" / "{x}.ipynb", as_version=4)
    assert [cell.source for cell in book.cells][1] == "# Parameters\nx = 5\n"
    assert not list((tmp_path / "out").glob(".*")), "the draft has gone"


def test_g11_a_kernel_that_does_not_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline.time, "sleep", lambda seconds: None)
    tried: list[str] = []

    def sometimes(argv: list[str], **options: Any) -> KernelSpec:
        tried.append(argv[0])
        return KernelSpec(argv=argv if len(tried) > 1 else [sys.executable, "-c", "pass"], **options)

    monkeypatch.setattr(pipeline, "KernelSpec", sometimes)
    nbformat.write(notebook("print('here')"), tmp_path / "in.ipynb")
    got: list[str] = []
    execute(tmp_path / "in.ipynb", tmp_path / "out.ipynb", {}, environment={}, echo=got.append)
    assert got == ["here"]
    assert len(tried) == 2


def test_a_kernel_that_never_starts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "START_ATTEMPTS", 1)
    dead = KernelSpec(argv=[sys.executable, "-c", "pass"], language="python")
    monkeypatch.setattr(pipeline, "KernelSpec", lambda **options: dead)
    nbformat.write(notebook("print('here')"), tmp_path / "in.ipynb")
    with pytest.raises(RuntimeError, match="Kernel died"):
        execute(tmp_path / "in.ipynb", tmp_path / "out.ipynb", {}, environment={}, echo=print)


def test_k09_a_killed_kernel_is_told_with_how_far_it_came(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", config())
    run.checkpoints.mkdir()
    (run.checkpoints / "0007.pt").touch()
    text = str(_killed(TRAIN, run))
    assert re.search(r"02_training.ipynb was killed from outside after iteration 7; .* [\d,]+ MB\. What is done", text)
    assert "iteration" not in str(_killed(ORDERS, run))
