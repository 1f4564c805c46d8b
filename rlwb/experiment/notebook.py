"""What a notebook calls in the cell after its parameters."""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, get_args, get_origin

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.feasible import check_feasible
from rlwb.experiment.layers import Layer, short_names
from rlwb.experiment.own_code import trust
from rlwb.experiment.run import PIPELINE_ENV, RunDirectory
from rlwb.experiment.stages import Stage, Work, run_stage
from rlwb.experiment.tracked import tracked
from rlwb.experiment.yamlfile import parse_yaml
from rlwb.progress import Mode, Progress, is_quiet, is_settled
from rlwb.values import check_value, nearest, shown, suggestion

_ORIGIN = "parameters cell"
#: Least time between two lines of progress, but for those of a training's iterations.
_LINE_SECONDS = 10.0


@dataclass(frozen=True)
class NotebookStage:
    """A stage, bound to a run and to its configuration with the parameters of the notebook on top."""

    stage: Stage
    run: RunDirectory
    config: RunConfig

    def do(self, work: Work) -> None:
        """Do the stage's work unless it is done already (see `rlwb.experiment.stages.run_stage`)."""
        with self.run.telling_limits(), tracked(self.run, self.config):
            run_stage(self.stage, self.run, self.config, work)


def open_stage(
    stage: Stage,
    run_dir: str | os.PathLike[str],
    settings: Mapping[str, Any] | None = None,
    *,
    own: Mapping[str, Any] | None = None,
    **parameters: Any,
) -> NotebookStage:
    """Open the run of a notebook, or make it, with the notebook's parameters on top of its configuration.

    Parameters
    ----------
    stage
        The notebook's stage.
    run_dir
        The run's directory; the first stage makes it when there is none.
    settings
        Parameters by dotted name, for example ``{"execution.rules.volume_limit": 0.1}``.
    own
        The notebook's parameters that are none of a run's.
    parameters
        Parameters by short name (``iterations``, ``reward``, ``learning_rate``); None leaves one as it is in the run,
        in a new run at its default.

    Raises
    ------
    ConfigError
        For an unknown name, a wrong value, or a value that was passed and did not arrive.
    """
    layer = parameter_layer(settings, parameters, own={"run_dir": run_dir, **(own or {})})
    if not isinstance(run_dir, (str, os.PathLike)) or not str(run_dir):
        raise ConfigError(f"{_ORIGIN}: run_dir is {shown(run_dir)}; the path of a directory is needed.")
    run = RunDirectory(run_dir)
    if layer.values and os.environ.get(PIPELINE_ENV) == str(run.path):
        log_line(
            f"{stage.notebook} sets {', '.join(layer.values)}, for runs by hand; rlwb run takes what it was asked for."
        )
        layer = layer._replace(values={})
    config = run.load_config(layer, trains=True) if run.is_run() else RunConfig.load(None, layer)
    if run.is_run():
        trust(config, beside=run.config)
    elif stage.after:
        first = stage
        while first.after:
            first = first.after[0]
        near = nearest(run.path.name, [path.parent.name for path in run.path.parent.glob("*/status.json")])
        hint = f"did you mean {run.path.with_name(near)}? Else" if near else "correct it, or"
        raise ConfigError(f"run_dir: {run.path} holds no run; {hint} run {first.notebook} there first.")
    else:
        if not run.path.exists():  # where something lies, that is told first
            check_feasible(config, run.path)
        RunDirectory.create(run.path, config)
    if PIPELINE_ENV not in os.environ:
        print(f"{run.path.name}: {run.describe()}")  # noqa: T201 - the reader of the notebook wants to know
    return NotebookStage(stage, run, config)


