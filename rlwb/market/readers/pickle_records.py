"""A pickle read as a list of records: what it asks to be made is written down, and nothing is made."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from typing import Any, ClassVar

_ROOTS = ("pandas", "numpy", "datetime", "pytz")
_OTHERS = {"builtins.slice", "__builtin__.slice", "_codecs.encode"}
#: What may call back into other objects, or read from elsewhere; no table of numbers needs it.
_REFUSED = (
    pickle.PERSID,
    pickle.BINPERSID,
    pickle.EXT1,
    pickle.EXT2,
    pickle.EXT4,
    pickle.NEXT_BUFFER,
    pickle.READONLY_BUFFER,
)


class Record:
    """A call that the pickle asks for: the name of what is called, its arguments, and the state set afterwards."""

    name: ClassVar[str] = ""

    def __new__(cls, *args: Any) -> Record:
        record = object.__new__(cls)
        record.args = args
        record.state = None
        return record

    args: tuple[Any, ...]
    state: Any

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_records(content: bytes, most: int) -> Any:
    """Return what a pickle holds, with a `Record` for every object that is not plain (text, number, list, dict …).

    Only Python's own reader in Python runs, which neither imports nor calls what the pickle names.

    Parameters
    ----------
    most
        Operations that are done at most. A table's numbers take one a column; a byte that makes an object of its own
        takes some hundred bytes of memory.

    Raises
    ------
    pickle.UnpicklingError
        For names outside pandas and numpy, and beyond `most` operations.
    Exception
        For damaged content, of any kind.
    """
    return _Unpickler(io.BytesIO(content), most).load()


class _Counted(dict[int, Callable[[Any], None]]):
    """The operations by their code, looked up so many times at most."""

    def __init__(self, operations: dict[int, Callable[[Any], None]], most: int) -> None:
        super().__init__(operations)
        self.left = most

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        self.left -= 1
        if self.left < 0:
            raise pickle.UnpicklingError("it makes more objects than a table of bars has")
        return super().__getitem__(code)


class _Unpickler(pickle._Unpickler):  # the one in Python: the one in C reserves memory for any size that it reads
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    read: Callable[[int], bytes]
    append: Callable[[Any], None]

    def __init__(self, file: io.BytesIO, most: int) -> None:
        super().__init__(file)
        self.dispatch = _Counted(type(self).dispatch, most)  # type: ignore[misc]
        self._known: dict[str, type[Record]] = {}

    def find_class(self, module: str, name: str) -> type[Record]:
        full = f"{module}.{name}"
        if module.partition(".")[0] not in _ROOTS and full not in _OTHERS:
            raise pickle.UnpicklingError(f"it names {full[:80]!r}, which no table of bars needs")
        if full not in self._known:
            self._known[full] = type("Record", (Record,), {"name": full})
        return self._known[full]

    def _bytearray(self) -> None:
        size = struct.unpack("<Q", self.read(8))[0]
        content = self.read(size)
        if len(content) < size:
            raise pickle.UnpicklingError("it ends within a value")
        self.append(content)

    def _refuse(self) -> None:
        raise pickle.UnpicklingError("it refers to objects outside itself")

    dispatch[pickle.BYTEARRAY8[0]] = _bytearray
    for _code in _REFUSED:
        dispatch[_code[0]] = _refuse
