"""The page to read: one HTML file with everything in it, out of a run's directory."""

from __future__ import annotations

import base64
import csv
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rlwb.execution import ExecutionRules
from rlwb.experiment.run import RunDirectory, read_json
from rlwb.experiment.stages import STAGES
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import write_text

CAPTIONS = {
    "learning_curves": "Learning. Rings mark the chosen checkpoints: they should lie on a plateau late in the training."
    " Scattered peaks of a noisy curve, or validation falling while training rises, are reasons for distrust.",
    "validation_against_test": "Validation against test. The chosen checkpoints are flattered by having been chosen; "
    "they would lie on the dashed line if all checkpoints were equally good and the choice had picked noise alone.",
    "pa_distribution": "Single orders, by policy. They scatter far more than the mean is large; a mean and a median on "
    "different sides of 0 say that a few orders carry the result.",
    "pa_by_month": "By month, with day-clustered intervals. An edge that fades, or that one month carries, is a reason "
    "for distrust; too few days for an interval that holds what it promises have none.",
    "pa_by_instrument": "By instrument, with day-clustered intervals, sorted by the mean: the slope is there by "
    "construction, the intervals are what to look at.",
    "inventory_paths": "What is left to trade after each step, beside the baselines. Thin bands are a fixed schedule "
    "that does not look at prices; an order kept to the end is a bet.",
    "cumulative_pa": "Added up over the test days. A steady edge is a straight line; a jump is an event.",
}
"""What stands under a figure, by its file's stem: what it shows and what should worry.

Figures appear in this order, others after them.
"""

_SUMMARY = {
    "policy": "policy",
    "kind": "kind",
    "validation_pa": "validation PA",
    "pa_mean": "test PA",
    "pa_lo": "low",
    "pa_hi": "high",
    "pa_net": "net test PA",
    "win_rate": "win rate",
    "glr": "gain/loss",
    "ffr": "ffr",
    "orders": "orders",
    "days": "days",
}

