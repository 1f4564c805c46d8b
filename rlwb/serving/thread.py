"""A service over HTTP in a thread of this process, for notebooks and tests; `rlwb serve` is a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from rlwb.serving.app import Front
    from rlwb.serving.service import Service


@dataclass(frozen=True)
class Running:
    """A service that runs.

    Attributes
    ----------
    url
        Where it answers.
    service
        What answers; its thread changes it.
    """

    url: str
    service: Service


@contextmanager
def serve_in_thread(make: Callable[[], Front]) -> Iterator[Running]:
    """Serve on a free port of the loopback address. At the end requests in flight are answered, and the journal closed.

    Parameters
    ----------
    make
        Makes the application (`rlwb.serving.process.make_front`); called in the thread, to which all of it belongs.

    Raises
    ------
    Exception
        What `make` raises.
    """
    import uvicorn

    from rlwb.serving.process import listen

    listener = listen("127.0.0.1", 0)
    failures: list[BaseException] = []
    fronts: list[Front] = []
    servers: list[uvicorn.Server] = []
    begun = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun.set()

    def run() -> None:
        try:
            fronts.append(make())
            servers.append(Server(uvicorn.Config(fronts[0], ws="none", log_config=None, access_log=False)))
            servers[0].run(sockets=[listener])
        except BaseException as error:
            failures.append(error)
        finally:
            begun.set()

    thread = threading.Thread(target=run, name="rlwb-serve", daemon=True)
    thread.start()
    try:
        begun.wait()
        if failures:
            raise failures[0]
        yield Running("http://{}:{}".format(*listener.getsockname()), fronts[0].api.service)
    finally:
        for server in servers:
            server.should_exit = True
        thread.join()
        listener.close()
