"""One partition on disk: the bars of an instrument in a month, sorted, each stamp once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlwb.errors import DataError
from rlwb.market.dataset.bars import MAY, MUST, Block

SCHEMA = pa.schema(
    [
        ("datetime", pa.timestamp("us")),
        *((name, pa.float64()) for name in (*MUST, *MAY)),
        ("halted", pa.bool_()),
        ("source", pa.int32()),
        ("row", pa.int64()),
    ]
)
_KEY = b"rlwb"
_DELTA = {"datetime": "DELTA_BINARY_PACKED", "row": "DELTA_BINARY_PACKED"}


def write_partition(path: Path, block: Block, instrument: str, month: str) -> None:
    """Write the bars to `path`. Every column of the schema is there, null where it is missing."""
    arrays = [
        pa.array(block.stamp.view("datetime64[us]")),
        *(_numbers(block, name) for name in (*MUST, *MAY)),
        pa.nulls(len(block), pa.bool_()) if block.halted is None else pa.array(block.halted),
        pa.array(block.source),
        pa.array(block.row, mask=block.row == 0),
    ]
    schema = SCHEMA.with_metadata({_KEY: json.dumps({"instrument": instrument, "month": month}).encode()})
    pq.write_table(
        pa.Table.from_arrays(arrays, schema=schema),
        path,
        compression="zstd",
        compression_level=1,
        use_dictionary=["source"],
        column_encoding=_DELTA,
        write_statistics=["datetime"],
        write_page_checksum=True,
        store_schema=True,
    )


def read_partition(path: Path, columns: Sequence[str] | None = None) -> Block:
    """Return the bars of a partition; `columns` are the values to read, all without it.

    Raises
    ------
    DataError
        Where the file is missing, damaged (every page has a checksum) or another instrument's, for example because the
        file system does not tell upper from lower case.
    """
    from rlwb.market.dataset.layout import instrument_of

    names = None if columns is None else ["datetime", *columns, "source", "row"]
    try:
        # The file alone: as a data set, the folders' names would become columns of guessed types.
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            meta = json.loads((file.schema_arrow.metadata or {}).get(_KEY, b"{}"))
            table = file.read(columns=names, use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({str(error).splitlines()[0]}); import its sources into a new folder."
        ) from None
    wanted = (instrument_of(path.parent.parent.name), path.parent.name.removeprefix("month="))
    if (meta.get("instrument"), meta.get("month")) != wanted:
        raise DataError(
            f"{path} holds bars of {meta.get('instrument')} {meta.get('month')}, not of {' '.join(wanted)}; import the "
            "sources into a new folder, on a file system that tells upper from lower case."
        )
    halted = table["halted"] if "halted" in table.column_names else None
    return Block(
        table["datetime"].to_numpy().view(np.int64),
        {name: table[name].to_numpy() for name in (*MUST, *MAY) if name in table.column_names},
        None if halted is None or halted.null_count == len(halted) else halted.fill_null(False).to_numpy(),
        table["source"].to_numpy(),
        table["row"].fill_null(0).to_numpy(),
    )


def _numbers(block: Block, name: str) -> pa.Array:
    found = block.values.get(name)
    return pa.nulls(len(block), pa.float64()) if found is None else pa.array(found, from_pandas=True)
