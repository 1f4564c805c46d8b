"""How the figures of several rounds become one row of ``speed.json``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.figures import PEER, Figure

#: Figures of one round, by (side, job, ticks): side is "rlwb", "peer" or "own".
Round = Mapping[tuple[str, str, int], Mapping[str, float]]


def measured(figure: Figure, rounds: Sequence[Round], *, other: bool) -> list[float | None]:
    """Return the figure of each round, or of what it is compared with; None where it was not measured."""
    side, job, key = figure.side, figure.job, figure.key
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
    ratios = [
        (b / a if figure.less else a / b)
        for a, b in zip(ours, theirs, strict=True)
        if a is not None and b is not None and min(a, b) > 0
    ]
    if not any(value is not None for value in ours):
        return None
    shares = [one.get(("own", "roofline", figure.ticks), {}).get("roofline") for one in rounds]
    of_update = (figure.job, figure.key) == ("train", "update") and figure.against == PEER
    row = {
        "figure": figure.name,
        "unit": figure.unit,
        **spread("rlwb", ours),
        **spread("peer", theirs),
        **spread("ratio", ratios),
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
