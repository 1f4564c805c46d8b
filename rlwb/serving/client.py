"""Clients of a policy in service: over HTTP, and in the same process without a web."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, RlwbError, ServingError
from rlwb.execution.order import FORMS, Order
from rlwb.market.schema import FIELDS

if TYPE_CHECKING:
    from rlwb.serving.policy import BundlePolicy

#: Rows of a request.
_AT_ONCE, _BARS_AT_ONCE = 5_000, 50_000
#: Forms of orders that a service takes.
_FORMS = tuple(name for name in FORMS if name != "notional")
_TIMES = ("start", "end", "latest_end")


class Answer(NamedTuple):
    """The answer of a policy in service to the question for the amount to trade in a step.

    Attributes
    ----------
    amount
        Amount to trade; NaN where it was refused.
    action
        The policy's action; None where it did not decide.
    source
        ``policy``, ``schedule`` or ``refused``.
    reason
        In a word why it is not the policy's; None where it is.
    """

    amount: float
    action: float | None
    source: str
    reason: str | None


class Fill(NamedTuple):
    """A trade of part of an order: amount above 0 and average price, under an id by which it counts once."""

    fill_id: str
    order_id: str
    amount: float
    price: float


class Client(Protocol):
    """The requests of a desk to a policy in service, over HTTP or in the same process."""

    def load_history(self, bars: pd.DataFrame) -> list[str]:
        """Tell bars of whole earlier sessions, for what features say of yesterday; as `add_bars`."""

    def register(self, orders: Sequence[Order]) -> list[str]:
        """Take orders into flight and return their ids."""

    def add_bars(self, bars: pd.DataFrame, until: pd.Timestamp | None = None) -> list[str]:
        """Tell bars in the schema's columns; return the reason, a word, for each that is refused.

        All ticks that end at or before the session-local `until` are over for all orders of its day: those of which no
        bar was told had none.
        """

    def decide(self, order_ids: Sequence[str], positions: Sequence[float]) -> list[Answer]:
        """Return how much of each order to trade in the step that the market has come to, by what is left of it."""

    def report(self, fills: Sequence[Fill]) -> None:
        """Tell what was traded."""

    def forget(self, order_ids: Iterable[str]) -> None:
        """Let go of orders; one that is not known is passed over."""

    def describe(self) -> dict[str, Any]:
        """Return what answers, for the record."""


class LocalClient:
    """The policy of a bundle in this process."""

    def __init__(self, policy: BundlePolicy) -> None:
        self.policy = policy
        self._sessions: dict[str, tuple[str, pd.Timestamp]] = {}

    def load_history(self, bars: pd.DataFrame) -> list[str]:
        """Tell bars of whole earlier sessions."""
        return [reason for _, reason in self.policy.market.load_history(bars).refused] if len(bars) else []

    def register(self, orders: Sequence[Order]) -> list[str]:
        """Take orders into flight and return their ids."""
        names = self.policy.register(orders)
        self._sessions |= {name: (one.instrument, one.date) for name, one in zip(names, orders, strict=True)}
        return names

    def add_bars(self, bars: pd.DataFrame, until: pd.Timestamp | None = None) -> list[str]:
        """Tell bars, and until when all ticks are over."""
        policy = self.policy
        refused = [reason for _, reason in policy.market.add(bars).refused] if len(bars) else []
        if until is None:
            return refused
        seconds = (until - until.normalize()).total_seconds()
        tick = int(policy.bundle.calendar.end_ticks(np.array(seconds)))
        for instrument, date in {session for session in self._sessions.values() if session[1] == until.normalize()}:
            policy.market.reach(policy.market.row(instrument, date), tick)
        return refused

    def decide(self, order_ids: Sequence[str], positions: Sequence[float]) -> list[Answer]:
        """Return how much of each order to trade in the step that the market has come to."""
        made = []
        for one in self.policy.decide_many(list(order_ids), list(positions)):
            if isinstance(one, RlwbError):
                made.append(Answer(np.nan, None, "refused", getattr(one, "reason", "bad_order")))
            else:
                made.append(Answer(one.amount, one.action, one.source, None))
        return made

    def report(self, fills: Sequence[Fill]) -> None:
        """Do nothing: the positions of later questions say what was traded."""

    def forget(self, order_ids: Iterable[str]) -> None:
        """Let go of orders."""
        for name in order_ids:
            self._sessions.pop(name, None)
            if name in self.policy:
                self.policy.forget(name)

    def describe(self) -> dict[str, Any]:
        """Return what answers."""
        return {"service": "in process", "bundle": self.policy.bundle.path.name}


class HTTPClient:
    """A service over HTTP (``rlwb serve``).

    A request that meets a full queue or a lost connection is sent again. That is safe: what writes goes under an
    idempotency key, the same bars have no effect, and a step that is asked for twice has one decision.

    Parameters
    ----------
    url
        Of the service, for example ``http://127.0.0.1:8000``.
    token
        What it asks for, if it does.
    timeout
        Seconds that an answer may take.
    attempts
        How often a request is sent again.

    Raises
    ------
    ServingError
        From every call: with the service's sentence and reason where it refuses, with the reason ``unreachable`` where
        there is no answer.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 30.0, attempts: int = 5) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigError(f"the address {url!r} of a service is none; write http://host:port.")
        again = Retry(
            attempts, backoff_factor=0.1, status_forcelist=(503,), allowed_methods=None, raise_on_status=False
        )
        self.url, self._timeout = url.rstrip("/"), timeout
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy, or a password file, is not for a service that was named
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(max_retries=again))
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    def load_history(self, bars: pd.DataFrame) -> list[str]:
        """Tell bars of whole earlier sessions; those of sessions that the service has passed are refused."""
        return self.add_bars(bars.sort_values("datetime", kind="stable"))

    def register(self, orders: Sequence[Order]) -> list[str]:
        """Take orders into flight and return their ids."""
        made: list[str] = []
        for some in _parts(orders, _AT_ONCE):
            made += self._ask("POST", "/v1/orders", [_plain(one) for one in some], once=True)["order_ids"]
        return made

    def add_bars(self, bars: pd.DataFrame, until: pd.Timestamp | None = None) -> list[str]:
        """Tell bars, and until when all ticks are over."""
        refused: list[str] = []
        parts = [bars.iloc[low : low + _BARS_AT_ONCE] for low in range(0, len(bars), _BARS_AT_ONCE)]
        if not parts and until is not None:
            parts = [bars]
        for number, part in enumerate(parts, 1):
            columns: dict[str, Any] = {
                "instrument": part["instrument"].astype(object).tolist(),
                "datetime": [stamp.isoformat() for stamp in part["datetime"]],
            }
            for name in FIELDS:
                if name in part:
                    columns[name] = [None if value != value else value for value in part[name].tolist()]
            if until is not None and number == len(parts):
                columns["until"] = until.isoformat()
            refused += [one["reason"] for one in self._ask("POST", "/v1/bars", columns)["refused"]]
        return refused

    def decide(self, order_ids: Sequence[str], positions: Sequence[float]) -> list[Answer]:
        """Return how much of each order to trade in the step that the market has come to."""
        made: list[Answer] = []
        for some in _parts([*zip(order_ids, positions, strict=True)], _AT_ONCE):
            asked = [{"order_id": name, "position": float(left)} for name, left in some]
            for one in self._ask("POST", "/v1/decisions", asked):
                if "error" in one:
                    made.append(Answer(np.nan, None, "refused", one["reason"]))
                else:
                    made.append(Answer(one["amount"], one["action"], one["source"], one["reason"]))
        return made

    def report(self, fills: Sequence[Fill]) -> None:
        """Tell what was traded."""
        for some in _parts(fills, _AT_ONCE):
            self._ask("POST", "/v1/fills", [one._asdict() for one in some], once=True)

    def forget(self, order_ids: Iterable[str]) -> None:
        """Cancel orders, or settle those whose window is over."""
        for name in order_ids:
            self._ask("DELETE", f"/v1/orders/{quote(name, safe='')}", passed_over=(404, 409))

    def order(self, order_id: str) -> dict[str, Any]:
        """Return an order as it stands, with its decisions, fills and PA."""
        found: dict[str, Any] = self._ask("GET", f"/v1/orders/{quote(order_id, safe='')}")
        return found

    def describe(self) -> dict[str, Any]:
        """Return what answers."""
        told = self._ask("GET", "/info")
        return {"service": self.url, **{name: told[name] for name in ("bundle", "backend", "precision", "versions")}}

    def _ask(
        self, method: str, path: str, content: Any = None, *, once: bool = False, passed_over: tuple[int, ...] = ()
    ) -> Any:
        """Return the answer to a request; with `once` under a key by which it counts once."""
        import requests

        headers = {} if content is None else {"Content-Type": "application/json"}
        if once:
            headers["Idempotency-Key"] = secrets.token_hex(16)
        body = None if content is None else json.dumps(content, allow_nan=False).encode()
        try:
            reply = self._session.request(method, self.url + path, data=body, headers=headers, timeout=self._timeout)
            answer = reply.json()
        except requests.JSONDecodeError:
            raise ServingError(
                f"{self.url}{path} answers with no JSON; is it a service of rlwb?", "bad_answer"
            ) from None
        except requests.RequestException as error:
            raise ServingError(
                f"{self.url} does not answer ({type(error).__name__}); start it by rlwb serve, or correct the address.",
                "unreachable",
            ) from None
        if reply.status_code == 200 or reply.status_code in passed_over:
            return answer
        told = answer if isinstance(answer, dict) else {}
        raise ServingError(
            f"{self.url}{path} refuses: {told.get('error', reply.status_code)}", str(told.get("reason", "refused"))
        )


def _parts(values: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (values[low : low + most] for low in range(0, len(values), most))


def _plain(order: Order) -> dict[str, Any]:
    """Return an order as a message; what it does not state is left out."""
    told: dict[str, Any] = {
        "order_id": order.order_id,
        "instrument": order.instrument,
        "date": f"{order.date:%Y-%m-%d}",
        "direction": order.direction.name,
        "amount": order.amount,
        **{name: getattr(order, name) for name in ("start", "end", *_FORMS)},
    }
    for name in _TIMES:
        stamp = told[name]
        if stamp is not None:
            told[name] = f"{stamp:%H:%M:%S}" if stamp < order.date + pd.Timedelta(days=1) else "24:00"
    return {name: value for name, value in told.items() if value is not None}
