"""Which figures are measured, and how those of several rounds become one row of ``speed.json``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PEER = "qlib 0.9.7"
#: Figures of one round, by (side, job, ticks): side is "rlwb", "peer" or "own".
Round = Mapping[tuple[str, str, int], Mapping[str, float]]


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
    """

    name: str
    unit: str
    job: str
    key: str
    ticks: int
    against: str = PEER
    other: tuple[str, str, str] | None = ("peer", "", "")
    less: bool = False


def _for(ticks: int) -> list[Figure]:
    return [
        Figure(f"environment, full history, {ticks} ticks", "steps/s", "environment", "environment", ticks),
        Figure(
            f"environment, history copied, {ticks} ticks",
            "steps/s",
            "environment",
            "environment, blocks copied",
            ticks,
            other=("peer", "environment", "environment"),
        ),
        Figure(f"collect, recurrent policy, {ticks} ticks", "steps/s", "train", "collect", ticks),
        Figure(f"PPO update, {ticks} ticks", "transitions/s", "train", "update", ticks),
        Figure(f"training iteration, {ticks} ticks", "s", "train", "iteration", ticks, less=True),
        Figure(f"memory of it above torch, {ticks} ticks", "MB", "train", "memory", ticks, less=True),
        Figure(f"memory that it adds, {ticks} ticks", "MB", "train", "memory added", ticks, less=True),
        Figure(f"backtest, {ticks} ticks", "orders/s", "backtest", "backtest", ticks),
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
    Figure("bare simulator, volume cap, 48 ticks", "steps/s", "simulate", "simulator", 48),
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
)


def measured(figure: Figure, rounds: Sequence[Round], *, other: bool) -> list[float | None]:
    """Return the figure of each round, or of what it is compared with; None where it was not measured."""
    side, job, key = "rlwb", figure.job, figure.key
    if other:
        if figure.other is None:
            return [None] * len(rounds)
        side, job, key = (figure.other[0], figure.other[1] or job, figure.other[2] or key)
    return [one.get((side, job, figure.ticks), {}).get(key) for one in rounds]


def make_row(figure: Figure, rounds: Sequence[Round]) -> dict[str, Any] | None:
    """Return the figure's row: medians and spreads over the rounds; None when rlwb's side was not measured.

    The ratio is taken within each round, whose two sides ran one after the other.
    """
    ours, theirs = measured(figure, rounds, other=False), measured(figure, rounds, other=True)
    ratios = [
        (b / a if figure.less else a / b)
        for a, b in zip(ours, theirs, strict=True)
        if a is not None and b is not None and min(a, b) > 0
    ]
    if not any(value is not None for value in ours):
        return None
    shares = [one.get(("own", "roofline", figure.ticks), {}).get("roofline") for one in rounds]
    of_update = (figure.job, figure.key) == ("train", "update") and figure.against == PEER
    return {
        "figure": figure.name,
        "unit": figure.unit,
        **_spread("rlwb", ours),
        **_spread("peer", theirs),
        **_spread("ratio", ratios),
        "against": figure.against,
        "roofline_share": _spread("share", shares)["share"] if of_update else None,
        "rounds": len(rounds),
    }


def _spread(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    if not known:
        return {name: None, f"{name}_min": None, f"{name}_max": None}
    return {name: statistics.median(known), f"{name}_min": min(known), f"{name}_max": max(known)}
