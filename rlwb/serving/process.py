"""The process that serves a bundle: what `rlwb serve` starts."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlwb.errors import BundleError, ConfigError, ServingError
from rlwb.serving.app import Api, Front, Limits, Security, watch

if TYPE_CHECKING:
    import socket

    from rlwb.serving.backend import Kind
    from rlwb.serving.monitor import FallbackSettings
    from rlwb.serving.policy import BundlePolicy

log = logging.getLogger("rlwb.serving")

#: What the environment may say instead of a file of the token.
TOKEN_ENV = "RLWB_SERVE_TOKEN"
#: Names by which a service on loopback may be called.
LOOPBACK = frozenset(("127.0.0.1", "localhost", "[::1]"))
#: Seconds that a stopping service gives requests in flight.
_GRACE = 10


def launch(
    bundle: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token_file: Path | None = None,
    open_to_all: bool = False,
    **settings: Any,
) -> None:
    """Serve a bundle until SIGTERM or Ctrl-C.

    Parameters
    ----------
    bundle
        Its directory.
    host, port
        Where to listen; port 0 takes a free one, which the log names.
    token_file
        A file with the token that requests must bear; without one, the environment's `TOKEN_ENV`, if that is set.
    open_to_all
        Listen beyond this machine without a token.
    settings
        Further ones of `make_front`.

    Raises
    ------
    BundleError, FileError, ConfigError
        When a bundle, the journal, the token or the address will not do.
    """
    token = token_of(token_file)
    if token is None and not is_loopback(host) and not open_to_all:
        raise ConfigError(f"{host} is reached from other machines; give --token-file, or --no-token to let all in.")
    listener = listen(host, port)
    try:
        security = Security(token, hosts_of(host))
        front = make_front(bundle, security=security, **settings)
        address, number = listener.getsockname()[:2]
        service = front.api.service
        orders = service.counts["open"]
        log.info("listening address=%s port=%d bundle=%s orders=%d", address, number, service.name, orders)
        serve(front, listener)
        log.info("stopped")
    finally:
        listener.close()


def make_front(
    bundle: Path,
    *,
    security: Security | None = None,
    also: Mapping[str, Path] | None = None,
    shadow: Path | None = None,
    state: Path | None = None,
    sync: Literal["normal", "full"] = "normal",
    history: Path | None = None,
    backend: Kind = "torch",
    limits: Limits | None = None,
    fallback: FallbackSettings | None = None,
    trust_code: bool = False,
) -> Front:
    """Return the application that serves a bundle, with what its journal holds.

    Parameters
    ----------
    bundle
        Its directory; its name among the bundles is ``main``.
    security
        Who may ask.
    also
        Further bundles to which clients may swap, by name.
    shadow
        A bundle that decides beside.
    state
        The file of the journal; None forgets all at the end.
    sync
        See `Journal`.
    history
        Bars of earlier sessions: a file, folder, data set or saved panel (`rlwb.market.load_sessions`).
    backend
        See `BundlePolicy`.
    limits
        Limits of requests.
    fallback
        What is done about inputs that are not to be trusted.
    trust_code
        Run code that the bundles name.

    Raises
    ------
    BundleError, FileError, ConfigError
        When a bundle, the journal or the history will not do.
    """
    import numpy as np

    from rlwb.serving.feeds import bars_of, read_past
    from rlwb.serving.journal import Journal
    from rlwb.serving.monitor import Monitor
    from rlwb.serving.service import Service

    bundles = {"main": bundle, **(also or {})}
    make = {name: partial(open_policy, path, backend, trust_code) for name, path in bundles.items()}
    journal = Journal(state, sync=sync)
    name = journal.noted("bundle") or "main"
    if name not in make:
        raise BundleError(f"the journal {state} was left by the bundle {name!r}; give it with --also {name}=PATH.")
    beside = None if shadow is None else open_policy(shadow, backend, trust_code)
    policy = make[name]()
    monitor = Monitor(fallback=fallback)
    watch(monitor, policy, name, backend)
    service = Service(policy, name=name, journal=journal, monitor=monitor, shadow=beside)
    if history is not None:
        past = read_past(history, policy.bundle.calendar)
        bars, _ = bars_of(past, np.arange(len(past)))
        told = service.load_history({name: values.to_numpy() for name, values in bars.items()})
        log.info("history read accepted=%d refused=%d", told.accepted, len(told.refused))
    api = Api(service, bundles=make, limits=limits, shadow=None if shadow is None else shadow.name, backend=backend)
    return Front(api, security)


def named_bundles(words: Sequence[str]) -> dict[str, Path]:
    """Return bundles by the names of words ``NAME=PATH``.

    Raises
    ------
    ConfigError
        When a word is of another form, or a name stands twice or is ``main``.
    """
    found: dict[str, Path] = {}
    for word in words:
        name, _, path = word.partition("=")
        if not (name.isprintable() and name and path) or name in (*found, "main"):
            raise ConfigError(f"--also {word!r} is not NAME=BUNDLE with a name of its own; write challenger=bundles/b.")
        found[name] = Path(path)
    return found


def fallback_of(words: Sequence[str]) -> FallbackSettings:
    """Return what is done about inputs that are not to be trusted, by words ``NAME=MODE``.

    Raises
    ------
    ConfigError
        Naming the word, the name or the mode.
    """
    from rlwb.serving.monitor import FallbackSettings

    given = dict(word.partition("=")[::2] for word in words)
    names = vars(FallbackSettings())
    if unknown := sorted(given.keys() - names.keys()):
        raise ConfigError(f"--fallback {unknown[0]} is no input; write one of {', '.join(names)}, with =MODE.")
    return FallbackSettings(**given)  # type: ignore[arg-type]


def limits_of(*, batch: int, window: float, queue: int, deadline: float) -> Limits:
    """Return the limits of options, with times in milliseconds.

    Raises
    ------
    ConfigError
        Naming the option that is out of its range.
    """
    for name, value, least in (
        ("batch", batch, 1),
        ("window", window, 0),
        ("queue", queue, 1),
        ("deadline", deadline, 1),
    ):
        if not least <= value <= 1e6:
            raise ConfigError(f"--{name} is {value:g}; give a number from {least} to 1,000,000.")
    return Limits(batch=batch, window=window / 1e3, queue=queue, deadline=deadline / 1e3)


def open_policy(path: Path, backend: Kind = "torch", trust_code: bool = False) -> BundlePolicy:
    """Open a bundle and return its policy."""
    from rlwb.serving.bundle import open_bundle
    from rlwb.serving.policy import BundlePolicy

    return BundlePolicy(open_bundle(path, trust_code=trust_code), backend=backend)


def token_of(file: Path | None) -> str | None:
    """Return the token that requests must bear, of a file or of the environment; None where neither has one.

    Raises
    ------
    ConfigError
        When the file cannot be read, or the token is short.
    """
    try:
        text = os.environ.get(TOKEN_ENV) if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {file} cannot be read ({error}); write the token into it.") from None
    if text is None:
        return None
    token = text.strip()
    if len(token) < 16 or not (token.isascii() and token.isprintable()) or " " in token:
        where = TOKEN_ENV if file is None else str(file)
        raise ConfigError(f"the token in {where} is no word of 16 or more ASCII characters; make a random one.")
    return token


def serve(front: Front, listener: socket.socket) -> None:
    """Answer requests on a listening socket until SIGTERM or Ctrl-C, then finish those in flight and close the journal.

    SIGHUP opens the bundle anew.
    """
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            loop.add_signal_handler(signal.SIGHUP, _reopen, front.api)
            yield

    config = uvicorn.Config(
        front,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=2048,
        timeout_graceful_shutdown=_GRACE,
    )
    gc.collect()
    gc.freeze()  # what is there now stays: looking through it took 0.1 s at times
    Server(config).run(sockets=[listener])


_tasks: set[asyncio.Task[Any]] = set()


def _reopen(api: Api) -> None:
    async def swap() -> None:
        try:
            await api.swap(api.service.name)
        except ServingError as error:
            log.error("bundle not opened anew error=%s", error)

    task = asyncio.get_running_loop().create_task(swap())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises
    ------
    ConfigError
        When the address cannot be taken.
    """
    import socket

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host}:{port} ({error}); choose another --host or --port.") from None
    return listener


def hosts_of(host: str) -> frozenset[str]:
    """Return the names by which a service that listens on an address may be called; none means any."""
    if not is_loopback(host):
        return frozenset()
    return LOOPBACK | {f"[{host}]" if ":" in host else host.lower()}


def is_loopback(host: str) -> bool:
    """Tell whether an address or name is this machine's own."""
    import ipaddress

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
