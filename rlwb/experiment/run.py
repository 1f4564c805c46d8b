"""The directory of a run: what lies where, how far it came, what it was made with, and who works on it."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

import rlwb
from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer, leaves
from rlwb.experiment.own_code import keep_code, own_code, trust
from rlwb.experiment.yamlfile import dump_yaml, read_yaml
from rlwb.files import (
    is_locked,
    is_temporary,
    locked,
    new_folders,
    sweep,
    temporary_folder,
    write_json,
    write_text,
)
from rlwb.limits import limit_hit
from rlwb.parts import Part, complete
from rlwb.reading import read_json

MIN_FREE_BYTES = 100 * 2**20
"""Free space that a run asks for before it starts."""

PIPELINE_ENV = "RLWB_PIPELINE"
"""Environment variable by which a pipeline tells its kernels which run it holds."""

REQUEST = ".request"
"""File of what the process that works on a run is asked for: ``pause`` or ``stop`` (`rlwb.experiment.control`)."""

PROGRESS = ".progress.json"
"""File of how far the process that works on a run is (`rlwb.progress`)."""

WINDOWS = "windows"
"""Folder of the runs of a rolling run's windows."""

LAST_STAGE = "stability"
"""Name of the stage that finishes a run."""

KERNEL_SECONDS = 30.0
"""Time that a run waits for a kernel that outlives its pipeline."""

_CONFIG, _COPY = "config.yaml", ".config.yaml"
_SEAL = re.compile(r"# The settings of a run, to be changed by --set\. Checksum of what follows: ([0-9a-f]{32})\n")

PACKAGES = (
    *("torch", "gymnasium", "numpy", "pandas", "pyarrow", "scipy", "numba", "matplotlib"),
    *("pydantic", "papermill", "ipykernel", "jupyterlab"),
)
"""Packages whose versions the manifest records."""


class _Stage(BaseModel):
    """Names and types of a stage in status.json."""

    state: Literal["running", "finished", "failed", "interrupted"]
    settings: dict[str, Any] = {}
    inputs: str | None = None
    started: str | None = None
    seconds: float | None = None


class _Failure(BaseModel):
    """Names and types of a failure in status.json."""

    stage: str


class Status(BaseModel):
    """Names and types of status.json."""

    state: Literal["created", "running", "finished", "failed", "interrupted"]
    stages: dict[str, _Stage]
    failure: _Failure | None


