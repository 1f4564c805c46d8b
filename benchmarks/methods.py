"""The methods' table over training seeds, on the embedded market and on two real sets: ``make methods``.

Each member is a run with the settings of ``configs/`` and of the part, all others the default ones; `rlwb.study`
collects the members of a market as those of ``rlwb sweep``. Intervals are for another seed and other days.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.evaluation import PolicyResult
from rlwb.evaluation.seeds import Days, SeedInterval, Trainings, seed_interval
from rlwb.experiment.compare import finished_run
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import TRAIN
from rlwb.files import write_json
from rlwb.study.across import Judged, Setting
from rlwb.study.collect import collect
from rlwb.study.members import Sweep, make_settings

_ROOT = Path(__file__).resolve().parents[1]
_OUT = RESULTS.with_name("methods.json")
METHODS = ("dqn", "ppo", "opd", "pathwise", "all_actions")
#: Pairs whose difference is told: the first less the second.
PAIRS = (("opd", "ppo"), ("pathwise", "ppo"), ("all_actions", "ppo"), ("ppo", "dqn"))
#: Of five seeds the span from the worst to the best covers 93.75 %, so that 95 % cannot be had.
LEVEL = 0.9
#: Metrics that are kept of each policy.
_METRICS = ("pa", "win_rate", "glr", "over_rule", "attained", "ffr")


@dataclass(frozen=True)
class Market:
    """A market of the table.

    Attributes
    ----------
    about
        What of it is used, in words.
    config
        A file of ``configs/``; None for the embedded market.
    bars
        Folder of its bars below the folder of real data.
    """

    about: str
    config: str | None = None
    bars: str = ""


#: The embedded market, and two real ones with all instruments and the dates of their files.
MARKETS: dict[str, Market] = {
    "synthetic": Market("the embedded market, all defaults"),
    "us_5min": Market("39 US stocks and ETFs, bars of 5 minutes", "us_5min.yaml", "us_equity_5min_2025"),
    "cn_15min": Market("56 China A-shares, bars of 15 minutes", "cn_15min.yaml", "cn_equity_15min_2025"),
}


def sweep_of(
    name: str, methods: Sequence[str], seeds: int, changes: Mapping[str, Any], data: Path | None = None
) -> Sweep:
    """Return the trainings of a market: the default settings with each algorithm, on the orders of one seed."""
    market = MARKETS[name]
    shared: dict[str, Any] = {"backtest.confidence": LEVEL}
    if market.config is not None:
        assert data is not None
        # Iterations are the default's: a file's own were set for the algorithm that it was run with.
        iterations = RunConfig().train.iterations
        shared |= {"market.source": str(data / market.bars / "bars.parquet"), "train.iterations": iterations}
    file = None if market.config is None else _ROOT / "configs" / market.config
    layer = Layer("methods", {**shared, **changes})
    settings = make_settings(file, layer, {"algorithm": list(methods)})
    return Sweep(tuple(settings), tuple(range(seeds)), {"file": None, "set": [], "grid": [], "seeds": seeds})


def train(path: Path, config: RunConfig, *, keeps: bool) -> Path:
    """Make a run and its backtest; what is there already is kept, and gone on with, if it `keeps`."""
    if path.exists() and not keeps:
        shutil.rmtree(path)
    with contextlib.redirect_stdout(io.StringIO()):
        finished_run(path, config)
    return path


def rows_of(name: str, sweep: Sweep, folder: Path) -> list[dict[str, Any]]:
    """Return one row a policy: its metrics over seeds and days, with their intervals; tables go into the folder."""
    found = collect(folder, sweep)
    assert found.table is not None, found.text
    (folder / "methods.md").write_text(found.table.to_markdown(), encoding="utf-8")
    orders = {one.config.algorithm.name: one for one in sweep.settings}
    rows = []
    for (setting, policy), own in found.seeds.groupby(["setting", "policy"], sort=False):
        by_metric = own.set_index("metric")
        first = by_metric.loc["pa"]
        if policy == "last":
            continue
        method = next((algorithm for algorithm, one in orders.items() if one.name == setting), None)
        figures = {metric: _known(by_metric.loc[metric].drop(labels=_ABOUT)) for metric in _METRICS}
        row = {"market": name, "method": method if policy == "checkpoints" else policy, "title": first["title"]}
        row |= {"kind": first["kind"], "seeds": int(first["seeds"]), "days": int(first["days"]), "level": LEVEL}
        if policy == "checkpoints":
            trained = [
                RunDirectory(folder / orders[str(method)].member(seed)).stage(TRAIN.name) for seed in sweep.seeds
            ]
            row["seconds"] = float(np.median([one["seconds"] for one in trained]))
        rows.append({**row, "about": MARKETS[name].about, **figures})
    return rows


_ABOUT = ["setting", "algorithm", "policy", "title", "kind", "seeds", "days"]


def _known(row: pd.Series) -> dict[str, float | None]:
    return {str(name): None if pd.isna(value) else round(float(value), 4) for name, value in row.items()}


def difference(sweep: Sweep, folder: Path, first: str, second: str) -> SeedInterval:
    """Return by how much the first method's PA lies above the second's on the same orders, with its intervals.

    Trainings of the same seed are paired; seeds and days are resampled at once.
    """
    return paired(
        [averaged(sweep, folder, first, seed) for seed in sweep.seeds],
        [averaged(sweep, folder, second, seed) for seed in sweep.seeds],
    )


def averaged(sweep: Sweep, folder: Path, method: str, seed: int) -> PolicyResult:
    """Return the result of a training's chosen checkpoints: the mean of each order."""
    setting = next(one for one in sweep.settings if one.config.algorithm.name == method)
    run = RunDirectory(folder / setting.member(seed))
    return Setting(method, (Judged(run, run.path.name, "run"),)).averaged()


