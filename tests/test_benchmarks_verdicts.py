"""The count of verdicts: what is done is kept, what is cut short is done again, and outcomes are counted by part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import trust_verdicts


def test_two_small_runs_of_a_part_are_judged_and_counted(tmp_path: Path) -> None:
    made = trust_verdicts.outcome_of("noise", 6, tmp_path, tmp_path, True)
    assert made["outcome"] in trust_verdicts.OUTCOMES
    assert (made["part"], made["seed"]) == ("noise", 6)
    assert made["lo"] <= made["effect"] <= made["hi"]
    assert not (tmp_path / "noise-6").exists()


def test_what_is_done_is_counted_and_a_line_that_was_cut_short_is_not(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"part": "signal", "seed": 5, "outcome": "found"},
        {"part": "signal", "seed": 6, "outcome": "worse"},
        {"part": "noise", "seed": 5, "outcome": "none"},
        {"part": "noise", "seed": 6, "outcome": "none"},
    ]
    path = tmp_path / "verdicts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"part": "noise", "se')
    assert trust_verdicts.lines_of(path) == rows
    found = trust_verdicts.measure(tmp_path, runs=2, first=5, parts=("noise", "signal"), jobs=1)
    assert found == {"noise": {"none": 2, "found": 0}, "signal": {"none": 0, "found": 1, "worse": 1}}
    assert trust_verdicts.lines_of(path) == rows


def test_real_bars_that_are_not_there_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trust_verdicts.measure(tmp_path, runs=0, parts=("permuted",), data=tmp_path) == {}
    assert "cn_equity_15min_2025" in capsys.readouterr().out
