"""Strategies of hypothesis that damage valid inputs: small folders, held as file contents by path."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from hypothesis import strategies as st

Tree = dict[str, bytes]
#: What parsers of numbers, stamps, ids and tables stumble over.
TOKENS = [
    *("", " ", "0", "-0", "1", "-1", "1e5", "1E400", "-1e-400", "nan", "NaN", "-nan", "inf", "-inf", "NA", "null", "-"),
    *("true", "False", "0x10", "1_000", "1,5", "1.5.5", "+1", " 1", "1 ", "\t1", "1f", "9999999999", "-9999999999"),
    *("9223372036854775807", "9223372036854775808", "1" * 200, "0." + "3" * 60, "4.9e-324", "86400000", "16777217"),
    *("1704067200000", "1704067200000000", "1704067200000000000", "999999999999", "7e15", "NaT", "09:30", "20240103"),
    *("2024-01-03", "2024-01-03 09:30:00", "2024-01-03T09:30:00Z", "2024-01-03 09:30:00+08:00", "2024-02-30 09:30:00"),
    *("1677-09-21 00:12:43", "2262-04-11 23:47:17", "9999-12-31 23:59:59", "2024-03-10 02:30:00"),
    *("2024-11-03 01:30:00", "03/01/2024", "2024-1-3 9:30", '"', '""', '"a', "a\nb", "\0", "\ufeff", "é", "\u0661"),
    *("../x", "000001", "A" * 200),
]
_STRAYS = (".DS_Store", "README.md", "x.tmp", "y.csv", "z.parquet", "sub/b.csv", "_x.csv", "a.zip")
_PARTS = ("0", "99999999", "20240229", "20230229", "1m", "5m", "é", "trade", "quote", "message", "orderbook", "1677")
_TYPES = [pa.float32(), pa.int64(), pa.int8(), pa.string(), pa.large_string(), pa.bool_(), pa.date32(), pa.time64("us")]
_TYPES += [pa.timestamp(unit, zone) for unit in ("s", "us", "ns") for zone in (None, "UTC")] + [pa.decimal128(38, 6)]

#: What reading a file raises that an earlier change has damaged.
_DAMAGED = (OSError, EOFError, ValueError, RuntimeError, UnpicklingError, zlib.error)
_DAMAGED += (zipfile.BadZipFile, pa.ArrowException)


@st.composite
def damaged(draw: st.DrawFn, seeds: list[Tree]) -> Tree:
    """One of `seeds` after one to three changes of its values, rows, bytes, archives, names or files."""
    files = dict(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        if not files:
            break
        name = draw(st.sampled_from(sorted(files)))
        how = draw(st.sampled_from(("values", "values", "values", "values", "bytes", "folder")))
        if how == "folder":
            _change_folder(draw, files, name)
        else:
            files[name] = (_change_values if how == "values" else _change_bytes)(draw, name, files[name])
    return {one: files[one] for one in files if not any(other.startswith(f"{one}/") for other in files)}


def write_tree(files: Tree, folder: Path) -> bool:
    """Write the files into `folder`, made anew; False where the file system does not take one of the names."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except (OSError, ValueError):
        return False
    return True


def _change_bytes(draw: st.DrawFn, name: str, content: bytes) -> bytes:
    begin = draw(st.integers(0, len(content)))
    end = draw(st.integers(begin, min(begin + 64, len(content))))
    middle = draw(
        st.one_of(
            st.binary(max_size=8),
            st.sampled_from([content[begin:end] * 2, b"\xff" * 8, b"\0" * (end - begin)]),
            st.sampled_from(TOKENS).map(str.encode),
        )
    )
    return content[:begin] + middle + (b"" if draw(st.booleans()) and not middle else content[end:])


