"""Objects in processes of a Ray cluster: large arrays are sent once, and an object that is lost is made again."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from io import BytesIO
from typing import Any, NamedTuple, Self

import numpy as np

import rlwb.errors
from rlwb.env.workers import SharingPickler
from rlwb.errors import ConfigError, RlwbError, WorkerError
from rlwb.packages import require_packages

#: How often a process may die in one call before the call is held to be what kills it.
ATTEMPTS = 3


#: Seconds until workers that a cluster has no room for are spoken of.
_PATIENCE = 60.0
logger = logging.getLogger(__name__)


class Lost(Exception):  # noqa: N818 - it is no fault of the call's
    """A process of Ray's died, or the machine that it ran on, before it answered."""


class Connection:
    """The connection of this process to a Ray cluster; a cluster that it has started ends with its last user.

    Where the program has called ``ray.init`` itself, that cluster is used and left alone. Otherwise the cluster whose
    address is in the environment variable RAY_ADDRESS is joined (``auto`` finds the one of this machine), and without
    it one of this machine alone is started, without a dashboard.

    Parameters
    ----------
    cpus
        CPUs that will be asked for; a cluster that is started here has as many at least, so that no work waits forever.

    Raises
    ------
    ConfigError
        When the package ray is missing, or no cluster is at the address.
    """

    _users = 0
    _is_ours = False
    _lock = threading.Lock()

    def __init__(self, cpus: int = 1) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        require_packages("a Ray cluster", "ray", "ray")
        import ray

        self.ray = ray
        self._is_open = True
        with Connection._lock:
            if not ray.is_initialized():
                self._connect(max(cpus, os.cpu_count() or 1))
                Connection._is_ours = True
            Connection._users += 1

    @property
    def is_ours(self) -> bool:
        """Whether the cluster is this machine alone, started here."""
        return Connection._is_ours and not os.environ.get("RAY_ADDRESS")

    def _connect(self, cpus: int) -> None:
        address = os.environ.get("RAY_ADDRESS")
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        in_main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGTERM)
        try:
            if address:
                self.ray.init(address=address, **quiet)
            else:
                self.ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
        except ConnectionError as error:
            told = str(error).partition("\n")[0].rstrip(".")
            raise ConfigError(
                f"there is no Ray cluster at the address {address!r} of RAY_ADDRESS ({told}); start one with ray "
                "start --head, or unset RAY_ADDRESS to use this machine alone."
            ) from error
        finally:
            if in_main and before is not None:  # Ray puts its own in the place of the program's
                signal.signal(signal.SIGTERM, before)

    def close(self) -> None:
        """Leave the cluster, which ends it if it was started here and nothing else uses it; may be called twice."""
        with Connection._lock:
            if not self._is_open:
                return
            self._is_open = False
            Connection._users -= 1
            if Connection._is_ours and not Connection._users:
                Connection._is_ours = False
                with contextlib.suppress(Exception):  # a cluster that is gone already
                    self.ray.shutdown()


class _Packed(NamedTuple):
    """A pickle, and the arrays that it refers to, which Ray lays in shared memory as they are."""

    data: bytes
    arrays: list[np.ndarray]

    def load(self) -> Any:
        return pickle.loads(self.data, buffers=self.arrays)


class Put(NamedTuple):
    """A value in the memory of a cluster."""

    reference: Any


