"""Public bars from their sources: fetched whole or not at all, checked, and taken up again where a fetch was cut."""

from rlwb.market.download.binance import BinanceArchive, download_binance
from rlwb.market.download.fetch import Fetcher
from rlwb.market.download.yahoo import download_yahoo

__all__ = ["BinanceArchive", "Fetcher", "download_binance", "download_yahoo"]
