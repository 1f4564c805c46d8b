"""CSV dialects: what is not plain CSV is read right or refused, never cut or shifted in silence."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.fuzzing.tokens import TOKENS
from rlwb.errors import DataError
from rlwb.market import Calendar, load_sessions, read_bars
from rlwb.market.columns import match_columns
from rlwb.market.dataset.arrow import UnfitError, read_plain_csv
from rlwb.market.tables import first_rows, read_header, read_table
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
        (["sep=,", HEADER, *ROWS], "begins with a line for a spreadsheet .sep=.; remove that line"),
        (["sep=;", *(line.replace(",", ";") for line in (HEADER, *ROWS))], "begins with a line for a spreadsheet"),
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


def read_both_ways(path: Path) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """Return what the fast and the slow way read, with stamps and ids alike; None where one refuses."""
    header = read_header(path)
    found = match_columns(header, None, path.name)
    try:
        fast = read_plain_csv(path, found, None)
    except UnfitError:
        return None, None
    try:
        slow = read_table(path, found, header)
        stamps = pd.to_datetime(slow["datetime"].str.strip(), format="ISO8601", utc=fast["datetime"].dt.tz is not None)
        return fast, slow.assign(datetime=stamps, instrument=slow["instrument"].astype("category"))
    except (DataError, ValueError):
        return fast, None


@pytest.mark.parametrize("column", HEADER.split(","))
def test_the_fast_way_reads_a_cell_as_the_slow_one_or_leaves_it(column: str, tmp_path: Path) -> None:
    place, path, fit = HEADER.split(",").index(column), tmp_path / "bars.csv", []
    for token in TOKENS:
        for shown in (token, f'"{token}"'):
            cells = ROWS[1].split(",")
            cells[place] = shown
            path.write_text("\n".join([HEADER, ROWS[0], ",".join(cells), ROWS[2]]), newline="")
            try:
                fast, slow = read_both_ways(path)
            except DataError:  # NUL bytes
                continue
            if fast is not None:
                fit.append(token)
                assert slow is not None, shown
                pd.testing.assert_frame_equal(fast, slow, check_exact=True)
    assert len(set(fit)) >= (1 if column == "datetime" else 20)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b\n1,2\n", ["a", "b"]),
        ("\ufeffa, b\r\n1,2", ["a", " b"]),
        ('"a","b,c"\r1,2', ["a", "b,c"]),
        ("a,b", ["a", "b"]),
        ("a,a\n1,2", ["a", "a.1"]),
        ("\ufeff\ufeffa,b\n1,2", ["a", "b"]),
        ("a,\n1,2", ["a", "Unnamed: 1"]),
        ("\na,b\n1,2", ["a", "b"]),
        ('a,"b\nc"\n1,2', ["a", "b\nc"]),
        ('a"b,c\n1,2', ['a"b', "c"]),
    ],
)
def test_names_are_those_of_pandas_however_they_stand(text: str, names: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_bytes(text.encode())
    assert read_header(path) == names == list(pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns)
    plain = first_rows(path)
    assert plain is None or plain[0] == names


def test_a_number_beyond_float64_and_a_year_beyond_nanoseconds_are_refused_with_their_row(tmp_path: Path) -> None:
    path = tmp_path / "bars.csv"
    path.write_text("\n".join([HEADER, ROWS[0], ROWS[1].replace(",101", ",1e400")]))
    with pytest.raises(DataError, match="line 3: volume is '1e400', not a number"):
        read_bars(path)
    path.write_text("\n".join([HEADER, ROWS[0], ROWS[1].replace("2024", "7024")]))
    with pytest.raises(DataError, match=r"the stamp '7024-01-03 10:01:00' \(row 2\) cannot be read"):
        read_bars(path)


def test_numbers_are_float64_whichever_way_they_are_read(tmp_path: Path) -> None:
    for name, end in (("fast", "\n"), ("slow", ",\n")):  # a comma more, which only the slow way takes
        (tmp_path / f"{name}.csv").write_text(HEADER + "\n" + "".join(row + end for row in ROWS))
    fast, slow = (read_bars(tmp_path / f"{name}.csv") for name in ("fast", "slow"))
    pd.testing.assert_frame_equal(fast, slow)
    assert fast["volume"].dtype == np.float64
    assert fast["datetime"].dtype == "datetime64[ns]"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["bars.csv", "bars.csv.gz"])
def test_a33_a_file_that_ends_in_the_midst_of_a_row_is_refused(tmp_path: Path, end: str, name: str) -> None:
    """Cut in its last close, 11.125, the file would open 11 and close 1."""
    pack = gzip.compress if name.endswith("gz") else bytes
    whole = end.join([HEADER, *ROWS])
    for text in (whole[: whole.rindex(",") - 5], whole[: whole.rindex(",")], whole[: whole.rindex("A,") + 1]):
        (tmp_path / name).write_bytes(pack(text.encode()))
        with pytest.raises(DataError, match="ends in the midst of a row"):
            load_sessions(tmp_path / name, SMALL)
    for text in (whole, whole + end, whole + end + " ", whole[: whole.rindex(",")] + "," + end):
        (tmp_path / name).write_bytes(pack(text.encode()))
        assert load_sessions(tmp_path / name, SMALL).fields["close"][0, 9] == 11.125
