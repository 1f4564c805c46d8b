"""Grading of students' sets by Otter-Grader: what was handed in, which cells are run, and the points."""

from __future__ import annotations

import json
import re
import subprocess
import symtable
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlwb.course.books import cells_of, source_of
from rlwb.course.exercises import UNANSWERED, Case, course_notebooks, is_unanswered, load_cases
from rlwb.errors import ConfigError
from rlwb.files import write_json, write_text
from rlwb.packages import require_packages

_TESTS = """\
from rlwb.course.kernel import otter_cases

OK_FORMAT = False
name = {exercise!r}
globals().update(otter_cases(name))
"""

_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".7z", ".rar")
_DIED = "the kernel ended or hung, by this answer or by what it needs"


@dataclass(frozen=True)
class Grade:
    """The points of one answer.

    Parameters
    ----------
    student
        Name of the folder or file; empty where one set was graded alone.
    notebook, exercise
        Which it is.
    points, possible
        Cases that the answer passes, and all.
    answered
        False where it is still the stub, or not there at all.
    wrong
        What it does instead, by the title of each case that it fails.
    """

    student: str
    notebook: str
    exercise: str
    points: int
    possible: int
    answered: bool
    wrong: dict[str, str]


@dataclass
class HandIns:
    """A folder of notebooks handed in: those of each student by name, and the reason of each that was left out."""

    students: dict[str, dict[str, Path]] = field(default_factory=dict)
    left_out: dict[Path, str] = field(default_factory=dict)


def hand_ins(folder: Path) -> HandIns:
    """Return what students have handed in: a set, a folder for each student, files with students' names, or one file.

    A notebook is known by its `Exercises`, whatever its file is called, else by its file's name. Of several copies of
    a student's the one with the course's file name counts, else the one that was changed last.

    Raises
    ------
    ConfigError
        Where Otter is not installed, or nothing of the course is found.
    """
    require_packages("rlwb course grade", "course", "otter")
    names = list(course_notebooks())
    found = HandIns()
    folder, paths = (folder.parent, [folder]) if folder.is_file() else (folder, list(folder.rglob("*.ipynb")))
    paths = [one for one in paths if not re.search(r"(^|/)\.", one.relative_to(folder).as_posix())]
    is_set = any(path.parent == folder and path.stem in names for path in paths)
    for path in sorted(paths, key=lambda one: (one.stem not in names, -one.stat().st_mtime, one)):
        inner = path.relative_to(folder).parts
        try:
            name = _notebook_of(read(path), path, names)
        except ConfigError as error:
            found.left_out[path] = str(error)
            continue
        if name is None:
            found.left_out[path] = "no notebook of the course"
            continue
        alone = "" if is_set else path.stem.replace(name, "").strip(" _-.,") or path.stem
        student = inner[0] if len(inner) > 1 else alone
        books = found.students.setdefault(student, {})
        if name in books:
            found.left_out[path] = f"another copy of {name} counts: {books[name].name}"
        else:
            books[name] = path
    first = {path.relative_to(folder).parts[0] for path in paths}
    for one in sorted(folder.iterdir()) if paths and not is_set else []:
        if one.suffix in _ARCHIVES:
            found.left_out[one] = "an archive; unpack it"
        elif one.is_dir() and one.name not in first and not one.name.startswith("."):
            found.left_out[one] = "a folder without a notebook"
    if not found.students:
        raise ConfigError(f"{folder} holds no notebook of the course and no folder with one, such as {names[0]}.ipynb.")
    found.students = {student: dict(sorted(books.items())) for student, books in sorted(found.students.items())}
    return found


def read(path: Path) -> Any:
    """Return a notebook as a student's machine has saved it.

    Raises
    ------
    ConfigError
        Where the file is not a notebook.
    """
    try:
        book = json.loads(path.read_text(encoding="utf-8-sig"))
        for cell in cells_of(book):
            source_of(cell)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError):
        raise ConfigError(f"{path} is not a notebook; ask for the file that JupyterLab saves.") from None
    return book


def _notebook_of(book: Any, path: Path, names: list[str]) -> str | None:
    text = "\n".join(map(source_of, cells_of(book)))
    said = re.findall(r"""Exercises\(["'](\w+)["']\)""", text)
    return next((name for name in names if name in said), next((name for name in names if name in path.stem), None))


def grade(student: str, books: dict[str, Path]) -> Iterator[Grade]:
    """Yield the points of each exercise of a student's notebooks.

    The cells that define the answers are run in a kernel of their own with this user's rights, and before them the
    setup and what else of the notebook they need; nothing else is, so that nothing trains. Where the kernel dies, each
    answer gets one of its own.
    """
    originals = course_notebooks()
    for name, path in books.items():
        cases = load_cases(name)
        own = [source_of(cell) for cell in cells_of(read(path))]
        original = read(originals[name])
        found = _graded(name, list(cases), own, original)
        if found is None:
            found = {}
            for exercise in cases:
                found |= _graded(name, [exercise], own, original) or {
                    exercise: [(one.title, _DIED) for one in cases[exercise]]
                }
        for exercise, said in found.items():
            wrong = {title: text for title, text in said if text is not None}
            yield Grade(student, name, exercise, len(said) - len(wrong), len(said), not is_unanswered(said), wrong)


