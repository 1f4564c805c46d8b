"""Widgets of a notebook: explorers of runs and markets, each with a static figure for readers without widgets."""

from rlwb.widgets.checkpoints import CheckpointExplorer
from rlwb.widgets.form import ConfigurationForm
from rlwb.widgets.market import MarketExplorer
from rlwb.widgets.orders import OrderExplorer
from rlwb.widgets.panel import Panel
from rlwb.widgets.training import TrainingMonitor, train_here_or_watch

__all__ = [
    "CheckpointExplorer",
    "ConfigurationForm",
    "MarketExplorer",
    "OrderExplorer",
    "Panel",
    "TrainingMonitor",
    "train_here_or_watch",
]
