"""What the events of a service's journal hold, and what they do to a policy."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from rlwb.errors import DataError, OrderError
from rlwb.execution.order import Order
from rlwb.serving.journal import Event
from rlwb.serving.wire import BAR_FIELDS, OrderIn

if TYPE_CHECKING:
    from rlwb.serving.live import Arrivals
    from rlwb.serving.policy import BundlePolicy

#: The ordinal of 1970-01-01.
EPOCH = date(1970, 1, 1).toordinal()


def apply(policy: BundlePolicy, event: Event) -> Arrivals | None:
    """Do to a policy what an event of the journal did, and return what became of bars of the day.

    Decisions are restored at the end.
    """
    if event.kind == "bars":
        with contextlib.suppress(DataError):  # they were refused when they came, too
            return policy.market.add(unpacked(event.body))
    elif event.kind == "history":
        add_history(policy, unpacked(event.body))
    elif event.kind == "until":
        reach(policy, *event.body)
    elif event.kind == "order":
        policy.register([order_of(msgspec.convert(event.body, OrderIn))])
    elif event.kind in ("cancelled", "finished"):
        name = event.body if event.kind == "cancelled" else event.body[0]
        if name in policy:  # results are kept for longer than their orders
            policy.forget(name)
    return None


def reach(policy: BundlePolicy, day: int, tick: int, instruments: Sequence[str]) -> None:
    """Tell a policy's market that all ticks before one are over."""
    market = policy.market
    for name in instruments:
        row = market.row(name, date_of(day))
        if row >= 0:
            market.reach(row, tick)


def add_history(policy: BundlePolicy, columns: Mapping[str, Any]) -> Arrivals:
    """Give a policy's market bars of earlier sessions."""
    import pandas as pd

    return policy.market.load_history(pd.DataFrame(dict(columns)))


def packed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of bars as bytes, and names that are all the same as one."""
    names = columns["instrument"]
    same = names[0] if len(set(names)) == 1 else list(names)
    stamps = columns["datetime"].astype("<i8").tobytes()
    rest = {name: values.astype("<f8").tobytes() for name, values in columns.items() if name in BAR_FIELDS}
    return {"instrument": same, "datetime": stamps, **rest}


def unpacked(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that `packed` was given."""
    stamps = np.frombuffer(body["datetime"], "<i8").astype("datetime64[us]")
    names = body["instrument"]
    columns = {"instrument": [names] * len(stamps) if isinstance(names, str) else names, "datetime": stamps}
    return columns | {name: np.frombuffer(body[name], "<f8") for name in BAR_FIELDS if name in body}


def order_of(content: OrderIn) -> Order:
    """Return the order of a message.

    Raises
    ------
    OrderError
        When a field of it is none that an order can have.
    """
    return Order(**msgspec.structs.asdict(content))


def id_of(content: OrderIn) -> str:
    """Return the id of an order that states none: what it is, and a hash of the rest."""
    digest = hashlib.blake2b(msgspec.json.encode(content), digest_size=6).hexdigest()
    return f"{content.instrument[:80]}-{content.date}-{content.direction}-{digest}"


def day_of(text: str) -> int:
    """Return the days since 1970 of a date ``YYYY-MM-DD``; one that does not exist is an `OrderError`."""
    try:
        return date.fromisoformat(text).toordinal() - EPOCH
    except ValueError:
        raise OrderError(f"the date {text} does not exist; write one as YYYY-MM-DD.") from None


def date_of(day: int) -> date:
    """Return the date of a day that is counted since 1970."""
    return date.fromordinal(day + EPOCH)
