"""Are these bars sound? A check lists what loading counts, with every row; a person may then repair what it names."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.bars import MUST, join
from rlwb.market.build import Building, PanelBuilder
from rlwb.market.calendar import Calendar
from rlwb.market.dataset.importing import Progress, imported
from rlwb.market.dataset.state import State, is_dataset, read_conflicts, read_state
from rlwb.market.dataset.stored import Stored
from rlwb.market.findings import KINDS, LISTED_ALWAYS, Finding, Report, counted
from rlwb.market.schema import TRADE_PRICES
from rlwb.market.sessions import Sessions, join_sessions
from rlwb.market.soundness import coverage
from rlwb.market.source import Reading, refuse_unused

__all__ = ["KINDS", "Finding", "Quality", "Window", "check_bars", "repair_bars", "sessions_quality", "spoil_bars"]

#: Kinds whose bars are wrong beyond repair, and that a run would use as they are.
DROPPED = ("outlier", "high_low")
_CONFLICTS = ("duplicate_conflicting", "overlap_conflicting")
#: Kinds whose worst findings are kept with the bars around them, how many of each, and the bars on each side.
_WINDOWED = ("outlier", "jump", "price_jump", "split_suspected", "stale")
_WORST = 3
_AROUND = 40
#: What `spoil_bars` puts in: days an instrument needs, minutes at one price, missing ticks, new shares of one.
_FEWEST, _STALE_MINUTES, _MISSING, _SPLIT = 6, 90, 5, 4


class Window(NamedTuple):
    """Bars around a finding, to look at."""

    finding: Finding
    stamps: np.ndarray  # datetime64[us] of shape (bars,)
    close: np.ndarray  # float64 of shape (bars,)
    at: int  # index of the bar that it is about
    price: float  # that bar's


@dataclass(frozen=True)
class Quality:
    """What a check found, of I instruments on D days."""

    source: str
    calendar: Calendar  # the clock that the bars were laid on
    bars: int  # that are stored
    rows: int  # that were imported
    found: Report
    instruments: tuple[str, ...]  # sorted
    days: np.ndarray  # with a bar of any instrument, datetime64[D] of shape (D,)
    coverage: np.ndarray  # share of the session's ticks with a price, (I, D); NaN outside the instrument's days
    zeros: np.ndarray  # share of the priced ticks whose volume is 0, (I, D); NaN where there is no price
    windows: Mapping[str, list[Window]] = field(default_factory=dict)  # the worst findings by kind, with bars around
    early: np.ndarray | None = None  # sessions that closed early, bool of shape (I, D); None where that is not known

    @property
    def sound(self) -> bool:
        """Whether there is no fault; notes may be there."""
        return self.found.sound

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        days = self.days.astype(str).tolist()
        return {
            "format": 2,
            "source": self.source,
            "sound": self.sound,
            "bars": self.bars,
            "rows": self.rows,
            "instruments": len(self.instruments),
            "days": len(days),
            "first": days[0] if days else None,
            "last": days[-1] if days else None,
            "calendar": self.calendar.as_dict(),
            "fitness": None if self.found.fitness is None else self.found.fitness.as_dict(),
            "findings": self.found.as_dict()["findings"],
            "coverage": {
                "instruments": list(self.instruments),
                "days": days,
                "share": np.round(self.coverage, 4),
            },
        }

    def as_text(self, most: int = 3) -> str:
        """Return the report as lines for people, the first `most` findings of each kind named, and twenty splits."""
        instruments, days = counted(len(self.instruments), "instruments"), counted(len(self.days), "days")
        lines = [f"{self.source}: {counted(self.bars, 'bars')} of {instruments} on {days}"]
        lines += [] if self.found.fitness is None else [self.found.fitness.as_text()]
        for kind, count in self.found.ordered().items():
            unit, _, severity, text, advice = KINDS[kind]
            shown = self.found.listed.get(kind, [])[: max(most, LISTED_ALWAYS.get(kind, 0))]
            lines.append(f"{severity:<6}{counted(count, unit)}: {text} [{kind}]")
            lines += [f"      {finding.place()}" for finding in shown]
            if kind in LISTED_ALWAYS and count > len(shown):
                lines.append(f"      and {count - len(shown):,} more (--json lists up to --limit)")
            lines.append(f"      do: {advice}")
        return "\n".join([*lines, "sound" if self.sound else "not sound"])


def check_bars(
    source: str | os.PathLike[str],
    *,
    limit: int = 1000,
    calendar: Calendar | None = None,
    progress: Progress | None = None,
    **reading: Unpack[Reading],
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
        How another source is read (`rlwb.market.source.Reading`).

    Raises
    ------
    DataError
        Where there is nothing to check. What is wrong with the bars is a finding.
    """
    if limit < 1:
        raise ConfigError(f"limit is {limit}; give a whole number of at least 1.")
    if is_dataset(source):
        refuse_unused(reading, f"{source} is a data set")
        return _check(Path(source), str(source), limit, calendar, progress)
    if not Path(source).exists():
        raise DataError(f"there is no file or folder {source}; check the path of the bars.")
    if calendar is None:
        raise ConfigError(f"{source} is no data set, so it needs a calendar: --calendar (calendar= in Python).")
    with imported(source, calendar=calendar, progress=progress, **reading) as done:
        return _check(done.directory, str(source), limit, None, progress)


