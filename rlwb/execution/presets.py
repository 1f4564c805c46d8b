"""Rules of three markets and of Qlib's simulator as data, each figure with its source or called an assumption.

Figures change and are those of the dates given: check them before you rely on them. Spread, impact and a volume cap are
in no preset, because no published figure holds for all instruments of a market: use ``price_field: quotes``, fit your
own fills (``rlwb impact fit``), or take a published law for an instrument's own figures (`published_impact`). Fees per
share or per contract are not modelled.

``cn``, the main boards of Shanghai and Shenzhen, in CNY:

sell_tax_bps 5
    Stamp duty of 0.05 %, paid by the seller, since 2023-08-28: Ministry of Finance and State Taxation Administration,
    announcement 39 of 2023, https://www.gov.cn/zhengce/zhengceku/202308/content_6900443.htm
commission_bps 3.1, min_fee 5
    3 and at least 5 CNY for the broker are an assumption, the defaults of ``set_commission`` in the brokers' platform
    PTrade. 0.1 for ChinaClear's transfer fee from both sides since 2022-04-29 (its notice of 2022-04-28).
lot_size 100, odd_lot sell_at_end
    Buys in multiples of 100 shares, what is left below that sold in one order: trading rules of the exchanges, 2026
    revision, in force since 2026-07-06; Shenzhen's 3.3.8,
    http://docs.static.szse.cn/www/lawrules/rule/trade/current/W020260424690713155663.pdf
price_limit 0.1, price_tick 0.01
    10 % on the main boards, quoted in 0.01: the same rules, 3.3.13. ChiNext and STAR have 20 %: set it.

``us``, listed stocks of the United States, in USD, without FINRA's trading activity fee (per share), a broker's
commission, and Limit Up-Limit Down, whose bands move within the day:

sell_tax_bps 0.206
    The section 31 fee of 20.60 per million sold, from 2026-04-04: SEC order 34-104909 of 2026-02-27 (91 FR 10643),
    https://www.sec.gov/rules-regulations/fee-rate-advisories/2026-2. It was 0 from 2025-05-14 (order 34-102779,
    90 FR 15492).
lot_size 1
    An assumption: whole shares. Some brokers take orders for fractions, each in its own way (SEC, Investor Bulletin of
    2020-11-09).

``crypto``, spot pairs on Binance, where `lot_size` is the stepSize of LOT_SIZE in the exchange's ``exchangeInfo``:

commission_bps 10
    0.1 % of a taker of the lowest level without a discount, as the README of QuantConnect's
    https://github.com/QuantConnect/Lean.Brokerages.Binance states it (commit 58e71bc, read in November 2026).

``qlib``, the rules of ``qlib.rl.order_execution.simulator_simple`` in pyqlib 0.9.7, whose `vol_threshold` is
`volume_limit`; what still differs, and why, is in docs/qlib.md:

catch_up false
    What the cap cuts in the last step is asked for at the last tick alone.
step_grid session
    Steps are counted by the rows of the day.
"""

from __future__ import annotations

from typing import Any

from rlwb.errors import ConfigError

PRESETS: dict[str, dict[str, Any]] = {
    "cn": {
        "lot_size": 100.0,
        "odd_lot": "sell_at_end",
        "price_limit": 0.1,
        "price_tick": 0.01,
        "commission_bps": 3.1,
        "sell_tax_bps": 5.0,
        "min_fee": 5.0,
    },
    "us": {"lot_size": 1.0, "sell_tax_bps": 0.206},
    "crypto": {"commission_bps": 10.0},
    "qlib": {"catch_up": False, "step_grid": "session"},
}

#: Coefficients of Almgren, Thum, Hauptmann and Li (2005), and the participation at which their power 3/5 is met.
_ETA, _GAMMA, _POWER, _MET_AT = 0.142, 0.314, 0.6, 0.1
#: Of the square-root law: Y, and the mean over an order's fills of what its last one sees.
_Y, _MEAN = 1.0, 2 / 3
_NEEDS = {
    "almgren2005": ("ticks", "turnover_days"),
    "square_root_law": ("share_of_day",),
    "propagator": ("ticks", "tick_minutes"),
}


