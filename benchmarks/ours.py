"""rlwb's jobs: its side of the comparison, its own slow paths, and the machine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.measure import Timer, peak_memory, seconds

_BARE_MEMORY = peak_memory()

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import rlwb.trainer.vessel  # noqa: E402
from benchmarks.parts import PEER_NETWORK, Parts  # noqa: E402
from benchmarks.schedule import Schedule  # noqa: E402
from rlwb.execution import CategoricalActionInterpreter  # noqa: E402
from rlwb.trainer import Trainer, backtest, result_table  # noqa: E402

#: Orders at once where there is no network; enough that the time is not that of Python calls.
_MANY = 20_000
#: Orders that the slow loop executes, and episodes that run before anything is timed.
_FEW, _WARM_UP = 50, 8
#: Instruments of the backtest at size, each with a buy and a sell a day, and its checkpoints.
_INSTRUMENTS, _CHECKPOINTS = 20, 10


def simulate(folder: Path) -> dict[str, float]:
    """Execute orders evenly, without observations."""
    parts = Parts(folder)
    orders = parts.tiled(_MANY)
    engine, steps = parts.simulator.engine, parts.schedule.max_step
    ask = orders.amount / steps
    # The peer's simulator finds its benchmark price when it is made; so that is timed on both sides.
    taken = 0

    def run() -> None:
        nonlocal taken
        engine.benchmarks(orders)
        state, taken = engine.reset(orders), 0
        for _ in range(steps):
            taken += int((~state.done).sum())
            state, _fills = engine.step(orders, state, np.minimum(np.where(state.done, 0.0, ask), state.position))

    passed = seconds(run)
    return {"simulator": taken / passed}


def environment(folder: Path) -> dict[str, float]:
    """Step the environment with full history and reward, an eighth of the order at each decision."""
    parts = Parts(folder)
    even = CategoricalActionInterpreter(parts.schedule.max_step)

    def run(count: int, by_reference: bool) -> float:
        orders, taken = parts.tiled(count), 0

        def once() -> None:
            nonlocal taken
            taken = 0
            with parts.environment(orders, action_interpreter=even, by_reference=by_reference) as env:
                active = env.reset()
                while len(active.episode):
                    taken += len(active.episode)
                    _, active = env.step(np.ones(len(active.episode), dtype=np.int64))

        return taken / passed if (passed := seconds(once)) else 0.0

    return {"environment": run(_MANY, True), "environment, blocks copied": run(_MANY // 10, False)}


def train(folder: Path) -> dict[str, float]:
    """Run one iteration of the trainer; time it, and the collect and the update in it."""
    parts = Parts(folder)
    policy = parts.policy()
    Trainer(max_iters=1).fit(parts.vessel(policy, _WARM_UP))
    before = peak_memory()
    collecting, updating = Timer(), Timer()
    rlwb.trainer.vessel.collect = collecting.wrap(rlwb.trainer.vessel.collect)  # type: ignore[attr-defined]
    policy.learn = updating.wrap(policy.learn)  # type: ignore[method-assign]
    vessel = parts.vessel(policy, parts.schedule.episodes)
    trainer = Trainer(max_iters=1)
    began = time.perf_counter()
    trainer.fit(vessel)
    whole = time.perf_counter() - began
    steps = trainer.metrics["transitions"]
    return {
        "collect": steps / collecting.seconds,
        "update": steps * parts.schedule.repeat / updating.seconds,
        "iteration": whole,
        "memory": peak_memory() - _BARE_MEMORY,
        "memory added": peak_memory() - before,
        "steps": steps,
    }


def backtesting(folder: Path) -> dict[str, float]:
    """Backtest the untrained policy, writing its results."""
    parts = Parts(folder)
    policy = parts.policy()

    def run(count: int) -> float:
        orders = parts.first(count)
        policy.network.trunk.market.forget()
        episodes = backtest(
            parts.simulator, parts.state_interpreter, orders, parts.action_interpreter, policy, reward=parts.reward
        )
        table = result_table(orders.table, episodes)
        table.to_csv(folder / "rlwb-backtest.csv", index=False)
        return float(table["pa"].mean())

    run(_WARM_UP)
    began = time.perf_counter()
    pa = run(parts.schedule.backtested)
    passed = time.perf_counter() - began
    return {"backtest": parts.schedule.backtested / passed, "pa": pa}


def check(folder: Path) -> dict[str, float]:
    """Compare the answers of the peer's network, with its weights, on the observations of the same steps.

    Returns
    -------
    dict
        The largest differences of action probabilities and of values.
    """
    parts = Parts(folder)
    policy = parts.policy()
    kept = torch.load(folder / PEER_NETWORK, weights_only=True)
    orders, asked = parts.first(4), []
    even = CategoricalActionInterpreter(parts.schedule.max_step)
    rows: list[np.ndarray] = []
    with parts.environment(orders, action_interpreter=even) as env:
        active = env.reset()
        while len(active.episode):
            rows.append(active.episode)
            with torch.no_grad():
                logits, values = policy.network(active.obs)
            asked.append((logits.softmax(dim=1), values))
            _, active = env.step(np.ones(len(active.episode), dtype=np.int64))
    order = torch.as_tensor(np.argsort(np.concatenate(rows), kind="stable"))
    probabilities, values = (torch.cat(kind)[order] for kind in zip(*asked, strict=True))
    return {
        "probabilities": float((probabilities - kept["probabilities"]).abs().max()),
        "values": float((values - kept["values"]).abs().max()),
    }


def specification(folder: Path) -> dict[str, float]:
    """Execute the same orders by the engine and by the slow loop that specifies it."""
    from tests.execution.specification import SpecifiedOrder, Tick

    parts = Parts(folder)
    engine, schedule = parts.simulator.engine, parts.schedule
    few = parts.first(_FEW)
    cells = engine.cell.tolist()

    def slow() -> int:
        steps = 0
        for i in range(_FEW):
            row = int(few.session[i])
            ticks = [Tick(p, v) for p, v in zip(engine.price[row].tolist(), engine.volume[row].tolist(), strict=True)]
            order = SpecifiedOrder(
                ticks, cells, int(few.side[i]), float(few.amount[i]), int(few.start[i]), int(few.end[i]), engine.rules
            )
            while not order.done:
                order.step(min(order.amount / schedule.max_step, order.position))
                steps += 1
        return steps

    return {"specification": slow() / seconds(slow)}


def blocks(folder: Path) -> dict[str, float]:
    """Update from observations that carry their blocks, a pass over the day for every decision."""
    parts = Parts(folder)
    policy, schedule = parts.policy(), parts.schedule
    episodes = parts.gather(policy, parts.first(schedule.episodes))
    obs = dict(episodes.obs)
    session = obs.pop("session")
    del obs["features"]
    obs["data_processed"] = parts.features.block(session, obs["cur_tick"])
    obs["data_processed_prev"] = parts.features.block_previous(session)

    def update() -> None:
        policy.learn(obs, episodes.action, episodes.reward, episodes.done)

    return {"blocks": len(episodes.reward) * schedule.repeat / seconds(update)}


def roofline(folder: Path) -> dict[str, float]:
    """Compare the update with the matrix products in it."""
    from benchmarks.roofline import measure_update

    parts = Parts(folder)
    return measure_update(parts, parts.gather(parts.policy(), parts.first(parts.schedule.episodes)))


def judge(folder: Path) -> dict[str, float]:
    """Run the backtest stage of a run on so many test orders of a market with the schedule's ticks.

    Timed is the whole stage, from making the market: beside the ten checkpoints on the test orders it scores these on
    the validation orders, runs the last one and the baselines, and does the statistics.
    """
    from rlwb.experiment.backtest import backtest_policies
    from rlwb.experiment.config import RunConfig, parse_assignments
    from rlwb.experiment.orders import make_orders
    from rlwb.experiment.run import RunDirectory
    from rlwb.experiment.training import train_policy

    schedule = Schedule.read(folder)
    test = -(-schedule.judged // (2 * _INSTRUMENTS))
    few = max(test // 25, 2)
    changes = {
        "market.instruments": _INSTRUMENTS,
        "market.days": test + 2 * few,
        "market.tick_minutes": 240 // schedule.ticks,
        "execution.ticks_per_step": schedule.ticks_per_step,
        "split.train": few / (test + 2 * few),
        "split.valid": few / (test + 2 * few),
        "split.test": test / (test + 2 * few),
        "train.iterations": _CHECKPOINTS,
        "reward.penalty": schedule.penalty,
        "backtest.top": _CHECKPOINTS,
        "threads": schedule.threads,
    }
    config = RunConfig.load(None, parse_assignments([f"{name}={value}" for name, value in changes.items()]))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        run = RunDirectory.create(Path(place) / "run", config)
        make_orders(run, config)
        train_policy(run, config, progress="none")
        began = time.perf_counter()
        backtest_policies(run, config)
        passed = time.perf_counter() - began
        orders = len(pd.read_parquet(run.orders / "test.parquet"))
    return {"seconds": passed, "orders": orders, "orders/s": orders * _CHECKPOINTS / passed}


def gather(folder: Path) -> dict[str, float]:
    """Collect many episodes at once; the memory that this adds."""
    parts = Parts(folder)
    policy = parts.policy()
    parts.gather(policy, parts.tiled(_WARM_UP))
    orders = parts.tiled(parts.schedule.gathered)
    before = peak_memory()
    parts.gather(policy, orders)
    return {"memory added": peak_memory() - before}


def iterations(folder: Path) -> dict[str, float]:
    """Train 200 short iterations; the peak memory after each twenty of them."""
    from benchmarks import scale

    return scale.iterations(folder, orders=1000, ticks=48)


def main_job(folder: Path) -> dict[str, float]:
    """Run the README's main job in a process of its own, from the command to the end of it."""
    asked = Schedule.read(folder).iterations
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [sys.executable, "-m", "rlwb.cli", "run", "--run-dir", str(Path(place) / "run")]
        command += [] if asked is None else ["--set", f"train.iterations={asked}"]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        return {"seconds": time.perf_counter() - began}


_NAMED = (simulate, environment, train, check, specification, blocks, roofline, judge, gather, iterations, main_job)
JOBS = {**{job.__name__: job for job in _NAMED}, "backtest": backtesting}
