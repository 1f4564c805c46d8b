"""Are these bars sound? `check.check_bars` looks at every row, and `kinds.KINDS` says what it can find."""

from rlwb.market.quality.check import Quality, check_bars
from rlwb.market.quality.findings import Finding, Findings, Window
from rlwb.market.quality.kinds import KINDS
from rlwb.market.quality.repair import repair_bars
from rlwb.market.quality.spoil import spoil_bars

__all__ = ["KINDS", "Finding", "Findings", "Quality", "Window", "check_bars", "repair_bars", "spoil_bars"]
