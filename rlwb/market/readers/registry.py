"""Which reader a source is for."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError, DataError
from rlwb.market.readers.base import Reader
from rlwb.market.readers.binance import BinanceReader
from rlwb.market.readers.lean import LeanReader
from rlwb.market.readers.lobster import LobsterReader
from rlwb.market.readers.qlib import QlibReader
from rlwb.market.readers.qlib_pickle import QlibPickleReader

#: Parquet and CSV with named columns, which `rlwb.market.read` reads itself.
TABLE = "table"
GROUP = "rlwb.readers"
BUILT_IN: dict[str, type[Reader]] = {
    reader.kind: reader for reader in (BinanceReader, LeanReader, LobsterReader, QlibReader, QlibPickleReader)
}

_log = logging.getLogger(__name__)


def reader_kinds() -> list[str]:
    """Return the kinds that can be named: ``"table"``, the built-in readers, and those of installed packages."""
    return [TABLE, *BUILT_IN, *sorted(_offered())]


def find_reader(
    source: str | os.PathLike[str], kind: str | None = None, options: Mapping[str, Any] | None = None
) -> Reader | None:
    """Return the reader of `source` with its options set, or None for Parquet and CSV.

    Parameters
    ----------
    kind
        One of `reader_kinds`. Without it, the source is recognised by the names of its files and folders; where two
        readers recognise it, that is a `DataError`.
    options
        Options of the reader, by name.

    Raises
    ------
    ConfigError
        For an unknown kind or option.
    """
    kind = kind or _recognise(Path(source))
    if kind != TABLE and not Path(source).exists():
        raise DataError(f"there is no file or folder {source}; check the path of the bars.")
    return make_reader(kind, options)


def make_reader(kind: str, options: Mapping[str, Any] | None = None) -> Reader | None:
    """Return the reader of a kind with its options set, or None for ``"table"``, which has none.

    Raises
    ------
    ConfigError
        For an unknown kind or option, or an option of another type.
    """
    if kind == TABLE:
        if options:
            raise ConfigError(f"Parquet and CSV ({TABLE}) are read without options; drop {next(iter(options))}.")
        return None
    if kind not in BUILT_IN and kind not in _offered():
        near = difflib.get_close_matches(str(kind), reader_kinds(), n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"there is no reader {kind!r}; did you mean {near!r}? (There are {', '.join(reader_kinds())}.)"
        )
    reader = BUILT_IN.get(kind) or _load(_offered()[kind])
    names = [option.name for option in fields(reader)]
    for name in options or {}:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.0)[0]
            raise ConfigError(f"the reader {kind} has no option {name!r}; did you mean {near!r}?")
    return reader(**(options or {}))


def _recognise(source: Path) -> str:
    if not source.exists():
        return TABLE
    found = [kind for kind, reader in _all().items() if reader.recognises(source)]
    if len(found) == 1 and _holds_tables_beside(source, found[0]):
        found.append(TABLE)
    if len(found) > 1:
        raise DataError(f"{source} could be {' or '.join(found)}; say which with kind, or part the files.")
    return found[0] if found else TABLE


def _holds_tables_beside(source: Path, kind: str) -> bool:
    """Tell whether a folder of `kind` also holds Parquet or CSV that the reader does not take for its own."""
    if not source.is_dir():
        return False
    reader = _all()[kind]
    return any(
        path.name.lower().endswith((".parquet", ".csv", ".csv.gz"))
        and not path.name.startswith((".", "_", "~"))
        and not reader.recognises(path)
        for path in source.iterdir()
        if path.is_file()
    )


def _all() -> dict[str, type[Reader]]:
    readers = dict(BUILT_IN)
    for name, entry in _offered().items():
        try:
            readers[name] = _load(entry)
        except ConfigError as error:
            _log.warning("%s It recognises nothing.", error)
    return readers


def _offered() -> dict[str, metadata.EntryPoint]:
    """Return the readers that other packages offer, by kind."""
    own = {f"{reader.__module__}:{reader.__qualname__}" for reader in BUILT_IN.values()}
    offered: dict[str, metadata.EntryPoint] = {}
    for entry in metadata.entry_points(group=GROUP):
        if entry.value in own:
            continue
        if entry.name in (TABLE, *BUILT_IN, *offered):
            raise ConfigError(f"two readers are called {entry.name}, one of them {entry.value}; remove its package.")
        offered[entry.name] = entry
    return offered


def _load(entry: metadata.EntryPoint) -> type[Reader]:
    try:
        reader = entry.load()
    except Exception as error:  # whatever the other package raises
        raise ConfigError(
            f"the reader {entry.name} ({entry.value}) cannot be imported ({error}); repair or remove its package."
        ) from None
    if not (isinstance(reader, type) and issubclass(reader, Reader)):
        raise ConfigError(f"the reader {entry.name} ({entry.value}) is no Reader; its package must offer the class.")
    return reader
