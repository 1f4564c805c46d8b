"""Plots of results, training, orders and markets. Each function takes results and returns a matplotlib `Figure`.

pyplot is not used: no display is touched, and a figure belongs to the caller alone.
"""

from rlwb.evaluation.plots.market import (
    coverage_calendar,
    finding_days,
    intraday_profiles,
    mean_reversion,
    return_tails,
    session_bars,
    volatility_clustering,
    volume_and_volatility,
    worst_findings,
    zero_volumes,
)
from rlwb.evaluation.plots.orders import order_parts, order_path, price_paths
from rlwb.evaluation.plots.results import (
    cumulative_pa,
    inventory_paths,
    method_intervals,
    pa_by_instrument,
    pa_by_month,
    pa_distribution,
)
from rlwb.evaluation.plots.style import save_figure
from rlwb.evaluation.plots.training import certificate_curves, learning_curves, validation_against_test

__all__ = [
    "certificate_curves",
    "coverage_calendar",
    "cumulative_pa",
    "finding_days",
    "intraday_profiles",
    "inventory_paths",
    "learning_curves",
    "mean_reversion",
    "method_intervals",
    "order_parts",
    "order_path",
    "pa_by_instrument",
    "pa_by_month",
    "pa_distribution",
    "price_paths",
    "return_tails",
    "save_figure",
    "session_bars",
    "validation_against_test",
    "volatility_clustering",
    "volume_and_volatility",
    "worst_findings",
    "zero_volumes",
]
