"""Whether a bundle decides inside Qlib's nested executor as in rlwb's backtest; writes ``results/qlib_strategy.json``.

A small policy is trained on bars in Qlib's own format. The test orders are backtested by rlwb, and executed by Qlib:
an outer strategy asks for them day by day, `rlwb.serving.qlib.BundleStrategy` splits them bar by bar, and Qlib's
exchange fills them. Compared is what was decided in every step of every order, and the position that it was decided on.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.measure import context, run_job
from benchmarks.run import environment, results_file
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, choose_checkpoints, play
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.files import write_json
from rlwb.market import Sessions, SyntheticSettings, synthetic_sessions
from rlwb.serving.export import export_run

_WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}
#: Largest difference, as a share of the order's amount, that counts as rounding of sums of fills.
_SAME = 1e-9
#: Windows of the orders by case; None is their own, the whole day. The second begins and ends within a step.
_WINDOWS: dict[str, tuple[str, str] | None] = {"whole day": None, "part of it": ("09:50", "14:20")}


def write_bars(folder: Path, sessions: Sessions) -> str:
    """Write sessions without missing bars as a Qlib directory and return the frequency in Qlib's words."""
    clock, dates = sessions.calendar, np.unique(sessions.dates)
    freq = f"{clock.tick_minutes:g}min"
    stamps = dates[:, None].astype("datetime64[s]") + clock.tick_start.astype("timedelta64[s]")
    lists = {
        f"calendars/{freq}.txt": [str(stamp).replace("T", " ") for stamp in stamps.ravel()],
        "calendars/day.txt": [str(date) for date in dates],
        "instruments/all.txt": [f"{name}\t{dates[0]}\t{dates[-1]}" for name in np.unique(sessions.instruments)],
    }
    for name, lines in lists.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name in np.unique(sessions.instruments):
        columns = folder / "features" / str(name).lower()
        columns.mkdir(parents=True)
        for field, values in sessions.fields.items():
            series = np.asarray(values)[sessions.instruments == name].ravel()
            np.concatenate([[0.0], series]).astype("<f4").tofile(columns / f"{field}.{freq}.bin")
    return freq


def make_bundle(folder: Path, size: dict[str, int]) -> RunDirectory:
    """Write bars in Qlib's format below a folder, train on them, and export the best checkpoint."""
    settings = SyntheticSettings(instruments=size["instruments"], days=size["days"])
    freq = write_bars(folder / "bars", synthetic_sessions(settings))
    asked = {
        "market": {
            "source": str(folder / "bars"),
            "reader": {"name": "qlib", "freq": freq},
            "calendar": {"preset": "cn", "tick_minutes": settings.tick_minutes, "label": "start"},
        },
        "train.iterations": size["iterations"],
        "train.episodes_per_iteration": size["episodes"],
        "baselines": ["twap"],
        "backtest.top": 1,
    }
    config = RunConfig.load(None, Layer("benchmark", asked))
    run = RunDirectory.create(folder / "run", config)
    with recorded(run, list(_WORK)):
        for stage, work in _WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    export_run(run.path, folder / "bundle")
    return run


def compare(folder: Path, run: RunDirectory, window: tuple[str, str] | None, python: Path) -> dict[str, Any]:
    """Execute the run's test orders, in their own window or another, on both sides; return the figures."""
    bench = workbench(run, run.config)
    table = load_orders(run, bench, "test")
    table = table[table["date"] < table["date"].max()]  # Qlib's calendar must go on after the last step
    if window:
        table = table.assign(
            **{
                name: table["date"] + pd.Timedelta(f"{time}:00")
                for name, time in zip(("start", "end"), window, strict=True)
            }
        )
    orders = bench.align(table)
    path = choose_checkpoints(run, run.config).chosen[0].path
    episodes = play(bench, checkpoint_policy(bench, path), orders)
    table.to_parquet(folder / "orders.parquet")
    freq = f"{bench.sessions.calendar.tick_minutes:g}min"
    told = run_job("inside.qlib_executor", "run", folder, python=python, freq=freq)
    theirs = pd.read_parquet(folder / "theirs.parquet")
    amount = orders.amount[:, None]
    requested, left = episodes.details["requested"] / amount, episodes.details["inventory"][:, :-1]
    taken = np.arange(requested.shape[1]) < episodes.length[:, None]
    found = {name: np.full(requested.shape, np.nan) for name in ("amount", "position")}
    row = pd.Series(np.arange(len(table)), table["order_id"].to_numpy())[theirs["order_id"]].to_numpy()
    for name, values in found.items():
        values[row, theirs["step"]] = theirs[name]
        values /= amount
    differ = np.maximum(np.abs(found["amount"] - requested), np.abs(found["position"] - left))[taken]
    return {
        "orders": len(table),
        "decisions": int(taken.sum()),
        "equal": int((differ <= _SAME).sum()),  # a decision that Qlib's side lacks is NaN, thus not equal
        "only_in_qlib": int(np.isfinite(found["amount"][~taken]).sum()),
        "largest_difference": float(np.nanmax(differ)),
        "first_decisions": {
            f"{share:g}": int(count)
            for share, count in zip(*np.unique(requested[:, 0].round(9), return_counts=True), strict=True)
        },
        **told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that all runs")
    parser.add_argument("--python", default="python3.11", help="what makes the environment")
    parser.add_argument("--qlib", type=Path, help="an interpreter with rlwb and pyqlib, in place of .bench-qlib-venv")
    parser.add_argument("--out", type=Path, help="where the figures go; a file in results/ by default")
    args = parser.parse_args()
    size = {"instruments": 3, "days": 30, "iterations": 2, "episodes": 100}
    if not args.quick:
        size = {"instruments": 20, "days": 120, "iterations": 20, "episodes": 1000}
    python = args.qlib or environment("qlib", args.python)
    with tempfile.TemporaryDirectory(prefix="rlwb-qlib-") as scratch:
        folder = Path(scratch)
        run = make_bundle(folder, size)
        cases = {name: compare(folder, run, window, python) for name, window in _WINDOWS.items()}
    total = {name: sum(case[name] for case in cases.values()) for name in ("orders", "decisions", "equal")}
    total["largest_difference"] = max(case["largest_difference"] for case in cases.values())
    out = results_file(args, "qlib_strategy")
    write_json(out, {**total, "cases": cases, **context()})
    for name, case in cases.items():
        print(f"{name}: {case}")
    print(f"{total}\nwritten to {out}")
    raise SystemExit(0 if total["equal"] == total["decisions"] else 1)


if __name__ == "__main__":
    main()
