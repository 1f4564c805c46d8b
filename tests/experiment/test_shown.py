"""What commands show of their work: how far each stage is, or with --json nothing but the result."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from rlwb.cli import app
from rlwb.experiment import notebook
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import PROGRESS, RunDirectory
from rlwb.experiment.stability import write_stability
from rlwb.progress import PROGRESS_ENV, Progress


def test_orders_stability_and_audit_count_their_work_to_its_end(
    judged_copy: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Progress] = []

    class Kept(Progress):
        def __init__(self, *words: Any, **how: Any) -> None:
            super().__init__(*words, **how)
            made.append(self)

    monkeypatch.setattr(notebook, "Progress", Kept)
    monkeypatch.setenv(PROGRESS_ENV, "")
    make_orders(judged_copy, judged_copy.config)
    write_stability(judged_copy, judged_copy.config)
    audited = CliRunner().invoke(app, ["audit", str(judged_copy.path), "--quick", "--json"])
    assert set(json.loads(audited.stdout)) == {"passed", "runs"}
    assert [one.title for one in made] == ["orders", "stability", "audit"]
    for one in made:
        assert one.done == one.total, one.title
    assert not (judged_copy.path / PROGRESS).exists()


RESULTS = {
    "train": {"run", "iteration", "iterations", "judged_by", "best", "validation"},
    "verify": {"agrees", "runs"},
    "stress --only side": {"of", "conditions", "verdicts"},
}


@pytest.mark.parametrize("command", RESULTS)
def test_json_is_all_that_is_printed(
    command: str, judged_copy: RunDirectory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(notebook, "_LINE_SECONDS", 0.0)  # every unit would have its line
    monkeypatch.setenv(PROGRESS_ENV, "")
    word, *rest = command.split()
    done = CliRunner().invoke(app, [word, str(judged_copy.path), *rest, "--json"])
    found = json.loads(done.stdout)
    assert set(found) == RESULTS[command]
    assert not capfd.readouterr().out
    if command == "train":
        assert len(found["validation"]) == found["iterations"] == 5
        assert found["best"]["value"] == pytest.approx(max(row["pa"] for row in found["validation"]))
    if command.startswith("stress"):
        assert {row["condition"] for row in found["conditions"]} == {"base", "buys", "sells"}
