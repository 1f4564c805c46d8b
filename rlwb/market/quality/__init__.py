"""Are these bars sound? `check.check_bars` lists what loading counts, with every row."""

from rlwb.market.findings import KINDS, Finding
from rlwb.market.quality.check import Quality, Window, check_bars
from rlwb.market.quality.repair import repair_bars
from rlwb.market.quality.spoil import spoil_bars

__all__ = ["KINDS", "Finding", "Quality", "Window", "check_bars", "repair_bars", "spoil_bars"]
