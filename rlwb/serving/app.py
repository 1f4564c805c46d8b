"""The service over HTTP: an ASGI application, its description, and the process that runs it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs

import msgspec

import rlwb
from rlwb.errors import DataError, OrderError, RlwbError, ServingError
from rlwb.serving import wire
from rlwb.serving.batching import MicroBatcher
from rlwb.serving.journal import Answer
from rlwb.serving.openapi import KEY_PATTERN, Operation, Request, describe
from rlwb.serving.page import operations_page, page
from rlwb.serving.wire import Problem, as_bytes

if TYPE_CHECKING:
    from fastapi import FastAPI

    from rlwb.serving.monitor import Monitor
    from rlwb.serving.policy import BundlePolicy
    from rlwb.serving.service import Service

log = logging.getLogger("rlwb.serving")

#: The status of each reason for which a request is refused; 409 for those that are not here.
STATUS = {
    "bad_json": 400,
    "invalid": 400,
    "bad_host": 400,
    "unauthorised": 401,
    "bad_origin": 403,
    "unknown_order": 404,
    "unknown_bundle": 404,
    "no_such_path": 404,
    "bad_method": 405,
    "slow_request": 408,
    "too_large": 413,
    "bad_content_type": 415,
    "bad_order": 422,
    "bad_bars": 422,
    "bad_time": 422,
    "bad_data": 422,
    "bad_observation": 422,
    "bad_key": 422,
    "too_many_orders": 429,
    "full": 503,
    "deadline": 503,
    "journal": 503,
    "stopping": 503,
}
#: Seconds after which a client may try again, by status.
_RETRY = {429: b"60", 503: b"1"}
#: Seconds in which the content of a request must have come.
_SLOW = 30.0
#: Paths that need no token: they show nothing of orders.
_OPEN = ("/", "/health", "/docs", "/openapi.json")
_JSON = (b"content-type", b"application/json")
_SAFE = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class Reply(NamedTuple):
    """A status and the content of an answer, and headers beside the usual ones."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True)
class Security:
    """Who may ask.

    Attributes
    ----------
    token
        What ``Authorization: Bearer`` must say; None lets everybody in.
    hosts
        Names by which the service may be called, without a port; empty for any. It keeps web pages that a browser on
        the same machine shows from calling it by a name of their own (DNS rebinding).
    """

    token: str | None = field(default=None, repr=False)
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Limits:
    """Limits of requests.

    Attributes
    ----------
    body
        Most bytes of a request.
    queue
        Most single decisions that wait.
    deadline
        Seconds after which a waiting decision is refused.
    window
        Seconds that micro-batching waits for more; 0 takes what is there.
    batch
        Most decisions of a micro-batch; 1 turns it off.
    active
        Most requests at a time.
    """

    body: int = 16 * 2**20
    queue: int = 1024
    deadline: float = 1.0
    window: float = 0.0
    batch: int = 256
    active: int = 4096


