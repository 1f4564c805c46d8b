"""Rules of three markets as data, each figure with its public source. Figures change: check them before you rely on them.

Spread, impact and a volume cap are in none of them, because no published figure holds for all instruments of a market;
use ``price_field: quotes`` or set them from your own data. Nor are fees per share or per contract. Days before a figure's
date had others.

``cn``: shares on the main boards of Shanghai and Shenzhen

| rule | figure | source |
|---|---|---|
| sell_tax_bps | 5 | stamp duty of 0.05 % paid by the seller since 2023-08-28: Ministry of Finance and State Taxation |
| | | Administration, announcement 39 of 2023, https://www.gov.cn/zhengce/zhengceku/202308/content_6900443.htm |
| commission_bps | 3.1 | 3 of broker's commission, which is agreed with the broker: the default of the broker platform PTrade |
| | | (``set_commission``: 0.0003, at least 5 CNY); and 0.1 of ChinaClear's transfer fee, 0.001 % from both |
| | | sides since 2022-04-29 (ChinaClear's notice of 2022-04-28) |
| min_fee | 5 | as above, in CNY an order |
| lot_size | 100 | buys in multiples of 100 shares: Shanghai and Shenzhen exchanges' trading rules (2026 revision, in force |
| | | since 2026-07-06; Shenzhen's rule 3.3.8), http://docs.static.szse.cn/www/lawrules/rule/trade/current/ |
| | | W020260424690713155663.pdf |
| odd_remainder | trade_at_end | the same rules: what is left below 100 shares is sold in one order. They do not let it be bought; |
| | | give buys in whole lots |
| price_limit | 0.1 | the same rules, 3.3.13: 10 % on the main boards. ChiNext and STAR have 20 %: set it |
| price_tick | 0.01 | CNY, the unit of quoted prices in the same rules |

``us``: listed stocks of the United States

| rule | figure | source |
|---|---|---|
| sell_tax_bps | 0.206 | section 31 fee of 20.60 USD per million sold from 2026-04-04: SEC fee rate advisory 2026-2, order |
| | | 34-104909 (91 FR 10643), https://www.sec.gov/rules-regulations/fee-rate-advisories/2026-2. It was 0 from |
| | | 2025-05-14 (order 34-102779, 90 FR 15492) |
| lot_size | 1 | whole shares |

FINRA's trading activity fee, which is per share, is left out, and so is a broker's commission. There is no daily price
limit.

``crypto``: spot pairs on Binance

| rule | figure | source |
|---|---|---|
| commission_bps | 10 | 0.1 % of a taker without a discount (VIP 0): https://www.binance.com/en/fee/schedule, as repeated by |
| | | third parties in 2025 |

The step of amounts differs by pair; ``exchangeInfo`` of Binance's interface states it (LOT_SIZE, stepSize). Set `lot_size`
to it.
"""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "cn": {
        "lot_size": 100.0,
        "odd_remainder": "trade_at_end",
        "price_limit": 0.1,
        "price_tick": 0.01,
        "commission_bps": 3.1,
        "sell_tax_bps": 5.0,
        "min_fee": 5.0,
    },
    "us": {"lot_size": 1.0, "sell_tax_bps": 0.206},
    "crypto": {"commission_bps": 10.0},
}
