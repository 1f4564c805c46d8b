"""The directory of a run: what lies where, how far it came, what it was made with, and who works on it."""

from __future__ import annotations

import datetime as dt
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

import rlwb
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.own_code import keep_code, own_code, trust
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import locked, write_json, write_text
from rlwb.reading import read_json

MIN_FREE_BYTES = 100 * 2**20
"""Free space that a run asks for before it starts."""

PIPELINE_ENV = "RLWB_PIPELINE"
"""Environment variable by which a pipeline tells its kernels which run it holds."""

PACKAGES = (
    *("torch", "gymnasium", "numpy", "pandas", "pyarrow", "scipy", "numba", "matplotlib"),
    *("pydantic", "papermill", "ipykernel", "jupyterlab"),
)
"""Packages whose versions the manifest records."""


class _Stage(BaseModel):
    """What status.json must know of a stage."""

    state: Literal["running", "finished", "failed", "interrupted"]
    settings: dict[str, Any] = {}
    inputs: str | None = None
    started: str | None = None
    seconds: float | None = None


class _Failure(BaseModel):
    """What status.json must know of a failure."""

    stage: str


class Status(BaseModel):
    """What status.json must hold."""

    state: Literal["created", "running", "finished", "failed", "interrupted"]
    stages: dict[str, _Stage]
    failure: _Failure | None


class Manifest(BaseModel):
    """What manifest.json must hold."""

    resumed: list[dict[str, Any]] = []
    data: dict[str, Any] = {}
    started: str | None = None


