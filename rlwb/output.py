"""Output of commands: lines with the time of day, and streams that nobody need read to the end."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import time
from collections.abc import Callable
from json import loads
from typing import Any

import typer

from rlwb.progress import quieten

#: What a write says when whoever read has gone: a pipe's other end, a terminal.
_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.EBADF)


class _Heedless(io.FileIO):
    """A stream's file that takes everything and drops what cannot be written."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            while self.failure is None:
                written: int | None = super().write(data)
                if written is not None:
                    return written
                select.select([], [self], [])  # a terminal that another program has set not to block
        except OSError as error:
            self.failure = error
        return len(memoryview(data).cast("B"))


def let_output_be_unread() -> list[_Heedless]:
    """Make standard output and error streams whose failure changes nothing that the process does; return their files.

    Streams that were closed before the process began are opened on nothing, so that no file of its takes their number.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which takes the lowest number that is free
    files = []
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
            file = _Heedless(stream.fileno(), "wb", closefd=False)
            text = io.TextIOWrapper(
                io.BufferedWriter(file),
                encoding=stream.encoding,
                errors="backslashreplace",  # a letter that the encoding lacks is no failure either
                line_buffering=stream.line_buffering,
            )
            setattr(sys, name, text)
            setattr(sys, f"__{name}__", text)
            files.append(file)
    return files


def lost_output(files: list[_Heedless]) -> OSError | None:
    """Return why output was lost that somebody may have wanted: not one whose reader had gone."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None:
            stream.flush()
    return next((file.failure for file in files if file.failure and file.failure.errno not in _GONE), None)


def clocked(text: str) -> None:
    """Print a line with the time of day; tables as they are."""
    typer.echo(text if "\n" in text else f"{time.strftime('%H:%M:%S')} {text}")


def result_text(**fields: Any) -> str:
    """Return what a command prints with ``--json``: a table is a list of its rows, and what is missing is null."""
    import pandas as pd

    from rlwb.files import strict_json

    def plain(value: Any) -> Any:
        return loads(value.to_json(orient="records")) if isinstance(value, pd.DataFrame) else value

    return strict_json({name: plain(value) for name, value in fields.items()})


def silent(text: str) -> None:
    """Print nothing."""


def talker(*, is_quiet: bool) -> Callable[[str], None]:
    """Return what prints the lines of a command's work; of a quiet one nothing is printed, nor by what it starts."""
    if is_quiet:
        quieten()
    return silent if is_quiet else clocked
