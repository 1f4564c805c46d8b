"""Which figures are measured, against what, and what they should reach."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

PEER = "qlib 0.9.7"
#: Stands where a figure is compared with nothing.
NOTHING = "–"
#: The peer as it ships reads tables again for each order where there are more than five instruments.
_KEPT = f"{PEER}, its tables kept in memory"


@dataclass(frozen=True)
class Figure:
    """One row.

    Parameters
    ----------
    name, unit
        As printed; ``{ticks}`` in the name stands for the ticks of a session.
    job, key
        Which job measures it, and under which key.
    ticks
        Ticks of the session.
    against
        What it is compared with.
    other
        Side, job and key of the other figure; the peer's same job and key by default, None for no comparison.
    less
        Whether less is better. A ratio above 1 is in rlwb's favour always.
    side
        Whose jobs measure rlwb's part.
    work
        Where the other figure is a rate and this one seconds: the work that these are for, so that the other side is
        shown as the seconds that it would take at its rate.
    goal, goal_of
        What the figure should reach, and whether it is the ratio or rlwb's own figure that should; None for no goal.
    """

    name: str
    unit: str
    job: str
    key: str
    ticks: int
    against: str = PEER
    other: tuple[str, str, str] | None = ("peer", "", "")
    less: bool = False
    side: str = "rlwb"
    work: float | None = None
    goal: float | None = None
    goal_of: Literal["ratio", "rlwb"] = "ratio"


def _and_kept(figure: Figure) -> list[Figure]:
    """Return a figure, and the same against the peer with its tables kept, which no goal was set for."""
    other = ("peer", f"{figure.job}, kept", figure.key)
    return [figure, dataclasses.replace(figure, against=_KEPT, other=other, goal=None)]


def _for(ticks: int) -> list[Figure]:
    return [
        Figure(
            f"environment, full history, {ticks} ticks", "steps/s", "environment", "environment", ticks, goal=10_000
        ),
        Figure(
            f"environment, history copied, {ticks} ticks",
            "steps/s",
            "environment",
            "environment, blocks copied",
            ticks,
            other=("peer", "environment", "environment"),
        ),
        *_and_kept(Figure(f"collect, recurrent policy, {ticks} ticks", "steps/s", "train", "collect", ticks, goal=500)),
        Figure(f"PPO update, {ticks} ticks", "transitions/s", "train", "update", ticks, goal=25),
        *_and_kept(
            Figure(
                f"training iteration, {ticks} ticks",
                "s",
                "train",
                "iteration",
                ticks,
                less=True,
                goal=60 if ticks == 48 else 40,
            )
        ),
        Figure(f"memory of it above torch, {ticks} ticks", "MB", "train", "memory", ticks, less=True, goal=20),
        Figure(f"memory that it adds, {ticks} ticks", "MB", "train", "memory added", ticks, less=True),
        *_and_kept(Figure(f"backtest, {ticks} ticks", "orders/s", "backtest", "backtest", ticks, goal=1_000)),
        Figure(
            f"PPO update against its reference, {ticks} ticks",
            "transitions/s",
            "train",
            "update",
            ticks,
            against="a pass over the day for each decision",
            other=("own", "blocks", "blocks"),
        ),
    ]


FIGURES: tuple[Figure, ...] = (
    Figure(
        "bare simulator, volume cap, 48 ticks", "steps/s", "simulate", "simulator", 48, goal=5_000_000, goal_of="rlwb"
    ),
    Figure(
        "bare simulator against its specification, 48 ticks",
        "steps/s",
        "simulate",
        "simulator",
        48,
        against="a plain loop over ticks",
        other=("own", "specification", "specification"),
    ),
    *_for(48),
    *_for(240),
    Figure(
        "backtest of ten checkpoints x 10,000 orders, 240 ticks",
        "s",
        "judge",
        "seconds",
        240,
        against=f"{PEER}, 100,000 orders at its rate for 300",
        other=("peer", "backtest", "backtest"),
        less=True,
        side="own",
        work=100_000,
        goal=1_000,
    ),
    Figure(
        "memory that a collect of 10,000 episodes adds, 48 ticks",
        "MB",
        "gather",
        "memory added",
        48,
        against=NOTHING,
        other=None,
        less=True,
        side="own",
    ),
    Figure(
        "memory after 200 short iterations, 48 ticks",
        "MB",
        "iterations",
        "200",
        48,
        against="the same process after 20",
        other=("own", "iterations", "20"),
        less=True,
        side="own",
    ),
    Figure(
        "rlwb run, all defaults, from the command to the report",
        "s",
        "main_job",
        "seconds",
        48,
        against=NOTHING,
        other=None,
        less=True,
        side="own",
        goal=300,
        goal_of="rlwb",
    ),
)
