"""What a notebook calls in the cell after its parameters."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.parameters import Layer, nearest, short_names
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stage import Stage, Work, run_stage

_ORIGIN = "parameters cell"


class NotebookStage:
    """A stage, bound to a run and to the parameters of the notebook it is called from.

    Attributes
    ----------
    stage
        Which one.
    run
        The run's directory.
    config
        The run's configuration with the notebook's parameters on top.
    """

    def __init__(self, stage: Stage, run: RunDirectory, config: RunConfig, namespace: Mapping[str, Any]) -> None:
        self.stage = stage
        self.run = run
        self.config = config
        self._namespace = namespace
        self._given = parameters_in(namespace)

    def do(self, work: Work) -> None:
        """Do the stage's work unless it is done already (see `rlwb.experiment.stage.run_stage`).

        Raises
        ------
        ConfigError
            When a parameter was changed after the notebook's setup cell ran, or an earlier stage is missing.
        """
        now = parameters_in(self._namespace)
        for name, value in self._given.items():
            if name in now and not _same(now[name], value):
                raise ConfigError(
                    f"{name} is {now[name]!r} now but was {value!r} when the setup cell ran; run that cell again."
                )
        run_stage(self.stage, self.run, self.config, work)


def open_stage(stage: Stage, namespace: Mapping[str, Any]) -> NotebookStage:
    """Collect the parameters that arrived in a notebook and open the run that they name.

    Parameters
    ----------
    stage
        The notebook's stage.
    namespace
        The notebook's ``globals()``. ``run_dir`` names the run, which is made when there is none; every other
        parameter is one of the run's configuration by its short name (``learning_rate``, ``market_start``).

    Raises
    ------
    ConfigError
        For an unknown name, a wrong value, or a value that was passed and did not arrive.
    """
    own, layer = read_parameters(namespace, ("run_dir",))
    if "run_dir" not in own:
        raise ConfigError(f"{_ORIGIN}: run_dir is missing; name the run's directory, for example ../runs/mine.")
    directory = RunDirectory(str(own["run_dir"]))
    stored = directory.path / "config.yaml" if directory.is_run() else None
    config = RunConfig.load(stored, layer)
    run = RunDirectory.open(directory.path) if stored else RunDirectory.create(directory.path, config)
    print(f"{run.path.name}: {run.describe()}")  # noqa: T201 - the reader of the notebook wants to know
    return NotebookStage(stage, run, config, namespace)


def read_comparison(namespace: Mapping[str, Any]) -> tuple[Path, dict[str, RunConfig]]:
    """Return what a notebook's parameters ask to compare: the folder, and the configuration of each method.

    Parameters
    ----------
    namespace
        The notebook's ``globals()``: ``run_dir``, ``methods``, and parameters of a run's configuration.
    """
    own, layer = read_parameters(namespace, ("run_dir", "methods"))
    for name in ("run_dir", "methods"):
        if name not in own:
            raise ConfigError(f"{_ORIGIN}: {name} is missing; set it in the cell of parameters.")
    from rlwb.experiment.methods import method_configs

    return Path(own["run_dir"]), method_configs(list(own["methods"]), None, layer)


def read_parameters(namespace: Mapping[str, Any], own: Sequence[str]) -> tuple[dict[str, Any], Layer]:
    """Return the notebook's parameters that arrived: those named in `own`, and all others as a run's configuration.

    Raises
    ------
    ConfigError
        For a name that is in neither, or a value that was passed and did not arrive.
    """
    given = parameters_in(namespace)
    check_arrival(namespace)
    names = short_names(RunConfig)
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name in own:
            continue
        if name not in names:
            guess = nearest(name, [*own, *names])
            hint = f"did you mean {guess}?" if guess else "compute other values in a later cell."
            raise ConfigError(f"{_ORIGIN}: there is no parameter {name}; {hint}")
        values[names[name]] = value
    return {name: given[name] for name in own if name in given}, Layer(_ORIGIN, values)


def parameters_in(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that are parameters.

    In a notebook: what was set in the last executed cell that sets ``run_dir``, and in papermill's cell. Elsewhere: all
    variables but private names, modules, functions and classes.
    """
    if "In" in namespace:
        own = [source for source in namespace["In"] if "run_dir" in _assigned(source) and not _is_injected(source)]
        cells = [*own[-1:], *filter(_is_injected, namespace["In"])]
        names = [name for cell in cells for name in _assigned(cell)]
        return {name: namespace[name] for name in names if name in namespace}
    skipped = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, Stage, NotebookStage)
    return {n: v for n, v in namespace.items() if not n.startswith("_") and not isinstance(v, skipped)}


def check_arrival(namespace: Mapping[str, Any]) -> None:
    """Refuse a notebook in which a value that papermill passed was overwritten.

    papermill writes what it passes into a cell after the one tagged ``parameters``, or before all cells when no cell
    has the tag; then the defaults win, and nobody is told.
    """
    for source in filter(_is_injected, namespace.get("In", ())):
        for name, node in _assigned(source).items():
            try:
                passed = ast.literal_eval(node)
            except ValueError:
                continue
            if name not in namespace or not _same(namespace[name], passed):
                raise ConfigError(
                    f"{name} was passed as {passed!r} but is {namespace.get(name)!r}: its cell of parameters "
                    "has lost its tag 'parameters', or another cell sets it again; tag it and set each parameter once."
                )


def _is_injected(source: str) -> bool:
    return source.startswith("# Parameters\n")


def _assigned(source: str) -> dict[str, ast.expr]:
    """Return name to value of the plain assignments in a cell; none for a cell that is not Python."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return {}
    values: dict[str, ast.expr] = {}
    for node in body:
        if isinstance(node, ast.Assign):
            values |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            values[node.target.id] = node.value
    return values


def _same(a: Any, b: Any) -> bool:
    try:
        return type(a) is type(b) and bool(a == b)
    except ValueError:  # arrays
        return a is b


def check_passed(namespace: Mapping[str, Any]) -> None:
    """Refuse what papermill passed to a notebook without a stage when it is unknown there or did not arrive.

    Parameters
    ----------
    namespace
        The notebook's ``globals()``.

    Raises
    ------
    ConfigError
        With the nearest name that the notebook has.
    """
    check_arrival(namespace)
    sources = namespace.get("In", ())
    own = [name for source in sources if not _is_injected(source) for name in _assigned(source)]
    for name in (name for source in filter(_is_injected, sources) for name in _assigned(source)):
        if name not in own:
            guess = nearest(name, own)
            hint = f"did you mean {guess}?" if guess else f"there are {', '.join(own)}."
            raise ConfigError(f"{_ORIGIN}: there is no parameter {name}; {hint}")


def is_attended() -> bool:
    """Tell whether someone watches: a notebook's front end that a kernel can ask, or a terminal.

    Headless executions of notebooks run cells with ``allow_stdin`` off.
    """
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return sys.stderr is not None and sys.stderr.isatty()
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", False))


def tagged_parameters(path: Path) -> tuple[str, ...]:
    """Return the names that the notebook's cell of parameters sets.

    Raises
    ------
    ConfigError
        When not exactly one cell is tagged ``parameters``.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    if len(cells) != 1:
        raise ConfigError(f"{path}: {len(cells)} cells are tagged 'parameters'; tag exactly one.")
    return tuple(_assigned(cells[0].source))
