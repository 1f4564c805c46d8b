"""What is asked of the system for rows of a mapped array."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.market.store import prefetch

SIZE, HEADER = 60, 128


class Recorder(mmap.mmap):
    """A map that remembers what is asked of it."""

    asked: list[tuple[int, int]]

    def madvise(self, option: int, start: int, length: int) -> None:  # type: ignore[override]
        assert option == mmap.MADV_WILLNEED
        self.asked.append((start, length))
        super().madvise(option, start, length)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    path = tmp_path_factory.mktemp("mapped") / "rows.bin"
    path.write_bytes(bytes(HEADER + SIZE * 1000 * 8))
    with path.open("rb") as file:
        return Recorder(file.fileno(), 0, access=mmap.ACCESS_READ)


@settings(max_examples=100, deadline=None)
@given(rows=st.lists(st.integers(0, 999), max_size=30), first=st.integers(0, 5))
def test_the_pages_of_the_rows_are_asked_for_and_no_others(recorder: Recorder, rows: list[int], first: int) -> None:
    recorder.asked = []
    array: np.ndarray = np.ndarray((1000, SIZE), dtype=np.float64, buffer=recorder, offset=HEADER)
    wanted = [row for row in rows if row < 1000 - first]
    prefetch(array[first:], np.array(wanted, dtype=np.int32))  # a view that begins later
    pages: set[int] = set()
    for start, length in recorder.asked:
        assert start % mmap.PAGESIZE == 0
        pages |= set(range(start // mmap.PAGESIZE, (start + length - 1) // mmap.PAGESIZE + 1))
    expected: set[int] = set()
    for row in wanted:
        low = HEADER + (row + first) * SIZE * 8
        expected |= set(range(low // mmap.PAGESIZE, (low + SIZE * 8 - 1) // mmap.PAGESIZE + 1))
    assert pages == expected


def test_rows_in_a_row_are_asked_for_at_once(recorder: Recorder) -> None:
    recorder.asked = []
    array: np.ndarray = np.ndarray((1000, SIZE), dtype=np.float64, buffer=recorder, offset=HEADER)
    prefetch(array, np.array([7, 5, 6, 6, 900]))
    assert len(recorder.asked) == 2


def test_arrays_in_memory_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefetch(np.zeros((3, 2)), np.array([0, 2]))
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    mapped: Any = np.load(tmp_path / "a.npy", mmap_mode="r").view(np.ndarray)
    prefetch(mapped, np.array([], dtype=np.int64))
    prefetch(mapped, np.array([2]))
    monkeypatch.delattr(mmap, "MADV_WILLNEED", raising=False)  # as on systems without it
    prefetch(mapped, np.array([2]))
    assert mapped[2].tolist() == [4.0, 5.0]
