"""
Generate orders
===============

A market, and the orders that a policy will have to execute on it.
"""

# %%
# The synthetic market has bars of five minutes. ``Sessions`` holds them as one panel: a row for each
# instrument and day.

from rlwb.evaluation import plots
from rlwb.market import SyntheticSettings, synthetic_sessions

market = synthetic_sessions(SyntheticSettings(instruments=4, days=40, seed=0))
print(market)
figure = plots.session_bars(market, row=len(market) - 1)

# %%
# One order to buy and one to sell for each instrument and day. Amounts follow the volume of earlier days. The parts are
# cut by date: a policy learns on the first days, is watched on the next, and is judged on the last.

from rlwb.execution import generate_orders, split_orders

tables = split_orders(generate_orders(market, seed=0))
parts = {name: tables[name] for name in ("train", "valid", "test")}
for name, table in parts.items():
    print(f"{name}: {len(table)} orders on {table['date'].nunique()} days")
figure = plots.order_parts(parts)

# %%
# No day is in two parts: what is learnt on one is judged on others.

days = [date for table in parts.values() for date in set(table["date"])]
assert len(days) == len(set(days))
parts["test"].head()
