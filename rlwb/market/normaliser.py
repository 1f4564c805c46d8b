"""Mean and scale a feature column, taken from the training part alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rlwb.errors import DataError
from rlwb.market.quantiles import stream_quantiles

#: Gives the values of a column, array by array.
Source = Callable[[], Iterable[np.ndarray]]
_LEAF = 1 << 18
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
    def fit(cls, values: np.ndarray, columns: tuple[str, ...]) -> Normaliser:
        """Take mean and standard deviation of what is present in `values`, float of shape ``(S, T, C)``.

        NaN is left out. A column without any value is a `DataError`.
        """
        return cls.stream(columns, [partial(iter, [values[..., index]]) for index in range(len(columns))])

    @classmethod
    def stream(cls, columns: tuple[str, ...], sources: Sequence[Source], *, robust: bool = False) -> Normaliser:
        """`fit` for columns that need not be in memory.

        Parameters
        ----------
        sources
            One a column; each call gives all values of the column, in arrays of any shapes. Each is called three
            times: to count, for the mean, and for the deviation from it; four times more when `robust`.
        robust
            Take the median, and 0.7413 times the distance between the quartiles, which a quarter of the values cannot
            move. Where the quartiles meet, it is the standard deviation still.

        Notes
        -----
        The sums are those of `numpy.sum` on all values at once, to the last bit, however they are cut into arrays.
        """
        means, scales = [], []
        for name, source in zip(columns, sources, strict=True):
            count = sum(len(present) for present in _present(source))
            if not count:
                raise DataError(
                    f"feature {name} has no value in the training part; leave it out or check the training dates."
                )
            mean = stream_sum(_present(source), count) / count
            deviation = np.sqrt(stream_sum(((values - mean) ** 2 for values in _present(source)), count) / count)
            if robust:
                low, mean, high = stream_quantiles(partial(_present, source), count, (0.25, 0.5, 0.75))
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


def _present(source: Source) -> Iterator[np.ndarray]:
    return (values[np.isfinite(values)].astype(np.float64, copy=False) for values in source())


def stream_sum(parts: Iterable[np.ndarray], count: int) -> float:
    """Return the sum of the `count` numbers that `parts` hold, float64 of one axis, as `numpy.sum` has it.

    NumPy adds pairwise: it halves an array, at a multiple of 8, until few numbers are left (Higham, SIAM Journal on
    Scientific Computing 14, 1993). Halving the stream at the same places leaves pieces small enough for NumPy itself.
    """
    stream = _Stream(parts)

    def add(length: int) -> float:
        if length <= _LEAF:
            return float(stream.take(length).sum())
        half = length // 2
        half -= half % 8
        return add(half) + add(length - half)

    return add(count)


class _Stream:
    """Hands out numbers in arrays of the asked length."""

    def __init__(self, parts: Iterable[np.ndarray]) -> None:
        self._parts = iter(parts)
        self._left = np.empty(0)

    def take(self, length: int) -> np.ndarray:
        if len(self._left) < length:
            pieces = [self._left]
            missing = length - len(self._left)
            while missing > 0:
                pieces.append(next(self._parts))
                missing -= len(pieces[-1])
            self._left = np.concatenate(pieces)
        values, self._left = self._left[:length], self._left[length:]
        return values