#: Column of ``backtest/gap.csv`` to its title.
GAP_COLUMNS = {
    "cause": "cause",
    "pa": "PA",
    "pa_net": "net PA",
    "difference": "difference",
    "difference_lo": "low",
    "difference_hi": "high",
    "ffr": "ffr",
    "orders": "orders",
    "left_out": "left out",
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

#: Findings of the data report that may void a result.
_DOUBTS = {
    "label_suspect": "stamps look as if the calendar's label, start or end of a bar, were the wrong one",
    "volume_break": "the scale of volume breaks from one day to the next",
}

_STYLE = """
body { font: 16px/1.55 system-ui, sans-serif; color: #1d2733; background: #fff; max-width: 68rem; margin: 2.5rem auto;
  padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; }
h2 { font-size: 1.2rem; margin-top: 2.4rem; border-bottom: 1px solid #d7dde4; padding-bottom: .25rem; }
.sub, figcaption, .notes { color: #5b6875; } .sub { margin-top: 0; } figcaption, .notes { font-size: .92rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .86rem; }
th, td { padding: .3rem .5rem; text-align: right; border-bottom: 1px solid #e4e9ee; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { color: #5b6875; font-weight: 600; }
figure { margin: 1.4rem 0; } img { width: 48rem; max-width: 100%; height: auto; } figcaption { max-width: 48rem; }
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
        _verdict(run),
        _caveats(run),
        _headline(run),
        "<h2>How stable is that?</h2>",
        *_figures(run),
        "<h2>Each policy on the test orders</h2>",
        _csv_table(run.backtest / "summary.csv", "the summary", summary_columns(_SUMMARY, config.execution.rules)),
        "<h2>Data and orders</h2>",
        _csv_table(run.orders / "summary.csv", "the orders", _ORDERS),
        _data(run),
        "<h2>Rules of execution</h2>",
        f"<p>{_text(config.execution.rules.describe())}; a decision every {config.execution.ticks_per_step} bars.</p>",
        *_gap(run),
        "<h2>How it was made</h2>",
        _stages(run),
        _details("Configuration", config.as_yaml()),
        _details("Versions, machine, seeds, data", dump_yaml(_settled(manifest))),
    ]
    page = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(run.path.name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
    write_text(run.report, page)
    return run.report


def summary_columns(columns: Mapping[str, str], rules: ExecutionRules) -> dict[str, str]:
    """Return column to title of the summary: validation has the PA judged by; the net PA is shown where it differs."""
    shown = {name: title for name, title in columns.items() if rules.have_costs or name != "pa_net"}
    return shown | ({"validation_pa": "validation net PA"} if rules.have_costs else {})


def _verdict(run: RunDirectory) -> str:
    """Say in a sentence what the headline's first row shows; nothing when it is not there.

    The mark to beat is TWAP on the same orders, whose own PA is not 0 where rules cut its fills.
    """
    path = run.backtest / "headline.csv"
    if not path.is_file():
        return ""
    with path.open(newline="", encoding="utf-8") as file:
        first = next(csv.DictReader(file), {})
    net = run.config.execution.rules.have_costs
    names = ("pa_net_mean", "pa_net_lo", "pa_net_hi") if net else ("pa_mean", "pa_lo", "pa_hi")
    stem = "net_over_twap" if net else "over_twap"
    try:
        mean, low, high = (float(first[name]) for name in names)
        over = [float(first.get(name) or "nan") for name in (stem, f"{stem}_lo", f"{stem}_hi")]
    except (KeyError, ValueError):
        return ""
    compared = not math.isnan(over[0])
    if compared:
        mean, low, high = over
    level = run.config.backtest.confidence
    if low > 0 or high < 0:
        answer = f"{'Yes' if low > 0 else 'No: it is worse'}, on these test days"
    else:
        answer = "This test does not show it" if low <= 0 <= high else "So few days of orders cannot show it"
    span = f", with a {100 * level:g} % interval of [{low:.2f}, {high:.2f}] bp" if low == low else ""
    verb = "gain" if mean >= 0 else "lose"
    gain = f"{abs(mean):.2f} bp an order {'over TWAP ' if compared else ''}{'after costs ' if net else ''}on average"
    return f"<p><strong>{answer}.</strong> The chosen checkpoints {verb} {gain}{span}.</p>"


def _caveats(run: RunDirectory) -> str:
    """Say beside the answer what it holds for, and what in the data may void it."""
    config = run.config
    lines = [f"It holds under these rules: {config.execution.rules.describe()}."]
    if config.market.source == "synthetic":
        lines.insert(
            0,
            "The market is invented and has a structure to be found; a gain there shows that the learner finds it, and "
            "says nothing about a real market.",
        )
    path = run.orders / "data.json"
    findings = read_json(path).get("report", {}).get("findings", {}) if path.is_file() else {}
    for name, warning in _DOUBTS.items():
        if name in findings:
            example = findings[name].get("example", "")
            lines.append(f"Doubt about the data: {warning} ({findings[name].get('count', '?')}, first: {example}).")
    return '<ul class="notes">' + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"


def _stages(run: RunDirectory) -> str:
    """Show how each stage ended, when it began and how long it took."""
    known = run.status["stages"]
    rows = [
        [
            stage.name,
            str(known.get(stage.name, {}).get("state", "not done")),
            str(known.get(stage.name, {}).get("started") or "")[:19].replace("T", " "),
            str(known.get(stage.name, {}).get("seconds") or ""),
        ]
        for stage in STAGES
    ]
    return _table(["stage", "state", "started", "seconds"], rows)


def _settled(manifest: Mapping[str, object]) -> dict[str, object]:
    """Leave out how the run ended: the page is written just before."""
    return {name: value for name, value in manifest.items() if name not in ("status", "ended")}


def _gap(run: RunDirectory) -> Iterable[str]:
    """Show what each rule does to the best checkpoint; nothing under the simple rules, which have no such table."""
    path = run.backtest / "gap.csv"
    if not path.is_file():
        return
    level = 100 * run.config.backtest.confidence
    yield (
        "<p>The best checkpoint, run again under the simple rules and then with one rule more a row. The difference is "
        f"that of net PA to the row before, in basis points, with its {level:g} % interval over days; the last row is "
        "the sum. Orders that a rule leaves without a PA are left out of all rows; ffr counts them.</p>"
    )
    yield _csv_table(path, "the gap", GAP_COLUMNS)


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
    if run.config.execution.rules.have_costs:
        yield "<p>All PAs in the figures are net of costs.</p>"
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
    return _table([names[c] for c in columns], [[_number(row[c], c) for c in columns] for row in rows])


def _number(text: str, name: str = "") -> str:
    """Return a figure as people read it: rates in percent, counts whole, all else with two digits."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        return ""
    if name in ("win_rate", "ffr"):
        return f"{value:.1%}".replace("%", " %")
    return text if text.lstrip("-").isdecimal() else f"{round(value, 2) + 0.0:.2f}"


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
