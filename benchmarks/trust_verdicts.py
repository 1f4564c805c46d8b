"""How often a report's verdict finds a gain: on noise, on the embedded market's signal, and on real bars made noise.

Each repetition is a run of its own, with seeds of its own, by the default learner; its outcome is that of
`rlwb.experiment.verdict.verdict_of` on its directory, which is deleted then. One line each goes into
``verdicts.jsonl``, so that a measurement that was stopped goes on.

``noise``
    The embedded market without its signal.
``signal``
    The embedded market as it is by default.
``permuted``
    Chinese shares by the quarter of an hour in even repetitions, US stocks by 5 minutes in odd ones, with the returns
    of every bar turned by a random sign (`rlwb.market.noise.random_signs`).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from rlwb.experiment.backtest import read_results
from rlwb.experiment.compare import finished_run
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.verdict import verdict_of
from rlwb.files import write_json

_ROOT = Path(__file__).resolve().parents[1]
PARTS = ("noise", "signal", "permuted")
OUTCOMES = ("none", "found", "worse", "cannot be told")
DATA = _ROOT / "../shared/data"
#: Configuration and folder of the real bars.
REAL = (("cn_15min.yaml", "cn_equity_15min_2025"), ("us_5min.yaml", "us_equity_5min_2025"))
#: What makes a run short: what is left out is shown beside the verdict and decides nothing of it. With more iterations
#: outcomes were the same.
SHORT: dict[str, Any] = {
    "train.iterations": 20,
    "backtest.bootstrap_samples": 500,
    "baselines": ["twap", "forecast"],
}
#: Instruments of the real bars, the first by name.
INSTRUMENTS = 12
QUICK = {"market.instruments": 4, "market.days": 40, "train.iterations": 2, "backtest.bootstrap_samples": 200}


def config_of(part: str, seed: int, data: Path, *, quick: bool = False) -> RunConfig:
    """Return the configuration of a repetition."""
    if part != "permuted":
        changes = {"market.seed": seed, "market.signal": float(part == "signal"), "seed": seed, **SHORT}
        return RunConfig.load(None, Layer("verdicts", {**changes, **(QUICK if quick else {})}))
    file, folder = REAL[seed % len(REAL)]
    source = data.resolve() / folder / "bars.parquet"
    names = sorted(pd.read_parquet(source, columns=["instrument"])["instrument"].unique())
    own = {"market.source": str(source), "market.instruments": names[: 4 if quick else INSTRUMENTS]}
    short = {name: value for name, value in QUICK.items() if not name.startswith("market.")} if quick else {}
    changes = {**own, "market.noise_seed": seed, "seed": seed, **SHORT, **short}
    return RunConfig.load(_ROOT / "configs" / file, Layer("verdicts", changes))


def outcome_of(part: str, seed: int, folder: Path, data: Path, quick: bool) -> dict[str, Any]:
    """Make a run, and return what its verdict is; its directory is deleted."""
    began, path = time.process_time(), folder / f"{part}-{seed}"
    shutil.rmtree(path, ignore_errors=True)
    with contextlib.redirect_stdout(io.StringIO()):
        run = finished_run(path, config_of(part, seed, data, quick=quick))
    found = verdict_of(run, run.config, read_results(run))
    assert found is not None, f"{path} has no figures"
    shutil.rmtree(path)
    told = {name: value for name, value in found.as_dict().items() if name in ("outcome", "effect", "lo", "hi")}
    against = [one.topic for one in found.reasons if one.is_against]
    return {"part": part, "seed": seed, **told, "against": against, "seconds": round(time.process_time() - began, 1)}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the outcomes that are there; a last line that was cut short does not count."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def measure(
    folder: Path,
    *,
    quick: bool = False,
    runs: int = 100,
    parts: Sequence[str] = PARTS,
    first: int = 0,
    data: Path = DATA,
    jobs: int = 2,
) -> dict[str, dict[str, int]]:
    """Return how often each outcome came, by part; what lies in the folder is done.

    Parameters
    ----------
    runs, first
        How many repetitions a part has, and the seed of the first.
    data
        Folder of the real bars; where they are not there, the part permuted is left out.
    jobs
        Runs at a time, each by one thread.
    """
    runs = min(runs, 2) if quick else runs
    if "permuted" in parts and not all((data / one / "bars.parquet").exists() for _, one in REAL):
        print(f"permuted is left out: the bars of {' and '.join(one for _, one in REAL)} are not in {data}")
        parts = [one for one in parts if one != "permuted"]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "verdicts.jsonl"
    done = {(one["part"], one["seed"]): one for one in lines_of(path)}
    wanted = [(part, seed) for part in parts for seed in range(first, first + runs)]
    left = [one for one in wanted if one not in done]
    if text := "".join(json.dumps(one) + "\n" for one in done.values()):
        path.write_text(text, encoding="utf-8")  # without what was cut short
    with (
        ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool,
        path.open("a", encoding="utf-8") as file,
        tqdm(total=len(wanted), initial=len(wanted) - len(left), unit="run") as bar,
    ):
        for one in as_completed([pool.submit(outcome_of, *task, folder, data, quick) for task in left]):
            row = one.result()
            done[row["part"], row["seed"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            bar.update()
    counts = {part: Counter(done[part, seed]["outcome"] for seed in range(first, first + runs)) for part in parts}
    return {
        part: {one: own[one] for one in OUTCOMES if own[one] or one in ("none", "found")}
        for part, own in counts.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two repetitions on small markets")
    parser.add_argument("--runs", type=int, default=100, help="repetitions of each part")
    parser.add_argument("--first", type=int, default=0, help="seed of the first repetition")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the real bars")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--run-dir", type=Path, default=Path("runs/trust/verdicts"), help="where what is done is kept")
    parser.add_argument("--out", type=Path, help="a JSON file for the counts")
    args = parser.parse_args()
    asked = {"quick": args.quick, "runs": args.runs, "parts": args.parts, "first": args.first}
    counts = measure(args.run_dir.absolute(), data=args.data, jobs=args.jobs, **asked)
    print(json.dumps(counts, indent=2))
    if args.out:
        write_json(args.out, counts)


if __name__ == "__main__":
    main()
