"""A service over HTTP in a thread of this process, for notebooks and tests; `rlwb serve` is a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

    from rlwb.serving.app import Limits
    from rlwb.serving.service import Service


@contextmanager
def serve_in_thread(make: Callable[[], Service], limits: Limits | None = None) -> Iterator[str]:
    """Serve on a free port of the loopback address; yield the URL. At the end requests in flight are answered.

    Parameters
    ----------
    make
        Makes the service; called in the thread, to which all of it belongs.
    limits
        Limits of requests.

    Raises
    ------
    Exception
        What `make` raises.
    """
    import uvicorn

    from rlwb.serving.app import Api, Front
    from rlwb.serving.process import listen

    listener = listen("127.0.0.1", 0)
    failures: list[BaseException] = []
    begun = threading.Event()
    servers: list[uvicorn.Server] = []

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            begun.set()

    def run() -> None:
        try:
            front = Front(Api(make(), limits=limits))
            servers.append(Server(uvicorn.Config(front, ws="none", log_config=None, access_log=False)))
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
        yield "http://{}:{}".format(*listener.getsockname())
    finally:
        for server in servers:
            server.should_exit = True
        thread.join()
        listener.close()
