"""A run from its first stage to its report, each stage a notebook."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rlwb
from rlwb import errors
from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.manifest import begin_manifest, end_manifest
from rlwb.experiment.own_code import TRUST_ENV
from rlwb.experiment.run import PIPELINE_ENV, RunDirectory
from rlwb.experiment.stage import Stage, is_unchanged
from rlwb.experiment.stages import STAGES


class NotebookError(Exception):
    """A notebook failed by a fault that is not the user's.

    Attributes
    ----------
    trace
        The kernel's traceback, as plain text.
    """

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def find_notebooks() -> Path:
    """Return the folder of the notebooks: of the checkout that rlwb runs from, or of the installation."""
    places = (
        Path(rlwb.__file__).resolve().parents[1] / "notebooks",
        Path(sysconfig.get_path("data")) / "share/rlwb/notebooks",
    )
    for place in places:
        if (place / STAGES[0].notebook).is_file():
            return place
    raise ConfigError(f"the notebooks are not at {places[0]}; run rlwb from a checkout or install it again.")


def run_pipeline(
    run: RunDirectory,
    config: RunConfig,
    *,
    stages: Sequence[Stage] = STAGES,
    notebooks: Path | None = None,
    report: Callable[[RunDirectory], Path] | None = None,
    echo: Callable[[str], None] = print,
) -> None:
    """Execute the stages' notebooks in order, skipping those whose result is there and unchanged.

    Parameters
    ----------
    run
        Where.
    config
        With which settings; they become the run's.
    stages
        What to do.
    notebooks
        The folder of the notebooks; None finds it.
    report
        Writes the page to read at the end; None writes none.
    echo
        Receives lines on what happens.

    Raises
    ------
    RlwbError
        For a fault of the user's, with its sentence.
    NotebookError
        For any other, with where it happened.
    """
    folder = notebooks or find_notebooks()
    with run.lock():
        run.check_space()
        run.save_config(config)
        begin_manifest(run, sys.argv)
        run.update_status(state="running", failure=None)
        try:
            for stage in stages:
                _run_notebook(stage, run, folder / stage.notebook, echo)
            if report is not None:
                echo(f"report: {report(run)}")
        except BaseException as error:
            state = "failed" if isinstance(error, Exception) else "interrupted"
            run.update_status(state=state, failure={**_failure(run, stages, error), "resume": run.how_to_resume()})
            end_manifest(run, state)
            raise
        run.update_status(state="finished")
        end_manifest(run, "finished")


def _run_notebook(stage: Stage, run: RunDirectory, notebook: Path, echo: Callable[[str], None]) -> None:
    target = run.notebooks / stage.notebook
    if target.is_file() and is_unchanged(stage, run, run.config):
        echo(f"{stage.name}: unchanged, kept")
        return
    from papermill import PapermillExecutionError

    from rlwb.experiment.kernel import execute, kernel_environment

    echo(f"{stage.name}: {stage.notebook}")
    environment = kernel_environment(run.config.threads, **{PIPELINE_ENV: str(run.path), TRUST_ENV: "1"})
    parameters = {"run_dir": str(run.path)}  # all others are in the run's configuration
    try:
        execute(notebook, target, parameters, environment=environment, echo=lambda line: echo(f"  {line}"))
    except PapermillExecutionError as error:
        raise _translated(stage, error) from error
    if not is_unchanged(stage, run, run.config):
        raise NotebookError(f"{stage.notebook} ran to its end without finishing stage {stage.name}.")


def _translated(stage: Stage, error: Any) -> Exception:
    """Return the error of a kernel as one of this process: the user's with its sentence, others with their place."""
    kind = getattr(errors, error.ename, None)
    if isinstance(kind, type) and issubclass(kind, RlwbError):
        result: Exception = kind(error.evalue)
    elif error.ename == "OSError" and "[Errno 28]" in error.evalue:
        result = RlwbError(f"the disk is full ({error.evalue}); free some space.")
    else:
        place = f"{stage.notebook}, cell {error.exec_count}"
        result = NotebookError(f"{place}: {error.ename}: {error.evalue}", _plain_trace(error.traceback))
    result.place = {"notebook": f"notebooks/{stage.notebook}", "cell": error.exec_count}  # type: ignore[attr-defined]
    return result


def _plain_trace(lines: Sequence[str]) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def _failure(run: RunDirectory, stages: Sequence[Stage], error: BaseException) -> dict[str, Any]:
    """Return what status.json says of the stage that did not finish."""
    stage = next((s for s in stages if run.stage(s.name).get("state") != "finished"), None)
    message = str(error) or type(error).__name__
    return {"stage": stage.name if stage else "report", "error": message, **getattr(error, "place", {})}
