"""Which lines follow which while a reader runs: the feedback that guides the fuzzer."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rlwb

_ROOTS = (str(Path(rlwb.__file__).parent / "market"), str(Path(rlwb.__file__).parent / "execution"), pickle.__file__)


class Arcs:
    """Collects pairs of lines, one after the other in one function, of the code under test alone."""

    def __init__(self) -> None:
        # By identity: to hash a code object takes longer than most functions. Those seen are kept, so ids stay theirs.
        self._numbers: dict[int, int] = {}
        self._codes: list[CodeType] = []
        self.found: set[int] = set()

    def run(self, call: Callable[[], Any]) -> Any:
        """Return what `call` returns; `found` holds the arcs of this call."""
        self.found = set()
        threading.settrace(self._enter)  # an import reads in a thread of its own
        sys.settrace(self._enter)
        try:
            return call()
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def _enter(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        number = self._numbers.get(id(code))
        if number is None:
            self._codes.append(code)
            watched = code.co_filename.startswith(_ROOTS)
            number = self._numbers[id(code)] = len(self._codes) << 32 if watched else 0
        if not number:
            return None
        found, last = self.found, 0

        def line(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                now = frame.f_lineno
                found.add(number | last << 16 | now)
                last = now
            elif event == "exception":
                found.add(number | last << 16 | 0xFFFF)
            return line

        return line
