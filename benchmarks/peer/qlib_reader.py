"""Bars of a Qlib directory as Qlib's own reader gives them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import qlib
from qlib.data import D

FIELDS = ("open", "high", "low", "close", "volume", "factor")


def arrays(directory: str, freq: str) -> dict[str, np.ndarray]:
    """Return ``instrument/datetime`` (ns) and ``instrument/field`` arrays of all that the list ``all`` names."""
    qlib.init(provider_uri=directory, expression_cache=None, dataset_cache=None, kernels=1, logging_level="ERROR")
    listed = D.instruments("all")  # a dictionary, so that the listing's dates hold
    frame = D.features(listed, [f"${field}" for field in FIELDS], freq=freq)
    found: dict[str, np.ndarray] = {}
    for name, bars in frame.groupby(level="instrument"):
        stamps = bars.index.get_level_values("datetime")
        found[f"{name}/datetime"] = stamps.to_numpy().astype("datetime64[ns]").astype(np.int64)
        for field in FIELDS:
            found[f"{name}/{field}"] = bars[f"${field}"].to_numpy()
    return found


def read(folder: Path, places: dict[str, tuple[str, str]]) -> dict[str, float]:
    """Write ``qlib.npz``: the arrays of each key's directory and frequency, their names after the key."""
    found = {}
    for key, (directory, freq) in places.items():
        found.update({f"{key}/{name}": values for name, values in arrays(directory, freq).items()})
    np.savez(folder / "qlib.npz", **found)
    return {}


JOBS = {"read": read}
