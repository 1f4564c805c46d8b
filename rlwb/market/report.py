"""What reading and validation dropped, repaired and noticed, counted by reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Effect = Literal["dropped", "repaired", "noted"]


class Reason(NamedTuple):
    """One kind of finding: what it counts, what is done about it, and a sentence for people."""

    unit: str
    effect: Effect
    text: str


REASONS: dict[str, Reason] = {
    "instrument_missing": Reason("bars", "dropped", "no instrument"),
    "datetime_missing": Reason("bars", "dropped", "no stamp, or one in an hour that the clocks show twice or never"),
    "closed_day": Reason("bars", "dropped", "on a weekend or a day the calendar calls closed"),
    "off_session": Reason("bars", "dropped", "outside the session's segments"),
    "auction": Reason("bars", "dropped", "stamped at the session's edge, outside its ticks (auctions)"),
    "off_grid": Reason("bars", "dropped", "stamp not on the tick grid"),
    "after_early_close": Reason("bars", "dropped", "after an early close"),
    "duplicate_identical": Reason("bars", "dropped", "repeats an earlier bar exactly"),
    "duplicate_conflicting": Reason("bars", "dropped", "another bar of the same tick follows (the last is kept)"),
    "overlap_identical": Reason("bars", "dropped", "also in a source imported earlier, with the same values"),
    "overlap_conflicting": Reason("bars", "dropped", "differ from the bar of another source (see the conflicts)"),
    "unsorted": Reason("bars", "repaired", "earlier than the bar before it (sorted)"),
    "price_zero": Reason("bars", "repaired", "a price of 0 (made missing)"),
    "price_negative": Reason("bars", "repaired", "a negative price (made missing)"),
    "price_not_finite": Reason("bars", "repaired", "a price of NaN or infinity (missing)"),
    "high_low": Reason("bars", "repaired", "open or close outside low..high (range widened)"),
    "quote_crossed": Reason("bars", "repaired", "bid above ask (quote made missing)"),
    "volume_negative": Reason("bars", "repaired", "a negative or infinite volume or size (made missing)"),
    "volume_missing": Reason("bars", "noted", "a price without a volume"),
    "quote_only": Reason("bars", "noted", "a quote and no trade"),
    "missing_tick": Reason("ticks", "noted", "no price (no-trade ticks)"),
    "sparse_session": Reason("sessions", "dropped", "fewer ticks with a price than min_coverage asks"),
    "early_close_stated": Reason("dates", "noted", "closed early as the calendar states"),
    "early_close_inferred": Reason("dates", "noted", "closed early (nothing traded later)"),
    "no_volume": Reason("sessions", "noted", "nothing traded: all volumes are 0 or missing"),
    "price_jump": Reason("sessions", "noted", "opens over 30 % away from the last close (a split?)"),
    "factor_contradicted": Reason(
        "sessions", "noted", "the factor changes by a fifth or more and the price does not (are prices adjusted?)"
    ),
    "split_suspected": Reason(
        "sessions", "noted", "open like after a split, by price and volume (not adjusted; see docs/data/actions.md)"
    ),
    "volume_break": Reason("dates", "noted", "median volume is over 8 times larger or smaller than the day before"),
    "label_suspect": Reason("sessions", "noted", "stamps look as if the calendar's label were the wrong one"),
    "instrument_padded": Reason("instruments", "repaired", "blanks around the id (taken off)"),
    "instrument_without_bars": Reason("instruments", "dropped", "listed, but without any prices"),
    "instrument_unlisted": Reason("instruments", "noted", "has files, but is not listed (left out)"),
    "outside_listing": Reason("bars", "dropped", "outside the dates for which the instrument is listed"),
    "no_bar": Reason("steps", "noted", "of the source's calendar without any value (no bar)"),
    "price_adjusted": Reason("bars", "noted", "adjusted by a factor other than 1, left so"),
    "factor_applied": Reason("bars", "noted", "brought back to traded prices and volumes by their factor"),
    "factor_added": Reason("bars", "repaired", "before a suspected split (given a factor, prices left as traded)"),
    "finding_dropped": Reason("bars", "dropped", "named by a check (left out as was asked for)"),
    "factor_missing": Reason("bars", "repaired", "no factor above 0 (prices and volumes made missing)"),
    "bar_unfinished": Reason("bars", "noted", "end before their interval does"),
    "cross_trade": Reason("trades", "dropped", "executions in auctions, outside prices and volumes of bars"),
    "column_absent": Reason("columns", "noted", "of the schema are not in the source (missing)"),
    "column_ignored": Reason("columns", "noted", "not part of the schema"),
    "file_ignored": Reason("files", "noted", "not a file of bars"),
    "cache_rebuilt": Reason("caches", "noted", "damaged, built again"),
}


def printable(text: str) -> str:
    """Return text on one line: whatever cannot be shown is written as Python escapes it."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def counted(count: int, unit: str) -> str:
    """Return a count and its unit, given as plural, in words: ``1 bar``, ``2,000 bars``."""
    head, _, rest = unit.partition(" ")
    return " ".join(part for part in (f"{count:,}", head.removesuffix("s") if count == 1 else head, rest) if part)


