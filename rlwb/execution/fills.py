"""Tables of real fills: a broker's executions in the form that cost analysis and the fit of impact read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, OrderError
from rlwb.execution.order import text_of
from rlwb.execution.table import Cells, OnRefused, PlaceOf, read_rows
from rlwb.market import Calendar

#: Columns of a canonical table of fills, with their types. Those from order_quantity on may be missing in every row.
FILL_COLUMNS = {
    "order_id": "O",
    "instrument": "O",
    "side": "i1",
    "time": "M8[ns]",
    "quantity": "f8",
    "price": "f8",
    "order_quantity": "f8",
    "start": "M8[ns]",
    "end": "M8[ns]",
    "decision_time": "M8[ns]",
    "decision_price": "f8",
    "fee": "f8",
    "venue": "O",
}
_REQUIRED = tuple(FILL_COLUMNS)[:6]
_OF_ORDERS = ("instrument", "side", "start", "end", "decision_time", "decision_price")
#: Names that are known without being told, the first that a table has counting; among them FIX's names and tags.
#: FIX's Price is an order's limit, so that LastPx goes before it.
_NAMES = {
    "order_id": "orderid parentorderid parentid clordid 37 11",
    "instrument": "instrument symbol ticker 55",
    "side": "side direction buysell 54",
    "time": "transacttime time executiontime exectime filltime tradetime datetime timestamp 60",
    "quantity": "lastqty lastshares fillqty fillquantity filledqty execqty quantity 32",
    "price": "lastpx lastprice fillprice execprice tradeprice price 31",
    "order_quantity": "orderqty orderquantity 38",
    "start": "start starttime orderstart arrivaltime effectivetime 168",
    "end": "end endtime orderend expiretime 126",
    "decision_time": "decisiontime",
    "decision_price": "decisionprice",
    "fee": "fee fees commission 12",
    "venue": "venue lastmkt 30",
    "exec_id": "execid 17",
    "exec_ref_id": "execrefid 19",
    "exec_type": "exectype 150",
    "exec_trans_type": "exectranstype 20",
}
#: FIX's Side beside the words; 5 and 6 sell short.
_SIDES = {"1": "BUY", "+1": "BUY", "2": "SELL", "5": "SELL", "6": "SELL", "-1": "SELL", "SS": "SELL"}
#: What FIX's ExecType and, before FIX 4.3, ExecTransType say that a row is, with spaces and underscores taken out.
_KINDS = {
    **dict.fromkeys(("F", "1", "2", "TRADE", "FILL", "FILLED", "PARTIALFILL", "PARTIALLYFILLED"), "fill"),
    **dict.fromkeys(("H", "TRADECANCEL", "BUST"), "cancel"),
    **dict.fromkeys(("G", "TRADECORRECT", "TRADECORRECTION"), "correction"),
    **dict.fromkeys((*"03456789ABCDEIJKL", "NEW", "CANCELED", "CANCELLED", "REPLACED", "REJECTED", "EXPIRED"), "none"),
    **dict.fromkeys(("DONEFORDAY", "PENDINGNEW", "PENDINGCANCEL", "PENDINGREPLACE", "STOPPED", "SUSPENDED"), "none"),
}
_TRANSACTIONS = {"1": "cancel", "2": "correction", "3": "none"}
_FIX_STAMP = re.compile(r"(\d{8})-(\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s*(Z|[+-]\d{2}(?::?\d{2})?)?")
_UNZONED = r"\d{4}[-/]?\d{1,2}[-/]?\d{1,2}[T ]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
_SAME = 1e-9  # share of an order's quantity that rounding may add to its fills


def read_fills(
    path: str | os.PathLike[str],
    calendar: Calendar,
    *,
    columns: Mapping[str, str] | None = None,
    codes: Mapping[Any, str] | None = None,
    source_timezone: str | None = None,
    on_refused: OnRefused = "raise",
) -> pd.DataFrame:
    """Read a Parquet or CSV file of executions into the canonical form; see `fill_table`.

    Errors and notes name the rows of a CSV file by their line, those of a Parquet file counted from 0.
    """
    frame, place_of = read_rows(Path(path), "fills")
    settings: Any = {"columns": columns, "codes": codes, "source_timezone": source_timezone, "on_refused": on_refused}
    return fill_table(frame, calendar, source=str(path), place_of=place_of, **settings)


def fill_table(
    frame: pd.DataFrame,
    calendar: Calendar,
    *,
    columns: Mapping[str, str] | None = None,
    codes: Mapping[Any, str] | None = None,
    source_timezone: str | None = None,
    source: str = "fills",
    on_refused: OnRefused = "raise",
    place_of: PlaceOf = "row {}".format,
) -> pd.DataFrame:
    """Return executions in the canonical form.

    Parameters
    ----------
    frame
        One row an execution, with at least order_id, instrument, side, time, quantity and price, under these names or
        FIX's (OrderID or ClOrdID, Symbol, Side, TransactTime, LastQty, LastPx, or their tags). With ExecType (or
        ExecTransType) only executions count: a cancelled one (H) is left out with its cancel, a corrected one (G) is
        replaced by its correction, as ExecRefID names them within their order.
    calendar
        The clock to whose zone stamps with one are brought. FIX's own form ``20240301-14:30:00`` is UTC.
    columns
        Names of the frame's columns to canonical ones, where they are not known: ``{"avg_px": "price"}``.
    codes
        Meaning of the frame's own sides; FIX's 1, 2, 5 and 6, buy/sell, B/S and +1/-1 are known.
    source_timezone
        Zone of stamps without one, where it is not the calendar's.
    source
        Name of the table in errors, for example its file.
    on_refused
        ``"raise"`` refuses a table with wrong rows; ``"drop"`` leaves them out.
    place_of
        Names a row by its number.

    Returns
    -------
    DataFrame
        Columns `FILL_COLUMNS`, an order's fills together and in order of time: order_id, instrument (text), side
        (int8, 1 buys, -1 sells), time (session-local), quantity and price (above 0); the order's order_quantity, start
        (of trading: the arrival), end, decision_time and decision_price, the same in all its rows; fee (of the fill, in
        currency) and venue. What is not there is NaN, NaT or "". ``attrs["notes"]`` says in words under which names
        columns were found and which rows do not count.

    Raises
    ------
    OrderError
        Naming columns that lack, or the first ten wrong rows and the number of the others.
    """
    notes: list[str] = []
    frame = _named(frame, dict(columns or {}), source, notes)
    kinds = _kinds(frame)
    unmatched = _net(frame, kinds, notes)
    rows = np.flatnonzero(np.isin(kinds, ("fill", "correction", "")) | unmatched)
    if not len(rows):
        raise OrderError(f"{source} holds no fills; give at least one.")
    frame, kinds, unmatched = frame.iloc[rows].reset_index(drop=True), kinds[rows], unmatched[rows]
    zoned = frame.assign(**{name: _stamps(frame[name], source_timezone) for name in FILL_COLUMNS if _is_time(name)})
    cells = Cells(zoned, calendar, lambda row: place_of(int(rows[row])))
    cells.refuse(kinds == "", "exec_type", "is no ExecType of FIX's, nor FILL, TRADE_CANCEL or the like")
    cells.refuse(unmatched, "exec_ref_id", "is the ExecID of no other row of its order that counts")
    if source_timezone is not None and zoned["time"].equals(_text(frame["time"])):
        raise ConfigError(f"{source}: the stamps carry a zone already; leave source_timezone out.")
    table = _canonical(cells, {**_SIDES, **(codes or {})}, notes)
    if cells.faults and on_refused == "raise":
        raise OrderError(f"{source}{cells.told(len(zoned))}")
    if cells.faults:
        notes.append(f"left out of {source}{cells.told(len(zoned))}")
    table = table.drop(index=list(cells.faults))
    if table.empty:
        raise OrderError(f"{source} holds no fills beside wrong rows: {notes[-1]}")
    first = table.groupby("order_id")["time"].transform("min")
    table = table.iloc[np.lexsort((table["time"], table["order_id"], first))].reset_index(drop=True)
    table.attrs["notes"] = notes
    return table


def fill_orders(fills: pd.DataFrame, calendar: Calendar) -> pd.DataFrame:
    """Return the orders that fills belong to, as a canonical order table, one row an order, in order of `fills`.

    The amount is the order's quantity, or where it is not known what was filled. The window runs from the start of the
    tick of `start`, or of the first fill where that is earlier or there is no start, to the end of the tick of `end`,
    or of the last fill where that is later or there is no end.
    """
    orders = fills.groupby("order_id", sort=False)
    first, last = orders.first(), orders["time"].max()
    amount = first["order_quantity"].fillna(orders["quantity"].sum())
    begin = pd.concat([first["start"], orders["time"].min()], axis=1).min(axis=1)
    date = begin.dt.normalize()
    seconds, ends = ((stamp - date).dt.total_seconds().to_numpy() for stamp in (begin, last))
    until = (first["end"] - date).dt.total_seconds().to_numpy()
    tick, stop = calendar.tick_seconds, calendar.tick_start + calendar.tick_seconds
    opened, closing = (tick_of(at, calendar) for at in (seconds, ends))
    seconds = np.where(opened >= 0, calendar.tick_start[opened], seconds)
    ends = np.where(closing >= 0, stop[closing], ends)
    within = tick_of(until, calendar)
    edge = within >= 0
    edge &= until > calendar.tick_start[within]  # an end on an edge of two ticks is that edge
    until = np.where(edge, calendar.tick_start[within] + tick, until)
    return pd.DataFrame(
        {
            "order_id": first.index.to_numpy(dtype=object),
            "instrument": first["instrument"].to_numpy(dtype=object),
            "date": date.to_numpy(),
            "direction": np.where(first["side"] > 0, "BUY", "SELL").astype(object),
            "amount": amount.to_numpy(dtype=np.float64),
            "start": date.to_numpy() + _span(seconds),
            "end": date.to_numpy() + _span(np.fmax(until, ends)),
        }
    )


def tick_of(seconds: np.ndarray, calendar: Calendar) -> np.ndarray:
    """Return the tick that holds each moment, in seconds since local midnight; -1 outside the session, int64."""
    at = np.searchsorted(calendar.tick_start, seconds, side="right") - 1
    held = (at >= 0) & (seconds < calendar.tick_start[at] + calendar.tick_seconds)
    return np.where(held, at, -1)


def _span(seconds: np.ndarray) -> np.ndarray:
    return np.round(seconds * 1e9).astype("m8[ns]")


def _text(values: pd.Series) -> pd.Series:
    """Return the cells of a column as text, each different one being read once."""
    labels, distinct = pd.factorize(values, use_na_sentinel=False)
    text = np.array([text_of(value) for value in distinct], dtype=object)
    return pd.Series(text[labels], values.index, dtype=object)


def _is_time(name: str) -> bool:
    return FILL_COLUMNS[name].startswith("M8")


def _named(frame: pd.DataFrame, mapping: dict[str, str], source: str, notes: list[str]) -> pd.DataFrame:
    """Return the columns that are known, all of `_NAMES`, under their canonical names."""
    frame = frame.reset_index(drop=True).rename(columns=str)
    if wrong := sorted(set(mapping.values()) - set(_NAMES)):
        raise ConfigError(f"a column is to be called {wrong[0]!r}, which fills do not have; choose of {[*_NAMES]}.")
    if lost := sorted(set(mapping) - set(frame.columns)):
        raise OrderError(f"{source} has no column {lost[0]!r}; it has {sorted(frame.columns)}.")
    if len(set(mapping.values())) < len(mapping):
        raise ConfigError(f"two columns are given one name in {mapping}; name each once.")
    plain: dict[str, list[str]] = {}
    for name in frame.columns:
        if name not in mapping:
            plain.setdefault(re.sub(r"[\W_]", "", name).lower(), []).append(name)
    theirs = {ours: name for name, ours in mapping.items()}
    for ours, known in _NAMES.items():
        if ours not in theirs and (found := next((plain[name] for name in known.split() if name in plain), None)):
            if len(found) > 1:
                raise OrderError(
                    f"{source} has the columns {found} for {ours}; say which counts, as {found[0]}={ours}."
                )
            theirs[ours] = found[0]
    if missing := [name for name in _REQUIRED if name not in theirs]:
        raise OrderError(
            f"{source} lacks the columns {missing}; it has {sorted(frame.columns)}. Say which of them it is, as "
            f"THEIRS={missing[0]}."
        )
    if renamed := [f"{theirs[ours]} as {ours}" for ours in _NAMES if theirs.get(ours, ours) != ours]:
        notes.append(f"{source}: read {', '.join(renamed)}")
    named = {ours: frame[theirs[ours]] if ours in theirs else pd.Series(None, frame.index, object) for ours in _NAMES}
    return pd.DataFrame(named)


def _kinds(frame: pd.DataFrame) -> np.ndarray:
    """Return "fill", "cancel", "correction" or "none" (no execution) of each row, "" where its ExecType is unknown."""
    words = _text(frame["exec_type"]).str.replace(r"[\s_]", "", regex=True).str.upper()
    kinds = words.map(lambda word: _KINDS.get(word, ""))
    if not (words != "").any():
        kinds[:] = "fill"
    changed = _text(frame["exec_trans_type"]).map(_TRANSACTIONS.get)
    return kinds.where(changed.isna(), changed).to_numpy(dtype=object)


def _net(frame: pd.DataFrame, kinds: np.ndarray, notes: list[str]) -> np.ndarray:
    """Call what was cancelled or corrected "none" in `kinds`; return which cancels and corrections name no row."""
    order, own, named = (_text(frame[name]) for name in ("order_id", "exec_id", "exec_ref_id"))
    keys, targets = order + "\0" + own, order + "\0" + named
    changing = np.isin(kinds, ("cancel", "correction"))
    counted = np.isin(kinds, ("fill", "correction")) & (own != "").to_numpy()
    unmatched: np.ndarray = changing & ~(targets.isin(set(keys[counted])) & (named != "")).to_numpy()
    replaced = counted & keys.isin(set(targets[changing & ~unmatched])).to_numpy()
    others = int((kinds == "none").sum())
    if others:
        notes.append(f"{others} rows are no executions and do not count")
    if replaced.any():
        notes.append(f"{int(replaced.sum())} executions were cancelled or corrected and do not count")
    kinds[replaced] = "none"
    kinds[(kinds == "cancel") & ~unmatched] = "none"
    return unmatched


def _stamps(values: pd.Series, zone: str | None) -> pd.Series:
    """Return stamps as text that `Cells` reads, those without a zone brought into `zone`."""
    text = _text(values)
    text = text.map(lambda stamp: _FIX_STAMP.sub(lambda fix: f"{fix[1]} {fix[2]}{fix[3] or 'Z'}", stamp))
    if zone is None:
        return text
    bare = text.str.fullmatch(_UNZONED)
    try:
        moved = pd.to_datetime(text.where(bare), errors="coerce", format="mixed")
        moved = moved.dt.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    except (KeyError, ValueError) as error:
        raise ConfigError(f"source_timezone is {zone!r}, which is no time zone; write for example UTC.") from error
    return text.where(~bare, moved.astype(str))


def _canonical(cells: Cells, codes: Mapping[Any, str], notes: list[str]) -> pd.DataFrame:
    """Return the canonical columns, a row a row of `cells`, whose faults grow by what is wrong."""
    frame = cells.frame
    order, own = (_text(frame[name]) for name in ("order_id", "exec_id"))
    instrument = frame["instrument"].to_numpy(dtype=object)
    wrong = [not isinstance(value, str) or not value.strip() for value in instrument]
    cells.refuse(wrong, "instrument", "is not text; quote it, so that ids such as '000001' keep their zeros")
    cells.refuse(order == "", "order_id", "is empty; every fill belongs to an order")
    cells.refuse((own != "") & (order + "\0" + own).duplicated(), "exec_id", "occurs more than once in its order")
    stamps = cells.stamps("time")
    time = stamps["local"].where(stamps["dated"])
    cells.refuse(time.isna(), "time", "is not a date with a time; write 2024-03-01 10:30:00")
    date = time.dt.normalize()
    decision = cells.stamps("decision_time")
    cells.refuse(decision["given"] & ~decision["dated"], "decision_time", "is not a date with a time")
    numbers = {name: cells.numbers(name) for name, kind in FILL_COLUMNS.items() if kind == "f8"}
    for name, values in numbers.items():
        given = (_text(frame[name]) != "").to_numpy() | (name in _REQUIRED)
        fits = np.isfinite(values) & ((values > 0) | (name == "fee"))
        cells.refuse(given & ~fits, name, "is not a number" if name == "fee" else "is not a number above 0")
    table = pd.DataFrame(
        {
            "order_id": order,
            "instrument": instrument,
            "side": np.where(cells.directions(codes, "side") == "SELL", -1, 1),
            "time": time,
            "start": cells.times("start", date),
            "end": cells.times("end", date),
            "decision_time": decision["local"].where(decision["dated"]),
            "venue": _text(frame["venue"]),
            **numbers,
        }
    )[list(FILL_COLUMNS)].astype(FILL_COLUMNS)
    _refuse_orders(cells, table, notes)
    return table


def _refuse_orders(cells: Cells, table: pd.DataFrame, notes: list[str]) -> None:
    """Refuse rows that do not fit to the others of their order; what some rows of an order lack is filled in."""
    good = table.drop(index=list(cells.faults)).sort_values("time", kind="stable")
    orders = good.groupby("order_id")
    for name in _OF_ORDERS:
        first = orders[name].transform("first")
        differs = good[name].notna() & (good[name] != first)
        cells.refuse(table.index.isin(good.index[differs]), name, "differs from that of the order's other fills")
        table.loc[good.index, name] = first
    later = good["time"].dt.normalize() != orders["time"].transform("min").dt.normalize()
    cells.refuse(
        table.index.isin(good.index[later]), "time", "is on a later date than the order's first fill; split it by day"
    )
    amount = orders["order_quantity"].transform("last")  # an amended order's last quantity is its quantity
    if amended := int((orders["order_quantity"].nunique() > 1).sum()):
        notes.append(f"{amended} orders have several order quantities; their last one counts")
    table.loc[good.index, "order_quantity"] = amount
    alone = good["quantity"] > amount * (1 + _SAME)  # a single wrong quantity leaves the order's other fills right
    total = good["quantity"].mask(alone, 0).groupby(good["order_id"]).cumsum()
    over = alone | (total > amount * (1 + _SAME))
    cells.refuse(table.index.isin(good.index[over]), "quantity", "brings the order's fills above its order_quantity")
    early = int((good["time"] < table.loc[good.index, "start"]).sum())
    if early:
        notes.append(f"{early} fills are stamped before the start of their order")
    same = int((good.duplicated() & (_text(cells.frame["exec_id"])[good.index] == "")).sum())
    if same:
        notes.append(f"{same} fills equal another in everything; without an ExecID all of them count")
