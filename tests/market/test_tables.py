"""CSV dialects: what is not plain CSV is read right or refused, never cut or shifted in silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, load_sessions
from tests.market.helpers import random_bars

SMALL = Calendar(segments=(("10:00", "10:10"),), infer_early_close_minutes=0)
HEADER = "instrument,datetime,open,high,low,close,volume"
ROWS = [f"A,2024-01-03 10:0{i}:00,{p},{p},{p},{p},{100 + i}" for i in range(10) for p in (f"{10 + i / 8:.3f}",)]


@pytest.mark.parametrize(
    "text",
    [
        "\n".join([HEADER, *ROWS]),
        "\r\n".join([HEADER, *ROWS, ""]),
        "\r".join([HEADER, *ROWS]),
        "\n".join([HEADER, *(row + "," for row in ROWS)]),
        "\n".join([HEADER + ",", *(row + "," for row in ROWS)]),
        "\n".join([HEADER.replace(",", ", "), *(row.replace(",", ", ") for row in ROWS)]),
        "\n\n".join([HEADER, *ROWS]),
        "\n".join('"' + line.replace(",", '","') + '"' for line in [HEADER, *ROWS]),
    ],
)
def test_plain_csv_in_every_dress_is_the_same_panel(tmp_path: Path, text: str) -> None:
    (tmp_path / "bars.csv").write_bytes(text.encode())
    sessions = load_sessions(tmp_path / "bars.csv", SMALL)
    assert sessions.instruments.tolist() == ["A"]
    np.testing.assert_array_equal(sessions.fields["close"][0], 10 + np.arange(10) / 8)
    np.testing.assert_array_equal(sessions.fields["volume"][0], 100 + np.arange(10))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([HEADER, *(row.replace(".", ",") for row in ROWS)], "more values than its header"),
        ([HEADER, *ROWS[:9], ROWS[9].replace(".", ",")], "cannot be read"),
        ([line.replace(",", ";") for line in (HEADER, *ROWS)], "separates its columns by ';'"),
        ([line.replace(",", "\t") for line in (HEADER, *ROWS)], "separates its columns by"),
        ([HEADER, *ROWS[:9], ROWS[9][:-3] + '"1,000"'], "line 11: volume is '1,000', not a number"),
        ([HEADER, *(row[:-3] + "True" for row in ROWS)], "volume holds true and false"),
        ([HEADER, *ROWS[:9], ROWS[9][:-2] + "\0" + "09"], "NUL bytes"),
    ],
)
def test_other_dialects_and_damage_are_refused(tmp_path: Path, lines: list[str], words: str) -> None:
    for name, write in (("bars.csv", lambda data: data), ("bars.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(write("\n".join(lines).encode()))
        with pytest.raises(DataError, match=words):
            load_sessions(tmp_path / name, SMALL)


def test_numbers_of_full_precision_are_those_of_parquet(tmp_path: Path) -> None:
    bars = random_bars(SMALL, ["A", "B"], ["2024-01-03", "2024-01-04"])
    bars.to_csv(tmp_path / "bars.csv", index=False)
    bars.to_parquet(tmp_path / "bars.parquet")
    text, binary = (load_sessions(tmp_path / f"bars.{ending}", SMALL) for ending in ("csv", "parquet"))
    assert text.fingerprint == binary.fingerprint


def test_whole_numbers_beyond_64_bits_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "bars.csv").write_text("\n".join([HEADER, *(row[:-3] + "99999999999999999999" for row in ROWS)]))
    assert load_sessions(tmp_path / "bars.csv", SMALL).fields["volume"][0, 0] == 1e20
