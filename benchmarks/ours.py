"""rlwb's side of the comparison. Run as ``python -m benchmarks.ours JOB FOLDER OUT``."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from benchmarks.measure import Timer, peak_memory, run_job, seconds

_BARE_MEMORY = peak_memory()

import numpy as np  # noqa: E402

import rlwb.trainer.vessel  # noqa: E402
from benchmarks.parts import PEER_NETWORK, Parts  # noqa: E402
from rlwb.execution import CategoricalActionInterpreter  # noqa: E402
from rlwb.trainer import Trainer, backtest, result_table  # noqa: E402

#: Orders at once where there is no network; enough that the time is not that of Python calls.
_MANY = 20_000
_WARM_UP = 8


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
        orders = parts.orders[np.arange(min(count, len(parts.orders)))]
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
    orders, asked = parts.orders[np.arange(4)], []
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


if __name__ == "__main__":
    jobs = [simulate, environment, train, check]
    run_job({**{job.__name__: job for job in jobs}, "backtest": backtesting})
