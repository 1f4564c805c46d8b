"""Are these bars sound? `check.check_bars` looks at every row, and `kinds.KINDS` says what it can find."""

from rlwb.market.quality.check import Quality, check_bars
from rlwb.market.quality.findings import Finding, Findings, Window
from rlwb.market.quality.kinds import KINDS

__all__ = ["KINDS", "Finding", "Findings", "Quality", "Window", "check_bars"]
