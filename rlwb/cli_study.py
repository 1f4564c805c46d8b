"""The commands of many runs, ``rlwb sweep`` and ``rlwb search``, and what is published of them: ``rlwb paper``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from rlwb.output import result_text, silent, talker

if TYPE_CHECKING:
    from rlwb.parts import Part

Config = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="A YAML file of parameters, with search spaces; without one, the defaults."),
]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter, or give it a search space; repeatable."),
]
SweepConfig = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="A YAML file of parameters that all members share; without one, defaults."),
]
MemberChanges = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change one parameter of all members; repeatable."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Jobs at a time; without it, as many as there are cores for.")
]
Launcher = Annotated[
    str, typer.Option(metavar="NAME", help="processes, submitit or ray, or {name: …} with its settings.")
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Run the code of your own or others' that it names.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def sweep(
    config: SweepConfig = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N", help="How many, counted from 0, or a list like 0,3,7.  [default: 10]")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE,…", help="Values of a parameter, as reward.penalty=10,20; repeatable."),
    ] = None,
    changes: MemberChanges = None,
    workers: Workers = None,
    launcher: Launcher = "processes",
    attempts: Annotated[int, typer.Option(min=1, help="How often a member is tried until it has failed.")] = 2,
    run_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the sweep's files go; without it, a new directory under runs/."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the sweep in --run-dir; members that are done are kept.")
    ] = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run whole pipelines of many seeds and settings side by side, and judge them together.

    For example: rlwb sweep --seeds 10 --grid reward.penalty=10,20

    Exit codes: 0 all members are done, 1 some failed, which are named, 2 a fault of the input's, 130 stopped.
    """
    from rlwb.study.sweep import launch_sweep

    found = launch_sweep(
        config,
        changes or [],
        run_dir,
        seeds=seeds,
        grid=grid or [],
        workers=workers,
        launcher=read_launcher(launcher),
        attempts=attempts,
        resume=resume,
        trust_code=trust_code,
        echo=talker(is_quiet=quiet or json),
    )
    if json:
        tables = {"members": found.members, "seeds": found.seeds, "improvement": found.improvement}
        typer.echo(result_text(sweep=found.folder, failed=found.failed, **tables))
    else:
        typer.echo(found.text)
        if not quiet:
            typer.echo(f"page: {found.folder / 'sweep.html'}")
    if found.failed:
        raise typer.Exit(1)


def read_launcher(text: str) -> Part:
    """Return a launcher as ``--launcher`` names it: a name, or a mapping of name and settings as YAML."""
    from rlwb.errors import ConfigError
    from rlwb.experiment.yamlfile import parse_yaml
    from rlwb.parts import Part

    value = parse_yaml(text, "--launcher")
    if not isinstance(value, str) and not (isinstance(value, dict) and isinstance(value.get("name"), str)):
        raise ConfigError(f"--launcher is {text}; write a name, or {{name: …}} with its settings.")
    return Part.model_validate(value)


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
        launcher=read_launcher(launcher),
        resume=resume,
        test=test,
        trust_code=trust_code,
        echo=talker(is_quiet=quiet or json),
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


class PaperCommand(typer.core.TyperCommand):
    """``rlwb paper``; with a bundle it is ``rlwb paper-trade``, as that was called before."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        if parent is not None and any((Path(word) / "bundle.json").is_file() for word in args):
            trade = parent.command.get_command(parent, "paper-trade")
            return trade.make_context("paper-trade", args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def paper(
    path: Annotated[
        Path,
        typer.Argument(metavar="RUN|SWEEP", help="The directory of a finished run, or of a sweep; it stays as it is."),
    ],
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the folder goes; without it, RUN-paper beside the run.")
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write all that a paper needs in one folder: tables, figures, settings, data card, commands, checksums.

    Its text is paper.md and paper.tex. Each number in them is tied to a file; check.py there fails where one differs.

    For example: rlwb paper runs/mine --to paper
    """
    from rlwb.study.paper import launch_paper

    folder = launch_paper(path, to, echo=silent if json else typer.echo)
    if json:
        names = {"text": "paper.md", "latex": "paper.tex", "check": "check.py"}
        typer.echo(result_text(paper=folder, **{name: folder / file for name, file in names.items()}))