class Actors:
    """Objects of one kind, each in a process of its own on a Ray cluster; a context manager that ends them.

    Parameters
    ----------
    make
        Makes the object. It is sent by cloudpickle; arrays in it lie once in the memory of each machine, where they
        cannot be written to.
    count
        Number of objects.
    threads
        Threads of numerical libraries, and CPUs set aside, for each.

    Raises
    ------
    ConfigError
        When the package ray is missing, there is no cluster, or `make` cannot be sent.
    """

    def __init__(self, make: Callable[[], Any], count: int, *, threads: int = 1) -> None:
        self._connection = Connection(count * threads)
        self._threads = threads
        try:
            try:
                packed = _packed(make)
            except Exception as error:
                raise ConfigError(
                    f"what the workers need cannot be sent to them ({type(error).__name__}: {error}); leave out of it "
                    "what cannot be pickled."
                ) from error
            ray = self._connection.ray
            self._packed = ray.put(packed)
            # On this machine alone nothing else could have the CPUs, and workers beyond them must not wait forever.
            cpus = 0 if self._connection.is_ours else threads
            self._class = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD")(_Host)
            self._actors = [self._made() for _ in range(count)]
            self._tell_of_waiting()
        except BaseException:
            self._connection.close()
            raise
        self._idle: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in range(count):
            self._idle.put(index)
        self._pool: ThreadPoolExecutor | None = None
        self._is_open = True

    def __len__(self) -> int:
        return len(self._actors)

    def ask(self, index: int, method: str, *args: Any) -> Callable[[], Any]:
        """Begin a call of a method of one object; return a function that waits for its result.

        That raises `Lost` when the process is gone; `replace` makes another. What the method raises is raised as it is
        if it is an error of rlwb's, and as a `WorkerError` otherwise.
        """
        ray, sent = self._connection.ray, [one if isinstance(one, Put) else _packed(one) for one in args]
        # A reference inside of something would arrive as a reference; one that is an argument arrives as its value.
        sent = [one.reference if isinstance(one, Put) else one for one in sent]
        reference = self._actors[index].call.remote(method, *sent)
        errors = ray.exceptions
        gone = (errors.RayActorError, errors.WorkerCrashedError, errors.ObjectLostError, errors.OutOfMemoryError)

        def wait() -> Any:
            try:
                value, fault = ray.get(reference)
            except gone as error:
                raise Lost(str(error).partition("\n")[0]) from error
            if fault is None:
                return value
            kind, text, trace = fault
            known = getattr(rlwb.errors, kind, None)
            if isinstance(known, type) and issubclass(known, RlwbError) and known is not rlwb.errors.ServingError:
                raise known(text)
            raise WorkerError(f"{kind} in {method} of worker {index}: {text}\n\n{trace}")

        return wait

    def replace(self, index: int) -> None:
        """Make the object again in a new process."""
        with contextlib.suppress(Exception):
            self._connection.ray.kill(self._actors[index])
        self._actors[index] = self._made()

    def submit(self, method: str, *args: Any) -> Future[Any]:
        """Call a method of whichever object is free next; a process that dies meanwhile is replaced, the call repeated.

        The result is a `WorkerError` where that happens too often for one call; see `ATTEMPTS`. May be called from
        several threads.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(len(self), thread_name_prefix="rlwb-ray")
        return self._pool.submit(self._call, method, args)

    def map(self, method: str, arguments: Iterable[Sequence[Any]]) -> list[Any]:
        """Call a method with each of several groups of arguments; return the results in their order."""
        calls = [self.submit(method, *one) for one in arguments]
        try:
            return [call.result() for call in calls]
        finally:
            for call in calls:
                call.cancel()

    def put(self, value: Any) -> Put:
        """Lay a value in the cluster's memory, for calls that share it as an argument."""
        return Put(self._connection.ray.put(_packed(value)))

    def processes(self) -> list[int]:
        """Return the process ids of the objects, each on its machine."""
        return [int(self.ask(index, "pid")()) for index in range(len(self))]

    def close(self) -> None:
        """End the processes, and the cluster if it was started for them; may be called twice."""
        if not self._is_open:
            return
        self._is_open = False
        for actor in self._actors:
            with contextlib.suppress(Exception):
                self._connection.ray.kill(actor)
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _tell_of_waiting(self) -> None:
        """Say so where a cluster has no room for all of them."""
        if not self._connection.is_ours:
            begun = [actor.call.remote("pid") for actor in self._actors]
            ready, _ = self._connection.ray.wait(begun, num_returns=len(begun), timeout=_PATIENCE)
            if len(ready) < len(begun):
                logger.warning(
                    "%d of %d workers wait until the Ray cluster has %d free CPUs for each",
                    len(begun) - len(ready),
                    len(begun),
                    self._threads,
                )

    def _made(self) -> Any:
        return self._class.remote(self._packed, self._threads)

    def _call(self, method: str, args: Sequence[Any]) -> Any:
        index = self._idle.get()
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    return self.ask(index, method, *args)()
                except Lost as error:
                    if not self._is_open:
                        raise
                    self.replace(index)
                    if attempt == ATTEMPTS:
                        raise WorkerError(
                            f"{ATTEMPTS} worker processes in a row died in {method} ({error}); lack of memory is the "
                            "usual cause: use fewer workers a machine, or larger machines."
                        ) from error
        finally:
            self._idle.put(index)


class _Host:
    """Holds the object in a process of Ray's; it is made when it is first asked."""

    def __init__(self, packed: _Packed, threads: int) -> None:
        self._packed, self._threads = packed, threads
        self._object: Any = None
        os.environ |= {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "NUMBA")}

    def call(self, method: str, *args: _Packed) -> tuple[Any, tuple[str, str, str] | None]:
        """Return the value, and None or what was raised: its class's name, its text and its traceback."""
        try:
            if method == "pid":
                return os.getpid(), None
            if self._object is None:
                self._object = self._made()
            given = [one.load() for one in args]
            if "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(self._threads)
            return getattr(self._object, method)(*given), None
        except (Exception, SystemExit) as error:
            return None, (type(error).__name__, str(error), traceback.format_exc().rstrip())

    def _made(self) -> Any:
        return self._packed.load()()


def _packed(value: Any) -> _Packed:
    """Pickle a value by cloudpickle itself, which knows the user's own files; Ray's copy of it does not."""
    buffers: list[pickle.PickleBuffer] = []
    data = BytesIO()
    SharingPickler(data, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    arrays = [np.frombuffer(view if view.nbytes else bytearray(), dtype=np.uint8) for view in views]
    return _Packed(data.getvalue(), arrays)