class Api:
    """The operations of a service.

    Parameters
    ----------
    service
        Answers.
    bundles
        What makes the policy of each bundle to which a client may swap, by name.
    limits
        Limits of requests.
    shadow, backend
        For ``/info``.
    """

    def __init__(
        self,
        service: Service,
        *,
        bundles: Mapping[str, Callable[[], BundlePolicy]] | None = None,
        limits: Limits | None = None,
        shadow: str | None = None,
        backend: str = "torch",
    ) -> None:
        self.service, self.shadow, self.backend = service, shadow, backend
        self.bundles = dict(bundles or {})
        self.limits = limits or Limits()
        self.stopping = False
        self._swap = asyncio.Lock()
        self._is_shadow_due = False
        self._answers: set[str] = set()
        limit = self.limits
        self.batcher: MicroBatcher[wire.DecisionIn, wire.DecisionOut] = MicroBatcher(
            self._decide, window=limit.window, most=limit.batch, queue=limit.queue, deadline=limit.deadline
        )
        orders = msgspec.json.Decoder(wire.OrderIn | list[wire.OrderIn])
        bars = msgspec.json.Decoder(wire.BarsIn | list[wire.BarIn])
        fills = msgspec.json.Decoder(wire.FillIn | list[wire.FillIn])
        decisions = msgspec.json.Decoder(wire.DecisionIn | list[wire.DecisionIn])
        observations = msgspec.json.Decoder(wire.PredictIn)
        named = msgspec.json.Decoder(wire.BundleIn)

        async def register(request: Request) -> Any:
            given = _several(orders.decode(request.body), wire.MOST_ORDERS, "orders")
            return wire.RegisteredOut(service.register(given))

        async def listed(request: Request) -> Any:
            query = parse_qs(request.query.decode("ascii", "replace"), keep_blank_values=True)
            status = _one_of(query, "status", ("open", "over", "finished", "cancelled"))
            after, most = _whole(query, "after", 0, 0, 2**31), _whole(query, "limit", 100, 1, 1000)
            if unknown := sorted(query.keys() - {"status", "after", "limit"}):
                raise ServingError(f"there is no parameter {unknown[0]!r}; take status, after or limit.", "invalid")
            return service.orders(status=status, after=after, limit=most)

        async def one(request: Request) -> Any:
            return service.order(request.name)

        async def cancel(request: Request) -> Any:
            return service.cancel(request.name)

        async def add_bars(request: Request) -> Any:
            given = bars.decode(request.body)
            if not isinstance(given, wire.BarsIn):
                given = _several(given, wire.MOST_BARS, "bars")
            return service.bars(given)

        async def add_fills(request: Request) -> Any:
            given = _several(fills.decode(request.body), wire.MOST_ORDERS, "fills")
            return wire.FillsOut(service.fills(given))

        async def decide(request: Request) -> Any:
            given = decisions.decode(request.body)
            if not isinstance(given, list):
                return await self.batcher.ask(given)
            made = self._decide(_several(given, wire.MOST_DECISIONS, "decisions"))
            if made and all(isinstance(each, ServingError) and each.reason == "journal" for each in made):
                raise made[0]  # type: ignore[misc]
            return [
                _problem(each, given[at].order_id) if isinstance(each, Exception) else each
                for at, each in enumerate(made)
            ]

        async def predict(request: Request) -> Any:
            given = observations.decode(request.body).observations
            for rows in given.values():
                _several(rows, wire.MOST_ROWS, "rows of observations")
            return wire.PredictOut(service.predict(given))

        async def swap(request: Request) -> Any:
            return await self.swap(named.decode(request.body).name)

        name = (("order_id", "path", {"type": "string", "minLength": 1, "maxLength": 128}),)
        page = (
            ("status", "query", {"type": "string", "enum": ["open", "over", "finished", "cancelled"]}),
            ("after", "query", {"type": "integer", "minimum": 0, "maximum": 2**31, "default": 0}),
            ("limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}),
        )
        write = (400, 409, 413, 415, 422, 503)
        self.operations = (
            Operation(
                *("POST", "/v1/decisions", "How much of an order to trade now; of one, or of many in one call"),
                *(decide, wire.DecisionIn | list[wire.DecisionIn]),
                *([wire.DecisionOut, Problem], (*write, 404)),
            ),
            Operation(
                *("POST", "/v1/bars", "Send bars, as rows or columns", add_bars, wire.BarsIn | list[wire.BarIn]),
                *(wire.ArrivalsOut, write),
            ),
            Operation(
                *("POST", "/v1/fills", "Report what was traded", add_fills, wire.FillIn | list[wire.FillIn]),
                *(wire.FillsOut, (*write, 404)),
            ),
            Operation(
                *("POST", "/v1/orders", "Register orders, all or none", register, wire.OrderIn | list[wire.OrderIn]),
                *(wire.RegisteredOut, (*write, 429)),
            ),
            Operation(
                *("GET", "/v1/orders", "Orders as they stand, the oldest first", listed, None, wire.OrdersOut, (422,)),
                parameters=page,
            ),
            Operation(
                *("GET", "/v1/orders/{order_id}", "An order as it stands", one, None, wire.OrderOut, (404,)),
                parameters=name,
            ),
            Operation(
                *("DELETE", "/v1/orders/{order_id}", "Cancel an order", cancel, None, wire.OrderOut, (404, 409, 503)),
                parameters=name,
            ),
            Operation(
                *("POST", "/predict", "Actions for observations of the declared space; nothing is kept", predict),
                *(wire.PredictIn, wire.PredictOut, (400, 413, 415, 422, 503)),
            ),
            Operation(
                *("POST", "/v1/bundle", "Let another of the bundles given at the start decide", swap, wire.BundleIn),
                *(wire.BundleOut, (*write, 404)),
            ),
            Operation("GET", "/health", "Whether it lives and can decide", self._health, None, wire.HealthOut, (503,)),
            Operation("GET", "/info", "What runs here", self._info, None, wire.InfoOut),
            Operation("GET", "/v1/summary", "What the page shows", self._summary, None, dict[str, Any]),
            Operation("GET", "/metrics", "Metrics in Prometheus' text form", self._metrics, None, str),
        )

    def _decide(self, questions: Sequence[wire.DecisionIn]) -> list[wire.DecisionOut | RlwbError]:
        made = self.service.decide(questions)
        if self.service.shadow is not None and not self._is_shadow_due:
            self._is_shadow_due = True
            asyncio.get_running_loop().call_later(0.001, self._run_shadow)  # after the answers have gone out
        return made

    def _run_shadow(self) -> None:
        self._is_shadow_due = False
        self.service.run_shadow()

    async def swap(self, name: str) -> wire.BundleOut:
        """Let the bundle of a name decide from now on; requests are answered meanwhile.

        Raises
        ------
        ServingError
            When there is no such bundle, or orders in flight cannot go on under it (``bundle_differs``).
        """
        if name not in self.bundles:
            known = ", ".join(self.bundles)
            raise ServingError(f"there is no bundle {name!r}; this service was started with {known}.", "unknown_bundle")
        async with self._swap:
            try:
                policy = await asyncio.to_thread(self.bundles[name])
                self.service.check_takes(policy)
                events = list(self.service.journal.events())
                await asyncio.to_thread(self.service.bring_up, policy, events)
                before = self.service.take_over(policy, name, events[-1][0] if events else 0)
            except ServingError:
                raise
            except RlwbError as error:
                raise ServingError(str(error), "bundle_differs") from None
            watch(self.service.monitor, policy, name, self.backend)
            return wire.BundleOut(name, before)

    async def _health(self, request: Request) -> Any:
        if self.stopping:
            return Reply(503, as_bytes(wire.HealthOut(True, False, "stopping")), (_JSON,))
        return wire.HealthOut(True, True)

    async def _info(self, request: Request) -> Any:
        service = self.service
        bundle = service.policy.bundle
        spec, card = bundle.spec, bundle.path / "card.md"
        return wire.InfoOut(
            bundle=service.name,
            bundles=list(self.bundles),
            shadow=self.shadow,
            card=card.read_text(encoding="utf-8") if card.is_file() else "",
            precision=spec.precision,
            backend=self.backend,
            versions={"rlwb": rlwb.__version__, "exported with rlwb": spec.rlwb, **spec.packages},
            calendar=bundle.calendar.as_dict(),
            ticks_per_step=int(service.policy.engine.ticks_per_step),
            limits={
                "body_bytes": self.limits.body,
                "orders": wire.MOST_ORDERS,
                "bars": wire.MOST_BARS,
                "decisions": wire.MOST_DECISIONS,
                "rows": wire.MOST_ROWS,
                "waiting": self.limits.queue,
            },
        )

    async def _summary(self, request: Request) -> Any:
        self.service.monitor.queued(len(self.batcher))
        return self.service.monitor.overview()

    async def _metrics(self, request: Request) -> Any:
        monitor = self.service.monitor
        monitor.queued(len(self.batcher))
        text = monitor.render()
        return Reply(200, text, ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),))


