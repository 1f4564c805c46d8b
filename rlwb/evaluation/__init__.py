"""Evaluation of policies: results and metrics with intervals, selection of checkpoints; plots are in `.plots`."""

from rlwb.evaluation.bootstrap import Interval, day_interval, statistic_interval
from rlwb.evaluation.clusters import cluster_table
from rlwb.evaluation.costs import cost_groups, cost_table
from rlwb.evaluation.dictionary import COLUMNS
from rlwb.evaluation.frontier import (
    below_frontier,
    frontier_mean,
    frontier_table,
    hypervolume,
    non_dominated,
    risk_verdict,
)
from rlwb.evaluation.gap import gap_table, rule_steps
from rlwb.evaluation.groups import group_labels, group_table
from rlwb.evaluation.metrics import METRICS, SUMMARY_COLUMNS, metric_difference, metric_table, metric_values, summary
from rlwb.evaluation.overfitting import expected_shrinkage, mean_of_largest, overfitting_probability
from rlwb.evaluation.results import PolicyResult, above_ceiling
from rlwb.evaluation.select import Selection, read_validation, select_checkpoints
from rlwb.evaluation.tables import Table, comparison, headline, headline_groups

__all__ = [
    "COLUMNS",
    "METRICS",
    "SUMMARY_COLUMNS",
    "Interval",
    "PolicyResult",
    "Selection",
    "Table",
    "above_ceiling",
    "below_frontier",
    "cluster_table",
    "comparison",
    "cost_groups",
    "cost_table",
    "day_interval",
    "expected_shrinkage",
    "frontier_mean",
    "frontier_table",
    "gap_table",
    "group_labels",
    "group_table",
    "headline",
    "headline_groups",
    "hypervolume",
    "mean_of_largest",
    "metric_difference",
    "metric_table",
    "metric_values",
    "non_dominated",
    "overfitting_probability",
    "read_validation",
    "risk_verdict",
    "rule_steps",
    "select_checkpoints",
    "statistic_interval",
    "summary",
]
