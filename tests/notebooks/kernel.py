"""A kernel as a notebook's front end has it, whose stop button can be pressed."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.manager import KernelManager

from tests.notebooks.small import NOTEBOOKS, ROOT

HANGING = 120.0
"""Seconds after which something hangs; nothing is expected to take nearly as long."""


class Kernel:
    """A Python kernel in a process of its own."""

    def __init__(self) -> None:
        self.manager: Any = KernelManager(kernel_name="python3")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
        self.manager.start_kernel(env=environment, cwd=str(ROOT))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=HANGING)
        self.process = psutil.Process(self.manager.provisioner.pid)

    def begin(self, cell: str, *, attended: bool = False) -> None:
        """Begin a cell; `attended` as by a person's front end, which shows bars."""
        self._cell = self.client.execute(cell, allow_stdin=attended)

    def end(self) -> tuple[str, str]:
        """Wait for the cell to end; return the name of its error, if any, with what it said, and what it printed."""
        said, error, deadline = [], "", time.monotonic() + HANGING
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError("the cell does not end") from None
            if message["parent_header"].get("msg_id") != self._cell:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                said.append(content["text"])
            elif kind == "error":
                error = f"{content['ename']}: {content['evalue']}"
            elif kind == "status" and content["execution_state"] == "idle":
                return error, "".join(said)

    def run(self, *cells: str) -> str:
        """Run cells, none of which fails; return what they printed."""
        said = ""
        for cell in cells:
            self.begin(cell)
            error, more = self.end()
            assert not error, error
            said += more
        return said

    def stop(self) -> None:
        """Press the stop button."""
        self.manager.interrupt_kernel()

    def children(self) -> list[psutil.Process]:
        """Return the living processes that the kernel has started; Python's resource tracker, which stays, aside."""
        return [one for one in self.process.children(recursive=True) if is_alive(one) and not _is_tracker(one)]

    def close(self) -> None:
        """End the kernel, if it is still there."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def is_alive(process: psutil.Process) -> bool:
    """Tell whether a process runs."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in word for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def wait_until(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + HANGING
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)


def cells_of(notebook: str, **values: Any) -> list[str]:
    """Return the code cells of a shipped notebook, with values in place of those in its cell of parameters."""
    first, *others = [cell.source for cell in nbformat.read(NOTEBOOKS / notebook, 4).cells if cell.cell_type == "code"]
    return ["\n".join([first, *(f"{name} = {value!r}" for name, value in values.items())]), *others]


def from_cell(cells: Sequence[str], text: str) -> tuple[list[str], str, list[str]]:
    """Return the cells before the one that has a text, that one, and those behind."""
    at = next(number for number, cell in enumerate(cells) if text in cell)
    return list(cells[:at]), cells[at], list(cells[at + 1 :])


def leftovers(folder: Path) -> Iterator[Path]:
    """Yield what lies half-written below a folder."""
    return folder.rglob(".*.rlwb-new*")
