"""What a reader of one kind of source is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import pandas as pd

from rlwb.errors import ConfigError
from rlwb.market.report import Report


@dataclass(frozen=True)
class Reader(ABC):
    """Reads one kind of source into bars. Its options are the fields of this frozen dataclass.

    A package offers a reader of its own as an entry point of the group ``rlwb.readers``, whose name is the kind;
    `rlwb.market.readers.conformance.check_reader` tests it.

    Parameters
    ----------
    max_megabytes
        A file that is larger than so many MB (1e6 bytes), packed or unpacked, is refused before it is read further. So
        a small archive cannot fill the memory: a reader needs some four times this, whatever a file says of itself.

    Attributes
    ----------
    kind
        The name by which the reader is chosen.
    label
        Whether stamps name the start or the end of a bar; None where it depends on who wrote the source.
    separable
        Whether each file can be read alone, so that an import takes only those that are new.
    """

    max_megabytes: int = 512

    kind: ClassVar[str]
    label: ClassVar[Literal["start", "end"] | None]
    separable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        hints = _hints(type(self))
        for option in fields(self):
            value = getattr(self, option.name)
            if not _fits(value, hints[option.name]):
                raise ConfigError(f"{self.kind}'s option {option.name} is {value!r}; it must be of {option.type}.")
        if self.max_megabytes < 1:
            raise ConfigError(f"max_megabytes is {self.max_megabytes}; give a whole number above 0.")

    @property
    def max_bytes(self) -> int:
        """`max_megabytes` in bytes."""
        return self.max_megabytes * 1_000_000

    @classmethod
    @abstractmethod
    def recognises(cls, source: Path) -> bool:
        """Tell by names alone, opening nothing, whether `source` (which exists) is of this kind."""

    @abstractmethod
    def files(self, source: Path) -> tuple[list[Path], list[str]]:
        """Return the files that an answer depends on, sorted, and the names beside them that are ignored.

        Raises
        ------
        DataError
            Where there is no such file.
        """

    @abstractmethod
    def read(self, source: Path, instruments: frozenset[str] | None, report: Report) -> pd.DataFrame:
        """Return the bars of `source`, made by `rlwb.market.readers.frames.join_bars`.

        Parameters
        ----------
        instruments
            Ids to keep; None keeps all.
        report
            Where everything that is dropped, changed or ignored is counted.

        Raises
        ------
        DataError
            One sentence that names the file and, where there is one, the row; no other exception for any content.
        """


@cache
def _hints(reader: type[Reader]) -> dict[str, Any]:
    return get_type_hints(reader)


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether `value` is of a plain type, a union of such, or a Literal."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_args(hint):
        return any(_fits(value, choice) for choice in get_args(hint))
    return type(value) is hint
