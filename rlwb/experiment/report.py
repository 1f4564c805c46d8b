"""The page to read: one HTML file with everything in it, out of a run's directory."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlwb.evaluation.page import encoded, render
from rlwb.experiment.run import RunDirectory, read_json
from rlwb.experiment.stages import STAGES
from rlwb.experiment.views import GAP, summary_columns
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import write_text

CAPTIONS = {
    "learning_curves": "Learning. Rings mark the chosen checkpoints: they should lie on a plateau late in the training."
    " Be wary of scattered peaks on a noisy curve, and of validation that falls while training rises.",
    "validation_against_test": "Validation against test. The validation score of a selected checkpoint is biased "
    "upwards; the points would lie on the dashed line if all checkpoints were equally good and the choice had picked "
    "noise alone.",
    "pa_distribution": "Single orders, by policy. They scatter far more than the mean is large; a mean and a median on "
    "different sides of 0 say that a few orders carry the result.",
    "pa_by_month": "By month, with day-clustered intervals. Be wary of an edge that fades or that one month carries; a "
    "month with too few days has no interval.",
    "pa_by_instrument": "By instrument, with day-clustered intervals, sorted by the mean: the slope is there by "
    "construction, the intervals are what to look at.",
    "inventory_paths": "What is left to trade after each step, beside the baselines. Thin bands are a fixed schedule "
    "that does not look at prices; an order kept to the end is a bet.",
    "cumulative_pa": "Added up over the test days. A steady edge is a straight line; a jump is an event.",
}
"""What stands under a figure, by its file's stem: what it shows, and the warning signs to look for.

Figures appear in this order, others after them.
"""

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


def write_report(run: RunDirectory) -> Path:
    """Write report.html from what lies in the run's directory and return its path.

    Parts whose files are not there are named as missing, so a report of half a run is honest about it.
    """
    config, rules = run.config, run.config.execution.rules
    manifest = _json(run.path / "manifest.json") or {}
    source = config.market.settings.get("source")
    page = render(
        "report.html",
        title=run.path.name,
        market=Path(source).name if source else f"the market {config.market.name}",
        seed=config.seed,
        started=str(manifest.get("started", ""))[:16].replace("T", " "),
        verdict=_verdict(run),
        caveats=list(_caveats(run)),
        headline=_json(run.backtest / "headline.json"),
        has_costs=rules.have_costs,
        figures=list(_figures(run)),
        summary=_csv_table(run.backtest / "summary.csv", summary_columns(rules)),
        orders=_csv_table(run.orders / "summary.csv", _ORDERS),
        data=_json(run.orders / "data.json"),
        rules=rules.describe(),
        ticks_per_step=config.execution.ticks_per_step,
        gap=_csv_table(run.backtest / "gap.csv", GAP),
        level=f"{100 * config.backtest.confidence:g}",
        stages=list(_stages(run)),
        config=config.as_yaml(),
        # How the run ended is left out: the page is written just before.
        manifest=dump_yaml({name: value for name, value in manifest.items() if name not in ("status", "ended")}),
    )
    write_text(run.report, page)
    return run.report


def _verdict(run: RunDirectory) -> dict[str, str] | None:
    """Say in two sentences what the headline's first row shows; nothing when it is not there.

    The mark to beat is TWAP on the same orders, whose own PA is not 0 where rules cut its fills.
    """
    path = run.backtest / "metrics.csv"
    if not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "checkpoint"]
    found = {row["metric"]: [_float(row[name]) for name in ("estimate", "lo", "hi")] for row in rows}
    net = run.config.execution.rules.have_costs
    over, own = ("net_over_twap", "pa_net") if net else ("over_twap", "pa")
    if math.isnan(found.get(own, [math.nan])[0]):
        return None
    compared = not math.isnan(found[over][0])
    mean, low, high = found[over if compared else own]
    if low > 0 or high < 0:
        answer = f"{'Yes' if low > 0 else 'No: it is worse'}, on these test days"
    else:
        answer = "This test does not show it" if low <= 0 <= high else "So few days of orders cannot show it"
    level = run.config.backtest.confidence
    span = f", with a {100 * level:g} % interval of [{low:.2f}, {high:.2f}] bp" if low == low else ""
    verb = "gain" if mean >= 0 else "lose"
    gain = f"{abs(mean):.2f} bp an order {'over TWAP ' if compared else ''}{'after costs ' if net else ''}on average"
    return {"answer": answer, "gain": f"The chosen checkpoints {verb} {gain}{span}."}


def _float(text: str) -> float:
    return float(text) if text else math.nan


def _caveats(run: RunDirectory) -> Iterator[str]:
    """Say beside the answer what it holds for, and what in the data may void it."""
    config = run.config
    if config.market.name == "synthetic":
        yield (
            "The market is synthetic and has a structure to be found: a gain shows that the learner finds it, and says "
            "nothing about a real market."
        )
    yield f"It holds under these rules: {config.execution.rules.describe()}."
    findings = (_json(run.orders / "data.json") or {}).get("report", {}).get("findings", {})
    for name, warning in _DOUBTS.items():
        if name in findings:
            found = findings[name]
            yield f"Doubt about the data: {warning} ({found.get('count', '?')}, first: {found.get('example', '')})."


def _figures(run: RunDirectory) -> Iterator[dict[str, str]]:
    found = {path.stem: path for path in sorted(run.figures.glob("*.png"))}
    for stem in [*(stem for stem in CAPTIONS if stem in found), *(stem for stem in found if stem not in CAPTIONS)]:
        caption = CAPTIONS.get(stem, stem.replace("_", " "))
        yield {"caption": caption, "data": encoded(found[stem].read_bytes())}


def _stages(run: RunDirectory) -> Iterator[list[str]]:
    """Yield how each stage ended, when it began and how long it took."""
    known = run.status["stages"]
    for stage in STAGES:
        about = known.get(stage.name, {})
        started = str(about.get("started") or "")[:19].replace("T", " ")
        yield [stage.name, str(about.get("state", "not done")), started, str(about.get("seconds") or "")]


def _json(path: Path) -> dict[str, Any] | None:
    return read_json(path) if path.is_file() else None


def _csv_table(path: Path, columns: Mapping[str, str]) -> tuple[list[str], list[list[str]]] | None:
    """Return titles and cells of the columns of a CSV file; None where it is not there."""
    if not path.is_file():
        return None
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shown = [name for name in columns if name != "pa_std" and rows and name in rows[0]]
    return [columns[name] for name in shown], [[_number(row[name], name) for name in shown] for row in rows]


def _number(text: str, name: str) -> str:
    """Return a figure as people read it: rates in percent, counts whole, all else with two digits."""
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        return ""
    if name in ("win_rate", "ffr"):
        return f"{100 * value:.1f} %"
    return text if text.lstrip("-").isdecimal() else f"{round(value, 2) + 0.0:.2f}"
