"""Kernels: whose interpreter, how many threads, what they print, and a second try."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from rlwb.experiment import kernel
from rlwb.experiment.kernel import Lines, execute, kernel_environment
from tests.experiment.fakes import notebook


def test_lines_are_whole_and_last_states() -> None:
    got: list[str] = []
    lines = Lines(got.append)
    for text in ("one\ntw", "o\n", " 10%\r 20%\r100%\n", "\n", "  indented\r\n", "rest"):
        lines.write(text)
    lines.flush()
    assert got == ["one", "two", "100%", "  indented"]
    lines.close()
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
    monkeypatch.setattr(kernel.time, "sleep", lambda seconds: None)
    managers: list[Any] = []
    honest = kernel._KernelManager.kernel_spec.fget

    def sometimes(self: Any) -> Any:
        if self not in managers:
            managers.append(self)
        spec = honest(self)
        if self is managers[0]:
            spec.argv = [sys.executable, "-c", "raise SystemExit('port taken')"]
        return spec

    monkeypatch.setattr(kernel._KernelManager, "kernel_spec", property(sometimes))
    nbformat.write(notebook("print('here')"), tmp_path / "in.ipynb")
    got: list[str] = []
    execute(tmp_path / "in.ipynb", tmp_path / "out.ipynb", {}, environment={}, echo=got.append)
    assert got == ["here"]
    assert len(managers) == 2


def test_a_kernel_that_never_starts_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "START_ATTEMPTS", 1)
    dead = kernel.KernelSpec(argv=[sys.executable, "-c", "pass"], language="python")
    monkeypatch.setattr(kernel._KernelManager, "kernel_spec", property(lambda self: dead))
    nbformat.write(notebook("print('here')"), tmp_path / "in.ipynb")
    with pytest.raises(RuntimeError, match="Kernel died"):
        execute(tmp_path / "in.ipynb", tmp_path / "out.ipynb", {}, environment={}, echo=print)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (b"", False),
        (b"[IPKernelApp] ERROR | KeyboardInterrupt caught in kernel.\n", False),
        (b"[IPKernelApp] ERROR | something else\n", True),
    ],
)
def test_a_log_is_there_only_for_what_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes, kept: bool
) -> None:
    monkeypatch.setattr(kernel.papermill, "execute_notebook", lambda *args, log_file, **options: log_file.write(said))
    execute(tmp_path / "in.ipynb", tmp_path / "out.ipynb", {}, environment={}, echo=print)
    assert (tmp_path / "out.log").exists() == kept
