"""The command line's ``rlwb impact`` and ``rlwb tca``: what a person's own fills say of the costs of trading."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlwb.cli_data import calendar_of, pairs_of, side_reading
from rlwb.errors import ConfigError, OrderError
from rlwb.output import result_text

if TYPE_CHECKING:
    import pandas as pd

    from rlwb.evaluation.impact import ImpactFit
    from rlwb.market import Calendar, Sessions

impact = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="What trading costs, by fills of your own.")

FillsFile = Annotated[Path, typer.Argument(metavar="FILLS", help="A CSV or Parquet file of executions.")]
Bars = Annotated[Path, typer.Option(metavar="BARS", help="A data set, or a file or folder of bars with --calendar.")]
Clock = Annotated[
    str | None, typer.Option("--calendar", metavar="NAME", help="The market's clock, as for rlwb data import.")
]
TickMinutes = Annotated[float | None, typer.Option(metavar="N", help="Length of a bar in minutes; 1 without it.")]
Label = Annotated[str | None, typer.Option(metavar="start|end", help="What a bar's stamp names; start without it.")]
BarsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="How BARS are read: kind, source_timezone, columns.THEIRS=OURS, ..."),
]
Column = Annotated[
    list[str] | None,
    typer.Option(metavar="THEIRS=OURS", help="A column of FILLS by another name (avg_px=price); may be repeated."),
]
Code = Annotated[
    list[str] | None, typer.Option(metavar="CODE=SIDE", help="A code of the side, for example 0=SELL; may be repeated.")
]
FillsZone = Annotated[str | None, typer.Option(metavar="ZONE", help="Zone of stamps of FILLS that have none.")]
Drop = Annotated[bool, typer.Option("--drop", help="Leave wrong rows of FILLS out instead of refusing them all.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Of the resamples behind the intervals.")]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the figures there too.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@impact.command()
def fit(
    fills: FillsFile,
    bars: Bars,
    out: Annotated[
        Path | None, typer.Option(metavar="YAML", help="Where the rules go, for rlwb run; what is there is replaced.")
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="CSV or Parquet with instrument and group: a fit, and a file, of each group."
        ),
    ] = None,
    after: Annotated[float, typer.Option(metavar="N", help="Minutes after an order at which its impact stays.")] = 30.0,
    transient: Annotated[
        str | None,
        typer.Option(metavar="power|exponential", help="Fit transient impact with this decay, not temporary impact."),
    ] = None,
    calendar: Clock = None,
    tick_minutes: TickMinutes = None,
    label: Label = None,
    bars_option: BarsOption = None,
    column: Column = None,
    code: Code = None,
    fills_timezone: FillsZone = None,
    drop: Drop = False,
    seed: Seed = 0,
    json: JsonFile = None,
    debug: Debug = False,
) -> None:
    """Estimate spread, temporary or transient impact and permanent impact from fills, in the units of the rules.

    What the fills do not tell is said and not written. FIX's column names are known; of others say --column.

    Exit codes: 0 something was found, 3 nothing, 2 fills or bars that cannot be used.
    """
    from rlwb.evaluation.impact import fit_impact
    from rlwb.files import write_json, write_text
    from rlwb.seeds import generator

    if transient not in (None, "power", "exponential"):
        raise ConfigError(f"--transient is {transient!r}; say power or exponential.")
    decay: Any = transient
    clock = calendar_of(calendar, tick_minutes, label)
    table, sessions = read_fills_and_bars(fills, bars, clock, bars_option, column, code, fills_timezone, drop=drop)
    for note in table.attrs["notes"]:
        typer.echo(note)
    found: dict[str, ImpactFit | str] = {}
    for name, part in _parts(table, groups).items():
        try:
            one = fit_impact(part, sessions, generator(seed), after_minutes=after, transient=decay)
        except OrderError as error:
            if groups is None:
                raise
            found[name] = str(error)
            typer.echo(f"\n{name}: {error}")
            continue
        found[name] = one
        typer.echo(f"\n{name}\n{one.as_text()}" if name else one.as_text())
        if out is not None and one.rules():
            path = out.with_stem(f"{out.stem}-{name}") if name else out
            write_text(path, _as_yaml(one, fills))
            typer.echo(f"{path}: rlwb run {path}")
    if json is not None:
        plain = {name: one if isinstance(one, str) else one.as_dict() for name, one in found.items()}
        write_json(json, plain if groups is not None else plain[""])
    if not any(not isinstance(one, str) and one.rules() for one in found.values()):
        typer.echo("nothing was found that the rules could hold")
        raise typer.Exit(3)


@impact.command()
def published(
    source: Annotated[str, typer.Argument(metavar="LAW", help="almgren2005, square_root_law or propagator.")],
    daily_volatility_bps: Annotated[float, typer.Option(metavar="BP", help="The instrument's daily volatility.")],
    ticks: Annotated[float | None, typer.Option(metavar="N", help="almgren2005, propagator: bars a day.")] = None,
    tick_minutes: Annotated[
        float | None, typer.Option(metavar="N", help="propagator: length of a bar in minutes.")
    ] = None,
    turnover_days: Annotated[
        float | None, typer.Option(metavar="N", help="almgren2005: shares outstanding over mean daily volume.")
    ] = None,
    share_of_day: Annotated[
        float | None, typer.Option(metavar="X", help="square_root_law: share of the day's volume while an order lasts.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Print the impact of a published law as rules, for an instrument with these figures.

    For example: rlwb impact published almgren2005 --daily-volatility-bps 200 --ticks 390 --turnover-days 200
    """
    from rlwb.execution.presets import published_impact
    from rlwb.experiment.yamlfile import dump_yaml

    figures = {"ticks": ticks, "tick_minutes": tick_minutes}
    figures |= {"turnover_days": turnover_days, "share_of_day": share_of_day}
    given = {name: value for name, value in figures.items() if value is not None}
    rules = published_impact(source, daily_volatility_bps=daily_volatility_bps, **given)
    rounded = {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in rules.items()}
    typer.echo(dump_yaml({"execution": {"rules": rounded}}), nl=False)


