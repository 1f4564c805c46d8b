"""The command line's ``rlwb data``: bars in, checked, told."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rlwb.cli_download import app as download
from rlwb.errors import ConfigError

if TYPE_CHECKING:
    from rlwb.market import Calendar

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Bars of your own: fetch, import, check, tell.")
app.add_typer(download, name="download")

Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="A data set, or a file or folder of bars.")]
Sources = Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Files or folders of bars.")]
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
CalendarName = Annotated[
    str | None,
    typer.Option(
        "--calendar",
        metavar="NAME",
        help="The market's clock: cn, us, in, crypto, the code of an exchange, or a YAML file of calendar settings.",
    ),
]
TickMinutes = Annotated[float | None, typer.Option(metavar="N", help="Length of a bar in minutes; 1 without it.")]
Label = Annotated[
    Literal["start", "end"] | None,
    typer.Option(help="What a stamp names of its bar; start without it. A wrong one shifts all bars by one."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="THEIRS=OURS", help="A column by another name; may be repeated."),
]
Zone = Annotated[
    str | None,
    typer.Option("--source-timezone", metavar="ZONE", help="Zone of stamps without one, if not the exchange's."),
]
Pattern = Annotated[
    str | None,
    typer.Option("--instrument-pattern", metavar="REGEX", help="Its group 1 is the instrument in a file's name."),
]
Format = Annotated[
    str | None, typer.Option("--datetime-format", metavar="FORMAT", help="strptime format of stamps, if not ISO 8601.")
]


@app.command("import")
def import_(
    sources: Sources,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The data set; it is made, or added to.")],
    calendar: CalendarName = None,
    tick_minutes: TickMinutes = None,
    label: Label = None,
    kind: Kind = None,
    option: Options = None,
    column: Columns = None,
    source_timezone: Zone = None,
    instrument_pattern: Pattern = None,
    datetime_format: Format = None,
    on_conflict: Annotated[
        Literal["keep", "replace"],
        typer.Option(help="Of different bars with one stamp: keep what is stored, or take the later source's."),
    ] = "keep",
    json: JsonFile = None,
    debug: Debug = False,
) -> None:
    """Add bars to a data set: what is new is read, what was imported before changes nothing.

    After a kill the same command goes on where it was. A new data set needs --calendar.
    """
    from rlwb.experiment.notebook import is_attended
    from rlwb.files import write_json
    from rlwb.market import import_bars
    from rlwb.market.dataset.progress import BarProgress

    with BarProgress(bar=is_attended(), echo=typer.echo) as progress:
        done = import_bars(
            sources,
            out,
            calendar=calendar_of(calendar, tick_minutes, label),
            kind=kind,
            options=reader_options(option),
            columns=pairs_of(column, "--column"),
            source_timezone=source_timezone,
            instrument_pattern=instrument_pattern,
            datetime_format=datetime_format,
            on_conflict=on_conflict,
            progress=progress,
        )
    typer.echo(done.as_text())
    if json is not None:
        write_json(json, done.as_dict())


@app.command()
def check(
    source: Source,
    json: JsonFile = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with pictures.")] = None,
    limit: Annotated[int, typer.Option(help="Findings of a kind that are listed; all are counted.")] = 1000,
    calendar: CalendarName = None,
    tick_minutes: TickMinutes = None,
    label: Label = None,
    kind: Kind = None,
    option: Options = None,
    column: Columns = None,
    source_timezone: Zone = None,
    instrument_pattern: Pattern = None,
    datetime_format: Format = None,
    debug: Debug = False,
) -> None:
    """Tell whether the bars of SOURCE are sound, and name what is not by file, instrument, date and row.

    A data set has its calendar; other sources need --calendar and are imported for the time of the check.

    Exit codes: 0 sound, 3 not sound, 2 nothing that could be checked.
    """
    from rlwb.experiment.notebook import is_attended
    from rlwb.files import write_json, write_text
    from rlwb.market.dataset.progress import BarProgress
    from rlwb.market.quality import check_bars

    with BarProgress(bar=is_attended(), echo=partial(typer.echo, err=True)) as progress:
        quality = check_bars(
            source,
            limit=limit,
            calendar=calendar_of(calendar, tick_minutes, label),
            kind=kind,
            options=reader_options(option),
            columns=pairs_of(column, "--column"),
            source_timezone=source_timezone,
            instrument_pattern=instrument_pattern,
            datetime_format=datetime_format,
            progress=progress,
        )
    typer.echo(quality.as_text())
    if json is not None:
        write_json(json, quality.as_dict())
    if html is not None:
        from rlwb.evaluation.quality import quality_page

        write_text(html, quality_page(quality))
    if not quality.sound:
        raise typer.Exit(3)


@app.command()
def info(
    source: Source, kind: Kind = None, option: Options = None, json: JsonFile = None, debug: Debug = False
) -> None:
    """Tell what SOURCE holds: bars, instruments, days, columns, size, what was left out; its sources if imported."""
    from rlwb.files import write_json
    from rlwb.market.contents import read_contents

    contents = read_contents(source, kind=kind, options=reader_options(option))
    typer.echo(contents.as_text())
    if json is not None:
        write_json(json, contents.as_dict())


def calendar_of(name: str | None, tick_minutes: float | None, label: str | None) -> Calendar | None:
    """Return the calendar that the words ask for; None without any."""
    from rlwb.experiment.sources import CalendarSettings
    from rlwb.experiment.yamlfile import read_yaml
    from rlwb.market.exchange import PRESETS
    from rlwb.parts import Part, complete

    given = {"tick_minutes": tick_minutes, "label": label}
    values: dict[str, object] = {name: value for name, value in given.items() if value is not None}
    if name is None:
        if values:
            raise ConfigError(f"--{next(iter(values)).replace('_', '-')} says nothing without --calendar; add it.")
        return None
    if name.endswith((".yaml", ".yml")):
        values = {**read_yaml(Path(name)), **values}
    elif name in PRESETS:
        values["preset"] = name
    else:
        values["exchange"] = name
    try:
        checked = complete("market", Part(name="bars", source="", calendar=values)).settings["calendar"]
        return CalendarSettings(**checked).build()
    except ConfigError as error:
        raise ConfigError(f"--calendar: {error}") from None


def pairs_of(words: list[str] | None, option: str) -> dict[str, str]:
    """Return ``NAME=VALUE`` words as a mapping of text."""
    found: dict[str, str] = {}
    for word in words or []:
        name, mark, value = word.partition("=")
        if not mark or not name:
            raise ConfigError(f"{option} {word!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def reader_options(words: list[str] | None) -> dict[str, object]:
    """Return ``NAME=VALUE`` words as a reader's options: whole numbers, true and false, null, else text."""
    plain: dict[str, object] = {"true": True, "false": False, "null": None}
    return {
        name: plain.get(value, int(value) if _is_whole(value) else value)
        for name, value in pairs_of(words, "--option").items()
    }


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdecimal() and (text == "0" or not digits.startswith("0"))