def sessions_quality(sessions: Sessions, source: str = "sessions") -> Quality:
    """Return what is known of loaded sessions in the form of a check: coverage, and what loading them found."""
    close, volume = sessions.fields["close"], sessions.fields["volume"]
    priced = np.isfinite(close) & sessions.in_session
    columns = {
        "instrument": sessions.instruments,
        "day": sessions.dates,
        "length": sessions.num_ticks,
        "priced": priced.sum(axis=1),
        "zeros": (priced & (volume == 0)).sum(axis=1),
    }
    share, zeros, length = coverage(pd.DataFrame(columns))
    days, bars = share.columns.to_numpy().astype("datetime64[D]"), int(priced.sum())
    found = sessions.report
    rows = found.totals.get("bars_read", bars)
    instruments = tuple(map(str, share.index))
    return Quality(
        source,
        sessions.calendar,
        bars,
        rows,
        found,
        instruments,
        days,
        share.to_numpy(float),
        zeros.to_numpy(float),
        early=length.to_numpy(float) < sessions.calendar.num_ticks,
    )


def _check(directory: Path, source: str, limit: int, calendar: Calendar | None, progress: Progress | None) -> Quality:
    state = read_state(directory)
    calendar = calendar or state.calendar
    if not state.rows:
        raise DataError(f"{source} holds no bars, so there is nothing to check; import some.")
    found = Report(limit=limit)
    files = {one.number: one.name for one in state.sources}
    found.total("bars_read", state.rows - state.bars)
    _add_imports(directory, state, files, found)
    damage = Stored(directory, unfinished=True).damage()
    for what in damage.values():
        found.add("damaged", 1, what)
    stored = Stored(directory, leave_out=list(damage), unfinished=True)
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
    share, zeros, length = builder.coverage()
    days = share.columns.to_numpy().astype("datetime64[D]")
    windows = {}
    for kind in _WINDOWED:
        worst = sorted(found.listed.get(kind, []), key=lambda one: -abs(one.value))[:_WORST]
        windows[kind] = [window for one in worst if (window := _window(stored, one)) is not None]
    return Quality(
        source,
        calendar,
        state.bars,
        state.rows,
        found,
        tuple(share.index),
        days,
        share.to_numpy(),
        zeros.to_numpy(),
        {kind: around for kind, around in windows.items() if around},
        early=length.to_numpy(float) < calendar.num_ticks,
    )


def _add_imports(directory: Path, state: State, files: Mapping[int, str], found: Report) -> None:
    """Tell what the imports dropped, and which bars contradict each other."""
    if state.incomplete is not None:
        found.add("incomplete", 1, file=state.incomplete.name)
    for kind, count in state.report.counts.items():
        found.count(kind, count)
        if kind not in _CONFLICTS:
            found.show(state.report.listed.get(kind, ()))
    for row in read_conflicts(directory).itertuples():
        kind = _CONFLICTS[int(row.kept_source != row.other_source)]
        pairs = [(name, getattr(row, f"kept_{name}"), getattr(row, f"other_{name}")) for name in MUST]
        differ = ", ".join(f"{name} {kept:g} kept, {other:g} not" for name, kept, other in pairs if kept != other)
        what = f"{differ} (kept: {files[row.kept_source]} row {row.kept_row})"
        stamp = str(row.datetime)
        place = (row.instrument, stamp[:10], stamp, files[row.other_source], row.other_row or None)
        found.show([Finding(kind, what, *place, float(row.other_close))])


def _window(stored: Stored, finding: Finding) -> Window | None:
    """Return the bars around a finding, unless there is none at its stamp."""
    day, week = np.datetime64(finding.date, "D"), np.timedelta64(7, "D")
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
    if at == len(bars):
        return None
    begin = max(0, at - _AROUND)
    part = slice(begin, at + _AROUND + 1)
    name = finding.what.partition(" ")[0]
    price = float(bars.values[name if name in ("high", "low") else "close"][at])
    return Window(finding, bars.stamp[part].view("datetime64[us]"), bars.values["close"][part], at - begin, price)


