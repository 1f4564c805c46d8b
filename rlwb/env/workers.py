"""Objects in worker processes: large arrays are sent once for all of them, and none outlives the main process."""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Iterator
from io import BytesIO
from multiprocessing import reduction
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

#: How workers start: as fresh interpreters, never as forks, which threads of the main process could harm.
SPAWN = multiprocessing.get_context("spawn")
#: Seconds that workers have to close their environments before they are killed.
CLOSE_SECONDS = 5.0
_ALIGNMENT = 64


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C, a notebook's stop button and SIGTERM until the block has ended.

    Only for what takes a moment and must not be left half done. Nothing is held back outside of the main thread, where
    Python raises nothing either.
    """
    numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    handlers = {number: signal.getsignal(number) for number in numbers}
    came: list[tuple[int, Any]] = []
    held: dict[int, Any] = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in held:
        signal.signal(number, lambda *said: came.append(said))
    try:
        yield
    finally:
        _hand_back(list(held.items()))
        for said in came[:1]:
            held[said[0]](*said)


def _hand_back(handlers: list[tuple[int, Any]]) -> None:
    """Install handlers, all of them even where one that is back raises at once."""
    if handlers:
        (number, handler), *others = handlers
        try:
            signal.signal(number, handler)
        finally:
            _hand_back(others)


class SharedPickle:
    """A pickled value whose arrays lie once in memory for all processes that load it.

    They lie in a file without a name, whose memory is freed with the last process that maps it.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        data = BytesIO()
        SharingPickler(data, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append).dump(value)
        views = [buffer.raw() for buffer in buffers]
        ends = list(itertools.accumulate(-(-view.nbytes // _ALIGNMENT) * _ALIGNMENT for view in views))
        self._data = data.getvalue()
        self._places = [(start, view.nbytes) for start, view in zip([0, *ends], views, strict=False)]
        self._size = max(ends, default=0)
        self._file = _nameless_file()
        weakref.finalize(self, os.close, self._file)
        with open(self._file, "wb", closefd=False) as file:
            for (start, _), view in zip(self._places, views, strict=True):
                file.seek(start)
                file.write(view)
            file.truncate(self._size)

    def load(self) -> Any:
        """Return the value; its arrays are views of the file, copied only where they are written to."""
        memory = memoryview(mmap.mmap(self._file, 0, access=mmap.ACCESS_COPY) if self._size else b"")
        return pickle.loads(self._data, buffers=[memory[start : start + size] for start, size in self._places])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_file": state["_file"].detach()})


class SharingPickler(cloudpickle.Pickler):
    """Pickles by value, and takes a memory map for the array that it shows."""

    def reducer_override(self, obj: Any) -> Any:
        # NumPy copies a memory map into the pickle; as a plain array it becomes one of the shared buffers.
        if type(obj) is np.memmap:
            return obj.view(np.ndarray).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(obj)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rlwb")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Worker:
    """A process with one object, whose methods it calls when asked to.

    Parameters
    ----------
    make
        What makes the object in the process, as a `SharedPickle`; called with `args`.
    args
        Sent at the start, so shared memory of `multiprocessing` may be among them.

    Attributes
    ----------
    process
        The process.
    pipe
        Its end here, which receives the answer to each `send`: the value or None, and what was raised or None, as its
        class's name, its text and its traceback.
    """

    def __init__(self, make: SharedPickle, *args: Any) -> None:
        self.pipe, end = SPAWN.Pipe()
        self.process = SPAWN.Process(target=_serve, args=(end, make, *args), daemon=True)
        with _without_main_module(), _deaf_to_interrupts():
            self.process.start()
        end.close()
        #: Ends the process at once, unless called in a fork of its parent; happens when the worker is forgotten, too.
        self.kill = weakref.finalize(self, _kill, self.process, self.pipe, os.getpid())

    def send(self, name: str, *args: Any) -> None:
        """Ask for a call, the first time for making the object; a dead worker shows when its answer is read."""
        with contextlib.suppress(OSError):
            # By cloudpickle: arguments may be of classes that exist in a script or a notebook only.
            self.pipe.send_bytes(cloudpickle.dumps((name, args)))

    def death(self) -> str:
        """Return what became of a worker that has closed its pipe."""
        self.process.join(CLOSE_SECONDS)
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        cause = " (often by the system, for lack of memory)" if -code == signal.SIGKILL else ""
        return f"was killed by {signal.Signals(-code).name}{cause}"


def _kill(process: BaseProcess, pipe: Connection, owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        process.join()
        process.close()
        pipe.close()


def _serve(pipe: Connection, make: SharedPickle, *args: Any) -> None:
    # An interrupt at the keyboard reaches all processes; the main process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    faulthandler.enable()
    threading.Thread(target=_end_with_main_process, daemon=True).start()
    served: Any = None
    with contextlib.suppress(EOFError):
        while True:
            name, arguments = pipe.recv()
            value = fault = None
            try:
                if served is None:
                    served = make.load()(*args)
                else:
                    value = getattr(served, name)(*arguments)
            except (Exception, SystemExit) as error:
                fault = type(error).__name__, str(error), traceback.format_exc().rstrip()
            pipe.send((value, fault))


def _end_with_main_process() -> None:
    # Even while the environment computes.
    main = multiprocessing.parent_process()
    assert main is not None
    main.join()
    os._exit(1)


@contextlib.contextmanager
def _without_main_module() -> Iterator[None]:
    # Workers started meanwhile do not run the user's script again, so it needs no ``__main__`` guard.
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    # What is started meanwhile inherits it, and is not interrupted before it can say that it ignores that.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
