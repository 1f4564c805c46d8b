"""What learners reach on the synthetic market, beside the simple rule and what is attainable: ``make learners``.

Each training is a run: orders, training, choice by validation, test. Rules need no training and have a row for each
market. Settings of the methods were chosen on market seeds from 6 on and training seeds from 10 on, which no row of the
table has. Three parts:

``table``
    Several training seeds on several market seeds, by the default run, with learning curves over time.
``days``
    The same against the number of training days, as a factor of the default's. Validation and test are the last days of
    a market that is long enough for the largest factor, so that they are the same sessions at every factor; training
    days are those just before.
``noise``
    Markets without a signal, where a find is an interval of the chosen checkpoints that lies above 0.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import binomtest
from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.quality import Clock
from benchmarks.scale import save
from benchmarks.table import RESULTS
from rlwb.evaluation import style
from rlwb.evaluation.seeds import interquartile_mean
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, play
from rlwb.experiment.config import RunConfig, baseline_labels, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, run_stage
from rlwb.experiment.training import train_policy
from rlwb.files import write_json
from rlwb.market import SyntheticSettings
from rlwb.seeds import generator
from rlwb.trainer import list_checkpoints

_OUT = RESULTS.with_name("learners.json")
#: Name to what a method changes of the run's defaults; one line adds another.
METHODS: dict[str, dict[str, Any]] = {
    "all_actions": {},
    "ppo": {"algorithm": "ppo"},
    "pathwise": {"algorithm": "pathwise"},
    "ppo, continuous": {"algorithm": "ppo", "action_interpreter": "position_share"},
    "ppo, recurrent": {
        "algorithm": "ppo",
        "network": "recurrent",
        "head": {"mask_actions": False, "even_start": False},
    },
}
ATTAINABLE, KNOWING, RULE = "filter_optimum", "filter_optimum, volatility known", "forecast"
#: Name to the baseline.
_RULES: dict[str, Any] = {
    "twap": "twap",
    RULE: "forecast",
    ATTAINABLE: {"name": "filter_optimum", "knows_volatility": False},
    KNOWING: {"name": "filter_optimum", "knows_volatility": True},
    "hindsight": "hindsight",
}
#: Part to its market and training seeds.
PARTS = {"table": (3, 5), "days": (3, 2), "noise": (10, 2)}
#: Training days over those of the default run.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Iterations whose checkpoints are judged on the test orders for the learning curve.
_SHOWN = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 35, 40)
_RESAMPLES = 2000

Row = dict[str, Any]


class Task(NamedTuple):
    """A training; of a rule's rows `training_seed` is None."""

    part: str
    days: float
    market_seed: int
    training_seed: int | None
    method: str

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Task:
        """Return what a row is the result of."""
        return cls(*(row[name] for name in cls._fields))


