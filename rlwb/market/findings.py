"""What reading, building and checking bars found: one list of findings, counted by kind.

A `Report` is passed to everything that reads or changes bars. Each step counts all it finds under a key of `KINDS`, and
lists the first of each kind by instrument, date, stamp, file and row (loading lists one, a check 1,000).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rlwb.market.fitness import Fitness


class Kind(NamedTuple):
    """One kind of finding: its unit, whether it is dropped, repaired or noted, fault or note, its text, what to do."""

    unit: str
    effect: str
    severity: str
    text: str
    advice: str = "nothing"


#: name | unit | effect | severity | text | advice
_TABLE = """
damaged | files | noted | fault | cannot be read | import its sources into a new folder
incomplete | sources | noted | fault | an import was cut short | run the same import again
refused | sources | noted | fault | loading refuses the bars | follow what the sentence says
instrument_missing | bars | dropped | fault | no instrument | fill the column instrument
datetime_missing | bars | dropped | fault | no stamp, or one in an hour that the clocks show twice or never \
    | fill the column datetime
closed_day | bars | dropped | fault | on a weekend or a day the calendar calls closed | correct the calendar if not so
off_session | bars | dropped | note | outside the session's segments | correct the calendar if they belong to it
auction | bars | dropped | note | stamped at the session's edge, outside its ticks (auctions) \
    | correct the calendar (hours, label) if they belong to the session
off_session_many | bars | noted | fault | outside the session on days whose session lacks bars (which are counted \
    by off_session too) | set the hours and the zone of the calendar, or --source-timezone at the import
clock_shifted | sessions | noted | fault | lie earlier or later than the calendar's hours: as many bars outside at one \
    end as are missing at the other | set the zone of the stamps (--source-timezone), and import the sessions again; \
    an hour for months is summer time; if the hours of these days were others, leave the days out
instrument_outside | instruments | noted | fault | no bar lies inside the session \
    | set the calendar of its market or the zone of its stamps, or leave it out
bars_apart | instruments | noted | fault | its bars are longer than the ticks \
    | leave it out, or fetch bars of the ticks' length
daily_bars | instruments | noted | fault | one bar a day: daily bars | leave it out, or fetch bars of the ticks' length
hours_missing | days | noted | fault | hardly anybody trades in the first or the last half hour or more, not like an \
    early close beside a holiday | fetch the days again, or check the clock; state the day in early_closes if it \
    closed early
off_grid | bars | dropped | fault | stamp not on the tick grid \
    | correct the calendar (label, bar length), or move near ones onto it (round_seconds)
stamp_rounded | bars | repaired | note | stamp beside the tick grid (moved onto it, as round_seconds asks)
after_early_close | bars | dropped | note | after an early close | correct the calendar if not so
duplicate_identical | bars | dropped | note | repeats an earlier bar exactly
duplicate_conflicting | bars | dropped | fault | another bar of the same tick follows (the last is kept) \
    | see which row is right
hour_repeated | bars | dropped | note | of an hour that the clocks show twice (its second pass is kept) \
    | state a calendar in UTC to keep both passes
overlap_identical | bars | dropped | note | also in a source imported earlier, with the same values
overlap_conflicting | bars | dropped | fault | differ from the bar of another source (see the conflicts) \
    | see which source is right; --on-conflict chooses at import
file_repeated | files | dropped | note | same content as another file
unsorted | bars | repaired | note | earlier than the bar before it (sorted)
price_zero | bars | repaired | fault | a price of 0 (made missing) | ask the source for the bar
price_negative | bars | repaired | fault | a negative price (made missing) | ask the source for the bar
price_not_finite | bars | repaired | fault | a price of NaN or infinity (missing) | ask the source for the bar
high_low | bars | repaired | fault | open or close outside low..high (range widened) | see whether columns are exchanged
quote_crossed | bars | repaired | fault | bid above ask (quote made missing) | ask the source for the bar
volume_negative | bars | repaired | fault | a negative or infinite volume or size (made missing) \
    | ask the source for the bar
