"""The rules that an order is executed under; one value for training, backtest and serving."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np

from rlwb.errors import ConfigError

PRICE_FIELDS = ("open", "high", "low", "close", "vwap")
_COSTS = ("commission_bps", "sell_tax_bps", "half_spread_bps", "min_fee")
_NUMBERS = ("volume_limit", "lot_size", "price_limit", "price_tick", *_COSTS)


@dataclass(frozen=True)
class ExecutionRules:
    """Market rules and costs.

    Parameters
    ----------
    price_field
        The bar field that fills are priced at.
    volume_limit
        Largest share of a tick's volume that an order may take, in (0, 1]; None means no cap.
    complete_at_end
        Whether the whole remaining position is asked for at the last tick of the window.
    lot_size
        Child amounts are multiples of this; 0 means any amount. Rounding follows the cumulative
        schedule to the nearest lot, so nothing drifts.
    odd_remainder
        What happens to the part of an amount below one lot: ``"trade_at_end"`` trades it at the last
        tick of the window, ``"leave"`` never trades it and reports it as shortfall.
    price_limit
        Daily price limit as a fraction of the previous close: a buy is blocked at or above the upper
        limit, a sell at or below the lower one. None means no limit. The previous close is the last one
        known before the session; an instrument's first session has none and therefore no limit.
    price_tick
        Smallest price move, to which the limits are rounded; a limit is at least one such move away from the
        previous close. Needs `price_limit`.
    commission_bps, sell_tax_bps, half_spread_bps
        Costs in basis points of the traded value; the tax falls on sells alone.
    min_fee
        Least commission of an order that was filled at all, in currency.
    """

    price_field: Literal["open", "high", "low", "close", "vwap"] = "close"
    volume_limit: float | None = None
    complete_at_end: bool = True
    lot_size: float = 0.0
    odd_remainder: Literal["trade_at_end", "leave"] = "trade_at_end"
    price_limit: float | None = None
    price_tick: float = 0.01
    commission_bps: float = 0.0
    sell_tax_bps: float = 0.0
    half_spread_bps: float = 0.0
    min_fee: float = 0.0

    def __post_init__(self) -> None:
        if self.price_field not in PRICE_FIELDS:
            raise ConfigError(f"price_field is {self.price_field!r}; choose one of {', '.join(PRICE_FIELDS)}.")
        if self.odd_remainder not in ("trade_at_end", "leave"):
            raise ConfigError(f"odd_remainder is {self.odd_remainder!r}; choose trade_at_end or leave.")
        if not isinstance(self.complete_at_end, bool):
            raise ConfigError(f"complete_at_end is {self.complete_at_end!r}; write true or false.")
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float, np.number))):
                raise ConfigError(f"{name} is {value!r}, which is not a number; correct it.")
        if self.volume_limit is not None and not 0 < self.volume_limit <= 1:
            raise ConfigError(f"volume_limit is {self.volume_limit}; give a share in (0, 1], or none for no cap.")
        if self.price_limit is not None and not 0 < self.price_limit < 1:
            raise ConfigError(f"price_limit is {self.price_limit}; give a fraction in (0, 1), for example 0.1.")
        if not (math.isfinite(self.price_tick) and self.price_tick > 0):
            raise ConfigError(f"price_tick is {self.price_tick}; give the smallest price move, above 0.")
        for name in ("lot_size", *_COSTS):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"{name} is {value}; it must be finite and not negative.")
        if self.odd_remainder == "leave" and self.lot_size == 0:
            raise ConfigError("odd_remainder 'leave' has no effect without a lot_size; set one or drop it.")
        if self.price_limit is None and self.price_tick != type(self).price_tick:
            raise ConfigError("price_tick has no effect without a price_limit; set one or drop it.")

    def describe(self) -> str:
        """Return one line that names every rule, for results and reports."""
        parts = [f"fills at {self.price_field}"]
        parts.append(f"cap {self.volume_limit:.4g} of volume" if self.volume_limit else "no volume cap")
        parts.append("completes at the window's end" if self.complete_at_end else "may stay incomplete")
        parts.append(f"lots of {self.lot_size:g}, odd remainder {self.odd_remainder}" if self.lot_size else "no lots")
        parts.append(f"price limit {self.price_limit:.4g}" if self.price_limit else "price limit rule off")
        costs = [
            f"{f.name} {getattr(self, f.name):g}" for f in fields(self) if f.name in _COSTS and getattr(self, f.name)
        ]
        parts.append("costs: " + (", ".join(costs) if costs else "none"))
        return "; ".join(parts)
