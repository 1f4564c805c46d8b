"""What a panel shows as a whole: jumps overnight, splits, breaks in the level of volume."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.market.actions import split_list, suspected_splits
from rlwb.market.factors import price_ratio
from rlwb.market.references import Levels
from rlwb.market.report import Report
from rlwb.market.sessions import Sessions

_JUMP = 0.3
_BREAK = np.log(8.0)
_STATED = np.log(1.2)


def note_missing(sessions: Sessions, report: Report) -> None:
    """Note ticks without a price."""
    missing = sessions.in_session & ~np.isfinite(sessions.fields["close"])
    if missing.any():
        row, tick = np.unravel_index(int(np.argmax(missing)), missing.shape)
        example = f"{_name(sessions, int(row))} {sessions.calendar.time_of(int(tick))}"
        report.add("missing_tick", int(missing.sum()), example)


def note_market(sessions: Sessions, levels: Levels, report: Report) -> None:
    """Note sessions without volume, price jumps overnight and breaks in the level of volume; fields are not read."""
    report.totals.update(instruments=len(sessions.index.names), days=len(np.unique(sessions.dates)))
    idle = levels.volume == 0
    if idle.any():
        report.add("no_volume", int(idle.sum()), _name(sessions, int(np.argmax(idle))))
    later = np.flatnonzero(sessions.previous >= 0)
    before = sessions.previous[later]
    worth = price_ratio(sessions, before, later)
    close, opening = levels.close[before] * worth, levels.open[later]
    stated, moved = np.log(worth), np.log(opening / (close / worth))
    denied = (np.abs(stated) > _STATED) & (np.abs(moved) < np.abs(moved - stated))
    if denied.any():
        at = int(np.argmax(denied))
        example = f"{_name(sessions, int(later[at]))}, times {1 / worth[at]:g}"
        report.add("factor_contradicted", int(denied.sum()), example)
    jump = np.abs(opening / close - 1) > _JUMP
    if jump.any():
        at = int(np.argmax(jump))
        example = f"{_name(sessions, int(later[at]))}, {close[at]:g} to {opening[at]:g}"
        report.add("price_jump", int(jump.sum()), example)
    splits = suspected_splits(sessions, levels)
    report.add("split_suspected", len(splits), split_list(splits))
    _note_volume(sessions, levels.volume, later, before, report)


def _note_volume(sessions: Sessions, total: np.ndarray, later: np.ndarray, before: np.ndarray, report: Report) -> None:
    traded = (total[later] > 0) & (total[before] > 0)
    mean = total / sessions.num_ticks
    ratio = np.log(mean[later[traded]] / mean[before[traded]])
    change = pd.Series(ratio).groupby(sessions.dates[later[traded]]).median()
    broken = change[change.abs() > _BREAK]
    if len(broken):
        report.add("volume_break", len(broken), f"{broken.index[0]:%Y-%m-%d}, times {np.exp(broken.iloc[0]):.3g}")


def _name(sessions: Sessions, row: int) -> str:
    return f"{sessions.instruments[row]} {sessions.dates[row]}"
