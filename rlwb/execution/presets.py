"""Rules of three markets and of Qlib's simulator as data, each figure with its source or called an assumption.

Figures change and are those of the dates given: check them before you rely on them. Spread, impact and a volume cap are
in no preset, because no published figure holds for all instruments of a market: use ``price_field: quotes`` or set them
from your own data. Fees per share or per contract are not modelled.

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
