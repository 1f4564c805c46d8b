"""The messages of the service: what requests and answers hold, as JSON; anything else in a request is refused."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

#: Most orders, bars, fills or decisions in one request.
MOST_ORDERS, MOST_BARS, MOST_DECISIONS, MOST_ROWS = 10_000, 100_000, 10_000, 4_096

#: Text without control characters; ids and names of instruments.
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
#: A date and a time of day of the session's own clock; the pattern keeps to dates that a nanosecond clock reaches.
Date = Annotated[
    str, Meta(pattern=r"^(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$", examples=["2024-03-01"])
]
TimeOfDay = Annotated[
    str, Meta(pattern=r"^([01][0-9]|2[0-4]):[0-5][0-9](:[0-5][0-9])?$", max_length=8, examples=["10:30"])
]
#: A stamp; one with a zone is converted to the calendar's, one without is in it.
_STAMP = (
    r"^(19[7-9][0-9]|20[0-9]{2})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-3]):[0-5][0-9])?$"
)
Stamp = Annotated[
    dt.datetime,
    Meta(extra_json_schema={"pattern": _STAMP, "examples": ["2024-03-01T10:30:00", "2024-03-01T15:30:00Z"]}),
]
#: Amounts and prices; smaller ones are no numbers to compute with.
Positive = Annotated[float, Meta(ge=1e-12, lt=1e18)]
NotNegative = Annotated[float, Meta(ge=0, lt=1e18)]
Share = Annotated[float, Meta(gt=0, le=1)]


class Message(Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of what requests hold: strict types, and a name that is not known is refused."""


class OrderIn(Message):
    """An order to register; the fields are those of `rlwb.execution.Order`.

    `order_id` is made of the other fields where it is empty. The same order sent again changes nothing.
    """

    instrument: Name
    date: Date
    direction: Literal["BUY", "SELL"]
    amount: Positive
    start: TimeOfDay | None = None
    end: TimeOfDay | None = None
    order_id: Annotated[str, Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    limit_price: Positive | None = None
    would_price: Positive | None = None
    min_participation: Share | None = None
    max_participation: Share | None = None
    latest_end: TimeOfDay | None = None
    aversion: NotNegative | None = None
    decision_price: Positive | None = None


class BarIn(Message):
    """One bar; what the vendor does not give is null or left out."""

    instrument: Name
    datetime: Stamp
    open: float | None
    high: float | None
    low: float | None
    close: float | None
    volume: float | None
    bid: float | None = None
    ask: float | None = None
    bid_size: float | None = None
    ask_size: float | None = None
    vwap: float | None = None
    factor: float | None = None


Column = Annotated[list[float | None], Meta(max_length=MOST_BARS)]


class BarsIn(Message):
    """Bars as columns of equal length, which is the quick form; `instrument` may be one name for all.

    `until` says that all bars that end by then are sent: ticks without one had none. It goes for the instruments of the
    bars and for those of all open orders of its day, and may come without bars.
    """

    instrument: Name | Annotated[list[Name], Meta(max_length=MOST_BARS)] = msgspec.field(default_factory=list)
    datetime: Annotated[list[Stamp], Meta(max_length=MOST_BARS)] = msgspec.field(default_factory=list)
    until: Stamp | None = None
    open: Column = msgspec.field(default_factory=list)
    high: Column = msgspec.field(default_factory=list)
    low: Column = msgspec.field(default_factory=list)
    close: Column = msgspec.field(default_factory=list)
    volume: Column = msgspec.field(default_factory=list)
    bid: Column | None = None
    ask: Column | None = None
    bid_size: Column | None = None
    ask_size: Column | None = None
    vwap: Column | None = None
    factor: Column | None = None


#: Fields of bars besides the instrument and the stamp.
BAR_FIELDS = BarIn.__struct_fields__[2:]


class FillIn(Message):
    """A trade of a broker for an order; the same fill sent again changes nothing."""

    fill_id: Name
    order_id: Name
    amount: Positive
    price: Positive


class DecisionIn(Message):
    """A question for the amount to trade in an order's next step.

    `position` is what is left; without it, the amount less the reported fills. `now` is the caller's clock: where
    bars up to the step that it falls in are missing, the answer follows the schedule instead of waiting.
    """

    order_id: Name
    position: NotNegative | None = None
    now: Stamp | None = None


class PredictIn(Message):
    """Observations of the bundle's declared space, each an array whose first axis is the row."""

    observations: dict[str, Any]


class BundleIn(Message):
    """The name of one of the bundles that the service was started with."""

    name: Name


class DecisionOut(Struct):
    """The amount to trade in one step: the step, the tick it starts at, what is left, the action, and who decided.

    `source` is ``policy``, or ``schedule`` with the `reason`. `repeated` tells that the step was decided before.
    """

    order_id: str
    step: int
    tick: int
    position: float
    amount: float
    action: float | None
    source: str
    reason: str | None
    repeated: bool


class Problem(Struct):
    """Why a request, or one entry of it, was refused: a sentence for people, and a word for programs."""

    error: str
    reason: str
    order_id: str | None = None


class StepOut(Struct):
    """One decision of an order's path."""

    step: int
    tick: int
    position: float
    amount: float
    source: str


class OrderOut(Struct):
    """An order as it stands: what it is, what is filled, and its decisions so far.

    `start` and `end` are ticks. `status` is ``open``, ``over`` (the window has ended), ``finished`` or ``cancelled``;
    `pa_bp` is the price advantage over the benchmark of a finished order, null where fills or prices are missing.
    """

    order_id: str
    instrument: str
    date: str
    direction: str
    amount: float
    start: int
    end: int
    status: str
    filled: float
    average_price: float | None
    position: float
    pa_bp: float | None
    steps: list[StepOut]


class OrdersOut(Struct):
    """A page of orders; `next` is the `after` of the next page, null on the last."""

    orders: list[OrderOut]
    total: int
    next: int | None


class RegisteredOut(Struct):
    """The ids of the orders of a request, in its sequence."""

    order_ids: list[str]


class RefusedBar(Struct):
    """A bar that was refused: its place in the request, counted from 0, and why, in a word."""

    index: int
    reason: str


class ArrivalsOut(Struct):
    """What became of bars: how many were new, known already, corrected, and refused."""

    accepted: int
    repeated: int
    corrected: int
    refused: list[RefusedBar]


class FillsOut(Struct):
    """What is left of the order of each fill, in the request's sequence."""

    positions: list[float]


class PredictOut(Struct):
    """Actions, one a row of the observations."""

    actions: list[Any]


class BundleOut(Struct):
    """The bundle that decides now."""

    name: str
    replaced: str


class HealthOut(Struct):
    """Whether the process lives, and whether it can decide; `reason` says why it cannot."""

    live: bool
    ready: bool
    reason: str | None = None


class InfoOut(Struct):
    """What runs here: the bundle, its card, versions, and the limits of requests."""

    bundle: str
    bundles: list[str]
    shadow: str | None
    card: str
    precision: str
    backend: str
    versions: dict[str, str]
    calendar: dict[str, Any]
    ticks_per_step: int
    limits: dict[str, int]


def as_bytes(value: Any) -> bytes:
    """Return a message as JSON; floats are written so that reading them gives the same number."""
    return _encode(value)


_encode = msgspec.json.Encoder().encode
