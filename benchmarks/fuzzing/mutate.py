"""Changes of bytes, of tables of text, of archives, of binary columns, and of folders."""

from __future__ import annotations

import bz2
import gzip
import io
import random
import re
import struct
import warnings
import zipfile
from collections.abc import Callable

from benchmarks.fuzzing.tokens import TOKENS
from benchmarks.fuzzing.tree import Tree

_SEPARATORS = [",", ";", "\t", "|", " ", ",,", ", "]
_LINE_ENDS = ["\n", "\r\n", "\r", "\n\n", "\r\r\n", "\x0b", "\x85", "\u2028"]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, float("nan"), float("inf"), float("-inf"), 1e-40, 3.4e38, 2.0**24, 2.0**31, 1e30]
_INTERESTING = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]
_LARGEST = 1 << 17


Change = Callable[[bytes, random.Random, bytes], bytes]


def mutate(tree: Tree, rng: random.Random, others: list[Tree], more: dict[str, Change] | None = None) -> Tree:
    """Return `tree` after one to four changes; `more` changes files of further endings.

    Two of five inputs keep the form of their files, so that what is behind the first checks is reached too.
    """
    gentle = rng.random() < 0.4
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        if gentle:
            tree = _edit_file(tree, rng)
        elif rng.random() < 0.06:
            tree = _mutate_folder(tree, rng)
        else:
            tree = _mutate_file(tree, rng, others, more or {})
    return tree


def _edit_file(tree: Tree, rng: random.Random) -> Tree:
    """Change values and rows of one file of text, packed or not, or of float32."""
    names = [name for name in sorted(tree.files) if name.lower().endswith((".csv", ".txt", ".zip", ".gz", ".bin"))]
    if not names:
        return tree
    name = rng.choice(names)
    content = tree.files[name]
    ending = name.rpartition(".")[2].lower()
    if ending == "bin":
        return tree.replace(name, change_floats(content, rng, b""))
    try:
        if ending == "gz":
            return tree.replace(name, gzip.compress(edit_text(gzip.decompress(content), rng), 1))
        if ending == "zip":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = [(info.filename, edit_text(archive.read(info), rng)) for info in archive.infolist()]
            return tree.replace(name, pack(members))
    except Exception:  # what an earlier change left behind
        return tree
    return tree.replace(name, edit_text(content, rng))


def edit_text(content: bytes, rng: random.Random) -> bytes:
    """Change, empty, copy or move values or rows of a table of text, whose form stays."""
    text = content.decode("utf-8", "surrogateescape")
    separator = "\t" if "\t" in text else ","
    rows = [line.split(separator) for line in re.split(r"\r\n|\n|\r", text.rstrip("\r\n"))]
    first = 1 if len(rows) > 1 and not any(sign.isdigit() for sign in rows[0][-1]) else 0
    row = rng.randrange(min(first, len(rows) - 1), len(rows))
    column = rng.randrange(len(rows[row]))
    match rng.randrange(9):
        case 0 | 1 | 2 | 3:
            rows[row][column] = _other_number(rows[row][column], rng)
        case 4:
            rows[row][column] = ""
        case 5:
            source = rng.choice(rows[first:] or rows)
            rows[row][column] = source[min(column, len(source) - 1)]
        case 6:
            rows.insert(row, list(rows[row]))
        case 7 if len(rows) > first + 1:
            del rows[row]
        case _:
            other = rng.randrange(min(first, len(rows) - 1), len(rows))
            rows[row], rows[other] = rows[other], rows[row]
    return "".join(f"{separator.join(cells)}\n" for cells in rows).encode("utf-8", "surrogateescape")


def _mutate_file(tree: Tree, rng: random.Random, others: list[Tree], more: dict[str, Change]) -> Tree:
    if not tree.files:
        return tree
    name = rng.choice(sorted(tree.files))
    content = tree.files[name]
    other = rng.choice(others).files.get(name, b"")
    if rng.random() < 0.12:
        changed = change_bytes(content, rng, other)
    else:
        changed = {**_CHANGES, **more}.get(name.rpartition(".")[2].lower(), change_bytes)(content, rng, other)
    return tree.replace(name, changed[:_LARGEST] if len(content) < _LARGEST else changed)


