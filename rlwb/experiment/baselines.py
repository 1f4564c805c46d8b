"""The baselines and ceilings of a run, built from its configuration and the training part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.execution import (
    POV,
    TWAP,
    VWAP,
    AlmgrenChriss,
    AmountItself,
    BertsimasLo,
    ImpactParameters,
    OrderBatch,
    SignalParameters,
    StateItself,
    hindsight_table,
)
from rlwb.experiment.sections import CEILINGS
from rlwb.experiment.workbench import Workbench

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult


@dataclass(frozen=True)
class Estimates:
    """What the baselines were told about the market, estimated on the sessions of the training part alone.

    Attributes
    ----------
    sessions
        Number of sessions that the estimates are from.
    impact
        Volatility and impact by instrument; None where no baseline needs them.
    signal
        For bertsimas_lo; None without it.
    risk_aversion
        For almgren_chriss, a number without a unit: cost and variance are shares of an order's value.
    """

    sessions: int
    impact: ImpactParameters | None = None
    signal: SignalParameters | None = None
    risk_aversion: float | None = None

    @classmethod
    def fit(cls, bench: Workbench, train_orders: pd.DataFrame) -> Estimates:
        """Estimate what the configured baselines need."""
        settings, engine = bench.config.backtest, bench.simulator.engine
        days = train_orders["date"].to_numpy().astype("datetime64[D]")
        rows = np.flatnonzero(np.isin(bench.sessions.dates, days))
        impact = signal = risk_aversion = None
        if {"almgren_chriss", "bertsimas_lo"} & set(settings.baselines):
            impact = ImpactParameters.fit(engine, rows)
        if "bertsimas_lo" in settings.baselines:
            signal = SignalParameters.fit(engine, rows)
        if impact is not None and "almgren_chriss" in settings.baselines:
            orders = bench.bind(train_orders)
            risk_aversion = AlmgrenChriss.of_urgency(impact, engine, orders, settings.urgency).risk_aversion
        return cls(len(rows), impact, signal, risk_aversion)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Estimates:
        """Return the estimates that `dataclasses.asdict` took apart."""
        impact, signal = values["impact"], values["signal"]
        return cls(
            values["sessions"],
            None if impact is None else ImpactParameters.from_dict(impact),
            None if signal is None else SignalParameters(**signal),
            values["risk_aversion"],
        )

    def policy(self, name: str) -> Any:
        """Return a baseline by its name in the configuration."""
        if name == "almgren_chriss":
            assert self.impact is not None
            assert self.risk_aversion is not None
            return AlmgrenChriss(self.impact, self.risk_aversion)
        if name == "bertsimas_lo":
            assert self.impact is not None
            assert self.signal is not None
            return BertsimasLo(self.impact, self.signal)
        return {"twap": TWAP, "vwap": VWAP, "pov": POV}[name]()


def baseline_results(bench: Workbench, known: Estimates, orders: OrderBatch) -> Sequence[PolicyResult]:
    """Run the configured baselines on orders, and find the configured ceilings of the same orders."""
    return [
        ceiling_result(bench, name, orders) if name in CEILINGS else _baseline(bench, name, known, orders)
        for name in bench.config.backtest.baselines
    ]


def _baseline(bench: Workbench, name: str, known: Estimates, orders: OrderBatch) -> PolicyResult:
    from rlwb.evaluation import PolicyResult
    from rlwb.trainer import backtest, result_table

    policy = known.policy(name)
    episodes = backtest(bench.simulator, StateItself(), orders, AmountItself(), policy, reward=bench.reward)
    return PolicyResult(name, "baseline", result_table(orders.table, episodes), inventory=episodes.details["inventory"])


def ceiling_result(bench: Workbench, name: str, orders: OrderBatch) -> PolicyResult:
    """Return the ceiling ``hindsight``, or ``hindsight_uncapped``, of orders under the run's rules."""
    from rlwb.evaluation import PolicyResult

    table = hindsight_table(bench.simulator.engine, orders, capped=name == "hindsight")
    return PolicyResult(name, "ceiling", table.reset_index(drop=True))