def published_impact(source: str, *, daily_volatility_bps: float, **figures: float) -> dict[str, Any]:
    """Return the impact of a published law as settings of `ExecutionRules`, for an instrument with these figures.

    Parameters
    ----------
    source
        ``"almgren2005"``: R. Almgren, C. Thum, E. Hauptmann, H. Li, "Direct estimation of equity market impact", Risk
        18 (2005), on 29,509 orders in US stocks of Citigroup's desks, December 2001 to June 2003. Temporary impact is
        0.142 sigma (X / V T)^(3/5), permanent impact 0.314 sigma (X / V) (Theta / V)^(1/4), with X shares traded in T
        days, V the mean daily volume, Theta the shares outstanding and sigma the daily volatility. The rules know no
        power 3/5: the root that equals it at 10 % of the volume stands for it (at 1 % it charges 26 % more, at 40 % 13
        % less). Permanent impact is spread over the day's ticks as if all had the same volume.

        ``"square_root_law"``: B. Tóth and others, "Anomalous price impact and the critical nature of liquidity in
        financial markets", Physical Review X 1, 021006 (2011), equation 1: an order of Q moves the price by Y sigma
        (Q / V)^(1/2), with Y about 1. It depends on the whole order, the rules on each tick, so that it holds for
        orders of one length alone, `share_of_day`; for others it is wrong by the root of the ratio. What its fills
        pay on average, 2/3 of the move, is charged as temporary impact; what stays afterwards the law does not say.

        ``"propagator"``: the same law as transient impact, for orders of any length. Each bar's move is by the root of
        its share and decays as ``t ** -1/2``: the exponents of shape and decay add up to 1, the least sum without gains
        from round trips, to which data come close (J. Gatheral, "No-dynamic-arbitrage and market impact", Quantitative
        Finance 10, 2010, abstract), and the sum over an order's bars is then Y sigma (Q / V)^(1/2) whatever its length
        if all bars have the same volume: 13 % less for a single bar, 5 % for 4, 2 % for 20. That the decay is a power
        at first, and that a third of the peak is gone by the day's end, is measured on 8 million orders in US stocks
        (F. Bucci and others, "Slow decay of impact in equity markets: insights from the ANcerno database", arXiv
        1901.05332). The half-life, one bar, is an assumption: it is where the power law begins, and the sum over many
        bars does not depend on it.
    daily_volatility_bps
        Sigma in basis points.
    figures
        For ``almgren2005`` ticks (bars a day) and turnover_days (Theta / V); for ``square_root_law`` share_of_day (the
        share of the day's volume that is traded while an order lasts); for ``propagator`` ticks and tick_minutes (the
        length of a bar).

    Returns
    -------
    dict
        Impact, its shapes, and a `volume_limit` of 1, since the laws have none.

    Raises
    ------
    ConfigError
        For another source, or figures that it does not need, lack, or that are not above 0.
    """
    if source not in _NEEDS:
        raise ConfigError(f"there is no published impact {source!r}; choose one of {', '.join(_NEEDS)}.")
    if sorted(figures) != sorted(_NEEDS[source]):
        raise ConfigError(f"{source} needs {' and '.join(_NEEDS[source])} beside the volatility, and nothing else.")
    for name, value in {"daily_volatility_bps": daily_volatility_bps, **figures}.items():
        if not 0 < value < float("inf"):
            raise ConfigError(f"{name} is {value!r}; give a number above 0.")
    law: dict[str, Any] = {"temporary_impact_shape": "square_root", "volume_limit": 1.0}
    if source == "square_root_law":
        return {"temporary_impact_bps": _MEAN * _Y * daily_volatility_bps * figures["share_of_day"] ** 0.5, **law}
    if source == "propagator":
        # Of n bars that each move the price by 1, sum_k (1 + 3 k) ** -1/2 is left, about 2 (n / 3) ** 1/2.
        return {
            "transient_impact_bps": _Y * daily_volatility_bps * (3.0 / figures["ticks"]) ** 0.5 / 2.0,
            "transient_half_life": figures["tick_minutes"],
            "volume_limit": 1.0,
        }
    return {
        "temporary_impact_bps": _ETA * daily_volatility_bps * _MET_AT ** (_POWER - 0.5),
        "permanent_impact_bps": _GAMMA * daily_volatility_bps * figures["turnover_days"] ** 0.25 / figures["ticks"],
        **law,
    }