def change_bytes(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Flip, set, insert, remove, repeat or exchange bytes."""
    data = bytearray(content)
    at = rng.randrange(len(data) + 1)
    length = min(rng.choice((1, 1, 2, 4, 8, 16, 64, 512)), len(data) - at)
    choice = rng.randrange(9)
    if choice == 0 and at < len(data):
        data[at] ^= 1 << rng.randrange(8)
    elif choice == 1 and at < len(data):
        data[at] = rng.randrange(256)
    elif choice == 2:
        width = rng.choice("BHIQ")
        value = struct.pack(("<" if rng.random() < 0.7 else ">") + width, _wrapped(rng, width))
        data[at : at + len(value)] = value
    elif choice == 3:
        data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))
    elif choice == 4:
        del data[at : at + length]
    elif choice == 5:
        data[at:at] = data[at : at + length] * rng.choice((1, 2, 10))
    elif choice == 6 and other:
        begin = rng.randrange(len(other))
        data[at : at + length] = other[begin : begin + rng.choice((length, 8, 100))]
    elif choice == 7:
        data = data[:at]
    else:
        data[at : at + length] = rng.choice(TOKENS).encode("utf-8", "replace")
    return bytes(data)


def _wrapped(rng: random.Random, width: str) -> int:
    bits = 8 * struct.calcsize("<" + width)
    return (rng.choice(_INTERESTING) + rng.choice((-1, 0, 0, 1))) % (1 << bits)


def change_text(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change cells, rows, columns, separators, line ends or the encoding of a table of text."""
    text = content.decode("utf-8", "surrogateescape")
    separator = "\t" if "\t" in text else ","
    rows = [line.split(separator) for line in re.split(r"\r\n|\n|\r", text)]
    row = rng.randrange(len(rows))
    column = rng.randrange(len(rows[row]))
    end = "\n"
    match rng.randrange(16):
        case 0 | 1 | 2 | 3:
            rows[row][column] = rng.choice(TOKENS)
        case 4:
            rows[row][column] += rng.choice(TOKENS)
        case 5:
            source = rng.choice(rows)
            rows[row][column] = rng.choice(source)
        case 6:
            rows.insert(row, list(rng.choice(rows)))
        case 7:
            del rows[row]
        case 8:
            rng.shuffle(rows)
        case 9:
            one, two = rng.randrange(len(rows)), row
            rows[one], rows[two] = rows[two], rows[one]
        case 10:
            rows[row].insert(column, rng.choice(TOKENS))
        case 11:
            del rows[row][column]
        case 12:
            place, change = column, rng.randrange(4)
            for cells in rows:
                if change == 0 and place < len(cells):
                    del cells[place]
                elif change == 1:
                    cells.insert(place, rng.choice((cells[place % len(cells)] if cells else "", "7", "x")))
                elif change == 2 and place < len(cells):
                    cells[place] = rng.choice(TOKENS)
                elif place + 1 < len(cells):
                    cells[place], cells[place + 1] = cells[place + 1], cells[place]
        case 13:
            separator = rng.choice(_SEPARATORS)
        case 14:
            end = rng.choice(_LINE_ENDS)
        case _:
            encoding = rng.choice(("utf-8-sig", "utf-16", "utf-16-le", "latin-1", "utf-32", "cp037"))
            return text.encode(encoding, "replace")
    return end.join(separator.join(cells) for cells in rows).encode("utf-8", "surrogateescape")


def _other_number(cell: str, rng: random.Random) -> str:
    """Return a number or stamp near that of the cell, written as a source would."""
    digits = [place for place, sign in enumerate(cell) if sign in "0123456789"]
    if not digits or rng.random() < 0.2:
        return rng.choice(("1", "0", "10.5", "100000", "34260000", "0.01", "5", "4", "-1", "1000000"))
    at = rng.choice(digits)
    return cell[:at] + rng.choice("0123456789") + cell[at + 1 :]


def change_zip(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change what an archive holds or how it holds it."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # what an earlier change left behind
        return change_bytes(content, rng, other)
    members = members or [("x.csv", b"1,2,3")]
    place = rng.randrange(len(members))
    name, inner = members[place]
    method = zipfile.ZIP_DEFLATED
    match rng.randrange(12):
        case 0:
            members[place] = (rng.choice(("../../x.csv", "", "/abs.csv", name.upper(), name + "/", "é" + name)), inner)
        case 1:
            members.append((rng.choice((name, "other.csv", "__MACOSX/._x")), inner))
        case 2:
            del members[place]
        case 3:
            method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))
        case 4:
            members[place] = (name, change_bytes(inner, rng, b""))
        case _:
            members[place] = (name, change_text(inner, rng, b""))
    packed = pack(members, method)
    if rng.random() < 0.1:  # sizes, flags and offsets that lie
        data = bytearray(packed)
        begin = rng.choice((0, max(data.rfind(b"PK\x01\x02"), 0), max(data.rfind(b"PK\x05\x06"), 0)))
        at = min(begin + rng.randrange(4, 46), len(data) - 1)
        data[at] = rng.choice((0, 1, 0xFF, data[at] ^ 1))
        packed = bytes(data)
    return packed


