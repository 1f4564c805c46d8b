"""The journal: what the service has accepted and answered, in one SQLite file, from which it comes back after a kill.

The table ``log`` holds events in their sequence: kind, day and content (msgpack). What is written in one call appears
whole or not at all, and a killed process loses nothing of it; a machine that loses power may lose the last events
before the file system wrote them, unless the journal is opened with ``sync="full"``.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from rlwb.errors import FileError, ServingError
from rlwb.files import locked

_VERSION = 1
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, day INTEGER NOT NULL, body BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, digest BLOB NOT NULL, status INTEGER NOT NULL,
    body BLOB NOT NULL
);
"""
#: Writes after which what SQLite holds beside the file is moved into it, by another thread: it waits for the disk.
_MOVED_EVERY = 2000
#: Bytes beside the file from which on the one who writes waits for it: under a steady load the other never catches up.
_MOST_BESIDE = 64 * 2**20
#: Bytes that an answer takes beside its content.
_ROW = 200
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class Event(NamedTuple):
    """One event: its kind, the day that it belongs to (days since 1970), and its content."""

    kind: str
    day: int
    body: Any


class Answer(NamedTuple):
    """An answer kept under an idempotency key: the digest of the request, the status and the content."""

    digest: bytes
    status: int
    body: bytes


class Journal:
    """Events and kept answers in an SQLite file, or in memory.

    Parameters
    ----------
    path
        The file; made where there is none. None keeps the journal in memory, and a restart begins anew.
    sync
        ``"full"`` waits for the disk at every write; ``"normal"`` is safe against a killed process, not against a loss
        of power.
    answers
        Bytes of kept answers; the older half goes when there are more.

    Raises
    ------
    FileError
        When the file is damaged, of another version, no journal, or held by another process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        sync: Literal["normal", "full"] = "normal",
        answers: int = 64 * 2**20,
    ) -> None:
        self.path = None if path is None else Path(path)
        self._answers = answers
        self._writes = 0
        self._mover: threading.Thread | None = None
        self._held = contextlib.ExitStack()
        try:
            if self.path is not None:
                self._held.enter_context(locked(self.path.with_name(f"{self.path.name}.lock")))
            self._base = self._open(sync)
            self._kept = self._kept_bytes()
        except BlockingIOError:
            raise FileError(
                f"the journal {path} is in use by another process; stop it, or name another file."
            ) from None
        except OSError as error:
            raise FileError(f"the journal {path} cannot be opened ({error.strerror}); name another file.") from None
        except BaseException:
            self._held.close()
            raise

    def _open(self, sync: str) -> sqlite3.Connection:
        try:
            if self.path is not None:
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))  # orders are nobody else's business
            base = sqlite3.connect(":memory:" if self.path is None else self.path, isolation_level=None, timeout=0)
            self._held.callback(base.close)
            for words in ("journal_mode=WAL", f"synchronous={sync}", "wal_autocheckpoint=0", "trusted_schema=OFF"):
                base.execute(f"PRAGMA {words}").fetchall()
            problem = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise sqlite3.DatabaseError(problem)
            found = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type='table'")}
            if found and not {"meta", "log", "answers"} <= found:
                raise FileError(f"{self.path} is a database, but no journal of rlwb; name another file.")
            base.executescript(_TABLES)
            base.execute("INSERT OR IGNORE INTO meta VALUES ('version', ?)", (str(_VERSION),))
            (version,) = base.execute("SELECT value FROM meta WHERE name='version'").fetchone()
        except sqlite3.Error as error:
            raise FileError(
                f"the journal {self.path} is damaged or cannot be written ({error}); restore it, or name another file."
            ) from None
        if version != str(_VERSION):
            raise FileError(f"the journal {self.path} is of version {version}, not {_VERSION}; name another file.")
        return base

    def noted(self, name: str) -> str | None:
        """Return what `note` kept under a name, or None."""
        row = self._base.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def note(self, name: str, value: str) -> None:
        """Keep a text under a name, in the place of what was there."""
        self._commit("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(name, value)])

    def write(self, events: Iterable[Event]) -> None:
        """Append events, all or none.

        Raises
        ------
        ServingError
            With the reason ``journal`` when they cannot be written; then nothing was.
        """
        rows = [(event.kind, event.day, _encode(event.body)) for event in events]
        if rows:
            self._commit("INSERT INTO log (kind, day, body) VALUES (?, ?, ?)", rows)

    def events(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield number and event, in their sequence, of those after number `after`.

        Raises
        ------
        FileError
            When one cannot be read.
        """
        try:
            for seq, kind, day, body in self._base.execute(
                "SELECT seq, kind, day, body FROM log WHERE seq > ? ORDER BY seq", (after,)
            ):
                yield seq, Event(kind, day, _decode(body))
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise FileError(
                f"the journal {self.path} is damaged ({error}); restore it, or name another file."
            ) from None

    def forget_before(self, day: int) -> None:
        """Remove the events of earlier days."""
        self._commit("DELETE FROM log WHERE day < ?", [(day,)])

    def days(self) -> list[int]:
        """Return the days that events belong to, sorted."""
        return [row[0] for row in self._base.execute("SELECT DISTINCT day FROM log ORDER BY day")]

    def answer(self, key: str) -> Answer | None:
        """Return what is kept under an idempotency key, or None."""
        row = self._base.execute("SELECT digest, status, body FROM answers WHERE key = ?", (key,)).fetchone()
        return Answer(*row) if row else None

    def keep(self, key: str, answer: Answer) -> Answer:
        """Keep an answer under a key, and return it, or the one that is kept there already."""
        self._commit("INSERT OR IGNORE INTO answers (key, digest, status, body) VALUES (?, ?, ?, ?)", [(key, *answer)])
        self._kept += len(answer.body) + _ROW
        if self._kept > self._answers:
            half = "SELECT (min(seq) + max(seq)) / 2 FROM answers"
            self._commit(f"DELETE FROM answers WHERE seq <= ({half})", [()])
            self._kept = self._kept_bytes()
        return self.answer(key) or answer

    def _kept_bytes(self) -> int:
        words = "SELECT count(*), coalesce(sum(length(body)), 0) FROM answers"
        count, size = self._base.execute(words).fetchone()
        return int(size + count * _ROW)

    def _commit(self, words: str, rows: list[tuple[Any, ...]]) -> None:
        base = self._base
        try:
            base.execute("BEGIN IMMEDIATE")
            base.executemany(words, rows)
            base.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                if base.in_transaction:
                    base.execute("ROLLBACK")
            where = self.path or "in memory"
            raise ServingError(
                f"the journal {where} cannot be written ({error}); make room, and try again.", "journal"
            ) from None
        self._writes += 1
        if self._writes % _MOVED_EVERY == 0 and self.path is not None:
            self._move(self.path)

    def _move(self, path: Path) -> None:
        if self._mover is not None and self._mover.is_alive():
            return
        with contextlib.suppress(sqlite3.Error, OSError):  # what was written is safe in any case
            if path.with_name(f"{path.name}-wal").stat().st_size > _MOST_BESIDE:
                self._base.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        with contextlib.suppress(RuntimeError):  # no thread can be started
            self._mover = threading.Thread(target=_checkpoint, args=(path,), name="journal")
            self._mover.start()

    def close(self) -> None:
        """Write what SQLite still holds beside the file into it, and let it go."""
        if self._mover is not None:
            self._mover.join()
        with contextlib.suppress(sqlite3.Error):
            self._base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._held.close()


def _checkpoint(path: Path) -> None:
    """Move what SQLite holds beside a file into it, without keeping anybody from writing."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=0)) as base:
        base.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
