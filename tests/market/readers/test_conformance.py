"""The built-in readers keep the contract of readers; a reader that breaks it is found out."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest

from rlwb.market.readers.base import Reader
from rlwb.market.readers.binance import BinanceReader
from rlwb.market.readers.conformance import check_reader
from rlwb.market.readers.registry import BUILT_IN
from rlwb.market.report import Report
from tests.market.readers.sources import SOURCES, binance


def test_every_built_in_reader_is_held_to_the_contract() -> None:
    assert set(SOURCES) == set(BUILT_IN)


@pytest.mark.parametrize("kind", list(SOURCES))
def test_built_in_readers_keep_the_contract(kind: str, tmp_path: Path) -> None:
    make, bars, counts = SOURCES[kind]
    source, reader = make(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    check_reader(reader, source, scratch, bars=bars, counts=counts)


class Unsorted(BinanceReader):
    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        return super().read(source, instruments, report).iloc[::-1].reset_index(drop=True)


class Float32(BinanceReader):
    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        return super().read(source, instruments, report).astype({"close": "float32"})


class Everything(BinanceReader):
    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        return super().read(source, None, report)


class Raises(BinanceReader):
    """Reads the last byte of a file before it sees whether there is one."""

    def _content(self, path: Path) -> bytes:
        assert path.read_bytes()[-1] >= 0
        return super()._content(path)


class Careless(BinanceReader):
    """Answers with the last good bars where a file is damaged."""

    kept: ClassVar[list[pd.DataFrame]] = []

    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        try:
            self.kept.append(super().read(source, instruments, report))
        except Exception:
            if instruments is not None:
                raise
        return self.kept[0] if instruments is None else self.kept[-1]


class Trusting(BinanceReader):
    """Unpickles what it does not understand."""

    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        for path in self.files(source)[0]:
            if path.read_bytes().startswith(b"\x80\x04\x95"):
                pickle.loads(path.read_bytes())
        return super().read(source, instruments, report)


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (Unsorted(), "not sorted"),
        (Float32(), "column close of type float32"),
        (Everything(), "instruments are not picked out"),
        (Raises(), "raises IndexError, not a DataError"),
        (Careless(), "read as if it were whole"),
        (Trusting(), "what the file says was executed"),
    ],
)
def test_a_reader_that_breaks_the_contract_is_found_out(reader: Reader, words: str, tmp_path: Path) -> None:
    source, _ = binance(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(AssertionError, match=words):
        check_reader(reader, source, scratch)


@pytest.mark.parametrize(
    ("bars", "counts", "words"), [(7, None, "6 bars in place of 7"), (6, {"unsorted": 1}, "counts")]
)
def test_other_numbers_than_stated_are_found_out(
    bars: int, counts: dict[str, int] | None, words: str, tmp_path: Path
) -> None:
    source, reader = binance(tmp_path)
    with pytest.raises(AssertionError, match=words):
        check_reader(reader, source, tmp_path, bars=bars, counts=counts)
