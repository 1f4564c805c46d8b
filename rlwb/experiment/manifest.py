"""What a run was made with: versions, commit, data, seeds, machine, times."""

from __future__ import annotations

import datetime as dt
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import rlwb
from rlwb.experiment.own_code import own_code
from rlwb.experiment.run import RunDirectory, read_json
from rlwb.files import write_json

PACKAGES = (
    *("torch", "gymnasium", "numpy", "pandas", "pyarrow", "scipy", "numba", "matplotlib"),
    *("pydantic", "papermill", "ipykernel", "jupyterlab"),
)


def begin_manifest(run: RunDirectory, command: Sequence[str]) -> None:
    """Write the manifest at the start of a run, or note in it that the run is taken up again."""
    path = run.path / "manifest.json"
    now = _now()
    if path.is_file():
        manifest = read_json(path)
        again = {"at": now, "command": list(command), **_made_with(), "code": _code(run)}
        manifest.setdefault("resumed", []).append(again)
        manifest |= {"ended": None, "status": "running"}
    else:
        config = run.config
        manifest = {
            "command": list(command),
            **_made_with(),
            "seeds": {"seed": config.seed, "market.seed": config.market.settings.get("seed")},
            "threads": config.threads,
            "code": _code(run),
            "data": {},
            "started": now,
            "ended": None,
            "status": "running",
        }
    write_json(path, manifest)


def end_manifest(run: RunDirectory, status: str) -> None:
    """Note how and when the run ended."""
    update_manifest(run, ended=_now(), status=status)


def update_manifest(run: RunDirectory, **values: Any) -> None:
    """Replace values of the manifest; ``data`` is added to instead."""
    path = run.path / "manifest.json"
    manifest = read_json(path) if path.is_file() else {"data": {}, **_made_with()}
    data = {**manifest.get("data", {}), **values.pop("data", {})}
    write_json(path, {**manifest, **values, "data": data})


def _code(run: RunDirectory) -> list[dict[str, str]]:
    """Return name and hash of the code of the user's that the run's configuration names."""
    return [code.describe() for code in own_code(run.config).values()]


def _made_with() -> dict[str, Any]:
    return {
        "rlwb": rlwb.__version__,
        "git": git_state(Path(rlwb.__file__).resolve().parents[1]),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": _memory_gb(),
        },
    }


def git_state(directory: Path) -> dict[str, Any] | None:
    """Return commit and cleanness of the checkout that `directory` is the top of, None when it is not one."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(directory), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != directory.resolve():
            return None
        return {
            "commit": git("rev-parse", "HEAD"),
            "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _memory_gb() -> float | None:
    if sys.platform == "win32":
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def _now() -> str:
    return dt.datetime.now().astimezone().isoformat(timespec="seconds")
