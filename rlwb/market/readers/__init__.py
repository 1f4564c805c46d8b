"""Readers of sources other than Parquet and CSV, and what a reader of one's own needs.

`Reader` is the contract, `Part` and `join_bars` make the canonical frame, `conformance.check_reader` tests a reader.
"""

from rlwb.market.readers.base import Reader
from rlwb.market.readers.frames import Part, join_bars
from rlwb.market.readers.registry import find_reader, reader_kinds

__all__ = ["Part", "Reader", "find_reader", "join_bars", "reader_kinds"]
