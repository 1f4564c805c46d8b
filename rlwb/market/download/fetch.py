"""One file over HTTP: retried, resumed by range, checked against its SHA-256, whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rlwb.errors import ConfigError, DataError

T = TypeVar("T")
_CHUNK = 1 << 18
_SMALL = 1 << 20
_LONGEST_PAUSE = 60.0
#: Statuses that pass by themselves.
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class NotThereError(Exception):
    """The server has no such file."""


class _AgainError(Exception):
    """A try that failed and may not fail again; `wait` is how many seconds the server asks for."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class Fetcher:
    """Gets files from a server.

    Parameters
    ----------
    timeout
        Seconds without a byte after which a try has failed.
    tries
        Tries of one file. A server that was never reached gets a single one: who is offline learns it at once.
    pause
        Seconds before the second try, doubled with each further one, a minute at most; longer where the server asks.
    sleep
        Waits so many seconds.
    """

    def __init__(
        self,
        timeout: float = 30.0,
        tries: int = 6,
        pause: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not (timeout > 0 and tries >= 1 and pause >= 0):
            raise ConfigError(f"timeout {timeout}, tries {tries} and pause {pause} must be above 0.")
        self.timeout = timeout
        self.tries = tries
        self.pause = pause
        self.sleep = sleep
        self._reached = False

    def small(self, url: str) -> bytes:
        """Return what `url` holds, of at most a mebibyte.

        Raises
        ------
        NotThereError
            When the server has no such file.
        DataError
            When the server cannot be reached, refuses, or keeps failing.
        """

        def read(response: Any) -> bytes:
            content: bytes = response.read(_SMALL)
            _check_length(response, len(content))
            return content

        return self._repeat(url, lambda: self._ask(url, 0, read))

    def file(self, url: str, target: Path, sha256: str) -> None:
        """Write what `url` holds to `target`; raises as `small`, and where the content does not fit its SHA-256.

        What has come when a try fails stays in a hidden file beside `target`, and the next try, of this process or of a
        later one, asks for the rest.
        """
        part = target.with_name(f".{target.name}.part")
        with _writing(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
        resumed = part.exists()
        if not (resumed and digest_of(part) == sha256):
            self._repeat(url, lambda: self._append(url, part))
        found = digest_of(part)
        if found != sha256 and resumed:  # the beginning may be that of an older version
            part.unlink()
            self._repeat(url, lambda: self._append(url, part))
            found = digest_of(part)
        if found != sha256:
            part.unlink()
            raise DataError(
                f"{url} does not fit its checksum (SHA-256 {found[:12]}…, not {sha256[:12]}…), so it is not kept; "
                "try again later, or another mirror."
            )
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(target)

    def _append(self, url: str, part: Path) -> None:
        have = part.stat().st_size if part.exists() else 0

        def write(response: Any) -> None:
            start = have if response.status == http.HTTPStatus.PARTIAL_CONTENT else 0  # else all of it comes again
            if start and not str(response.headers.get("Content-Range")).startswith(f"bytes {start}-"):
                raise _AgainError(f"bytes from {start} were asked for, others came")
            received = 0
            with _writing(part.parent):
                file = part.open("r+b" if part.exists() else "wb", buffering=0)
            with file:
                with _writing(part.parent):
                    file.truncate(start)
                    file.seek(start)
                while chunk := response.read(_CHUNK):
                    with _writing(part.parent):
                        received += file.write(chunk)
            _check_length(response, received)

        try:
            self._ask(url, have, write)
        except _AgainError:
            if part.exists() and part.stat().st_size == 0:
                part.unlink()
            raise
        except _PastTheEndError:
            part.unlink()
            raise _AgainError("the part that was here is longer than the file") from None

    def _ask(self, url: str, offset: int, use: Callable[[Any], T]) -> T:
        """Ask once for `url` from byte `offset` on, and return what `use` makes of the answer."""
        headers = {"User-Agent": "rlwb"} | ({"Range": f"bytes={offset}-"} if offset else {})
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=self.timeout) as answer:
                self._reached = True
                return use(answer)
        except urllib.error.HTTPError as error:
            self._reached = True
            error.close()
            if error.code == http.HTTPStatus.NOT_FOUND:
                raise NotThereError(url) from None
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and offset:
                raise _PastTheEndError from None
            if error.code in _PASSING:
                wait = str(error.headers.get("Retry-After", ""))
                raise _AgainError(f"{error.code} {error.reason}", float(wait) if wait.isdigit() else 0.0) from None
            raise DataError(
                f"{url} is refused ({error.code} {error.reason}); check symbol, interval and server."
            ) from None
        except (http.client.HTTPException, OSError) as error:
            self._reached |= not isinstance(error, urllib.error.URLError)  # which tells of no connection at all
            reason = getattr(error, "reason", error)
            raise _AgainError(str(getattr(reason, "strerror", None) or reason or type(reason).__name__)) from None

    def _repeat(self, url: str, attempt: Callable[[], T]) -> T:
        pause = self.pause
        for number in range(1, self.tries + 1):
            try:
                return attempt()
            except _AgainError as failure:
                if not self._reached:
                    raise DataError(
                        f"{urlsplit(url).netloc} cannot be reached ({failure}); check the network, or name a mirror as "
                        "base URL. What is here already stays, and the same command goes on from it."
                    ) from None
                if number == self.tries:
                    raise DataError(
                        f"{url} failed {number} times ({failure}); try again later: the same command goes on from what "
                        "is here already."
                    ) from None
                self.sleep(min(max(pause, failure.wait), _LONGEST_PAUSE))
                pause *= 2
        raise AssertionError("tries is at least 1")


class _PastTheEndError(Exception):
    """The server has nothing from the asked byte on."""


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Tell a disk that is full or closed from a line that is cut."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written to ({error.strerror or error}); free some space, or choose another folder. "
            "What is there already stays."
        ) from None


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_length(response: Any, received: int) -> None:
    """Notice a connection that was cut, which the standard library reads as the end."""
    length = response.headers.get("Content-Length")
    if length is not None and received < int(length):
        raise _AgainError(f"the connection was cut after {received:,} of {int(length):,} bytes")