class Manifest(BaseModel):
    """Names and types of manifest.json."""

    resumed: list[dict[str, Any]] = []
    files: dict[str, str] = {}
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
        self._loaded: tuple[bytes, RunConfig] | None = None

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], config: RunConfig, fill: Callable[[RunDirectory], None] | None = None
    ) -> RunDirectory:
        """Make a new run, its parents too; who makes one trusts the code that its configuration names.

        What a killed creation left is begun anew. A directory that holds something else, cannot be written or has too
        little space is a `ConfigError`. What `fill` puts into the directory is there before it counts as a run.
        """
        run = cls(path)
        run._refuse_taken()
        run.check_space()
        try:
            with locked(run.path / ".lock"):
                run._refuse_taken()  # by another that started at the same time
                trust(config)
                run.save_config(config)
                if fill is not None:
                    fill(run)
                write_json(run.path / "status.json", {"state": "created", "stages": {}, "failure": None})
        except BlockingIOError:
            raise ConfigError(f"another run was begun in {run.path} just now; choose another directory.") from None
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """Return an existing run; a `ConfigError` where there is none."""
        run = cls(path)
        if not run.is_run():
            start = f"or start one there with {command('run', '--run-dir', run.short)}"
            raise ConfigError(f"{run.path} holds no run; correct the path{'' if run._is_foreign() else f', {start}'}.")
        return run

    def is_run(self) -> bool:
        """Tell whether a run was begun here; its status is the last that is written then."""
        return (self.path / "status.json").is_file()

    def _is_foreign(self) -> bool:
        """Tell whether something else is here than a run, a new folder, or what a killed creation left."""
        if not self.path.is_dir():
            return self.path.exists()
        found = {path.name for path in self.path.iterdir() if not is_temporary(path.name)}
        return bool(found) and not (".lock" in found and found <= {".lock", "code", _CONFIG, _COPY})

    def _refuse_taken(self) -> None:
        if self.is_run():
            raise ConfigError(f"{self.path} holds a run already ({self.describe()}). {self.how_to_resume()}")
        if self._is_foreign():
            raise ConfigError(f"{self.path} exists and is not a run; choose another directory.")

    @property
    def origin(self) -> RunDirectory | None:
        """The files that an evaluation keeps of the run that it judges; None in a run that trains for itself."""
        kept = RunDirectory(self.path / "origin")
        return kept if kept.path.is_dir() else None

    def check_space(self) -> None:
        """Refuse a directory that cannot be written to or that lies on a full disk."""
        try:
            with new_folders(self.path):
                with temporary_folder(self.path, "space") as folder:
                    (folder / "one").write_bytes(b"x")
                for place in (self.orders, self.checkpoints, self.metrics, self.backtest, self.figures, self.notebooks):
                    if place.exists() and not os.access(place, os.W_OK | os.X_OK):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
                free = shutil.disk_usage(self.path).free
                if free < MIN_FREE_BYTES:
                    raise ConfigError(
                        f"{self.path} has {free / 2**20:.0f} MB of free space, a run needs "
                        f"{MIN_FREE_BYTES / 2**20:.0f}; free some or choose another run directory."
                    )
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> ConfigError:
        instead = (
            "copy the run to a folder of yours and go on there" if self.is_run() else "choose another run directory"
        )
        return ConfigError(f"{self.path} cannot be written to ({error.strerror}); {instead}.")

    @property
    def config(self) -> RunConfig:
        """The run's configuration, read anew."""
        return self.load_config()

    def load_config(self, *changes: Layer, trains: bool = False) -> RunConfig:
        """Return the run's configuration with `changes` on top of it.

        Where it `trains` anew, changes may ask for what the default algorithm cannot do; then it is the default there.
        One that is not as the run wrote it is a `ConfigError`. One that was deleted is taken from its copy.
        """
        path, copy = self.path / _CONFIG, self.path / _COPY
        is_copy = not path.exists() and copy.exists()
        if fault := broken_seal(copy if is_copy else path):
            way = f"name the configuration that it began with: {command('run', 'CONFIG', *self._resume)}"
            if not is_copy and copy.exists() and not broken_seal(copy):
                way = "delete it, and the run goes on with the settings that it had"
            if not is_copy and not self.lacking(path):
                own = command("run", str(Path(self.short) / _CONFIG), *self._resume)
                way += f"; or, if you changed it on purpose: {own}"
            raise ConfigError(f"{copy if is_copy else path} is not as the run wrote it ({fault}); {way}.")
        if changes:
            found = RunConfig.load(copy if is_copy else path, *changes)
            is_named = any(name.partition(".")[0] == "algorithm" for layer in changes for name in layer.values)
            is_default = not is_named and found.algorithm == RunConfig().algorithm
            if trains and is_default and self.load_config().tells_all_actions and not found.tells_all_actions:
                return found.model_copy(update={"algorithm": complete("algorithm", Part(name="ppo"))})
            return found
        content = (copy if is_copy else path).read_bytes()
        if self._loaded is None or self._loaded[0] != content:  # a stage asks for it a dozen times
            self._loaded = content, RunConfig.load(copy if is_copy else path)
        return self._loaded[1]

    def lacking(self, file: Path) -> list[str]:
        """Return the parameters that a configuration leaves to the defaults, or ``all`` of one that cannot be read."""
        try:
            given = set(leaves(read_yaml(file)))
            return [name for name in leaves(RunConfig.load(file).as_dict()) if name not in given]
        except ConfigError:
            return ["all"]

    def save_config(self, config: RunConfig) -> None:
        """Write the configuration, resolved to the last default, a copy of it, and copies of the code that it names."""
        values = keep_code(config, self.path)
        for name in (_COPY, _CONFIG):
            write_sealed(self.path / name, values)

    @property
    def status(self) -> dict[str, Any]:
        """The contents of status.json."""
        return read_json(self.path / "status.json", Status)

    @property
    def manifest(self) -> dict[str, Any]:
        """The contents of manifest.json; an empty mapping where there is none yet."""
        path = self.path / "manifest.json"
        return read_json(path, Manifest) if path.exists() else {}

    @property
    def state(self) -> str:
        """``created``, ``running``, ``finished``, ``failed`` or ``interrupted``.

        A run whose process ended without a word is interrupted, whatever it last wrote. One whose notebooks are run by
        hand is what the stage is that is not finished, and finished with the last stage.
        """
        status = self.status
        state = str(status["state"])
        if state in ("created", "finished"):
            unfinished = [one["state"] for one in status["stages"].values() if one["state"] != "finished"]
            is_done = LAST_STAGE in status["stages"] and not unfinished
            state = unfinished[-1] if unfinished else "finished" if is_done else state
        return "interrupted" if state == "running" and not is_locked(self.path / ".lock") else state

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

    @property
    def short(self) -> str:
        """The path, from the working directory where it lies below that."""
        return short_path(self.path)

    @property
    def _resume(self) -> tuple[str, ...]:
        return "--resume", "--run-dir", self.short

    def how_to_resume(self, state: str | None = None) -> str:
        """Say how the run, in its `state`, is taken up again.

        One that failed is, with the words that it was asked for, so that a file is read as it is by then.
        """
        status = self.status
        asked = status.get("asked") if (state or status["state"]) == "failed" else None
        words = asked_words(asked) if asked else []
        return f"Go on with: {command('run', *words, *self._resume)}"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the run, and refuse one that another process holds; what killed processes left in it goes.

        A kernel of the pipeline that holds it goes on.
        """
        if self._is_mine:
            yield
            return
        is_kernel = os.environ.get(PIPELINE_ENV) == str(self.path)
        with ExitStack() as held:
            try:
                if is_kernel:
                    held.enter_context(locked(self.path / ".kernel.lock"))
                else:
                    held.enter_context(locked(self.path / ".lock"))
                    for stale in (REQUEST, PROGRESS):  # of a process that ended without a word
                        (self.path / stale).unlink(missing_ok=True)
                    self._outlive_kernel()
                    sweep(self.path, below=True)
            except BlockingIOError:
                raise ConfigError(
                    f"another process works on {self.path}; wait for it or choose another directory."
                ) from None
            except OSError as error:
                raise self._unwritable(error) from None
            self._is_mine = True
            try:
                yield
            finally:
                self._is_mine = False

    @contextmanager
    def telling_limits(self) -> Iterator[None]:
        """Turn a full disk, a place that cannot be written to and other limits into an `RlwbError` with a sentence."""
        try:
            yield
        except (OSError, MemoryError) as error:
            if found := limit_hit(error):
                raise RlwbError(found) from error
            if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                where = error.filename or self.path
                raise ConfigError(f"{where} cannot be written to ({error.strerror}); check its rights.") from error
            raise

    def _outlive_kernel(self) -> None:
        """Wait for a kernel whose pipeline was killed, and which ends by itself within seconds."""
        deadline = time.monotonic() + KERNEL_SECONDS
        while is_locked(self.path / ".kernel.lock"):
            if time.monotonic() > deadline:
                raise BlockingIOError
            time.sleep(0.1)


def short_path(path: Path) -> str:
    """Return a path from the working directory where it lies below that, else as it is."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def command(*words: str) -> str:
    """Return a command of rlwb that can be given to a shell as it stands."""
    return shlex.join(["rlwb", *words])