volume_missing | bars | noted | note | a price without a volume | volume caps and VWAP cannot use these bars
quote_only | bars | noted | note | a quote and no trade
missing_tick | ticks | noted | note | no price (no-trade ticks) \
    | nothing for thin instruments; else fetch the days again
missing_session | sessions | noted | note | no bar on a day on which most others trade \
    | fetch the days again, or accept a halt
sparse_session | sessions | dropped | note | fewer ticks with a price than min_coverage asks | set min_coverage
early_close_stated | dates | noted | note | closed early as the calendar states
early_close_inferred | dates | noted | note | closed early (nothing traded later)
no_volume | sessions | noted | note | nothing traded: all volumes are 0 or missing
zero_volume | bars | noted | note | a price and a volume of 0 | nothing; a volume cap fills nothing there
range_without_volume | bars | noted | fault | high above low and a volume of 0: volume was lost \
    | ask another source for the volume; caps, VWAP and POV use it. Leave it empty for an index or a rate
volume_lost | sessions | noted | fault | the price moves and all volumes are 0 or missing \
    | ask another source for the volume; caps, VWAP and POV use it. Leave an index out
volume_running_total | sessions | noted | fault | volume never falls within the session: a running total of the day \
    | subtract the volume of the bar before
volume_units | sessions | noted | fault | volume is on another scale than on the days around, and the price's range \
    is not | bring it to one unit (lots of 100 to shares), or leave the days out
session_copied | sessions | noted | fault | repeats another session of the instrument, bar for bar \
    | fetch the day again
session_twin | sessions | noted | fault | repeats that of another instrument, bar for bar, or up to a constant factor \
    | leave one of the two out, or fetch it again; orders would count twice
columns_exchanged | sessions | noted | fault | columns of prices or volume stand for each other \
    | name the columns as they are (--column theirs=ours), and import again
session_reversed | sessions | noted | fault | the bars run backwards in time | sort the source, or fetch the day again
bars_missing | sessions | noted | fault | far fewer bars than the instrument usually has | fetch the days again
stale | runs | noted | note | all prices of an hour or more in a row are one and the same \
    | see whether it was halted, locked at a price limit, or the feed stood still
outlier | bars | noted | fault | a price far from its neighbours on both sides, which return \
    | compare with another source; a bad print moves the benchmark and is a price nobody could trade at
jump | bars | noted | fault | the close moves over 10 % within a session and stays, with no more volume than usual \
    | compare with another source; leave the day out if it is not real
price_jump | sessions | noted | fault | opens over 30 % away from the last close, not like a split, nor as busy as on \
    news | compare with another source; a change of units or of the instrument behind the id looks so
price_move | moves | noted | note | the price moves that far on a busy day or after weeks without trading, as on news \
    | compare with another source if in doubt
price_units | sessions | noted | fault | prices are on another scale than before and after \
    | bring them to one unit (pence to pounds), or leave the days out
factor_contradicted | sessions | noted | fault | the factor changes by a fifth or more and the price does not \
    (are prices adjusted?) | set prices='adjusted' if they are
split_suspected | sessions | noted | fault | opens like after a split, by price and volume (not adjusted; see \
    docs/data/actions.md) | nothing is adjusted: state the splits in a column factor, load adjusted bars, or leave the \
    earlier days out; as it is, today's prices and volumes are compared with yesterday's across the split
volume_break | dates | noted | fault | median volume is over 8 times larger or smaller than the day before \
    | the source changed its feed or unit; use the days on one side of it only
label_suspect | sessions | noted | fault | stamps look as if the calendar's label were the wrong one \
    | use the other label; a data set must be imported again
