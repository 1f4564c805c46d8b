"""Every block of README and docs that can run is run by a test, and the list of those tests is complete."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import typer.main

import rlwb
from rlwb.cli import app
from rlwb.errors import ConfigError
from rlwb.experiment.run import RunDirectory
from rlwb.market import Calendar, SyntheticSettings, synthetic_sessions
from tests.market.helpers import random_bars
from tests.market.readers.sources import write_qlib
from tests.policy.test_qlib import ppo
from tests.test_docs import PAGES, ROOT, blocks, of

Names = dict[str, Any]


def runs_mine(judged: RunDirectory) -> Names:
    Path("runs").mkdir()
    shutil.copytree(judged.path, "runs/mine")
    return {}


def bars_of_the_us(judged: RunDirectory) -> Names:
    random_bars(Calendar.preset("us"), ["AAA"], ["2024-03-04", "2024-03-05"]).to_parquet("bars.parquet")
    return {}


def small_trainings(judged: RunDirectory) -> Names:
    train, small = rlwb.train_gym, {"episodes_per_iteration": 1, "validation_episodes": 1, "test_episodes": 2}
    return {"train_gym": lambda *words, **given: train(*words, **{**given, **small, "iterations": 1})}


def sessions(judged: RunDirectory) -> Names:
    return {"sessions": synthetic_sessions(SyntheticSettings(instruments=2, days=20))}


def of_qlib(judged: RunDirectory) -> Names:
    """Bars, tables and a checkpoint as Qlib leaves them."""
    calendar = Calendar.preset("cn", tick_minutes=1, label="start")
    days = ["2024-03-05", "2024-03-06", "2024-03-07", "2024-03-08"]
    bars = random_bars(calendar, ["SH600000"], days)
    fields = {name: bars[name].tolist() for name in ("open", "high", "low", "close", "volume")}
    steps = pd.to_datetime(bars["datetime"]).dt.strftime("%Y-%m-%d %H:%M:%S").tolist()
    Path("qlib_data").mkdir()
    write_qlib(Path("qlib_data/cn_1min"), {"SH600000": fields}, steps)
    table = bars.set_index(["instrument", "datetime"])[[*fields]].add_prefix("$")
    Path("tables").mkdir()
    table.join(table.add_suffix("_1")).to_pickle("tables/SH600000.pkl")
    Path("checkpoints").mkdir()
    torch.save({"vessel": {"policy": ppo()}}, "checkpoints/latest.pth")
    return {}


HERE: dict[str, tuple[int, Callable[[RunDirectory], Names] | None]] = {
    "docs/course.md": (1, None),
    "docs/data/actions.md": (1, bars_of_the_us),
    "docs/data/tools.md": (4, None),
    "docs/explorers.md": (1, runs_mine),
    "docs/gymnasium.md": (3, small_trainings),
    "docs/monitor.md": (2, runs_mine),
    "docs/orders.md": (2, sessions),
    "docs/qlib.md": (3, of_qlib),
    "docs/serving/cluster.md": (2, None),
    "docs/serving/live.md": (1, None),
    "docs/tracking.md": (2, None),
}
"""Pages whose blocks of Python run here, one after the other in a folder: how many there are, and what lies there."""

ELSEWHERE = {
    "README.md": (1, "tests/test_docs.py"),
    "docs/conformance.md": (1, "tests/test_docs.py"),
    "docs/costs.md": (1, "tests/experiment/test_work.py"),
    "docs/extending.md": (10, "tests/test_docs.py"),
    "docs/features.md": (2, "tests/test_docs.py"),
    "docs/library.md": (2, "tests/test_docs.py"),
    "docs/other-libraries.md": (3, "tests/extras/test_other_libraries_page.py"),
    "docs/plots.md": (3, "tests/evaluation/test_figures.py"),
    "docs/results.md": (1, "tests/evaluation/test_risk.py"),
    "docs/readers/binance.md": (1, "tests/market/readers/test_pages.py"),
    "docs/readers/csv-parquet.md": (1, "tests/market/readers/test_pages.py"),
    "docs/readers/lean.md": (1, "tests/market/readers/test_pages.py"),
    "docs/readers/lobster.md": (1, "tests/market/readers/test_pages.py"),
    "docs/readers/own.md": (2, "tests/market/readers/test_pages.py"),
    "docs/readers/qlib-pickle.md": (1, "tests/market/readers/test_pages.py"),
    "docs/readers/qlib.md": (1, "tests/market/readers/test_pages.py"),
    "docs/serving/index.md": (1, "tests/serving/test_bundle.py"),
    "docs/serving/paper.md": (2, "tests/serving/test_paper_run.py"),
    "docs/serving/speed-and-precision.md": (1, "tests/serving/test_bundle.py"),
}
"""Pages whose blocks of Python another file of tests runs."""

LEFT = {
    ("docs/browser.md", 0): "a line of the browser tests, which are the tests of it",
    ("docs/data/download.md", 0): "needs a network",
    ("docs/data/download.md", 1): "needs a network",
    ("docs/qlib.md", 0): "runs in Qlib's own environment",
    ("docs/serving/cluster.md", 1): "needs a cluster of Ray; tests/extras deploys on one",
    ("docs/serving/qlib.md", 0): "runs in Qlib's own environment; make qlib-strategy does",
}
"""Blocks of Python that no test runs, and why; they are compiled, and their imports of rlwb are made."""


def test_every_block_of_python_has_its_test() -> None:
    counted = {of(page): len(blocks(page, "python")) for page in PAGES if blocks(page, "python")}
    left = {page for page, _ in LEFT}
    known = {page: count for page, (count, _) in {**HERE, **ELSEWHERE}.items()}
    known |= {page: 1 + max(place for name, place in LEFT if name == page) for page in left - set(known)}
    assert counted == known, "say in HERE, ELSEWHERE or LEFT what runs the new block"
    for page, (_, file) in ELSEWHERE.items():
        named = (Path(page).name, f'"{Path(page).parent.name}"')
        assert any(name in (ROOT / file).read_text(encoding="utf-8") for name in named), f"{file} does not read {page}"


def test_no_block_is_of_a_language_that_nothing_runs() -> None:
    pages = [*PAGES, ROOT / "benchmarks" / "README.md"]
    found = {one for page in pages for one in re.findall(r"^ *```([^\n`]+)\n", page.read_text(encoding="utf-8"), re.M)}
    assert found <= {"python", "yaml", "console", "bash", "text", "json", "toml", "ini", "{eval-rst}"}
    for page in pages:
        for text in blocks(page, "toml"):
            tomllib.loads(text)
        for text in blocks(page, "json"):
            json.loads(text)
        for text in blocks(page, "ini"):
            configparser.ConfigParser(strict=False).read_string(text)


@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(
    page: str, judged: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, prepare = HERE[page]
    names: Names = {"__name__": "page"} | (prepare(judged) if prepare else {})
    if "train_gym" in names:
        monkeypatch.setattr(rlwb, "train_gym", names.pop("train_gym"))
    for place, code in enumerate(blocks(page, "python")):
        if (page, place) in LEFT:
            continue
        try:
            exec(compile(code, f"{page}, block {place}", "exec"), names)
        except ModuleNotFoundError as error:  # of another tool, which rlwb does not bring
            if error.name not in ("duckdb", "polars"):
                raise


@pytest.mark.parametrize(("page", "place"), LEFT)
def test_a_block_that_cannot_run_here_is_python_and_names_what_is_there(page: str, place: int) -> None:
    code = blocks(page, "python")[place]
    compile(code, page, "exec")
    for line in re.findall(r"^from rlwb.*$", code, re.MULTILINE):
        try:
            exec(line, {})
        except ConfigError as error:
            if "needs the package pyqlib" not in str(error):
                raise


def commands(page: Path) -> list[str]:
    """Return the command lines of rlwb on a page, those with placeholders aside."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^(?: {4}|\$ )(rlwb .+?)(?: +[#>|] .*)?$", text, re.MULTILINE)
    found += [line for block in blocks(page, "bash") for line in block.splitlines() if line.startswith("rlwb ")]
    return [line for line in found if not re.search(r"…|\.\.\.|\[[A-Z-]", line)]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=of)
def test_the_command_line_takes_what_a_page_types(page: Path) -> None:
    for line in commands(page):
        group: Any = typer.main.get_command(app)
        words = shlex.split(line)[1:]
        while hasattr(group, "commands"):
            group = group.commands[words.pop(0)]
        group.make_context("rlwb", words)
