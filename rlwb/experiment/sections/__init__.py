"""The sections of a run's configuration."""

from rlwb.experiment.sections.algorithms import DQNConfig, OPDConfig
from rlwb.experiment.sections.backtest import BASELINES, CEILINGS, BacktestConfig, Baseline, Ceiling
from rlwb.experiment.sections.calendar import CalendarConfig
from rlwb.experiment.sections.execution import ExecutionConfig, OrdersConfig
from rlwb.experiment.sections.fields import Count, CountOrZero, NotNegative, Positive, Share
from rlwb.experiment.sections.learning import PolicyConfig, TrainConfig, unused_settings
from rlwb.experiment.sections.market import MarketConfig

__all__ = [
    "BASELINES",
    "CEILINGS",
    "BacktestConfig",
    "Baseline",
    "CalendarConfig",
    "Ceiling",
    "Count",
    "CountOrZero",
    "DQNConfig",
    "ExecutionConfig",
    "MarketConfig",
    "NotNegative",
    "OPDConfig",
    "OrdersConfig",
    "PolicyConfig",
    "Positive",
    "Share",
    "TrainConfig",
    "unused_settings",
]
