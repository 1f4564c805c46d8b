"""A check of bars as one page that needs nothing else: pictures, counts, and every finding with its row."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Iterator

from jinja2 import Environment
from matplotlib.figure import Figure

from rlwb.evaluation.plots.quality import coverage_calendar, finding_days, worst_findings, zero_volumes
from rlwb.files import write_text
from rlwb.market.findings import KINDS, counted
from rlwb.market.quality import Quality

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Check of bars</title><style>
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 68rem; margin: 2.5rem auto;
  padding: 0 1.25rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: left; border-bottom: 1px solid #e4e9ee; vertical-align: top; }
td.n { text-align: right; } th { color: #5b6875; } .fault { color: #a33c00; font-weight: 600; }
.note { color: #0072b2; }
img { max-width: 100%; height: auto; } .scroll { overflow-x: auto; } summary { cursor: pointer; margin: .4rem 0; }
</style></head>
<body>
<h1>{{ quality.source }}</h1>
<p>{{ counted(quality.bars, "bars") }} of {{ counted(quality.instruments | length, "instruments") }} on
{{ counted(quality.days | length, "days") }}{% if quality.days | length %}, {{ quality.days[0] }} to
{{ quality.days[-1] }}{% endif %}.
<strong>{{ "Sound: nothing but notes." if quality.sound else "Not sound: see the faults below." }}</strong></p>
<h2>What was found</h2>
{% if counts %}<div class="scroll"><table>
<tr><th></th><th>kind</th><th>how many</th><th>what it is</th><th>what to do</th></tr>
{% for name, count in counts.items() %}{% set kind = kinds[name] -%}
<tr><td class="{{ kind.severity }}">{{ kind.severity }}</td><td>{{ name }}</td>
<td class="n">{{ counted(count, kind.unit) }}</td><td>{{ kind.text }}</td><td>{{ kind.advice }}</td></tr>
{% endfor %}</table></div>{% else %}<p>Nothing.</p>{% endif %}
<h2>Pictures</h2>
{% for picture in pictures %}<p><img alt="" src="data:image/png;base64,{{ picture }}"></p>
{% endfor %}<h2>Every finding</h2>
{% for name, count in counts.items() %}{% set listed = quality.found.listed.get(name, []) %}{% if listed -%}
<details><summary>{{ name }}: {{ "{:,}".format(listed | length) }} listed
{%- if count > listed | length %} of {{ "{:,}".format(count) }} counted{% endif %}</summary>
<div class="scroll"><table>
<tr><th>instrument</th><th>stamp or date</th><th>what</th><th>file</th><th>row</th></tr>
{% for one in listed -%}
<tr><td>{{ one.instrument or "" }}</td><td>{{ one.stamp or one.date or "" }}</td><td>{{ one.what }}</td>
<td>{{ one.file or "" }}</td><td class="n">{{ one.row or "" }}</td></tr>
{% endfor %}</table></div></details>
{% endif %}{% endfor %}</body></html>
"""


def write_quality_page(quality: Quality, path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    write_text(path, quality_page(quality))


def quality_page(quality: Quality) -> str:
    """Return the page as HTML."""
    page = Environment(autoescape=True).from_string(_PAGE)
    pictures = [_png(figure) for figure in _figures(quality)]
    counts = quality.found.ordered()
    return page.render(quality=quality, counts=counts, kinds=KINDS, counted=counted, pictures=pictures)


def _figures(quality: Quality) -> Iterator[Figure]:
    if len(quality.days):
        yield coverage_calendar(quality)
        yield zero_volumes(quality)
    if any(one.date for found in quality.found.listed.values() for one in found):
        yield finding_days(quality)
    windows = [window for found in quality.windows.values() for window in found]
    if windows:
        yield worst_findings(windows)


def _png(figure: Figure) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return base64.b64encode(content.getvalue()).decode("ascii")
