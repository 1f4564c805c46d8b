"""A check of bars as one page that needs nothing else: pictures, counts, and every finding with its row."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Iterator

from matplotlib.figure import Figure

from rlwb.evaluation.plots.quality import coverage_calendar, finding_days, worst_findings, zero_volumes
from rlwb.files import write_text
from rlwb.market.quality import KINDS, Quality, Window
from rlwb.market.report import counted

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 68rem; margin: 2.5rem auto;
  padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: left; border-bottom: 1px solid #e4e9ee; vertical-align: top; }
td.n { text-align: right; } th { color: #5b6875; } .fault { color: #a33c00; font-weight: 600; }
.note { color: #0072b2; }
img { max-width: 100%; height: auto; } .scroll { overflow-x: auto; } summary { cursor: pointer; margin: .4rem 0; }
"""
_SHOWN = ("outlier", "jump", "price_jump", "split_suspected", "stale")


def write_quality_page(quality: Quality, path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    write_text(path, quality_page(quality))


def quality_page(quality: Quality) -> str:
    """Return the page as HTML."""
    verdict = "Sound: nothing but notes." if quality.sound else "Not sound: see the faults below."
    span = f", {quality.days[0]} to {quality.days[-1]}" if len(quality.days) else ""
    where = f"{counted(len(quality.instruments), 'instruments')} on {counted(len(quality.days), 'days')}{span}"
    figures = "".join(f"<p>{_picture(figure)}</p>" for figure in _figures(quality))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Check of bars</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{_text(quality.source)}</h1>\n"
        f"<p>{counted(quality.bars, 'bars')} of {where}. "
        f"<strong>{verdict}</strong></p>\n<h2>What was found</h2>\n{_counts(quality)}\n<h2>Pictures</h2>\n{figures}\n"
        f"<h2>Every finding</h2>\n{''.join(_listed(quality))}\n</body></html>\n"
    )


def _figures(quality: Quality) -> Iterator[Figure]:
    if len(quality.days):
        yield coverage_calendar(quality)
        yield zero_volumes(quality)
    if any(one.date for found in quality.found.listed.values() for one in found):
        yield finding_days(quality)
    windows: list[Window] = [window for kind in _SHOWN for window in quality.found.windows.get(kind, ())]
    if windows:
        yield worst_findings(windows)


def _counts(quality: Quality) -> str:
    rows = [
        f'<tr><td class="{kind.gravity}">{kind.gravity}</td><td>{name}</td>'
        f'<td class="n">{counted(quality.found.counts[name], kind.unit)}</td><td>{_text(kind.text)}</td>'
        f"<td>{_text(kind.advice)}</td></tr>"
        for name, kind in KINDS.items()
        if name in quality.found.counts
    ]
    if not rows:
        return "<p>Nothing.</p>"
    head = "<tr><th></th><th>kind</th><th>how many</th><th>what it is</th><th>what to do</th></tr>"
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _listed(quality: Quality) -> Iterator[str]:
    head = "<tr><th>instrument</th><th>stamp or date</th><th>what</th><th>file</th><th>row</th></tr>"
    for name in KINDS:
        found = quality.found.listed.get(name, ())
        if found:
            rows = "".join(
                f"<tr><td>{_text(one.instrument)}</td><td>{_text(one.stamp or one.date)}</td><td>{_text(one.what)}</td>"
                f'<td>{_text(one.file)}</td><td class="n">{_text(one.row)}</td></tr>'
                for one in found
            )
            more = quality.found.counts[name] - len(found)
            title = f"{name}: {len(found):,} listed" + (
                f" of {quality.found.counts[name]:,} counted" if more > 0 else ""
            )
            table = f'<div class="scroll"><table>{head}{rows}</table></div>'
            yield f"<details><summary>{title}</summary>{table}</details>\n"


def _picture(figure: Figure) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(content.getvalue()).decode("ascii")}">'


def _text(value: object) -> str:
    return "" if value is None else html.escape(str(value))
