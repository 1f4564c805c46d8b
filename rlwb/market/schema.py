"""The one schema of bars.

| column | type | unit |
|---|---|---|
| instrument | text | an id, kept as text: 000001, NA, BRK.B, 600000.SH |
| datetime | timestamp | start or end of the tick (`Calendar.label`), session-local, or with a zone |
| open, high, low, close | float | price of one share (unit), in the currency of the market |
| volume | float | shares (units) traded in the tick; `volume_multiplier` turns lots into shares |
| bid, ask | float, optional | best quote at the end of the tick, a price |
| bid_size, ask_size | float, optional | shares (units) at the best quote |
| vwap | float, optional | volume-weighted mean price of the tick |
| halted | bool, optional | True where trading was halted |
| factor | float, optional | one a session: adjusted price = price * factor (`rlwb.market.actions`) |

NaN means missing. A tick without a row is one in which nothing was traded. Bars with bid and ask may lack the columns
open, high, low, close and volume: orders can be filled by the quotes (`price_field` ``"quotes"``).
"""

from __future__ import annotations

from collections.abc import Collection

SCHEMA_VERSION = 1

KEYS = ("instrument", "datetime")
TRADE_PRICES = ("open", "high", "low", "close")
REQUIRED = (*KEYS, *TRADE_PRICES, "volume")
QUOTES = ("bid", "ask")
OPTIONAL = ("bid", "ask", "bid_size", "ask_size", "vwap", "halted", "factor")
PRICES = (*TRADE_PRICES, "bid", "ask", "vwap")
SIZES = ("volume", "bid_size", "ask_size")
FIELDS = (*TRADE_PRICES, "volume", "bid", "ask", "bid_size", "ask_size", "vwap")
COLUMNS = (*REQUIRED, *OPTIONAL)


def lacking(names: Collection[str]) -> list[str]:
    """Return the required columns that are not among `names`; with both quotes, those of trades may be absent."""
    required = KEYS if set(QUOTES) <= set(names) else REQUIRED
    return [name for name in required if name not in names]
