"""Likeness of two runs, file by file: which are the same bit for bit, and how far apart the others are.

A file is compared by one of two rules.

Results (`RESULTS`) must be the same, bit for bit. Of tables the columns in `CLOCK` are measured times and do not count,
and of checkpoints the entries `_RECORD`, which repeat the settings; where these differ, that is told.

Accounts (`ACCOUNTS`) tell when, where and with which words a run was made beside what came of it. Of them do not count:
times and durations, the run's own path and name, ids that are drawn anew each time, hashes of files that hold times,
columns in `CLOCK` of tables that are shown, and the entries `_WHEN` of manifest and status. Of a notebook its cells'
code and outputs count, not when and how they were executed.

Files that no stage makes are named, and not compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import count, zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np

from rlwb.errors import CheckpointError
from rlwb.experiment.cells import CLOCK, Column, compare_states, compare_tables, leaf_values, read_cells
from rlwb.experiment.ledger import LOOK
from rlwb.experiment.rolling import FOLDER
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import hash_path
from rlwb.files import files_below

RESULTS = ("orders", "checkpoints", "metrics", "backtest", "figures", "origin", "code")
"""Files and folders of a run that hold what came of it."""

ACCOUNTS = ("config.yaml", "notebooks", "report.html", "manifest.json", "status.json", LOOK)
"""Files and folders of a run that tell how it was asked for and made."""

Verdict = Literal["same", "times", "equal", "record", "rounded", "different", "missing", "new", "other"]

WORDS: dict[Verdict, str] = {
    "same": "the same, bit for bit",
    "times": "the same but for times, paths and ids",
    "equal": "equal in every value, in other bytes",
    "record": "the same but for its record of how it was made",
    "rounded": "equal up to rounding (1e-9)",
    "different": "different",
    "missing": "not made again",
    "new": "made only the second time",
    "other": "not compared, no stage makes it",
}
"""Verdict to what is said of a file."""

#: Entries of a checkpoint that say what it was trained for.
_RECORD = ("record.", "meta.")
_TABLES = (".csv", ".parquet", ".npy", ".json", ".yaml", ".txt", ".md", ".svg", ".py")
#: Entries of manifest and status that say when and with which words a run was made, and hashes over files with times.
_WHEN = frozenset({"started", "ended", "at", "seconds", "command", "asked", "resumed", "inputs"})
#: Those of the manifest's entries that the page shows on several lines.
_ASKED = re.compile(r"^(?:command|resumed):\n(?:[- ].*\n)*", re.MULTILINE)
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?|\b\d\d:\d\d:\d\d\b")
_SPENT = re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|s|min|h)\b")
_DRAWN = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b0x[0-9a-f]{6,}\b")


@dataclass(frozen=True, eq=False)
class FileLikeness:
    """One file of two runs compared.

    Attributes
    ----------
    file
        Its path from the run's directory.
    verdict
        A key of `WORDS`.
    is_result
        Whether it holds results, by `RESULTS`.
    values
        How many values were compared one by one; 0 where the bytes are the same or cannot be read as values.
    columns
        The columns or tensors that differ by more than rounding.
    """

    file: str
    verdict: Verdict
    is_result: bool = True
    values: int = 0
    columns: tuple[Column, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing that counts differs by more than rounding."""
        return self.verdict in ("same", "times", "equal", "record", "rounded", "other")

    @property
    def largest(self) -> Column | None:
        """The column or tensor with the largest difference that can be measured; None where there is none."""
        measured = [one for one in self.columns if np.isfinite(one.largest)]
        if self.file.endswith(".pt"):  # weights and what updates them, before figures, where both differ
            measured = [one for one in measured if not str(one.name).startswith(("metrics.", *_RECORD))] or measured
        return max(measured, key=lambda one: one.largest, default=None)

    def __str__(self) -> str:
        text = f"{self.file}: {WORDS[self.verdict]}"
        if not self.columns:
            return text
        if self.verdict == "rounded":
            return f"{text}, but for its record of how it was made"
        first = self.largest or self.columns[0]
        told = " and ".join(_short(side[first.worst]) for side in (first.stored, first.found))
        if first.name is None:
            return f"{text}, {told}"
        cells, is_checkpoint = sum(len(one.rows) for one in self.columns), self.file.endswith(".pt")
        what = "values" if self.is_result else "lines"
        counted = f"{cells:,} tensors and states" if is_checkpoint else f"{cells:,} of {self.values:,} {what}"
        row = first.rows[first.worst]
        where = f"{first.name}[{row}]" if is_checkpoint and row else ", ".join(filter(None, (first.name, row)))
        where = where if self.is_result else f"line {row}"
        by = f" ({first.largest:.2g})" if np.isfinite(first.largest) else ""
        return f"{text} in {counted}, {'most in' if by else 'first'} {where}: {told}{by}"

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        columns = [{"column": one.name, "values": len(one.rows), "largest": one.largest} for one in self.columns]
        return {"file": self.file, "verdict": self.verdict, "values": self.values, "columns": columns}


