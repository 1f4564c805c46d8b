"""The command line's ``rlwb data``: bars fetched, imported, checked, told."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from rlwb.errors import ConfigError

if TYPE_CHECKING:
    from rlwb.market import Calendar
    from rlwb.market.source import Reading

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Bars of your own: fetch, import, check, tell.")
download = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Fetch public bars that need no key.")
app.add_typer(download, name="download")

Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="A data set, or a file or folder of bars.")]
Kind = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="The reader: table (Parquet, CSV), qlib, binance, lean, ...; else by the names."),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of that reader; may be repeated.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="THEIRS=OURS", help="A column by another name; may be repeated."),
]
SourceZone = Annotated[
    str | None, typer.Option(metavar="ZONE", help="Zone of stamps without one, if not the exchange's.")
]
Pattern = Annotated[str | None, typer.Option(metavar="REGEX", help="Its group 1 is the instrument in a file's name.")]
Format = Annotated[
    str | None,
    typer.Option(metavar="FORMAT", help="strptime format of stamps, if not ISO 8601; or s, ms, us, ns since 1970."),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there too.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go; what is there stays.")]


def _reading(
    calendar: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The market's clock: cn, us, in, crypto, an exchange's code, or a YAML file of calendar settings.",
        ),
    ] = None,
    tick_minutes: Annotated[
        float | None, typer.Option(metavar="N", help="Length of a bar in minutes; 1 without it.")
    ] = None,
    label: Annotated[
        Literal["start", "end"] | None,
        typer.Option(help="What a stamp names of its bar; start without it. A wrong one shifts all bars by one."),
    ] = None,
    kind: Kind = None,
    option: Options = None,
    column: Columns = None,
    source_timezone: SourceZone = None,
    instrument_pattern: Pattern = None,
    datetime_format: Format = None,
    round_seconds: Annotated[
        float | None, typer.Option(metavar="N", help="Move stamps up to N seconds off the bars' grid onto it.")
    ] = None,
) -> dict[str, Any]:
    """Return what the words that say how bars are read mean, as arguments of `import_bars` and `check_bars`."""
    return {
        "calendar": calendar_of(calendar, tick_minutes, label),
        "kind": kind,
        "options": reader_options(option),
        "columns": pairs_of(column, "--column"),
        "source_timezone": source_timezone,
        "instrument_pattern": instrument_pattern,
        "datetime_format": datetime_format,
        "round_seconds": round_seconds,
    }


def _reads_bars(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the parameters of `_reading`, whose answer is its last parameter."""
    *own, last = inspect.signature(command, eval_str=True).parameters.values()
    words = inspect.signature(_reading, eval_str=True).parameters

    @functools.wraps(command)
    def with_words(**given: Any) -> None:
        reading = _reading(**{name: given.pop(name) for name in words})
        command(**given, **{last.name: reading})

    with_words.__signature__ = inspect.Signature([*own, *words.values()])  # type: ignore[attr-defined]
    return with_words


