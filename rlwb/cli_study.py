"""The command line's ``rlwb search``: many runs as one study."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="A YAML file of parameters, with search spaces; without one, the defaults."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter, or give it a search space; repeatable."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Processes that work at a time; without it, one for each core.")
]
Launcher = Annotated[
    str, typer.Option(metavar="NAME", help="processes, submitit or ray, or {name: …} with its settings.")
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Run the code of your own or others' that it names.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def search(
    config: Config = None,
    changes: Changes = None,
    baselines: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="NAME", help="Tune this rule too, with as many trials; repeatable."),
    ] = None,
    trials: Annotated[int | None, typer.Option(metavar="N", help="Settings that are tried.  [default: 50]")] = None,
    sampler: Annotated[
        str | None, typer.Option(metavar="NAME", help="What chooses them: grid, random, tpe or gp.  [default: tpe]")
    ] = None,
    pruner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="What ends a poor training early: median, hyperband or none.  [default: median]"
        ),
    ] = None,
    objectives: Annotated[
        str | None, typer.Option(metavar="NAMES", help="pa, or pa,std for mean and risk at once.  [default: pa]")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="NAME", help="File of the study: journal or sqlite.  [default: journal]")
    ] = None,
    confirm: Annotated[
        int | None, typer.Option(metavar="N", help="Best trials that are done again on fresh seeds.  [default: 3]")
    ] = None,
    fresh_seeds: Annotated[int | None, typer.Option(metavar="N", help="Fresh seeds.  [default: 5]")] = None,
    test: Annotated[
        bool, typer.Option("--test", help="Judge the winner on the test orders, once; nothing else reads them.")
    ] = False,
    workers: Workers = None,
    launcher: Launcher = "processes",
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the search's files go; without it, a new directory under runs/."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the search in --run-dir.")] = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Search for better settings of the learner, and of rules, by their validation.

    A space stands in CONFIG, or in --set, beside the value that it replaces: {value: 0.001, search: {low: 0.0001, high:
    0.01, log: true}} or {value: 64, search: [32, 64, 128]}.
    """
    from json import dumps

    from rlwb.experiment.yamlfile import parse_yaml
    from rlwb.study.search import launch_search

    chosen = tuple(one.strip() for one in objectives.split(",")) if objectives is not None else None
    given = {"trials": trials, "sampler": sampler, "pruner": pruner, "objectives": chosen, "storage": storage}
    report = launch_search(
        config,
        changes or [],
        run_dir,
        rules=baselines or [],
        given={**given, "confirm": confirm, "fresh_seeds": fresh_seeds},
        workers=workers,
        launcher=parse_yaml(launcher, "--launcher"),
        resume=resume,
        test=test,
        trust_code=trust_code,
        echo=_silent if quiet or json else _clocked,
    )
    if quiet or json:
        typer.echo(dumps(report.summary(), indent=2, ensure_ascii=False) if json else report.to_markdown())


def search_worker(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    again: Annotated[bool, typer.Option("--again")] = False,
    test: Annotated[bool, typer.Option("--test")] = False,
    winners: Annotated[list[str] | None, typer.Option("--winner")] = None,
) -> None:
    """Do trials of a search until there are none; the best again on fresh seeds; or the test of the winners."""
    from rlwb.study import search as searching

    if test:
        pairs = [word.rpartition("=") for word in winners or ()]
        searching.judge_once(folder, {name: int(number) for name, _, number in pairs})
    elif again:
        searching.work_again(folder, echo=typer.echo)
    else:
        searching.work(folder, echo=typer.echo)


def _clocked(text: str) -> None:
    """Print a line with the time of day; tables as they are."""
    typer.echo(text if "\n" in text else f"{time.strftime('%H:%M:%S')} {text}")


def _silent(text: str) -> None:
    """Print nothing."""
