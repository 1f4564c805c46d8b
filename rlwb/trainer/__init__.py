"""Training: the loop, what it trains, and what happens around it."""

from rlwb.record import TrainingRecord, check_record
from rlwb.trainer.api import train
from rlwb.trainer.callbacks import (
    BetweenIterations,
    Checkpoint,
    EarlyStopping,
    EpisodesWriter,
    History,
    MetricsWriter,
    ProgressLines,
    ValidationFigure,
)
from rlwb.trainer.checkpoint import find_resumable, list_checkpoints, load_checkpoint, save_checkpoint
from rlwb.trainer.collect import Episodes, backtest, collect, restore_policy, result_table
from rlwb.trainer.record import record_of, recorded_in
from rlwb.trainer.trainer import Callback, Trainer
from rlwb.trainer.vessel import TrainingVessel

__all__ = [
    "BetweenIterations",
    "Callback",
    "Checkpoint",
    "EarlyStopping",
    "Episodes",
    "EpisodesWriter",
    "History",
    "MetricsWriter",
    "ProgressLines",
    "Trainer",
    "TrainingRecord",
    "TrainingVessel",
    "ValidationFigure",
    "backtest",
    "check_record",
    "collect",
    "find_resumable",
    "list_checkpoints",
    "load_checkpoint",
    "record_of",
    "recorded_in",
    "restore_policy",
    "result_table",
    "save_checkpoint",
    "train",
]
