"""Training: the loop, what it trains, and what happens around it."""

from rlwb.trainer.api import backtest, result_table, train
from rlwb.trainer.callbacks import Callback, Checkpoint, EarlyStopping, MetricsWriter
from rlwb.trainer.checkpoint import find_resumable, list_checkpoints, load_checkpoint, save_checkpoint
from rlwb.trainer.collect import Actor, Episodes, collect
from rlwb.trainer.trainer import Trainer
from rlwb.trainer.vessel import Learner, TrainingVessel, make_env

__all__ = [
    "Actor",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "Episodes",
    "Learner",
    "MetricsWriter",
    "Trainer",
    "TrainingVessel",
    "backtest",
    "collect",
    "find_resumable",
    "list_checkpoints",
    "load_checkpoint",
    "make_env",
    "result_table",
    "save_checkpoint",
    "train",
]
