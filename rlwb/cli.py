"""The command line: `rlwb.cli:app` has the commands of a run; others are in modules of their own, ``cli_…``."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

import rlwb
from rlwb import cli_costs, cli_course, cli_data, cli_features, cli_runs, cli_serving, cli_study
from rlwb.errors import ConfigError, RlwbError
from rlwb.limits import limit_hit
from rlwb.output import let_output_be_unread, lost_output, result_text, talker
from rlwb.progress import PROGRESS_ENV

if TYPE_CHECKING:
    import pandas as pd

    from rlwb.experiment.run import RunDirectory

_TRAIN, _FOLLOW, _TRUST_IN = "Train and judge", "Follow runs", "Trust a figure"
_WORK, _DATA, _LOOK_UP = "Put to work", "Bars, features and costs", "Learn and look up"


class _InGroups(typer.core.TyperGroup):
    """Help that lists the commands by what they are for, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        for panel in (_TRAIN, _FOLLOW, _TRUST_IN, _WORK, _DATA, _LOOK_UP):
            shown = [one for one in commands if one and not one.hidden and one.rich_help_panel == panel]  # type: ignore[attr-defined]
            with formatter.section(panel):
                formatter.write_dl([(str(one.name), one.get_short_help_str(limit=200)) for one in shown])


app = typer.Typer(
    cls=_InGroups,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="The workbench for trade execution with reinforcement learning.",
)
app.add_typer(cli_data.app, name="data", rich_help_panel=_DATA)
app.add_typer(cli_course.app, name="course", rich_help_panel=_LOOK_UP)
app.add_typer(cli_features.app, name="features", rich_help_panel=_DATA)
app.add_typer(cli_costs.impact, name="impact", rich_help_panel=_DATA)
app.add_typer(cli_serving.bundle, name="bundle", rich_help_panel=_WORK)

_FILE = "A YAML file of parameters; without one, the synthetic market and the defaults."
_SET = "Change one parameter, for example train.iterations=20; may be repeated."
_OTHERWISE = "A YAML file of what is to be otherwise than in the run; without one, all is as there."
_COMPARED = "A YAML file of parameters for all methods, or the directories of runs that are there."
_DIRECTORY = "Where the run's files go; without it, a new directory under runs/."
_EVALUATION = "Where the evaluation's files go; without it, a new directory beside the run."
_RESUME = "Go on with what is in --run-dir; what is done and unchanged is not done again."
_TWIN = "Train and judge the same on the same market without anything to learn, too, beside the result."
_TRUST = "Run the code of your own or others' that the run names."
_TRUST_POLICIES = "Run the code of your own or others' that the run and --policy name."
_POLICY = (
    "Judge another's policy: NAME=model.zip (Stable-Baselines3), graph.onnx, or file.py:function; may be repeated."
)
_METHOD = "A learner to compare, or your own as mine={network: mine.py:LSTM}; may be repeated; without it, all."

ConfigFile = Annotated[Path | None, typer.Argument(metavar="CONFIG", help=_FILE)]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=_SET)]
Directory = Annotated[Path | None, typer.Option(metavar="DIR", help=_DIRECTORY)]
Resume = Annotated[bool, typer.Option("--resume", help=_RESUME)]
NoiseTwin = Annotated[bool, typer.Option("--with-noise-twin", help=_TWIN)]
TrustCode = Annotated[bool, typer.Option("--trust-code", help=_TRUST)]
Policies = Annotated[list[str] | None, typer.Option("--policy", metavar="NAME=SPEC", help=_POLICY)]
Methods = Annotated[list[str] | None, typer.Option("--method", metavar="NAME", help=_METHOD)]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print the result alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON; names: rlwb columns.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Version = Annotated[bool, typer.Option("--version", help="Print the version and exit.")]


