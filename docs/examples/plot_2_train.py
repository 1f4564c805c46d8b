"""
Train a policy
==============

PPO on a small network, for a few iterations.
"""

# %%
# The five parts of a problem: the simulator executes amounts, the state interpreter says what the policy sees, the
# action interpreter what its answer means, the reward what it is paid, and the learner chooses and learns.

import pandas as pd

from rlwb.evaluation import plots
from rlwb.execution import CategoricalActionInterpreter, Engine, FullHistoryStateInterpreter, OrderExecution
from rlwb.execution import PAPenaltyReward, generate_orders, split_orders
from rlwb.market import MarketFeatures, SyntheticSettings, synthetic_sessions
from rlwb.policy import MLP, PPO, ActorCritic, make_network
from rlwb.trainer import History, train

market = synthetic_sessions(SyntheticSettings(instruments=4, days=40, seed=0))
simulator = OrderExecution(Engine(market, ticks_per_step=6))
orders = {name: simulator.align(table) for name, table in split_orders(generate_orders(market, seed=0)).items()}
features = MarketFeatures.build(market, fit_rows=orders["train"].session)
sees = FullHistoryStateInterpreter(features, simulator.engine.max_step)
acts = CategoricalActionInterpreter(4)
policy = PPO(make_network(lambda: ActorCritic(MLP(hidden=16), actions=len(acts.shares)), seed=0), seed=0)

# %%
# Each iteration executes 100 training orders, learns from them, and then judges the policy on the validation orders.

history = History()
vessel = {"val_initial_states": orders["valid"], "episode_per_iter": 100, "seed": 0}
loop = {"max_iters": 6, "val_every_n_iters": 1, "callbacks": [history]}
train(simulator, sees, acts, orders["train"], policy, PAPenaltyReward(), vessel, loop)
assert len(history.train) == len(history.validation) == 6
figure = plots.learning_curves(pd.DataFrame(history.train), pd.DataFrame(history.validation))
