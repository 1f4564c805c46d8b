"""The page to read: one HTML file with everything in it, out of a run's directory."""

from __future__ import annotations

import base64
import csv
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rlwb.experiment.run import RunDirectory, read_json
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import write_text

CAPTIONS = {
    "learning_curves": "Learning: reward and PA over the iterations, in training and validation.",
    "validation_against_test": "Validation against test: the chosen checkpoints are flattered by having been chosen.",
    "pa_distribution": "Price advantage of single orders, by checkpoint.",
    "pa_by_month": "Price advantage by month, with day-clustered intervals.",
    "pa_by_instrument": "Price advantage by instrument, with day-clustered intervals.",
    "inventory_paths": "What is left to trade after each step, beside TWAP.",
    "cumulative_pa": "Price advantage added up over the days of the test.",
}
"""What stands under a figure, by its file's stem; figures appear in this order, others after them."""

_SUMMARY = {
    "policy": "policy",
    "validation_pa": "validation PA",
    "pa_mean": "test PA",
    "pa_lo": "low",
    "pa_hi": "high",
    "win_rate": "win rate",
    "glr": "gain/loss",
    "ffr": "ffr",
    "orders": "orders",
    "days": "days",
}

_ORDERS = {
    "part": "part",
    "orders": "orders",
    "instruments": "instruments",
    "days": "days",
    "first": "first day",
    "last": "last day",
    "mean_amount": "mean amount",
}

_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1d2733; background: #fff; max-width: 62rem; margin: 2.5rem auto;
  padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin-top: 2.4rem; border-bottom: 1px solid #d7dde4; padding-bottom: .25rem; }
.sub, figcaption, .notes { color: #5b6875; } .sub { margin-top: 0; } figcaption, .notes { font-size: .92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .3rem .75rem; text-align: right; border-bottom: 1px solid #e4e9ee; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: #5b6875; font-weight: 600; }
figure { margin: 1.4rem 0; } img { max-width: 100%; height: auto; }
pre { background: #f5f7f9; padding: .9rem 1rem; overflow-x: auto; font-size: .82rem; line-height: 1.45; }
details { margin: .6rem 0; } summary { cursor: pointer; }
"""


def write_report(run: RunDirectory) -> Path:
    """Write report.html from what lies in the run's directory and return its path.

    Parts whose files are not there are named as missing, so a report of half a run is honest about it.
    """
    config = run.config
    manifest = read_json(run.path / "manifest.json") if (run.path / "manifest.json").is_file() else {}
    market = "the embedded market" if config.market.source == "synthetic" else Path(config.market.source).name
    started = str(manifest.get("started", ""))[:16].replace("T", " ")
    parts = [
        f"<h1>{_text(run.path.name)}</h1>",
        f'<p class="sub">Orders on {_text(market)}, seed {config.seed}. {_text(started)}.</p>',
        "<h2>Does the policy beat TWAP?</h2>",
        _headline(run),
        "<h2>How stable is that?</h2>",
        *_figures(run),
        "<h2>Each policy on the test orders</h2>",
        _csv_table(run.backtest / "summary.csv", "the summary", _SUMMARY),
        "<h2>Data and orders</h2>",
        _csv_table(run.orders / "summary.csv", "the orders", _ORDERS),
        _data(run),
        "<h2>Rules of execution</h2>",
        f"<p>{_text(config.execution.rules.describe())}; a decision every {config.execution.ticks_per_step} bars.</p>",
        "<h2>How it was made</h2>",
        _details("Configuration", config.as_yaml()),
        _details("Versions, machine, seeds, data", dump_yaml(manifest)),
    ]
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(run.path.name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    write_text(run.report, page)
    return run.report


def _headline(run: RunDirectory) -> str:
    path = run.backtest / "headline.md"
    if not path.is_file():
        return _missing("the headline table", path)
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = [re.split(r"(?<!\\) ?\| ?", line.strip("| ")) for line in lines if line.startswith("|")]
    rows = [[cell.replace("\\|", "|") for cell in row] for row in cells]
    notes = "".join(f"<li>{_text(line.removeprefix('- '))}</li>" for line in lines if line.startswith("- "))
    return _table(rows[0], rows[2:]) + f'<ul class="notes">{notes}</ul>'


def _data(run: RunDirectory) -> str:
    path = run.orders / "data.json"
    if not path.is_file():
        return _missing("the data report", path)
    data = read_json(path)
    notes = "".join(f"<li>{_text(note)}</li>" for note in data["notes"])
    return f"<p>{_text(data['sessions'])}</p><pre>{_text(data['text'])}</pre>" + (f"<ul>{notes}</ul>" if notes else "")


def _figures(run: RunDirectory) -> Iterable[str]:
    found = {path.stem: path for path in sorted(run.figures.glob("*.png"))}
    if not found:
        yield _missing("the figures", run.figures)
    for stem in [*(stem for stem in CAPTIONS if stem in found), *(stem for stem in found if stem not in CAPTIONS)]:
        data = base64.b64encode(found[stem].read_bytes()).decode("ascii")
        caption = CAPTIONS.get(stem, stem.replace("_", " "))
        image = f'<img src="data:image/png;base64,{data}" alt="{_text(caption)}">'
        yield f"<figure>{image}<figcaption>{_text(caption)}</figcaption></figure>"


def _csv_table(path: Path, what: str, names: Mapping[str, str]) -> str:
    """Return the columns `names` of a CSV file, under the headings they map to."""
    if not path.is_file():
        return _missing(what, path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns = [column for column in names if rows and column in rows[0]]
    return _table([names[c] for c in columns], [[_number(row[c]) for c in columns] for row in rows])


def _number(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        return text
    if value != value:
        return ""
    return (
        f"{value:.0f}"
        if value.is_integer() and abs(value) > 1
        else f"{value:.3g}"
        if abs(value) < 1
        else f"{value:.2f}"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>'


def _details(title: str, text: str) -> str:
    return f"<details><summary>{_text(title)}</summary><pre>{_text(text)}</pre></details>"


def _missing(what: str, path: Path) -> str:
    return f"<p>Not here: {_text(what)} ({_text(path.name)}); that stage has not been done.</p>"


def _text(value: object) -> str:
    return html.escape(str(value if value is not None else ""))
