"""Time to quality: how long until the validation PA is near its best. See README.md beside this file."""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.measure import context, run_job
from benchmarks.parts import Parts, load_peer_weights, write_market
from benchmarks.quality_rows import SHARE, Side, make_rows, plot, target_of
from benchmarks.run import check_sameness, peer_arguments, peer_python, results_file
from benchmarks.schedule import Schedule
from benchmarks.table import markdown
from rlwb.execution import OrderBatch
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.files import write_json
from rlwb.trainer import Callback, Trainer, TrainingVessel, backtest

#: The peer's published training on bars of five minutes: microsoft/qlib, examples/rl_order_execution/exp_configs,
#: train_opds.yml, commit 068576e (train_ppo.yml says the same); the rest are the defaults of its PPO.
PUBLISHED = {
    "episodes": 10_000,
    "repeat": 25,
    "batch_size": 1024,
    "learning_rate": 1e-4,
    "clip": 0.3,
    "value_coef": 1.0,
    "max_grad_norm": 100.0,
}
#: Iterations of the published training, max_epoch in that file.
PUBLISHED_ITERATIONS = 500
#: What --quick changes: the market, ``rlwb run``, and the published numbers.
_QUICK = {"instruments": 6, "days": 40}
#: PPO as the peer has it: a recurrent network, no masks, no even start.
_LEARNER = ("algorithm=ppo", "network=recurrent", "head.mask_actions=false", "head.even_start=false")
_QUICK_CHANGES = ("train.iterations=12", "train.episodes_per_iteration=100", "algorithm.batch_size=100")
_QUICK_PUBLISHED = {"episodes": 100, "repeat": 2, "batch_size": 128}


def own_numbers(changes: Sequence[str] = ()) -> dict[str, Any]:
    """Return a run's training by PPO in the words of a schedule."""
    config = RunConfig.load(None, parse_assignments([*_LEARNER, *changes]))
    own = ("repeat", "batch_size", "learning_rate", "clip", "value_coef", "entropy_coef", "max_grad_norm")
    return {
        "choices": config.action_interpreter.settings["values"],
        "penalty": config.reward.settings["penalty"],
        "reward_scale": config.reward.settings["scale"],
        "episodes": config.train.episodes_per_iteration,
        **{name: config.algorithm.settings[name] for name in own},
    }


def schedules(quick: bool, threads: int) -> dict[str, Schedule]:
    """Return the two schedules on the synthetic market, ``published`` and ``rlwb``.

    Market, orders, rules, decisions, actions and reward are those of ``rlwb run``, the network's shape is the peer's.
    """
    market = _QUICK if quick else {"instruments": 20, "days": 240}
    own = Schedule.of(
        48, split=True, volume_limit=None, threads=threads, **market, **own_numbers(_QUICK_CHANGES if quick else ())
    )
    published = {**PUBLISHED, **(_QUICK_PUBLISHED if quick else {})}
    return {"published": dataclasses.replace(own, **published), "rlwb": own}


class Clock(Callback):
    """Notes time and validation PA after each iteration; ends the fit at a target, or when the time is over.

    Parameters
    ----------
    target
        Validation PA in basis points at which the fit ends; NaN never ends it.
    budget
        Seconds after which it ends.
    """

    def __init__(self, target: float = math.nan, budget: float = math.inf) -> None:
        self.target = target
        self.budget = budget
        self.points: list[dict[str, float]] = []
        self.began = time.perf_counter()

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        passed, pa = time.perf_counter() - self.began, trainer.metrics["val/pa"]
        self.points.append({"iteration": trainer.current_iter, "seconds": passed, "pa": pa})
        trainer.should_stop |= pa >= self.target or passed > self.budget


def default(folder: Path, seed: int, changes: Sequence[str]) -> dict[str, Any]:
    """Train as the training stage of ``rlwb run`` does on the schedule's market, with a seed and changes.

    The clock begins where the stage begins, before the market is made, and goes through checkpoints and metrics. The
    orders are those of seed 0 whatever the seed, so that all trainings are judged on the same.
    """
    schedule = Schedule.read(folder)
    own = {"market.instruments": schedule.instruments, "market.days": schedule.days, "threads": schedule.threads}
    assignments = [*(f"{name}={value}" for name, value in own.items()), *_LEARNER, *changes]
    config = RunConfig.load(None, parse_assignments(assignments))
    run = RunDirectory.create(folder / f"run-{seed}", config)
    make_orders(run, config)
    clock = Clock()
    train_policy(run, config.model_copy(update={"seed": seed}), [clock], progress="none")
    return {"points": clock.points}


def same(folder: Path, target: float, budget: float, iterations: int) -> dict[str, Any]:
    """Train the peer's network by the schedule in the folder, from the peer's initial weights, up to the target."""
    parts = Parts(folder)
    vessel = parts.vessel(parts.policy(), parts.schedule.episodes)
    clock = Clock(target, budget)
    Trainer(max_iters=iterations, val_every_n_iters=1, callbacks=[clock]).fit(vessel)
    return {"points": clock.points}