def watch(monitor: Monitor, policy: BundlePolicy, name: str, backend: str) -> None:
    """Let a monitor watch the inputs of a policy."""
    spec = policy.bundle.spec
    seen = spec.seen
    monitor.use(
        spec.statistics or None,
        sides=[side for side, number in ((1, seen.buys), (-1, seen.sells)) if number],
        largest=max(seen.amount.values(), default=None),
        bundle={"name": name, "precision": spec.precision, "backend": backend, "rlwb": rlwb.__version__},
    )


class Front:
    """The ASGI application: checks who asks, answers the operations, and leaves the pages to FastAPI.

    Operations go past FastAPI's routing and dependencies, which would take most of the time of a request; its
    description of them is complete (`describe`).

    Parameters
    ----------
    api
        The operations.
    security
        Who may ask.
    """

    def __init__(self, api: Api, security: Security | None = None) -> None:
        self.api, self.security = api, security or Security()
        self._exact = {(each.path, each.method): each for each in api.operations}
        self._paths = {each.path: "" for each in api.operations}
        self._active = 0
        token = self.security.token
        self._token = None if token is None else f"Bearer {token}".encode()
        self.pages = make_pages(api)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.pages(scope, receive, send)
            else:  # a web socket
                await send({"type": "websocket.close", "code": 1000})
            return
        began = time.perf_counter()
        headers = dict(scope["headers"])
        path, method = scope["path"], scope["method"]
        operation, name = self._find(path, method)
        self._active += 1
        try:
            self._check(headers, path)
            if operation is None and path.startswith(("/v1", "/predict", "/health", "/info", "/metrics")):
                raise _no_such(path, self._methods(path))
            if operation is None:
                await self.pages(scope, receive, send)
                return
            body = b""
            if operation.takes is not None:
                body = await _read(headers, receive, self.api.limits.body)
            reply = await self._answer(operation, Request(body, scope["query_string"], name), headers)
        except _GoneError:
            return
        except Exception as error:
            reply, reason = _refusal(error)
            self.api.service.monitor.refused(reason)
        finally:
            self._active -= 1
        length = (b"content-length", b"%d" % len(reply.body))
        start = {"type": "http.response.start", "status": reply.status, "headers": [length, *_SAFE, *reply.headers]}
        await send(start)
        await send({"type": "http.response.body", "body": reply.body if method != "HEAD" else b""})
        route = "other" if operation is None else operation.path
        self.api.service.monitor.requested(route, reply.status, time.perf_counter() - began)

    def _find(self, path: str, method: str) -> tuple[Operation | None, str]:
        found = self._exact.get((path, method))
        if found is None and path.startswith(_ORDER) and len(path) > len(_ORDER):
            return self._exact.get((f"{_ORDER}{{order_id}}", method)), path[len(_ORDER) :]
        return found, ""

    def _methods(self, path: str) -> list[str]:
        if path.startswith(_ORDER) and len(path) > len(_ORDER):
            path = f"{_ORDER}{{order_id}}"
        return [method for known, method in self._exact if known == path]

    def _check(self, headers: Mapping[bytes, bytes], path: str) -> None:
        """Refuse who may not ask."""
        if self.api.stopping and path != "/health":
            raise ServingError("the service is stopping; try again later.", "stopping")
        if self._active > self.api.limits.active:
            raise ServingError(f"{self.api.limits.active} requests are being answered; try again later.", "full")
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if self.security.hosts and _without_port(host) not in self.security.hosts:
            raise ServingError(f"this service is not called {host[:100]!r}; call it by its address.", "bad_host")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            raise ServingError("pages of other sites may not call this service.", "bad_origin")
        if self._token is not None and path not in _OPEN:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._token):
                raise ServingError(
                    "the request has no token, or another one; send Authorization: Bearer.", "unauthorised"
                )

    async def _answer(self, operation: Operation, request: Request, headers: Mapping[bytes, bytes]) -> Reply:
        key = headers.get(b"idempotency-key") if operation.method == "POST" else None
        if key is None:
            return _reply(await operation.run(request))
        return await self._answer_once(key, operation, request)

    async def _answer_once(self, key: bytes, operation: Operation, request: Request) -> Reply:
        """Answer a request under an idempotency key: as before, if it was answered before."""
        journal, name = self.api.service.journal, key.decode("latin-1")
        if not _KEY.fullmatch(name):
            raise ServingError("an idempotency key is 1 to 128 ASCII characters without spaces.", "bad_key")
        digest = hashlib.blake2b(f"{operation.path}\n".encode() + request.body, digest_size=16).digest()
        kept = journal.answer(name)
        if kept is None:
            reply = _reply(await operation.run(request))
            kept = journal.keep(name, Answer(digest, reply.status, reply.body)) if reply.status == 200 else None
            if kept is None:
                return reply
        if kept.digest != digest:
            raise ServingError("the idempotency key was used for another request; take a new one.", "key_reused")
        return Reply(kept.status, kept.body, (_JSON,))