def asked_words(asked: Mapping[str, Any]) -> list[str]:
    """Return the words that a configuration was asked for with: its file, if that is still there, and changes."""
    file = Path(asked["file"]) if asked["file"] else None
    changes = [word for change in asked["set"] for word in ("--set", change)]
    return [*([short_path(file)] if file and file.is_file() else []), *changes]


def write_sealed(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as YAML under a checksum of its text."""
    text = dump_yaml(values)
    seal = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    write_text(path, f"# The settings of a run, to be changed by --set. Checksum of what follows: {seal}\n{text}")


def broken_seal(path: Path) -> str:
    """Say what is wrong with a file of `write_sealed`; nothing is the empty text."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "it is missing"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    seal = _SEAL.match(content.partition(b"\n")[0].decode(errors="replace") + "\n")
    text = content.partition(b"\n")[2]
    if seal is None:
        return "it bears no checksum" if content else "it is empty"
    return "" if hashlib.blake2b(text, digest_size=16).hexdigest() == seal[1] else "its checksum differs"


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
    config, known = run.config, run.manifest
    made = {"command": list(command), **_made_with(), "code": [one.describe() for one in own_code(config).values()]}
    began = {"resumed": [*known.get("resumed", ()), {"at": now(), **made}]} if known else {**made, "started": now()}
    update_manifest(run, data=known.get("data", {}), **began, **settings_told(config), ended=None, status="running")


def end_manifest(run: RunDirectory, status: str) -> None:
    """Note how and when the run ended."""
    update_manifest(run, ended=now(), status=status)


def update_manifest(run: RunDirectory, **values: Any) -> None:
    """Replace values of the manifest; one is begun for a run that has none."""
    write_json(run.path / "manifest.json", {**(run.manifest or _made_with()), **values})


def settings_told(config: RunConfig) -> dict[str, Any]:
    """Return those settings that the manifest tells, of the last stage that was done: seeds, threads and rules."""
    seeds = {"seed": config.seed, "market.seed": config.market.settings.get("seed")}
    return {"seeds": seeds, "threads": config.threads, "rules": config.execution.rules.describe()}


def _made_with() -> dict[str, Any]:
    return {
        "rlwb": rlwb.__version__,
        "git": git_state(Path(rlwb.__file__).resolve().parents[1]),
        "python": platform.python_version(),
        "packages": _versions(),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "model": _processor_model(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        },
    }


def _processor_model() -> str:
    """Return what the processor is called; instructions that one has and another has not round sums differently."""
    with suppress(OSError):
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1]
    return platform.processor()


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
