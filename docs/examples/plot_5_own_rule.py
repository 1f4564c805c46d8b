"""
Write a rule of your own
========================

A class with one method is a policy; every part of the workbench takes it.
"""

# %%
# The rule trades faster than evenly after the price has moved in the order's favour today, and slower otherwise.
# ``obs`` is ``Known``: what may be known at the decision, one row an order; later bars are not in it.

import numpy as np

from rlwb.conformance import check_baseline
from rlwb.evaluation import PolicyResult, plots
from rlwb.execution import TWAP, AmountActionInterpreter, Baseline, Engine, KnownStateInterpreter, OrderExecution
from rlwb.execution import generate_orders, split_orders
from rlwb.market import SyntheticSettings, synthetic_sessions
from rlwb.trainer import backtest, result_table


class Contrarian(Baseline):
    """Trades twice the even rate at good prices, half of it at bad ones."""

    def act(self, obs, noise=None):
        close = obs.bars("close")  # today's so far, then NaN
        rows, last = np.arange(len(obs)), np.maximum(obs.tick - 1, obs.start)
        move = np.nan_to_num(close[rows, last] / close[rows, obs.start] - 1)
        speed = np.where(obs.side * move < 0, 2.0, 0.5)
        return np.where(obs.is_last_step, obs.position, np.minimum(speed * self.even(obs), obs.position))


# %%
# The checks try what a policy promises: the same amount alone as in a batch, and none that changes when later bars do.

check_baseline(lambda stage: Contrarian(stage.engine))

# %%
# Judged on the same orders as TWAP.

market = synthetic_sessions(SyntheticSettings(instruments=6, days=80, seed=0))
simulator = OrderExecution(Engine(market, ticks_per_step=6))
test = simulator.align(split_orders(generate_orders(market, seed=0))["test"])
results = []
for name, kind, rule in (("contrarian", "policy", Contrarian), ("twap", "baseline", TWAP)):
    played = backtest(simulator, KnownStateInterpreter(), test, AmountActionInterpreter(), rule(simulator.engine))
    results.append(PolicyResult(name, kind, result_table(test.table, played), inventory=played.details["inventory"]))
    print(f"{name}: mean PA {results[-1].pa.mean():.2f} bp")
assert results[0].orders["ffr"].min() > 1 - 1e-9, "every order is filled"
figure = plots.inventory_paths(results)
