"""From validation PA against the clock to rows and a picture: when the target was reached, or what is known of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures import NOTHING, PEER, spread
from benchmarks.scale import save
from rlwb.evaluation import style

#: Share of the best validation PA that counts as quality.
SHARE = 0.95

#: Iteration, seconds since the start and validation PA in basis points, in order of the iterations.
Points = Sequence[Mapping[str, float]]


@dataclass(frozen=True)
class Times:
    """Seconds to the target.

    Attributes
    ----------
    seconds
        None where nothing can be said.
    kind
        ``measured``, ``extrapolated``, ``at least`` or ``not measured``.
    how
        A sentence on where the seconds come from.
    """

    seconds: float | None
    kind: str
    how: str


@dataclass(frozen=True)
class Side:
    """What both did by one schedule.

    Attributes
    ----------
    ours, theirs
        Points of rlwb, up to the target or the end of its budget, and of the peer; none where it did not run.
    validation
        What one validation of the peer's own took: ``orders`` out of ``of``, and ``seconds``.
    """

    ours: Points
    theirs: Points
    validation: Mapping[str, float] | None


def target_of(points: Points) -> float:
    """Return the PA that counts as quality for a training that was seen to its end, in basis points.

    Raises
    ------
    SystemExit
        When its best is not above 0: then nothing was learnt, and there is no time to it.
    """
    best = max(point["pa"] for point in points)
    if not best > 0:
        raise SystemExit(f"the best validation PA of rlwb is {best:.3f} bp; nothing was learnt, so no time is told.")
    return SHARE * best


def first_at(points: Points, target: float) -> Mapping[str, float] | None:
    """Return the first point with at least the target's PA; None where there is none."""
    return next((point for point in points if point["pa"] >= target), None)


def our_time(points: Points, target: float) -> Times:
    """Return rlwb's seconds to the target."""
    point = first_at(points, target)
    if point is not None:
        return Times(point["seconds"], "measured", f"reached in iteration {point['iteration']}")
    last = points[-1]
    return Times(last["seconds"], "at least", f"not reached in {last['iteration']} iterations, {last['seconds']:.0f} s")


def peer_time(side: Side, target: float) -> Times:
    """Return the peer's seconds to the target.

    Where its budget ended before, they are extrapolated: its mean seconds an iteration, times the iterations that rlwb
    needed by the same schedule with the same network. Where rlwb did not get there either, or needed no more iterations
    than the peer has run, all that can be said is a lower bound.
    """
    if not side.theirs:
        return Times(None, "not measured", "the peer was not run")
    done = side.theirs[-1]
    reached, needed = first_at(side.theirs, target), first_at(side.ours, target)
    if reached is not None:
        return Times(reached["seconds"], "measured", f"reached in iteration {reached['iteration']}")
    each = done["seconds"] / done["iteration"]
    ran = f"{done['iteration']} iterations measured, {each:.0f} s each, PA {done['pa']:.2f} bp by then"
    if needed is None:
        tried = side.ours[-1]["iteration"]
        bound = each * max(tried, done["iteration"])
        return Times(bound, "at least", f"{ran}; times {tried}, in which rlwb did not reach it by the same schedule")
    if needed["iteration"] <= done["iteration"]:
        return Times(done["seconds"], "at least", f"{ran}; rlwb needed {needed['iteration']} by the same schedule")
    count = needed["iteration"]
    return Times(each * count, "extrapolated", f"{ran}; times {count}, which rlwb needed by the same schedule")


