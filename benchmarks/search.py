"""Samplers of ``rlwb search`` against random search at equal trials: ``make bench-search``.

Two problems. In the first the optimum is known: a function of five settings of different kinds, seen with noise as a
validation is, so that the best that a search has seen is better than what it has found. The second is a small real
search of a learner on the synthetic market, with rules tuned beside it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.files import write_json, write_text
from rlwb.seeds import generator
from rlwb.study.search_report import over_seeds
from rlwb.study.space import Dimension
from rlwb.study.store import SearchSettings, maximise

_OUT = RESULTS.with_name("search.json")
SAMPLERS = ("grid", "random", "tpe", "gp")
#: Settings of the known problem; its optimum is 0.
DIMENSIONS = (
    Dimension("learning_rate", "float", (), 1e-5, 1e-1, log=True),
    Dimension("gamma", "float", (), 0.9, 1.0),
    Dimension("hidden", "int", (), 8, 256, log=True),
    Dimension("repeat", "int", (), 1, 16),
    Dimension("network", "choice", (("recurrent", "recurrent"), ("convolution", "convolution"), ("mlp", "mlp"))),
)
#: Standard deviation of what is seen of the known problem.
NOISE = 0.3
#: The configuration of the real search: a training of seconds, on the embedded market.
REAL: dict[str, Any] = {
    "market": {"name": "synthetic", "instruments": 8, "days": 120},
    "network": {"name": "recurrent", "hidden": {"value": 16, "search": [8, 16, 32]}},
    "algorithm": {
        "name": "ppo",
        "learning_rate": {"value": 3e-4, "search": {"low": 1e-4, "high": 3e-2, "log": True}},
        "entropy_coef": {"value": 0.01, "search": {"low": 1e-4, "high": 0.1, "log": True}},
        "repeat": {"value": 2, "search": {"low": 1, "high": 4}},
    },
    "train": {"iterations": 24, "episodes_per_iteration": 300},
}


def known(chosen: Mapping[str, Any]) -> float:
    """Return the true value of settings, at most 0: a ridge in rate and repeat, a bowl in the others."""
    rate, repeat = math.log10(chosen["learning_rate"]) + 3, math.log2(chosen["repeat"] / 4)
    along, across = rate + repeat / 2, rate - repeat / 2
    bowl = 0.5 * along**2 + 0.1 * across**2 + (10 * (chosen["gamma"] - 0.98)) ** 2
    bowl += 0.15 * math.log2(chosen["hidden"] / 64) ** 2
    return -bowl - {"recurrent": 0.0, "convolution": 0.3, "mlp": 1.0}[chosen["network"]]


def search_known(sampler: str, trials: int, seed: int) -> dict[str, float]:
    """Search the known problem; return the best that was seen, what it is truly worth, and the seconds."""
    rng, true = generator(seed, 1), list[float]()

    def seen(chosen: dict[str, Any]) -> float:
        true.append(known(chosen))
        return true[-1] + NOISE * float(rng.standard_normal())

    settings = SearchSettings.model_validate({"trials": trials, "sampler": sampler})
    first = _grid(trials) if sampler == "grid" else []
    began = time.perf_counter()
    values = maximise(seen, DIMENSIONS, settings, seed, first)
    taken = time.perf_counter() - began
    best = int(np.argmax(values))
    return {"best": values[best], "fresh": true[best], "seconds": taken}


def _grid(trials: int) -> list[dict[str, Any]]:
    """Return a grid of the two ends of each range and the whole choice, as far as the trials go."""
    values = [one.grid(2) for one in DIMENSIONS]
    cells = itertools.product(*reversed(values))
    return [dict(zip([one.name for one in reversed(DIMENSIONS)], cell, strict=True)) for cell in cells][:trials]


def measure_known(trials: int, seeds: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return a row a sampler on the known problem, over as many seeds as are given for it."""
    found = {
        sampler: [search_known(sampler, trials, seed) for seed in range(count)] for sampler, count in seeds.items()
    }
    return [_row("known optimum", sampler, trials, runs, found["random"]) for sampler, runs in found.items()]