def compare_runs(first: RunDirectory, second: RunDirectory) -> list[FileLikeness]:
    """Compare all files of two runs by the rules of this module, in the order of their names; hidden ones aside."""
    paths = [_files(run) for run in (first, second)]
    found: dict[str, FileLikeness] = {}
    for name in sorted({*paths[0], *paths[1]}, key=_is_account):  # which are told apart by what the results hold
        own = _kind(name)
        if own is None:
            verdict: Verdict = "other"
        elif name not in paths[0] or name not in paths[1]:
            verdict = "missing" if name in paths[0] else "new"
        else:
            both = paths[0][name], paths[1][name]
            if _is_account(name):
                timed = [other for other, one in found.items() if one.verdict == "times"]
                found[name] = _accounts(name, both, (first, second), timed)
            else:
                found[name] = _results(name, both, (first, second))
            continue
        found[name] = FileLikeness(name, verdict, is_result=own in RESULTS)
    return [found[name] for name in sorted(found)]


def _files(run: RunDirectory) -> dict[str, Path]:
    paths = (path for path in files_below(run.path) if not path.is_symlink())
    named = {path.relative_to(run.path).as_posix(): path for path in paths}
    return {name: path for name, path in named.items() if not name.startswith("superseded/") and "/." not in f"/{name}"}


def _kind(name: str) -> str | None:
    """Return which of `RESULTS` and `ACCOUNTS` a file is of, in a run or in a window of one."""
    parts = PurePosixPath(name).parts
    if parts[0] == FOLDER:
        parts = parts[2:]
    return parts[0] if parts and parts[0] in (*RESULTS, *ACCOUNTS) else None


def _is_account(name: str) -> bool:
    return _kind(name) in ACCOUNTS


def _results(name: str, paths: tuple[Path, Path], runs: tuple[RunDirectory, RunDirectory]) -> FileLikeness:
    """Compare a result by its bytes, then by its values."""
    if paths[0].read_bytes() == paths[1].read_bytes():
        return FileLikeness(name, "same")
    suffix, is_timed = paths[0].suffix, False
    try:
        if suffix == ".pt":
            from rlwb.trainer import load_checkpoint

            found = compare_states(*(load_checkpoint(path) for path in paths))
        elif suffix in _TABLES:
            tables = [read_cells(path, run.path) for path, run in zip(paths, runs, strict=True)]
            is_timed = any(column in table for table in tables for column in CLOCK)
            found = compare_tables(*(table.drop(columns=list(CLOCK), errors="ignore") for table in tables))
        else:
            return FileLikeness(name, "different")
    except (ValueError, OSError, CheckpointError):  # one of them is damaged
        return FileLikeness(name, "different")
    equal: Verdict = "times" if is_timed else "equal"
    if suffix == ".pt" and found.columns and all(str(one.name).startswith(_RECORD) for one in found.columns):
        equal = "record"
    elif found.columns:
        equal = "different"
    verdict: Verdict = "rounded" if found.rounded and equal != "different" else equal
    return FileLikeness(name, verdict, values=found.values, columns=found.columns)


def _accounts(
    name: str, paths: tuple[Path, Path], runs: tuple[RunDirectory, RunDirectory], timed: Sequence[str]
) -> FileLikeness:
    """Compare an account line by line, without what may differ."""
    if paths[0].read_bytes() == paths[1].read_bytes():
        return FileLikeness(name, "same", is_result=False)
    known = [word for run in runs for word in (str(run.path), run.short, run.path.name)]
    places = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in sorted(known, key=len)[::-1]))
    try:
        texts = []
        for path, run in zip(paths, runs, strict=True):
            hashes = {hash_path(run.path / other) for other in timed}
            texts.append([_plain(line, places, hashes) for line in _lines(path)])
    except ValueError:
        return FileLikeness(name, "different", is_result=False)
    changed = _changed(*texts)
    verdict: Verdict = "different" if changed else "times"
    return FileLikeness(name, verdict, is_result=False, values=len(texts[0]), columns=changed)


