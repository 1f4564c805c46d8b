"""The rules that an order is executed under; one value for training, backtest and serving."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.kernel import NO_ROWS, Terms
from rlwb.execution.presets import PRESETS
from rlwb.market import Sessions

BASIS_POINTS = 1e4
#: Names of prices that orders are compared with; see `rlwb.execution.Benchmarks`.
BENCHMARKS = ("twap", "vwap", "arrival", "open", "close")
_IMPACT = ("temporary_impact", "permanent_impact", "transient_impact")
_TRANSIENT = ("transient_impact_shape", "transient_decay", "transient_half_life", "transient_exponent")
_EXPONENT = 0.5
_COSTS = ("commission_bps", "sell_tax_bps", "min_fee", "half_spread_bps", *(f"{name}_bps" for name in _IMPACT))
_CHOICES = {
    "price_field": ("open", "high", "low", "close", "vwap", "quotes"),
    "odd_lot": ("trade_at_end", "sell_at_end", "leave"),
    "step_grid": ("segment", "session"),
    "benchmark": BENCHMARKS,
    **{f"{name}_shape": ("linear", "square_root") for name in _IMPACT[:2]},
    "transient_impact_shape": ("linear", "square_root", None),
    "transient_decay": ("exponential", "power", None),
}


@dataclass(frozen=True)
class ExecutionRules:
    """Market rules and costs.

    Fills are valued at one price a tick, against which and the benchmark the PA is taken; every cost stands beside
    that, is at least 0, and makes the net PA. Temporary and permanent impact are those of Almgren and Chriss, "Optimal
    execution of portfolio transactions", Journal of Risk 3 (2000), section 1, with the rate of trading in shares of the
    market's volume.

    Parameters
    ----------
    price_field
        The bar field that fills are priced at. ``"quotes"`` prices them at the mid of bid and ask and charges the
        distance to the side that is hit, as they stand at the bar's end. A bar that lacks one of the two has no price.
        The sizes quoted there do not limit what fills; a `volume_limit` does, by what was traded.
    volume_limit : share of the volume
        Largest share of a tick's volume that an order may take, in (0, 1]; None means no cap.
    halts
        Whether nothing fills in a bar that the data call halted.
    complete_at_end
        Whether the whole remaining position is asked for in the last step, and at the last tick of the window. With it
        off the last step trades what the policy chooses, and what it leaves is shortfall.
    catch_up
        Whether, in an order's last step, what a cap or a blocked tick cuts is asked for again at the step's later
        ticks; otherwise only the last tick asks for more than its even part, if `complete_at_end` lets it.
    step_grid
        Where steps are counted from: the start of each ``"segment"`` of the session, so that none crosses a break, or
        the start of the ``"session"``.
    lot_size : shares
        Child amounts are multiples of this; 0 means any amount. Rounding follows the cumulative
        schedule to the nearest lot, so nothing drifts; by that rounding a tighter cap may fill one lot more.
    odd_lot
        What happens to the part of an amount below one lot: ``"trade_at_end"`` trades it at the last
        tick of the window where that asks for all that is left, ``"leave"`` never trades it and reports it as
        shortfall, ``"sell_at_end"`` trades that of a sell and leaves that of a buy.
    price_limit : share of the close before
        Daily price limit as a fraction of the last close known before the session: a buy is blocked at or above the
        upper limit, a sell at or below the lower one. None means no limit; an instrument's first session has none.
    price_tick : currency
        Smallest price move, to which the limits are rounded; a limit is at least one such move away from the
        previous close. Needs `price_limit`.
    commission_bps, sell_tax_bps, half_spread_bps : bp of the traded value
        Costs in basis points of the traded value; the tax falls on sells alone, the half spread is for prices without
        quotes.
    min_fee : currency
        Least commission of an order that was filled at all, in currency.
    temporary_impact_bps : bp
        By how many basis points a fill that takes a tick's whole volume makes its own price worse; a smaller one does
        so by its share of the volume, or the square root of it. Needs `volume_limit`.
    permanent_impact_bps : bp
        By how many basis points a fill that takes a tick's whole volume makes the price of all later fills of the order
        worse; smaller ones by share or root, and what several do adds up. On bars five times as long the same trading
        has a linear sum a fifth as large. The benchmark stays where the market was. Needs `volume_limit`.
    transient_impact_bps : bp
        By how many basis points a fill that takes a tick's whole volume moves the price at which the order trades on;
        smaller ones by share or root. The move decays with time. A fill pays what is left of the earlier ones and of
        its own the average on the way there, half of a linear move and two thirds of a square-root one. This is the
        propagator of J.-P. Bouchaud and others, "Fluctuations and response in financial markets", Quantitative Finance
        4 (2004), with the average of A. Obizhaeva and J. Wang, "Optimal trading strategy and supply/demand dynamics",
        Journal of Financial Markets 16 (2013). The benchmark stays where the market was, and nothing is carried to
        another order. Needs `volume_limit` and `transient_half_life`; None is 0.
    temporary_impact_shape, permanent_impact_shape, transient_impact_shape
        ``"linear"`` or ``"square_root"`` in the share of the tick's volume; None is the square root.
    transient_decay
        What is left of a transient move after the time t: ``"power"`` (or None), ``(1 + t / tau) ** -exponent`` with
        tau such that half is left after the half-life, or ``"exponential"``, as Obizhaeva and Wang have it, beside
        which only a linear shape excludes gains from round trips (J. Gatheral, "No-dynamic-arbitrage and market
        impact", Quantitative Finance 10, 2010; an order here trades one side alone).
    transient_half_life : minutes
        Time of trading in which half of a transient move is gone; a break between segments has none.
    transient_exponent
        Exponent of the power decay, above 0; None is 0.5. With it and the square root an order of many ticks moves the
        price by the root of its size, however long it takes: the exponents then have the least sum that Gatheral finds
        to exclude gains from round trips, 1.
    benchmark
        The price that the PA is taken against, one of `rlwb.execution.Benchmarks`: ``"twap"`` or ``"vwap"`` of the
        window, the ``"arrival"`` price, or the session's ``"open"`` or ``"close"``.
    unfilled_at
        Price of the part that stays open: the session's ``"close"``, the last one of the window (``"end"``), or
        ``"ignore"``, so that the PA is that of the fills. With a price the PA is that of the whole amount, and under
        ``"arrival"`` minus the implementation shortfall with its opportunity cost (Perold, "The implementation
        shortfall: paper versus reality", Journal of Portfolio Management 14, 1988). None is ``"close"`` under
        ``"arrival"`` and ``"ignore"`` else.
    """

    price_field: Literal["open", "high", "low", "close", "vwap", "quotes"] = "close"
    halts: bool = True
    volume_limit: float | None = None
    complete_at_end: bool = True
    catch_up: bool = True
    step_grid: Literal["segment", "session"] = "segment"
    lot_size: float = 0.0
    odd_lot: Literal["trade_at_end", "sell_at_end", "leave"] = "trade_at_end"
    price_limit: float | None = None
    price_tick: float = 0.01
    commission_bps: float = 0.0
    sell_tax_bps: float = 0.0
    half_spread_bps: float = 0.0
    min_fee: float = 0.0
    temporary_impact_bps: float = 0.0
    temporary_impact_shape: Literal["linear", "square_root"] = "linear"
    permanent_impact_bps: float = 0.0
    permanent_impact_shape: Literal["linear", "square_root"] = "linear"
    transient_impact_bps: float | None = None
    transient_impact_shape: Literal["linear", "square_root"] | None = None
    transient_decay: Literal["exponential", "power"] | None = None
    transient_half_life: float | None = None
    transient_exponent: float | None = None
    benchmark: Literal["twap", "arrival", "vwap", "open", "close"] = "twap"
    unfilled_at: Literal["close", "end", "ignore"] | None = None

    def __post_init__(self) -> None:
        cap, limit = self.volume_limit, self.price_limit
        checked = {
            "volume_limit": (cap is None or 0 < _number(cap) <= 1, "a share in (0, 1], or none for no cap"),
            "price_limit": (limit is None or 0 < _number(limit) < 1, "a fraction in (0, 1), for example 0.1"),
            "price_tick": (0 < _number(self.price_tick) < math.inf, "the smallest price move, above 0"),
            "halts": (isinstance(self.halts, bool), "true or false"),
            "complete_at_end": (isinstance(self.complete_at_end, bool), "true or false"),
            "catch_up": (isinstance(self.catch_up, bool), "true or false"),
            "unfilled_at": (self.unfilled_at in (None, "close", "end", "ignore"), "one of close, end, ignore"),
        }
        for name, choices in _CHOICES.items():
            checked[name] = (getattr(self, name) in choices, f"one of {', '.join(filter(None, choices))}")
        for name in ("lot_size", *_COSTS):
            value = getattr(self, name)
            fits = 0 <= _number(value) < math.inf or (value is None and name == "transient_impact_bps")
            checked[name] = (fits, "a finite number that is not negative")
        for name in _TRANSIENT[2:]:
            value = getattr(self, name)
            checked[name] = (value is None or 0 < _number(value) < math.inf, "a finite number above 0")
        for name, (fits, wanted) in checked.items():
            if not fits:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; give {wanted}.")
        self._refuse_what_has_no_effect()

    def _refuse_what_has_no_effect(self) -> None:
        if self.odd_lot != type(self).odd_lot and self.lot_size == 0:
            raise ConfigError(f"odd_lot {self.odd_lot!r} has no effect without a lot_size; set one or drop it.")
        if self.price_limit is None and self.price_tick != type(self).price_tick:
            raise ConfigError("price_tick has no effect without a price_limit; set one or drop it.")
        if self.price_field == "quotes" and self.half_spread_bps:
            raise ConfigError("half_spread_bps has no place beside price_field 'quotes', which has its own; drop it.")
        for name in _IMPACT:
            size, shape = getattr(self, f"{name}_bps"), getattr(self, f"{name}_shape")
            if shape not in ("linear", None) and not size:
                raise ConfigError(f"{name}_shape has no effect without {name}_bps; set it or drop the shape.")
            if size and self.volume_limit is None:
                raise ConfigError(
                    f"{name}_bps counts the share of a tick's volume that a fill takes and needs a volume_limit, lest "
                    "one takes more than there is; set one, 1 for all of it."
                )
        for name in () if self.transient_impact_bps else _TRANSIENT:
            if getattr(self, name) is not None:
                raise ConfigError(f"{name} has no effect without transient_impact_bps; set it or drop {name}.")
        if self.transient_impact_bps and self.transient_half_life is None:
            raise ConfigError("transient_impact_bps needs a transient_half_life; give minutes in which half decays.")
        if self.transient_decay == "exponential" and self.transient_exponent is not None:
            raise ConfigError("transient_exponent has no effect under an exponential decay; drop it, or set power.")

    @classmethod
    def preset(cls, name: str, **changes: Any) -> ExecutionRules:
        """Return the rules of a preset, ``"cn"``, ``"us"``, ``"crypto"`` or ``"qlib"``, changed.

        See `rlwb.execution.presets`.
        """
        if name not in PRESETS:
            raise ConfigError(f"There are no rules for the market {name!r}; choose one of {', '.join(PRESETS)}.")
        return cls(**{**PRESETS[name], **changes})

    def transient_left(self, minutes: np.ndarray) -> np.ndarray:
        """Return the part of a transient move that is left after minutes of trading, float64 of their shape.

        It is 1 at 0 and 1/2 at the half-life; without transient impact nothing is left at any time.
        """
        if self.transient_half_life is None:
            return np.zeros(np.shape(minutes))
        with np.errstate(over="ignore", divide="ignore"):
            past = np.asarray(minutes, dtype=np.float64) / self.transient_half_life
            if self.transient_decay == "exponential":
                return np.asarray(0.5**past)
            # In logarithms, since 2 ** (1 / exponent) may be larger than a float, and so near to 1 that it rounds to 1.
            doubled = np.log(2.0) / self._exponent
            return np.exp(-self._exponent * np.logaddexp(0.0, doubled + np.log(-np.expm1(-doubled)) + np.log(past)))

    def terms(self, tick_minutes: float, ticks: int) -> Terms:
        """Return the rules that the compiled loop reads, as numbers, for sessions of ticks of this length."""
        left = self.transient_left(np.arange(ticks) * tick_minutes)
        exponential = self.transient_decay == "exponential"
        return Terms(
            np.inf if self.volume_limit is None else float(self.volume_limit),
            self.complete_at_end,
            self.catch_up,
            float(self.lot_size),
            self.temporary_impact_bps / BASIS_POINTS,
            self.temporary_impact_shape == "square_root",
            self.permanent_impact_bps / BASIS_POINTS,
            self.permanent_impact_shape == "square_root",
            (self.transient_impact_bps or 0.0) / BASIS_POINTS,
            self.transient_impact_shape != "linear",
            float(self.transient_left(np.array(tick_minutes))) if exponential else 0.0,
            left if self.transient_impact_bps and not exponential else np.empty(0),
        )

    @property
    def costs_by_tick(self) -> bool:
        """Whether what a fill costs depends on its tick."""
        return self.price_field == "quotes" or any(getattr(self, f"{name}_bps") for name in _IMPACT)

    @property
    def have_costs(self) -> bool:
        """Whether anything makes the net PA differ from the gross one."""
        return self.price_field == "quotes" or any(getattr(self, name) for name in _COSTS)

    @property
    def values_unfilled(self) -> bool:
        """True where the PA is that of the whole amount, with a price for the part that stays open."""
        return self.unfilled_at in ("close", "end") or (self.unfilled_at is None and self.benchmark == "arrival")

    def trades_odd(self, side: np.ndarray) -> np.ndarray:
        """Return whether orders of these sides, 1 buys and -1 sells, trade an odd lot; bool of shape (N,)."""
        if self.odd_lot == "sell_at_end":
            return np.asarray(side < 0)
        return np.full(len(side), self.odd_lot == "trade_at_end")

    @property
    def judged_by(self) -> Literal["pa", "pa_net"]:
        """The figure that checkpoints are chosen by: the PA, or the net PA where there are costs."""
        return "pa_net" if self.have_costs else "pa"

    @property
    def benchmark_title(self) -> str:
        """The benchmark as a sentence names it."""
        own = {"twap": "TWAP", "vwap": "VWAP", "arrival": "arrival price"}
        return f"each order's own {own[self.benchmark]}" if self.benchmark in own else f"the day's {self.benchmark}"

    @property
    def unfilled_title(self) -> str:
        """The valuation of the part that stays open, as a sentence says it."""
        price = "the window's last price" if self.unfilled_at == "end" else "the day's close"
        return f"what stays open counts at {price}" if self.values_unfilled else "what stays open does not count"

    @property
    def _decay_title(self) -> str:
        decay = "exponential decay" if self.transient_decay == "exponential" else f"power decay by {self._exponent:g}"
        return f"{decay}, half-life {self.transient_half_life:g} min"

    @property
    def _exponent(self) -> float:
        return _EXPONENT if self.transient_exponent is None else self.transient_exponent

    def name_pa(self, title: str) -> str:
        """Return a title in which PA names its benchmark where that is not the TWAP."""
        name = "VWAP" if self.benchmark == "vwap" else self.benchmark
        return title if name == "twap" else re.sub(r"\b(PAs?)\b", rf"\1 over {name}", title)

    def name_judged(self, title: str) -> str:
        """Return `name_pa` of a title whose PA is the one of `judged_by`: net where there are costs."""
        net = re.sub(r"(?<![Nn]et )\bPA\b", "net PA", title) if self.have_costs else title
        return self.name_pa(re.sub(r"\Anet", "Net", net) if net != title else title)

    def describe(self) -> str:
        """Return one line that names every rule, for results and reports."""
        quotes = self.price_field == "quotes"
        judged = [f"PA against {self.benchmark_title}", self.unfilled_title]
        costs = ["the quoted half spread"] if quotes else []
        for name in _COSTS:
            if value := getattr(self, name):
                shape = getattr(self, name.replace("_bps", "_shape")) or "square_root" if "impact" in name else ""
                how = [shape.replace("_", " "), self._decay_title if name == "transient_impact_bps" else ""]
                costs.append(f"{name} {value:g}" + (f" ({', '.join(filter(None, how))})" if shape else ""))
        limit = f"price limit {self.price_limit:.4g} in moves of {self.price_tick:g}" if self.price_limit else None
        parts = [
            "buys at the ask, sells at the bid, whatever the sizes there" if quotes else f"fills at {self.price_field}",
            f"cap {self.volume_limit:.4g} of volume" if self.volume_limit else "no volume cap",
            "completes at the window's end" if self.complete_at_end else "may stay incomplete",
            *([] if self.catch_up else ["no catch-up in the last step"]),
            *([] if self.step_grid == "segment" else ["steps cross breaks"]),
            f"lots of {self.lot_size:g}, odd lot {self.odd_lot}" if self.lot_size else "no lots",
            limit or "price limit rule off",
            "halted bars do not fill" if self.halts else "halted bars fill",
            f"costs: {', '.join(costs) or 'none'}",
            *([] if (self.benchmark, self.values_unfilled) == ("twap", False) else judged),
        ]
        return "; ".join(parts)


def _number(value: Any) -> float:
    """Return a rule's number, and NaN, which no comparison lets pass, for what is none."""
    return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)


def check_data(rules: ExecutionRules, sessions: Sessions) -> None:
    """Refuse rules that ask for what the data lack by a ConfigError that names both."""
    wanted = ("bid", "ask") if rules.price_field == "quotes" else (rules.price_field,)
    if missing := [name for name in wanted if name not in sessions.fields]:
        raise ConfigError(
            f"price_field is {rules.price_field!r}, but the data have no {' and no '.join(missing)}; choose one of "
            f"{sorted(sessions.fields)}, and half_spread_bps for a spread."
        )
    if not rules.halts and sessions.halted is None:
        raise ConfigError("halts off has no effect: the data do not say which bars were halted; drop it.")


def tick_prices(sessions: Sessions, rules: ExecutionRules, rows: Any = slice(None)) -> np.ndarray:
    """Return the price that each tick's fills are valued at before costs, float64 of shape (rows, T).

    Under ``"quotes"`` it is the mid of bid and ask, NaN where one of the two is missing: nothing is filled there. All
    rows of the panel, the default, are no copy where the data have the price.
    """
    if rules.price_field != "quotes":
        return sessions.fields[rules.price_field][rows]
    bid, ask = (sessions.fields[name][rows] for name in ("bid", "ask"))
    return bid + (ask - bid) / 2


def valid_prices(price: np.ndarray) -> np.ndarray:
    """Return prices, float64 of the same shape; NaN for one that is not finite or not above 0, which is none."""
    return np.where((price > 0) & (price < np.inf), price, np.nan)


def outer_fields(
    sessions: Sessions, rules: ExecutionRules, price: np.ndarray, rows: Any = slice(None)
) -> tuple[np.ndarray, np.ndarray]:
    """Return the price at the beginning and at the end of each tick, float64 of shape (rows, T).

    The beginnings have no rows where the data have no opening prices; `price` is of `tick_prices`, and the end's under
    quotes.
    """
    opening = sessions.fields["open"][rows] if "open" in sessions.fields else NO_ROWS
    has_close = rules.price_field != "quotes" and "close" in sessions.fields
    return opening, sessions.fields["close"][rows] if has_close else price


def half_spreads(sessions: Sessions) -> np.ndarray:
    """Return half the distance from bid to ask, at least 0, in currency, float64 of shape (S, T)."""
    return np.maximum((sessions.fields["ask"] - sessions.fields["bid"]) / 2, 0.0)
