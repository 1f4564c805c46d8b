"""The arrays of a pickled pandas table, without pandas making it."""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from rlwb.market.readers.pickle_records import Record, read_records

_CODE = re.compile(r"([fiuM])([1248])|(b)1|(O)8?")
_UNITS = ("ns", "us", "ms", "s", "m", "h", "D")


class Frame(NamedTuple):
    """A table as its index levels and columns; arrays of shape ``(rows,)``.

    A level is the pair of its values and, for each row, the place of its value, -1 for none.
    """

    levels: dict[str, tuple[np.ndarray, np.ndarray]]
    columns: dict[str, np.ndarray]


class NotATableError(Exception):
    """What the pickle holds is not a pandas table of numbers over a MultiIndex; the message says how."""


def read_frame(content: bytes, most: int) -> Frame:
    """Return the table in a pickle of pandas 0.25 to 2.x, protocol 2 or later, made by `most` operations at most.

    Raises
    ------
    NotATableError
        Where it is something else, or damaged.
    """
    try:
        return _frame(read_records(content, most))
    except NotATableError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise NotATableError(f"{type(error).__name__}: {error}") from None


def _frame(table: Any) -> Frame:
    state = _made(table, "DataFrame").state
    manager = _made(state["_mgr"] if "_mgr" in state else state["_data"], "BlockManager")
    if manager.args:  # since pandas 1.3
        blocks, axes = manager.args
        pairs = [(block.args[0], block.args[1]) for block in (_made(block, "_unpickle_block") for block in blocks)]
    else:
        parts = manager.state[3]["0.14.1"]
        axes, pairs = parts["axes"], [(block["values"], block["mgr_locs"]) for block in parts["blocks"]]
    names, levels = [str(name) for name in _index_values(axes[0])], _levels(axes[1])
    rows = len(next(iter(levels.values()))[1])
    columns: dict[str, np.ndarray] = {}
    for values, places in pairs:
        array = _array(values)
        for place, column in zip(_places(places, len(names)), array, strict=True):
            if column.shape != (rows,) or names[place] in columns:
                raise NotATableError(f"its column {names[place]!r} does not fit its index")
            columns[names[place]] = column
    return Frame(levels, columns)


def _made(value: Any, name: str) -> Record:
    if not isinstance(value, Record) or value.name.rpartition(".")[2] != name:
        found = value.name if isinstance(value, Record) else type(value).__name__
        raise NotATableError(f"it holds a {found} where a {name} belongs")
    return value


def _levels(index: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    about = _made(index, "_new_Index").args[1]
    if "levels" not in about:
        raise NotATableError("its index has one level and not instrument and datetime")
    levels: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, level, codes in zip(about["names"], about["levels"], about["codes"], strict=True):
        if name not in ("instrument", "datetime"):
            continue
        values, places = _index_values(level), _array(codes)
        if places.ndim != 1 or places.dtype.kind != "i" or (len(places) and places.max() >= len(values)):
            raise NotATableError(f"the places of its level {name} are not in the level")
        levels[name] = (values, places)
    if len(levels) != 2 or len({len(places) for _, places in levels.values()}) != 1:
        raise NotATableError("its index lacks instrument and datetime")
    return levels


def _index_values(index: Any) -> np.ndarray:
    if not isinstance(index, Record) or not index.name.rpartition(".")[2].startswith("_new_"):
        raise NotATableError("an index of it is of a kind that is not read")
    data = index.args[1]["data"]
    if isinstance(data, Record) and data.name.rpartition(".")[2] not in ("_reconstruct", "_frombuffer"):
        state = data.state  # an array of dates: {"_data": …} before pandas 1.3, (dtype, array, …) since
        parts = list(state.values()) if isinstance(state, dict) else list(state)
        if any(isinstance(part, Record) and part.name.endswith("DatetimeTZDtype") for part in parts):
            raise NotATableError("its stamps carry a time zone")
        data = next(part for part in parts if isinstance(part, Record) and part.name.rpartition(".")[2] != "dtype")
    values = _array(data)
    if values.ndim != 1 or values.dtype.kind not in "OM":
        raise NotATableError(f"a level of its index is of type {values.dtype}")
    return values


def _places(places: Any, count: int) -> list[int]:
    if isinstance(places, Record) and places.name.rpartition(".")[2] == "slice":
        return list(range(count))[slice(*places.args)]
    found = [int(place) for place in _array(places)]
    if any(not 0 <= place < count for place in found):
        raise NotATableError("its columns are not where it says")
    return found


def _array(value: Any) -> np.ndarray:
    """Return an array, from its bytes or, of text, from its list."""
    name = value.name.rpartition(".")[2] if isinstance(value, Record) else ""
    if name == "_frombuffer":
        content, dtype, shape, order = value.args
    elif name == "_reconstruct":
        _, shape, dtype, fortran, content = value.state
        order = "F" if fortran else "C"
    else:
        raise NotATableError(f"it holds {name or type(value).__name__} where an array belongs")
    kind = _dtype(dtype)
    if kind.kind == "O":
        if not isinstance(content, list) or shape != (len(content),):
            raise NotATableError("an array of text in it is no list")
        odd = next((entry for entry in content if not isinstance(entry, str)), None)
        if odd is not None:
            raise NotATableError(
                f"it holds {odd if isinstance(odd, (int, float)) else type(odd).__name__} where text belongs"
            )
        array = np.empty(len(content), dtype=object)
        array[:] = content
        return array
    content = _bytes(content)
    if math.prod(shape) * kind.itemsize != len(content):
        raise NotATableError("an array in it is cut short")
    return np.frombuffer(content, kind).reshape(shape, order=order)


def _dtype(value: Any) -> np.dtype[Any]:
    dtype = _made(value, "dtype")
    match = _CODE.fullmatch(dtype.args[0])
    if match is None:
        raise NotATableError(f"it holds values of type {dtype.args[0]!r}")
    if match[4]:
        return np.dtype(object)
    order = dtype.state[1] if dtype.state else "<"
    order = order if order in ("<", ">", "|") else "<"
    if match[1] != "M":
        return np.dtype(f"{order}{match[0]}")
    unit, count = _bytes(dtype.state[8][1][0]).decode(), dtype.state[8][1][1]
    if unit not in _UNITS or count != 1:
        raise NotATableError(f"it holds stamps in units of {count} {unit}")
    return np.dtype(f"{order}M8[{unit}]")


def _bytes(content: Any) -> bytes:
    if isinstance(content, Record) and content.name == "_codecs.encode":  # as protocol 2 writes bytes
        content = content.args[0].encode("latin-1")
    if not isinstance(content, bytes):
        raise NotATableError(f"it holds {type(content).__name__} where bytes belong")
    return content
