"""An array on disk that is written a few rows at a time."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np


class GrowingArray:
    """A .npy file whose number of rows is known when it is closed.

    NumPy pads the header, so that the first axis can grow in place (`numpy.lib.format`).

    Parameters
    ----------
    path
        The file, made anew.
    dtype, row
        Type of the values, and shape of one row.
    """

    def __init__(self, path: Path, dtype: np.dtype, row: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.row = row
        self.length = 0
        self._file = path.open("wb")
        self._begins = self._write_header()

    def add(self, rows: np.ndarray) -> None:
        """Append `rows`, an array of the file's type of shape ``(n, *row)``."""
        self._file.write(np.ascontiguousarray(rows, dtype=self.dtype).data)
        self.length += len(rows)

    def close(self) -> None:
        """Write the final length, and all to the disk; may be called twice."""
        if self._file.closed:
            return
        self._file.seek(0)
        assert self._write_header() == self._begins
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self) -> int:
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.row)}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()
