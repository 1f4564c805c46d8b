"""Bars in order, each stamp once: what repeats and what contradicts is counted and told."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rlwb.market.dataset.bars import MAY, Block, equal, join
from rlwb.market.dataset.chunks import Chunk
from rlwb.market.dataset.state import OnConflict
from rlwb.market.report import Report
from rlwb.market.stamps import text


@dataclass(frozen=True)
class Conflicts:
    """Bars of one instrument that were kept, and beside each the other of the same stamp, which was not."""

    instrument: str
    kept: Block
    other: Block


@dataclass
class Merged:
    """What became of the bars of one source in one partition, or within a chunk.

    Parameters
    ----------
    block
        The bars, sorted by stamp, each stamp once.
    report
        What was dropped or moved.
    conflicts
        Bars that contradict each other.
    """

    block: Block
    report: Report = field(default_factory=Report)
    conflicts: list[Conflicts] = field(default_factory=list)


@dataclass(frozen=True)
class Piece:
    """Bars of one instrument in one month, sorted, each stamp once."""

    instrument: str
    month: str
    block: Block


def split_chunk(chunk: Chunk, last: dict[str, int], label: str) -> tuple[list[Piece], Report, list[Conflicts]]:
    """Return the partitions' shares of a chunk.

    Of bars with one instrument and stamp the last is kept, as `rlwb.market.validate.drop_duplicates` does.

    Parameters
    ----------
    last
        Stamp of each instrument's last row before this chunk; brought up to date.
    label
        The source's name in reports.
    """
    code, block, report = chunk.code, chunk.block, Report()
    if len(code) and (np.diff(code) < 0).any():
        narrow = code.astype(np.int16) if len(chunk.names) < 2**15 else code  # sorted by radix
        order = np.argsort(narrow, kind="stable")
        code, block = code[order], block.take(order)
    begins = np.flatnonzero(np.append(True, np.diff(code) != 0)) if len(code) else np.empty(0, np.int64)
    names = [chunk.names[number] for number in code[begins].tolist()]
    ends = np.append(begins[1:], len(code)) if len(code) else begins
    back = np.zeros(len(code), dtype=bool)
    back[1:] = np.diff(block.stamp) < 0
    for name, begin, end in zip(names, begins.tolist(), ends.tolist(), strict=True):
        back[begin] = last.get(name, block.stamp[begin]) > block.stamp[begin]
        last[name] = int(block.stamp[end - 1])

    def tell(reason: str, mask: np.ndarray) -> None:
        if mask.any():
            at = int(np.argmax(mask))
            name = chunk.names[code[at]]
            report.add(reason, int(mask.sum()), f"{name} {_text(block.stamp[at])}, {label}{_row(block.row[at])}")

    tell("unsorted", back)
    if back.any():
        order = np.lexsort((block.stamp, code))
        code, block = code[order], block.take(order)
    repeated = np.zeros(len(code), dtype=bool)
    repeated[:-1] = (np.diff(block.stamp) == 0) & (np.diff(code) == 0)
    conflicts: list[Conflicts] = []
    if repeated.any():
        at = np.flatnonzero(repeated)
        same = equal_strictly(block, at, at + 1)
        for reason, rows in (("duplicate_identical", at[same]), ("duplicate_conflicting", at[~same])):
            mask = np.zeros(len(code), dtype=bool)
            mask[rows] = True
            tell(reason, mask)
        final = np.flatnonzero(~repeated)
        for number in np.unique(code[at[~same]]).tolist():
            rows = at[~same][code[at[~same]] == number]
            kept = final[np.searchsorted(final, rows)]
            conflicts.append(Conflicts(chunk.names[number], block.take(kept), block.take(rows)))
        code, block = code[final], block.take(final)
    return list(_pieces(chunk.names, code, block)), report, conflicts


def merge_blocks(old: Block, new: Block, instrument: str, on_conflict: OnConflict, label: str) -> Merged:
    """Return a partition's bars after those of one source are merged into it.

    Of bars with one stamp, the source's own later one takes the place of its earlier one. Where another source has the
    stamp, equal bars are dropped once (an optional value that the stored bar lacks is added to it), and of different
    ones `on_conflict` says which stays.
    """
    if not len(old) or not len(new) or old.stamp[-1] < new.stamp[0]:
        return Merged(join([old, new]) if len(old) else new)
    both = join([old, new])
    order = np.argsort(both.stamp, kind="stable")
    both = both.take(order)
    at = np.flatnonzero(np.diff(both.stamp) == 0)  # stored at `at`, new at `at + 1`
    if not len(at):
        return Merged(both)
    own = both.source[at] == both.source[at + 1]
    same = np.where(own, equal_strictly(both, at, at + 1), equal(both, at, at + 1))
    stays = own | (~same & (on_conflict == "replace"))  # the new one
    for name in set(MAY) & set(both.values):
        column = both.values[name]
        filled = at[~own & same]
        column[filled] = np.where(np.isnan(column[filled]), column[filled + 1], column[filled])
    report, conflicts = Report(), []
    for reason, mask in (
        ("duplicate_identical", own & same),
        ("duplicate_conflicting", own & ~same),
        ("overlap_identical", ~own & same),
        ("overlap_conflicting", ~own & ~same),
    ):
        if mask.any():
            first = at[np.argmax(mask)] + 1
            example = f"{instrument} {_text(both.stamp[first])}, {label}{_row(both.row[first])}"
            report.add(reason, int(mask.sum()), example)
            if reason.endswith("conflicting"):
                kept, other = np.where(stays, at + 1, at)[mask], np.where(stays, at, at + 1)[mask]
                conflicts.append(Conflicts(instrument, both.take(kept), both.take(other)))
    gone = np.where(stays, at, at + 1)
    keep = np.ones(len(both), dtype=bool)
    keep[gone] = False
    return Merged(both.take(np.flatnonzero(keep)), report, conflicts)


def equal_strictly(block: Block, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Tell for pairs of bars of one source whether all their values are equal, missing ones too."""
    same = np.ones(len(left), dtype=bool)
    for values in block.values.values():
        one, two = values[left], values[right]
        same &= (one == two) | (np.isnan(one) & np.isnan(two))
    return same


def _pieces(names: list[str], code: np.ndarray, block: Block) -> list[Piece]:
    """Cut sorted bars at every change of instrument and month."""
    if not len(code):
        return []
    begins = np.flatnonzero(np.append(True, np.diff(code) != 0))
    ends = np.append(begins[1:], len(code))
    months = block.stamp[begins].view("datetime64[us]").astype("datetime64[M]")
    latest = block.stamp[ends - 1].view("datetime64[us]").astype("datetime64[M]")
    pieces = []
    for name, begin, end, first, final in zip(
        [names[number] for number in code[begins].tolist()], begins.tolist(), ends.tolist(), months, latest, strict=True
    ):
        each = np.arange(first, final + 1)
        edges = np.searchsorted(block.stamp[begin:end], (each + 1).astype("datetime64[us]").astype(np.int64)) + begin
        for month, stop in zip(each, edges.tolist(), strict=True):
            if stop > begin:
                pieces.append(Piece(name, str(month), block.take(slice(begin, stop))))
            begin = stop
    return pieces


def _text(microseconds: int) -> str:
    return text(int(microseconds) * 1000)


def _row(row: int) -> str:
    return f" row {row}" if row else ""
