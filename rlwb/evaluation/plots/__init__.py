"""The figures of a report. Each function takes results and returns a matplotlib `Figure`; none touches a display.

The figures belong to nobody but the caller: pyplot is not used, so there is nothing to close and nothing leaks.
"""

from rlwb.evaluation.plots.certificate import certificate_curves, price_paths
from rlwb.evaluation.plots.execution import order_parts, order_path
from rlwb.evaluation.plots.market import (
    intraday_profiles,
    mean_reversion,
    return_tails,
    session_bars,
    volatility_clustering,
    volume_and_volatility,
)
from rlwb.evaluation.plots.methods import method_intervals
from rlwb.evaluation.plots.orders import pa_by_instrument, pa_by_month, pa_distribution
from rlwb.evaluation.plots.paths import cumulative_pa, inventory_paths
from rlwb.evaluation.plots.quality import coverage_calendar, finding_days, worst_findings, zero_volumes
from rlwb.evaluation.plots.style import save_figure
from rlwb.evaluation.plots.training import learning_curves, validation_against_test

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
