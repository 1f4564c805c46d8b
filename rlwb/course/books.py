"""Notebooks of the course as cells: which are stubs of exercises, and a student's set without anything else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rlwb.course.exercises import course_folder, course_notebooks
from rlwb.errors import ConfigError
from rlwb.files import new_folders, write_json

#: What an exercise's cell holds until it is answered.
STUB = 'raise NotImplementedError("your answer")'


def cells_of(book: Any, tag: str | None = None) -> list[Any]:
    """Return the code cells of a notebook, or those with a tag."""
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    return [cell for cell in code if tag is None or tag in cell["metadata"].get("tags", ())]


def source_of(cell: Any) -> str:
    """Return a cell's text, which a file may hold as lines."""
    return "".join(cell["source"]).replace("\r\n", "\n").strip()


def start(folder: Path, *, answers: bool = False) -> list[Path]:
    """Copy the course's notebooks to a folder, without outputs; return the copies.

    Parameters
    ----------
    folder
        Where they go; it is made if need be.
    answers
        Whether the lecturer's folder of right answers goes there too.

    Raises
    ------
    ConfigError
        Where one of the files is there already, or an exercise of the original holds an answer.
    """
    books = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in course_notebooks().values()}
    for name, book in books.items():
        for cell in cells_of(book, "exercise"):
            if STUB not in source_of(cell):
                raise ConfigError(f"{name} has an answer in its cell {cell['id']}; put the original back.")
    for path in (folder / name for name in (*books, *(["answers"] if answers else []))):
        if path.exists():
            raise ConfigError(f"{path} is there already; name another folder, or move it away.")
    with new_folders(folder):
        for name, book in books.items():
            for cell in cells_of(book):
                cell["outputs"], cell["execution_count"] = [], None
            write_json(folder / name, book)
        if answers:
            shutil.copytree(course_folder() / "answers", folder / "answers", ignore=shutil.ignore_patterns("__*"))
    return [folder / name for name in books]
