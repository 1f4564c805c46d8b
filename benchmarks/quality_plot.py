"""The picture of ``results/quality.json``: validation PA against wall time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.quality_rows import SHARE, Points
from rlwb.files import atomic_path

_COLOURS = {"default": "#1b5e8c", "published": "#c4541a", "rlwb": "#5b8c2a"}


def plot(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the curves of the three rows to `path` with the endings .png and .svg.

    Filled marks are measured. An open one stands where the peer's time to the target was extrapolated, with an arrow
    where it is a lower bound.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    each, published, same = rows
    figure, axis = plt.subplots(figsize=(8, 4.6), layout="constrained")
    for number, points in enumerate(each["rlwb_points"]):
        label = f"rlwb run, {each['rounds']} seeds" if number == 0 else None
        _line(axis, points, "-", _COLOURS["default"], label)
    for row, key, words in ((published, "published", "the peer's schedule"), (same, "rlwb", "rlwb's schedule")):
        _line(axis, row["rlwb_points"][0], "--", _COLOURS[key], f"rlwb by {words}")
        _line(axis, row["peer_points"], "o-", _COLOURS[key], f"peer by {words}")
        if row["peer_is"] in ("extrapolated", "at least"):
            mark = {"marker": "o" if row["peer_is"] == "extrapolated" else ">", "mfc": "none", "ls": "none"}
            label = f"peer by {words}, {row['peer_is']}"
            axis.plot([row["peer"]], [row["target_bp"]], color=_COLOURS[key], ms=9, label=label, **mark)
    axis.axhline(each["target_bp"], color="0.4", lw=0.8, ls=":")
    axis.annotate(
        f"{SHARE:.0%} of the best", (0.01, each["target_bp"]), xycoords=("axes fraction", "data"), va="bottom"
    )
    axis.set_xscale("log")
    axis.set_xlabel("seconds of training, with rlwb's validations and without the peer's")
    axis.set_ylabel("validation PA, bp")
    axis.grid(alpha=0.3, which="both")
    axis.legend(frameon=False, fontsize=8)
    axis.set_title(each["machine"], fontsize=9)
    for suffix in (".png", ".svg"):
        with atomic_path(path.with_suffix(suffix)) as temporary:
            figure.savefig(temporary, dpi=130)
    plt.close(figure)


def _line(axis: Any, points: Points, style: str, colour: str, label: str | None) -> None:
    if points:
        xy = [[point[name] for point in points] for name in ("seconds", "pa")]
        axis.plot(*xy, style, color=colour, lw=1.2, ms=4, label=label)
