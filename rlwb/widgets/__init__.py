"""Widgets of a notebook: explorers of runs and markets, each with a static figure for readers without widgets."""

from rlwb.widgets.panel import Panel

__all__ = ["Panel"]
