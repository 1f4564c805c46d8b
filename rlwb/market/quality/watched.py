"""The rules by which a run drops and repairs bars, watched: which rows each of them takes."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.market.calendar import Calendar
from rlwb.market.dataset.bars import MUST, NUMBERS, Block
from rlwb.market.fit import Fit
from rlwb.market.report import Report
from rlwb.market.validate import Bars, drop_misplaced, repair_values


class WatchedBars(Bars):
    """Bars of one instrument that remember their rows.

    Parameters
    ----------
    instrument
        The id.
    block
        Its bars, sorted, each stamp once.

    Attributes
    ----------
    origin
        Row of the block that each bar was, int64 of shape ``(bars,)``.
    found
        Rows of the block by reason.
    closing_auction
        Whether nearly every session has a bar stamped at the close.
    """

    def __init__(self, instrument: str, block: Block, calendar: Calendar) -> None:
        columns = {name: block.values[name] for name in NUMBERS if name in block.values}
        columns |= {name: np.full(len(block), np.nan) for name in MUST if name not in columns}
        frame = pd.DataFrame({"datetime": block.stamp.view("datetime64[us]"), **columns})
        frame.insert(0, "instrument", pd.Categorical.from_codes(np.zeros(len(block), np.int8), [instrument]))
        self.origin = np.arange(len(block))
        self.found: dict[str, np.ndarray] = {}
        self.closing_auction = False
        super().__init__(frame, calendar, Report())

    def find(self, reason: str, mask: np.ndarray) -> None:
        super().find(reason, mask)
        if mask.any():
            self.found[reason] = self.origin[mask]

    def take(self, index: np.ndarray) -> None:
        super().take(index)
        self.origin = self.origin[index]


def watch(instrument: str, block: Block, calendar: Calendar) -> WatchedBars:
    """Return the bars that a run would lay on the clock, repaired as it repairs them, and what it found.

    Raises
    ------
    DataError
        Where a run would refuse the bars.
    """
    bars, fit = WatchedBars(instrument, block, calendar), Fit(calendar)
    drop_misplaced(bars, calendar, fit)
    fit.see_spacing(bars)
    bars.closing_auction = fit.judge(bars.report)
    repair_values(bars, 1.0)
    return bars