class RunDirectory:
    """A run's directory (docs/running.md lists its contents).

    Attributes
    ----------
    path
        The directory, absolute.
    orders, checkpoints, metrics, backtest, figures, notebooks
        Its folders.
    report
        The page to read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().resolve()
        self.orders = self.path / "orders"
        self.checkpoints = self.path / "checkpoints"
        self.metrics = self.path / "metrics"
        self.backtest = self.path / "backtest"
        self.figures = self.path / "figures"
        self.notebooks = self.path / "notebooks"
        self.report = self.path / "report.html"
        self._is_mine = False

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: RunConfig) -> RunDirectory:
        """Make a new run, its parents too; who makes one trusts the code that its configuration names.

        A directory that holds something already, cannot be written or has too little space is a `ConfigError`.
        """
        run = cls(path)
        if run.is_run():
            raise ConfigError(f"{run.path} holds a run already ({run.describe()}). {run.how_to_resume()}")
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise ConfigError(f"{run.path} exists and is not a run; choose another directory.")
        run.check_space()
        try:  # two that start together: one makes this file
            (run.path / ".lock").touch(exist_ok=False)
        except FileExistsError:
            raise ConfigError(f"another run was begun in {run.path} just now; choose another directory.") from None
        trust(config)
        run.save_config(config)
        write_json(run.path / "status.json", {"state": "created", "stages": {}, "failure": None})
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Return an existing run; a `ConfigError` where there is none."""
        run = cls(path)
        if not run.is_run():
            raise ConfigError(
                f"{run.path} holds no run; start one there with rlwb run --run-dir {shlex.quote(str(path))}."
            )
        return run

    def is_run(self) -> bool:
        """Tell whether a run was begun here."""
        return (self.path / "status.json").is_file() and (self.path / "config.yaml").is_file()

    def check_space(self) -> None:
        """Refuse a directory that cannot be written to or that lies on a full disk."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.write(b"x")
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written to ({error.strerror}); choose another run directory."
            ) from None
        free = shutil.disk_usage(self.path).free
        if free < MIN_FREE_BYTES:
            raise ConfigError(
                f"{self.path} has {free / 2**20:.0f} MB of free space, a run needs {MIN_FREE_BYTES / 2**20:.0f}; "
                "free some or choose another run directory."
            )

    @property
    def config(self) -> RunConfig:
        """The run's configuration, read anew."""
        return RunConfig.load(self.path / "config.yaml")

    def save_config(self, config: RunConfig) -> None:
        """Write the configuration, resolved to the last default, and copies of the code that it names."""
        write_text(self.path / "config.yaml", dump_yaml(keep_code(config, self.path)))

    @property
    def status(self) -> dict[str, Any]:
        """The contents of status.json."""
        return read_json(self.path / "status.json", Status)

    @property
    def state(self) -> str:
        """``created``, ``running``, ``finished``, ``failed`` or ``interrupted``.

        A run whose process ended without a word is interrupted, whatever it last wrote.
        """
        state = str(self.status["state"])
        return "interrupted" if state == "running" and not self._is_locked() else state

    def update_status(self, **values: Any) -> None:
        """Replace values of status.json."""
        write_json(self.path / "status.json", {**self.status, **values})

    def stage(self, name: str) -> dict[str, Any]:
        """Return what is known of a stage; an empty mapping when it was never begun."""
        found: dict[str, Any] = self.status["stages"].get(name, {})
        return found

    def update_stage(self, name: str, values: Mapping[str, Any]) -> None:
        """Replace values of a stage in status.json."""
        self.update_status(stages={**self.status["stages"], name: {**self.stage(name), **values}})

    def describe(self) -> str:
        """Say in a few words how far the run came."""
        status = self.status
        done = [name for name, stage in status["stages"].items() if stage.get("state") == "finished"]
        where = f" in stage {status['failure']['stage']}" if status["failure"] and self.state == "failed" else ""
        text = f"{self.state}{where}; finished: {', '.join(done) or 'nothing yet'}"
        begun = status["stages"].get("train", {}).get("state")
        trained, taught = last_iteration(self.checkpoints), last_iteration(self.checkpoints / "teacher")
        if begun and begun != "finished" and (trained or taught):
            whose, last = ("training", trained) if trained else ("the teacher's training", taught)
            text += f"; {whose} stopped after iteration {last} and goes on from there"
        return text

    def how_to_resume(self) -> str:
        """Say how the run is taken up again."""
        here = Path.cwd()
        short = self.path.relative_to(here) if self.path.is_relative_to(here) else self.path
        return f"Go on with: rlwb run --resume --run-dir {shlex.quote(str(short))}"

    def _is_locked(self) -> bool:
        try:
            with locked(self.path / ".lock"):
                return False
        except BlockingIOError:
            return True

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run, and refuse one that another process holds; a kernel of the pipeline that holds it goes on."""
        if self._is_mine or os.environ.get(PIPELINE_ENV) == str(self.path):
            yield
            return
        try:
            with locked(self.path / ".lock"):
                self._is_mine = True
                yield
        except BlockingIOError:
            raise ConfigError(
                f"another process works on {self.path}; wait for it or choose another directory."
            ) from None
        finally:
            self._is_mine = False


def default_run_directory(name: str) -> Path:
    """Make and return an empty directory ``runs/<time>-<name>``; runs that start together get different ones."""
    stem = f"{dt.datetime.now():%Y%m%d-%H%M%S}-{name}"
    for number in count(1):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(
                f"{path.absolute()} cannot be made ({error.strerror}); name a place with --run-dir."
            ) from None
    return path


def last_iteration(checkpoints: Path) -> int:
    """Return the number of the newest checkpoint in a folder, by its name; 0 when there is none."""
    return max((int(path.stem) for path in checkpoints.glob("*.pt") if path.stem.isdecimal()), default=0)


def now() -> str:
    """Return the time with its zone, to the second."""
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")


def begin_manifest(run: RunDirectory, command: Sequence[str]) -> None:
    """Write the manifest at the start of a run, or note in it that the run is taken up again."""
    config, path = run.config, run.path / "manifest.json"
    made = {"command": list(command), **_made_with(), "code": [one.describe() for one in own_code(config).values()]}
    if path.exists():
        resumed = [*read_json(path, Manifest).get("resumed", ()), {"at": now(), **made}]
        update_manifest(run, resumed=resumed, ended=None, status="running")
        return
    seeds = {"seed": config.seed, "market.seed": config.market.settings.get("seed")}
    times = {"started": now(), "ended": None, "status": "running"}
    write_json(path, {**made, "seeds": seeds, "threads": config.threads, "data": {}, **times})


def end_manifest(run: RunDirectory, status: str) -> None:
    """Note how and when the run ended."""
    update_manifest(run, ended=now(), status=status)


def update_manifest(run: RunDirectory, **values: Any) -> None:
    """Replace values of the manifest; one is begun for a run that has none."""
    path = run.path / "manifest.json"
    write_json(path, {**(read_json(path, Manifest) if path.exists() else _made_with()), **values})


def _made_with() -> dict[str, Any]:
    return {
        "rlwb": rlwb.__version__,
        "git": git_state(Path(rlwb.__file__).resolve().parents[1]),
        "python": platform.python_version(),
        "packages": _versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        },
    }


def _versions() -> dict[str, str]:
    """Return the versions of `PACKAGES`, of those that are installed."""
    found = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def git_state(directory: Path) -> dict[str, Any] | None:
    """Return commit and cleanness of the checkout that `directory` is the top of, None when it is not one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != directory.resolve():
            return None
        changed = bool(git("status", "--porcelain", "--untracked-files=no"))
        return {"commit": git("rev-parse", "HEAD"), "changed": changed}
    except (OSError, subprocess.SubprocessError):
        return None
