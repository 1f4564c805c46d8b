"""rlwb against its own slow paths and against the machine. Run as ``python -m benchmarks.own JOB FOLDER OUT``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.measure import run_job, seconds
from benchmarks.parts import Parts
from benchmarks.roofline import measure_update
from tests.execution.specification import SpecifiedOrder, Tick

#: Orders that the slow loop executes.
_FEW = 50


def specification(folder: Path) -> dict[str, float]:
    """Execute the same orders by the engine and by the slow loop that specifies it."""
    parts = Parts(folder)
    engine, schedule = parts.factory.engine, parts.schedule
    few = parts.orders[np.arange(_FEW)]
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
    episodes = parts.gather(policy, parts.orders[np.arange(min(schedule.episodes, len(parts.orders)))])
    obs = dict(episodes.obs)
    session = obs.pop("session")
    obs["data_processed"] = parts.features.block(session, obs["cur_tick"])
    obs["data_processed_prev"] = parts.features.block_previous(session)

    def update() -> None:
        policy.learn(
            obs, episodes.action, episodes.reward, episodes.done, batch_size=schedule.batch_size, repeat=schedule.repeat
        )

    return {"blocks": len(episodes.reward) * schedule.repeat / seconds(update)}


def roofline(folder: Path) -> dict[str, float]:
    """Compare the update with the matrix products in it."""
    parts = Parts(folder)
    count = min(parts.schedule.episodes, len(parts.orders))
    found = measure_update(parts, parts.gather(parts.policy(), parts.orders[np.arange(count)]))
    return {"roofline": found.share, "gflops": found.speed / 1e9}


if __name__ == "__main__":
    run_job({job.__name__: job for job in (specification, blocks, roofline)})
