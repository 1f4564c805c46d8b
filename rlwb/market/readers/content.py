"""Contents of files and archives, never more than a stated size."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from pathlib import Path

from rlwb.errors import DataError

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


def read_file(path: Path, limit: int) -> bytes:
    """Return the content of `path`; a file of more than `limit` bytes, an empty one or none is a `DataError`."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}); check the path and its rights.") from None
    if len(content) > limit:
        raise DataError(f"{path} {_too_large(limit)}.")
    if not content:
        raise DataError(f"{path} is empty; remove it or write it again.")
    return content


def read_member(path: Path, limit: int) -> tuple[str, bytes]:
    """Return name and content of the one file in a ZIP archive.

    Nothing is written to disk, so a name such as ``../x`` does no harm. A member that unpacks to more than `limit`
    bytes is refused, whether its header admits it or not.
    """
    if path.exists() and path.stat().st_size > limit:
        raise DataError(f"{path} {_too_large(limit)}.")
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise DataError(f"{path} holds {len(members)} files and not one; replace it by the source's own.")
            if members[0].file_size > limit:
                raise DataError(f"{path} unpacks to {members[0].file_size:,} bytes: it {_too_large(limit)}.")
            with archive.open(members[0]) as file:
                content = file.read(limit + 1)
    except _DAMAGE as error:
        raise DataError(f"{path} is not a whole ZIP archive ({one_line(error)}); fetch it again.") from None
    if len(content) > limit:
        raise DataError(f"{path} {_too_large(limit)}.")
    if not content:
        raise DataError(f"{path} holds an empty file; fetch it again.")
    return members[0].filename, content


def one_line(error: BaseException) -> str:
    """Return an exception's message on one line, or its class where it has none."""
    return re.sub(r"\s+", " ", str(error)).strip().rstrip(".") or type(error).__name__


def _too_large(limit: int) -> str:
    return f"is larger than {limit / 1e6:g} MB; raise max_megabytes if that is right"
