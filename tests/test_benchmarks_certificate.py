"""The command that measures learners against a known optimum, on its short way."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

import rlwb.certificate
from benchmarks import certificate


def test_the_quick_way_writes_a_row_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    arguments = [
        "--quick",
        "--jobs",
        "1",
        "--markets",
        "tree, penalty 4",
        "tree, capped",
        "--methods",
        "ppo",
        "pathwise",
    ]
    monkeypatch.setattr(sys, "argv", ["certificate", *arguments, "--out", str(out), "--set", "network.hidden=4"])
    certificate.main()
    rows = json.loads(out.read_text(encoding="utf-8"))
    runs = [(row["market"], row["method"], row["seed"]) for row in rows]
    assert runs == [
        (market, method, 0) for market in ("tree, penalty 4", "tree, capped") for method in ("ppo", "pathwise")
    ]
    *measured, refused = rows
    for row in measured:
        assert {"value", "optimum", "share", "seconds", "settings", "machine", "date"} <= row.keys()
        assert row["share"] == pytest.approx((row["value"] - row["twap"]) / (row["optimum"] - row["twap"]))
        assert row["settings"]["network"]["hidden"] == 4
    assert "lot_size" in refused["refused"]
    shown = capsys.readouterr().out
    assert "| tree, penalty 4 | spreading | ppo | 2.254 | -0.500 |" in shown
    assert "| tree, capped | spreading | pathwise | – | – | refused | – | – | – |" in shown
    assert f"- tree, capped, pathwise: {refused['refused']}" in shown


def test_the_table_shows_median_and_worst() -> None:
    run = {"market": "m", "method": "ppo", "optimum": 2.0, "twap": 0.0, "seconds": 3.0, "stopping": True}
    table = certificate.markdown([{**run, "share": share} for share in (0.9, 0.99, 1.0)])
    assert table.splitlines()[2:] == ["| m | stopping | ppo | 2.000 | 0.000 | 99.0% | 90.0% | 3 | 3 |"]
    table = certificate.markdown([{**run, "share": None}])
    assert table.splitlines()[2:] == ["| m | stopping | ppo | 2.000 | 0.000 | – | – | 1 | 3 |"]


def test_other_rows_are_kept_and_what_is_missing_is_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[tuple[str, str, int]]] = []

    def measure(tasks: Any, changes: Any, **_: Any) -> Any:
        asked.append(list(tasks))
        for market, method, seed in reversed(tasks):
            share = math.nan if seed else 0.5
            settings = certificate.learner_settings(
                certificate.run_config(certificate.CERTIFIED[market](), method, seed, changes)
            )
            yield {"market": market, "method": method, "seed": seed, "share": share, "seconds": 1.0, "run": len(asked),
                   "optimum": 2.0, "twap": 0.0, "settings": settings}  # fmt: skip

    monkeypatch.setattr(certificate, "measure", measure)
    out = tmp_path / "found.json"
    out.write_text(json.dumps([{"market": "tree", "method": "ppo", "seed": 0, "share": 0.9}]))  # of an older kind
    common = ["certificate", "--out", str(out), "--markets", "tree"]
    for arguments in (["--methods", "dqn", "--seeds", "1"], ["--methods", "ppo", "dqn", "--seeds", "2", "--missing"],
                      ["--methods", "dqn", "--seeds", "1"],
                      ["--methods", "dqn", "--seeds", "2", "--missing", "--set", "network.hidden=8"]):  # fmt: skip
        monkeypatch.setattr(sys, "argv", [*common, *arguments])
        certificate.main()
    first = [("tree", "dqn", 0)]
    assert asked == [
        first,
        [("tree", "ppo", 0), ("tree", "ppo", 1), ("tree", "dqn", 1)],
        first,
        [*first, ("tree", "dqn", 1)],
    ]
    rows = json.loads(out.read_text(encoding="utf-8"))
    assert [(row["method"], row["seed"], row["run"]) for row in rows] == [
        ("ppo", 0, 2),
        ("ppo", 1, 2),
        ("dqn", 0, 4),
        ("dqn", 1, 4),
    ]
    # What has no optimum above TWAP has no share: missing, not a number.
    assert [row["share"] for row in rows] == [0.5, None, 0.5, None]


@pytest.mark.parametrize("name", [*rlwb.certificate.MARKETS])
def test_the_page_has_the_values_of_the_markets(name: str) -> None:
    market = rlwb.certificate.MARKETS[name]()
    page = Path(__file__).parents[1] / "docs" / "certificate.md"
    (row,) = (line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {name} |"))
    problem, optimum, twap = row.split("|")[3:6]
    assert problem.strip() == ("stopping" if market.stopping else "spreading")
    assert float(optimum.split()[0]) == pytest.approx(market.optimum, abs=6e-4)
    assert float(twap) == pytest.approx(market.twap, abs=6e-4)