def score(folder: Path, validated: list[int]) -> dict[str, Any]:
    """Return the PA of the peer's weights after each iteration, on all validation orders.

    Also that of the last on the orders that the peer has validated itself, which must agree with the peer's own.
    """
    parts = Parts(folder)
    assert parts.valid is not None, "the schedule of these folders splits the orders"
    policy = parts.policy()

    def pa(orders: OrderBatch) -> float:
        acts = (parts.action_interpreter, policy)
        episodes = backtest(parts.simulator, parts.state_interpreter, orders, *acts, reward=parts.reward)
        return episodes.means()["pa"]

    found = []
    for path in sorted(folder.glob("peer-[0-9]*.pt")):
        load_peer_weights(policy.network, torch.load(path, weights_only=True))
        found.append(pa(parts.valid))
    return {"pa": found, "again": pa(parts.valid[np.array(validated)])}


JOBS = {job.__name__: job for job in (default, same, score)}


def run_default(folder: Path, threads: int, seeds: int, changes: Sequence[str]) -> list[list[dict[str, float]]]:
    """Return the points of ``rlwb run``'s training for each seed."""
    curves = []
    for seed in range(seeds):
        points = run_job("quality", "default", folder, threads=threads, seed=seed, changes=changes)["points"]
        best = max(point["pa"] for point in points)
        print(f"rlwb, seed {seed}: best PA {best:.2f} bp, {points[-1]['seconds']:.0f} s in all", flush=True)
        curves.append(points)
    return curves


def run_same(folder: Path, threads: int, target: float, budget: float) -> list[dict[str, float]]:
    """Return the points of rlwb by the schedule in `folder`, up to the target."""
    asked = {"target": target, "budget": budget, "iterations": PUBLISHED_ITERATIONS}
    points: list[dict[str, float]] = run_job("quality", "same", folder, threads=threads, **asked)["points"]
    last = points[-1]
    print(f"  rlwb: PA {last['pa']:.2f} bp after {last['iteration']} iterations, {last['seconds']:.0f} s", flush=True)
    return points


def run_peer(python: Path, folder: Path, threads: int, budget: float, validated: int) -> dict[str, Any]:
    """Return the peer's points by the schedule in `folder`, with PA, and what a validation of its own takes.

    The peer validates some of the orders, `validated` of them spread evenly over all.
    """
    with np.load(folder / "market.npz") as market:
        count = len(market["valid_amount"])
    rows = np.linspace(0, count - 1, min(validated, count)).round().astype(int).tolist()
    asked = {"budget": budget, "iterations": PUBLISHED_ITERATIONS, "validated": rows}
    found = run_job("peer.worker", "quality", folder, python=python, threads=threads, **asked)
    scored = run_job("quality", "score", folder, threads=threads, validated=rows)
    for point, pa in zip(found["points"], scored["pa"], strict=True):
        point["pa"] = pa
    last, own = found["points"][-1], found["validation"]
    print(f"  peer: PA {last['pa']:.2f} bp after {last['iteration']} iterations, {last['seconds']:.0f} s", flush=True)
    print(f"  of {own['orders']} orders the peer says {own['pa']:.4f} bp, rlwb {scored['again']:.4f} bp", flush=True)
    return found


def measure(args: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Run both sides by both schedules and return the rows."""
    plans = schedules(args.quick, args.threads)
    for name, schedule in plans.items():
        write_market(schedule, work / name)
    default = run_default(work / "rlwb", args.threads, args.seeds, _QUICK_CHANGES if args.quick else ())
    target = statistics.median(target_of(points) for points in default)
    print(f"target: {SHARE:.0%} of the best PA, {target:.2f} bp in the median", flush=True)
    python = peer_python(args)
    sides: dict[str, Side] = {}
    for name, schedule in plans.items():
        folder = work / name
        print(f"by the schedule of {name}, up to {args.same_seconds:g} and {args.peer_seconds:g} s", flush=True)
        if python is not None:
            check_sameness(python, folder, schedule)
        ours = run_same(folder, args.threads, target, args.same_seconds)
        if python is None:
            sides[name] = Side(ours, [], None)
        else:
            peer = run_peer(python, folder, args.threads, args.peer_seconds, args.validated)
            sides[name] = Side(ours, peer["points"], peer["validation"])
    return make_rows(default, sides, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    peer_arguments(parser)
    parser.add_argument("--peer-seconds", type=float, help="that each of the peer's two trainings may take; 1200")
    parser.add_argument("--same-seconds", type=float, help="that rlwb may take by either schedule; 1200")
    parser.add_argument("--validated", type=int, help="orders that the peer validates to tell its speed; 200")
    parser.add_argument("--seeds", type=int, default=3, help="of rlwb's own training")
    parser.add_argument("--threads", type=int, default=1, help="of each side")
    args = parser.parse_args()
    for name, small, usual in (("peer_seconds", 20, 1200), ("same_seconds", 20, 1200), ("validated", 20, 200)):
        if getattr(args, name) is None:
            setattr(args, name, small if args.quick else usual)
    out = results_file(args, "quality")
    about = context(f", {args.threads} thread(s) a side{', small sizes' if args.quick else ''}")
    with tempfile.TemporaryDirectory(prefix="rlwb-quality-") as work:
        rows = [{**row, **about} for row in measure(args, Path(work))]
    write_json(out, rows)
    plot(rows, out)
    print(f"\n{markdown(rows)}\n")
    for row in rows:
        print(f"{row['figure']}: rlwb {row['rlwb_is']} ({row['rlwb_how']}); peer {row['peer_is']} ({row['peer_how']})")


if __name__ == "__main__":
    main()
