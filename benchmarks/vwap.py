"""Slippage to the VWAP of `pathwise` beside its published peers; writes ``results/vwap.json``.

The peers (Genet, arXiv 2502.13722 and 2502.18177; packages dvwap and dynamic-vwap) optimise a volume curve through its
slippage. All trade the same sessions of the synthetic market, bar by bar, and are judged by one formula: the price of
what they traded over the session's VWAP.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import context, run_job
from benchmarks.run import peer_arguments, results_file
from rlwb.execution.rules import BASIS_POINTS
from rlwb.experiment.backtest import read_results
from rlwb.experiment.compare import do_stages
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.workbench import Workbench
from rlwb.files import write_json
from rlwb.market import Sessions

#: A bar a step, the VWAP as benchmark, and an objective in which a basis point of mean is worth little.
_SETTINGS = [
    "market.tick_minutes=30",
    "market.instruments=10",
    "train.iterations=20",
    "execution.ticks_per_step=1",
    "execution.rules.benchmark=vwap",
    "algorithm=pathwise",
    "network={name: recurrent, hidden: 32}",
    "objective={name: mean_variance, aversion: 1}",
    "reward.penalty=0",
    "backtest.top=1",
    "baselines=[twap, vwap]",
]
#: What --quick changes.
_QUICK = ["market.instruments=4", "market.days=60", "train.iterations=2", "backtest.bootstrap_samples=200"]
_PARTS = ("train", "valid", "test")


def peer_data(sessions: Sessions, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what the peers see and are judged by on sessions that have one before, float64.

    Returns
    -------
    float64 of shape (N, 2 T - 1, 3)
        Of the bars of the session before and of today's but the last: volume in units of the former's mean, the time
        of the day, and the return of the bar.
    float64 of shape (N, T, 2)
        Today's volumes and closes, in units of the former session's.
    """
    before = sessions.previous[rows]
    close, volume = (
        np.concatenate([sessions.fields[name][before], sessions.fields[name][rows]], axis=1)
        for name in ("close", "volume")
    )
    ticks = sessions.calendar.num_ticks
    mean = volume[:, :ticks].mean(axis=1, keepdims=True)
    returns = np.diff(np.log(close), axis=1, prepend=np.log(close[:, :1]))
    hour = np.broadcast_to(np.tile(np.arange(ticks) / ticks, 2), close.shape)
    seen = np.stack([volume / mean, hour, returns * 100], axis=2)[:, :-1]
    judged = np.stack([volume / mean / ticks, close / close[:, ticks - 1 : ticks]], axis=2)[:, ticks:]
    return seen, judged


def slippage(curve: np.ndarray, judged: np.ndarray) -> np.ndarray:
    """Return how far the price of curves of volume, of shape (N, T), lies above the VWAP, in basis points, (N,)."""
    volume, price = judged[..., 0], judged[..., 1]
    paid = (curve * price).sum(axis=1) / curve.sum(axis=1)
    return np.asarray(paid / ((volume * price).sum(axis=1) / volume.sum(axis=1)) - 1.0) * BASIS_POINTS


def row(method: str, slips: np.ndarray, seconds: float | None) -> dict[str, Any]:
    """Return one method's figures, in basis points: mean absolute and root mean squared slippage."""
    rms = float(np.sqrt(np.mean(slips**2)))
    return {"method": method, "mean_abs": float(np.abs(slips).mean()), "rms": rms, "seconds": seconds}


def measured(peer: Path | None, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Train and judge all methods on the test days of the default split, and return one row a method."""
    words = [*_SETTINGS, f"seed={seed}", f"market.seed={seed}", *(_QUICK if quick else [])]
    config = RunConfig.load(None, parse_assignments(words))
    with tempfile.TemporaryDirectory(prefix="rlwb-vwap-") as name:
        folder = Path(name)
        run = RunDirectory.create(folder / "run", config)
        start = time.perf_counter()
        do_stages(run, config, lambda line: None)
        seconds = time.perf_counter() - start
        rows = [
            row(*(("pathwise", one.pa, seconds) if one.kind == "checkpoint" else (one.policy, one.pa, None)))
            for one in read_results(run)
            if one.kind != "last"
        ]
        if peer is not None:
            bench = Workbench(config)
            tables, parts = bench.make_orders()[0], {}
            for part in _PARTS:
                own = np.unique(bench.align(tables[part]).session)
                own = own[bench.sessions.previous[own] >= 0]
                parts[f"x_{part}"], parts[f"y_{part}"] = peer_data(bench.sessions, own)
            np.savez(folder / "vwap.npz", **parts)
            took = run_job("peer.vwap", "curves", folder, python=peer, epochs=2 if quick else 30, seed=seed)
            with np.load(folder / "curves.npz") as curves:
                rows += [row(one, slippage(curves[one], parts["y_test"]), took[one]) for one in curves.files]
    return [{"market_seed": seed, **one} for one in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    peer_arguments(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the market and the trainings")
    args = parser.parse_args()
    if args.peer is None:
        print("the peers are left out; name an interpreter that has peer/vwap_requirements.txt by --peer.")
    rows = []
    for seed in args.seeds:
        found = measured(None if args.no_peer else args.peer, seed, args.quick)
        for one in found:
            figures = "  ".join(f"{name} {one[name]:6.2f} bp" for name in ("mean_abs", "rms"))
            print(f"{seed}  {one['method']:12s} {figures}" + (f"  {one['seconds']:.0f} s" if one["seconds"] else ""))
        rows += found
    write_json(results_file(args, "vwap"), {**context(), "rows": rows})


if __name__ == "__main__":
    main()
