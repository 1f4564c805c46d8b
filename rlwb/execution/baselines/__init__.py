"""The field's baselines: policies that need no learning, of one interface, and the ceiling that none passes.

Each `Baseline` reads `Known` and answers with amounts; run it with `KnownStateInterpreter` and
`AmountActionInterpreter`.
"""

from rlwb.execution.baselines.almgren_chriss import AlmgrenChriss
from rlwb.execution.baselines.base import Baseline
from rlwb.execution.baselines.bertsimas_lo import BertsimasLo, SignalParameters
from rlwb.execution.baselines.hindsight import HindsightOptimum, hindsight_table
from rlwb.execution.baselines.impact import ImpactParameters
from rlwb.execution.baselines.schedules import POV, TWAP, VWAP

__all__ = [
    "POV",
    "TWAP",
    "VWAP",
    "AlmgrenChriss",
    "Baseline",
    "BertsimasLo",
    "HindsightOptimum",
    "ImpactParameters",
    "SignalParameters",
    "hindsight_table",
]
