"""The frontier of mean and deviation, and how near learners with a dial of aversions come to it: ``make frontier``.

Rows are ``{market, aversion, method, mean, sd, cvar, seed, distance}``: mean, standard deviation and mean of the worst
twentieth of the net PA in basis points, and the distance from the frontier as a share of its span. `traced` makes those
of a market of `rlwb.certificate`, `frontier_markets` those of others, whose frontier is that of the measured policies.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

from benchmarks import frontier_markets
from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.certificate import DIALLED, WalkMarket, trace, walk_market
from rlwb.evaluation.frontier import hypervolume
from rlwb.files import write_json

_OUT = RESULTS.with_name("frontier.json")
#: Name to market with a known frontier. The learners' settings were chosen on the seeds 10 and 11, not measured here.
MARKETS: dict[str, Callable[[], WalkMarket]] = {"almgren_chriss": walk_market}
#: Name of the rows of the frontier itself.
OPTIMUM = "optimum"
#: What --quick changes.
_QUICK = {"iterations": 2, "episodes": 180}

Row = dict[str, Any]


def traced(tasks: Sequence[tuple[str, str, int]], *, jobs: int = 1, **settings: Any) -> Iterator[list[Row]]:
    """Yield the rows of each training, of (market, method, seed), as it ends; `jobs` at a time, of one thread each."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(_run, settings, task) for task in tasks]
        for run in as_completed(runs):
            yield run.result()


def _run(settings: dict[str, Any], task: tuple[str, str, int]) -> list[Row]:
    market, method, seed = task
    torch.set_num_threads(1)
    return trace(_market(market), method, seed, **settings)


@functools.cache
def _market(name: str) -> WalkMarket:
    return MARKETS[name]()


def optimum(name: str) -> list[Row]:
    """Return the rows of a known frontier, at the settings of the market's dial."""
    market = _market(name)
    pairs = zip(market.settings.aversions, market.frontier, strict=True)
    about = {"market": name, "method": OPTIMUM, "seed": None, "distance": 0.0, "gap": 0.0}
    return [
        {**about, "aversion": aversion, "mean": point.mean, "sd": point.deviation, "cvar": point.cvar}
        for aversion, point in pairs
    ]


def shares(rows: Iterable[Row]) -> list[Row]:
    """Return for each training its worst distance and gap, and its share of the hypervolume of the optimum's points."""
    rows, found = list(rows), []
    for market, method, seed in dict.fromkeys((row["market"], row["method"], row["seed"]) for row in rows):
        if method == OPTIMUM or market not in MARKETS:
            continue
        corner = tuple(_market(market).corner)
        own = [row for row in rows if (row["market"], row["method"], row["seed"]) == (market, method, seed)]
        best = [row for row in rows if (row["market"], row["method"]) == (market, OPTIMUM)]
        area, whole = (hypervolume([r["mean"] for r in part], [r["sd"] for r in part], corner) for part in (own, best))
        found.append(
            {
                "market": market,
                "method": method,
                "seed": seed,
                "distance": max(row["distance"] for row in own),
                "gap": max(row["gap"] for row in own),
                "hypervolume": area / whole,
                "seconds": own[0]["seconds"],
            }
        )
    return found


def markdown(rows: Iterable[Row]) -> str:
    """Return the shares in a Markdown table, a line for each market and method, with the worst of the seeds."""
    lines = [
        "| market | method | distance, worst setting and seed | gap | hypervolume, worst seed | seeds | seconds |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    found = shares(rows)
    for market, method in dict.fromkeys((one["market"], one["method"]) for one in found):
        of = [one for one in found if (one["market"], one["method"]) == (market, method)]
        far, gap, area = max(o["distance"] for o in of), max(o["gap"] for o in of), min(o["hypervolume"] for o in of)
        seconds = float(np.median([one["seconds"] for one in of]))
        lines.append(f"| {market} | {method} | {far:.2%} | {gap:.2%} | {area:.1%} | {len(of)} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, short trainings, to see that all runs")
    markets = [*MARKETS, *frontier_markets.MARKETS]
    parser.add_argument("--markets", nargs="+", choices=markets, default=markets)
    parser.add_argument("--methods", nargs="+", choices=list(DIALLED), default=list(DIALLED))
    parser.add_argument("--seeds", type=int, default=5, help="0 to one less than this")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at a time")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the real bars")
    parser.add_argument("--out", type=Path, help="where the rows go; results/frontier.json by default")
    args = parser.parse_args()
    out = args.out or (_OUT.with_name("frontier-quick.json") if args.quick else _OUT)
    seeds = range(1 if args.quick else args.seeds)
    known = [market for market in args.markets if market in MARKETS]
    tasks = [(market, method, seed) for market in known for method in args.methods for seed in seeds]
    others = [name for one in args.markets if one not in MARKETS for name in frontier_markets.names(one, args.data)]
    about, done = context(), {*tasks, *((market, OPTIMUM, None) for market in known)}
    kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    again = [row for row in kept if (row["market"], row["method"], row["seed"]) in done or row["market"] in others]
    rows = [row for row in kept if row not in again]
    rows += [{**row, **about} for market in known for row in optimum(market)]
    changes = frontier_markets.QUICK if args.quick else {}
    with tqdm(total=len(tasks) + len(others), unit="training") as bar:
        for made in itertools.chain(
            traced(tasks, jobs=args.jobs, **(_QUICK if args.quick else {})),
            frontier_markets.measured(others, args.data, out.parent, changes, jobs=args.jobs),
        ):
            rows += [{**row, **about} for row in made]
            rows.sort(key=lambda row: (row["market"], row["method"], -1 if row["seed"] is None else row["seed"]))
            write_json(out, rows)  # after each, so that one cut short has lost little
            bar.update()
    print(f"\n{markdown(rows)}")
    for market in others:
        print(f"\n{market}\n\n{frontier_markets.markdown(rows, market)}")


if __name__ == "__main__":
    main()
