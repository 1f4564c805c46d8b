"""A check of bars as one page that needs nothing else: pictures, counts, and every finding with its row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from matplotlib.figure import Figure

from rlwb.evaluation.page import encoded, render
from rlwb.evaluation.plots.quality import coverage_calendar, finding_days, worst_findings, zero_volumes
from rlwb.files import write_text
from rlwb.market.findings import KINDS, counted
from rlwb.market.quality import Quality

_SHOWN = ("outlier", "jump", "price_jump", "split_suspected", "stale")


def write_quality_page(quality: Quality, path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    write_text(path, quality_page(quality))


def quality_page(quality: Quality) -> str:
    """Return the page as HTML."""
    span = f", {quality.days[0]} to {quality.days[-1]}" if len(quality.days) else ""
    where = f"{counted(len(quality.instruments), 'instruments')} on {counted(len(quality.days), 'days')}{span}"
    return render(
        "quality.html",
        title=quality.source,
        bars=counted(quality.bars, "bars"),
        where=where,
        verdict="Sound: nothing but notes." if quality.sound else "Not sound: see the faults below.",
        counts=[
            {
                "severity": kind.severity,
                "name": name,
                "count": counted(quality.found.counts[name], kind.unit),
                "text": kind.text,
                "advice": kind.advice,
            }
            for name, kind in KINDS.items()
            if name in quality.found.counts
        ],
        figures=[encoded(figure) for figure in _figures(quality)],
        findings=list(_findings(quality)),
    )


def _figures(quality: Quality) -> Iterator[Figure]:
    if len(quality.days):
        yield coverage_calendar(quality)
        yield zero_volumes(quality)
    if any(one.date for found in quality.found.listed.values() for one in found):
        yield finding_days(quality)
    windows = [window for found in quality.windows.values() for window in found]
    if windows:
        yield worst_findings(windows)


def _findings(quality: Quality) -> Iterator[dict[str, Any]]:
    for name in KINDS:
        found = quality.found.listed.get(name, ())
        if found:
            more = quality.found.counts[name] > len(found)
            counted_too = f" of {quality.found.counts[name]:,} counted" if more else ""
            rows = [[one.instrument, one.stamp or one.date, one.what, one.file, one.row] for one in found]
            yield {"title": f"{name}: {len(found):,} listed{counted_too}", "rows": rows}