instrument_padded | instruments | repaired | note | blanks around the id (taken off)
instrument_without_bars | instruments | dropped | note | listed, but without any prices
instrument_unlisted | instruments | noted | note | has files, but is not listed (left out)
outside_listing | bars | dropped | note | outside the dates for which the instrument is listed
no_bar | steps | noted | note | of the source's calendar without any value (no bar)
price_adjusted | bars | noted | note | adjusted by a factor other than 1, left so
factor_applied | bars | noted | note | brought back to traded prices and volumes by their factor
factor_added | bars | repaired | note | before a suspected split (given a factor, prices left as traded)
finding_dropped | bars | dropped | note | named by a check (left out as was asked for)
factor_missing | bars | repaired | fault | no factor above 0 (prices and volumes made missing)
bar_unfinished | bars | noted | note | end before their interval does
cross_trade | trades | dropped | note | executions in auctions, outside prices and volumes of bars
column_absent | columns | noted | note | of the schema are not in the source (missing)
column_ignored | columns | noted | note | not part of the schema
file_ignored | files | noted | note | not a file of bars
file_empty | files | noted | note | holds no bars (a header alone)
cache_rebuilt | caches | noted | note | damaged, built again
"""
_ROWS = ([" ".join(cell.split()) for cell in line.split("|")] for line in _TABLE.strip().splitlines())
KINDS: dict[str, Kind] = {name: Kind(*cells) for name, *cells in _ROWS}
#: Kinds that drop rows after a reader gave them.
ROWS_DROPPED = [
    name
    for name, kind in KINDS.items()
    if (kind.unit, kind.effect) == ("bars", "dropped") and name not in ("outside_listing", "finding_dropped")
]

#: Kinds of which more are listed than the limit, because each of them is to be looked at.
LISTED_ALWAYS = {"split_suspected": 20}


def printable(text: str) -> str:
    """Return text on one line: whatever cannot be shown is written as Python escapes it."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def counted(count: int, unit: str) -> str:
    """Return a count and its unit, given as plural, in words: ``1 bar``, ``2,000 bars``."""
    head, space, rest = unit.partition(" ")
    return f"{count:,} {head.removesuffix('s') if count == 1 else head}{space}{rest}"


class Finding(NamedTuple):
    """One finding, and where it is."""

    kind: str  # a key of `KINDS`
    what: str = ""  # the value that is wrong, in words
    instrument: str | None = None
    date: str | None = None  # YYYY-MM-DD
    stamp: str | None = None  # as text
    file: str | None = None  # where the bar came from
    row: int | None = None  # there, counted from 1
    value: float = float("nan")  # the price, volume, return, ratio or number that it is about
    last: str | None = None  # the last date of several in a row, of which `date` is the first

    def place(self) -> str:
        """Return where it is and what it is, in words: ``A 2024-01-03 10:05:00 (a.csv row 6): close``."""
        span = f"{self.date} to {self.last}" if self.last else self.stamp or self.date
        where = " ".join(part for part in (self.instrument, span) if part)
        origin = f"{self.file or ''}{'' if self.row is None else f' row {self.row}'}"
        if origin:
            where = f"{where} ({origin})" if where else origin
        return printable(": ".join(part for part in (where, self.what) if part))