def config_of(task: Task, changes: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a training."""
    own = {"market.seed": task.market_seed, "seed": task.training_seed, "baselines": list(_RULES.values())}
    shared = {**own, **METHODS[task.method], **changes}
    if task.part == "noise":
        shared["market.signal"] = 0.0
    if task.part == "days":
        shared |= more_days(task.days, shared.get("market.days", SyntheticSettings().days))
    return RunConfig.load(None, Layer("learners", shared))


def more_days(factor: float, days: int) -> Row:
    """Return the settings of a market whose training days are those of a run of `days` days times `factor`.

    Validation and test are the same sessions for all `FACTORS`: a market's first days do not depend on their number.
    """
    train, judged = round(0.6 * days), round(0.2 * days)
    total = round(max(FACTORS) * train) + 2 * judged
    ends = np.cumsum([total - 2 * judged - round(factor * train), round(factor * train), judged, judged])
    dates = np.busday_offset(SyntheticSettings().start, np.arange(total), roll="forward").astype(str)
    spans = {part: [dates[ends[at]], dates[ends[at + 1] - 1]] for at, part in enumerate(("train", "valid", "test"))}
    return {"market.days": total, **{f"split.{part}": list(map(str, span)) for part, span in spans.items()}}


def measure(task: Task, changes: Mapping[str, Any], *, with_rules: bool = True) -> list[Row]:
    """Return the row of a training, and those of the rules on its market."""
    config = config_of(task, changes)
    with tempfile.TemporaryDirectory(prefix="rlwb-learners-") as folder:
        run = RunDirectory.create(Path(folder) / "run", config)
        run_stage(ORDERS, run, config, make_orders, echo=lambda line: None)
        clock, began = Clock(), time.monotonic()
        run_stage(TRAIN, run, config, lambda run, config: train_policy(run, config, [clock], progress="none"))
        seconds = time.monotonic() - began
        run_stage(BACKTEST, run, config, backtest_policies, echo=lambda line: None)
        table = pd.read_csv(run.backtest / "headline.csv").set_index("policy")
        table = table.rename(index=dict(zip(baseline_labels(config.baselines), _RULES, strict=True)))
        tested = _tested(run, config) if task.part == "table" else {}
        curve = [[p["iteration"], round(p["seconds"], 2), round(p["pa"], 3)] for p in clock.points]
        found = {"seconds": round(seconds, 1), "curve": [[*point, tested.get(point[0])] for point in curve]}
        signal = config.market.settings["signal"]
        rows = [task._asdict() | {"signal": signal, **_figures("checkpoints", table), **found}]
        rows[0]["over_rule"] = _over_rule(run, table.loc["checkpoints"])
        for name in _RULES if with_rules else ():
            rule = task._replace(method=name, training_seed=None)
            rows.append(rule._asdict() | {"signal": signal, **_figures(name, table), "seconds": None})
        return rows


def _figures(policy: str, table: pd.DataFrame) -> Row:
    """Return PA with its interval over days, in basis points, and the share of the attainable, None where that is 0."""
    best, row = float(table.loc[ATTAINABLE, "pa_mean"]), table.loc[policy]
    pa = {name: float(row[f"pa_{key}"]) for name, key in (("pa", "mean"), ("lo", "lo"), ("hi", "hi"))}
    return {**pa, "attainable": best, "share": pa["pa"] / best if best > 0 else None}


def _tested(run: RunDirectory, config: RunConfig) -> dict[int, float]:
    """Return the PA on the test orders of some checkpoints, in basis points."""
    bench = workbench(run, config)
    orders = bench.align(load_orders(run, bench, "test"))
    shown = {number: path for number, path in list_checkpoints(run.checkpoints).items() if number in _SHOWN}
    judged = {number: play(bench, checkpoint_policy(bench, path), orders) for number, path in shown.items()}
    return {number: round(episodes.means()["pa"], 3) for number, episodes in judged.items()}


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
    for cells in _by_market(rows).values():
        seeds, days = (rng.multinomial(n, np.full(n, 1 / n), size=_RESAMPLES) / n for n in cells.shape)
        markets.append((cells.mean(), np.einsum("rs,sd,rd->r", seeds, cells, days)))
    drawn = np.mean([resampled for _, resampled in markets], axis=0)
    lo, hi = np.quantile(drawn, [0.025, 0.975])
    return float(np.mean([value for value, _ in markets])), float(lo), float(hi)


def _by_market(rows: Sequence[Mapping[str, Any]]) -> dict[int, np.ndarray]:
    """Return by market seed how far each training lies above the rule on each day."""
    markets = dict.fromkeys(row["market_seed"] for row in rows)
    return {one: np.array([row["over_rule"] for row in rows if row["market_seed"] == one]) for one in markets}


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the tables of all parts that have rows."""
    made = {"table": _table, "days": _days, "noise": _noise}
    own = {part: [row for row in rows if row["part"] == part] for part in made}
    return "\n\n".join("\n".join(make(own[part])) for part, make in made.items() if own[part])


def _grouped(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for method in dict.fromkeys(row["method"] for row in rows):
        yield method, [row for row in rows if row["method"] == method]


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line a method, over all market and training seeds."""
    header = ["method", "trainings", "PA, IQM, bp", "of the attainable, IQM", "lowest", "over the simple rule, bp"]
    yield _line(*header, "in each market, bp", "seconds")
    yield "|---|--:|--:|--:|--:|---|---|--:|"
    for method, own in _grouped(rows):
        pa, share = (np.array([row[name] for row in own]) for name in ("pa", "share"))
        middle = [f"{interquartile_mean(pa):.2f}", f"{interquartile_mean(share):.1%}", f"{share.min():.1%}"]
        over, markets, seconds = "–", "–", "–"
        if method in METHODS:
            mean, lo, hi = paired(own)
            over = f"{mean:.2f} [{lo:.2f}, {hi:.2f}]"
            markets = ", ".join(f"{cells.mean():z.2f}" for cells in _by_market(own).values())
            seconds = f"{np.median([row['seconds'] for row in own]):.0f}"
        yield _line(method, str(len(own)), *middle, over, markets, seconds)


def _days(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line a method: mean PA at each factor, and its share of the filter that knows the volatility."""
    factors = sorted({row["days"] for row in rows})
    yield _line("PA, bp (of the filter that knows the volatility)", *(f"{one:g} × the days" for one in factors))
    yield _line("---", *("--:" for _ in factors)).replace(" ", "")
    mean = pd.DataFrame(rows).groupby(["method", "days"])["pa"].mean()
    for method, _ in _grouped(rows):
        known = [factor for factor in factors if (method, factor) in mean.index]
        cells = {f: f"{mean[method, f]:.2f} ({mean[method, f] / mean[KNOWING, f]:.0%})" for f in known}
        yield _line(method, *(cells.get(factor, "–") for factor in factors))


def _noise(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one line a method: in how many runs without a signal its interval lies above 0."""
    yield _line("method, no signal", "runs", "found something", "95 % interval", "mean PA, bp")
    yield "|---|--:|--:|---|--:|"
    for method, own in _grouped(rows):
        if method in METHODS:
            finds = sum(row["lo"] > 0 for row in own)
            ends = binomtest(finds, len(own)).proportion_ci()
            pa = np.mean([row["pa"] for row in own])
            yield _line(method, str(len(own)), str(finds), f"[{ends.low:.1%}, {ends.high:.1%}]", f"{pa:z.2f}")


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw PA against seconds of training and against training days, to `path` with the endings .png and .svg."""
    with style.theme("light", width=1200):
        save(_drawn(rows), path)


@style.styled
def _drawn(rows: Sequence[Mapping[str, Any]]) -> Figure:
    table, days = (pd.DataFrame([row for row in rows if row["part"] == part]) for part in ("table", "days"))
    means = table.groupby("method")["pa"].mean() if len(table) else pd.Series(dtype=float)
    trained = means[means.index.isin(METHODS)]
    title = "0 trainings" if trained.empty else f"{trained.idxmax()}: mean test PA {trained.max():.1f} bp"
    if ATTAINABLE in means:
        title += f"; {ATTAINABLE} {means[ATTAINABLE]:.1f} bp"
    subtitle = "left: median and middle half of trainings; right: mean over market and training seeds"
    figure, (left, right) = style.canvas(title, subtitle, columns=2, height=4.0, share_x=False)
    looks = dict(zip((*METHODS, RULE, ATTAINABLE, KNOWING), style.points(len(METHODS) + 3), strict=True))
    for method, (color, marker) in looks.items():
        is_trained = method in METHODS
        if len(table):
            own = table[table["method"] == method]
            points = [point for curve in own["curve"].dropna() for point in curve if point[3] is not None]
            if points:
                each = pd.DataFrame(points, columns=["iteration", "seconds", "valid", "pa"]).groupby("iteration")
                lo, middle, hi = (each["pa"].quantile(one) for one in (0.25, 0.5, 0.75))
                seconds = each["seconds"].median()
                left.fill_between(seconds, lo, hi, color=color, alpha=0.15, linewidth=0)
                left.plot(seconds, middle, color=color, marker=marker, markersize=3, label=method)
            elif len(own):
                left.axhline(own["pa"].mean(), color=color, linestyle="--", linewidth=1.2, label=method)
        if len(days) and (days["method"] == method).any():
            mean = days[days["method"] == method].groupby("days")["pa"].mean()
            right.plot(mean, "-" if is_trained else "--", color=color, marker=marker, markersize=3, label=method)
    left.set(xlabel="time of training on one core, s", ylabel="PA on test orders, bp")
    right.set(xlabel="training days, times the default's 144", ylabel="PA on test orders, bp")
    right.set_xscale("log", base=2)
    right.set_xticks(FACTORS, [f"{one:g}" for one in FACTORS])
    return figure


def ordered(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Return rows by part, method, factor of days, market seed and training seed; rules first."""
    names, parts = [*_RULES, *METHODS], list(PARTS)

    def key(row: Row) -> tuple[int, int, float, int, int]:
        at = Task.of(row)
        return (parts.index(at.part), names.index(at.method), at.days, at.market_seed, at.training_seed or 0)

    return sorted((dict(row) for row in rows if row["method"] in names), key=key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one market, one seed, short trainings, two factors")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--markets", type=int, help="market seeds, 0 to one less than this")
    parser.add_argument("--seeds", type=int, help="training seeds, 0 to one less than this")
    parser.add_argument("--days", type=float, nargs="+", choices=FACTORS, default=list(FACTORS), metavar="FACTOR")
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
    rows = {Task.of(row): row for row in kept}
    tasks: list[Task] = []
    for part in args.parts:
        markets, seeds = (args.markets or PARTS[part][0], args.seeds or PARTS[part][1]) if not args.quick else (1, 1)
        factors = (args.days[:2] if args.quick else args.days) if part == "days" else (1.0,)
        tasks += [Task(part, *of) for of in itertools.product(factors, range(markets), range(seeds), args.methods)]
    tasks = [task for task in tasks if not (args.missing and task in rows)]
    about = context()
    with (
        ProcessPoolExecutor(args.jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
        tqdm(total=len(tasks), unit="training") as bar,
    ):
        first = {task[:3]: task for task in reversed(tasks)}.values()
        trainings = [pool.submit(measure, task, changes, with_rules=task in first) for task in tasks]
        for done in as_completed(trainings):
            for row in done.result():
                rows[Task.of(row)] = {**row, **about}
            write_json(out, ordered(rows.values()))  # after each, so that one cut short has lost little
            bar.update()
    plot(ordered(rows.values()), out)
    print(f"\n{markdown(ordered(rows.values()))}")


if __name__ == "__main__":
    main()
