"""Count files, lines of code and lines of docstrings by room: ``make size``."""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tarfile
import tokenize
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from benchmarks.table import RESULTS
from rlwb.files import write_json

_ROOT = Path(__file__).resolve().parents[1]
_OUT = RESULTS.with_name("size.json")
_TOP = "top level"
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

#: Figure to number: files, code, docstrings.
Size = dict[str, int]


def room_of(path: str) -> str | None:
    """Return the first-level part of rlwb that a file belongs to, or its folder; None for files that are not counted.

    Files directly under ``rlwb`` are the room "top level"; ``tests`` and ``benchmarks`` are a room each.
    """
    parts = PurePosixPath(path).parts
    if not path.endswith(".py") or parts[0] not in ("rlwb", "tests", "benchmarks"):
        return None
    if parts[0] == "rlwb":
        return parts[1] if len(parts) > 2 else _TOP
    return parts[0]


def count_lines(source: str) -> tuple[int, int]:
    """Return the lines of code and of docstrings; blank lines and lines with only a comment are neither."""
    documents = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documents) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            documented.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    blank = {number for number, line in enumerate(source.splitlines(), 1) if not line.strip()}
    return len(code - documented - blank), len(documented - blank)


def sizes(files: Iterable[tuple[str, str]]) -> dict[str, Size]:
    """Return the size of each room, by name; `files` are pairs of path and source."""
    rooms: dict[str, Size] = {}
    for path, source in files:
        if (room := room_of(path)) is not None:
            size = rooms.setdefault(room, {"files": 0, "code": 0, "docstrings": 0})
            code, docstrings = count_lines(source)
            size["files"] += 1
            size["code"] += code
            size["docstrings"] += docstrings
    return dict(sorted(rooms.items()))


def files_of_tree() -> list[tuple[str, str]]:
    """Return the Python files of the working tree that git does not ignore."""
    names = _git("ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", "*.py").decode().split("\0")
    # A deleted file is listed until the deletion is committed.
    paths = [(name, _ROOT / name) for name in names if name and (_ROOT / name).is_file()]
    return [(name, path.read_text(encoding="utf-8")) for name, path in paths]


def files_of_revision(revision: str) -> list[tuple[str, str]]:
    """Return the Python files of a git revision."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", revision))) as archive:
        members = [member for member in archive if member.isfile() and member.name.endswith(".py")]
        return [(member.name, archive.extractfile(member).read().decode()) for member in members]  # type: ignore[union-attr]


def markdown(before: dict[str, Size], after: dict[str, Size]) -> str:
    """Return a Markdown table of both, with the sum over the rooms of rlwb as its last line."""
    apart = ("tests", "benchmarks")
    rooms = [room for room in sorted(before | after) if room not in apart]
    lines = ["| room | files | code | docstrings |", "|---|--:|--:|--:|"]
    for name, members in [*((room, [room]) for room in [*rooms, *apart]), ("rlwb", rooms)]:
        cells = []
        for figure in ("files", "code", "docstrings"):
            was, now = (sum(side[room][figure] for room in members if room in side) for side in (before, after))
            cells.append(f"{was:,} → {now:,}" if before else f"{now:,}")
        lines.append(f"| {' | '.join([name, *cells])} |")
    return "\n".join(lines)


def _git(*command: str) -> bytes:
    done = subprocess.run(["git", *command], cwd=_ROOT, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(command)} failed: {done.stderr.decode().strip()}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", help="a git revision to compare the working tree with")
    args = parser.parse_args()
    before = sizes(files_of_revision(args.before)) if args.before else {}
    after = sizes(files_of_tree())
    write_json(_OUT, {"before": before, "after": after})
    print(markdown(before, after))


if __name__ == "__main__":
    main()
