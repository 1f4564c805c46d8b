"""``rlwb run``: a run from its first stage to its report, each stage a notebook that papermill executes."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError

import rlwb
from rlwb import errors
from rlwb.errors import ConfigError, RlwbError, StopRequested
from rlwb.experiment.audit import audit_if_new
from rlwb.experiment.config import Layer, RunConfig, parse_assignments
from rlwb.experiment.feasible import check_feasible
from rlwb.experiment.notebook import progress_mode
from rlwb.experiment.origin import refuse_training_changes
from rlwb.experiment.own_code import TRUST_ENV, check_parts, require_trust, trust
from rlwb.experiment.policies import kept_policies, require_trust_of_policies
from rlwb.experiment.report import write_report
from rlwb.experiment.rolling import walk, windows_of
from rlwb.experiment.run import PIPELINE_ENV, PROGRESS, RunDirectory, default_run_directory, last_iteration
from rlwb.experiment.stages import STAGES, TRAIN, Stage, differences, is_unchanged, recorded, settings_of, stages_of
from rlwb.experiment.tracked import tracked
from rlwb.experiment.training import refuse_shorter
from rlwb.files import temporary_name
from rlwb.limits import limit_hit, peak_memory
from rlwb.packages import require_packages
from rlwb.progress import PROGRESS_ENV, FollowedProgress
from rlwb.reading import read_text

Echo = Callable[[str], None]

START_ATTEMPTS = 4


class NotebookError(Exception):
    """A notebook failed by a fault that is not the user's; `trace` is the kernel's traceback as plain text."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def launch(
    config_file: Path | None,
    changes: Sequence[str],
    run_dir: Path | None,
    *,
    resume: bool,
    trust_code: bool = False,
    also: Callable[[RunConfig], object] | None = None,
    echo: Echo = print,
) -> RunDirectory:
    """Start a run, or go on with one, and see it through.

    Parameters
    ----------
    config_file
        Parameters; None for the defaults, or for those of the run that is resumed.
    changes
        Assignments ``name=value``.
    run_dir
        The run's directory; None makes one under ``runs/``.
    trust_code
        Run the code that this run names, wherever it is from.
    also
        What refuses a configuration before any work, beside what every run refuses.
    """
    layer = parse_assignments(changes)
    asked = {"file": str(config_file.absolute()) if config_file else None, "set": list(changes)}
    if resume:
        if run_dir is None:
            raise ConfigError("--resume needs the run to go on with; name its directory with --run-dir.")
        run = RunDirectory.open(run_dir)
        config = _resumed_config(run, config_file, layer)
        if config_file is None:  # the settings that it had, changed
            asked = _asked_before(run, layer, changes)
        trust(config, beside=None if config_file else run.config)
        require_trust(config, given=trust_code)
        require_trust_of_kept(run, given=trust_code)
        check_config(config)
        if also is not None:
            also(config)
        if run.origin is not None:
            refuse_training_changes(run.origin.config, config)
        # A training of other settings starts anew, so it may be shorter.
        known = run.stage(TRAIN.name).get("settings", {})
        if not differences(known, settings_of(TRAIN, config), ignore=TRAIN.extends):
            refuse_shorter(last_iteration(run.checkpoints), config.train.iterations)
    else:
        config = RunConfig.load(config_file, layer)
        check_config(config)
        if also is not None:
            also(config)
        if run_dir is None or not run_dir.exists():  # where something lies, that is told first
            check_feasible(config, run_dir)
        name = config_file.stem if config_file else "synthetic"
        run = RunDirectory.create(run_dir or default_run_directory(name), config)
    echo(f"run: {run.path}")
    see_through(run, config, asked=asked, echo=echo)
    return run


def require_trust_of_kept(run: RunDirectory, *, given: bool = False) -> None:
    """Ask before code in the policies is run that a directory keeps, or a window in it, unless trust is `given`.

    The kernels of a run do not ask again.
    """
    for one in (run, *windows_of(run)):
        require_trust_of_policies(kept_policies(one), given=given)


def see_through(
    run: RunDirectory, config: RunConfig, *, asked: Mapping[str, Any] | None = None, echo: Echo = print
) -> None:
    """Run the pipeline to its end and show the headline, or say how to go on after whatever stops it."""
    stop_on_terminate()
    begun = {stage.name: run.stage(stage.name).get("started") for stage in STAGES}
    try:
        run_pipeline(run, config, asked=asked, echo=echo)
    except BaseException as error:
        is_input = isinstance(error, RlwbError) and type(error) is not RlwbError  # which a full disk is
        correct = "Correct what is wrong, in the input or by --set. " if is_input else ""
        echo(f"{correct}{run.how_to_resume()}")
        raise
    headline = run.backtest / "headline.txt"
    if headline.exists():
        echo(read_text(headline).rstrip())
    again = [name for name, before in begun.items() if run.stage(name).get("started") != before]
    lost = [file for name in again for file in run.stage(name).get("made_again") or ()]
    if lost:
        echo(f"Made again, because they were not as the run had left them: {', '.join(lost)}.")


