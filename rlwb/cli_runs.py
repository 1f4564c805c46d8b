"""The command line's ``rlwb rerun`` and ``diff``: a run repeated, and two runs compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Run the code of your own or others' that it names.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def diff(
    a: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run.")],
    b: Annotated[Path, typer.Argument(metavar="RUN", help="That of another.")],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what differs between two runs, in configuration, data, code, packages, machine and result.

    Exit codes: 0 they are the same, 1 something differs.
    """
    from rlwb.experiment.diff import launch_diff

    if not launch_diff(a, b, as_json_text=as_json, echo=typer.echo):
        raise typer.Exit(1)
