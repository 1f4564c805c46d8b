"""Wide tables, with a column for each field of each instrument: told apart, and how pandas makes them long."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rlwb.errors import DataError
from rlwb.market.findings import printable
from rlwb.market.schema import TRADE_PRICES

_FIELD = rf"adj[ _]?close|volume|{'|'.join(TRADE_PRICES)}"
#: The names that pandas writes to a binary file for columns of two levels.
_PAIR = re.compile(r"\('(.*)', '(.*)'\)")
#: A field and an instrument in one name, in either order; between them is no letter and no digit.
_JOINED = (
    re.compile(rf"(?P<instrument>.+?)(?P<mark>[^A-Za-z0-9]+)(?P<field>{_FIELD})", re.IGNORECASE),
    re.compile(rf"(?P<field>{_FIELD})(?P<mark>[^A-Za-z0-9]+)(?P<instrument>.+)", re.IGNORECASE),
)


def refuse_two_headers(path: Path, names: Sequence[str], cells: Sequence[str]) -> None:
    """Raise `DataError` for a table with two header rows, one of fields and one of instruments.

    `names` are those of the columns, `cells` the values of the row below; a binary file has no such row.
    """
    pairs = [match.groups() for name in names if (match := _PAIR.fullmatch(name))]
    upper, lower = ([pair[level] for pair in pairs] for level in (0, 1)) if pairs else (names, cells)
    read = _reading(path) if pairs else f'pd.read_csv("{path.name}", header=[0, 1], index_col=0)'
    for level, (fields, ids) in ((1, (upper, lower)), (0, (lower, upper))):
        both = [(field, name) for field, name in zip(fields, ids, strict=False) if re.fullmatch(_FIELD, field, re.I)]
        named = bool(both) and all(re.search(r"[^\W\d]", name) for _, name in both)
        named |= bool(cells) and cells[0].strip().lower() in ("ticker", "symbol")  # before ids that are numbers
        if len(both) > 1 and (pairs or named or _all_repeat([field for field, _ in both])):
            code = f'long = {read}.stack({level}, future_stack=True).rename_axis(["datetime", "instrument"])'
            raise _refusal(path, *both[0], code)


def refuse_joined_names(path: Path, names: Sequence[str]) -> None:
    """Raise `DataError` for a table whose columns are each named by a field and an instrument, such as AAPL_Close."""
    for place, pattern in enumerate(_JOINED):
        found = {name: match for name in names if (match := pattern.fullmatch(name))}
        marks = {match["mark"] for match in found.values()}
        if len(found) > 1 and len(marks) == 1:
            first, cut = next(iter(found.values())), ("rsplit", "split")[place]
            levels = ('["instrument", None]', '[None, "instrument"]')[place]
            others = [name for name in names if name not in found]
            code = (
                f"t = {_reading(path)}.set_index({others}); "
                f"t.columns = pd.MultiIndex.from_tuples([c.{cut}({marks.pop()!r}, 1) for c in t], names={levels}); "
                'long = t.stack("instrument", future_stack=True)'
            )
            raise _refusal(path, first["field"], first["instrument"], code)


def _all_repeat(values: Sequence[str]) -> bool:
    return min(Counter(values).values()) > 1


def _reading(path: Path) -> str:
    kind = {".parquet": "parquet", ".feather": "feather"}.get(path.suffix.lower(), "csv")
    return f'pd.read_{kind}("{path.name}")'


def _refusal(path: Path, field: str, instrument: str, code: str) -> DataError:
    return DataError(
        printable(
            f"{path} is a wide table: it has a column for each field of each instrument, as {field} of {instrument}. "
            f'Make it long with pandas: {code}; long.reset_index().to_csv("long.csv", index=False).'
        )
    )
