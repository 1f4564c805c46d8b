"""The report: counts by reason, first examples, text and JSON."""

from __future__ import annotations

import json

import pytest

from rlwb.market import Report


def test_the_first_example_stays_and_counts_add_up() -> None:
    report = Report(totals={"bars_read": 1200})
    report.add("price_zero", 2, "A 10:00")
    report.add("price_zero", 3, "B 10:00")
    report.add("off_session", 0, "never")
    report.add("missing_tick", 1, "A 10:07")
    assert report.counts == {"price_zero": 5, "missing_tick": 1}
    assert report.examples["price_zero"] == "A 10:00"
    assert report.problems() == {"price_zero": 5}
    text = report.as_text()
    assert text.splitlines()[0] == "1,200 bars read"
    assert "repaired 5 bars: a price of 0 (made missing), first: A 10:00" in text
    assert "noted    1 tick:" in text


def test_an_example_is_on_one_line_whatever_it_names() -> None:
    report = Report()
    report.add("column_ignored", 1, "a\nb\u200b, é")
    assert report.as_text() == "noted    1 column: not part of the schema, first: a\\nb\\u200b, é"


def test_merging_changes_neither() -> None:
    one, two = (
        Report({"price_zero": 1}, {"price_zero": "A"}, {"files": 1}),
        Report({"price_zero": 2}, {"price_zero": "B"}, {"files": 2}),
    )
    merged = one.merge(two)
    assert (merged.counts, merged.examples, merged.totals) == ({"price_zero": 3}, {"price_zero": "A"}, {"files": 3})
    assert one.counts == {"price_zero": 1}


def test_it_survives_json() -> None:
    report = Report({"price_zero": 1}, {"price_zero": "A"}, {"files": 1})
    assert Report.from_dict(json.loads(json.dumps(report.as_dict()))) == report


def test_an_unknown_reason_is_a_fault_of_the_code() -> None:
    with pytest.raises(KeyError):
        Report().add("mystery", 1, "")
    assert Report().as_text() == "nothing to report"