class Report:
    """Findings of all steps that bars went through.

    Parameters
    ----------
    totals
        Numbers that are no findings: bars read and kept, sessions built.
    limit
        How many findings of each kind are in `listed`, by kind; `counts` has the numbers of all.
    """

    def __init__(self, totals: Mapping[str, int] | None = None, *, limit: int = 1) -> None:
        self.limit = limit
        self.counts: dict[str, int] = {}
        self.listed: dict[str, list[Finding]] = {}
        self.totals: dict[str, int] = dict(totals or {})
        self.fitness: Fitness | None = None  # of the bars, when they were laid on a clock

    def add(self, kind: str, count: int = 1, what: str = "", **place: Any) -> None:
        """Count `count` findings, and list the first, of which `what` and `place` are fields; 0 adds nothing.

        An unknown kind is a `KeyError`.
        """
        self.count(kind, count)
        if count:
            self.show([Finding(kind, what, **place)])

    def tell(
        self, kind: str, rows: np.ndarray, describe: Callable[[int], Finding], *, count: int | None = None
    ) -> None:
        """Count a finding for each of `rows`, int of shape ``(n,)``, or `count`; list those that there is room for."""
        self.count(kind, len(rows) if count is None else count)
        self.show(describe(row) for row in rows[: self.room(kind)].tolist())

    def count(self, kind: str, count: int) -> None:
        """Count findings without listing any."""
        KINDS[kind]
        if count:
            self.counts[kind] = self.counts.get(kind, 0) + int(count)

    def show(self, findings: Iterable[Finding]) -> None:
        """List findings that are counted already, as far as there is room."""
        for finding in findings:
            if self.room(finding.kind):
                self.listed.setdefault(finding.kind, []).append(finding)

    def room(self, kind: str) -> int:
        """Return how many more findings of the kind are listed."""
        return max(0, max(self.limit, LISTED_ALWAYS.get(kind, 0)) - len(self.listed.get(kind, ())))

    def total(self, name: str, number: int) -> None:
        """Add to one of the totals."""
        self.totals[name] = self.totals.get(name, 0) + int(number)

    def absorb(self, other: Report) -> None:
        """Add the findings and totals of another report."""
        for kind, count in other.counts.items():
            self.count(kind, count)
            self.show(other.listed.get(kind, ()))
        for name, number in other.totals.items():
            self.total(name, number)
        self.fitness = self.fitness or other.fitness

    def merge(self, other: Report) -> Report:
        """Return a new report with the findings of both, those of `self` first."""
        merged = Report(limit=max(self.limit, other.limit))
        merged.absorb(self)
        merged.absorb(other)
        return merged

    @property
    def examples(self) -> dict[str, str]:
        """The first finding of each kind in words."""
        return {kind: found[0].place() for kind, found in self.listed.items() if found}

    @property
    def sound(self) -> bool:
        """Whether nothing was found but notes."""
        return not any(KINDS[kind].severity == "fault" for kind in self.counts)

    def problems(self) -> dict[str, int]:
        """Return the counts of what was dropped or repaired, which strict loading refuses."""
        return {kind: count for kind, count in self.ordered().items() if KINDS[kind].effect != "noted"}

    def refusal(self) -> str:
        """Return the problems as one sentence's end; empty without any."""
        return "; ".join(map(self.sentence, self.problems()))

    def ordered(self) -> dict[str, int]:
        """Return the counts in the order of `KINDS`, whatever was found first."""
        return {kind: self.counts[kind] for kind in KINDS if kind in self.counts}

    def sentence(self, kind: str) -> str:
        """Return one kind's findings in words, with the first of them."""
        text = f"{counted(self.counts[kind], KINDS[kind].unit)}: {KINDS[kind].text}"
        places = [found.place() for found in self.listed.get(kind, ())[: LISTED_ALWAYS.get(kind, 1)]]
        return f"{text}, first: {'; '.join(places)}" if any(places) else text

    def as_text(self) -> str:
        """Return the report as lines for people: totals, then dropped, repaired and noted findings."""
        lines = [", ".join(counted(count, name.replace("_", " ")) for name, count in self.totals.items())]
        lines += [] if self.fitness is None else [self.fitness.as_text()]
        for effect in ("dropped", "repaired", "noted"):
            lines += [f"{effect:<9}{self.sentence(kind)}" for kind in self.ordered() if KINDS[kind].effect == effect]
        return "\n".join(line for line in lines if line) or "nothing to report"

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold and `from_dict` takes; what a finding lacks is left out."""
        findings = {}
        for kind, count in self.ordered().items():
            listed = [
                {name: value for name, value in finding._asdict().items() if value is not None and value == value}
                for finding in self.listed.get(kind, ())
            ]
            example = self.examples.get(kind, "")
            findings[kind] = {"count": count, **KINDS[kind]._asdict(), "example": example, "listed": listed}
        fitness = {} if self.fitness is None else {"fitness": self.fitness.as_dict()}
        return {"totals": dict(self.totals), **fitness, "limit": self.limit, "findings": findings}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """Rebuild a report from `as_dict`."""
        report = cls(values["totals"], limit=values["limit"])
        report.fitness = Fitness.from_dict(values["fitness"]) if "fitness" in values else None
        for kind, found in values["findings"].items():
            report.count(kind, int(found["count"]))
            report.listed[kind] = [Finding(**finding) for finding in found["listed"]]
        return report

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.as_dict() == other.as_dict()

    def __repr__(self) -> str:
        return f"Report({self.counts})"
