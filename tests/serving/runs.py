"""Small finished runs, and bundles of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.serving.export import export_run

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}
SMALL = {
    "market.instruments": 3,
    "market.days": 24,
    "market.tick_minutes": 30,
    "execution.ticks_per_step": 2,
    "network.hidden": 8,
    "train.iterations": 2,
    "train.episodes_per_iteration": 40,
    "backtest.top": 1,
    "backtest.bootstrap_samples": 100,
    "baselines": ["twap"],
}


def small_run(path: Path, **settings: object) -> RunDirectory:
    """Return a run in `path` that was trained and judged; settings by name, ``__`` for the dot."""
    own = {name.replace("__", "."): value for name, value in settings.items()}
    groups = tuple(f"{name}." for name in own)
    base = {name: value for name, value in SMALL.items() if not name.startswith(groups)}
    config = RunConfig.load(None, Layer("test", {**base, **own}, Path(__file__).parents[1] / "experiment"))
    run = RunDirectory.create(path, config)
    with recorded(run, list(WORK)):
        for stage, work in WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return run


def small_bundle(folder: Path, **settings: object) -> Path:
    """Return a bundle of such a run, ``bundle`` in `folder`; the run is ``run`` there."""
    small_run(folder / "run", **settings)
    return export_run(folder / "run", folder / "bundle", trust_code=True)
