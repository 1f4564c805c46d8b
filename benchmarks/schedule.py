"""What both sides run. Plain values only: this module is imported in both environments."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Schedule:
    """One market and one training schedule.

    Parameters
    ----------
    ticks, ticks_per_step
        Ticks of a session, 48 (five minutes) or 240 (one minute), and of a decision. Both give 8 decisions a day.
    instruments, days
        Size of the market.
    split
        Whether the orders are those of ``rlwb run``: a buy and a sell a session, cut into training and validation by
        date. Otherwise they are one sell order a session, all for training.
    episodes, repeat, batch_size
        Episodes of an iteration, passes over them, and transitions a minibatch.
    hidden, output
        Widths of the network.
    choices
        The actions are 0, 1/choices, …, 1 of the order.
    volume_limit
        Largest share of a tick's volume that an order may take; None means no cap.
    learning_rate, clip, value_coef, entropy_coef, max_grad_norm, penalty, reward_scale
        Of PPO and of the reward.
    simulated
        Orders that the peer executes in its slow jobs without a network.
    backtested
        Orders of a backtest.
    judged, gathered
        Orders of rlwb's backtest of ten checkpoints, and episodes of the collect whose memory is measured.
    iterations
        Of the README's main job; None leaves them at their default.
    concurrency
        The peer's environments side by side, in one process. More make its batches larger and its end longer:
        it waits half a second for each environment when a backtest runs out of orders.
    threads
        Of each side.
    """

    ticks: int = 48
    ticks_per_step: int = 6
    instruments: int = 10
    days: int = 60
    split: bool = False
    episodes: int = 500
    repeat: int = 5
    batch_size: int = 256
    hidden: int = 64
    output: int = 32
    choices: int = 4
    volume_limit: float | None = 0.25
    learning_rate: float = 1e-4
    clip: float = 0.3
    value_coef: float = 1.0
    entropy_coef: float = 0.01
    max_grad_norm: float = 100.0
    penalty: float = 100.0
    reward_scale: float = 0.01
    simulated: int = 100
    backtested: int = 300
    judged: int = 10_000
    gathered: int = 10_000
    iterations: int | None = None
    concurrency: int = 8
    threads: int = 1
    seed: int = 0

    @property
    def max_step(self) -> int:
        """Decisions of a whole session."""
        return self.ticks // self.ticks_per_step

    @classmethod
    def of(cls, ticks: int, **changes: float | None) -> Schedule:
        """Return the schedule for 48 or 240 ticks."""
        if ticks not in (48, 240):
            raise SystemExit(f"ticks is {ticks}; the market is made with 48 or 240 ticks a session.")
        return dataclasses.replace(cls(ticks=ticks, ticks_per_step=ticks // 8), **changes)  # type: ignore[arg-type]

    def write(self, folder: Path) -> None:
        (folder / "schedule.json").write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Schedule:
        return cls(**json.loads((folder / "schedule.json").read_text(encoding="utf-8")))
