"""The journal: all or nothing, in its sequence, one process, and damage that is named."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlwb.errors import FileError, ServingError
from rlwb.serving.journal import Answer, Event, Journal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(max_size=9), st.integers(0, 40_000), VALUES), max_size=8))
def test_what_was_written_is_read_in_its_sequence(rows: list[tuple[str, int, object]]) -> None:
    journal = Journal()
    journal.write(Event(*row) for row in rows[:3])
    journal.write(Event(*row) for row in rows[3:])
    found = list(journal.events())
    assert [event for _, event in found] == [Event(*row) for row in rows]
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    if found:
        assert list(journal.events(found[0][0])) == found[1:]
    journal.close()


def test_events_and_notes_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    journal.write([Event("a", 3, [1, 0.1 + 0.2])])
    journal.note("bundle", "second")
    journal.close()
    again = Journal(path)
    assert [event for _, event in again.events()] == [Event("a", 3, [1, 0.1 + 0.2])]
    assert again.noted("bundle") == "second"
    assert again.noted("other") is None
    again.close()


def test_earlier_days_are_forgotten_and_numbers_go_on() -> None:
    journal = Journal()
    journal.write([Event("a", 1, 1), Event("b", 2, 2), Event("c", 3, 3)])
    journal.forget_before(3)
    journal.write([Event("d", 4, 4)])
    assert [(number, event.kind) for number, event in journal.events()] == [(3, "c"), (4, "d")]
    assert journal.days() == [3, 4]


def test_what_lies_beside_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlwb.serving.journal._MOVED_EVERY", 100)
    monkeypatch.setattr("rlwb.serving.journal._MOST_BESIDE", 2**20)
    journal = Journal(tmp_path / "j.db")
    for _ in range(4000):
        journal.write([Event("a", 1, bytes(3000))])
    assert sum(1 for _ in journal.events()) == 4000
    assert (tmp_path / "j.db-wal").stat().st_size < 8 * 2**20
    journal.close()
    assert (tmp_path / "j.db").stat().st_size > 12e6


def test_a_write_that_fails_leaves_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    journal.write([Event("a", 1, 1)])
    journal._base.execute("CREATE TRIGGER t BEFORE INSERT ON log WHEN NEW.kind='c' BEGIN SELECT RAISE(ABORT, 'x'); END")
    with pytest.raises(ServingError) as caught:
        journal.write([Event("b", 1, 2), Event("c", 1, 3)])
    assert caught.value.reason == "journal"
    assert [event.kind for _, event in journal.events()] == ["a"]
    journal.write([Event("d", 1, 4)])
    assert [event.kind for _, event in journal.events()] == ["a", "d"]
    journal.close()


def test_a_full_disk_is_told_and_what_fits_later_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    (pages,) = journal._base.execute("PRAGMA page_count").fetchone()
    journal._base.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(ServingError, match="full") as caught:
        journal.write([Event("a", 1, b"x" * 50_000)])
    assert caught.value.reason == "journal"
    journal.write([Event("b", 1, 1)])
    assert [event.kind for _, event in journal.events()] == ["b"]
    journal.close()


def test_a_kept_answer_stays_the_first_and_old_ones_go() -> None:
    journal = Journal(answers=100_000)
    first = journal.keep("k", Answer(b"d", 200, b"one"))
    assert journal.keep("k", Answer(b"e", 200, b"two")) == first == Answer(b"d", 200, b"one")
    for number in range(60):
        journal.keep(f"n{number}", Answer(b"d", 200, bytes(5_000)))
    assert journal.answer("k") is None
    assert journal.answer("n59") is not None
    (size,) = journal._base.execute("SELECT sum(length(body)) FROM answers").fetchone()
    assert 40_000 < size <= 100_000


def test_no_one_else_may_read_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.db")
    journal.write([Event("a", 1, 1)])
    assert {path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("j.db*")} == dict.fromkeys(
        ("j.db", "j.db-wal", "j.db-shm"), 0
    ) | {"j.db.lock": (tmp_path / "j.db.lock").stat().st_mode & 0o077}
    journal.close()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    with pytest.raises(FileError, match="another process"):
        Journal(path)
    code = f"from rlwb.serving.journal import Journal; Journal({str(path)!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "FileError" in result.stderr
    journal.close()
    Journal(path).close()


@pytest.mark.parametrize("damage", ["head", "middle", "text", "version", "foreign"])
def test_a_damaged_journal_is_refused_by_its_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "j.db"
    journal = Journal(path)
    journal.write([Event("a", 1, "x" * 400)] * 100)
    if damage == "version":
        journal.note("version", "99")
    journal.close()
    content = bytearray(path.read_bytes())
    if damage == "head":
        content[:16] = b"no database here"
    elif damage == "middle":
        content[4096:-4096] = bytes(len(content) - 8192)
    elif damage == "text":
        content = bytearray(b"instrument,datetime\n" * 100)
    path.write_bytes(content)
    if damage == "foreign":
        path.unlink()
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE songs (name TEXT)")
        base.close()
    with pytest.raises(FileError, match=r"j\.db"):
        list(Journal(path).events())


def test_a_folder_that_is_not_there_is_made_and_a_folder_in_its_place_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "new" / "j.db").close()
    (tmp_path / "j.db").mkdir()
    with pytest.raises(FileError, match=r"j\.db"):
        Journal(tmp_path / "j.db")
