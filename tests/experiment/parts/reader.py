"""A reader: bars as JSON lines, one file per instrument."""

import json

import numpy as np

from rlwb.errors import DataError
from rlwb.market.readers import bars, reader

FIELDS = ("open", "high", "low", "close", "volume")


@reader("json_lines", files="*.jsonl", by_file=True)
def read_json_lines(source, *, scale: float = 1.0, instruments=None):
    """Read a file of bars.

    Parameters
    ----------
    scale
        Factor of the volume.
    """
    if instruments is not None and source.stem not in instruments:
        return
    try:
        rows = [json.loads(line) for line in source.read_text().splitlines()]
        stamps = np.array([row["time"] for row in rows], dtype="datetime64[ns]")
        columns = {name: np.array([row[name] for row in rows], dtype=float) for name in FIELDS}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{source} holds no bars as JSON lines ({type(error).__name__}); write it again.") from None
    if not rows:
        raise DataError(f"{source} is empty; remove it.")
    yield bars(source.stem, stamps, {**columns, "volume": columns["volume"] * scale})
