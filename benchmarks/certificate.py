"""How near the learners come to the best policy of markets where it is known: ``make certificate``."""

from __future__ import annotations

import argparse
import datetime
import functools
import itertools
import multiprocessing
import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import describe_machine, load
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
#: What --quick changes.
_QUICK = {"iterations": 3, "episodes": 100}


def measure(
    markets: Sequence[str], methods: Sequence[str], seeds: int, *, jobs: int = 1, **settings: Any
) -> list[dict[str, Any]]:
    """Return one row a run: what `certify` gives; `jobs` runs at a time, each in a process of one thread."""
    tasks = list(itertools.product(markets, methods, range(seeds)))
    rows = []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for row in pool.map(functools.partial(_run, settings), tasks):
            print(
                f"{row['market']}, {row['method']}, seed {row['seed']}: {row['share']:.1%} in {row['seconds']:.0f} s",
                flush=True,
            )
            rows.append(row)
    return rows


def _run(settings: dict[str, Any], task: tuple[str, str, int]) -> dict[str, Any]:
    market, method, seed = task
    torch.set_num_threads(1)
    return certify(_market(market), method, seed, every=10, **settings)


@functools.cache
def _market(name: str) -> CertifiedMarket:
    return MARKETS[name]()


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the shares of the optimum in a Markdown table, a line for each market and method."""
    lines = [
        "| market | method | optimum, bp | TWAP, bp | share, median | share, worst | seeds | seconds, median |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for market, method in dict.fromkeys((row["market"], row["method"]) for row in rows):
        of = [row for row in rows if (row["market"], row["method"]) == (market, method)]
        shares = [row["share"] for row in of]
        cells = [
            market,
            method,
            f"{of[0]['optimum']:.3f}",
            f"{of[0]['twap'] + 0.0:.3f}",
            f"{statistics.median(shares):.1%}",
            f"{min(shares):.1%}",
            str(len(of)),
            f"{statistics.median(row['seconds'] for row in of):.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two markets, short trainings, to see that all runs")
    parser.add_argument("--markets", nargs="+", choices=list(MARKETS), help="all by default")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5, help="0 to one less than this")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--out", type=Path, help="where the rows go; results/certificate.json by default")
    args = parser.parse_args()
    markets = args.markets or list(MARKETS)[: 2 if args.quick else None]
    began = load()
    settings = _QUICK if args.quick else {}
    rows = measure(markets, args.methods, 1 if args.quick else args.seeds, jobs=args.jobs, **settings)
    context = {
        "machine": describe_machine(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "load": round(began, 2),
    }
    out = args.out or (_OUT.with_name("certificate-quick.json") if args.quick else _OUT)
    write_json(out, [{**row, **context} for row in rows])
    print(f"\n{markdown(rows)}")


if __name__ == "__main__":
    main()
