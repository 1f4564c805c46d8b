"""A load generator for HTTP on loopback: requests made beforehand, connections kept open, every latency kept.

One thread polls its sockets. Closed loop: each connection sends its next request when the last is answered. Open loop:
requests fall due at times drawn beforehand, whatever the server does, and a latency counts from the time at which the
request was due, so that a server which stalls cannot hide the requests that it kept from being sent.
``python -m benchmarks.load PORT`` is a server that does nothing, by which the generator's own ceiling is found.
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Within this many seconds of a request that falls due the generator polls instead of sleeping.
_POLL = 0.002
#: Seconds without any answer after which the server is held to be stuck.
_HUNG = 60.0
_EMPTY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def request(method: str, path: str, body: bytes = b"", headers: Sequence[str] = ()) -> bytes:
    """Return a request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json", *headers]
    lines.append(f"content-length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@dataclass(frozen=True)
class Load:
    """What a load met: seconds from due to answered, statuses and bodies, in the order of the answers; and the span."""

    latency: np.ndarray  # float64 of shape (N,), seconds
    status: np.ndarray  # int of shape (N,)
    place: np.ndarray  # int of shape (N,): which of the requests was answered
    bodies: list[bytes]
    seconds: float

    @property
    def rate(self) -> float:
        """Requests answered well a second."""
        return float((self.status < 400).sum() / self.seconds)

    @property
    def is_sound(self) -> bool:
        """Whether every answer was a good one."""
        return bool((self.status < 300).all())

    def ms(self, share: float) -> float:
        """Return a quantile of the latency in milliseconds."""
        return float(np.quantile(self.latency, share) * 1e3)


class ClosedError(Exception):
    """The server has closed a connection."""


class _Connection:
    __slots__ = ("due", "got", "place", "port", "socket")

    def __init__(self, port: int) -> None:
        self.port = port
        self.place, self.due = -1, 0.0
        self.open()

    def open(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.got = b""

    def send(self, place: int, data: bytes, due: float) -> None:
        self.place, self.due, self.got = place, due, b""
        self.socket.sendall(data)

    def answer(self) -> tuple[int, bytes] | None:
        """Read what is there; return status and body once the answer is whole."""
        try:
            part = self.socket.recv(1 << 18)
        except ConnectionError:
            part = b""
        if not part:
            raise ClosedError
        self.got = got = self.got + part if self.got else part
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = got[:end].lower()
        at = head.find(b"content-length:")
        if at < 0:
            raise ConnectionError(f"an answer without a length: {head!r}")
        stop = head.find(b"\r\n", at)
        length = int(head[at + 15 : stop if stop >= 0 else end])
        if len(got) < end + 4 + length:
            return None
        return int(head[9:12]), got[end + 4 :]


def drive(
    port: int,
    requests: Sequence[bytes],
    connections: int = 1,
    *,
    rate: float | None = None,
    seconds: float = 1e9,
    seed: int = 0,
) -> Load:
    """Send requests, each once, and wait for all answers.

    Parameters
    ----------
    rate
        Requests a second on average, at random times (an open loop); None sends as fast as the answers come.
    seconds
        No request is sent after so many seconds.
    """
    count = len(requests)
    gaps = np.random.default_rng(seed).exponential(1.0 / rate, count) if rate else np.zeros(count)
    dues: list[float] = np.cumsum(gaps).tolist()
    poll, open_ = select.epoll(), [_Connection(port) for _ in range(connections)]
    by_number = {one.socket.fileno(): one for one in open_}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    free = deque(open_)
    latency, status, place, bodies = [], [], [], []
    following, waiting, reconnects, clock = 0, 0, 0, time.perf_counter
    collecting = gc.isenabled()
    gc.disable()
    began = clock()
    try:
        while following < count or waiting:
            now = clock() - began
            while free and following < count and dues[following] <= now and now < seconds:
                one = free.popleft()
                one.send(following, requests[following], dues[following] if rate else now)
                following += 1
                waiting += 1
                now = clock() - began
            if now >= seconds:
                count = following
                if not waiting:
                    break
            pause: Any = None
            if free and following < count:
                pause = max(dues[following] - now - _POLL, 0.0)
            elif rate and not free:
                pause = 0.0
            ready = poll.poll(_HUNG if pause is None else pause)
            if pause is None and not ready:
                raise SystemExit(f"no answer to {waiting} requests within {_HUNG:g} s.")
            for number, _ in ready:
                one = by_number[number]
                try:
                    found = one.answer()
                except ClosedError:
                    # Servers close connections that were idle; a request that crossed with that is sent again.
                    reconnects += 1
                    if reconnects > 1000:
                        raise SystemExit("the server closes every connection.") from None
                    poll.unregister(number)
                    one.socket.close()
                    del by_number[number]
                    one.open()
                    by_number[one.socket.fileno()] = one
                    poll.register(one.socket.fileno(), select.EPOLLIN)
                    if one.place >= 0:
                        one.send(one.place, requests[one.place], one.due)
                    continue
                if found is not None:
                    latency.append(clock() - began - one.due)
                    status.append(found[0])
                    bodies.append(found[1])
                    place.append(one.place)
                    one.place = -1
                    free.append(one)
                    waiting -= 1
        spent = clock() - began
    finally:
        if collecting:
            gc.enable()
        poll.close()
        for one in open_:
            one.socket.close()
    return Load(np.array(latency), np.array(status, dtype=int), np.array(place, dtype=int), bodies, spent)


def pin(core: int | None) -> None:
    """Keep this process on one core, where the system can."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[core % len(allowed)]})


def serve_nothing(port: int) -> None:
    """Answer every request with an empty object, as fast as an event loop can."""
    import asyncio

    import uvloop

    class Nothing(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(_EMPTY)

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Nothing, "127.0.0.1", port)
        await server.serve_forever()

    uvloop.run(main())


if __name__ == "__main__":
    serve_nothing(int(sys.argv[1]))
