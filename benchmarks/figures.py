"""Which figures are measured, against what, what they should reach, and how several rounds become one row."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

PEER = "qlib 0.9.7"
#: Stands where a figure is compared with nothing.
NOTHING = "–"
#: The peer as it ships reads tables again for each order where there are more than five instruments.
_KEPT = f"{PEER}, its tables kept in memory"

#: Figures of one round, by (side, job, ticks): side is "rlwb" or "peer".
Round = Mapping[tuple[str, str, int], Mapping[str, float]]


@dataclass(frozen=True)
class Figure:
    """One row.

    Parameters
    ----------
    name, unit
        As printed.
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
    work: float | None = None
    goal: float | None = None
    goal_of: Literal["ratio", "rlwb"] = "ratio"


def _and_kept(figure: Figure) -> list[Figure]:
    """Return a figure, and the same against the peer with its tables kept, which no goal was set for."""
    other = ("peer", f"{figure.job}, kept", figure.key)
    return [figure, dataclasses.replace(figure, against=_KEPT, other=other, goal=None)]


def _for(ticks: int) -> list[Figure]:
    def figure(name: str, unit: str, job: str, key: str, **more: Any) -> Figure:
        return Figure(f"{name}, {ticks} ticks", unit, job, key, ticks, **more)

    peer, slow = ("peer", "environment", "environment"), ("rlwb", "blocks", "blocks")
    iteration = figure("training iteration", "s", "train", "iteration", less=True, goal=60 if ticks == 48 else 40)
    apart = {"against": "a pass over the day for each decision", "other": slow}
    return [
        figure("environment, full history", "steps/s", "environment", "environment", goal=10_000),
        figure("environment, history copied", "steps/s", "environment", "environment, blocks copied", other=peer),
        *_and_kept(figure("collect, recurrent policy", "steps/s", "train", "collect", goal=500)),
        figure("PPO update", "transitions/s", "train", "update", goal=25),
        *_and_kept(iteration),
        figure("memory of it above torch", "MB", "train", "memory", less=True, goal=20),
        figure("memory that it adds", "MB", "train", "memory added", less=True),
        *_and_kept(figure("backtest", "orders/s", "backtest", "backtest", goal=1_000)),
        figure("PPO update against its reference", "transitions/s", "train", "update", **apart),
    ]


def _own(name: str, unit: str, job: str, key: str, ticks: int, **more: Any) -> Figure:
    """Return a figure of which less is better, and which is compared with nothing unless it is told."""
    return Figure(name, unit, job, key, ticks, **{"against": NOTHING, "other": None, "less": True, **more})


_SIMULATOR = Figure("bare simulator, volume cap, 48 ticks", "steps/s", "simulate", "simulator", 48)
_SLOW = {"against": "a plain loop over ticks", "other": ("rlwb", "specification", "specification")}
_HUNDRED = {
    "against": f"{PEER}, 100,000 orders at its rate for 300",
    "other": ("peer", "backtest", "backtest"),
    "work": 100_000,
    "goal": 1_000,
}
_FIVE_MINUTES = {"goal": 300, "goal_of": "rlwb"}
_AFTER_20 = {"against": "the same process after 20", "other": ("rlwb", "iterations", "20")}

FIGURES: tuple[Figure, ...] = (
    dataclasses.replace(_SIMULATOR, goal=5_000_000, goal_of="rlwb"),
    dataclasses.replace(_SIMULATOR, name="bare simulator against its specification, 48 ticks", **_SLOW),
    *_for(48),
    *_for(240),
    _own("backtest of ten checkpoints x 10,000 orders, 240 ticks", "s", "judge", "seconds", 240, **_HUNDRED),
    _own("memory that a collect of 10,000 episodes adds, 48 ticks", "MB", "gather", "memory added", 48),
    _own("memory after 200 short iterations, 48 ticks", "MB", "iterations", "200", 48, **_AFTER_20),
    _own("rlwb run, all defaults, from the command to the report", "s", "main_job", "seconds", 48, **_FIVE_MINUTES),
)


def measured(figure: Figure, rounds: Sequence[Round], *, other: bool) -> list[float | None]:
    """Return the figure of each round, or of what it is compared with; None where it was not measured."""
    side, job, key = "rlwb", figure.job, figure.key
    if other:
        if figure.other is None:
            return [None] * len(rounds)
        side, job, key = (figure.other[0], figure.other[1] or job, figure.other[2] or key)
    values = [one.get((side, job, figure.ticks), {}).get(key) for one in rounds]
    if other and figure.work is not None:
        return [figure.work / rate if rate else None for rate in values]
    return values


def make_row(figure: Figure, rounds: Sequence[Round]) -> dict[str, Any] | None:
    """Return the figure's row: medians and spreads over the rounds; None when rlwb's side was not measured.

    The ratio is taken within each round, whose two sides ran one after the other.
    """
    ours, theirs = measured(figure, rounds, other=False), measured(figure, rounds, other=True)
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=True) if a is not None and b is not None and min(a, b) > 0]
    if not any(value is not None for value in ours):
        return None
    shares = [one.get(("rlwb", "roofline", figure.ticks), {}).get("roofline") for one in rounds]
    of_update = (figure.job, figure.key) == ("train", "update") and figure.against == PEER
    row = {
        "figure": figure.name,
        "unit": figure.unit,
        **spread("rlwb", ours),
        **spread("peer", theirs),
        **spread("ratio", [b / a if figure.less else a / b for a, b in pairs]),
        "against": figure.against,
        "roofline_share": spread("share", shares)["share"] if of_update else None,
        "goal": figure.goal,
        "goal_of": None if figure.goal is None else figure.goal_of,
        "goal_is_most": figure.less and figure.goal_of == "rlwb",
        "rounds": len(rounds),
    }
    return {**row, "met": _met(row)}


def _met(row: Mapping[str, Any]) -> bool | None:
    """Return whether the median reaches the goal; None without a goal or a figure."""
    value = None if row["goal_of"] is None else row[row["goal_of"]]
    if value is None:
        return None
    return bool(value <= row["goal"] if row["goal_is_most"] else value >= row["goal"])


def spread(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """Return median, least and largest of the values that are known, under `name`; None where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return {name: None, f"{name}_min": None, f"{name}_max": None}
    return {name: statistics.median(known), f"{name}_min": min(known), f"{name}_max": max(known)}
