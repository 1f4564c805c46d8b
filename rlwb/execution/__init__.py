"""Trade execution: orders, rules, the engine, and everything a policy needs to act on it."""

from rlwb.execution.align import align_orders
from rlwb.execution.audit import audit, tick_audit
from rlwb.execution.baselines import Baseline
from rlwb.execution.baselines.almgren_chriss import AlmgrenChriss
from rlwb.execution.baselines.bertsimas_lo import BertsimasLo, SignalParameters
from rlwb.execution.baselines.forecast_rule import ForecastRule
from rlwb.execution.baselines.forecast_trees import ForecastTreesRule
from rlwb.execution.baselines.hindsight import HindsightOptimum, hindsight_table
from rlwb.execution.baselines.impact import ImpactParameters
from rlwb.execution.baselines.mpc import MPC
from rlwb.execution.baselines.schedules import POV, TWAP, VWAP
from rlwb.execution.decision_tree import DecisionTree, decision_tree
from rlwb.execution.engine import Benchmarks, Engine, EngineState, Fills, TickRecord
from rlwb.execution.fills import fill_orders, fill_table, read_fills
from rlwb.execution.flat import ArrayStateInterpreter, FlatStateInterpreter
from rlwb.execution.generate import OrderSettings, SplitSettings, generate_orders, split_orders
from rlwb.execution.interpreters import (
    AmountActionInterpreter,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    FullHistoryStateInterpreter,
    KnownStateInterpreter,
    PositionShareActionInterpreter,
    TwapRelativeActionInterpreter,
)
from rlwb.execution.metrics import order_metrics, price_advantage
from rlwb.execution.order import Direction, Order, OrderBatch, parse_direction
from rlwb.execution.rewards import PAPenaltyReward, SparseReward
from rlwb.execution.rules import ExecutionRules
from rlwb.execution.simulator import OrderExecution, RandomLiquidity
from rlwb.execution.state import ExecutionState, Known, Outcome
from rlwb.execution.step_terms import StepTerms, check_differentiable, step_terms
from rlwb.execution.table import order_table, read_orders, write_orders
from rlwb.execution.tick_terms import TickTerms

__all__ = [
    "MPC",
    "POV",
    "TWAP",
    "VWAP",
    "AlmgrenChriss",
    "AmountActionInterpreter",
    "ArrayStateInterpreter",
    "Baseline",
    "Benchmarks",
    "BertsimasLo",
    "CategoricalActionInterpreter",
    "CurrentStepStateInterpreter",
    "DecisionTree",
    "Direction",
    "Engine",
    "EngineState",
    "ExecutionRules",
    "ExecutionState",
    "Fills",
    "FlatStateInterpreter",
    "ForecastRule",
    "ForecastTreesRule",
    "FullHistoryStateInterpreter",
    "HindsightOptimum",
    "ImpactParameters",
    "Known",
    "KnownStateInterpreter",
    "Order",
    "OrderBatch",
    "OrderExecution",
    "OrderSettings",
    "Outcome",
    "PAPenaltyReward",
    "PositionShareActionInterpreter",
    "RandomLiquidity",
    "SignalParameters",
    "SparseReward",
    "SplitSettings",
    "StepTerms",
    "TickRecord",
    "TickTerms",
    "TwapRelativeActionInterpreter",
    "align_orders",
    "audit",
    "check_differentiable",
    "decision_tree",
    "fill_orders",
    "fill_table",
    "generate_orders",
    "hindsight_table",
    "order_metrics",
    "order_table",
    "parse_direction",
    "price_advantage",
    "read_fills",
    "read_orders",
    "split_orders",
    "step_terms",
    "tick_audit",
    "write_orders",
]