def _row(
    problem: str, sampler: str, trials: int, runs: Sequence[Mapping[str, float]], beside: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Return means over seeds, and how far a sampler is above random search of the same seeds, with the interval."""
    over = over_seeds([mine["fresh"] - other["fresh"] for mine, other in zip(runs, beside, strict=False)])
    return {
        "problem": problem,
        "sampler": sampler,
        "trials": trials,
        "seeds": len(runs),
        "best": float(np.mean([one["best"] for one in runs])),
        "fresh_mean": float(np.mean([one["fresh"] for one in runs])),
        "over_random": None if sampler == "random" else over.mean,
        "over_random_lo": None if sampler == "random" else over.lo,
        "over_random_hi": None if sampler == "random" else over.hi,
        "seconds": float(np.mean([one["seconds"] for one in runs])),
    }


def measure_real(
    folder: Path, trials: int, fresh: int, samplers: Iterable[str] = ("random", "tpe")
) -> list[dict[str, Any]]:
    """Return a row for what each sampler finds in a real search, and one for each rule tuned with as many trials."""
    from rlwb.experiment.yamlfile import dump_yaml
    from rlwb.study.search import launch_search

    file, rows, found = folder / "real.yaml", [], {}
    file.write_text(dump_yaml(REAL), encoding="utf-8")
    for sampler in samplers:
        rules = ("pov", "almgren_chriss") if sampler == "tpe" else ()
        given = {"trials": trials, "sampler": sampler, "pruner": "none", "confirm": 2, "fresh_seeds": fresh}
        began = time.perf_counter()
        report = launch_search(file, [], folder / sampler, rules=rules, given=given, echo=lambda line: None)
        taken = time.perf_counter() - began
        for name, number in report.winners.items():
            (winner,) = (one for one in report.confirmed if (one.study, one.number) == (name, number))
            shrunk = winner.estimate.below(winner.value)
            row = {
                "problem": "learner on the synthetic market" if name == "learner" else name,
                "sampler": sampler,
                "trials": trials,
                "seeds": fresh,
                "best": winner.value,
                "fresh_mean": winner.estimate.mean,
                "shrinkage": shrunk.mean,
                "shrinkage_lo": shrunk.lo,
                "shrinkage_hi": shrunk.hi,
                "seconds": taken,
            }
            rows.append(row)
            if name == "learner":
                found[sampler] = (row, winner.fresh)
    if len(found) == 2:
        (_, first), (row, second) = found["random"], found["tpe"]
        over = over_seeds([mine - other for mine, other in zip(second, first, strict=True)])
        row |= {"over_random": over.mean, "over_random_lo": over.lo, "over_random_hi": over.hi}
    return rows


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| problem | sampler | trials | seeds | best seen | fresh mean | over random | seconds |",
        "|---|---|--:|--:|--:|--:|---|--:|",
    ]
    for row in rows:
        over = "-"
        if row.get("over_random") is not None:
            over = f"{row['over_random']:.2f} [{row['over_random_lo']:.2f}, {row['over_random_hi']:.2f}]"
        cells = [row["problem"], row["sampler"], str(row["trials"]), str(row["seeds"])]
        cells += [f"{row['best']:.2f}", f"{row['fresh_mean']:.2f}", over, f"{row['seconds']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    parser.add_argument("--out", type=Path, default=None, help="where the rows go")
    parser.add_argument(
        "--into", type=Path, help="a document with the marks <!-- search -->; the table goes between them"
    )
    parser.add_argument("--known", action="store_true", help="the problem with a known optimum alone")
    options = parser.parse_args()
    trials, many, few = (6, 3, 2) if options.quick else (48, 30, 6)
    about = context()
    rows = measure_known(trials, {**dict.fromkeys(SAMPLERS, many), "gp": few})
    if not options.known:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure_real(Path(folder), *((3, 2) if options.quick else (16, 3)))
    out = options.out or (_OUT.with_name("search-quick.json") if options.quick else _OUT)
    write_json(out, [{**row, **about} for row in rows])
    if options.into:
        text = options.into.read_text(encoding="utf-8")
        before, after = text.split("<!-- search -->")[0], text.split("<!-- /search -->")[1]
        write_text(options.into, f"{before}<!-- search -->\n{markdown(rows)}\n<!-- /search -->{after}")
    print(markdown(rows))


if __name__ == "__main__":
    main()