def pack(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that occur twice are meant
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name or "_"), inner, method)
    return file.getvalue()


def change_gzip(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change the text in a gzip file, or pack it otherwise."""
    try:
        inner = gzip.decompress(content)
    except Exception:  # what an earlier change left behind
        return change_bytes(content, rng, other)
    choice = rng.randrange(8)
    if choice == 0:
        return bz2.compress(inner)
    if choice == 1:
        return gzip.compress(inner) + gzip.compress(inner)
    return gzip.compress(change_text(inner, rng, b""), 1)


def change_floats(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change values, the start or the length of a file of float32."""
    values = list(struct.unpack(f"<{len(content) // 4}f", content[: len(content) // 4 * 4]))
    if not values:
        return struct.pack("<2f", 0, 1)
    at = rng.randrange(len(values))
    match rng.randrange(7):
        case 0:
            values[at] = rng.choice(_FLOATS)
        case 1:
            values[0] = rng.choice((*_FLOATS, 1.0, 2.0, 3.0, -2.0, 1.5, len(values)))
        case 2:
            values += values[at:]
        case 3:
            del values[at]
        case 4:
            values[at] = round(rng.lognormvariate(3, 3), rng.randrange(6))
        case 5:
            del values[at:]
        case _:
            values.insert(at, float(rng.randrange(100)))
    return struct.pack(
        f"<{len(values)}f", *(min(max(value, -3.4e38), 3.4e38) if value == value else value for value in values)
    )


_CHANGES: dict[str, Change] = {
    "csv": change_text,
    "txt": change_text,
    "zip": change_zip,
    "gz": change_gzip,
    "bin": change_floats,
}


def _mutate_folder(tree: Tree, rng: random.Random) -> Tree:
    files = dict(tree.files)
    name = rng.choice(sorted(files)) if files else "x"
    match rng.randrange(6):
        case 0:
            files.pop(name, None)
        case 1:
            stray = rng.choice(
                (".DS_Store", "README.md", "x.tmp", "y.csv", "z.parquet", "sub/b.csv", "_x.csv", "a.zip")
            )
            files[_beside(name, stray)] = files.get(name, b"")
        case 2:
            files[_beside(name, change_name(name.rpartition("/")[2], rng))] = files.get(name, b"")
        case 3:
            changed = _beside(name, change_name(name.rpartition("/")[2], rng))
            files[changed] = files.pop(name, b"")
        case 4:
            two = rng.choice(sorted(files)) if files else name
            files[name], files[two] = files.get(two, b""), files.get(name, b"")
        case _:
            content = files.pop(name, b"")
            files[f"{name}/inner"] = content  # a folder where a file belongs
    return Tree({one: files[one] for one in files if not any(other.startswith(one + "/") for other in files)}, False)


def _beside(name: str, new: str) -> str:
    folder, slash, _ = name.rpartition("/")
    return folder + slash + new


def change_name(name: str, rng: random.Random) -> str:
    """Return a file's name with one part changed, never with a slash in it."""
    parts = re.split(r"([-_.]+)", name)
    place = rng.randrange(0, len(parts), 2)
    part = parts[place]
    choices = [
        "0",
        "99999999",
        "2024",
        "20240229",
        "20230229",
        "00000000",
        "1m",
        "5m",
        "60s",
        part.upper(),
        part.lower(),
    ]
    choices += [
        part + "x",
        part[:-1],
        "é",
        "trade",
        "quote",
        "message",
        "orderbook",
        "1",
        "34200000",
        "86400001",
        "1677",
    ]
    parts[place] = rng.choice(choices)
    return "".join(parts).replace("/", "")[:120] or "x"
