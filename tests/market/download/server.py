"""A server on loopback that gives recorded bytes, and fails as it is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Archive:
    """What the server holds, does and has seen.

    `faults` maps a path to what happens to its next requests, one each: a status, ``"cut N"`` (the connection ends
    after N bytes), ``"drop"`` (without an answer), ``"stall"`` (no byte for a second); then it is served.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[int | str]] = field(default_factory=dict)
    ranges: bool = True
    retry_after: str = "7"
    seen: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""

    def asked(self, end: str) -> list[str | None]:
        """Return the ranges of the requests for the path that ends so."""
        return [wanted for path, wanted in self.seen if path.endswith(end)]


@contextmanager
def serve() -> Iterator[Archive]:
    archive = Archive()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            archive.seen.append((self.path, wanted))
            fault = archive.faults[self.path].pop(0) if archive.faults.get(self.path) else None
            if fault == "drop":
                self.close_connection = True
                return
            if fault == "stall":
                threading.Event().wait(1.0)
                return
            if isinstance(fault, int):
                self.send_response(fault)
                self.send_header("Retry-After", archive.retry_after)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            content = archive.files.get(self.path)
            if content is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and archive.ranges else 0
            if wanted and archive.ranges and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            rest = content[start:]
            self.wfile.write(rest[: int(fault.removeprefix("cut "))] if isinstance(fault, str) else rest)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    archive.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02))
    thread.start()
    try:
        yield archive
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