def repair_bars(
    bars: pd.DataFrame, quality: Quality, *, drop: Collection[str] = DROPPED, splits: bool = True
) -> tuple[pd.DataFrame, Report]:
    """Return the bars without those that findings name, and with a factor for each suspected split.

    Parameters
    ----------
    bars
        The bars that were checked, in the schema, as `rlwb.market.read_bars` returns them from the data set.
    quality
        Their check; every finding of the kinds must be listed, so give it a limit that is high enough.
    drop
        Kinds of findings whose bars are left out; a run then sees a tick without a trade.
    splits
        Whether bars before a suspected split get a column ``factor`` by which the days can be compared
        (`rlwb.market.actions`). The prices stay as they were traded.

    Returns
    -------
    bars : pandas.DataFrame
        The repaired ones.
    report : Report
        What was done, by reason.
    """
    unknown = next((kind for kind in drop if kind not in KINDS), None)
    if unknown is not None:
        raise ConfigError(f"there is no kind of finding {unknown!r}; choose from {', '.join(KINDS)}.")
    listed, report = quality.found.listed, Report()
    for kind in (*drop, *(["split_suspected"] if splits else [])):
        count, known = quality.found.counts.get(kind, 0), len(listed.get(kind, []))
        if known < count:
            raise DataError(
                f"{count:,} findings of {kind} were counted and {known:,} are listed; check again with a higher limit."
            )
    for kind in drop:
        named = [(one.instrument, pd.Timestamp(one.stamp)) for one in listed.get(kind, []) if one.stamp]
        if named:
            gone = pd.MultiIndex.from_arrays([bars["instrument"].astype(str), bars["datetime"]]).isin(named)
            report.add("finding_dropped", int(gone.sum()), f"{kind} {listed[kind][0].place()}")
            bars = bars[~gone]
    bars = bars.reset_index(drop=True)
    for one in listed.get("split_suspected", []) if splits else []:
        before = (bars["instrument"].astype(str) == one.instrument) & (bars["datetime"] < pd.Timestamp(one.date))
        factor = bars["factor"] if "factor" in bars else pd.Series(1.0, bars.index)
        bars = bars.assign(factor=factor.mask(before, factor / one.value))
        report.add("factor_added", int(before.sum()), one.place())
    return bars, report


def spoil_bars(bars: pd.DataFrame, *, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a copy of the bars with one or more of each fault, and where they are, to hold a check against.

    Parameters
    ----------
    bars
        Sound bars in the schema, sorted by instrument and stamp, of at least 6 days an instrument; regular in time.
    seed
        Chooses the instruments and stamps.

    Returns
    -------
    bars : pandas.DataFrame
        The spoilt ones: rows are changed, missing, doubled, and added on a weekend.
    truth : pandas.DataFrame
        One row a fault: kind (of `rlwb.market.findings.KINDS`), instrument, date (``YYYY-MM-DD``).
    """
    rng = np.random.default_rng(seed)
    bars = bars.reset_index(drop=True)
    name, day = bars["instrument"].astype(str), bars["datetime"].dt.normalize()
    fewest = int(day.groupby(name).nunique().min())
    if fewest < _FEWEST:
        raise DataError(f"an instrument has bars of {fewest} days; give bars of at least {_FEWEST}.")
    truth: list[tuple[str, str, str]] = []
    spoilt, prices = bars.copy(), list(TRADE_PRICES)
    taken, gone = (np.zeros(len(bars), dtype=bool) for _ in range(2))

    def choose(kind: str, length: int = 1) -> np.ndarray:
        """Return consecutive rows of one session, away from its edges and from what is spoilt already."""
        while True:
            begin = int(rng.integers(3, len(bars) - length - 3))
            rows = np.arange(begin - 3, begin + length + 3)
            if name[rows].nunique() == 1 and day[rows].nunique() == 1 and not taken[rows].any():
                taken[rows] = True
                truth.append((kind, name[begin], f"{day[begin]:%Y-%m-%d}"))
                return rows[3:-3]

    for _ in range(3):
        spoilt.loc[choose("price_zero"), prices] = 0.0
        spoilt.loc[choose("outlier"), prices] *= 1.15
        spoilt.loc[choose("high_low"), "high"] *= 0.9
        spoilt.loc[choose("volume_negative"), "volume"] = -1.0
    step = float(bars["datetime"].diff().dt.total_seconds().div(60).loc[lambda gap: gap > 0].min())
    stale = choose("stale", max(4, int(np.ceil(_STALE_MINUTES / step))))
    spoilt.loc[stale, prices] = float(bars.at[stale[0], "close"])
    gone[choose("missing_tick", _MISSING)] = True
    split = str(rng.choice(name.unique()))
    days = np.unique(day[name == split])
    first = days[len(days) // 2]
    after = (name == split) & (day >= first)
    spoilt.loc[after, prices] /= _SPLIT
    spoilt.loc[after, "volume"] *= _SPLIT
    truth.append(("split_suspected", split, str(first)[:10]))
    doubled, told_twice = choose("duplicate_identical"), choose("duplicate_conflicting")
    other = spoilt.loc[told_twice].assign(volume=lambda rows: rows["volume"] + 1)
    moved = choose("closed_day")
    to_saturday = pd.to_timedelta(5 - day[moved].dt.dayofweek, unit="D")
    weekend = spoilt.loc[moved].assign(datetime=bars.loc[moved, "datetime"] + to_saturday)
    truth[-1] = (*truth[-1][:2], f"{weekend['datetime'].iloc[0]:%Y-%m-%d}")
    spoilt = pd.concat([spoilt[~gone], spoilt.loc[doubled], other, weekend], ignore_index=True)
    return spoilt, pd.DataFrame(truth, columns=["kind", "instrument", "date"])