@app.command(rich_help_panel=_TRAIN)
def run(
    config: ConfigFile = None,
    changes: Changes = None,
    run_dir: Directory = None,
    resume: Resume = False,
    with_noise_twin: NoiseTwin = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Sample orders, train, backtest and judge; write a report.

    Every parameter of CONFIG and --set, its default and what it does: rlwb config.

    Exit codes: 0 done, 1 a fault of rlwb's, 2 a fault of the input's, 130 stopped.
    """
    from rlwb.experiment.pipeline import launch
    from rlwb.experiment.twin import launch_with_twin

    echo, start = talker(is_quiet=quiet or json), launch_with_twin if with_noise_twin else launch
    done = start(config, changes or [], run_dir, resume=resume, trust_code=trust_code, echo=echo)
    if quiet or json:
        _tell_headline(done, is_json=json)


@app.command(rich_help_panel=_TRAIN)
def compare(
    subjects: Annotated[list[Path] | None, typer.Argument(metavar="CONFIG | RUN...", help=_COMPARED)] = None,
    changes: Changes = None,
    methods: Methods = None,
    run_dir: Directory = None,
    resume: Resume = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train every method of the field on the same orders, or put runs that are there beside each other, in one table.

    Directories of runs, evaluations, sweeps, searches and comparisons are compared as they are, and nothing is trained.
    With --resume and nothing else said, methods and settings are those that the comparison was begun with.
    """
    if subjects and (len(subjects) > 1 or subjects[0].is_dir()):
        given = {"--set": changes, "--method": methods, "--resume": resume, "--trust-code": trust_code}
        idle = ", ".join(name for name, value in given.items() if value)
        cli_runs.beside(subjects, run_dir, idle=idle, is_json=json, is_quiet=quiet)
        return
    from rlwb.experiment.compare import launch_comparison

    echo, config = talker(is_quiet=quiet or json), next(iter(subjects or ()), None)
    table = launch_comparison(
        config, changes or [], run_dir, methods or [], resume=resume, trust_code=trust_code, echo=echo
    )
    if quiet or json:
        _tell(table.to_markdown().rstrip(), table.frame if json else None)


@app.command(rich_help_panel=_TRAIN)
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a finished run; it stays as it is.")],
    config: Annotated[Path | None, typer.Argument(metavar="CONFIG", help=_OTHERWISE)] = None,
    changes: Changes = None,
    run_dir: Annotated[Path | None, typer.Option(metavar="DIR", help=_EVALUATION)] = None,
    policies: Policies = None,
    trust_code: Annotated[bool, typer.Option("--trust-code", help=_TRUST_POLICIES)] = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Judge the checkpoints of a run, and policies made elsewhere, without training; on other orders if asked.

    For example: rlwb evaluate runs/mine --set split.test=[2024-08-01,2024-09-30]

    or beside a policy of Stable-Baselines3: rlwb evaluate runs/mine --policy ppo=ppo.zip --trust-code
    """
    from rlwb.experiment.evaluate import launch_evaluation
    from rlwb.experiment.policies import parse_policies

    others, echo = parse_policies(policies or []), talker(is_quiet=quiet or json)
    done = launch_evaluation(run, config, changes or [], run_dir, policies=others, trust_code=trust_code, echo=echo)
    if quiet or json:
        _tell_headline(done, is_json=json)


@app.command(rich_help_panel=_TRAIN)
def train(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run whose orders are there.")],
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Do the stage train of a run alone, from where it stopped; rlwb run --resume does all that is left."""
    from rlwb.experiment.monitor import launch_training

    state = launch_training(run, trust_code=trust_code, echo=talker(is_quiet=quiet or json))
    if json:
        counts = {"iterations": state.iterations, "judged_by": state.judged_by, "best": state.best}
        typer.echo(result_text(run=run, iteration=state.iteration, **counts, validation=state.validation))
    elif quiet:
        typer.echo(state.sentence())


@app.command(rich_help_panel=_TRUST_IN)
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run, or of a comparison.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print all findings as JSON.")] = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compute every figure of a run again from its bars, orders and checkpoints, and compare.

    Exit codes: 0 all agrees, 1 something does not, which is named by file, row and column.
    """
    from rlwb.experiment.verify import launch_verification

    talker(is_quiet=quiet or as_json)
    if not launch_verification(run, as_json_text=as_json, trust_code=trust_code, echo=typer.echo):
        raise typer.Exit(1)


@app.command(rich_help_panel=_LOOK_UP)
def config(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CONFIG] [NAME]", help="A YAML file; with --explain also what is to be explained."),
    ] = None,
    changes: Changes = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Type, default, unit and meaning of all fields, or of NAME: train, algorithm, ppo."
        ),
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of such files, for editors.")] = False,
    debug: Debug = False,
) -> None:
    """Print every parameter, its value with CONFIG and --set, and what it does.

    For example: rlwb config --explain algorithm
    """
    from rlwb.experiment.config import RunConfig, parse_assignments

    given = list(words or [])
    names = [given.pop()] if explain and given and not given[-1].endswith((".yaml", ".yml")) else []
    if len(given) > 1:
        raise ConfigError(f"{given[1]} is one word too many; give a CONFIG, and with --explain a NAME.")
    if schema:
        from rlwb.experiment.explain import schema_text

        typer.echo(schema_text(), nl=False)
        return
    found = RunConfig.load(Path(given[0]) if given else None, parse_assignments(changes or []))
    if explain:
        from rlwb.experiment.explain import explain as explained

        typer.echo(explained(found, *names), nl=False)
    else:
        typer.echo(found.as_yaml(describe=True), nl=False)


@app.command(rich_help_panel=_LOOK_UP)
def columns(debug: Debug = False) -> None:
    """Print the data dictionary: name, unit and meaning of every column of a run's tables."""
    from rlwb.evaluation.dictionary import as_markdown

    typer.echo(as_markdown(), nl=False)


_ELSEWHERE = {
    _TRAIN: (cli_study.sweep, cli_study.search),
    _FOLLOW: (cli_runs.runs, cli_runs.diff, cli_runs.watch, cli_runs.pause, cli_runs.resume, cli_runs.stop),
    _TRUST_IN: (cli_runs.rerun, cli_runs.audit, cli_runs.stress, cli_runs.unlock),
    _WORK: (cli_serving.export, cli_serving.quantise, cli_serving.serve, cli_serving.paper_trade),
    _DATA: (cli_costs.tca,),
}
for _panel, _commands in _ELSEWHERE.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.command(cls=cli_study.PaperCommand, rich_help_panel=_TRUST_IN)(cli_study.paper)
app.command(hidden=True)(cli_study.search_worker)


def _tell_headline(run: RunDirectory, *, is_json: bool) -> None:
    """Print the headline of a run."""
    import pandas as pd

    text = (run.backtest / "headline.txt").read_text(encoding="utf-8").rstrip()
    _tell(text, pd.read_csv(run.backtest / "headline.csv") if is_json else None, run=run.path, report=run.report)


def _tell(text: str, table: pd.DataFrame | None, **paths: Path) -> None:
    """Print a result: the text, or where there is a table, that as JSON with the paths of what it is of."""
    if table is None:
        typer.echo(text)
    else:
        typer.echo(result_text(**paths, policies=table))


@app.callback(invoke_without_command=True)
def _root(context: typer.Context, version: Version = False) -> None:
    if version:
        typer.echo(f"rlwb {rlwb.__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a user's error is one sentence, ours names its place. Output need not be read."""
    files = let_output_be_unread()
    code = _main(list(sys.argv[1:] if arguments is None else arguments))
    if lost := lost_output(files):
        _complain(f"output was lost ({lost.strerror}); what was done is done.")
    sys.exit(code or (2 if lost else 0))


def _main(words: list[str]) -> int:
    before = os.environ.get(PROGRESS_ENV)
    try:
        code = int(app(words, standalone_mode=False, prog_name="rlwb") or 0)
        if code == 130:  # how typer tells of Ctrl-C
            _complain("stopped")
        return code
    except Exception as error:
        if hasattr(error, "format_message"):  # click's word for a wrong option
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "rlwb"
            _complain(f"{error.format_message().replace('Value error, ', '')} ({command} --help)")
            return 2
        if "--debug" in words:
            typer.echo(getattr(error, "trace", "") or traceback.format_exc(), err=True)
        if isinstance(error, RlwbError):
            _complain(str(error))
            return 2
        if found := limit_hit(error):
            _complain(found)
            return 2
        said = str(error) or type(error).__name__
        _complain(f"{said}\nThis is a fault of rlwb, not of its input; --debug shows where.")
        return 1
    finally:  # what one command was told holds for no other of this process
        os.environ.pop(PROGRESS_ENV, None)
        if before is not None:
            os.environ[PROGRESS_ENV] = before


def _complain(text: str) -> None:
    typer.echo(f"rlwb: {text}", err=True)


if __name__ == "__main__":
    main()
