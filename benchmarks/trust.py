"""How far the figures of a run can be trusted, counted: ``make trust``.

Three parts, each a module of its own that returns its piece of ``results/trust.json``:

``coverage``
    The share of repetitions in which a 95 % interval holds the truth, by method and setting (`trust_coverage`).
``verdicts``
    How often a report's verdict finds a gain and how often none: without a signal, with it, and on real bars whose days
    are permuted (`trust_verdicts`).
``planted``
    Faults planted one at a time into a run, and the check that catches each (`trust_planted`).

A part's module has ``measure(folder, *, quick)``. What it has done lies in the folder, so that it goes on where it was
stopped; without ``--missing`` the folder is emptied first.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import context
from benchmarks.table import RESULTS
from rlwb.files import write_json

_OUT = RESULTS.with_name("trust.json")
#: Part to the module that measures it.
PARTS = {
    "coverage": "benchmarks.trust_coverage",
    "verdicts": "benchmarks.trust_verdicts",
    "planted": "benchmarks.trust_planted",
}


def absent(parts: list[str]) -> list[str]:
    """Return those of the parts that have no module."""
    return [part for part in parts if importlib.util.find_spec(PARTS[part]) is None]


def measure(part: str, folder: Path, *, quick: bool, missing: bool) -> Any:
    """Return what a part finds, as it stands in the results."""
    if folder.exists() and not missing:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return importlib.import_module(PARTS[part]).measure(folder, quick=quick)


def markdown(results: Mapping[str, Any]) -> str:
    """Return a table for each part that has results."""
    made = {"coverage": _coverage, "verdicts": _verdicts, "planted": _planted}
    return "\n\n".join("\n".join(make(results[part])) for part, make in made.items() if part in results)


def _table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    for cells in (header, ["---", *("--:" for _ in header[1:])], *rows):
        yield f"| {' | '.join(cells)} |"


def _coverage(shares: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Yield a table for each group of methods that were tried under the same settings, a row a setting."""
    for settings in dict.fromkeys(tuple(own) for own in shares.values()):
        methods = [method for method, own in shares.items() if tuple(own) == settings]
        rows = [[one, *(f"{shares[method][one]:.1%}" for method in methods)] for one in settings]
        yield from _table(["truth inside the 95 % interval", *methods], rows)
        yield ""


def _verdicts(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    rows = [[market, str(own["none"]), str(own["found"])] for market, own in counts.items()]
    yield from _table(["runs", "no evidence", "a gain"], rows)


def _planted(faults: list[Mapping[str, str | None]]) -> Iterator[str]:
    caught = sum(one["caught_by"] is not None for one in faults)
    yield from _table([f"fault ({caught} of {len(faults)} caught)", "caught by"], [
        [str(one["fault"]), one["caught_by"] or "nothing"] for one in faults
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that all runs")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--missing", action="store_true", help="keep what is done in --run-dir")
    parser.add_argument("--run-dir", type=Path, help="where a part keeps what it has done; runs/trust by default")
    parser.add_argument("--out", type=Path, help="where the results go; results/trust.json by default")
    args = parser.parse_args()
    if without := absent(args.parts):
        modules = ", ".join(f"{part} ({PARTS[part]})" for part in without)
        parser.error(f"there is no module of: {modules}; leave out what is not there with --parts")
    name = "trust-quick" if args.quick else "trust"
    base, out = (args.run_dir or Path("runs") / name).absolute(), args.out or _OUT.with_name(f"{name}.json")
    results: dict[str, Any] = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    for part in args.parts:
        made = measure(part, base / part, quick=args.quick, missing=args.missing)
        results = {**context(), **{one: results[one] for one in PARTS if one in results}, part: made}
        write_json(out, results)  # after each, so that one cut short has lost little
    print(f"\n{markdown(results)}")


if __name__ == "__main__":
    main()
