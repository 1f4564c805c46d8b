"""The command line's ``rlwb data download``: public bars that need no key."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated, Literal

import typer

from rlwb.errors import ConfigError

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Fetch public bars that need no key.")

Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the files go; what is there stays.")]
Market = Literal["spot", "um", "cm"]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def binance(
    symbols: Annotated[list[str], typer.Argument(metavar="SYMBOL", help="For example BTCUSDT ETHUSDT.")],
    start: Annotated[str, typer.Option("--from", metavar="MONTH", help="First month or day: 2024-01, 2024-01-15.")],
    end: Annotated[str, typer.Option("--to", metavar="MONTH", help="Last month or day, included.")],
    out: Out,
    interval: Annotated[str, typer.Option(help="Length of a bar: 1s, 1m, 3m, 5m, 15m, 30m or 1h.")] = "1m",
    market: Annotated[Market, typer.Option(help="um and cm are futures, margined in USDT and in coins.")] = "spot",
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


@app.command()
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

    first, last = _date(start, "--from"), _date(end, "--to")
    counts = download_yahoo(
        symbols, interval, out, start=first, end=last, extended_hours=extended_hours, echo=typer.echo
    )
    typer.echo(f"{out}: {counted(len(counts), 'files')} with {counted(sum(counts.values()), 'bars')}")


def _date(text: str | None, name: str) -> dt.date | None:
    try:
        return None if text is None else dt.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, which is no date; write YYYY-MM-DD.") from None
