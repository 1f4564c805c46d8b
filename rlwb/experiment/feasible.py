"""Checks before a run starts: settings that cannot work together, and parts that do not fit."""

from __future__ import annotations

from pathlib import Path

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig, validated_checkpoints
from rlwb.experiment.workbench import Workbench


def check_feasible(config: RunConfig, run_dir: Path | None = None) -> None:
    """Refuse a new run that could not come to its end, before its directory or anything else is made.

    All parts are made, the bars read, the orders made, cut (into all windows of a rolling run) and aligned, and one
    order is taken through. Bars that are prepared on the way are kept where the run will look for them, if that folder
    is there.

    Parameters
    ----------
    run_dir
        Where the run will be.
    """
    top, train = config.backtest.top, config.train
    there = len(validated_checkpoints(train))
    if there < top and "top" in config.backtest.model_fields_set:
        raise ConfigError(
            f"backtest.top is {top}, but {train.iterations} iterations make {there} checkpoints with a validation "
            f"score; set it to {there} or less, or train longer."
        )
    if 0 < train.keep < min(top, there):
        raise ConfigError(
            f"train.keep is {train.keep}, but backtest.top asks for the {min(top, there)} best checkpoints; keep as "
            "many or all (0), or ask for fewer."
        )
    parent = None if run_dir is None else run_dir.expanduser().absolute().parent
    Workbench(config, cache_dir=parent / ".cache" if parent is not None and parent.is_dir() else None).try_out()
