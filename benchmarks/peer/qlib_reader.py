"""Bars of a Qlib directory as Qlib's own reader gives them. Run as ``python -m benchmarks.peer.qlib_reader JOB OUT``.

JOB names directories with their frequency; OUT gets one array a directory and instrument and field.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import qlib
from qlib.data import D

FIELDS = ("open", "high", "low", "close", "volume", "factor")


def read(directory: str, freq: str) -> dict[str, np.ndarray]:
    """Return ``instrument/datetime`` (ns) and ``instrument/field`` arrays of all that the list ``all`` names."""
    qlib.init(provider_uri=directory, expression_cache=None, dataset_cache=None, kernels=1, logging_level="ERROR")
    listed = D.instruments("all")
    frame = D.features(
        listed, [f"${field}" for field in FIELDS], freq=freq
    )  # the listing's dates hold for a dictionary
    found: dict[str, np.ndarray] = {}
    for name, bars in frame.groupby(level="instrument"):
        stamps = bars.index.get_level_values("datetime")
        found[f"{name}/datetime"] = stamps.to_numpy().astype("datetime64[ns]").astype(np.int64)
        for field in FIELDS:
            found[f"{name}/{field}"] = bars[f"${field}"].to_numpy()
    return found


def main(job: str, out: str) -> None:
    jobs = json.loads(Path(job).read_text(encoding="utf-8"))
    arrays = {}
    for key, (directory, freq) in jobs.items():
        arrays.update({f"{key}/{name}": values for name, values in read(directory, freq).items()})
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
