"""What learners reach on the synthetic market, beside the simple rule and what is attainable: ``make learners``.

Each training is a run: orders, training, choice by validation, test. Several training seeds on several market seeds;
rules need no training and have a row for each market seed. Settings of the methods were chosen on market seeds from 6
on and training seeds from 10 on, which no row here has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.evaluation.seeds import interquartile_mean
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, run_stage
from rlwb.experiment.training import train_policy
from rlwb.files import write_json
from rlwb.seeds import generator

_OUT = RESULTS.with_name("learners.json")
_SIGNALS = {"network": "signals"}
_DECAY = {"learning_rate": 5e-3, "decay_updates": 40}
#: Name to what a method changes of the run's defaults.
METHODS: dict[str, dict[str, Any]] = {
    "ppo": {},
    "pathwise": {"algorithm": "pathwise"},
    "ppo, signals": {
        **_SIGNALS,
        "algorithm": {"name": "ppo", **_DECAY},
        "head": {"mask_actions": True, "even_start": True},
    },
    "pathwise, signals": {**_SIGNALS, "algorithm": {"name": "pathwise", "repeat": 4, **_DECAY}},
}
ATTAINABLE, RULE = "filter_optimum", "forecast"
_RULES = ("twap", RULE, ATTAINABLE, "hindsight")
_RESAMPLES = 2000
#: A training: the seed of the market, that of the run, and the method.
_Task = tuple[int, int, str]


def config_of(task: _Task, changes: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a training."""
    market, seed, method = task
    own = {"market.seed": market, "seed": seed, "baselines": list(_RULES), **METHODS[method], **changes}
    return RunConfig.load(None, Layer("learners", own))


def measure(task: _Task, changes: Mapping[str, Any], *, with_rules: bool = True) -> list[dict[str, Any]]:
    """Return the row of a training, and those of the rules on its market."""
    market, seed, method = task
    config = config_of(task, changes)
    with tempfile.TemporaryDirectory(prefix="rlwb-learners-") as folder:
        run = RunDirectory.create(Path(folder) / "run", config)
        run_stage(ORDERS, run, config, make_orders, echo=lambda line: None)
        began = time.monotonic()
        run_stage(TRAIN, run, config, lambda run, config: train_policy(run, config, progress="none"))
        seconds = time.monotonic() - began
        run_stage(BACKTEST, run, config, backtest_policies, echo=lambda line: None)
        table = pd.read_csv(run.backtest / "headline.csv").set_index("policy")
        curve = pd.read_csv(run.metrics / "validation.csv").set_index("iteration")["pa"].round(3).to_dict()
        found = table.loc["checkpoints"]
        own = {"training_seed": seed, "method": method, "seconds": round(seconds, 1), "curve": curve}
        rows = [{"market_seed": market, **own, **_figures(found, table), "over_rule": _over_rule(run, found)}]
        for name in _RULES if with_rules else ():
            told = {"training_seed": None, "method": name, "seconds": None}
            rows.append({"market_seed": market, **told, **_figures(table.loc[name], table)})
        return rows


def _figures(row: pd.Series, table: pd.DataFrame) -> dict[str, float]:
    best = float(table.loc[ATTAINABLE, "pa_mean"])
    pa = {name: float(row[f"pa_{key}"]) for name, key in (("pa", "mean"), ("lo", "lo"), ("hi", "hi"))}
    return {**pa, "attainable": best, "share": pa["pa"] / best}


def _over_rule(run: RunDirectory, chosen: pd.Series) -> list[float]:
    """Return by how much the chosen checkpoints lie above the simple rule on each test day, in basis points."""
    paths = sorted((run.backtest / "orders").glob("checkpoint-*.parquet"))
    assert len(paths) == chosen["n"]
    rule = pd.read_parquet(run.backtest / "orders" / f"{RULE}.parquet")
    learners = np.mean([pd.read_parquet(path)["pa"] for path in paths], axis=0)
    days = (learners - rule["pa"]).groupby(rule["date"]).mean()
    return [round(float(one), 4) for one in days]


def paired(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Return the mean over markets of how far trainings lie above the rule, and its 95 % interval.

    Trainings and days are resampled at once within each market (the pigeonhole bootstrap); days have as many orders
    each.
    """
    rng, markets = generator(0), []
    for market in dict.fromkeys(row["market_seed"] for row in rows):
        cells = np.array([row["over_rule"] for row in rows if row["market_seed"] == market])
        seeds, days = (rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n for n in cells.shape)
        markets.append((cells.mean(), np.einsum("rs,sd,rd->r", seeds, cells, days)))
    drawn = np.mean([resampled for _, resampled in markets], axis=0)
    lo, hi = np.quantile(drawn, [0.025, 0.975])
    return float(np.mean([value for value, _ in markets])), float(lo), float(hi)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return one line a method, over all market and training seeds."""
    header = "method | trainings | PA, IQM, bp | of the attainable, IQM | lowest | over the simple rule, bp | seconds"
    lines = [f"| {header} |", "|---|--:|--:|--:|--:|---|--:|"]
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        pa, share = (np.array([row[name] for row in own]) for name in ("pa", "share"))
        middle = [f"{interquartile_mean(pa):.2f}", f"{interquartile_mean(share):.1%}", f"{share.min():.1%}"]
        over, seconds = "–", "–"
        if method in METHODS:
            mean, lo, hi = paired(own)
            over = f"{mean:.2f} [{lo:.2f}, {hi:.2f}]"
            seconds = f"{np.median([row['seconds'] for row in own]):.0f}"
        lines.append("| " + " | ".join([method, str(len(own)), *middle, over, seconds]) + " |")
    return "\n".join(lines)


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows by method, market seed and training seed; rules first."""
    names = [*_RULES, *METHODS]
    known = [dict(row) for row in rows if row["method"] in names]
    key = [(names.index(row["method"]), row["market_seed"], row["training_seed"] or 0) for row in known]
    return [known[at] for at in sorted(range(len(known)), key=key.__getitem__)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one market, one seed, short trainings")
    parser.add_argument("--markets", type=int, default=3, help="market seeds, 0 to one less than this")
    parser.add_argument("--seeds", type=int, default=5, help="training seeds, 0 to one less than this")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--missing", action="store_true", help="only trainings that have no row yet")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings in place of the defaults")
    parser.add_argument("--out", type=Path, help="where the rows go; results/learners.json by default")
    args = parser.parse_args()
    quick = {"market.days": 40, "train.iterations": 2, "backtest.top": 2} if args.quick else {}
    changes = {**quick, **parse_assignments(args.set).values}
    out = args.out or (_OUT.with_name("learners-quick.json") if args.quick else _OUT)
    kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    rows = {(row["market_seed"], row["training_seed"], row["method"]): row for row in kept}
    counts = (1, 1) if args.quick else (args.markets, args.seeds)
    tasks = list(itertools.product(*map(range, counts), args.methods))
    tasks = [task for task in tasks if not (args.missing and task in rows)]
    about = context()
    with (
        ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
        tqdm(total=len(tasks), unit="training") as bar,
    ):
        first = [next(task for task in tasks if task[0] == market) for market in {task[0] for task in tasks}]
        trainings = [pool.submit(measure, task, changes, with_rules=task in first) for task in tasks]
        for done in as_completed(trainings):
            for row in done.result():
                rows[row["market_seed"], row["training_seed"], row["method"]] = {**row, **about}
            write_json(out, ordered(rows.values()))  # after each, so that one cut short has lost little
            bar.update()
    print(f"\n{markdown(ordered(rows.values()))}")


if __name__ == "__main__":
    main()
