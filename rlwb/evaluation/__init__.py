"""Judging a result: which checkpoints, how good, how sure. Figures live in `rlwb.evaluation.plots`."""

from rlwb.evaluation.bootstrap import Interval, average_day_interval, day_interval, paired_interval, statistic_interval
from rlwb.evaluation.ceiling import above_ceiling
from rlwb.evaluation.figures import FIGURES, SUMMARY_COLUMNS, figure_table, summary, wide
from rlwb.evaluation.gap import gap_table, rule_steps
from rlwb.evaluation.overfitting import (
    Overfitting,
    expected_shrinkage,
    mean_of_largest,
    overfitting_probability,
)
from rlwb.evaluation.results import PolicyResult, day_matrix, day_means
from rlwb.evaluation.select import Checkpoint, Exclusion, Selection, read_validation, select_checkpoints
from rlwb.evaluation.tables import Table, comparison, headline

__all__ = [
    "FIGURES",
    "SUMMARY_COLUMNS",
    "Checkpoint",
    "Exclusion",
    "Interval",
    "Overfitting",
    "PolicyResult",
    "Selection",
    "Table",
    "above_ceiling",
    "average_day_interval",
    "comparison",
    "day_interval",
    "day_matrix",
    "day_means",
    "expected_shrinkage",
    "figure_table",
    "gap_table",
    "headline",
    "mean_of_largest",
    "overfitting_probability",
    "paired_interval",
    "read_validation",
    "rule_steps",
    "select_checkpoints",
    "statistic_interval",
    "summary",
    "wide",
]
