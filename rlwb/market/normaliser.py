"""Mean and scale a feature column, taken from the training part alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwb.errors import DataError

#: Gives the values of a column, array by array.
Source = Callable[[], Iterable[np.ndarray]]
#: Standard deviation of a normal law over the distance between its quartiles.
_NORMAL = 0.7413011092528009


@dataclass(frozen=True, eq=False)
class Normaliser:
    """``(value - mean) / scale`` by column; NaN stays NaN.

    Parameters
    ----------
    columns
        Names of the ``C`` columns.
    mean, scale
        float64 of shape ``(C,)``: mean and standard deviation, or median and the deviation of a normal law with the
        same quartiles; the scale is 1 where a column is constant.
    """

    columns: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        for name in ("mean", "scale"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
            if array.shape != (len(self.columns),) or not np.isfinite(array).all():
                raise DataError(f"the normaliser's {name} {array} must be {len(self.columns)} finite numbers.")
        if not (self.scale > 0).all():
            raise DataError(f"the normaliser's scale {self.scale} must be above 0.")

    @classmethod
    def fit(cls, columns: tuple[str, ...], sources: Sequence[Source], *, robust: bool = False) -> Normaliser:
        """Take mean and standard deviation of what is present of each column; NaN is left out.

        Columns need not fit into memory: what is present of one is put into a temporary file and mapped.

        Parameters
        ----------
        sources
            One a column; a call gives all values of the column, in arrays of any shapes. Called twice when `robust`.
        robust
            Take the median, and 0.7413 times the distance between the quartiles, which a quarter of the values cannot
            move. Where the quartiles meet, it is the standard deviation still.

        Raises
        ------
        DataError
            For a column without any value.
        """
        means, scales = [], []
        for name, source in zip(columns, sources, strict=True):
            with _present(name, source) as values:
                mean = float(values.sum()) / len(values)
                np.subtract(values, mean, out=values)
                np.square(values, out=values)
                deviation = np.sqrt(float(values.sum()) / len(values))
            if robust:
                with _present(name, source) as values:
                    low, mean, high = _quartiles(values)
                deviation = (high - low) * _NORMAL if high > low else deviation
            means.append(mean)
            scales.append(deviation if deviation > 1e-12 * max(1.0, abs(mean)) else 1.0)
        return cls(tuple(columns), np.array(means), np.array(scales))

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as values that JSON can hold exactly and `from_dict` takes."""
        return {"columns": list(self.columns), "mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normaliser:
        """Rebuild a normaliser from `as_dict`."""
        return cls(tuple(values["columns"]), np.asarray(values["mean"]), np.asarray(values["scale"]))


@contextmanager
def _present(name: str, source: Source) -> Iterator[np.ndarray]:
    """Yield the finite values of a column, float64 of one axis, mapped from a file that goes afterwards."""
    with tempfile.TemporaryFile() as file:
        for values in source():
            file.write(values[np.isfinite(values)].astype(np.float64, copy=False).data)
        file.flush()
        if not file.tell():
            raise DataError(
                f"feature {name} has no value in the training part; leave it out or check the training dates."
            )
        yield np.memmap(file, np.float64, "r+").view(np.ndarray)


def _quartiles(values: np.ndarray) -> list[float]:
    """Return the quartiles, interpolated linearly; the values are put into another order."""
    places = (len(values) - 1) * np.array([0.25, 0.5, 0.75])
    below, above = np.floor(places).astype(np.int64), np.ceil(places).astype(np.int64)
    values.partition(np.unique([below, above]))
    found: list[float] = (values[below] + (values[above] - values[below]) * (places - below)).tolist()
    return found
