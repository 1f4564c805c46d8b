"""Mean and scale a feature column, taken from the training part alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlwb.errors import DataError


@dataclass(frozen=True, eq=False)
class Normaliser:
    """``(value - mean) / scale`` by column; NaN stays NaN.

    Parameters
    ----------
    columns
        Names of the ``C`` columns.
    mean, scale
        float64 of shape ``(C,)``; the scale is a standard deviation, or 1 where a column is constant.
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
        return cls.from_columns(columns, [values[..., index] for index in range(len(columns))])

    @classmethod
    def from_columns(cls, columns: tuple[str, ...], values: list[np.ndarray]) -> Normaliser:
        """`fit` for columns given one by one, each of any shape."""
        means, scales = [], []
        for name, column in zip(columns, values, strict=True):
            present = column[np.isfinite(column)].astype(np.float64)
            if not len(present):
                raise DataError(
                    f"feature {name} has no value in the training part; leave it out or check the training dates."
                )
            mean, deviation = present.mean(), present.std()
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
