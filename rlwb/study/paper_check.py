"""Check of a paper's folder: numbers against the files that they come from, and files against their checksums.

A copy lies in the folder as check.py. It needs Python alone:

    python check.py [RUN]

RUN is the directory of the run or sweep that the folder was made from; without it, the place where that lay beside the
folder. Exit codes: 0 all agrees, 1 something does not, which is named.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    #: A piece of a document: literal, or the number of a figure.
    Segment = str | int

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
ABSENT = "-"
MADE, SUMS, RUN_SUMS = "figures.json", "SHA256SUMS", "run.sha256"
_TEX = {
    **{one: "\\" + one for one in "{}$&#_%"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": r"\textendash{}",
    "`": r"\textasciigrave{}",
    "…": r"\ldots{}",
    "×": r"$\times$",
}


def one_line(text: str) -> str:
    """Return a text on one line, without characters that cannot be printed."""
    return "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))


def as_tex(text: str) -> str:
    """Return a text as LaTeX that shows each of its characters."""
    return re.sub("-(?=-)", "-{}", "".join(_TEX.get(one, one) for one in one_line(text)))


def as_markdown(text: str) -> str:
    """Return a text as Markdown that shows each of its characters."""
    shown = re.sub(r"([\\`*_<>|$~])", r"\\\1", one_line(text))
    return re.sub(r"&(?=[#\w]+;)", r"\&", shown.replace("](", "]\\(")).replace("![", r"\!\[")


def shown(value: Any, form: str | None, scale: float = 1.0) -> str:
    """Return a value as it is printed: by a format specification where it is a number, else as it is.

    A number that is not there, or not finite, is a hyphen; a zero has no minus.
    """
    if form is None:
        return ABSENT if value is None or value == "" else str(value)
    if value is None or value == "" or not math.isfinite(float(value)):
        return ABSENT
    text = format(scale * float(value), form)
    return text.lstrip("-") if not re.search("[1-9]", text) else text


def lookup(folder: Path, figure: dict[str, Any]) -> Any:
    """Return the value of a figure in its file: a cell of a CSV table, or a place in a JSON tree.

    Raises
    ------
    LookupError
        Where it is not there, or not once.
    """
    path = folder / figure["file"]
    if not path.is_file():
        raise LookupError("the file is not there")
    if path.suffix == ".json":
        found = json.loads(path.read_text(encoding="utf-8"))
        for key in figure["field"]:
            found = found[key]
        return found
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row[key] == one for key, one in figure["row"].items())]
    if len(rows) != 1:
        raise LookupError(f"{len(rows)} rows are so, not one")
    return rows[0][figure["field"]]


def place(figure: dict[str, Any]) -> str:
    """Say where a figure comes from."""
    if "row" not in figure:
        return f"{figure['file']}, {'.'.join(map(str, figure['field']))}"
    row = ", ".join(f"{name} {value}" for name, value in figure["row"].items())
    return f"{figure['file']}, row of {row}, {figure['field']}"


def rendered(segments: Sequence[Segment], printed: Sequence[str]) -> str:
    """Return a document out of its segments and what is printed of each figure."""
    return "".join(one if isinstance(one, str) else printed[one] for one in segments)


def escaped(figure: dict[str, Any], text: str, kind: str) -> str:
    """Return the text of a figure as a document of the suffix `kind` has it."""
    if kind == ".md":
        return one_line(text) if figure["code"] else as_markdown(text)
    return re.sub(r"^-(?=\d)", "$-$", as_tex(text))


def check(folder: Path, run: Path | None = None) -> Iterator[str]:
    """Yield what does not agree, a sentence each."""
    made = json.loads((folder / MADE).read_text(encoding="utf-8"))
    figures = made["figures"]
    texts = []
    for figure in figures:
        try:
            texts.append(shown(lookup(folder, figure), figure["format"], figure["scale"]))
        except (LookupError, TypeError, ValueError) as error:
            texts.append(figure["text"])
            yield f"{place(figure)}: {error}, which is printed as {figure['text']}"
    for name, segments in made["documents"].items():
        path = folder / name
        if path.is_file():
            printed = [escaped(figure, text, path.suffix) for figure, text in zip(figures, texts)]  # noqa: B905
            yield from _differences(name, path.read_text(encoding="utf-8"), segments, figures, printed)
        else:
            yield f"{name} is not there"
    yield from _sums(folder, folder / SUMS, "of the paper's folder")
    if run is not None:
        yield from _sums(run, folder / RUN_SUMS, "of the run")


def _lines(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return segments line by line."""
    lines: list[list[Segment]] = [[]]
    for one in segments:
        if isinstance(one, str):
            first, *more = one.split("\n")
            lines[-1].append(first)
            lines += [[text] for text in more]
        else:
            lines[-1].append(one)
    return lines


