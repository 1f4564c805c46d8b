"""The part of grading inside the kernel that runs a student's cells: limits, a note of what failed, and the cases."""

from __future__ import annotations

import builtins
import os
import signal
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from rlwb.course import exercises
from rlwb.course.exercises import Case, load_cases, outcome

#: Seconds that a cell may take.
CELL_LIMIT = 60.0
#: Bytes of data that the kernel may hold, on Linux.
MEMORY_LIMIT = 4 * 2**30

_failed: list[str] = []
_cases: dict[str, list[Case]] = {}
_as_imported: list[tuple[ModuleType, dict[str, Any]]] = []


def prepare(notebook: str) -> None:
    """Limit later cells in time and memory, let them print and run commands to nowhere, and note which of them fail.

    The cases of the notebook are loaded before any of its cells is run, and what they are made of is kept as it is.
    """
    import resource

    from IPython import get_ipython

    _cases.update(load_cases(notebook))
    _as_imported.extend((module, dict(vars(module))) for module in (builtins, np, exercises))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or most > MEMORY_LIMIT:
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, most))
    shell = get_ipython()
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the kernel
    shell.display_pub.publish = lambda *_, **__: None
    shell.system = shell.getoutput = lambda *_, **__: None
    signal.signal(signal.SIGALRM, exercises.stopper(CELL_LIMIT))
    shell.events.register("pre_run_cell", lambda *_: exercises.start_timer(CELL_LIMIT))
    shell.events.register("post_run_cell", _note)


def _note(result: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    if error := result.error_before_exec or result.error_in_exec:
        _failed.append(exercises._sentence(error))


def otter_cases(exercise: str) -> dict[str, Any]:
    """Return the cases of an exercise as Otter's, for a test file."""
    from otter.test_files import test_case

    for module, names in _as_imported:
        vars(module).update(names)

    def run(one: Case) -> Any:
        def check(env: dict[str, Any]) -> None:
            if exercise not in env:
                why = f"; a cell ended with {_failed[0]}" if _failed else ""
                raise AssertionError(f"there is no {exercise}{why}")
            try:
                wrong = outcome(one, env[exercise])
            except KeyboardInterrupt:
                wrong = "KeyboardInterrupt"
            if wrong is not None:
                raise AssertionError(wrong)

        return check

    return {f"case_{i}": test_case(name=one.title, points=1)(run(one)) for i, one in enumerate(_cases[exercise])}
