"""Changes of Parquet files and pickled tables that leave them whole, and plain readings of them."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import pickle
import random
import struct

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzing.mutate import change_bytes
from benchmarks.fuzzing.plain import Row, tables_in
from benchmarks.fuzzing.tokens import TOKENS
from benchmarks.fuzzing.tree import Tree

_NAMES = [
    "close",
    "volume",
    "instrument",
    "datetime",
    "date",
    "time",
    "Close",
    "vol",
    "bid",
    "halted",
    "x",
    "",
    "$close0",
]
_NUMBERS = [0.0, -0.0, np.nan, np.inf, -np.inf, -1.0, 1e308, 1e-308, 1e15]
#: Calls that a pickle could ask for, of the kinds that have been used against readers of pickles.
_CALLS = [
    (b"os", b"mkdir"),
    (b"posix", b"system"),
    (b"builtins", b"eval"),
    (b"builtins", b"exec"),
    (b"pandas.io.pickle", b"read_pickle"),
    (b"pandas", b"eval"),
    (b"numpy", b"fromfile"),
    (b"numpy.f2py.capi_maps", b"getinit"),
    (b"numpy.testing._private.utils", b"runstring"),
    (b"pandas.compat.pickle_compat", b"load"),
    (b"subprocess", b"Popen"),
    (b"datetime", b"datetime.__reduce__"),
    (b"_codecs", b"encode"),
    (b"__main__", b"x"),
]


def change_parquet(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change the types, names, values or layout of a Parquet file's columns."""
    try:
        made = pq.ParquetFile(io.BytesIO(content)).read(use_threads=False)
        made.column_names  # noqa: B018 - which may not be UTF-8
    except Exception:  # what an earlier change left behind
        return change_bytes(content, rng, other)
    names, arrays = list(made.column_names), [column.combine_chunks() for column in made.columns]
    if not names:
        return content
    place = rng.randrange(len(names))
    match rng.randrange(9):
        case 0:
            names[place] = rng.choice(_NAMES)
        case 1:
            del names[place], arrays[place]
        case 2:
            names.append(rng.choice((names[place], rng.choice(_NAMES))))
            arrays.append(arrays[place])
        case 3:
            values = arrays[place].to_pylist()
            if values:
                at = rng.randrange(len(values))
                values[at] = rng.choice((None, values[0], *_NUMBERS))
            arrays[place] = _array(values, arrays[place].type)
        case 4 | 5:
            arrays[place] = _retyped(arrays[place], rng)
        case 6:
            count = len(arrays[0])
            wanted = rng.choice((0, 1, count, 2 * count)) if count else 0
            rows = pa.array([rng.randrange(count) for _ in range(wanted)], pa.int64())
            arrays = [array.take(rows) for array in arrays]
        case 7:
            arrays[place] = pa.nulls(len(arrays[place]), rng.choice((pa.null(), pa.float64(), pa.string())))
        case _:
            pass
    file = io.BytesIO()
    try:
        pq.write_table(
            pa.table(arrays, names=names),
            file,
            compression=rng.choice(("snappy", "zstd", "gzip", "none", "brotli", "lz4")),
            row_group_size=rng.choice((1, 2, 1 << 20)),
            version=rng.choice(("1.0", "2.4", "2.6")),
            data_page_version=rng.choice(("1.0", "2.0")),
            use_dictionary=rng.random() < 0.5,
        )
    except pa.ArrowException:
        return content
    return file.getvalue()


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return pa.array([str(value) for value in values])


