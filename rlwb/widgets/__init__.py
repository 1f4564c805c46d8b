"""Widgets of a notebook: explorers of runs and markets, each with a static figure for readers without widgets."""

from rlwb.widgets.form import ConfigurationForm
from rlwb.widgets.panel import Panel
from rlwb.widgets.training import TrainingMonitor, train_here_or_watch

__all__ = ["ConfigurationForm", "Panel", "TrainingMonitor", "train_here_or_watch"]