def _change_values(draw: st.DrawFn, name: str, content: bytes) -> bytes:
    ending = name.rpartition(".")[2].lower()
    try:
        if ending == "zip":
            return _change_zip(draw, content)
        if ending == "gz":
            return gzip.compress(_change_text(draw, gzip.decompress(content)), 1)
        if ending == "parquet":
            return _change_parquet(draw, content)
        if ending == "json":
            return _change_json(draw, content)
        if ending == "pt":
            return _change_checkpoint(draw, content)
    except _DAMAGED:
        return _change_bytes(draw, name, content)
    if ending == "bin":
        values = list(struct.unpack(f"<{len(content) // 4}f", content[: len(content) // 4 * 4])) or [0.0]
        at = draw(st.integers(0, len(values) - 1))
        new = draw(st.lists(st.floats(width=32) | st.integers(0, 30).map(float), max_size=3))
        return struct.pack(f"<{len(values) - 1 + len(new)}f", *values[:at], *new, *values[at + 1 :])
    return (
        _change_text if ending in ("csv", "txt", "yaml") else lambda draw, content: _change_bytes(draw, name, content)
    )(draw, content)


def _change_text(draw: st.DrawFn, content: bytes) -> bytes:
    text = content.decode("utf-8", "surrogateescape")
    separator = "\t" if "\t" in text else ","
    rows = [line.split(separator) for line in re.split(r"\r\n|\n|\r", text)]
    row, other = (draw(st.integers(0, len(rows) - 1)) for _ in range(2))
    column = draw(st.integers(0, len(rows[row]) - 1))
    how = draw(st.sampled_from(("cell", "cell", "cell", "copy", "drop", "swap", "more", "less", "form")))
    end = "\n"
    if how == "cell":
        cell = rows[row][column]
        digit = st.tuples(st.integers(0, max(0, len(cell) - 1)), st.sampled_from("0123456789"))
        changed = digit.map(lambda new: cell[: new[0]] + new[1] + cell[new[0] + 1 :])
        rows[row][column] = draw(st.one_of(st.sampled_from(TOKENS), changed, st.sampled_from(rows[other])))
    elif how == "copy":
        rows.insert(row, list(rows[other]))
    elif how == "drop":
        del rows[row]
    elif how == "swap":
        rows[row], rows[other] = rows[other], rows[row]
    elif how == "more":
        rows[row].insert(column, draw(st.sampled_from(TOKENS)))
    elif how == "less":
        del rows[row][column]
    else:
        separator = draw(st.sampled_from((separator, separator, ";", ", ", ",,")))
        end = draw(st.sampled_from(("\n", "\r\n", "\r", "\n\n")))
        if draw(st.booleans()):
            return text.encode(draw(st.sampled_from(("utf-8-sig", "utf-16", "latin-1", "cp037"))), "replace")
    return end.join(separator.join(cells) for cells in rows).encode("utf-8", "surrogateescape")


def _change_json(draw: st.DrawFn, content: bytes) -> bytes:
    """Change, drop, rename or nest one value somewhere in a JSON text."""
    return json.dumps(_changed_tree(draw, json.loads(content))).encode()


def _change_checkpoint(draw: st.DrawFn, content: bytes) -> bytes:
    """Do the same to what a checkpoint holds."""
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    file = io.BytesIO()
    torch.save(_changed_tree(draw, state), file)
    return file.getvalue()


def _changed_tree(draw: st.DrawFn, value: Any) -> Any:
    """Return nested mappings and lists with one place of them changed."""
    places = [value] if draw(st.booleans()) else []
    inner = value
    while isinstance(inner, (dict, list)) and inner and (not places or draw(st.booleans())):
        places.append(inner)
        inner = inner[draw(st.sampled_from(list(inner)))] if isinstance(inner, dict) else inner[0]
    inside = [one for one in places if isinstance(one, (dict, list)) and one]
    odd = draw(st.sampled_from((None, True, 0, -1, 2**70, 1.5, float("nan"), "", "x", "nan", [], [1], {}, {"x": 1})))
    if not inside:
        return odd
    place = inside[-1]
    key = draw(st.sampled_from(list(place) if isinstance(place, dict) else list(range(len(place)))))
    how = draw(st.sampled_from(("change", "change", "drop", "nest", "rename")))
    if how == "change":
        place[key] = odd
    elif how == "nest":
        place[key] = [place[key]]
    else:
        gone = place.pop(key)
        if how == "rename":
            place.update({f"{key}_": gone}) if isinstance(place, dict) else place.append(gone)
    return value


def _change_zip(draw: st.DrawFn, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()] or [("x.csv", b"1,2")]
    name, inner = members[0]
    how = draw(st.sampled_from(("text", "text", "text", "text", "name", "more", "none", "method")))
    method = zipfile.ZIP_DEFLATED
    if how == "text":
        members[0] = (name, _change_text(draw, inner))
    elif how == "name":
        members[0] = (draw(st.sampled_from(("../../x.csv", "/abs.csv", name.upper(), f"{name}/", f"é{name}"))), inner)
    elif how == "more":
        members.append((name, inner))
    elif how == "none":
        members = []
    else:
        method = draw(st.sampled_from((zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)))
    return packed(members, method)


def packed(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that occur twice are meant
        for name, inner in members:
            archive.writestr(zipfile.ZipInfo(name), inner, method)
    return file.getvalue()


def _change_parquet(draw: st.DrawFn, content: bytes) -> bytes:
    table = pq.read_table(io.BytesIO(content))
    at = draw(st.integers(0, table.num_columns - 1))
    name, column = table.column_names[at], table.column(at).combine_chunks()
    odd = st.sampled_from(TOKENS).map(lambda token: token.encode("utf-8", "replace").decode())
    changes: list[Callable[[], pa.Table]] = [
        lambda: table.set_column(at, name, column.cast(draw(st.sampled_from(_TYPES)), safe=False)),
        lambda: table.set_column(at, name, column.dictionary_encode()),
        lambda: table.set_column(at, name, pa.array([[one] for one in column.to_pylist()])),
        lambda: table.set_column(at, name, pa.array([draw(odd) for _ in range(len(column))])),
        lambda: table.set_column(at, name, pa.array([None, *column.to_pylist()[1:]], column.type)),
        lambda: table.rename_columns([draw(odd) if one == name else one for one in table.column_names]),
        lambda: table.drop_columns(name),
        lambda: table.slice(draw(st.integers(0, len(table)))),
        lambda: pa.concat_tables([table, table]),
    ]
    file = io.BytesIO()
    pq.write_table(draw(st.sampled_from(changes))(), file)
    return file.getvalue()


def _change_folder(draw: st.DrawFn, files: Tree, name: str) -> None:
    folder, slash, last = name.rpartition("/")
    parts = re.split(r"([-_.]+)", last)
    at = draw(st.integers(0, len(parts) // 2)) * 2
    parts[at] = draw(st.sampled_from((*_PARTS, parts[at].upper(), f"{parts[at]}x", parts[at][:-1])))
    renamed = folder + slash + ("".join(parts) or "x")
    how = draw(st.sampled_from(("drop", "stray", "copy", "rename", "swap", "nest")))
    other = draw(st.sampled_from(sorted(files)))
    if how == "swap":
        files[name], files[other] = files[other], files[name]
    elif how in ("stray", "copy"):
        files[folder + slash + draw(st.sampled_from(_STRAYS)) if how == "stray" else renamed] = files[name]
    else:
        content = files.pop(name)
        if how != "drop":
            files[renamed if how == "rename" else f"{name}/inner"] = content