def _retyped(array: pa.Array, rng: random.Random) -> pa.Array:
    kinds = [pa.float32(), pa.float16(), pa.int64(), pa.int8(), pa.uint64(), pa.string(), pa.large_string(), pa.bool_()]
    kinds += [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Asia/Shanghai")]
    kinds += [pa.date32(), pa.date64(), pa.time64("us"), pa.duration("s"), pa.binary(), pa.decimal128(38, 6)]
    kind = rng.choice(kinds)
    if rng.random() < 0.15:
        return pa.array([[value] for value in array.to_pylist()])
    if rng.random() < 0.15:
        return array.dictionary_encode()
    if rng.random() < 0.2:
        odd = [rng.choice(TOKENS) for _ in range(len(array))]
        return pa.array([token.encode("utf-8", "replace").decode() for token in odd])
    if rng.random() < 0.1:
        odd_values = [
            dt.time(9, 30),
            dt.date(1, 1, 1),
            decimal.Decimal("1.5"),
            dt.datetime(9999, 12, 31),
            {"a": 1},
            b"x",
        ]
        return pa.array([rng.choice(odd_values)] * len(array))
    try:
        return array.cast(kind, safe=False)
    except (pa.ArrowException, ValueError):
        return array


def parquet_rows(tree: Tree) -> list[Row] | None:
    """The rows of a Parquet file with the schema's own names, plain numbers and naive stamps."""
    rows: list[Row] = []
    for name, content in tables_in(tree):
        if not name.lower().endswith(".parquet"):
            return None
        file = pq.ParquetFile(io.BytesIO(content))
        needed = ("open", "high", "low", "close", "volume")
        if not {*needed, "instrument", "datetime"} <= set(file.schema_arrow.names):
            return None
        made = file.read(columns=[*needed, "instrument", "datetime"], use_threads=False)
        if any(made.schema.field(field).type not in (pa.float64(), pa.int64()) for field in needed):
            return None
        naive = made.schema.field("datetime").type == pa.timestamp("us")
        texts = made.schema.field("instrument").type == pa.string()
        if not naive or not texts:
            return None
        stamps = made["datetime"].cast(pa.int64()).to_pylist()
        columns = {field: made[field].to_pylist() for field in needed}
        for at, (instrument, stamp) in enumerate(zip(made["instrument"].to_pylist(), stamps, strict=True)):
            fields = {field: np.nan if (cell := columns[field][at]) is None else float(cell) for field in needed}
            rows.append(Row(instrument, None if stamp is None else stamp * 1000, fields))
    return rows


def change_pickle(content: bytes, rng: random.Random, other: bytes) -> bytes:
    """Put calls and lengths that lie into a pickle, or write one of another object."""
    match rng.randrange(6):
        case 0 | 1:
            module, name = rng.choice(_CALLS)
            call = (
                b"c" + module + b"\n" + name + b"\n" + rng.choice((b"(V../executed\ntR", b"(tR", b")\x81", b"", b"}b"))
            )
            at = rng.choice((0, 2, 11, rng.randrange(len(content) + 1)))
            return content[:at] + call + rng.choice((b"", b"0", b".")) + content[at:]
        case 2:
            length = struct.pack("<Q", rng.choice((2**31, 2**40, 2**63, 2**64 - 1)))
            code = rng.choice((b"\x8e", b"\x8d", b"\x96", b"B", b"X", b"\x8b", b"\x95"))
            at = rng.randrange(len(content) + 1)
            return content[:at] + code + length + content[at:]
        case 3:
            odd = [
                [],
                {},
                np.arange(3),
                pd.Series([1.0]),
                pd.DataFrame({"a": [1]}),
                1.5,
                None,
                {1: {2: {}}},
                slice(1, 2),
            ]
            return pickle.dumps(rng.choice(odd), protocol=rng.randrange(6))
        case 4:
            code = rng.choice(
                (b"(", b"0", b"1", b"2", b"h\x00", b"j\xff\xff\xff\x7f", b"r\xff\xff\xff\x7f", b"Q", b"P0\n", b"\x94")
            )
            at = rng.randrange(len(content) + 1)
            return content[:at] + code * rng.choice((1, 2, 50)) + content[at:]
        case _:
            return change_bytes(content, rng, other)


def repickled(content: bytes, rng: random.Random) -> bytes:
    """Return another table like the one in `content`, which must be of a pure tree."""
    made: pd.DataFrame = pickle.loads(content)
    match rng.randrange(9):
        case 0:
            made = made.iloc[rng.sample(range(len(made)), len(made))]
        case 1:
            made = made.astype(rng.choice((np.float32, np.float64)))
        case 2:
            made = made.rename(
                columns={rng.choice(list(made.columns)): rng.choice(("$open0", "$askV0", "$x", "close", 7))}
            )
        case 3:
            extra = rng.choice(("$vwap0", "$bid0", "note", "$high0"))
            made = made.assign(**{extra: rng.choice((1.5, "text", 3, True))})
        case 4 if len(made):
            made.iloc[rng.randrange(len(made)), rng.randrange(made.shape[1])] = rng.choice((*_NUMBERS, 12.34, 0.1))
        case 5:
            made = made.iloc[: rng.randrange(len(made) + 1)]
        case 6:
            made = pd.concat([made, made])
        case 7:
            made = made.swaplevel() if made.index.nlevels == 2 else made
        case _:
            made = made.copy(deep=True)
    return pickle.dumps(made, protocol=rng.choice((2, 3, 4, 5)))


def pickle_rows(tree: Tree) -> list[Row] | None:
    """The bars of pickled tables as pandas itself reads them; only of a pure tree, which ran nothing before."""
    if not tree.pure:
        return None
    rows: list[Row] = []
    for _, content in sorted(tree.files.items()):
        made = pickle.loads(content)
        numbers = [column for column in made.columns if made[column].dtype.kind in "fiu"]  # others are ignored
        known = {str(column).removeprefix("$").removesuffix("0").lower(): column for column in numbers}
        for at in range(len(made)):
            label = dict(zip(made.index.names, made.index[at], strict=True))
            stamp = label["datetime"]
            fields = {field: _decimal(made[known[field]].iloc[at]) for field in ("close", "volume") if field in known}
            if not pd.isna(stamp):
                rows.append(Row(label["instrument"], stamp.value, fields))
    return rows


def _decimal(value: object) -> float:
    """Return a number; of a float32, the shortest decimal with at most six digits after the point that is the same."""
    if not isinstance(value, np.float32) or not np.isfinite(value) or value == np.rint(value):
        return float(value)  # type: ignore[arg-type]
    shown = np.format_float_positional(value, unique=True)
    return float(shown) if len(shown.partition(".")[2]) <= 6 else float(value)
