"""The page of a check of bars."""

from __future__ import annotations

from rlwb.evaluation.page import render
from rlwb.evaluation.pictures import picture
from rlwb.evaluation.plots import coverage_calendar, finding_days, worst_findings, zero_volumes
from rlwb.market.findings import KINDS, counted
from rlwb.market.quality import Quality


def quality_page(quality: Quality) -> str:
    """Return pictures, counts, and every finding with its row in one HTML file."""
    figures = [coverage_calendar(quality), zero_volumes(quality)] if len(quality.days) else []
    if any(one.date for found in quality.found.listed.values() for one in found):
        figures.append(finding_days(quality))
    if windows := [window for found in quality.windows.values() for window in found]:
        figures.append(worst_findings(windows))
    pictures = [picture(figure) for figure in figures]
    return render("quality.html", title=quality.source, quality=quality, kinds=KINDS, counted=counted, figures=pictures)