def _differences(
    name: str, text: str, segments: Sequence[Segment], figures: Sequence[dict[str, Any]], printed: Sequence[str]
) -> Iterator[str]:
    """Yield the numbers of a document that are not those of their files; its words may be others."""
    parts, found = _lines(segments), text.split("\n")
    wanted = [rendered(line, printed) for line in parts]
    for what, i, i_end, j, j_end in difflib.SequenceMatcher(None, wanted, found, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        if i_end - i == j_end - j:
            for at in range(i, i_end):
                yield from _line(f"{name}, line {at - i + j + 1}", parts[at], found[at - i + j], figures, printed)
        else:
            yield from _words(f"{name}, line {j + 1}", "\n".join(wanted[i:i_end]), "\n".join(found[j:j_end]))


def _line(
    where: str,
    segments: Sequence[Segment],
    found: str,
    figures: Sequence[dict[str, Any]],
    printed: Sequence[str],
) -> Iterator[str]:
    """Yield the figures of a line that are not printed as they are."""
    ids = [one for one in segments if isinstance(one, int)]
    match = re.fullmatch("".join(re.escape(one) if isinstance(one, str) else "(.*?)" for one in segments), found)
    if match is None:
        yield from _words(where, rendered(segments, printed), found)
        return
    for at, one in enumerate(ids):
        if match[at + 1] != printed[one]:
            yield f"{where}: {match[at + 1]} is printed, but {place(figures[one])} is {printed[one]}"


def _words(where: str, wanted: str, found: str) -> Iterator[str]:
    """Yield numbers that a passage has in place of, or beside, those that it was made with."""
    own, other = NUMBER.findall(wanted), NUMBER.findall(found)
    for what, i, i_end, j, j_end in difflib.SequenceMatcher(None, own, other, autojunk=False).get_opcodes():
        if what in ("replace", "insert"):
            instead = f" in place of {' '.join(own[i:i_end])}" if i < i_end else ", which comes from no file"
            yield f"{where}: it has {' '.join(other[j:j_end])}{instead}"


def read_sums(path: Path) -> list[tuple[str, str]]:
    """Return checksum and name of each file of a list as sha256sum writes it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(line[:64], line[66:]) for line in lines if line]


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def _sums(folder: Path, sums: Path, whose: str) -> Iterator[str]:
    for known, name in read_sums(sums):
        path = folder / name
        if not path.is_file():
            yield f"{name} {whose} is not there"
        elif sha256(path) != known:
            yield f"{name} {whose} is not what it was: its checksum differs"


def main(words: Sequence[str]) -> int:
    """Print what does not agree, or that all does."""
    folder = Path(__file__).resolve().parent
    made = json.loads((folder / MADE).read_text(encoding="utf-8"))
    run = Path(words[0]) if words else folder / made["run"]
    there = run if words or run.is_dir() else None
    found = list(check(folder, there))
    for line in found:
        print(line)  # noqa: T201 - it is a program
    sums = len(read_sums(folder / SUMS)) + (len(read_sums(folder / RUN_SUMS)) if there else 0)
    beside = "" if there else "; the run is not beside it, so its files were not: python check.py RUN"
    told = f"{len(found)} do not agree" if found else "all agrees"
    print(f"{len(made['figures'])} numbers and texts, {sums} files checked: {told}{beside}")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
