"""Match the columns of a file with those of the schema."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from rlwb.errors import ConfigError, DataError
from rlwb.market.findings import printable
from rlwb.market.schema import COLUMNS

ALIASES = {
    "timestamp": "datetime",
    "symbol": "instrument",
    "ticker": "instrument",
    "o": "open",
    "h": "high",
    "l": "low",
    "c": "close",
    "v": "volume",
    "vol": "volume",
}
TARGETS = (*COLUMNS, "date", "time")


def match_columns(names: Sequence[str], columns: Mapping[str, str] | None, where: str) -> dict[str, str]:
    """Return the file's column for each column of the schema, as ``{schema name: name in the file}``.

    Names match without regard to case, surrounding blanks, ``<>`` and a leading ``$``; `ALIASES` are understood when
    the schema's own name is absent. Without a datetime, ``date`` and ``time`` together make one, and either alone is
    taken for it.

    Parameters
    ----------
    names
        The file's columns.
    columns
        ``{name in the file: schema name}``, which goes first; ``date`` and ``time`` are allowed schema names.
    where
        The file, for messages.
    """
    columns = columns or {}
    for target in columns.values():
        if target not in TARGETS:
            near = difflib.get_close_matches(str(target), TARGETS, n=1, cutoff=0.0)[0]
            raise ConfigError(f"columns maps to {target!r}, which is not in the schema; did you mean {near!r}?")
    absent = [name for name in columns if name not in names]
    if absent:
        raise DataError(f"{where} has no column {absent[0]!r}; it has {printable(', '.join(names))}.")
    found: dict[str, str] = {}
    _claim(found, [(columns[name], name) for name in names if name in columns], where)
    left = [(name, _plain(name)) for name in names if name not in columns]
    _claim(found, [(plain, name) for name, plain in left if plain in TARGETS and plain not in found], where)
    aliased = [(ALIASES[plain], name) for name, plain in left if plain in ALIASES]
    _claim(found, [(target, name) for target, name in aliased if target not in found], where)
    if "datetime" in found:
        found.pop("date", None)
        found.pop("time", None)
    elif "date" in found and "time" not in found:
        found["datetime"] = found.pop("date")
    elif "time" in found and "date" not in found:
        found["datetime"] = found.pop("time")
    return found


def _plain(name: str) -> str:
    return name.strip().strip("<>").removeprefix("$").lower()


def _claim(found: dict[str, str], pairs: list[tuple[str, str]], where: str) -> None:
    new: dict[str, str] = {}
    for target, name in pairs:
        if target in new or target in found:
            other = new.get(target, found.get(target))
            raise DataError(f"{where}: columns {other!r} and {name!r} both mean {target}; choose with columns=...")
        new[target] = name
    found.update(new)