_Said = list[tuple[str, str | None]]


def _graded(name: str, exercises: list[str], own: list[str], original: Any) -> dict[str, _Said] | None:
    """Return the title of each case with what is wrong, by exercise; None where the kernel did not come to the end."""
    cases = {exercise: own_cases for exercise, own_cases in load_cases(name).items() if exercise in exercises}
    stubs = {source_of(cell) for cell in cells_of(original)}
    setup = [source_of(cell) for tag in ("parameters", "setup") for cell in cells_of(original, tag)]
    kept = needed(own, exercises, stubs, setup)
    there = [one for one in exercises if any(_mentions(source, [one]) for source in kept)]
    found: dict[str, _Said] = {one: [(each.title, UNANSWERED) for each in cases[one]] for one in exercises}
    if not there:
        return found
    said = _run(name, [*setup, *kept], {one: cases[one] for one in there})
    return None if said is None else found | said


def needed(own: list[str], exercises: list[str], handed_out: Iterable[str], setup: list[str]) -> list[str]:
    """Return the cells of a notebook that answer exercises, and those that define what these use, in their order.

    Parameters
    ----------
    own
        Sources of the student's code cells.
    exercises
        Names of the functions and classes asked for.
    handed_out
        Sources of the cells as students got them; a stub among them is no answer.
    setup
        Sources of the cells that are run before.
    """
    handed_out = set(handed_out)
    places = {at for at, source in enumerate(own) if source not in handed_out and _mentions(source, exercises)}
    places |= {at for at, source in enumerate(own) if places and "import *" in source and source not in handed_out}
    names = [_names(source) for source in own]
    given = {one for source in setup for one in _names(source)[0]}
    while True:
        has = given.union(*(names[at][0] for at in places))
        wanted = set().union(*(names[at][1] for at in places)) - has
        more = {at for at, (defined, _) in enumerate(names) if defined & wanted} - places
        if not more:
            return [own[at] for at in sorted(places)]
        places |= more


def _mentions(source: str, exercises: Iterable[str]) -> bool:
    return any(re.search(rf"\b{re.escape(one)}\b", source) for one in exercises)


def _names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a cell defines, and the global ones that it reads; none of a cell that is no Python."""
    text = "" if source.startswith("%%") else re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE)
    try:
        top = symtable.symtable(text, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(), set()
    defined = {one.get_name() for one in top.get_symbols() if one.is_assigned() or one.is_imported()}
    tables, used = [top], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {
            one.get_name() for one in table.get_symbols() if one.is_referenced() and (table is top or one.is_global())
        }
    return defined, used


def _run(notebook: str, sources: list[str], cases: dict[str, list[Case]]) -> dict[str, _Said] | None:
    first = f"from rlwb.course.kernel import prepare\nprepare({notebook!r})"
    cell: dict[str, Any] = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    book: dict[str, Any] = {"cells": [{**cell, "source": source} for source in (first, *sources)]}
    book |= {
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    with tempfile.TemporaryDirectory(prefix="rlwb-course-") as name:
        place = Path(name)
        write_json(place / "answers.ipynb", book)
        for exercise in cases:
            write_text(place / f"{exercise}.py", _TESTS.format(exercise=exercise))
        words = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "rlwb.course.run_otter",
            str(place),
            str(sum(map(len, cases.values()))),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        results = place / "results.json"
        if not results.is_file():
            if "DeadKernelError" in done.stderr or "CellTimeoutError" in done.stderr:
                return None
            raise RuntimeError(f"Otter ended on {notebook}: {done.stderr[-2000:]}")
        found = json.loads(results.read_text(encoding="utf-8"))
    if set(found) != set(cases):
        return None
    return {
        name: [(title, text and text.removeprefix("AssertionError: ")) for title, text in said]
        for name, said in found.items()
    }


def as_text(grades: list[Grade]) -> str:
    """Return the grades of a student as lines: each exercise with its points, what is wrong, and the sum."""
    student = grades[0].student
    lines = [student] if student else []
    for one in grades:
        points = f"{one.points:>3} of {one.possible}" if one.answered else f"{UNANSWERED} ({one.possible} points)"
        lines.append(f"{one.notebook:<28}{one.exercise:<32}{points}")
        if one.answered:
            lines += [line for title, said in one.wrong.items() for line in (f"    {title}", f"        {said}")]
    lines.append(f"{'sum':<60}{sum(one.points for one in grades):>3} of {sum(one.possible for one in grades)}")
    return "\n".join(lines)


def write_table(path: Path, grades: list[Grade]) -> None:
    """Write grades as CSV: a row a student, a column an exercise, empty where it was not answered, and the sum."""
    import pandas as pd

    rows = [(one.student, f"{one.notebook} {one.exercise}", one.points if one.answered else None) for one in grades]
    table = pd.DataFrame(rows, columns=["student", "exercise", "points"])
    columns = sorted(table["exercise"].drop_duplicates(), key=lambda name: name.split()[0])
    wide = table.pivot(index="student", columns="exercise", values="points").astype("Int64")[columns]
    write_text(path, wide.assign(sum=wide.sum(axis=1)).to_csv())
