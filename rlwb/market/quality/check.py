"""Are these bars sound? Every instrument, every day, every row that is not."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.calendar import Calendar
from rlwb.market.clock import text_of
from rlwb.market.closes import early_lengths
from rlwb.market.dataset.conflicts import read_conflicts
from rlwb.market.dataset.importing import Progress, import_bars
from rlwb.market.dataset.journal import is_pending
from rlwb.market.dataset.layout import is_dataset, list_instruments
from rlwb.market.dataset.reading import lacking, read_instrument
from rlwb.market.dataset.state import State, read_state
from rlwb.market.quality.findings import Finding, Findings
from rlwb.market.quality.instrument import Seen, look_at, unpack
from rlwb.market.quality.kinds import KINDS
from rlwb.market.report import counted

_SPARSE = 0.5
_BREAK = float(np.log(8.0))
_MOST_OTHERS = 0.5
#: Findings of a kind that are named where each of them is to be looked at.
_SHOWN = {"split_suspected": 20}
_LISTED_CONFLICTS = ("duplicate_conflicting", "overlap_conflicting")


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
    instruments
        Ids, sorted; I of them.
    days
        Days with a bar of any instrument, datetime64[D] of shape ``(D,)``.
    coverage
        Share of the session's ticks that have a price, float64 of shape ``(I, D)``; NaN outside the instrument's days.
    zeros
        Share of the priced ticks whose volume is 0, ``(I, D)``; NaN where there is no price.
    found
        The findings.
    """

    source: str
    calendar: Calendar
    bars: int
    rows: int
    instruments: tuple[str, ...]
    days: np.ndarray
    coverage: np.ndarray
    zeros: np.ndarray
    found: Findings

    @property
    def sound(self) -> bool:
        """Whether there is no fault; notes may be there."""
        return not any(KINDS[kind].gravity == "fault" for kind in self.found.counts)

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        kinds = {
            kind: {
                "count": self.found.counts[kind],
                **KINDS[kind]._asdict(),
                "listed": len(self.found.listed.get(kind, ())),
            }
            for kind in KINDS
            if kind in self.found.counts
        }
        return {
            "format": 1,
            "source": self.source,
            "sound": self.sound,
            "bars": self.bars,
            "rows": self.rows,
            "instruments": len(self.instruments),
            "days": len(self.days),
            "first": str(self.days[0]) if len(self.days) else None,
            "last": str(self.days[-1]) if len(self.days) else None,
            "calendar": self.calendar.as_dict(),
            "kinds": kinds,
            "findings": [finding.as_dict() for kind in KINDS for finding in self.found.listed.get(kind, ())],
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
        for kind, (unit, gravity, text, advice) in KINDS.items():
            if kind in self.found.counts:
                count, listed = self.found.counts[kind], self.found.listed.get(kind, ())
                lines.append(f"{gravity:<6}{counted(count, unit)}: {text} [{kind}]")
                shown = listed[: max(most, _SHOWN.get(kind, 0))]
                lines += [f"      {finding.place()}" for finding in shown]
                if kind in _SHOWN and count > len(shown):
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


def _check(
    directory: Path,
    source: str,
    limit: int,
    calendar: Calendar | None,
    progress: Progress | None,
) -> Quality:
    state = read_state(directory)
    calendar = calendar or state.calendar
    found = Findings(limit)
    _imports(directory, state, found)
    names = {one.number: one.name for one in state.sources}
    seen: list[Seen] = []
    there = 0
    for instrument, folder in list_instruments(directory).items():
        if progress is not None:
            progress("check", there, state.bars)
        try:
            block = read_instrument(folder, state.columns)
        except DataError as error:
            found.count("damaged")
            found.add([Finding("damaged", instrument, what=str(error))])
            continue
        if block is not None and len(block):
            there += len(block)
            try:
                seen.append(look_at(instrument, block, calendar, names, found))
            except DataError as error:
                found.count("refused")
                found.add([Finding("refused", instrument, what=str(error))])
    if progress is not None:
        progress("check", there, state.bars)
    if there != state.bars and "damaged" not in found.counts:
        found.count("damaged")
        found.add([Finding("damaged", what=lacking(directory, state, there))])
    if not state.bars and not found.counts:
        raise DataError(f"{source} holds no bars, so there is nothing to check; import some.")
    days, coverage, zeros = _together(seen, calendar, found)
    rows = sum(one.rows for one in state.sources)
    return Quality(
        source, calendar, state.bars, rows, tuple(one.instrument for one in seen), days, coverage, zeros, found
    )


def _imports(directory: Path, state: State, found: Findings) -> None:
    """Tell what the imports dropped, and which bars contradict each other."""
    if state.incomplete is not None or is_pending(directory):
        found.count("incomplete")
        found.add([Finding("incomplete", file=state.incomplete.name if state.incomplete else None)])
    for source in state.sources:
        for reason, count in source.report.counts.items():
            if reason in KINDS:
                found.count(reason, count)
                if reason not in _LISTED_CONFLICTS:
                    found.add([Finding(reason, value=count, what=source.report.examples[reason], file=source.name)])
    names = {one.number: one.name for one in state.sources}
    for row in read_conflicts(directory).itertuples():
        kind = _LISTED_CONFLICTS[int(row.kept_source != row.other_source)]
        pairs = [
            (n, getattr(row, f"kept_{n}"), getattr(row, f"other_{n}"))
            for n in ("open", "high", "low", "close", "volume")
        ]
        differ = ", ".join(f"{name} {kept:g} kept, {other:g} not" for name, kept, other in pairs if kept != other)
        what = f"{differ} (kept: {names[row.kept_source]} row {row.kept_row})"
        stamp = str(row.datetime)
        found.add(
            [
                Finding(
                    kind,
                    row.instrument,
                    stamp[:10],
                    stamp,
                    row.other_close,
                    what,
                    names[row.other_source],
                    row.other_row,
                )
            ]
        )


def _together(seen: list[Seen], calendar: Calendar, found: Findings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compare the instruments: early closes, missing ticks and sessions, the scale of volume.

    Returns days, coverage and zeros as `Quality` has them.
    """
    days = np.unique(np.concatenate([one.days for one in seen])) if seen else np.empty(0, np.int64)
    length = _lengths(seen, days, calendar)
    coverage = np.full((len(seen), len(days)), np.nan)
    zeros = np.full_like(coverage, np.nan)
    volume = np.full_like(coverage, np.nan)
    have = np.zeros(coverage.shape, dtype=bool)
    for row, one in enumerate(seen):
        column = np.searchsorted(days, one.days)
        priced = unpack(one.priced, calendar.num_ticks)
        inside = np.arange(calendar.num_ticks)[None, :] < length[column][:, None]
        count, late = (priced & inside).sum(axis=1), (priced & ~inside).sum(axis=1)
        coverage[row, column[0] : column[-1] + 1] = 0.0
        coverage[row, column] = count / length[column]
        with np.errstate(invalid="ignore"):
            zeros[row, column] = one.zeros / priced.sum(axis=1)
        volume[row, column] = one.volume / length[column]
        have[row, column] = count > 0
        _missing(one, priced, inside, count, length[column], calendar, found)
        found.count("after_early_close", int(late.sum()))
    _absent(seen, days, have, coverage, found)
    _volume_breaks(days, volume, found)
    return days.astype("datetime64[D]"), coverage, zeros


def _lengths(seen: list[Seen], days: np.ndarray, calendar: Calendar) -> np.ndarray:
    """Return the ticks of each day, early closes applied as a run applies them."""
    dates = days.astype("datetime64[D]")
    stated = calendar.ticks_on(dates).astype(np.int64)
    if not len(days) or not calendar.infer_early_close_minutes:
        return stated
    priced = np.zeros((len(days), calendar.num_ticks), dtype=np.int64)
    traded = np.zeros_like(priced)
    for one in seen:
        column = np.searchsorted(days, one.days)
        priced[column] += unpack(one.priced, calendar.num_ticks)
        traded[column] += unpack(one.traded, calendar.num_ticks)
    silent = traded.sum(axis=1) == 0
    breadth = np.where(silent[:, None], priced, traded)
    auction = bool(np.mean([one.closing_auction for one in seen]) > 0.5)
    length, early = early_lengths(breadth, calendar, closing_auction=auction)
    early &= stated == calendar.num_ticks
    return np.where(early, length, stated)


def _missing(
    one: Seen,
    priced: np.ndarray,
    inside: np.ndarray,
    count: np.ndarray,
    length: np.ndarray,
    calendar: Calendar,
    found: Findings,
) -> None:
    lacking = inside & ~priced
    sparse = (count < _SPARSE * length) | (count == 0)
    missing = np.where(sparse, 0, lacking.sum(axis=1))
    found.count("sparse_session", int(sparse.sum()))
    found.count("missing_tick", int(missing.sum()))
    label = calendar.tick_seconds if calendar.label == "end" else 0
    for kind, rows in (("sparse_session", np.flatnonzero(sparse)), ("missing_tick", np.flatnonzero(missing))):
        for day in rows[: max(0, found.room(kind))].tolist():
            date = str(one.days[day].astype("datetime64[D]"))
            if kind == "sparse_session":
                what = f"{count[day]} of {length[day]} ticks have a price"
                found.add([Finding(kind, one.instrument, date, value=float(count[day]), what=what)])
                continue
            first = text_of(int(calendar.tick_start[np.argmax(lacking[day])]) + label)
            what = f"{counted(int(missing[day]), 'ticks')} of the session, this is the first"
            found.add([Finding(kind, one.instrument, date, f"{date} {first}", float(missing[day]), what)])


def _absent(seen: list[Seen], days: np.ndarray, have: np.ndarray, coverage: np.ndarray, found: Findings) -> None:
    """Tell of days without the instrument, between its first and last, on which most others of then trade."""
    alive = np.isfinite(coverage)
    with np.errstate(invalid="ignore"):
        common = have.sum(axis=0) >= _MOST_OTHERS * alive.sum(axis=0)
    for row, one in enumerate(seen):
        gaps = np.flatnonzero(alive[row] & ~have[row] & common & ~np.isin(days, one.days))
        found.count("missing_session", len(gaps))
        dates = days[gaps[: max(0, found.room("missing_session"))]].astype("datetime64[D]")
        found.add([Finding("missing_session", one.instrument, str(date), value=1.0) for date in dates])


def _volume_breaks(days: np.ndarray, volume: np.ndarray, found: Findings) -> None:
    """Tell of days on which the median instrument's volume is over 8 times that of its day before, or under."""
    ratios: list[list[float]] = [[] for _ in days]
    for row in volume:
        there = np.flatnonzero(np.isfinite(row))
        now, before = row[there[1:]], row[there[:-1]]
        both = (now > 0) & (before > 0)
        for day, ratio in zip(there[1:][both].tolist(), np.log(now[both] / before[both]).tolist(), strict=True):
            ratios[day].append(ratio)
    for day, values in enumerate(ratios):
        middle = float(np.median(values)) if values else 0.0
        if abs(middle) > _BREAK:
            date = str(days[day].astype("datetime64[D]"))
            found.count("volume_break")
            what = f"median volume a tick times {np.exp(middle):.3g} over {counted(len(values), 'instruments')}"
            found.add([Finding("volume_break", None, date, value=float(np.exp(middle)), what=what)])
