"""The command line's ``rlwb runs``, ``watch``, ``pause``, ``diff``, ``stress`` and more: what is done with runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rlwb.output import result_text, silent, talker

Json = Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Run the code of your own or others' that it names.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result alone.")]
Result = Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Working = Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run that works now.")]


def runs(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER...", help="Folders with runs at or below them; without one, runs/."),
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="NAME", help="age, kind, learner, market, name, pa, seed, size or status.")
    ] = "age",
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """List runs, also those in comparisons, sweeps and searches: status, headline PA with its interval, age and size.

    What is damaged or half-made is listed with the reason.
    """
    from rlwb.study.catalogue import launch_list

    launch_list(folders or [], sort=sort, as_json_text=as_json, echo=typer.echo)


def beside(runs: list[Path], folder: Path | None, *, idle: str, is_json: bool, is_quiet: bool) -> None:
    """Put runs beside one another: ``rlwb compare`` of directories, of whose options those of `idle` have no effect."""
    from rlwb.study.across import launch_across

    launch_across(
        runs, folder, idle=idle, is_json=is_json, echo=typer.echo, progress=silent if is_quiet else typer.echo
    )


def rerun(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run; it stays as it is.")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Compute it otherwise: threads=2, train.env=subproc, ..."),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the repetition goes; without it, a new directory beside the run."),
    ] = None,
    trust_code: TrustCode = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Repeat a run from its own configuration and code, and compare the results file by file.

    Exit codes: 0 all agrees, 1 something does not, which is named with how far it is off.
    """
    from rlwb.experiment.rerun import launch_rerun

    said: dict[str, Any] = {"as_json_text": as_json, "echo": typer.echo, "progress": talker(is_quiet=as_json)}
    if not launch_rerun(run, changes or [], run_dir, trust_code=trust_code, **said):
        raise typer.Exit(1)


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


def stress(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The directory of a finished run, an evaluation or a sweep.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="FAMILY", help="Play one family of conditions (spread, latency, ...); may be repeated."),
    ] = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: Result = False,
    debug: Debug = False,
) -> None:
    """Judge all policies of a run under many conditions, and tell whether the best of them stays the best.

    Costs, caps, late and missing bars, volatility, size, regime and more: docs/stress.md. What is played already is
    kept, so that a matrix that was stopped goes on.
    """
    from rlwb.study.stressed import launch_stressed

    echo, progress = silent if as_json else typer.echo, talker(is_quiet=quiet or as_json)
    tables = launch_stressed(run, only or [], trust_code=trust_code, echo=echo, progress=progress)
    if as_json:
        typer.echo(result_text(of=run, **tables))


def unlock(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run with locked dates.")],
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: Result = False,
    debug: Debug = False,
) -> None:
    """Judge a run's chosen checkpoints on the dates that split.locked kept from it, once; later show that again."""
    from rlwb.experiment.unlock import unlock as open_dates

    record = open_dates(run, trust_code=trust_code, echo=talker(is_quiet=quiet or as_json))
    if as_json:
        typer.echo(result_text(run=run, **record))
    elif quiet:
        typer.echo(record["headline"].rstrip())


def watch(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="Runs, or folders of runs; without one, runs/.")
    ] = None,
    port: Annotated[int, typer.Option(help="Where the page is on this machine; 0 takes a free one.")] = 8750,
    debug: Debug = False,
) -> None:
    """Serve a page that shows runs while they train, to browsers on this machine alone; Ctrl-C ends it."""
    from rlwb.experiment.watch import serve_board

    server = serve_board(paths or [Path("runs")], port)
    typer.echo(f"http://127.0.0.1:{server.server_address[1]}")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        typer.echo("stopped")
    finally:
        server.server_close()


def pause(run: Working, debug: Debug = False) -> None:
    """Let a run that works wait, after the iteration that it trains, until rlwb resume.

    It keeps its memory and its place in the queue of a cluster; rlwb stop gives both back.
    """
    _ask(run, "pause")


def resume(run: Working, debug: Debug = False) -> None:
    """Let a paused run go on. One that has stopped goes on by rlwb run --resume."""
    _ask(run, "resume")


def stop(run: Working, debug: Debug = False) -> None:
    """Stop a run that works, after the iteration that it trains; rlwb run --resume goes on to the same figures.

    It may work in another terminal, notebook or machine that shares its directory.
    """
    _ask(run, "stop")


def _ask(path: Path, request: Literal["pause", "resume", "stop"]) -> None:
    from rlwb.experiment.control import ask
    from rlwb.experiment.run import RunDirectory

    typer.echo(ask(RunDirectory.open(path), request))


def audit(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run, or of a comparison.")],
    quick: Annotated[bool, typer.Option("--quick", help="Look at the sample that every run's report has.")] = False,
    as_json: Json = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Look for leaks and wrong counts in a finished run.

    A leak is anything that knows what comes later. The report of the run shows what was found.

    Exit codes: 0 no check failed, 1 one did, which is named with what it found.
    """
    from rlwb.experiment.audit import launch_audit
    from rlwb.experiment.report import write_report

    talker(is_quiet=quiet or as_json)
    sound = launch_audit(
        run, is_full=not quick, as_json_text=as_json, trust_code=trust_code, echo=typer.echo, conclude=write_report
    )
    if not sound:
        raise typer.Exit(1)
