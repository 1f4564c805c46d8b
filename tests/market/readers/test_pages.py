"""Every reader has a page, and what the pages show works as it stands there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.sources import CalendarSettings
from rlwb.market.readers.base import TABLE, find_reader
from rlwb.parts import names
from tests.market.readers.sources import SOURCES

BUILT_IN = {name: find_reader(name) for name in names("reader")}
PAGES = Path(__file__).resolve().parents[3] / "docs" / "readers"
PAGE_OF = {kind: f"{kind.replace('_', '-')}.md" for kind in names("reader")} | {TABLE: "csv-parquet.md"}


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_reader_has_a_page_that_the_index_names() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert {path.name for path in PAGES.glob("*.md")} == {"index.md", "own.md", *PAGE_OF.values()}
    for kind, page in PAGE_OF.items():
        assert f"[`{kind}`]({page})" in index
        text = (PAGES / page).read_text(encoding="utf-8")
        for heading in ("Layout", "Units", "Time", "Traps", "Use", "Tried"):
            assert f"\n## {heading}\n" in text, (page, heading)


@pytest.mark.parametrize("kind", names("reader"))
def test_a_reader_names_its_page(kind: str) -> None:
    doc = find_reader(kind).function.__doc__ or ""
    assert f"docs/readers/{PAGE_OF[kind]}" in doc


@pytest.mark.parametrize("page", ["index.md", *PAGE_OF.values()])
def test_the_configuration_of_a_page_is_one(page: str) -> None:
    (text,) = blocks(page, "yaml")
    config = RunConfig.load(None, Layer(page, yaml.safe_load(text)))
    market = config.market.settings
    assert market["reader"]["name"] == next((kind for kind, name in PAGE_OF.items() if name == page), "qlib")
    CalendarSettings(**market["calendar"]).build()


@pytest.mark.parametrize("kind", list(PAGE_OF))
def test_the_example_of_a_page_says_what_is_shown(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind != TABLE:
        SOURCES[kind][0](tmp_path)
    monkeypatch.chdir(tmp_path)
    (code,), (shown,) = blocks(PAGE_OF[kind], "python"), blocks(PAGE_OF[kind], "text")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, PAGE_OF[kind], "exec"), {"__name__": "example"})
    assert said.getvalue() == shown


def test_the_reader_of_ones_own_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, test = blocks("own.md", "python")
    lines = [
        f'{{"time": "2024-01-03T09:3{at}", "open": 1, "high": 2, "low": 1, "close": 2, "volume": {at}}}'
        for at in (0, 1)
    ]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "000001.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "scratch").mkdir()
    assert len(reader.splitlines()) < 40
    (tmp_path / "json_lines.py").write_text(reader)
    monkeypatch.chdir(tmp_path)
    own: dict[str, Any] = {"__name__": "test_json_lines"}
    exec(compile(test, "test_json_lines.py", "exec"), own)
    own["test_my_reader"](tmp_path / "scratch")
