"""Notebooks executed by papermill, on kernels that are this very interpreter."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import papermill
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, papermill_engines

START_ATTEMPTS = 4

_SHUTDOWN = b"KeyboardInterrupt caught in kernel"
"""What a kernel says when the interrupt that belongs to its being shut down reaches it at a bad moment."""


class _KernelManager(AsyncKernelManager):
    """Starts kernels with the interpreter that runs rlwb, whatever is registered under the name python3."""

    environment: Mapping[str, str] = {}

    @property
    def kernel_spec(self) -> KernelSpec:
        command = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "--log-level=ERROR"]
        return KernelSpec(
            argv=[*command, "-f", "{connection_file}"],
            display_name="Python 3",
            language="python",
            env=dict(self.environment),
        )


class _Engine(NBClientEngine):
    """papermill's engine, with kernels of ours and a second try for one that did not start."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: Any, kernel_name: str, **options: Any) -> None:
        environment = options.pop("environment")
        options.pop("input_path", None)
        manager = type("_Manager", (_KernelManager,), {"environment": environment})
        for attempt in range(1, START_ATTEMPTS + 1):
            client = PapermillNotebookClient(
                nb_man,
                kernel_name=kernel_name,
                kernel_manager_class=manager,
                startup_timeout=options["start_timeout"],
                timeout=None,
                iopub_timeout=120,
                stdout_file=options["stdout_file"],
                stderr_file=options["stderr_file"],
            )
            try:
                client.execute(stdout=options["log_file"], stderr=options["log_file"])
                return
            except (DeadKernelError, RuntimeError):
                begun = any(cell.get("metadata", {}).get("papermill", {}).get("start_time") for cell in nb_man.nb.cells)
                if begun or attempt == START_ATTEMPTS:
                    raise
                # Another process took a port between its choice and its use; the next choice is another one.
                time.sleep(0.2 * attempt)


papermill_engines.register("rlwb", _Engine)


class Lines:
    """A text stream that hands on whole lines; of a line that was written over and over, its last state.

    Parameters
    ----------
    echo
        Receives each line.
    """

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._rest = ""

    def write(self, text: str) -> int:
        """Take text; hand on what ends in a newline."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._hand_on(line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: half a line waits for its other half."""

    def close(self) -> None:
        """Hand on what is left."""
        self._hand_on(self._rest)
        self._rest = ""

    def _hand_on(self, line: str) -> None:
        line = line.rstrip("\r").rpartition("\r")[2].rstrip()
        if line:
            self._echo(line)


def execute(
    source: Path,
    target: Path,
    parameters: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    echo: Callable[[str], None],
) -> None:
    """Execute the notebook `source`; `target` appears when it has ended, well or badly.

    What the kernel itself complains of goes to a ``.log`` beside it, which is there only if it complained.

    Parameters
    ----------
    source, target
        The notebook and its executed copy.
    parameters
        Values for its cell of parameters.
    environment
        Environment variables of its kernel, on top of ours.
    echo
        Receives the lines it prints.

    Raises
    ------
    papermill.PapermillExecutionError
        When a cell fails; the copy holds the error in its place.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}")
    log = target.with_suffix(".log")
    lines = Lines(echo)
    try:
        with log.open("wb") as log_file, contextlib.closing(lines):
            papermill.execute_notebook(
                str(source).replace("{", "{{").replace("}", "}}"),
                str(draft).replace("{", "{{").replace("}", "}}"),
                parameters=dict(parameters),
                engine_name="rlwb",
                kernel_name="python3",
                language="python",
                progress_bar=False,
                start_timeout=180,
                stdout_file=lines,
                stderr_file=lines,
                environment=dict(environment),
                log_file=log_file,
            )
    finally:
        if draft.exists():
            draft.replace(target)
        if all(_SHUTDOWN in line for line in log.read_bytes().splitlines()):
            log.unlink()


def kernel_environment(threads: int, **more: str) -> dict[str, str]:
    """Return environment variables that keep a kernel to `threads` threads, without bars and without a display."""
    pools = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "VECLIB_MAXIMUM", "NUMBA")
    limits = {f"{pool}_NUM_THREADS".replace("MAXIMUM_NUM", "MAXIMUM"): str(threads) for pool in pools}
    plain = {
        "TQDM_DISABLE": "1",
        "MPLBACKEND": os.environ.get("MPLBACKEND", "module://matplotlib_inline.backend_inline"),
    }
    return {**limits, **plain, "PYDEVD_DISABLE_FILE_VALIDATION": "1", **more}
