"""How near the learners come to the best policy of markets where it is known: ``make certificate``."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.certificate import METHODS, CertifiedMarket, TreeSettings, certify, gaussian_market, tree_market
from rlwb.files import write_json

_OUT = RESULTS.with_name("certificate.json")
#: Name to market. The learners' settings were chosen on the seeds 10 and 11, which are not measured here.
MARKETS: dict[str, Callable[[], CertifiedMarket]] = {
    "tree": tree_market,
    "tree, penalty 4": lambda: tree_market(TreeSettings(penalty=4.0), name="tree, penalty 4"),
    "tree, momentum": lambda: tree_market(TreeSettings(signal="momentum"), name="tree, momentum"),
    "gaussian": gaussian_market,
}
#: Iterations where the learners' own number is too small: half as much is to be gained there beside the same scatter.
ITERATIONS = {"tree, penalty 4": 200, "tree, momentum": 200}
#: A run: the names of market and method, and the seed.
_Task = tuple[str, str, int]
#: What --quick changes.
_QUICK = {"iterations": 3, "episodes": 100}


def measure(tasks: Sequence[_Task], *, jobs: int = 1, **settings: Any) -> Iterator[dict[str, Any]]:
    """Yield one row a run as it ends: what `certify` gives; `jobs` runs at a time, each in a process of one thread."""
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(_run, settings, task) for task in tasks]
        for run in as_completed(runs):
            yield run.result()


def _run(settings: dict[str, Any], task: _Task) -> dict[str, Any]:
    market, method, seed = task
    torch.set_num_threads(1)
    length = {"iterations": ITERATIONS[market]} if market in ITERATIONS else {}
    return certify(_market(market), method, seed, every=10, **{**length, **settings})


@functools.cache
def _market(name: str) -> CertifiedMarket:
    return MARKETS[name]()


def ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of `MARKETS` and `METHODS` in the order of these, then by seed."""
    markets, methods = list(MARKETS), list(METHODS)
    known = [row for row in rows if row["market"] in MARKETS and row["method"] in METHODS]
    return sorted(known, key=lambda row: (markets.index(row["market"]), methods.index(row["method"]), row["seed"]))


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the shares of the optimum in a Markdown table, a line for each market and method."""
    lines = [
        "| market | method | optimum, bp | TWAP, bp | share, median | share, worst | seeds | seconds, median |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for market, method in dict.fromkeys((row["market"], row["method"]) for row in rows):
        of = [row for row in rows if (row["market"], row["method"]) == (market, method)]
        shares = [row["share"] for row in of if not _missing(row["share"])]
        cells = [
            market,
            method,
            f"{of[0]['optimum']:.3f}",
            f"{of[0]['twap'] + 0.0:.3f}",
            f"{statistics.median(shares):.1%}" if shares else "–",
            f"{min(shares):.1%}" if shares else "–",
            str(len(of)),
            f"{statistics.median(row['seconds'] for row in of):.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _missing(share: float | None) -> bool:
    """Say whether the market has nothing to gain, so that there is no share of it: NaN, in JSON null."""
    return share is None or math.isnan(share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two markets, short trainings, to see that all runs")
    parser.add_argument("--markets", nargs="+", choices=list(MARKETS), help="all by default")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5, help="0 to one less than this")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--missing", action="store_true", help="only what has no row yet, as after a run cut short")
    parser.add_argument("--out", type=Path, help="where the rows go; results/certificate.json by default")
    args = parser.parse_args()
    markets = args.markets or list(MARKETS)[: 2 if args.quick else None]
    settings = _QUICK if args.quick else {}
    about = context()
    out = args.out or (_OUT.with_name("certificate-quick.json") if args.quick else _OUT)
    kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    rows = {(row["market"], row["method"], row["seed"]): row for row in kept}
    tasks = list(itertools.product(markets, args.methods, range(1 if args.quick else args.seeds)))
    if args.missing:
        tasks = [task for task in tasks if task not in rows]
    with tqdm(total=len(tasks), unit="run") as bar:
        for row in measure(tasks, jobs=args.jobs, **settings):
            rows[row["market"], row["method"], row["seed"]] = {**row, **about}
            # After each run, so that one cut short has lost little.
            write_json(out, ordered(rows.values()))
            share = "no share" if _missing(row["share"]) else f"{row['share']:.1%}"
            bar.write(f"{row['market']}, {row['method']}, seed {row['seed']}: {share} in {row['seconds']:.0f} s")
            bar.update()
    print(f"\n{markdown(ordered(rows.values()))}")


if __name__ == "__main__":
    main()