def _resumed_config(run: RunDirectory, config_file: Path | None, layer: Layer) -> RunConfig:
    """Return a run's configuration with changes, or that of a file; the run's own must be complete."""
    if config_file is None:
        return run.load_config(layer, trains=True)
    own = run.path / "config.yaml"
    if config_file.exists() and own.exists() and config_file.samefile(own) and (missing := run.lacking(own)):
        raise ConfigError(
            f"{own} is no longer complete, {missing[0]} is missing; name the file that the run began with."
        )
    return RunConfig.load(config_file, layer)


def _asked_before(run: RunDirectory, layer: Layer, changes: Sequence[str]) -> dict[str, Any]:
    """Return what a run was asked for, less the changes that others take the place of, and those."""
    before = run.status.get("asked") or {"file": None, "set": []}
    kept = [change for change in before["set"] if change.partition("=")[0].strip() not in layer.values]
    return {"file": before["file"], "set": [*kept, *changes]}


def check_config(config: RunConfig) -> None:
    """Refuse a missing path or package, and settings that a part refuses, before a run's directory is made."""
    for name, part in (("market.source", config.market), ("orders.source", config.orders)):
        source = part.settings.get("source")
        if source is None:
            continue
        if not Path(source).exists():
            raise ConfigError(f"{name}: there is no file or folder {source}; check the path.")
        if name == "orders.source" and Path(source).is_dir() and not any(Path(source).glob("*.pkl")):
            told = "is a folder; name one Parquet or CSV file of orders, or a folder of Qlib's pickles"
            raise ConfigError(f"{name}: {source} {told}.")
    if config.train.env == "ray" or config.train.actors or config.backtest.actors:
        require_packages("a Ray cluster (train.env, train.actors, backtest.actors)", "ray", "ray")
    check_parts(config)


def stop_on_terminate() -> None:
    """Let a polite kill, and a terminal that goes, end the kernel and mark the run, as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # else nohup wants the run to go on
        signal.signal(signal.SIGHUP, stop)


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
    stages: Sequence[Stage] | None = None,
    notebooks: Path | None = None,
    asked: Mapping[str, Any] | None = None,
    echo: Echo = print,
) -> None:
    """Execute the stages' notebooks in order, skipping those whose result is there and unchanged, and write the report.

    The settings become the run's; `stages` are by default all that it has, `notebooks` is their folder if it is not to
    be found, and `asked` what the user said to get the settings: a ``file`` and what was ``set`` on top of it.

    Raises
    ------
    RlwbError
        For a fault of the user's, with its sentence.
    NotebookError
        For any other, with where it happened.
    """
    folder = notebooks or find_notebooks()
    if stages is None:
        stages = stages_of(run) if config.split.rolling is None else ()
    with run.telling_limits(), run.lock():
        run.check_space()
        run.save_config(config)
        if asked is not None:
            run.update_status(asked=asked)
        with recorded(run, stages), tracked(run, config):
            if config.split.rolling is not None:

                def one_window(window: RunDirectory, own: RunConfig) -> None:
                    run_pipeline(window, own, notebooks=folder, echo=lambda line: echo(f"  {line}"))

                walk(run, config, one_window, echo=echo)
            try:
                for stage in stages:
                    _run_notebook(stage, run, folder / stage.notebook, echo)
            except Exception:
                with suppress(RlwbError, OSError):  # the page says where it ended; what ended it is told in any case
                    write_report(run)
                raise
            audit_if_new(run, echo)
            echo(f"report: {write_report(run)}")


def _run_notebook(stage: Stage, run: RunDirectory, notebook: Path, echo: Echo) -> None:
    target = run.notebooks / stage.notebook
    if target.is_file() and is_unchanged(stage, run, run.config):
        echo(f"{stage.name}: unchanged, kept")
        return
    echo(f"{stage.name}: {stage.notebook}")
    told = {PIPELINE_ENV: str(run.path), TRUST_ENV: "1"}
    parameters = {"run_dir": str(run.path)}  # all others are in the run's configuration
    try:
        if progress_mode() == "bar":  # which a kernel cannot draw in a terminal
            environment = kernel_environment(run.config.threads, **told, **{PROGRESS_ENV: "file"})
            with FollowedProgress(run.path / PROGRESS) as bar:

                def above(line: str) -> None:
                    bar.note(f"  {line}", echo)

                execute(notebook, target, parameters, environment=environment, echo=above)
        else:
            environment = kernel_environment(run.config.threads, **told)
            execute(notebook, target, parameters, environment=environment, echo=lambda line: echo(f"  {line}"))
    except papermill.PapermillExecutionError as error:
        if error.ename == StopRequested.__name__:
            raise StopRequested(error.evalue) from None
        raise _translated(stage, error) from error
    except DeadKernelError as error:
        raise _killed(stage, run) from error
    if not is_unchanged(stage, run, run.config):
        raise NotebookError(f"{stage.notebook} ran to its end without finishing stage {stage.name}.")
    echo(f"{stage.name}: done in {run.stage(stage.name)['seconds']} s")


def _killed(stage: Stage, run: RunDirectory) -> RlwbError:
    """Return what to say of a kernel that ended without a word, which others than rlwb bring about."""
    last = last_iteration(run.checkpoints)
    far = f" after iteration {last}" if stage.name == TRAIN.name and last else ""
    return RlwbError(
        f"the process of {stage.notebook} was killed from outside{far}; systems do so when memory runs out, and the "
        f"most that it had used is {peak_memory(children=True)}. What is done is kept."
    )


def _translated(stage: Stage, error: Any) -> Exception:
    """Return the error of a kernel as one of this process: the user's with its sentence, others with their place."""
    kind = getattr(errors, error.ename, None)
    if isinstance(kind, type) and issubclass(kind, RlwbError):
        result: Exception = kind(error.evalue)
    elif found := limit_hit(f"{error.ename}: {error.evalue}"):
        result = RlwbError(found)
    else:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
        result = NotebookError(f"{stage.notebook}, cell {error.exec_count}: {error.ename}: {error.evalue}", trace)
    result.place = {"notebook": f"notebooks/{stage.notebook}", "cell": error.exec_count}  # type: ignore[attr-defined]
    return result