def make_rows(default: Sequence[Points], sides: Mapping[str, Side], target: float) -> list[dict[str, Any]]:
    """Return the rows: each by its own schedule, both by the peer's, both by rlwb's.

    Parameters
    ----------
    default
        Points of ``rlwb run``'s training, a seed each, to the last iteration; each has a target of its own.
    sides
        What both did by the schedules ``published`` and ``rlwb``.
    target
        Of all others, in basis points.
    """
    own = [our_time(points, target_of(points)) for points in default]
    name = f"time to {SHARE:.0%} of the best validation PA"
    both = {key: our_time(side.ours, target) for key, side in sides.items()}
    published, same = sides["published"], sides["rlwb"]
    return [
        _row(f"{name}, each by its own schedule", own, default, published, target),
        _row(f"{name}, both by the peer's schedule", [both["published"]], [published.ours], published, target),
        _row(f"{name}, both by rlwb's schedule", [both["rlwb"]], [same.ours], same, target),
    ]


def _row(name: str, ours: Sequence[Times], curves: Sequence[Points], side: Side, target: float) -> dict[str, Any]:
    peer = peer_time(side, target)
    seconds = [one.seconds for one in ours if one.seconds is not None]
    known = peer.seconds is not None and all(one.kind == "measured" for one in ours)
    ratios = [peer.seconds / one for one in seconds] if known and peer.seconds is not None else []
    return {
        "figure": name,
        "unit": "s",
        **spread("rlwb", seconds),
        **spread("peer", [] if peer.seconds is None else [peer.seconds]),
        **spread("ratio", ratios),
        "against": NOTHING if peer.seconds is None else f"{PEER}, {peer.kind}",
        "roofline_share": None,
        "goal": None,
        "goal_of": None,
        "goal_is_most": False,
        "met": None,
        "rounds": len(ours),
        "target_bp": target,
        "rlwb_is": "measured" if all(one.kind == "measured" for one in ours) else "at least",
        "rlwb_how": "; ".join(one.how for one in ours),
        "peer_is": peer.kind,
        "peer_how": peer.how,
        "peer_validation": side.validation,
        "rlwb_points": curves,
        "peer_points": side.theirs,
    }


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the curves of the three rows to `path` with the endings .png and .svg.

    Filled marks are measured. An open one stands where the peer's time to the target was extrapolated, with an arrow
    where it is a lower bound.
    """
    with style.theme("light", width=900):
        save(_drawn(rows), path)


@style.styled
def _drawn(rows: Sequence[Mapping[str, Any]]) -> Figure:
    each, published, same = rows
    title = f"{SHARE:.0%} of the best validation PA after {each['rlwb']:.1f} s; the peer after {each['peer']:,.0f} s"
    figure, (axis,) = style.canvas(f"{title} ({each['peer_is']})", each["machine"], height=4.2)
    for number, points in enumerate(each["rlwb_points"]):
        label = f"rlwb run, {each['rounds']} seeds" if number == 0 else None
        _line(axis, points, "-", style.BLUE, label)
    schedules = ((published, style.VERMILION, "o-", "the peer's"), (same, style.GREEN, "s-", "rlwb's"))
    for row, color, look, words in schedules:
        _line(axis, row["rlwb_points"][0], "--", color, f"rlwb by {words} schedule")
        _line(axis, row["peer_points"], look, color, f"peer by {words} schedule")
        if row["peer_is"] in ("extrapolated", "at least"):
            mark = {"marker": "o" if row["peer_is"] == "extrapolated" else ">", "mfc": "none", "ls": "none"}
            label = f"peer by {words} schedule, {row['peer_is']}"
            axis.plot([row["peer"]], [row["target_bp"]], color=color, ms=9, label=label, **mark)
    axis.axhline(each["target_bp"], color=style.GREY, lw=0.8, ls=":", label=f"{SHARE:.0%} of the best")
    axis.set(xscale="log", ylabel="validation PA, bp")
    axis.set_xlabel("time of training, with rlwb's validations and without the peer's, s")
    style.plain_log(axis.xaxis)
    return figure


def _line(axis: Axes, points: Points, dash: str, color: str, label: str | None) -> None:
    if points:
        xy = [[point[name] for point in points] for name in ("seconds", "pa")]
        axis.plot(*xy, dash, color=color, lw=1.2, ms=4, label=label)
