"""The work of the four stages: what the notebooks call, and what a script may call in their place."""

from rlwb.experiment.work.backtest import backtest_policies, validation_noise
from rlwb.experiment.work.orders import PARTS, load_orders, make_orders, order_summary, workbench
from rlwb.experiment.work.results import read_results
from rlwb.experiment.work.scoring import score_checkpoint
from rlwb.experiment.work.stability import draw_stability, stability_figures
from rlwb.experiment.work.training import train_policy

__all__ = [
    "PARTS",
    "backtest_policies",
    "draw_stability",
    "load_orders",
    "make_orders",
    "order_summary",
    "read_results",
    "score_checkpoint",
    "stability_figures",
    "train_policy",
    "validation_noise",
    "workbench",
]
