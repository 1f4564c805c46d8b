"""The assembly of what is measured of trust: parts that are there and not, what is kept, the tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks import trust


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str], bool]]:
    """Replace the parts by two stand-ins; return what they were called with: name, what lay in the folder, quick."""
    called: list[tuple[str, list[str], bool]] = []
    found = {
        "coverage": {"days": {"independent": 0.953}},
        "planted": [{"fault": "one tick ahead", "caught_by": "future"}, {"fault": "wrong sign", "caught_by": None}],
    }
    for part, piece in found.items():
        name = f"stand_in_{part}"
        module = ModuleType(name)

        def measure(folder: Path, *, quick: bool, part: str = part, piece: Any = piece) -> Any:
            called.append((part, sorted(one.name for one in folder.iterdir()), quick))
            (folder / "done").touch()
            return piece

        module.measure = measure  # type: ignore[attr-defined]
        module.__spec__ = trust.importlib.util.spec_from_loader(name, loader=None)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setitem(trust.PARTS, part, name)
    return called


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *args: str) -> dict[str, Any]:
    out = folder / "trust.json"
    monkeypatch.setattr(sys, "argv", ["trust", *args, "--run-dir", str(folder / "work"), "--out", str(out)])
    trust.main()
    made: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return made


def test_parts_are_merged_and_those_that_were_not_asked_for_stay(
    parts: list[tuple[str, list[str], bool]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "trust.json").write_text(json.dumps({"verdicts": {"noise": {"none": 97, "found": 3}}, "planted": []}))
    made = run(monkeypatch, tmp_path, "--parts", "planted")
    assert made["verdicts"] == {"noise": {"none": 97, "found": 3}}
    assert [one["fault"] for one in made["planted"]] == ["one tick ahead", "wrong sign"]
    assert run(monkeypatch, tmp_path, "--parts", "coverage", "--quick")["coverage"]["days"]["independent"] == 0.953
    assert parts == [("planted", [], False), ("coverage", [], True)]


def test_what_is_done_is_kept_only_where_asked(
    parts: list[tuple[str, list[str], bool]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for args in ([], ["--missing"], []):
        run(monkeypatch, tmp_path, "--parts", "planted", *args)
    assert [there for _, there, _ in parts] == [[], ["done"], []]


def test_a_part_that_is_not_there_is_named_before_any_work(
    parts: list[tuple[str, list[str], bool]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(trust.PARTS, "verdicts", "benchmarks.no_such_module")
    with pytest.raises(SystemExit):
        run(monkeypatch, tmp_path, "--parts", "coverage", "verdicts")
    assert "verdicts (benchmarks.no_such_module)" in capsys.readouterr().err
    assert not parts
    assert not (tmp_path / "trust.json").exists()


def test_the_tables_have_a_line_a_method_a_market_and_a_fault() -> None:
    text = trust.markdown(
        {
            "coverage": {
                "days": {"0": 0.95, "0.6": 0.874},
                "blocks": {"0": 0.951, "0.6": 0.941},
                "seeds": {"ten": 0.96},
            },
            "verdicts": {"noise": {"none": 97, "found": 3}},
            "planted": [{"fault": "one tick ahead", "caught_by": "future"}, {"fault": "wrong sign", "caught_by": None}],
        }
    )
    lines = text.splitlines()
    assert lines[0] == "| truth inside the 95 % interval | days | blocks |"
    assert "| 0.6 | 87.4% | 94.1% |" in lines
    assert "| ten | 96.0% |" in lines, "methods under other settings have a table of their own"
    assert "| noise | 97 | 3 |" in lines
    assert "| fault (1 of 2 caught) | caught by |" in lines
    assert "| wrong sign | nothing |" in lines
