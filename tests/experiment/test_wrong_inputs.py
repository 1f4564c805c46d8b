"""Inputs as people get them wrong: one sentence each, that says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from rlwb.errors import RlwbError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.workbench import Workbench
from rlwb.market import Calendar
from tests.market.helpers import random_bars

CLOCK = {"preset": "cn", "tick_minutes": 30, "label": "end"}
DAYS = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=15)]


@pytest.fixture
def bars(tmp_path: Path) -> Path:
    folder = tmp_path / "bars"
    folder.mkdir()
    table = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["AAA", "BBB"], DAYS)
    for name, part in table.groupby("instrument"):
        part.to_csv(folder / f"{name}.csv", index=False)
    return folder


def make_orders(config: RunConfig) -> None:
    """Do what the first stage does before it writes."""
    bench = Workbench(config)
    parts, _ = bench.make_orders()
    for table in parts.values():
        bench.align(table)


def refusal(source: Path, **changes: object) -> str:
    """Return the sentence by which the first stage refuses."""
    values = {
        "market.source": str(source),
        **{f"market.calendar.{name}": value for name, value in CLOCK.items()},
        "execution.ticks_per_step": 2,
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    with pytest.raises(RlwbError) as caught:
        make_orders(RunConfig.load(None, Layer("test", values)))
    text = str(caught.value)
    assert all(line.startswith("  ") for line in text.splitlines()[1:]), "one sentence, and a list of what it is about"
    return text


def test_bars_that_lie_a_folder_deeper(bars: Path) -> None:
    assert "but its folder bars does: name that one" in refusal(bars.parent)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    text = refusal(tmp_path)
    assert str(tmp_path) in text
    assert ".parquet, .feather, .csv, .csv.gz" in text


def test_a_file_that_is_half_written(bars: Path) -> None:
    file = bars / "BBB.csv"
    file.write_bytes(file.read_bytes()[:1005])
    assert re.search(r"BBB\.csv, row 11 .* write it again", refusal(bars))


def test_test_days_outside_of_the_data(bars: Path) -> None:
    split = {"train": [DAYS[0], DAYS[5]], "valid": [DAYS[6], DAYS[8]], "test": ["2025-01-01", "2025-02-01"]}
    text = refusal(bars, **{f"split__{part}": days for part, days in split.items()})
    assert "test 0); the data have orders on 14 dates from 2024-03-05 to 2024-03-22. Change the splits" in text


def test_an_instrument_without_bars(bars: Path) -> None:
    text = refusal(bars, market__instruments=["AAA", "CCC"])
    assert "has no instrument CCC" in text
    orders = bars.parent / "orders.csv"
    rows = [f"{name},{day},BUY,100" for day in DAYS for name in ("AAA", "ZZZ")]
    orders.write_text("instrument,date,direction,amount\n" + "\n".join(rows) + "\n")
    text = refusal(bars, orders__source=str(orders))
    assert text.startswith("9 of 18 orders cannot be executed; correct or drop them:")
    assert "(ZZZ, 2024-03-05): the instrument is not in the data" in text


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "orders.csv cannot be read as orders"),
        ("instrument,date,direction,amount\n", "orders.csv holds no orders; give at least one."),
    ],
)
def test_a_file_of_no_orders(bars: Path, content: str, sentence: str) -> None:
    orders = bars.parent / "orders.csv"
    orders.write_text(content)
    assert sentence in refusal(bars, orders__source=str(orders))
