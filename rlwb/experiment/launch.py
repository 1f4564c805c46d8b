"""What ``rlwb run`` does: find or make the run's directory, then run the pipeline in it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.own_code import check_parts, require_trust, trust
from rlwb.experiment.run import RunDirectory, default_run_directory, disk_is_full
from rlwb.experiment.stage import differences, settings_of
from rlwb.experiment.stages import TRAIN

if TYPE_CHECKING:
    from rlwb.evaluation import Table


def launch(
    config_file: Path | None,
    changes: Sequence[str],
    run_dir: Path | None,
    *,
    resume: bool,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
) -> RunDirectory:
    """Start a run, or go on with one, and see it through.

    Parameters
    ----------
    config_file
        Parameters; None for the defaults, or for those of the run that is resumed.
    changes
        Assignments ``name=value``.
    run_dir
        The run's directory; None makes one under ``runs/``.
    resume
        Go on with the run there is.
    trust_code
        Run the code that this run names, wherever it is from.
    echo
        Receives lines on what happens.
    """
    from rlwb.experiment.pipeline import run_pipeline
    from rlwb.experiment.report import write_report

    if resume and run_dir is None:
        raise ConfigError("--resume needs the run to go on with; name its directory with --run-dir.")
    layer = parse_assignments(changes)
    if resume:
        run = RunDirectory.open(run_dir or "")
        config = RunConfig.load(config_file or run.path / "config.yaml", layer)
        trust(config, beside=None if config_file else run.config)
        require_trust(config, given=trust_code)
        _check(config)
        _check_iterations(run, config)
    else:
        config = RunConfig.load(config_file, layer)
        _check(config)
        run = RunDirectory.create(
            run_dir or default_run_directory(config_file.stem if config_file else "synthetic"), config
        )
    echo(f"run: {run.path}")
    signal.signal(signal.SIGTERM, _stop)
    try:
        run_pipeline(run, config, report=write_report, echo=echo)
    except KeyboardInterrupt:
        echo(run.how_to_resume())
        raise
    except OSError as error:
        if disk_is_full(error):
            raise RlwbError(
                f"the disk is full ({error.filename or run.path}); free some space. {run.how_to_resume()}"
            ) from error
        raise
    except RlwbError:
        echo(f"Correct what is wrong, in the input or by --set. {run.how_to_resume()}")
        raise
    except Exception:
        echo(run.how_to_resume())
        raise
    headline = run.backtest / "headline.txt"
    if headline.is_file():
        echo(headline.read_text(encoding="utf-8").rstrip())
    return run


def launch_comparison(
    config_file: Path | None,
    changes: Sequence[str],
    folder: Path | None,
    methods: Sequence[str],
    *,
    resume: bool,
    echo: Callable[[str], None] = print,
) -> Table:
    """Compare methods in a new folder, or go on in one; no `methods` means all (see `rlwb.experiment.compare`)."""
    from rlwb.experiment.compare import METHODS, compare, method_configs, parse_methods

    if resume and folder is None:
        raise ConfigError("--resume needs the comparison to go on with; name its directory with --run-dir.")
    chosen = parse_methods(methods) if methods else METHODS
    configs = method_configs(chosen, config_file, parse_assignments(changes))
    for config in configs.values():
        _check(config)
    if folder is not None and not resume and folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} holds something already; go on there with --resume, or choose another directory.")
    folder = folder or default_run_directory("comparison")
    echo(f"comparison: {folder}")
    signal.signal(signal.SIGTERM, _stop)
    try:
        table = compare(folder, configs, titles={name: one.title for name, one in chosen.items()}, echo=echo)
    except BaseException:
        echo(f"What is finished is kept; go on with the same words and --resume --run-dir {folder}")
        raise
    echo(table.to_markdown().rstrip())
    return table


def _check(config: RunConfig) -> None:
    """Refuse a path that is not there and settings that a part refuses, before a run's directory is made."""
    for name, part in (("market.source", config.market), ("orders.source", config.orders)):
        source = part.settings.get("source")
        if source is not None and not Path(source).exists():
            raise ConfigError(f"{name}: there is no file or folder {source}; check the path.")
        if source is not None and name == "orders.source" and Path(source).is_dir():
            raise ConfigError(f"{name}: {source} is a folder; name one Parquet or CSV file of orders.")
    check_parts(config)


def _check_iterations(run: RunDirectory, config: RunConfig) -> None:
    """Refuse to shorten a training before anything of the run is changed; one of other settings starts anew."""
    from rlwb.experiment.training import refuse_shorter

    trained = max((int(path.stem) for path in run.checkpoints.glob("*.pt") if path.stem.isdigit()), default=0)
    known = run.stage(TRAIN.name).get("settings", {})
    if not differences(known, settings_of(TRAIN, config), ignore=TRAIN.extends):
        refuse_shorter(trained, config.train.iterations)


def _stop(number: int, frame: FrameType | None) -> None:
    """Let a polite kill end the kernel and mark the run, as Ctrl-C does."""
    raise KeyboardInterrupt