class Lines:
    """A text stream that hands on whole lines; of a line that was written over and over, its last state."""

    def __init__(self, echo: Echo) -> None:
        self._echo = echo
        self._rest = ""

    def write(self, text: str) -> int:
        """Take text; hand on what ends in a newline."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            shown = line.rstrip("\r").rpartition("\r")[2].rstrip()
            if shown:
                self._echo(shown)
        return len(text)

    def flush(self) -> None:
        """Do nothing: half a line waits for its other half."""


def execute(
    source: Path, target: Path, parameters: Mapping[str, Any], *, environment: Mapping[str, str], echo: Echo
) -> None:
    """Execute the notebook `source`, handing on what it prints; `target` appears when it has ended, well or badly.

    The variables of `environment` stand on top of ours. A cell that fails is a `papermill.PapermillExecutionError`,
    and the copy holds the error in its place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = temporary_name(target)
    paths = [str(path).replace("{", "{{").replace("}", "}}") for path in (source, draft)]
    lines = Lines(echo)
    try:
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                papermill.execute_notebook(
                    *paths,
                    parameters=dict(parameters),
                    kernel_name="python3",
                    language="python",
                    kernel_manager_class=_kernels(environment),
                    progress_bar=False,
                    start_timeout=180,
                    iopub_timeout=120,
                    stdout_file=lines,
                    stderr_file=lines,
                )
                return
            except RuntimeError as error:
                if isinstance(error, DeadKernelError) or "died" not in str(error) or attempt == START_ATTEMPTS:
                    raise
                # It did not start: another process took a port between its choice and its use; the next is another.
                time.sleep(0.2 * attempt)
    except KeyboardInterrupt:
        # The notebook's tasks are dropped where they are, of which asyncio would print traceback upon traceback.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        raise
    finally:
        lines.write("\n")
        if draft.exists():
            draft.replace(target)


def _kernels(environment: Mapping[str, str]) -> type[AsyncKernelManager]:
    """Return what starts kernels with the interpreter that runs rlwb, whatever is registered as python3."""
    # A kernel that is interrupted to be shut down complains of that as of an error.
    command = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "--log-level=CRITICAL"]
    argv = [*command, "-f", "{connection_file}"]
    spec = KernelSpec(argv=argv, display_name="Python 3", language="python", env=dict(environment))
    return type("Kernels", (AsyncKernelManager,), {"kernel_spec": spec})


def kernel_environment(threads: int, **more: str) -> dict[str, str]:
    """Return environment variables that keep a kernel to `threads` threads, without bars and without a display."""
    return {
        **thread_environment(threads),
        "TQDM_DISABLE": "1",
        "MPLBACKEND": os.environ.get("MPLBACKEND", "module://matplotlib_inline.backend_inline"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        **more,
    }


def thread_environment(threads: int) -> dict[str, str]:
    """Return environment variables that keep the numerical libraries of a process to `threads` threads."""
    pools = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "NUMEXPR_NUM", "NUMBA_NUM", "VECLIB_MAXIMUM")
    return {f"{pool}_THREADS": str(threads) for pool in pools}