def parameter_layer(
    settings: Mapping[str, Any] | None, parameters: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> Layer:
    """Return a notebook's parameters as a layer of a configuration; `own` are those that are none of one.

    An unknown short name, and what papermill passed and did not arrive here, is a `ConfigError` (see `open_stage`).
    """
    names = short_names(RunConfig().as_dict())
    check_passed(settings=settings, **(own or {}), **parameters)
    values = typed("settings", {} if settings is None else settings, dict[str, Any])
    for name, value in parameters.items():
        if name not in names:
            raise ConfigError(f"{_ORIGIN}: there is no parameter {name}; {suggestion(name, names)}")
        if value is not None:
            values[names[name]] = _from_text(name, value) if str(value).startswith(("[", "{")) else value
    return Layer(_ORIGIN, values)


def own_parameters(**parameters: tuple[Any, Any]) -> SimpleNamespace:
    """Return the parameters of a notebook that are none of a run's, each given as its value and its type.

    A list or mapping may come as text, as ``[ppo, dqn]`` or ``ppo, dqn``; types are those of `rlwb.values.check_value`.

    Raises
    ------
    ConfigError
        For another type, an unknown name, or a value that was passed and did not arrive.
    """
    check_passed(**{name: value for name, (value, _) in parameters.items()})
    return SimpleNamespace(**{name: typed(name, value, kind) for name, (value, kind) in parameters.items()})


def typed(name: str, value: Any, kind: Any) -> Any:
    """Return the value of a parameter as the type `kind` (see `own_parameters`); a `ConfigError` for another type."""
    wanted = get_origin(get_args(kind)[0] if get_origin(kind) is Annotated else kind)
    value = _from_text(name, value) if wanted in (list, dict) else value
    if wanted is list and isinstance(value, str):
        value = [one.strip() for one in value.split(",")]
    try:
        return check_value(kind, value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{_ORIGIN}: {name} is {shown(value)}; {error}") from None


def _from_text(name: str, value: Any) -> Any:
    """Return what a text holds as YAML, papermill's command line passing lists and mappings as texts."""
    return parse_yaml(value, f"{_ORIGIN}, {name}") if isinstance(value, str) else value


def check_passed(**parameters: Any) -> None:
    """Refuse what papermill passed to a notebook when it is none of its `parameters` or did not arrive.

    The `ConfigError` names the nearest that the notebook has.
    """
    if _shell() is not None:  # tables show names with dollar signs, not formulas
        pd.set_option("display.html.use_mathjax", False)
    for name, value in _passed():
        if name not in parameters:
            raise ConfigError(f"{_ORIGIN}: there is no parameter {name}; {suggestion(name, parameters)}")
        if parameters[name] != value:
            raise ConfigError(
                f"{name} was passed as {shown(value)} but is {shown(parameters[name])}: its cell of parameters has "
                "lost its tag 'parameters', or another cell sets it again; tag it and set each parameter once."
            )


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _passed() -> Iterator[tuple[str, Any]]:
    """Yield name and value of what papermill passed; it writes them into a cell of their own.

    It says nothing of a name that the notebook does not have, and writes before all cells when none has the tag
    ``parameters``, so that the defaults win.
    """
    for source in getattr(_shell(), "user_ns", {}).get("In", ()):
        if source.startswith("# Parameters\n"):
            for node in ast.parse(source).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    yield node.targets[0].id, ast.literal_eval(node.value)


def is_attended() -> bool:
    """Tell whether someone watches: a notebook's front end that a kernel can ask, or a terminal.

    Headless executions of notebooks run cells with ``allow_stdin`` off.
    """
    kernel = getattr(_shell(), "kernel", None)
    if kernel is None:
        return sys.stderr is not None and sys.stderr.isatty()
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))


def progress_mode() -> Mode:
    """Return how work shows how far it is: a bar where someone watches, lines elsewhere, or what a command settled."""
    return "none" if is_settled() else "bar" if is_attended() else "lines"


def stage_progress(unit: str, total: int, title: str, file: Path | None = None) -> Progress:
    """Return the progress of a stage, or of other work on a run, whose `file` others read: a bar, or lines in a log."""
    return Progress(unit, total, title=title, mode=progress_mode(), every=_LINE_SECONDS, echo=log_line, file=file)


def log_line(text: str) -> None:
    """Print a line with the time of day, which a pipeline gives to those of its kernels; nothing where it is quiet."""
    if is_quiet():
        return
    stamp = "" if PIPELINE_ENV in os.environ else f"{time.strftime('%H:%M:%S')} "
    print(f"{stamp}{text}")  # noqa: T201 - the reader of a log
