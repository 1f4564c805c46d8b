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

from tqdm.auto import tqdm

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.certificate import MARKETS as CERTIFIED
from rlwb.certificate import METHODS, CertifiedMarket, EmbeddedMarket, certify, run_config
from rlwb.certificate.certify import learner_settings
from rlwb.errors import ConfigError
from rlwb.experiment.config import parse_assignments
from rlwb.files import write_json

_OUT = RESULTS.with_name("certificate.json")
#: Methods that have rows: those that are measured by default, and others that can be asked for.
_METHODS = (*METHODS, "all_actions", "opd")
#: Name to market; each is measured by the settings of a run by default.
MARKETS: dict[str, Callable[[], CertifiedMarket | EmbeddedMarket]] = {**CERTIFIED, "synthetic": EmbeddedMarket}
#: A run: the names of market and method, and the seed.
_Task = tuple[str, str, int]
#: What --quick changes.
_QUICK = {"train.iterations": 2, "train.episodes_per_iteration": 100}


def measure(tasks: Sequence[_Task], changes: dict[str, Any], *, jobs: int = 1) -> Iterator[dict[str, Any]]:
    """Yield one row a run as it ends: what `certify` gives; `jobs` runs at a time, several each in a process."""
    if jobs == 1:
        yield from (_run(changes, task) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs = [pool.submit(_run, changes, task) for task in tasks]
        for run in as_completed(runs):
            yield run.result()


def _run(changes: dict[str, Any], task: _Task) -> dict[str, Any]:
    name, method, seed = task
    market = _market(name)
    told = {"settings": learner_settings(run_config(market, method, seed, changes))}
    told["stopping"] = isinstance(market, CertifiedMarket) and market.stopping
    try:
        return {**certify(market, method, seed, changes=changes), **told}
    except ConfigError as error:
        return {"market": name, "method": method, "seed": seed, "share": None, "refused": str(error), **told}


@functools.cache
def _market(name: str) -> CertifiedMarket | EmbeddedMarket:
    return MARKETS[name]()


def is_current(row: dict[str, Any], changes: dict[str, Any]) -> bool:
    """Tell whether a row was measured with the settings that its learner would be trained with now."""
    config = run_config(_market(row["market"]), row["method"], row["seed"], changes)
    return row.get("settings") == learner_settings(config)


def ordered(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of `MARKETS` and `_METHODS` in the order of these, then by seed."""
    markets, methods = list(MARKETS), list(_METHODS)
    known = [row for row in rows if row["market"] in MARKETS and row["method"] in _METHODS]
    return sorted(known, key=lambda row: (markets.index(row["market"]), methods.index(row["method"]), row["seed"]))


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return the shares of the optimum in a Markdown table, a line a market and method, and below why some refuse."""
    titles = (
        "market | problem | method | optimum, bp | TWAP, bp | share, median | share, worst | seeds | seconds, median"
    )
    lines, why = [f"| {titles} |", "|---|---|---|--:|--:|--:|--:|--:|--:|"], []
    for market, method in dict.fromkeys((row["market"], row["method"]) for row in rows):
        of = [row for row in rows if (row["market"], row["method"]) == (market, method)]
        problem = "stopping" if of[0].get("stopping") else "spreading"
        refused = next((row["refused"] for row in of if "refused" in row), None)
        if refused is not None:
            cells = [market, problem, method, "–", "–", "refused", "–", "–", "–"]
            why.append(f"- {market}, {method}: {refused}")
        else:
            shares = [row["share"] for row in of if not _missing(row["share"])]
            cells = [
                market,
                "–" if market == "synthetic" else problem,
                method,
                f"{of[0]['optimum']:.3f}",
                f"{round(of[0]['twap'], 6) + 0.0:.3f}",
                f"{statistics.median(shares):.1%}" if shares else "–",
                f"{min(shares):.1%}" if shares else "–",
                str(len(of)),
                f"{statistics.median(row['seconds'] for row in of):.0f}",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, *([""] if why else []), *why])


def _missing(share: float | None) -> bool:
    """Say whether the market has nothing to gain, so that there is no share of it: NaN, in JSON null."""
    return share is None or math.isnan(share)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two markets, short trainings, to see that all runs")
    parser.add_argument("--markets", nargs="+", choices=list(MARKETS), help="all by default")
    parser.add_argument("--methods", nargs="+", choices=_METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=5, help="0 to one less than this")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument(
        "--missing", action="store_true", help="only what has no row of these settings yet, as after a run cut short"
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="settings in place of the defaults")
    parser.add_argument("--out", type=Path, help="where the rows go; results/certificate.json by default")
    args = parser.parse_args()
    markets = args.markets or list(MARKETS)[: 2 if args.quick else None]
    changes = {**(_QUICK if args.quick else {}), **parse_assignments(args.set).values}
    about = context()
    out = args.out or (_OUT.with_name("certificate-quick.json") if args.quick else _OUT)
    kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else []
    kept = [row for row in kept if "settings" in row]  # others were measured by settings of their own
    rows = {(row["market"], row["method"], row["seed"]): row for row in kept}
    tasks = list(itertools.product(markets, args.methods, range(1 if args.quick else args.seeds)))
    if args.missing:
        tasks = [task for task in tasks if task not in rows or not is_current(rows[task], changes)]
    with tqdm(total=len(tasks), unit="run") as bar:
        for row in measure(tasks, changes, jobs=args.jobs):
            rows[row["market"], row["method"], row["seed"]] = {**row, **about}
            # After each run, so that one cut short has lost little.
            write_json(out, ordered(rows.values()))
            share = "no share" if _missing(row["share"]) else f"{row['share']:.1%} in {row['seconds']:.0f} s"
            bar.write(f"{row['market']}, {row['method']}, seed {row['seed']}: {row.get('refused', share)}")
            bar.update()
    print(f"\n{markdown(ordered(rows.values()))}")


if __name__ == "__main__":
    main()
