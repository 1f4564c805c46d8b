"""The command line's ``rlwb features``: what a policy could learn from, before it is trained."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What a policy could learn from.")

ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG", help="A YAML file of parameters; without one, the synthetic market and the defaults."
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter, for example market.signal=0; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def screen(config: ConfigFile = None, changes: Changes = None, json: Json = False, debug: Debug = False) -> None:
    """Tell before training whether the features of a market say anything of its prices ahead.

    Every built-in feature, and those that CONFIG names, alone and all together, are tried on the training days alone.

    Exit codes: 0 there is something to learn, 3 nothing was found, 2 a fault of the input's.
    """
    from rlwb.experiment.screen import launch_screen

    found = launch_screen(config, changes or [])
    typer.echo(dumps(found.as_dict(), indent=2, ensure_ascii=False) if json else found.to_markdown())
    if not found.found:
        raise typer.Exit(3)


@app.callback()
def _root() -> None:
    """Keep the name of the only command."""
