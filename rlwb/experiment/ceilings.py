"""Ceilings: what no policy passes, as baselines that a configuration names."""

from __future__ import annotations

import pandas as pd

from rlwb.execution import Engine, OrderBatch, hindsight_table


class Hindsight:
    """The best PA that anyone who knew the day's prices could reach, under the run's rules.

    Parameters
    ----------
    engine
        What executes orders.
    """

    capped = True

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def table(self, orders: OrderBatch) -> pd.DataFrame:
        """Return one row an order with its PA, its fulfilment rate and more."""
        return hindsight_table(self.engine, orders, capped=self.capped).reset_index(drop=True)


class HindsightUncapped(Hindsight):
    """The same as if the rules had no volume cap; it bounds no policy under the cap, which may fill less."""

    capped = False
