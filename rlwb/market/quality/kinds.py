"""What a check can find, how grave it is, and what to do about it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from rlwb.market.actions import ADVICE
from rlwb.market.report import REASONS

Gravity = Literal["fault", "note"]


class Kind(NamedTuple):
    """One kind of finding: what is counted, whether the bars are unsound by it, its text, and what to do."""

    unit: str
    gravity: Gravity
    text: str
    advice: str


def _of_reason(name: str, gravity: Gravity, advice: str) -> Kind:
    reason = REASONS[name]
    return Kind(reason.unit, gravity, reason.text, advice)


_LOADED = "a run makes the value missing and counts it; ask the source for the bar"
_CLOCK = "a run drops them; correct the calendar (hours, zone, label, bar length) if they belong to the session"

KINDS: dict[str, Kind] = {
    "damaged": Kind("files", "fault", "a partition cannot be read", "import its sources into a new folder"),
    "incomplete": Kind("sources", "fault", "an import was cut short", "run the same import again"),
    "refused": Kind("instruments", "fault", "a run would refuse the bars", "follow what the sentence says"),
    "instrument_missing": _of_reason("instrument_missing", "fault", "fill the column instrument and import again"),
    "datetime_missing": _of_reason("datetime_missing", "fault", "fill the column datetime and import again"),
    "duplicate_conflicting": _of_reason(
        "duplicate_conflicting", "fault", "see which of the two rows is right; the last of the file is used"
    ),
    "overlap_conflicting": _of_reason(
        "overlap_conflicting", "fault", "see which source is right; --on-conflict chooses when they are imported"
    ),
    "price_zero": _of_reason("price_zero", "fault", _LOADED),
    "price_negative": _of_reason("price_negative", "fault", _LOADED),
    "price_not_finite": _of_reason("price_not_finite", "fault", _LOADED),
    "high_low": _of_reason("high_low", "fault", "a run widens the range; see whether columns are exchanged"),
    "quote_crossed": _of_reason("quote_crossed", "fault", _LOADED),
    "volume_negative": _of_reason("volume_negative", "fault", _LOADED),
    "closed_day": _of_reason("closed_day", "fault", "a run drops them; correct the calendar if the market was open"),
    "off_grid": _of_reason("off_grid", "fault", _CLOCK),
    "label_suspect": _of_reason("label_suspect", "fault", "import again with the other label into a new folder"),
    "outlier": Kind(
        "bars",
        "fault",
        "a price far from its neighbours on both sides, which return",
        "compare with another source; a bad print moves the benchmark and is a price nobody could trade at",
    ),
    "jump": Kind(
        "bars",
        "fault",
        "the close moves over 10 % within a session and stays",
        "compare with another source; leave the day out if it is not real",
    ),
    "price_jump": Kind(
        "sessions",
        "fault",
        "opens over 30 % away from the last close, not like a split",
        "compare with another source; a change of units or of the instrument behind the id looks so",
    ),
    "split_suspected": Kind("sessions", "fault", "opens like after a split, by price and volume", ADVICE),
    "volume_break": _of_reason(
        "volume_break", "fault", "the source changed its feed or unit; use the days on one side of it only"
    ),
    "duplicate_identical": _of_reason("duplicate_identical", "note", "nothing; one of each is used"),
    "overlap_identical": _of_reason("overlap_identical", "note", "nothing; one of each is used"),
    "unsorted": _of_reason("unsorted", "note", "nothing; they are sorted"),
    "auction": _of_reason("auction", "note", _CLOCK),
    "off_session": _of_reason("off_session", "note", _CLOCK),
    "after_early_close": _of_reason("after_early_close", "note", _CLOCK),
    "quote_only": _of_reason("quote_only", "note", "nothing; the tick has no trade price"),
    "volume_missing": _of_reason("volume_missing", "note", "volume caps and VWAP cannot use these bars"),
    "missing_tick": _of_reason("missing_tick", "note", "nothing for thin instruments; else fetch the days again"),
    "missing_session": Kind(
        "sessions", "note", "no bar on a day on which most others trade", "fetch the days again, or accept a halt"
    ),
    "sparse_session": _of_reason("sparse_session", "note", "a run drops it; min_coverage says how much is enough"),
    "zero_volume": Kind(
        "bars", "note", "a price and a volume of 0", "nothing where nobody traded; a volume cap fills nothing there"
    ),
    "stale": Kind(
        "runs",
        "note",
        "all prices of an hour or more in a row are one and the same",
        "see whether it was halted, locked at a price limit, or the feed stood still",
    ),
}