@app.command("import")
@_reads_bars
def import_(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Files or folders of bars.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The data set; it is made, or added to.")],
    on_conflict: Annotated[
        Literal["keep", "replace"],
        typer.Option(help="Of different bars with one stamp: keep what is stored, or take the later source's."),
    ] = "keep",
    json: JsonFile = None,
    debug: Debug = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Add bars to a data set: what is new is read, what was imported before changes nothing.

    After a kill the same command goes on where it was. A new data set needs --calendar.
    """
    from rlwb.experiment.notebook import is_attended
    from rlwb.files import write_json
    from rlwb.market import import_bars
    from rlwb.market.dataset.importing import bar_progress

    with bar_progress(bar=is_attended(), echo=typer.echo) as progress:
        done = import_bars(sources, out, on_conflict=on_conflict, progress=progress, **reading)
    typer.echo(done.as_text())
    if json is not None:
        write_json(json, done.as_dict())


@app.command()
@_reads_bars
def check(
    source: Source,
    json: JsonFile = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with pictures.")] = None,
    limit: Annotated[int, typer.Option(help="Findings of a kind that are listed; all are counted.")] = 1000,
    debug: Debug = False,
    *,
    reading: dict[str, Any],
) -> None:
    """Tell whether the bars of SOURCE are sound, and name what is not by file, instrument, date and row.

    A data set has its calendar; other sources need --calendar and are imported for the time of the check.

    Exit codes: 0 sound, 3 not sound, 2 nothing that could be checked.
    """
    from rlwb.experiment.notebook import is_attended
    from rlwb.files import write_text
    from rlwb.market.dataset.importing import bar_progress
    from rlwb.market.quality import check_bars

    with bar_progress(bar=is_attended(), echo=partial(typer.echo, err=True)) as progress:
        quality = check_bars(source, limit=limit, progress=progress, **reading)
    _tell(quality, json)
    if html is not None:
        from rlwb.evaluation.quality import quality_page

        write_text(html, quality_page(quality))
    if not quality.sound:
        raise typer.Exit(3)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A data set, or a file or folder of bars.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another source of the same bars.")],
    a_option: Annotated[
        list[str] | None,
        typer.Option("--a", metavar="NAME=VALUE", help="How A is read: kind, source_timezone, ..., or a reader's own."),
    ] = None,
    b_option: Annotated[
        list[str] | None, typer.Option("--b", metavar="NAME=VALUE", help="How B is read; columns.THEIRS=OURS too.")
    ] = None,
    instruments: Annotated[
        list[str] | None, typer.Option("--instrument", metavar="ID", help="Compare this one; may be repeated.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help="First day.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help="Last day, included.")] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Zone that stamps with an offset are brought to.")
    ] = None,
    json: JsonFile = None,
    debug: Debug = False,
) -> None:
    """Compare two sources of the same bars: what only one has, which values differ, and what explains it.

    Exit codes: 0 equal (up to rounding), 1 different, 2 no bar in common, or a source that cannot be read.
    """
    from rlwb.market.difference import diff_bars

    readings = {
        f"reading_{side}": side_reading(words, f"--{side}") for side, words in (("a", a_option), ("b", b_option))
    }
    found = diff_bars(a, b, instruments=instruments or None, start=start, end=end, timezone=timezone, **readings)
    _tell(found, json)
    if not found.equal:
        raise typer.Exit(1 if found.shared else 2)


@app.command()
def suggest(
    source: Source,
    kind: Kind = None,
    option: Options = None,
    column: Columns = None,
    source_timezone: SourceZone = None,
    instrument_pattern: Pattern = None,
    datetime_format: Format = None,
    debug: Debug = False,
) -> None:
    """Print a configuration to start from, with reasons: rlwb data suggest BARS > mine.yaml; rlwb run mine.yaml."""
    from rlwb.experiment.suggest import suggest as suggested

    text = suggested(
        source,
        kind=kind,
        options=reader_options(option),
        columns=pairs_of(column, "--column"),
        source_timezone=source_timezone,
        instrument_pattern=instrument_pattern,
        datetime_format=datetime_format,
    )
    typer.echo(text, nl=False)


@app.command()
def info(
    source: Source, kind: Kind = None, option: Options = None, json: JsonFile = None, debug: Debug = False
) -> None:
    """Tell what SOURCE holds: bars, instruments, days, columns, size, what was left out; its sources if imported."""
    from rlwb.market.contents import read_contents

    _tell(read_contents(source, kind=kind, options=reader_options(option)), json)


def _tell(figures: Any, json: Path | None) -> None:
    from rlwb.files import write_json

    typer.echo(figures.as_text())
    if json is not None:
        write_json(json, figures.as_dict())


@download.command()
def binance(
    symbols: Annotated[list[str], typer.Argument(metavar="SYMBOL", help="For example BTCUSDT ETHUSDT.")],
    start: Annotated[str, typer.Option("--from", metavar="MONTH", help="First month or day: 2024-01, 2024-01-15.")],
    end: Annotated[str, typer.Option("--to", metavar="MONTH", help="Last month or day, included.")],
    out: Out,
    interval: Annotated[str, typer.Option(help="Length of a bar: 1s, 1m, 3m, 5m, 15m, 30m or 1h.")] = "1m",
    market: Annotated[
        Literal["spot", "um", "cm"], typer.Option(help="um and cm are futures, margined in USDT and in coins.")
    ] = "spot",
    base_url: Annotated[str, typer.Option(metavar="URL", help="A mirror of the archive.")] = "",
    timeout: Annotated[float, typer.Option(help="Seconds without a byte after which a try has failed.")] = 30.0,
    tries: Annotated[int, typer.Option(help="Tries of one file.")] = 6,
    debug: Debug = False,
) -> None:
    """Fetch klines of Binance's public archive, checked by SHA-256; the same command goes on after a cut."""
    from rlwb.market.download import BinanceArchive, Fetcher, download_binance
    from rlwb.market.download.binance import BASE_URL
    from rlwb.market.findings import counted

    archive = BinanceArchive(tuple(symbols), interval, start, end, market, base_url or BASE_URL)
    outcome = download_binance(archive, out, fetcher=Fetcher(timeout, tries), echo=typer.echo)
    lacking = f", {counted(len(outcome.missing), 'months')} without some days" if outcome.missing else ""
    typer.echo(
        f"{out}: {counted(len(outcome.fetched), 'files')} fetched, {len(outcome.present)} there already{lacking}"
    )


@download.command()
def yahoo(
    symbols: Annotated[list[str], typer.Argument(metavar="SYMBOL", help="For example AAPL BRK-B ^GSPC.")],
    out: Out,
    interval: Annotated[str, typer.Option(help="Length of a bar: 1m, 2m, 5m, 15m, 30m or 1h.")] = "5m",
    start: Annotated[str | None, typer.Option("--from", metavar="DATE", help="First day; else the earliest.")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DATE", help="Last day, included; else today.")] = None,
    extended_hours: Annotated[bool, typer.Option("--extended-hours", help="Also before and after hours.")] = False,
    debug: Debug = False,
) -> None:
    """Fetch recent bars from Yahoo through yfinance (pip install 'rlwb[yahoo]'); bars that are there stay."""
    from rlwb.market.download import download_yahoo
    from rlwb.market.findings import counted

    days: dict[str, dt.date | None] = {}
    for name, text in (("from", start), ("to", end)):
        try:
            days[name] = None if text is None else dt.date.fromisoformat(text)
        except ValueError:
            raise ConfigError(f"--{name} is {text!r}, which is no date; write YYYY-MM-DD.") from None
    counts = download_yahoo(
        symbols, interval, out, start=days["from"], end=days["to"], extended_hours=extended_hours, echo=typer.echo
    )
    typer.echo(f"{out}: {counted(len(counts), 'files')} with {counted(sum(counts.values()), 'bars')}")


def calendar_of(name: str | None, tick_minutes: float | None, label: str | None) -> Calendar | None:
    """Return the calendar that the words ask for; None without any."""
    from rlwb.experiment.sources import CalendarSettings
    from rlwb.experiment.yamlfile import read_yaml
    from rlwb.market.calendar import PRESETS
    from rlwb.parts import Part, complete

    words = {"tick-minutes": tick_minutes, "label": label}
    given = {word: value for word, value in words.items() if value is not None}
    if name is None:
        if given:
            raise ConfigError(f"--{next(iter(given))} says nothing without --calendar; add it.")
        return None
    if name.endswith((".yaml", ".yml")):
        values: dict[str, Any] = dict(read_yaml(Path(name)))
    else:
        values = {"preset" if name in PRESETS else "exchange": name}
    values |= {word.replace("-", "_"): value for word, value in given.items()}
    try:
        checked = complete("market", Part(name="bars", source="", calendar=values)).settings["calendar"]
        return CalendarSettings(**checked).build()
    except ConfigError as error:
        raise ConfigError(f"--calendar: {error}") from None


def side_reading(words: list[str] | None, option: str) -> Reading:
    """Return ``NAME=VALUE`` words as keywords of `rlwb.market.source.Reading`; other names are a reader's options."""
    from rlwb.market.source import Reading

    reading: dict[str, Any] = {}
    for name, value in reader_options(words, option).items():
        into, _, column = name.partition(".")
        if into == "columns" and column:
            reading.setdefault("columns", {})[column] = value
        elif name in Reading.__annotations__ and name not in ("options", "columns", "round_seconds"):
            reading[name] = value
        else:
            reading.setdefault("options", {})[name] = value
    return cast(Reading, reading)


def pairs_of(words: list[str] | None, option: str) -> dict[str, str]:
    """Return ``NAME=VALUE`` words as a mapping of text."""
    found: dict[str, str] = {}
    for word in words or []:
        name, mark, value = word.partition("=")
        if not mark or not name:
            raise ConfigError(f"{option} {word!r} is not of the form NAME=VALUE.")
        found[name] = value
    return found


def reader_options(words: list[str] | None, option: str = "--option") -> dict[str, object]:
    """Return ``NAME=VALUE`` words as a reader's options: whole numbers, true and false, null, else text."""
    plain: dict[str, object] = {"true": True, "false": False, "null": None}

    def meaning(text: str) -> object:
        # A number that begins with 0 is an id.
        return int(text) if re.fullmatch("0|-?[1-9][0-9]*", text) else plain.get(text, text)

    return {name: meaning(value) for name, value in pairs_of(words, option).items()}
