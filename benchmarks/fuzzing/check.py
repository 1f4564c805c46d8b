"""Whether what a reader did with an input is what readers may do."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.fuzzing.plain import Row
from benchmarks.fuzzing.targets import Target
from benchmarks.fuzzing.tree import Tree
from rlwb.errors import DataError, OrderError
from rlwb.market.build import build_sessions

_FLOAT32 = ("qlib",)
#: More bars than this are not compared one by one, which would take seconds.
_COMPARED = 10_000


class Unexpected(Exception):  # noqa: N818 - what is reported, not raised at users
    """What a reader may not do; the message says what it did."""


def check_refusal(error: Exception, folder: Path) -> None:
    """Raise `Unexpected` unless `error` is one sentence that names the source or a file of it."""
    if not isinstance(error, DataError | OrderError):
        raise Unexpected(f"raises {type(error).__name__}: {str(error)[:300]}") from error
    message = str(error)
    if "\n" in message or not message.endswith((".", ".)")):
        raise Unexpected(f"refuses with what is not one sentence: {message!r}")
    if "is at fault" in message:  # what `read_bars` says of a reader whose frame is not canonical
        raise Unexpected(f"answers with a frame at fault: {message!r}")
    if str(folder) not in message and not any(path.name in message for path in folder.rglob("*")):
        raise Unexpected(f"refuses without naming the file: {message!r}")


def check_answer(target: Target, tree: Tree, frame: pd.DataFrame, folder: Path, lay_out: bool) -> None:
    """Raise `Unexpected` unless `frame` is canonical and holds the bars of `tree`, all of them and no other."""
    if target.calendar is None:
        _check_orders(frame)
        return
    if target.rows is not None and len(frame) <= _COMPARED:
        try:
            rows = target.rows(tree)
        except Exception as error:  # the plain reader cannot read what rlwb read
            raise Unexpected(f"answers where a plain reading fails: {type(error).__name__}: {error}") from error
        if rows is not None:
            _compare(rows, frame, single=target.name in _FLOAT32)
    if lay_out:
        _lay_out(target, frame)


def _check_orders(frame: pd.DataFrame) -> None:
    amounts = frame["amount"].to_numpy(dtype=np.float64)
    if not (len(frame) and np.isfinite(amounts).all() and (amounts > 0).all()):
        raise Unexpected(f"answers with the amounts {amounts[:5]}")
    if (
        not set(frame["direction"]) <= {"BUY", "SELL"}
        or frame["order_id"].duplicated().any()
        or frame["date"].isna().any()
    ):
        raise Unexpected("answers with orders without date, side or id of their own")


def _compare(rows: list[Row], frame: pd.DataFrame, single: bool) -> None:
    """Compare both sides as bags of bars; stamps and fields that the plain reading lacks are left out of both."""
    if not rows and not len(frame):
        return
    lacking = {"instrument", "datetime"} - set(frame.columns)
    if lacking:
        raise Unexpected(f"answers without the columns {', '.join(sorted(lacking))} that the source has")
    names = [name for name in (rows[0].fields if rows else {}) if name in frame.columns]
    stamped = all(row.stamp is not None for row in rows)
    wanted = Counter(
        (row.instrument, row.stamp if stamped else None, *_bits((row.fields[name] for name in names), single))
        for row in rows
    )
    stamps = frame["datetime"]
    local = stamps.dt.tz_localize(None) if isinstance(stamps.dtype, pd.DatetimeTZDtype) else stamps
    moments = local.astype("datetime64[ns]").astype("int64").tolist() if stamped and rows else [None] * len(frame)
    instruments = [None if pd.isna(name) else str(name) for name in frame["instrument"].tolist()]
    columns = [frame[name].astype(np.float64).tolist() for name in names]
    given = Counter(
        (instrument, moment, *_bits(values, single))
        for instrument, moment, *values in zip(instruments, moments, *columns, strict=True)
    )
    if given != wanted:
        raise Unexpected(
            f"answers with other bars than the source has: too many {list((given - wanted).elements())[:2]}, "
            f"missing {list((wanted - given).elements())[:2]} of {names}"
        )


def _bits(values: Iterable[float], single: bool) -> list[object]:
    """Return values in a form in which NaN equals NaN."""
    if single:
        with np.errstate(over="ignore"):
            values = [float(np.float32(value)) for value in values]
    return ["nan" if value != value else struct.pack("<d", value + 0.0) for value in values]


def _lay_out(target: Target, frame: pd.DataFrame) -> None:
    """Lay the bars out as sessions: an answer whose closes are those of the bars, or a `DataError`."""
    assert target.calendar is not None
    try:
        sessions = build_sessions(frame, target.calendar, min_coverage=0.0)
    except DataError as error:
        if "\n" in str(error) or not str(error).endswith((".", ".)")):
            raise Unexpected(f"sessions refuse with what is not one sentence: {error!s:.300}") from None
        return
    except Exception as error:
        raise Unexpected(f"sessions raise {type(error).__name__}: {str(error)[:300]}") from error
    closes = sessions.fields["close"]
    held = closes[np.isfinite(closes)]
    source = pd.to_numeric(frame["close"], errors="coerce").to_numpy(dtype=np.float64)
    if not np.isin(held, source).all():
        raise Unexpected(f"sessions hold closes that no bar has: {held[~np.isin(held, source)][:5]}")


def raised_at(error: BaseException) -> str:
    """Return the line that raised `error`, by which refusals of one kind are told: their words name what is refused."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "nowhere" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def kind_of(message: str, folder: Path) -> str:
    """Return a message without its names and numbers, by which findings of one kind are told."""
    message = message.replace(str(folder), "").partition(": too many ")[0]
    return re.sub(r"'[^']*'|\"[^\"]*\"|[-+.\d]+|\S*/\S*", "_", message)[:160]