_ORDER = "/v1/orders/"
_KEY = re.compile(KEY_PATTERN)


class _GoneError(Exception):
    """The client went away before its request was whole."""


async def _read(headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
    """Return the content of a request that must be JSON."""
    kind = headers.get(b"content-type", b"application/json").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise ServingError("the content must be JSON; send content-type: application/json.", "bad_content_type")
    try:
        if int(headers.get(b"content-length", b"0")) > most:
            raise _too_large(most)
    except ValueError:
        raise ServingError("content-length is no number.", "bad_json") from None
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _GoneError
    body: bytes = message.get("body", b"")
    if message.get("more_body"):
        parts, size = [body], len(body)
        try:
            async with asyncio.timeout(_SLOW):
                while message.get("more_body"):
                    if size > most:
                        raise _too_large(most)
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
        except TimeoutError:
            raise ServingError(f"the content did not come within {_SLOW:g} s.", "slow_request") from None
        body = b"".join(parts)
    if len(body) > most:
        raise _too_large(most)
    return body


def _too_large(most: int) -> ServingError:
    return ServingError(f"the request is larger than {most:,} bytes; send it in parts.", "too_large")


def _no_such(path: str, methods: Sequence[str]) -> ServingError:
    if methods:
        return _BadMethodError(f"{path[:100]} takes {' and '.join(methods)}.", methods)
    return ServingError(f"there is nothing at {path[:100]!r}; see /docs.", "no_such_path")


class _BadMethodError(ServingError):
    def __init__(self, message: str, methods: Sequence[str]) -> None:
        super().__init__(message, "bad_method")
        self.methods = methods


def _reply(value: Any) -> Reply:
    return value if isinstance(value, Reply) else Reply(200, as_bytes(value), (_JSON,))


def _problem(error: Exception, order_id: str | None = None) -> Problem:
    if isinstance(error, ServingError):
        return Problem(str(error), error.reason, order_id)
    if isinstance(error, OrderError):
        return Problem(str(error), "bad_order", order_id)
    if isinstance(error, DataError):
        return Problem(str(error), "bad_data", order_id)
    if isinstance(error, msgspec.ValidationError):
        is_no_time = "RFC3339" in str(error)  # of the form of a time, but of no day
        return Problem(f"{error}.", "bad_time" if is_no_time else "invalid", order_id)
    if isinstance(error, (msgspec.DecodeError, RecursionError, UnicodeDecodeError)):
        return Problem(f"the content is no JSON that can be read ({error}).", "bad_json", order_id)
    log.error("fault error=%r", error, exc_info=error)
    return Problem("the service failed; its log says where.", "fault", order_id)


def _refusal(error: Exception) -> tuple[Reply, str]:
    """Return the answer to a request that was refused, and the reason."""
    problem = _problem(error)
    status = 500 if problem.reason == "fault" else STATUS.get(problem.reason, 409)
    headers = [_JSON]
    if status in _RETRY:
        headers.append((b"retry-after", _RETRY[status]))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, _BadMethodError):
        headers.append((b"allow", ", ".join(error.methods).encode()))
    return Reply(status, as_bytes(problem), tuple(headers)), problem.reason