class Report:
    """Counts by reason with the first example of each.

    Reasons are the keys of `REASONS`. ``total`` holds the bars read and kept and the sessions built.
    """

    def __init__(
        self,
        counts: Mapping[str, int] | None = None,
        examples: Mapping[str, str] | None = None,
        totals: Mapping[str, int] | None = None,
    ) -> None:
        self.counts: dict[str, int] = dict(counts or {})
        self.examples: dict[str, str] = dict(examples or {})
        self.totals: dict[str, int] = dict(totals or {})

    def add(self, reason: str, count: int, example: str) -> None:
        """Add `count` findings; `example` is kept when it is the first of its reason. A count of 0 adds nothing."""
        if reason not in REASONS:
            raise KeyError(reason)
        if count:
            self.counts[reason] = self.counts.get(reason, 0) + int(count)
            self.examples.setdefault(reason, printable(example))

    def merge(self, other: Report) -> Report:
        """Return a new report with the counts of both; examples of `self` come first."""
        merged = Report(self.counts, self.examples, self.totals)
        for reason, count in other.counts.items():
            merged.add(reason, count, other.examples[reason])
        for name, count in other.totals.items():
            merged.totals[name] = merged.totals.get(name, 0) + count
        return merged

    def problems(self) -> dict[str, int]:
        """Return the counts of what was dropped or repaired, which strict reading refuses."""
        return {reason: count for reason, count in self.ordered().items() if REASONS[reason].effect != "noted"}

    def ordered(self) -> dict[str, int]:
        """Return the counts in the order of `REASONS`, whatever was found first."""
        return {reason: self.counts[reason] for reason in REASONS if reason in self.counts}

    def sentence(self, reason: str) -> str:
        """Return one finding in words, with its example."""
        unit, _, text = REASONS[reason]
        return f"{counted(self.counts[reason], unit)}: {text}, first: {self.examples[reason]}"

    def as_text(self) -> str:
        """Return the report as lines for people: totals, then dropped, repaired and noted findings."""
        lines = [", ".join(counted(count, name.replace("_", " ")) for name, count in self.totals.items())]
        for effect in ("dropped", "repaired", "noted"):
            lines += [f"{effect:<9}{self.sentence(reason)}" for reason in REASONS_OF[effect] if reason in self.counts]
        return "\n".join(line for line in lines if line) or "nothing to report"

    def as_dict(self) -> dict[str, Any]:
        """Return the report as values that JSON can hold and `from_dict` takes."""
        findings = {
            reason: {"count": count, "effect": REASONS[reason].effect, "example": self.examples[reason]}
            for reason, count in self.ordered().items()
        }
        return {"totals": dict(self.totals), "findings": findings}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """Rebuild a report from `as_dict`."""
        findings = values["findings"]
        return cls(
            {reason: int(found["count"]) for reason, found in findings.items()},
            {reason: str(found["example"]) for reason, found in findings.items()},
            values["totals"],
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Report) and self.as_dict() == other.as_dict()

    def __repr__(self) -> str:
        return f"Report({self.counts})"


REASONS_OF: dict[str, list[str]] = {
    effect: [name for name, reason in REASONS.items() if reason.effect == effect]
    for effect in ("dropped", "repaired", "noted")
}
