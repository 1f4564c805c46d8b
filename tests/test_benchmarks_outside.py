"""The page of other libraries shows what was measured."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.outside import markdown
from benchmarks.table import RESULTS


def test_the_page_shows_the_figures_as_measured() -> None:
    rows = json.loads(RESULTS.with_name("outside.json").read_text(encoding="utf-8"))
    page = (Path(__file__).parents[1] / "docs" / "other-libraries.md").read_text(encoding="utf-8")
    assert markdown(rows) in page
    assert {row["learner"] for row in rows} == {"PPO", "DQN", "MaskablePPO", "RecurrentPPO"}
    trained = [row for row in rows if row["pa"] is not None]
    assert min(row["orders"] for row in trained) >= 0.9 * max(row["orders"] for row in trained), "equal orders"