def tca(
    fills: FillsFile,
    bars: Annotated[Path, typer.Option(metavar="BARS", help="A data set, or a file or folder of bars.")],
    config: Annotated[
        Path | None, typer.Argument(metavar="CONFIG", help="A YAML file of parameters: clock of the bars, rules.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change one parameter, for example market.calendar.preset=us."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", help="A finished run, whose settings count and whose policy trades the same orders."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the files go; without it, a new FILLS-tca here.")
    ] = None,
    column: Column = None,
    code: Code = None,
    fills_timezone: FillsZone = None,
    trust_code: Annotated[bool, typer.Option("--trust-code", help="Run the code that RUN names.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result alone.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Say what your own fills cost, part by part, beside what TWAP, VWAP and POV would have paid on the same orders.

    For example: rlwb tca fills.csv --bars bars.parquet --set market.calendar.preset=us --set execution.rules=us
    """
    from rlwb.experiment.tca import launch_tca

    done = launch_tca(
        fills,
        bars,
        config,
        changes or [],
        run=run,
        out=out,
        columns=pairs_of(column, "--column"),
        codes=pairs_of(code, "--code"),
        source_timezone=fills_timezone,
        trust_code=trust_code,
        echo=(lambda _: None) if quiet or json else typer.echo,
    )
    if not json:
        typer.echo(done.table.to_text().rstrip())
        return
    tables = {"policies": done.table.frame, "costs": done.costs, "excess": done.excess}
    typer.echo(result_text(result=done.folder, report=done.folder / "report.html", **tables, notes=done.notes))


def read_fills_and_bars(
    fills: Path,
    bars: Path,
    calendar: Calendar | None,
    bars_option: list[str] | None,
    column: list[str] | None,
    code: list[str] | None,
    fills_timezone: str | None,
    *,
    drop: bool = False,
) -> tuple[pd.DataFrame, Sessions]:
    """Return a canonical table of fills, and the bars of their instruments and days; words are as on the command line.

    A data set and a saved panel bring their calendar; other bars need one.
    """
    from rlwb.execution import read_fills
    from rlwb.market import Sessions, load_sessions, read_state
    from rlwb.market.dataset.state import is_dataset
    from rlwb.market.store import is_panel

    own = calendar
    if own is None and is_dataset(bars):
        own = read_state(bars).calendar
    elif own is None and is_panel(bars):
        own = Sessions.open(bars, verify=False).calendar
    if own is None:
        raise ConfigError(f"{bars} needs a calendar; say --calendar, and --tick-minutes and --label of its bars.")
    table = read_fills(
        fills,
        own,
        columns=pairs_of(column, "--column"),
        codes=pairs_of(code, "--code"),
        source_timezone=fills_timezone,
        on_refused="drop" if drop else "raise",
    )
    names, days = sorted(set(table["instrument"])), table["time"].dt.date
    span = {"start": str(days.min()), "end": str(days.max())}
    reading = side_reading(bars_option, "--bars-option")
    return table, load_sessions(bars, calendar, instruments=names, **span, **reading)


def _parts(fills: pd.DataFrame, groups: Path | None) -> dict[str, pd.DataFrame]:
    """Return the fills of each group of instruments, all of them under "" where there are no groups."""
    from rlwb.execution.table import read_rows

    if groups is None:
        return {"": fills}
    rows, _ = read_rows(groups, "groups")
    if missing := [name for name in ("instrument", "group") if name not in rows]:
        raise OrderError(f"{groups} lacks the columns {missing}; give instrument and group.")
    group = fills["instrument"].map(dict(zip(rows["instrument"], rows["group"].astype(str), strict=True)))
    if lost := sorted(set(fills["instrument"][group.isna()])):
        typer.echo(f"{len(lost)} instruments are in no group and left out: {', '.join(lost[:5])}")
    if group.isna().all():
        raise OrderError(f"{groups} names no instrument of the fills.")
    return {str(name): part for name, part in fills.groupby(group)}


def _as_yaml(fit: ImpactFit, fills: Path) -> str:
    """Return what was found as a configuration, with what it rests on in comments."""
    from rlwb.experiment.yamlfile import dump_yaml

    rules = fit.rules()
    lines = [f"# rlwb impact fit {fills.name}: {fit.orders:,} orders on {fit.days:,} days."]
    for name, one in fit.estimates.items():
        span = one.interval
        if name in rules:
            lines.append(f"# {name}: {100 * span.level:g} % interval {span.lo:.4g} to {span.hi:.4g}")
        elif name.endswith("impact_bps") or name == "half_spread_bps":
            lines.append(f"# {name}: {one.lacks}")
    if "volume_limit" in rules:
        lines.append("# volume_limit: the largest share of a bar's volume among the fills; beyond it nothing is known")
    return "\n".join([*lines, dump_yaml({"execution": {"rules": rules}})])
