"""Contents of files and archives, never more than a stated size, and what their names say."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rlwb.errors import ConfigError, DataError

#: Megabytes (1e6 bytes) of the largest file, packed or unpacked, that a reader takes by default.
MEGABYTES = 512
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,  # an encrypted member
    MemoryError,  # LZMA members name the size of their own dictionary
)


def read_file(path: Path, max_megabytes: int = MEGABYTES) -> bytes:
    """Return the content of `path`; a file of more than `max_megabytes`, an empty one or none is a `DataError`."""
    limit = _bytes(max_megabytes)
    try:
        if path.stat().st_size > limit:
            raise DataError(f"{path} {_too_large(max_megabytes)}.")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); check the path and its rights.") from None
    if not content:
        raise DataError(f"{path} is empty; remove it or write it again.")
    return content


def read_member(path: Path, max_megabytes: int = MEGABYTES) -> tuple[str, bytes]:
    """Return name and content of the one file in a ZIP archive.

    Nothing is written to disk, so a name such as ``../x`` does no harm. A member that unpacks to more than
    `max_megabytes` is refused, whether its header admits it or not.
    """
    limit = _bytes(max_megabytes)
    if path.exists() and path.stat().st_size > limit:
        raise DataError(f"{path} {_too_large(max_megabytes)}.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise DataError(f"{path} holds {len(members)} files and not one; replace it by the source's own.")
            if members[0].file_size > limit:
                raise DataError(f"{path} unpacks to {members[0].file_size:,} bytes: it {_too_large(max_megabytes)}.")
            with archive.open(members[0]) as file:
                content = file.read(limit + 1)
    except _DAMAGE as error:
        raise DataError(f"{path} is not a whole ZIP archive ({one_line(error)}); fetch it again.") from None
    if len(content) > limit:
        raise DataError(f"{path} {_too_large(max_megabytes)}.")
    if not content:
        raise DataError(f"{path} holds an empty file; fetch it again.")
    return members[0].filename, content


def one_line(error: BaseException) -> str:
    """Return an exception's message on one line, or its class where it has none."""
    return re.sub(r"\s+", " ", str(error)).strip().rstrip(".") or type(error).__name__


def visible(source: Path) -> list[Path]:
    """Return `source` if it is a file, else the files in the folder that are neither hidden nor temporary, sorted."""
    if not source.is_dir():
        return [source]
    return sorted(path for path in source.iterdir() if path.is_file() and not path.name.startswith((".", "_", "~")))


def matching(source: Path, pattern: re.Pattern[str]) -> Mapping[Path, re.Match[str]]:
    """Return the visible files of `source` whose whole name matches `pattern`, with the match."""
    matches = {path: pattern.fullmatch(path.name) for path in visible(source)}
    return {path: match for path, match in matches.items() if match is not None}


def date_in(path: Path, year: str, month: str, day: str) -> np.datetime64:
    """Return midnight of the date that the name of `path` holds, datetime64[ns]."""
    text = f"{year}-{month}-{day}"
    try:
        date = np.datetime64(text, "ns")
        if 1700 <= int(year) < 2260:
            return date
    except ValueError:
        pass
    raise DataError(f"{path}: the date {text} in its name does not exist; rename the file.")


def _bytes(megabytes: int) -> int:
    if megabytes < 1:
        raise ConfigError(f"max_megabytes is {megabytes}; give a whole number above 0.")
    return megabytes * 1_000_000


def _too_large(megabytes: int) -> str:
    return f"is larger than {megabytes} MB; raise max_megabytes if that is right"
