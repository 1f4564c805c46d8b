"""Readers of bars, a function a format; `rlwb.market.source.open_source` finds the one that a source needs.

`reader` declares a function of your own to be one, `bars` makes its tables, `conformance.check_reader` tests it.
"""

from rlwb.market.readers.base import Reader, bars, reader

__all__ = ["Reader", "bars", "reader"]
