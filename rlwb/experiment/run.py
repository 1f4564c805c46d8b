"""The directory of a run: what lies where, how far it came, and that one process works on it at a time."""

from __future__ import annotations

import datetime as dt
import errno
import fcntl
import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.own_code import keep_code, trust
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import write_json, write_text

MIN_FREE_BYTES = 100 * 2**20
"""Free space that a run asks for before it starts."""

PIPELINE_ENV = "RLWB_PIPELINE"
"""Environment variable by which a pipeline tells its kernels which run it holds."""


class RunDirectory:
    """A run's directory (docs/running.md lists its contents).

    Attributes
    ----------
    path
        The directory, absolute.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser().resolve()

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: RunConfig) -> RunDirectory:
        """Make a new run, its parents too; who makes one trusts the code that its configuration names.

        Raises
        ------
        ConfigError
            When the directory holds something already, cannot be written or has too little space.
        """
        run = cls(path)
        if run.is_run():
            raise ConfigError(f"{run.path} holds a run already ({run.describe()}). {run.how_to_resume()}")
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise ConfigError(f"{run.path} exists and is not a run; choose another directory.")
        run.check_space()
        try:  # two that start together: one makes this file
            os.close(os.open(run.path / ".lock", os.O_CREAT | os.O_EXCL, 0o666))
        except FileExistsError:
            raise ConfigError(f"another run was begun in {run.path} just now; choose another directory.") from None
        trust(config)
        run.save_config(config)
        write_json(run.path / "status.json", {"state": "created", "stages": {}, "failure": None})
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Return an existing run.

        Raises
        ------
        ConfigError
            When there is none.
        """
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
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"{self.path} cannot be written to ({reason}); choose another run directory.") from None
        free = shutil.disk_usage(self.path).free
        if free < MIN_FREE_BYTES:
            raise ConfigError(
                f"{self.path} has {free / 2**20:.0f} MB of free space, a run needs {MIN_FREE_BYTES / 2**20:.0f}; "
                "free some or choose another run directory."
            )

    # What lies where.

    @property
    def orders(self) -> Path:
        """Folder of the order tables."""
        return self.path / "orders"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """Folder of train.csv and validation.csv."""
        return self.path / "metrics"

    @property
    def backtest(self) -> Path:
        """Folder of summary.csv and of one table of orders a policy."""
        return self.path / "backtest"

    @property
    def figures(self) -> Path:
        """Folder of the pictures."""
        return self.path / "figures"

    @property
    def notebooks(self) -> Path:
        """Folder of the executed notebooks."""
        return self.path / "notebooks"

    @property
    def report(self) -> Path:
        """The page to read."""
        return self.path / "report.html"

    # What was asked.

    @property
    def config(self) -> RunConfig:
        """The run's configuration, read anew."""
        return RunConfig.load(self.path / "config.yaml")

    def save_config(self, config: RunConfig) -> None:
        """Write the configuration, resolved to the last default, and copies of the code that it names."""
        write_text(self.path / "config.yaml", dump_yaml(keep_code(config, self.path)))

    # How far it came.

    @property
    def status(self) -> dict[str, Any]:
        """The contents of status.json."""
        return read_json(self.path / "status.json")

    @property
    def state(self) -> str:
        """``created``, ``running``, ``finished``, ``failed`` or ``interrupted``.

        A run whose process ended without a word is interrupted, whatever it last wrote.
        """
        state = str(self.status["state"])
        return "interrupted" if state == "running" and not self.is_locked() else state

    def update_status(self, **values: Any) -> None:
        """Replace values of status.json."""
        write_json(self.path / "status.json", {**self.status, **values})

    def stage(self, name: str) -> dict[str, Any]:
        """Return what is known of a stage; an empty mapping when it was never begun."""
        found: dict[str, Any] = self.status["stages"].get(name, {})
        return found

    def update_stage(self, name: str, values: Mapping[str, Any]) -> None:
        """Replace values of a stage in status.json."""
        stages = self.status["stages"]
        self.update_status(stages={**stages, name: {**stages.get(name, {}), **values}})

    def describe(self) -> str:
        """Say in a few words how far the run came."""
        status = self.status
        done = [name for name, stage in status["stages"].items() if stage.get("state") == "finished"]
        failure = status.get("failure")
        where = f" in stage {failure['stage']}" if failure and failure.get("stage") and self.state == "failed" else ""
        text = f"{self.state}{where}; finished: {', '.join(done) or 'nothing yet'}"
        begun = status["stages"].get("train", {}).get("state")
        trained, taught = _last_iteration(self.checkpoints), _last_iteration(self.checkpoints / "teacher")
        if begun and begun != "finished" and (trained or taught):
            whose, last = ("training", trained) if trained else ("the teacher's training", taught)
            text += f"; {whose} stopped after iteration {last} and goes on from there"
        return text

    def how_to_resume(self) -> str:
        """Say how the run is taken up again."""
        return f"Go on with: rlwb run --resume --run-dir {shlex.quote(_short(self.path))}"

    # One process at a time.

    def is_locked(self) -> bool:
        """Tell whether a process works on the run."""
        try:
            with self._flock():
                return False
        except BlockingIOError:
            return True

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run; a kernel of a pipeline that holds it already goes straight on.

        Raises
        ------
        ConfigError
            When another process works on the run.
        """
        if os.environ.get(PIPELINE_ENV) == str(self.path):
            yield
            return
        try:
            with self._flock():
                yield
        except BlockingIOError:
            raise ConfigError(
                f"another process works on {self.path}; wait for it or choose another directory."
            ) from None

    @contextmanager
    def _flock(self) -> Iterator[None]:
        # The system lets go of the lock with the process, however it ends.
        handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)


def default_run_directory(name: str) -> Path:
    """Make and return an empty directory ``runs/<time>-<name>``; runs that start together get different ones."""
    stem = f"{dt.datetime.now():%Y%m%d-%H%M%S}-{name}"
    for number in range(1, 1000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise ConfigError(
                f"{path.absolute()} cannot be made ({error.strerror}); name a place with --run-dir."
            ) from None
        return path
    raise ConfigError(f"runs/{stem} and its 999 successors exist; name a place with --run-dir.")


def _last_iteration(checkpoints: Path) -> int:
    return max((int(path.stem) for path in checkpoints.glob("*.pt") if path.stem.isdecimal()), default=0)


def disk_is_full(error: BaseException) -> bool:
    """Tell whether `error` says that no space is left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping in a run's JSON file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); the directory is no longer a run.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds no mapping; the directory is no longer a run.")
    return value


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
