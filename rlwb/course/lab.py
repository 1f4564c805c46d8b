"""A small synthetic market with its orders, on which notebooks of the course train and compare policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult
    from rlwb.learner import Learner
    from rlwb.policy import ActorCritic
    from rlwb.trainer import History


class Lab:
    """A synthetic market, a simulator, and orders of earlier days to learn from and of later ones to judge by.

    Parameters
    ----------
    instruments, days, signal, seed
        Of the market, see `rlwb.market.SyntheticSettings`; `seed` is also that of orders and trainings.
    simulator
        Makes the simulator of an engine; by default `rlwb.execution.OrderExecution`.
    rules
        Rules of execution; by default none cost anything.

    Attributes
    ----------
    market, desk, features
        The sessions, the simulator with steps of six ticks, and normalised features fitted on the learning days.
    orders
        Orders aligned with the market: ``train``, ``valid`` and ``test``, by date.
    learning
        Rows of the sessions to learn from, int64.
    """

    def __init__(
        self,
        instruments: int = 20,
        days: int = 120,
        *,
        signal: float = 1.0,
        seed: int = 0,
        simulator: Any = None,
        rules: Any = None,
    ) -> None:
        from rlwb.execution import Engine, OrderExecution, generate_orders, split_orders
        from rlwb.market import MarketFeatures, SyntheticSettings, synthetic_sessions

        self.seed = seed
        self.market = synthetic_sessions(SyntheticSettings(instruments, days, signal=signal, seed=seed))
        self.desk = (simulator or OrderExecution)(Engine(self.market, 6, rules))
        tables = split_orders(generate_orders(self.market, seed=seed))
        self.orders = {name: self.desk.align(tables[name]) for name in ("train", "valid", "test")}
        first = self.orders["train"].table["date"].to_numpy().astype("datetime64[D]")
        self.learning = np.flatnonzero(np.isin(self.market.dates, first))
        self.features = MarketFeatures.build(self.market, fit_rows=self.learning)

    def network(self, shares: np.ndarray, kind: str = "signals") -> ActorCritic:
        """Return an untrained network that chooses among shares of the amount and begins by trading evenly.

        `kind` is ``"signals"``, which decides by forecasts from prices so far, or ``"mlp"``, which sees no price.
        """
        from rlwb.policy import MLP, ActionMask, ActorCritic, EvenStart, Signals, make_network

        def build() -> ActorCritic:
            trunk = MLP(16) if kind == "mlp" else Signals(self.features, self.desk.engine.max_step)
            return ActorCritic(trunk, len(shares), mask=ActionMask(shares), start=EvenStart(shares))

        made = make_network(build, self.seed)
        if kind != "mlp":
            made.trunk.fit(self.features, self.learning)
        return made

    def train(
        self, policy: Learner, sees: Any, acts: Any, reward: Any, iterations: int = 10, episodes: int = 1000
    ) -> History:
        """Train a policy on the training orders, with a validation each iteration; return the figures by iteration."""
        from rlwb.trainer import History, train

        history = History()
        vessel = {"val_initial_states": self.orders["valid"], "episode_per_iter": episodes, "seed": self.seed}
        loop = {"max_iters": iterations, "val_every_n_iters": 1, "callbacks": [history]}
        train(self.desk, sees, acts, self.orders["train"], policy, reward, vessel, loop)
        return history

    def judge(self, name: str, policy: Any, sees: Any = None, acts: Any = None) -> PolicyResult:
        """Return the result of a policy on the test orders; without `sees` and `acts`, of one that answers amounts."""
        from rlwb.evaluation import PolicyResult
        from rlwb.execution import AmountActionInterpreter, KnownStateInterpreter
        from rlwb.trainer import backtest, result_table

        orders = self.orders["test"]
        sees, acts = sees or KnownStateInterpreter(), acts or AmountActionInterpreter()
        done = backtest(self.desk, sees, orders, acts, policy)
        return PolicyResult(name, "policy", result_table(orders.table, done), inventory=done.details["inventory"])
