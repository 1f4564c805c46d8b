"""CSV dialects: what is not plain CSV is read right or refused, never cut or shifted in silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import DataError
from rlwb.market import Calendar, load_sessions, read_bars
from rlwb.market.readers.content import MISSING_WORDS
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
        ([HEADER, *(row.replace(".", ",") for row in ROWS)], "row 2 has more values than the header"),
        ([HEADER, *ROWS[:9], ROWS[9].replace(".", ",")], "row 11 holds 11 values where 7 belong"),
        ([HEADER, ROWS[0] + ",", ROWS[1] + ",7"], "row 3 has more values than the header"),
        ([HEADER, *ROWS[:9], ROWS[9].rpartition(",")[0]], "row 11 holds 6 values where 7 belong"),
        ([line.replace(",", ";") for line in (HEADER, *ROWS)], "separates its columns by ';'"),
        ([line.replace(",", "\t") for line in (HEADER, *ROWS)], "separates its columns by"),
        ([HEADER, *ROWS[:9], ROWS[9][:-3] + '"1,000"'], "row 11: volume is '1,000', not a number"),
        (["sep=,", HEADER, *ROWS], "lack the columns datetime"),
        (["sep=;", *(line.replace(",", ";") for line in (HEADER, *ROWS))], "separates its columns by ';'"),
        ([HEADER, *(row[:-3] + "True" for row in ROWS)], "row 2: volume is 'True', not a number"),
        ([HEADER, *ROWS[:9], ROWS[9][:-2] + "\0" + "09"], r"row 11: volume is '1\\x0009', not a number"),
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


#: What parsers of numbers stumble over.
NUMBERS = [
    *("0", "-0", "1", "-1", "0.0", "1e5", "-1e-400", "inf", "-inf", "1.7976931348623157e308", "4.9e-324", "16777217"),
    *(" 1", "1 ", "9223372036854775807", "9223372036854775808", "0." + "3" * 60, "123456789.123456789", "1E3"),
]


@pytest.mark.parametrize("cell", [*NUMBERS, *MISSING_WORDS])
def test_a_number_is_what_pandas_reads(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("\n".join([HEADER, ROWS[0], ROWS[1].replace(",101", f",{cell}"), ROWS[2]]))
    plain = pd.read_csv(path, keep_default_na=False, na_values=MISSING_WORDS, float_precision="round_trip")
    np.testing.assert_array_equal(read_bars(path)["volume"], plain["volume"].astype(float))


@pytest.mark.parametrize("cell", ["0x10", "1_000", "1.5.5", "1f", "2024-01-03", "true", "\ufeff", "é", "1" * 20 + "x"])
def test_what_is_no_number_is_refused_with_its_row(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("\n".join([HEADER, ROWS[0], ROWS[1].replace(",101", f",{cell}")]))
    with pytest.raises(DataError, match="row 3: volume is ") as caught:
        read_bars(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        ("\ufeff\ufeff" + HEADER, None),
        ('"' + HEADER.replace(",", '","') + '"', None),
        ("\n\n" + HEADER, None),
        ("," + HEADER, "row 2 holds 7 values where 8 belong"),
        (HEADER + ",", "row 2 holds 7 values where 8 belong"),
        (HEADER.replace("open", "close"), "both mean close"),
        (HEADER.replace("open", '"op\nen"'), "cannot be read"),
        (HEADER.replace("open", 'o"pen'), "lack the columns open"),
    ],
)
def test_headers(header: str, refusal: str | None, tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("\n".join([header, *ROWS]))
    if refusal is None:
        assert len(read_bars(path)) == 10
        return
    with pytest.raises(DataError, match=refusal) as caught:
        read_bars(path)
    assert str(path) in str(caught.value)


def test_columns_of_one_name_that_mean_nothing_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("\n".join([f"note,{HEADER},note", *(f"x,{row},y" for row in ROWS)]))
    assert read_bars(path)["volume"].tolist() == [100.0 + at for at in range(10)]


def test_a_number_beyond_float64_is_infinite_and_a_year_beyond_nanoseconds_refused_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("\n".join([HEADER, ROWS[0], ROWS[1].replace(",101", ",1e400")]))
    assert read_bars(path)["volume"].tolist() == [100, np.inf]
    path.write_text("\n".join([HEADER, ROWS[0], ROWS[1].replace("2024", "7024")]))
    with pytest.raises(DataError, match="row 3: the stamp '7024-01-03 10:01:00' cannot be read"):
        read_bars(path)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["bars.csv", "bars.csv.gz"])
def test_a33_a_file_that_ends_in_the_midst_of_a_row_is_refused(tmp_path: Path, end: str, name: str) -> None:
    """Cut in its last close, 11.125, the file would open 11 and close 1."""
    pack = gzip.compress if name.endswith("gz") else bytes
    whole = end.join([HEADER, *ROWS])
    for text in (whole[: whole.rindex(",") - 5], whole[: whole.rindex(",")], whole[: whole.rindex("A,") + 1]):
        (tmp_path / name).write_bytes(pack(text.encode()))
        with pytest.raises(DataError, match=r"row 11 holds \d values where 7 belong"):
            load_sessions(tmp_path / name, SMALL)
    for text in (whole, whole + end, whole + end + end, whole[: whole.rindex(",")] + "," + end):
        (tmp_path / name).write_bytes(pack(text.encode()))
        assert load_sessions(tmp_path / name, SMALL).fields["close"][0, 9] == 11.125
