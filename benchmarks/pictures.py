"""Draw the pictures of README and docs/plots.md from a finished run: ``python -m benchmarks.pictures RUN``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from matplotlib.figure import Figure

from rlwb.evaluation import plots, style
from rlwb.experiment.orders import workbench
from rlwb.experiment.report import audit_order, stability_figures, typical_order
from rlwb.experiment.run import RunDirectory
from rlwb.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "plots.md"
IMAGES = PAGE.with_name("images")
#: Figures of a run that the gallery shows.
SHOWN = (
    "learning_curves",
    "validation_against_test",
    "pa_distribution",
    "pa_by_month",
    "pa_by_instrument",
    "stability_groups",
    "inventory_paths",
    "cumulative_pa",
    "frontier",
)


def pictures(run: RunDirectory) -> dict[str, Figure]:
    """Return the pictures by name: those of the run, and of one order, which is the median by PA."""
    config = run.config
    bench = workbench(run, config)
    best = next(iter(sorted((run.backtest / "orders").glob("checkpoint-*.parquet")))).stem
    order = typical_order(run, best)
    audits = {"policy": audit_order(run, bench, best, order), "TWAP": audit_order(run, bench, "twap", order)}
    row = audits["policy"].summary.iloc[0]
    side, instrument, day = str(row["direction"]).lower(), str(row["instrument"]), row["date"]
    title = f"Order to {side} {instrument} on {day:%Y-%m-%d}"
    ticks = {name: one.ticks for name, one in audits.items()}
    session = bench.sessions.row(instrument, day)

    def one_order() -> Figure:
        return plots.order_path(ticks, title=title)

    found = {name: one for name, one in stability_figures(run, config).items() if name in SHOWN}
    found |= {"order": one_order(), "session_bars": plots.session_bars(bench.sessions, session)}
    found["intraday_profiles"] = plots.intraday_profiles(bench.sessions)
    with style.theme("dark"):
        found["order_dark"] = one_order()
    with style.theme("light", width=400):
        found["order_phone"] = one_order()
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a finished run, of docs/images that of `rlwb run`")
    parser.add_argument("--to", type=Path, default=IMAGES, help="folder of the pictures")
    given = parser.parse_args(arguments)
    found = pictures(RunDirectory(given.run))
    for name, figure in found.items():
        plots.save_figure(figure, given.to / name, kinds=("png",))
    if given.to == IMAGES:
        write_text(PAGE, described(PAGE.read_text(encoding="utf-8")))


def described(page: str) -> str:
    """Return the page with each picture described by the words that the picture holds."""
    words = lambda one: f"![{style.alt_of(IMAGES / one[1])}](images/{one[1]})"  # noqa: E731
    return re.sub(r"!\[.*\]\(images/(\w+\.png)\)", words, page)


if __name__ == "__main__":
    main()
