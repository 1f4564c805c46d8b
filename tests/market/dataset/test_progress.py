"""Progress of an import or a check: a bar with a rate, or lines that are few."""

from __future__ import annotations

import pytest

from rlwb.market.dataset.importing import bar_progress


def test_lines_are_said_now_and_then() -> None:
    said: list[str] = []
    with bar_progress(bar=False, echo=said.append, every=0) as progress:
        progress("a.csv", 10, None)
        progress("a.csv", 30, 50)
    assert said[0].startswith("a.csv: 10 bars, ")
    assert said[1].startswith("a.csv: 30 of 50 bars, ")
    assert all(line.endswith(" bars/s") for line in said)
    with bar_progress(bar=False, echo=said.append) as progress:
        progress("a.csv", 10, None)
    assert len(said) == 2


def test_a_bar_counts_bars(capsys: pytest.CaptureFixture[str]) -> None:
    with bar_progress(bar=True, echo=print) as progress:
        progress("a.csv", 10, 40)
        progress("a.csv", 40, 40)
        progress("b.csv", 5, None)
    shown = capsys.readouterr().err
    assert "40.0/40.0" in shown
    assert " bars/s" in shown
    assert "b.csv: 5.00 bars" in shown
