"""The command line's ``rlwb data``: what bars are there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlwb.cli_download import app as download
from rlwb.errors import ConfigError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Bars of your own: what they hold.")
app.add_typer(download, name="download")

Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="A file or folder of bars.")]
Kind = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="The reader: table (Parquet, CSV), qlib, binance, lean, ...; else by the names."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="An option of that reader; may be repeated."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there too.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def info(
    source: Source, kind: Kind = None, option: Options = None, json: JsonFile = None, debug: Debug = False
) -> None:
    """Tell what SOURCE holds: bars, instruments, days, columns, size, what was left out."""
    from rlwb.files import write_json
    from rlwb.market.contents import read_contents

    contents = read_contents(source, kind=kind, options=reader_options(option))
    typer.echo(contents.as_text())
    if json is not None:
        write_json(json, contents.as_dict())


def reader_options(words: list[str] | None) -> dict[str, object]:
    """Return ``NAME=VALUE`` words as a reader's options: whole numbers, true and false, null, else text."""
    found: dict[str, object] = {}
    for word in words or []:
        name, mark, value = word.partition("=")
        if not mark or not name:
            raise ConfigError(f"--option {word!r} is not of the form NAME=VALUE.")
        plain: dict[str, object] = {"true": True, "false": False, "null": None}
        whole = value.removeprefix("-").isdecimal() and (value == "0" or not value.removeprefix("-").startswith("0"))
        found[name] = plain.get(value, int(value) if whole else value)
    return found
