"""Which reader a name or a source means: built-in, an installed package's, or your own."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import logging
from importlib import metadata
from pathlib import Path
from types import ModuleType

from rlwb.errors import ConfigError, DataError
from rlwb.market.readers.base import Reader
from rlwb.market.readers.binance import read_binance
from rlwb.market.readers.content import one_line
from rlwb.market.readers.lean import read_lean
from rlwb.market.readers.lobster import read_lobster
from rlwb.market.readers.qlib import read_qlib
from rlwb.market.readers.qlib_pickle import read_qlib_pickle
from rlwb.market.readers.table import read_table

GROUP = "rlwb.readers"
BUILT_IN: dict[str, Reader] = {
    one.name: one for one in (read_table, read_binance, read_lean, read_lobster, read_qlib, read_qlib_pickle)
}
TABLE = read_table.name

_log = logging.getLogger(__name__)


def reader_kinds() -> list[str]:
    """Return the names of readers: the built-in ones, and those of installed packages."""
    return [*BUILT_IN, *sorted(_offered())]


def find_reader(name: str) -> Reader:
    """Return the reader of a name: a built-in, an entry point's, ``package.module:Name`` or ``file.py:Name``.

    Raises
    ------
    ConfigError
        Where there is none, or where what the name stands for cannot be imported or is no reader.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    offered = _offered()
    place, colon, attribute = (offered[name].value if name in offered else name).rpartition(":")
    if not (colon and place):
        near = difflib.get_close_matches(name, reader_kinds(), n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"there is no reader {name!r}; did you mean {near!r}? (There are {', '.join(reader_kinds())}, and your own "
            "as file.py:Name or package.module:Name.)"
        )
    try:
        made = vars(_module(place))[attribute]
    except Exception as error:  # whatever the other code raises
        raise ConfigError(f"the reader {name} cannot be imported ({one_line(error)}); correct its code.") from None
    if isinstance(made, Reader):
        return made
    if not callable(made) or isinstance(made, type):
        raise ConfigError(f"the reader {name} is no function that yields tables of bars; see docs/readers/own.md.")
    return Reader(name, made, _all_files, lambda _: False)


def recognise(path: Path) -> Reader:
    """Return the reader that the names of files and folders point to, that of Parquet and CSV where none does."""
    readers = [reader for reader in BUILT_IN.values() if reader is not read_table]
    for name in _offered():
        try:
            readers.append(find_reader(name))
        except ConfigError as error:
            _log.warning("%s It recognises nothing.", error)
    found = [reader for reader in readers if reader.recognises(path)]
    # A folder of another kind may hold tables beside it, which are not files of that kind by their names.
    if len(found) == 1 and path.is_dir() and read_table.recognises(path):
        found += [read_table] if any(not found[0].recognises(file) for file in read_table.files(path)) else []
    if len(found) > 1:
        kinds = " or ".join(one.name for one in found)
        raise DataError(f"{path} could be {kinds}; say which with kind, or part the files.")
    return found[0] if found else read_table


def _all_files(source: Path) -> list[Path]:
    """Return all files in a folder at any depth but hidden ones, for a reader that does not say."""
    return [source] if source.is_file() else sorted(path for path in source.rglob("[!.]*") if path.is_file())


def _module(place: str) -> ModuleType:
    """Import a module by its dotted name or from a ``.py`` file, which may import its neighbours."""
    if not place.endswith(".py"):
        return importlib.import_module(place)
    path = Path(place)
    if not path.is_file():
        raise ConfigError(f"there is no file {place}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _offered() -> dict[str, metadata.EntryPoint]:
    """Return the readers that other packages offer, by name."""
    offered: dict[str, metadata.EntryPoint] = {}
    for entry in metadata.entry_points(group=GROUP):
        if entry.value.startswith("rlwb."):
            continue
        if entry.name in BUILT_IN or entry.name in offered:
            raise ConfigError(f"two readers are called {entry.name}, one of them {entry.value}; remove its package.")
        offered[entry.name] = entry
    return offered
