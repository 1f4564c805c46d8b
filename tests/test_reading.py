"""Files that rlwb wrote, damaged in every way that a disk, a copy or an editor damages them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from rlwb.errors import FileError
from rlwb.reading import read_array, read_json, read_table, read_text


class Shape(BaseModel):
    names: list[str]
    at: float | None = None


def test_what_is_whole_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"names": ["x"], "more": {"y": 1}}')
    assert read_json(tmp_path / "a.json", Shape) == {"names": ["x"], "more": {"y": 1}}
    table = pd.DataFrame({"policy": ["a", "b,\nc"], "pa": [1.5, None], "kind": ["x", "y"]})
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_parquet(tmp_path / "a.parquet", index=False)
    for name in ("a.csv", "a.parquet"):
        found = read_table(tmp_path / name, "policy", numbers=["pa"], texts=["policy", "kind"])
        pd.testing.assert_frame_equal(found, table)
    np.save(tmp_path / "a.npy", np.arange(3))
    assert read_array(tmp_path / "a.npy").tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff\xfe{", "utf-8"),
        (b"[1]", "valid dictionary or instance of Shape"),
        (b"3", "valid dictionary"),
        (b"{}", "names"),
        (b'{"names": "x"}', r"names is 'x'; a list is needed"),
        (b'{"names": [null]}', r"names\.0 is None; text is needed"),
        (b'{"names": [], "at": "soon"}', "at is 'soon'"),
        (b"[" * 99_999, "JSON"),
    ],
)
def test_k08_json_of_another_shape(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    refused(lambda: read_json(tmp_path / "a.json", Shape), tmp_path / "a.json", words)


GOOD = b"iteration,pa,kind\n1,2.5,a\n2,,b\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "ends within a line"),
        (b"\n", "No columns"),
        (GOOD[:-3], "ends within a line"),
        (GOOD.replace(b"2,,b", b"2,"), "a cell a column"),
        (GOOD.replace(b"2,,b", b"2,1,b,4"), "a cell a column"),
        (GOOD.replace(b"kind", b"pa"), "a cell a column"),
        (GOOD.replace(b"iteration", b"step"), "no column iteration"),
        (GOOD.replace(b"2.5", b"2,5"), "a cell a column"),
        (GOOD.replace(b"2.5", b"much"), "pa holds what is no number"),
        (GOOD.replace(b",b", b","), "kind holds what is no text"),
        (GOOD.replace(b"2,,b", b"1,,b"), "iteration has not one value of its own a row"),
        (GOOD.replace(b"2,,b", b"2.5,,b"), "iteration has not one value of its own a row"),
        (GOOD.replace(b"2,,b", b",,b"), "iteration has not one value of its own a row"),
        (GOOD.decode().encode("utf-16"), "utf-8"),
        (GOOD.replace(b",b", b",\xe9"), "utf-8"),
        (GOOD.replace(b",b", b',"b'), "unexpected end of data"),
        (b"PAR1" + GOOD, "no column iteration"),
    ],
)
def test_k08_tables_that_are_short_or_of_another_shape(content: bytes, words: str, tmp_path: Path) -> None:
    def read() -> object:
        return read_table(tmp_path / "a.csv", "iteration", numbers=["pa"], texts=["kind"])

    (tmp_path / "a.csv").write_bytes(GOOD)
    assert len(read()) == 2  # type: ignore[arg-type]
    (tmp_path / "a.csv").write_bytes(content)
    refused(read, tmp_path / "a.csv", words)


def test_k08_tables_of_numbers_alone_and_with_a_key_of_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("policy,metric,pa\na,x,1\na,y,2\n")
    assert len(read_table(path, ("policy", "metric"), texts=["policy", "metric"], is_numeric=True)) == 2
    refused(lambda: read_table(path, "policy"), path, "policy has not one value of its own")
    refused(lambda: read_table(path, texts=["policy"], is_numeric=True), path, "metric holds what is no number")
    path.write_text("policy,metric,pa\na,x,1\na,x,2\n")
    refused(lambda: read_table(path, ("policy", "metric")), path, "policy and metric has not one value of its own")


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.parquet", "a.npy", "a.md"])
def test_k08_a_folder_and_rubbish_in_the_place_of_a_file(name: str, tmp_path: Path) -> None:
    readers: dict[str, Callable[[Path], Any]] = {".json": read_json, ".npy": read_array, ".md": read_text}
    path = tmp_path / name
    path.mkdir()
    read = readers.get(path.suffix, read_table)
    refused(lambda: read(path), path, "directory")
    path.rmdir()
    refused(lambda: read(path), path, "No such file")
    path.write_bytes(b"\xff\0\x80PK" * 40)
    refused(lambda: read(path), path, "cannot be read")


def test_k08_nothing_is_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused(lambda: read_array(tmp_path / "a.npy"), tmp_path / "a.npy", "allow_pickle")


def refused(read: Callable[[], object], path: Path, words: str) -> None:
    with pytest.raises(FileError, match=words) as caught:
        read()
    assert str(caught.value).startswith(f"{path} cannot be read as ")
    assert "\n" not in str(caught.value)
