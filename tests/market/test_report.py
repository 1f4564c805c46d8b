"""The report: counts by kind, listed findings, text and JSON."""

from __future__ import annotations

import json

import pytest

from rlwb.market import Report
from rlwb.market.findings import KINDS, Finding


def test_the_first_example_stays_and_counts_add_up() -> None:
    report = Report(totals={"bars_read": 1200})
    report.add("price_zero", 2, "A 10:00")
    report.add("price_zero", 3, "B 10:00")
    report.add("off_session", 0, "never")
    report.add("missing_tick", 1, "A 10:07")
    assert report.counts == {"price_zero": 5, "missing_tick": 1}
    assert report.examples["price_zero"] == "A 10:00"
    assert report.problems() == {"price_zero": 5}
    assert not report.sound
    text = report.as_text()
    assert text.splitlines()[0] == "1,200 bars read"
    assert "repaired 5 bars: a price of 0 (made missing), first: A 10:00" in text
    assert "noted    1 tick:" in text


def test_an_example_is_on_one_line_whatever_it_names() -> None:
    report = Report()
    report.add("column_ignored", 1, "a\nb\u200b, é")
    assert report.as_text() == "noted    1 column: not part of the schema, first: a\\nb\\u200b, é"
    assert report.sound


def test_a_finding_names_its_place() -> None:
    whole = Finding("price_zero", "close", "A", stamp="2024-01-03 10:05:00", file="a.csv", row=6)
    assert whole.place() == "A 2024-01-03 10:05:00 (a.csv row 6): close"
    assert Finding("file_ignored", file="x.txt").place() == "x.txt"


def test_merging_adds_counts_and_lists_up_to_the_larger_limit() -> None:
    one, two = Report({"files": 1}), Report({"files": 2}, limit=2)
    one.add("price_zero", 1, "A")
    for name in ("B", "C"):
        two.add("price_zero", 1, name)
    merged = one.merge(two)
    assert (merged.counts, merged.totals) == ({"price_zero": 3}, {"files": 3})
    assert [one.what for one in merged.listed["price_zero"]] == ["A", "B"]
    assert one.counts == {"price_zero": 1}


def test_it_survives_json() -> None:
    report = Report({"files": 1}, limit=5)
    report.add("price_zero", 1, "A", row=3, file="a.csv", value=0.0)
    report.add("stale", 2)
    assert Report.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_an_unknown_kind_is_a_fault_of_the_code() -> None:
    with pytest.raises(KeyError):
        Report().add("mystery", 1, "")
    assert Report().as_text() == "nothing to report"
    assert all(kind.severity == "note" or kind.advice for kind in KINDS.values())
