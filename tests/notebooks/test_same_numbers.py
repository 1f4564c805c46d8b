"""Notebook, command line and script: one set of numbers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rlwb.evaluation import SUMMARY_COLUMNS
from rlwb.experiment.likeness import compare_runs
from rlwb.experiment.run import RunDirectory
from tests.notebooks.small import NOTEBOOKS, SAME, SMALL, by_hand, finish, printed, shown, small_config, start

SCRIPT = """
import sys
from pathlib import Path
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.training import train_policy
from rlwb.experiment.run import RunDirectory

run = RunDirectory(sys.argv[1])
for step in (make_orders, train_policy, backtest_policies):
    step(run, run.config)
"""


def test_a_script_gives_the_numbers_of_the_command(commanded: tuple[RunDirectory, str], tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "script", small_config())
    finish(start("-c", SCRIPT, str(run.path)))
    assert_same(commanded[0], run)


def test_g15_the_notebooks_by_hand_give_the_numbers_of_the_command(
    commanded: tuple[RunDirectory, str], tmp_path: Path
) -> None:
    run = RunDirectory(tmp_path / "hand")
    books = {}
    for name, values in SMALL.items():
        books[name] = by_hand(NOTEBOOKS / name, tmp_path / name, run_dir=str(run.path), **values)
    assert_same(commanded[0], run)
    assert run.report.is_file()

    lines = [line for line in printed(books["02_training.ipynb"]).splitlines() if line[9:].startswith("iteration")]
    assert len(lines) == 6, "one line an iteration"
    assert lines[0].endswith(" left")
    assert lines[-1].endswith("done")
    for name, figures in {"01": 2, "02": 2, "03": 3, "04": 10}.items():
        (book,) = (book for title, book in books.items() if title.startswith(name))
        assert len(shown(book, "image/png")) == figures
        assert not shown(book, "application/vnd.jupyter.widget-view+json"), "results are static"
    assert "best checkpoints by validation" in shown(books["03_backtest.ipynb"], "text/markdown")[0]
    assert "\r" not in "".join(printed(book) for book in books.values())


def assert_same(one: RunDirectory, other: RunDirectory) -> None:
    """Orders, weights, metrics and backtests are the same bit for bit; how long an iteration took may differ."""
    results = {found.file: found.verdict for found in compare_runs(one, other) if found.is_result}
    assert set(SAME) < results.keys()
    made = {name: verdict for name, verdict in results.items() if not name.startswith("figures/")}
    assert made.pop("metrics/train.csv") == "times"
    assert set(made.values()) == {"same"}


def test_what_a_run_leaves(commanded: tuple[RunDirectory, str]) -> None:
    run, out = commanded
    assert run.state == "finished"
    summary = pd.read_csv(run.backtest / "summary.csv")
    assert list(summary)[: len(SUMMARY_COLUMNS)] == list(SUMMARY_COLUMNS)
    beside = ["baseline"] * 5 + ["ceiling", "attainable", "unattainable"]
    assert list(summary["kind"]) == ["checkpoint"] * 3 + ["last"] + beside
    for policy in summary["policy"]:
        assert (run.backtest / "orders" / f"{policy}.parquet").is_file()
    assert {path.name for path in run.notebooks.glob("*.ipynb")} == set(SMALL)
    assert len(list(run.figures.glob("*.png"))) == len(list(run.figures.glob("*.svg"))) == 10
    page = run.report.read_text()
    assert page.count('src="data:image/svg+xml,') == 20, "each for a wide page and for a narrow one"
    assert "Not here" not in page
    assert out.count("  iteration ") == 6
    assert "best checkpoints by validation (n = 3)" in out


@pytest.mark.parametrize("name", list(SMALL))
def test_g07_executed_notebooks_stay_small(commanded: tuple[RunDirectory, str], name: str) -> None:
    assert (commanded[0].notebooks / name).stat().st_size < 2_000_000