def _changed(stored: Sequence[str], found: Sequence[str]) -> tuple[Column, ...]:
    """Return as one column the lines that two texts have not in common, called by their numbers in the first."""
    rows, lines = [], []
    for tag, start, end, other, last in SequenceMatcher(None, stored, found, autojunk=False).get_opcodes():
        if tag != "equal":
            pairs = list(zip_longest(stored[start:end], found[other:last], fillvalue="nothing"))
            rows += [str(start + number + 1) for number in range(len(pairs))]
            lines += pairs
    return (Column("line", rows, [one for one, _ in lines], [other for _, other in lines]),) if lines else ()


def _lines(path: Path) -> Iterator[str]:
    """Yield what counts of an account: of a notebook its code and outputs, of JSON all but `_WHEN`, else all lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            yield from "".join(cell["source"]).splitlines()
            for output in cell.get("outputs", ()):
                found = {"text": output.get("text", ""), **output.get("data", {})}
                if "text/html" in found:
                    found.pop("text/plain", None)  # the same once more
                for kind, content in found.items():
                    shown = "".join(content) if isinstance(content, list) else str(content)
                    yield from [_hash(shown)] if kind.startswith("image/") else _untimed(shown).splitlines()
    elif path.suffix == ".json":
        yield from (f"{name}: {value}" for name, value in leaf_values(_without(json.loads(text))))
    else:
        yield from _untimed(_ASKED.sub("", text)).splitlines()


def _untimed(page: str) -> str:
    """Return HTML without what stands in the columns `CLOCK` of its tables."""

    def without(table: re.Match[str]) -> str:
        rows = re.split(r"(?=<tr)", table[0])
        head = next((row for row in rows if "</th>" in row), "")
        titles = [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<th[ >].*?</th>", head, re.DOTALL)]
        timed = [number for number, title in enumerate(titles) if title in CLOCK]
        return "".join(_without_cells(row, timed) for row in rows) if timed else table[0]

    return re.sub(r"<table.*?</table>", without, page, flags=re.DOTALL)


def _without_cells(row: str, numbers: Sequence[int]) -> str:
    """Return a row of an HTML table without the contents of some of its cells."""
    cells = count()
    return re.sub(
        r"(<t([hd])(?:| [^>]*)>).*?(</t\2>)",
        lambda cell: f"{cell[1]}{cell[3]}" if next(cells) in numbers else cell[0],
        row,
        flags=re.DOTALL,
    )


def _without(tree: Any) -> Any:
    """Return a tree of mappings without the entries that say when something was done."""
    if not isinstance(tree, Mapping):
        return tree
    return {name: _without(value) for name, value in tree.items() if name not in _WHEN}


def _plain(line: str, places: re.Pattern[str], hashes: Collection[str]) -> str:
    """Return a line with all that may differ written alike."""
    for one in hashes:
        line = line.replace(one, "HASH")
    for pattern, word in ((places, "RUN"), (_STAMP, "TIME"), (_SPENT, "TIME"), (_DRAWN, "ID")):
        line = pattern.sub(word, line)
    return line


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _short(value: Any) -> str:
    text = f"{value:.9g}" if isinstance(value, float) else str(value).strip()
    return text if len(text) <= 60 else f"{text[:57]}..."


def folded(found: Sequence[FileLikeness]) -> Iterator[str]:
    """Yield the findings as people read them: what differs a line a file, what is the same a line a folder."""
    groups: dict[tuple[str, Verdict], list[FileLikeness]] = {}
    for one in found:
        single = one.verdict not in ("same", "times", "equal", "record", "other")
        place = one.file if single else str(PurePosixPath(one.file).parent)
        groups.setdefault((place, one.verdict), []).append(one)
    for (place, verdict), files in groups.items():
        if len(files) == 1:
            yield str(files[0])
        else:
            names = [PurePosixPath(one.file).name for one in files]
            where = "" if place == "." else f"{place}/"
            more = str(files[0]).partition(WORDS[verdict])[2]
            yield f"{where}{names[0]} … {names[-1]} ({len(files)} files): {WORDS[verdict]}{more}"
