"""Are these bars sound? What loading counts is listed, with every row."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.bars import MUST, join
from rlwb.market.build import Building, PanelBuilder
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.importing import Progress, import_bars
from rlwb.market.dataset.state import State, is_dataset, read_conflicts, read_state
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import KINDS, LISTED_ALWAYS, Finding, Report, counted
from rlwb.market.sessions import Sessions, join_sessions

_LISTED_CONFLICTS = ("duplicate_conflicting", "overlap_conflicting")
#: Kinds whose worst findings are kept with the bars around them, how many of each, and the bars on each side.
_WINDOWED = ("outlier", "jump", "price_jump", "split_suspected", "stale")
_WORST = 3
_AROUND = 40


@dataclass(frozen=True)
class Window:
    """Bars around a finding, to look at.

    Parameters
    ----------
    finding
        What is in the middle.
    stamps, close
        datetime64[us] and float64 of shape ``(bars,)``.
    at, price
        Index of the bar that it is about, and its price.
    """

    finding: Finding
    stamps: np.ndarray
    close: np.ndarray
    at: int
    price: float


@dataclass(frozen=True)
class Quality:
    """What a check found.

    Parameters
    ----------
    source
        What was checked.
    calendar
        The clock it was laid on.
    bars, rows
        Bars that are stored, and rows that were imported.
    found
        The findings.
    instruments
        Ids, sorted; I of them.
    days
        Days with a bar of any instrument, datetime64[D] of shape ``(D,)``.
    coverage
        Share of the session's ticks that have a price, float64 of shape ``(I, D)``; NaN outside the instrument's days.
    zeros
        Share of the priced ticks whose volume is 0, ``(I, D)``; NaN where there is no price.
    windows
        The worst findings, by kind, with the bars around them.
    """

    source: str
    calendar: Calendar
    bars: int
    rows: int
    found: Report
    instruments: tuple[str, ...] = ()
    days: np.ndarray = field(default_factory=lambda: np.empty(0, "datetime64[D]"))
    coverage: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    zeros: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    windows: Mapping[str, list[Window]] = field(default_factory=dict)

    @property
    def sound(self) -> bool:
        """Whether there is no fault; notes may be there."""
        return self.found.sound

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return {
            "format": 2,
            "source": self.source,
            "sound": self.sound,
            "bars": self.bars,
            "rows": self.rows,
            "instruments": len(self.instruments),
            "days": len(self.days),
            "first": str(self.days[0]) if len(self.days) else None,
            "last": str(self.days[-1]) if len(self.days) else None,
            "calendar": self.calendar.as_dict(),
            "findings": self.found.as_dict()["findings"],
            "coverage": {
                "instruments": list(self.instruments),
                "days": [str(day) for day in self.days],
                "share": np.round(self.coverage, 4),
            },
        }

    def as_text(self, most: int = 3) -> str:
        """Return the report as lines for people, the first `most` findings of each kind named, and twenty splits."""
        instruments, days = counted(len(self.instruments), "instruments"), counted(len(self.days), "days")
        lines = [f"{self.source}: {counted(self.bars, 'bars')} of {instruments} on {days}"]
        for kind, count in self.found.ordered().items():
            unit, _, severity, text, advice = KINDS[kind]
            listed = self.found.listed.get(kind, [])
            lines.append(f"{severity:<6}{counted(count, unit)}: {text} [{kind}]")
            shown = listed[: max(most, LISTED_ALWAYS.get(kind, 0))]
            lines += [f"      {finding.place()}" for finding in shown]
            if kind in LISTED_ALWAYS and count > len(shown):
                lines.append(f"      and {count - len(shown):,} more (--json lists up to --limit)")
            lines.append(f"      do: {advice}")
        lines.append("sound" if self.sound else "not sound")
        return "\n".join(lines)


def check_bars(
    source: str | os.PathLike[str],
    *,
    limit: int = 1000,
    calendar: Calendar | None = None,
    progress: Progress | None = None,
    **reading: Any,
) -> Quality:
    """Check a data set, or any other source by importing it into a temporary one.

    Parameters
    ----------
    limit
        How many findings of a kind are listed; all are counted.
    calendar
        The clock; that of the data set without it. Another source needs one.
    progress
        Called with ``"check"``, the bars that were checked so far, and all; before that as by `import_bars`, where that
        is needed.
    reading
        For another source, the parameters `kind` to `datetime_format` of `import_bars`.

    Raises
    ------
    DataError
        Where there is nothing to check. What is wrong with the bars is a finding.
    """
    if limit < 1:
        raise ConfigError(f"limit is {limit}; give a whole number of at least 1.")
    if is_dataset(source):
        used = next((name for name, value in reading.items() if value), None)
        if used is not None:
            raise ConfigError(f"{source} is a data set, where {used} has no effect; drop it.")
        return _check(Path(source), str(source), limit, calendar, progress)
    if not Path(source).exists():
        raise DataError(f"there is no file or folder {source}; check the path of the bars.")
    if calendar is None:
        raise ConfigError(f"{source} is no data set, so it needs a calendar: --calendar (calendar= in Python).")
    with tempfile.TemporaryDirectory(prefix="rlwb-check-") as folder:
        import_bars([source], Path(folder) / "set", calendar=calendar, progress=progress, **reading)
        return _check(Path(folder) / "set", str(source), limit, None, progress)


def _check(directory: Path, source: str, limit: int, calendar: Calendar | None, progress: Progress | None) -> Quality:
    state = read_state(directory)
    calendar = calendar or state.calendar
    if not state.bars and not state.report.counts:
        raise DataError(f"{source} holds no bars, so there is nothing to check; import some.")
    found = Report(limit=limit)
    _add_imports(directory, state, found)
    damage = Stored(directory, unfinished=True).damage()
    for what in damage.values():
        found.add("damaged", 1, what)
    stored = Stored(directory, leave_out=list(damage), unfinished=True)
    files = {one.number: one.name for one in state.sources}
    builder = PanelBuilder(lambda: stored.parts(calendar), calendar, Building(), found, files)
    panels: list[Sessions] = []
    try:
        for part in builder:
            panels.append(part.without_fields())
            if progress is not None:
                progress("check", sum(int(panel.num_ticks.sum()) for panel in panels), state.bars)
        builder.conclude(join_sessions(panels, found))
    except DataError as error:
        found.add("refused", 1, str(error))
    share, zeros = builder.coverage()
    windows = {kind: _windows(stored, found.listed.get(kind, [])) for kind in _WINDOWED}
    return Quality(
        source,
        calendar,
        state.bars,
        state.rows,
        found,
        tuple(share.index),
        share.columns.to_numpy().astype("datetime64[D]"),
        share.to_numpy(),
        zeros.to_numpy(),
        {kind: found for kind, found in windows.items() if found},
    )


def _add_imports(directory: Path, state: State, found: Report) -> None:
    """Tell what the imports dropped, and which bars contradict each other."""
    if state.incomplete is not None:
        found.add("incomplete", 1, file=state.incomplete.name)
    for kind, count in state.report.counts.items():
        found.count(kind, count)
        if kind not in _LISTED_CONFLICTS:
            found.show(state.report.listed.get(kind, ()))
    names = {one.number: one.name for one in state.sources}
    for row in read_conflicts(directory).itertuples():
        kind = _LISTED_CONFLICTS[int(row.kept_source != row.other_source)]
        pairs = [(name, getattr(row, f"kept_{name}"), getattr(row, f"other_{name}")) for name in MUST]
        differ = ", ".join(f"{name} {kept:g} kept, {other:g} not" for name, kept, other in pairs if kept != other)
        what = f"{differ} (kept: {names[row.kept_source]} row {row.kept_row})"
        stamp = str(row.datetime)
        place = (row.instrument, stamp[:10], stamp, names[row.other_source], row.other_row or None)
        found.show([Finding(kind, what, *place, float(row.other_close))])


def _windows(stored: Stored, listed: list[Finding]) -> list[Window]:
    """Return the worst findings with the bars around them."""
    worst = sorted(listed, key=lambda one: -abs(one.value))[:_WORST]
    return [window for finding in worst for window in _window(stored, finding)]


def _window(stored: Stored, finding: Finding) -> Iterator[Window]:
    """Yield the bars around a finding, unless there is none at its stamp."""
    week = np.timedelta64(7, "D")
    day = np.datetime64(finding.date, "D")
    near = Stored(
        stored.directory,
        instruments=[str(finding.instrument)],
        start=day - week,
        end=day + week,
        leave_out=[name for name in stored.state.files if name not in stored.files],
        unfinished=True,
    )
    bars = join(list(near.parts()))
    at = int(np.searchsorted(bars.stamp, np.datetime64(finding.stamp, "us").astype(np.int64)))
    if at < len(bars):
        begin = max(0, at - _AROUND)
        part = slice(begin, at + _AROUND + 1)
        name = finding.what.partition(" ")[0]
        price = float(bars.values[name if name in ("high", "low") else "close"][at])
        yield Window(finding, bars.stamp[part].view("datetime64[us]"), bars.values["close"][part], at - begin, price)
