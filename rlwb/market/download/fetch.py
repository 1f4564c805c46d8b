"""Files over HTTP by requests: retried, resumed by range, checked against their SHA-256, whole or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import ConnectTimeoutError, InvalidHeader, MaxRetryError, NewConnectionError
from urllib3.util import Retry

from rlwb.errors import ConfigError, DataError
from rlwb.market.readers.content import digest_of, one_line

T = TypeVar("T")
_LONGEST_PAUSE = 60
#: Statuses that pass by themselves.
_PASSING = (408, 425, 429, 500, 502, 503, 504)


class NotThereError(Exception):
    """The server has no such file."""


class Fetcher:
    """Gets files from a server.

    A try fails after `timeout` seconds without a byte; a file gets so many `tries`, but one from a server that cannot
    be reached: who is offline learns it at once. They wait `pause` seconds for each other, doubled with each further
    one, a minute at most; longer where the server asks.
    """

    def __init__(self, timeout: float = 30.0, tries: int = 6, pause: float = 1.0) -> None:
        if not (timeout > 0 and tries >= 1 and pause >= 0):
            raise ConfigError(f"timeout {timeout} and tries {tries} must be above 0, pause {pause} not below.")
        self.timeout, self.tries, self.pause = timeout, tries, pause
        self._session = requests.Session()
        self._session.headers.update({"User-Agent": "rlwb", "Accept-Encoding": "identity"})

    def small(self, url: str) -> bytes:
        """Return what `url` holds; `DataError` when the server cannot be reached, refuses, or keeps failing."""
        return self._ask(url, lambda: 0, lambda response: response.content)

    def file(self, url: str, target: Path, sha256: str) -> None:
        """Write what `url` holds to `target`; raises as `small`, and where the content does not fit its SHA-256.

        What has come when a try fails stays in a hidden file beside `target`, and the next try, of this process or of a
        later one, asks for the rest.
        """
        part = target.with_name(f".{target.name}.part")
        with _writing(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)

        def append(response: requests.Response) -> None:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return  # the checksum decides whether the part is whole
            with _writing(part.parent):
                file = part.open("ab" if response.status_code == HTTPStatus.PARTIAL_CONTENT else "wb", buffering=0)
            with file:
                for chunk in response.iter_content(1 << 14):
                    with _writing(part.parent):
                        file.write(chunk)

        resumed = part.exists()
        while not (part.exists() and digest_of(part) == sha256):
            self._ask(url, lambda: part.stat().st_size if part.exists() else 0, append)
            found = digest_of(part)
            if found != sha256:
                part.unlink()
                if not resumed:
                    raise DataError(
                        f"{url} does not fit its checksum (SHA-256 {found[:12]}…, not {sha256[:12]}…), so it is not "
                        "kept; try again later, or another mirror."
                    )
                resumed = False  # the beginning may have been that of an older version
        part.replace(target)

    def _ask(self, url: str, offset: Callable[[], int], receive: Callable[[requests.Response], T]) -> T:
        """Return what `receive` makes of the answer for `url` from byte `offset` on; what may pass is tried again."""
        failure = ""
        for number in range(self.tries):
            wait = self.pause * 2**number
            begin = offset()
            headers = {"Range": f"bytes={begin}-"} if begin else {}
            try:
                with self._session.get(url, headers=headers, timeout=self.timeout, stream=True) as response:
                    failure = f"{response.status_code} {response.reason}"
                    if response.ok or response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                        return receive(response)
                    if response.status_code == HTTPStatus.NOT_FOUND:
                        raise NotThereError(url)
                    if response.status_code not in _PASSING:
                        raise DataError(f"{url} is refused ({failure}); check symbol, interval and server.")
                    wait = Retry().get_retry_after(response.raw) or wait
            except (requests.RequestException, InvalidHeader) as error:
                failure = _reason(url, error)
            if number + 1 < self.tries:
                time.sleep(min(wait, _LONGEST_PAUSE))
        raise DataError(
            f"{url} failed {self.tries} times ({failure}); try again later: the same command goes on from what is here "
            "already."
        )


def _reason(url: str, error: Exception) -> str:
    """Return why the connection was cut; a server that cannot be reached at all is a `DataError`."""
    told = error.args[0] if error.args else error
    reason = told.reason if isinstance(told, MaxRetryError) else told
    reason = getattr(reason, "original_error", reason)  # that of a proxy
    if isinstance(reason, NewConnectionError | ConnectTimeoutError):
        cause = reason.__cause__
        what = cause.strerror if isinstance(cause, OSError) and cause.strerror else one_line(reason)
        raise DataError(
            f"{urlsplit(url).netloc} cannot be reached ({what}); check the network, or name a mirror as base URL. "
            "What is here already stays, and the same command goes on from it."
        ) from None
    return one_line(reason if isinstance(reason, Exception) else error)


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
