"""The command line's ``rlwb course``: a student's set of the course's notebooks, and its grade."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Notebooks with exercises for a class.")

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def start(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the notebooks go.")],
    answers: Annotated[bool, typer.Option("--answers", help="Copy the lecturer's right answers, too.")] = False,
    debug: Debug = False,
) -> None:
    """Copy the course's notebooks for a student: stories and exercises, without answers.

    For example: rlwb course start course && jupyter lab course
    """
    from rlwb.course.books import start as copied

    paths = copied(folder, answers=answers)
    typer.echo(f"{len(paths)} notebooks in {folder}; open {paths[0]} in JupyterLab.")


@app.command()
def grade(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A set, a file, a folder of one for each student, or files by student."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the points as JSON.")] = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write a table of points, a row a student.")] = None,
    debug: Debug = False,
) -> None:
    """Grade answers with Otter: points for each exercise, and what is wrong. Students' code runs with your rights.

    For example: rlwb course grade handed-in --csv points.csv
    """
    from rlwb.course.grade import as_text, hand_ins, write_table
    from rlwb.course.grade import grade as graded

    found, grades = hand_ins(folder), []
    for student, books in found.students.items():
        own = list(graded(student, books))
        grades += own
        if not json:
            typer.echo(as_text(own))
    if json:
        left_out = {str(path): why for path, why in found.left_out.items()}
        typer.echo(dumps({"grades": [asdict(one) for one in grades], "left_out": left_out}, indent=2))
    for path, why in found.left_out.items():
        typer.echo(f"not graded: {path.relative_to(folder)}: {why}", err=True)
    if csv:
        write_table(csv, grades)
