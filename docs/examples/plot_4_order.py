"""
Look at one order
=================

Where a rule traded, beside TWAP, bar by bar.
"""

# %%
# ``audit`` executes one order and writes down every bar of it.

from rlwb.evaluation import plots
from rlwb.execution import TWAP, Engine, OrderExecution, audit, generate_orders, split_orders
from rlwb.market import SyntheticSettings, synthetic_sessions
from rlwb.parts import make

market = synthetic_sessions(SyntheticSettings(instruments=4, days=60, seed=0))
simulator = OrderExecution(Engine(market, ticks_per_step=6))
orders = {name: simulator.align(table) for name, table in split_orders(generate_orders(market, seed=0)).items()}
rule = make("baseline", {"name": "forecast"}, engine=simulator.engine)
rule.fit(orders["train"])

one = orders["test"][[10]]
acted, _, row = audit(simulator, one, rule)
evenly, _, _ = audit(simulator, one, TWAP(simulator.engine))
title = f"{one[0].order_id}, {one[0].direction.name}"
figure = plots.order_path({"forecast rule": acted, "TWAP": evenly}, title=title, benchmark=float(row["twap"].iloc[0]))

# %%
# The table behind the picture: prices, what was asked for, what was filled and what was left. It adds up to the order.

assert abs(acted["filled"].sum() - one[0].amount) < 1e-6
acted.head(12).round(3)