def _several(given: Any, most: int, what: str) -> list[Any]:
    several = given if isinstance(given, list) else [given]
    if len(several) > most:
        raise ServingError(f"the request has {len(several):,} {what}; send at most {most:,} at a time.", "too_large")
    return several


def _whole(query: Mapping[str, list[str]], name: str, default: int, least: int, most: int) -> int:
    (text,) = query.get(name, [str(default)])[-1:]
    if not (text.isascii() and text.isdigit() and len(text) < 12 and least <= int(text) <= most):
        raise ServingError(f"{name} is {text[:40]!r}; it is a whole number from {least} to {most}.", "invalid")
    return int(text)


def _one_of(query: Mapping[str, list[str]], name: str, values: Sequence[str]) -> str | None:
    if name not in query:
        return None
    text = query[name][-1]
    if text not in values:
        raise ServingError(f"{name} is {text[:40]!r}; it is one of {', '.join(values)}.", "invalid")
    return text


def _without_port(host: str) -> str:
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]


def make_pages(api: Api) -> FastAPI:
    """Return the pages: ``/``, the operations at ``/docs``, and their description for programs."""
    from fastapi import FastAPI
    from fastapi.responses import Response
    from starlette.exceptions import HTTPException

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        yield
        api.stopping = True
        while len(api.batcher):
            await asyncio.sleep(0.001)
        api.service.close()

    pages = FastAPI(title="rlwb", version=rlwb.__version__, docs_url=None, redoc_url=None, lifespan=lifespan)

    @pages.exception_handler(HTTPException)
    async def refuse(request: Any, error: HTTPException) -> Response:
        allow = (error.headers or {}).get("allow", "GET").split(", ")
        reply, _ = _refusal(_no_such(request.url.path, allow if error.status_code == 405 else ()))
        return Response(reply.body, reply.status, {key.decode(): value.decode() for key, value in reply.headers})

    async def front(request: Any) -> Response:
        content, headers = page()
        return Response(content, headers=headers)

    description = describe(api.operations)
    operations = operations_page(description)

    async def listed(request: Any) -> Response:
        content, headers = operations
        return Response(content, headers=headers)

    pages.add_route("/", front)
    pages.add_route("/docs", listed)
    pages.openapi = lambda: description  # type: ignore[method-assign]
    return pages
