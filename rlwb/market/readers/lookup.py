"""Look up a reader by its name, or by the names of a source's files and folders."""

from __future__ import annotations

import logging
from pathlib import Path

from rlwb import parts
from rlwb.errors import ConfigError, DataError
from rlwb.market.readers.base import Reader

#: The reader of Parquet and CSV.
TABLE = "table"
_log = logging.getLogger(__name__)


def find_reader(name: str) -> Reader:
    """Return the reader of a name: a built-in, an entry point's, ``package.module:Name`` or ``file.py:Name``.

    Raises
    ------
    ConfigError
        Where there is none, or where what the name stands for cannot be imported or is no reader.
    """
    made = parts.load("reader", name)
    if isinstance(made, Reader):
        return made
    if not callable(made) or isinstance(made, type):
        raise ConfigError(f"the reader {name} is no function that yields tables of bars; see docs/readers/own.md.")
    return Reader(name, made, _all_files, lambda _: False)


def recognise(path: Path) -> Reader:
    """Return the reader that the names of files and folders point to, that of Parquet and CSV where none does."""
    table, readers = find_reader(TABLE), []
    for name in parts.names("reader"):
        try:
            readers += [find_reader(name)] if name != TABLE else []
        except ConfigError as error:
            _log.warning("%s It recognises nothing.", error)
    found = [reader for reader in readers if reader.recognises(path)]
    # A folder of another kind may hold tables beside it, which are not files of that kind by their names.
    if len(found) == 1 and path.is_dir() and table.recognises(path):
        found += [table] if any(not found[0].recognises(file) for file in table.files(path)) else []
    if len(found) > 1:
        kinds = " or ".join(one.name for one in found)
        raise DataError(f"{path} could be {kinds}; say which, or part the files.")
    return found[0] if found else table


def _all_files(source: Path) -> list[Path]:
    """Return all files in a folder at any depth but hidden ones, for a reader that does not say."""
    return [source] if source.is_file() else sorted(path for path in source.rglob("[!.]*") if path.is_file())