def paired(first: Sequence[PolicyResult], second: Sequence[PolicyResult]) -> SeedInterval:
    """Return the mean of the differences in PA between trainings, order by order, over seeds and days."""
    both = [
        PolicyResult(one.policy, one.kind, one.orders.assign(pa=one.pa - other.values("pa", one)))
        for one, other in zip(first, second, strict=True)
    ]
    group = Trainings("difference", "checkpoint", [[one] for one in both], [None] * len(both))
    days = Days(both)
    return seed_interval(days.scores(group, ["pa"])["pa"], days.picks(len(both)), level=LEVEL)


def markdown(results: Mapping[str, Any]) -> str:
    """Return a table a market, learners last, and the paired differences."""
    lines: list[str] = []
    for market in dict.fromkeys(row["market"] for row in results["rows"]):
        own = [row for row in results["rows"] if row["market"] == market]
        interval = f"{LEVEL:.0%} interval, bp"
        header = ["method", "seeds", "PA mean, bp", "PA IQM, bp", interval, "lowest", "over the simple rule, bp"]
        lines += ["", f"{own[0]['about']}; {own[0]['days']} test days", "", f"| {' | '.join(header)} | seconds |"]
        lines.append("|---|--:|--:|--:|---|--:|---|--:|")
        for row in sorted(own, key=lambda one: "seconds" in one):
            pa, over, is_trained = row["pa"], row["over_rule"], "seconds" in row
            cells = [row["method"] if is_trained else row["title"], str(row["seeds"]) if is_trained else "–"]
            cells += [_number(pa["mean"]), _number(pa["iqm"]), _ends(pa, "iqm" if is_trained else "mean")]
            cells += [_number(pa["least"]) if is_trained else "–"]
            cells += [f"{_number(over['mean'])} {_ends(over, 'mean')}" if is_trained else "–"]
            lines.append(
                f"| {' | '.join(cells)} | {row['seconds']:.0f} |" if is_trained else f"| {' | '.join(cells)} | – |"
            )
        pairs = [pair for pair in results["pairs"] if pair["market"] == market]
        lines += [
            "",
            *(f"{one['of']} less {one['less']}: {_number(one['mean'])} bp {_ends(one, 'mean')}" for one in pairs),
        ]
    return "\n".join(lines).strip()


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:z.2f}"


def _ends(row: Mapping[str, Any], name: str) -> str:
    lo, hi = row[f"{name}_lo"], row[f"{name}_hi"]
    return "–" if lo is None else f"[{lo:z.2f}, {hi:z.2f}]"


def measure(name: str, sweep: Sweep, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return rows and pairs of a market whose trainings are done."""
    methods = [one.config.algorithm.name for one in sweep.settings]
    pairs = []
    for first, second in PAIRS:
        if {first, second} <= set(methods):
            made = vars(difference(sweep, folder, first, second))
            estimate = _known(pd.Series({"mean": made["estimate"], "mean_lo": made["lo"], "mean_hi": made["hi"]}))
            alone = _known(pd.Series({end: made[end] for end in ("days_lo", "days_hi", "seeds_lo", "seeds_hi")}))
            pairs.append({"market": name, "of": first, "less": second, **estimate, **alone})
    return {"rows": rows_of(name, sweep, folder), "pairs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the embedded market, two seeds, short trainings")
    parser.add_argument("--markets", nargs="+", choices=list(MARKETS), default=list(MARKETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5, help="training seeds, 0 to one less than this")
    parser.add_argument("--data", type=Path, default=_ROOT / "../shared/data", help="folder of the real bars")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings in place of the defaults")
    parser.add_argument("--missing", action="store_true", help="keep the trainings that are done in --run-dir")
    parser.add_argument("--run-dir", type=Path, default=Path("runs/methods"), help="where the runs lie, by market")
    parser.add_argument("--out", type=Path, help="where the rows go; results/methods.json by default")
    args = parser.parse_args()
    quick = {"market.days": 40, "train.iterations": 2, "backtest.top": 2} if args.quick else {}
    names, seeds = (["synthetic"], 2) if args.quick else (args.markets, args.seeds)
    changes = {**quick, **parse_assignments(args.set).values}
    out = args.out or (_OUT.with_name("methods-quick.json") if args.quick else _OUT)
    base = args.run_dir.absolute()
    there = {name: one for name, one in MARKETS.items() if one.config is None or (args.data / one.bars).is_dir()}
    for name in names:
        if name not in there:
            print(f"{name} is left out: {args.data / MARKETS[name].bars} is not there; name its folder with --data")
    sweeps = {
        name: sweep_of(name, args.methods, seeds, changes, args.data.resolve()) for name in names if name in there
    }
    results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"rows": [], "pairs": []}
    tasks = {
        (base / name / member): setting.of_seed(seed)
        for name, sweep in sweeps.items()
        for member, (setting, seed) in sweep.members.items()
    }
    left = {name: len(sweep.members) for name, sweep in sweeps.items()}
    with (
        ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
        tqdm(total=len(tasks), unit="training") as bar,
    ):
        trainings = [pool.submit(train, path, config, keeps=args.missing) for path, config in tasks.items()]
        for done in as_completed(trainings):
            name = done.result().parent.name
            left[name] -= 1
            bar.update()
            if not left[name]:
                made = measure(name, sweeps[name], base / name)
                kept = {part: [row for row in results[part] if row["market"] != name] for part in made}
                results = {**context(), **{part: [*kept[part], *made[part]] for part in made}}
                write_json(out, results)
    print(f"\n{markdown(results)}")


if __name__ == "__main__":
    main()
