"""A panel that is saved in parts, and what is asked of the system for rows of a mapped array."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import DataError
from rlwb.market import Calendar, Report, Sessions
from rlwb.market.sessions import save_parts
from rlwb.market.store import prefetch

SMALL = Calendar(segments=(("10:00", "10:03"),), infer_early_close_minutes=0)


def panel(*names: str, days: int = 3, halted: bool = False, fields: tuple[str, ...] = ("close", "volume")) -> Sessions:
    count = len(names) * days
    values = {field: np.arange(count * 3.0).reshape(count, 3) + len(field) + ord(names[0][0]) for field in fields}
    dates = np.tile(np.datetime64("2024-01-01") + np.arange(days), len(names))
    halts = values["close"] % 2 == 0 if halted else None
    totals = Report(totals={"sessions": count})
    return Sessions(SMALL, np.repeat(names, days), dates, np.full(count, 3), values, halted=halts, report=totals)


def joined(parts: list[Sessions]) -> Sessions:
    keys = [np.concatenate([getattr(part, name) for part in parts]) for name in ("instruments", "dates", "num_ticks")]
    fields = {name: np.concatenate([part.fields[name] for part in parts]) for name in parts[0].fields}
    halted = None if parts[0].halted is None else np.concatenate([np.asarray(part.halted) for part in parts])
    return Sessions(SMALL, *keys, fields, halted=halted)


@pytest.mark.parametrize("halted", [False, True])
def test_parts_make_the_panel_that_the_whole_makes(tmp_path: Path, halted: bool) -> None:
    parts = [panel("A", "B", halted=halted), panel("LONGER", halted=halted), panel("X", days=1, halted=halted)]
    opened = Sessions.open(save_parts(iter(parts), tmp_path / "parts"))
    joined(parts).save(tmp_path / "whole")
    assert opened.fingerprint == joined(parts).fingerprint
    assert opened.index.names.tolist() == ["A", "B", "LONGER", "X"]
    assert opened.report.totals == {"sessions": 10}
    files = sorted(path.name for path in (tmp_path / "whole").glob("*.npy"))
    assert len(files) == 5 + halted
    for name in files:
        content = (tmp_path / "parts" / name).read_bytes()
        assert content == (tmp_path / "whole" / name).read_bytes()
        np.save(tmp_path / "numpy.npy", np.load(tmp_path / "parts" / name))
        assert content == (tmp_path / "numpy.npy").read_bytes(), "the file that NumPy writes"


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([panel("A"), panel("B", fields=("close", "open", "volume"))], "differ in calendar or fields"),
        ([panel("A"), panel("B", halted=True)], "differ in calendar or fields"),
        ([panel("B"), panel("A")], "sort the rows"),
        ([panel("A"), panel("A")], "without doubles"),
        ([], "no parts"),
    ],
)
def test_parts_that_make_no_panel_leave_nothing(tmp_path: Path, parts: list[Sessions], message: str) -> None:
    with pytest.raises(DataError, match=message):
        save_parts(parts, tmp_path / "panel")
    assert not list(tmp_path.iterdir())


def test_an_error_in_a_part_leaves_the_old_panel(tmp_path: Path) -> None:
    old = panel("A")
    old.save(tmp_path / "panel")

    def broken():
        yield panel("B")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        save_parts(broken(), tmp_path / "panel")
    assert Sessions.open(tmp_path / "panel").fingerprint == old.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["panel"]


SIZE, HEADER = 60, 128


def test_a_panel_that_cannot_take_the_old_ones_place_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel("A").save(tmp_path / "p")
    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if self.suffix == ".rlwb-new":
            raise OSError("no")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        panel("B").save(tmp_path / "p")
    assert Sessions.open(tmp_path / "p").instruments[0] == "A"
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


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
