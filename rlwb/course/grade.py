"""Grading of students' sets by Otter-Grader: which cells it runs, the test files that it reads, and the points."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlwb.course.books import cells_of, source_of
from rlwb.course.exercises import Case, course_notebooks, load_cases, outcome, time_limit
from rlwb.errors import ConfigError
from rlwb.files import write_json, write_text
from rlwb.packages import require_packages

#: Seconds that a cell of a student's, and a case, may take.
LIMIT = 60.0

_TESTS = """\
from rlwb.course.grade import otter_cases

OK_FORMAT = False
name = {exercise!r}
globals().update(otter_cases({notebook!r}, name))
"""

_LIMIT_CELLS = f"from rlwb.course.grade import limit_cells\nlimit_cells({LIMIT!r})"


@dataclass(frozen=True)
class Grade:
    """The points of one answer.

    Parameters
    ----------
    student
        Name of the folder; empty where one set was graded alone.
    notebook, exercise
        Which it is.
    points, possible
        Cases that the answer passes, and all.
    wrong
        What it does instead, by the title of each case that it fails.
    """

    student: str
    notebook: str
    exercise: str
    points: int
    possible: int
    wrong: dict[str, str]


def grade(folder: Path) -> Iterator[Grade]:
    """Yield the points of each exercise of a student's set, or of each student's where the folder holds one for each.

    A student's cells are run in a kernel of their own with this user's rights; story cells as they were handed out are
    left out, so that nothing trains. A notebook without any change has no points and is not run.

    Raises
    ------
    ConfigError
        Where Otter is not installed, there is no notebook of the course, or a file is not a notebook.
    """
    require_packages("rlwb course grade", "course", "otter")
    originals = course_notebooks()
    sets = {"": folder} if _notebooks(folder, originals) else _sets(folder, originals)
    if not sets:
        raise ConfigError(f"{folder} holds no notebook of the course and no folder with one, such as {min(originals)}.")
    for student, place in sets.items():
        for path in _notebooks(place, originals):
            for exercise, (possible, wrong) in _graded(path, originals[path.stem]).items():
                points = possible - len(wrong)
                yield Grade(student, path.stem, exercise, points, possible, wrong)


def _sets(folder: Path, originals: dict[str, Path]) -> dict[str, Path]:
    inside = sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
    return {one.name: one for one in inside if _notebooks(one, originals)}


def _notebooks(folder: Path, originals: dict[str, Path]) -> list[Path]:
    return [path for name in originals if (path := folder / f"{name}.ipynb").is_file()]


def _graded(path: Path, original: Path) -> dict[str, tuple[int, dict[str, str]]]:
    """Return the possible points of each exercise with what is wrong by the title of its case."""
    cases = load_cases(path.stem)
    book = _read(path)
    kept = _answers(book, _read(original))
    if not kept:
        return {name: (len(own), {one.title: "not answered yet" for one in own}) for name, own in cases.items()}
    book["cells"] = kept
    return _run(path.stem, book, cases)


def _read(path: Path) -> Any:
    try:
        book = json.loads(path.read_text(encoding="utf-8"))
        cells_of(book)
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not a notebook; ask for the file that JupyterLab saves.") from None
    return book


def _answers(book: Any, original: Any) -> list[Any]:
    """Return what is to be run of a notebook: parameters, setup, and what is new; nothing where nothing is new."""
    handed_out = {source_of(cell) for cell in cells_of(original)}
    needed = {source_of(cell) for tag in ("parameters", "setup") for cell in cells_of(original, tag)}
    own = [cell for cell in cells_of(book) if source_of(cell) not in handed_out]
    kept = [cell for cell in cells_of(book) if source_of(cell) in needed or cell in own]
    return kept if any(map(source_of, own)) else []


def _run(notebook: str, book: Any, cases: dict[str, list[Case]]) -> dict[str, tuple[int, dict[str, str]]]:
    first: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    first["source"] = _LIMIT_CELLS
    with tempfile.TemporaryDirectory(prefix="rlwb-course-") as name:
        place = Path(name)
        write_json(place / "answers.ipynb", {**book, "cells": [first, *book["cells"]]})
        for exercise in cases:
            write_text(place / f"{exercise}.py", _TESTS.format(exercise=exercise, notebook=notebook))
        words = [sys.executable, "-W", "ignore", "-m", "rlwb.course.run_otter", str(place)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"Otter ended on {notebook}: {done.stderr[-2000:]}")
        found = json.loads((place / "results.json").read_text(encoding="utf-8"))
    graded = {}
    for exercise, own in cases.items():
        said = found.get(exercise) or [(one.title, "the kernel ended before this was checked") for one in own]
        wrong = {title: text.removeprefix("AssertionError: ") for title, text in said if text is not None}
        graded[exercise] = (len(own), wrong)
    return graded


def otter_cases(notebook: str, exercise: str) -> dict[str, Any]:
    """Return the cases of an exercise as Otter's, for a test file."""
    from otter.test_files import test_case

    def run(one: Any) -> Any:
        def check(env: dict[str, Any]) -> None:
            if exercise not in env:
                raise AssertionError(f"there is no {exercise}; its cell may have failed")
            with time_limit(LIMIT):
                wrong = outcome(one, env[exercise])
            if wrong is not None:
                raise AssertionError(wrong)

        return check

    cases = load_cases(notebook)[exercise]
    return {f"case_{i}": test_case(name=one.title, points=1)(run(one)) for i, one in enumerate(cases)}


def limit_cells(seconds: float) -> None:
    """End each later cell of this kernel with a `TimeoutError` where it takes longer."""
    import signal

    from IPython import get_ipython

    def stop(*_: object) -> None:
        raise TimeoutError(f"the cell takes longer than {seconds:g} seconds")

    events = get_ipython().events
    signal.signal(signal.SIGALRM, stop)
    events.register("pre_run_cell", lambda *_: signal.setitimer(signal.ITIMER_REAL, seconds, seconds))
    events.register("post_run_cell", lambda *_: signal.setitimer(signal.ITIMER_REAL, 0))


def as_text(grades: list[Grade]) -> str:
    """Return grades as lines: each exercise with its points, what is wrong, and the sum of each student."""
    lines = []
    for student in dict.fromkeys(one.student for one in grades):
        own = [one for one in grades if one.student == student]
        lines += [student] if student else []
        for one in own:
            lines.append(f"{one.notebook:<28}{one.exercise:<32}{one.points:>3} of {one.possible}")
            if any(said != "not answered yet" for said in one.wrong.values()):
                lines += [f"    {title} {said}" for title, said in one.wrong.items()]
        lines.append(f"{'sum':<60}{sum(one.points for one in own):>3} of {sum(one.possible for one in own)}")
    return "\n".join(lines)
