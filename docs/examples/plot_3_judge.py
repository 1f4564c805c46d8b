"""
Judge a policy
==============

The mean price advantage over TWAP on orders of later days, and how certain it is.
"""

# %%
# Two rules that need no training: TWAP trades evenly, and the forecast rule trades everything at once when its
# forecast, fitted on the training days, says that waiting costs.

import numpy as np

from rlwb.evaluation import PolicyResult, day_interval, plots
from rlwb.execution import AmountActionInterpreter, Engine, KnownStateInterpreter, OrderExecution
from rlwb.execution import generate_orders, split_orders
from rlwb.market import SyntheticSettings, synthetic_sessions
from rlwb.parts import make
from rlwb.trainer import backtest, result_table

market = synthetic_sessions(SyntheticSettings(instruments=6, days=80, seed=0))
simulator = OrderExecution(Engine(market, ticks_per_step=6))
orders = {name: simulator.align(table) for name, table in split_orders(generate_orders(market, seed=0)).items()}

results = []
for name in ("twap", "forecast"):
    rule = make("baseline", {"name": name}, engine=simulator.engine)
    rule.fit(orders["train"])
    played = backtest(simulator, KnownStateInterpreter(), orders["test"], AmountActionInterpreter(), rule)
    table = result_table(orders["test"].table, played)
    kind = "baseline" if name == "twap" else "policy"
    results.append(PolicyResult(name, kind, table, inventory=played.details["inventory"]))

# %%
# Orders of a day share its prices, so the interval resamples whole days, never single orders.

twap, forecast = results
mean = day_interval(forecast.pa, forecast.dates, np.random.default_rng(0))
print(f"PA {mean.estimate:.1f} bp, 95 % interval [{mean.lo:.1f}, {mean.hi:.1f}] bp, from {mean.days} days")
assert np.abs(twap.pa).max() < 1e-6, "TWAP's advantage over itself is 0"
assert mean.lo <= mean.estimate <= mean.hi

# %%
# What the orders gained as the test days went by, and how much of an order was left after each step, on average.

figure = plots.cumulative_pa(results)

# %%

figure = plots.inventory_paths(results)
