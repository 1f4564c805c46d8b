"""Sending an environment's maker to workers, its large arrays once for all of them."""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import signal
import tempfile
import threading
import weakref
from collections.abc import Sequence
from functools import partial
from io import BytesIO
from multiprocessing import parent_process, reduction
from typing import Any

import cloudpickle
import numpy as np

from rlwb.env.slot import EnvFn, Slot
from rlwb.errors import ConfigError

#: Buffers of at least this many bytes are shared by all workers instead of being sent to each.
SHARE_FROM = 1 << 16


class SharedFactory:
    """Makes slots of an `env_fn`, in this process or in workers, which share its large arrays.

    The arrays lie once in a file without a name, whose memory is freed with the last process that maps it.
    """

    def __init__(self, env_fn: EnvFn) -> None:
        self.env_fn = env_fn
        self._file = _nameless_file()
        weakref.finalize(self, os.close, self._file)
        try:
            self._data, self._places = dump_shared(env_fn, self._file)
        except Exception as error:
            raise ConfigError(
                f"env_fn cannot be sent to worker processes ({type(error).__name__}: {error}); leave out of it what "
                "cannot be pickled, or use finite_env_type='dummy'."
            ) from error

    def __call__(self) -> Slot:
        return Slot(self.env_fn)

    def __reduce__(self) -> Any:
        return partial, (_make_in_worker, self._data, self._places, reduction.DupFd(self._file))


def _make_in_worker(data: bytes, places: Sequence[tuple[int, int]], file: Any) -> Slot:
    # An interrupt at the keyboard reaches all processes; the main process decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    threading.Thread(target=_end_with_main_process, daemon=True).start()
    descriptor = file.detach()
    env_fn = load_shared(data, places, descriptor)
    os.close(descriptor)
    return Slot(env_fn)


def _end_with_main_process() -> None:
    # Even while the environment computes.
    main = parent_process()
    assert main is not None
    main.join()
    os._exit(1)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rlwb")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class _Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        # NumPy copies a memory map into the pickle; as a plain array it becomes one of the shared buffers.
        if type(obj) is np.memmap:
            return obj.view(np.ndarray).__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(obj)


def dump_shared(value: Any, file: int) -> tuple[bytes, list[tuple[int, int]]]:
    """Pickle `value`; its large arrays go into `file` once. Return the pickle and (offset, bytes) of each array."""
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < SHARE_FROM:
            return True
        buffers.append(view)
        return False

    data = BytesIO()
    _Pickler(data, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=keep).dump(value)
    places, end = [], 0
    for view in buffers:
        places.append((end, view.nbytes))
        end += -(-view.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    os.ftruncate(file, end)
    if end:
        with mmap.mmap(file, end) as memory:
            for (offset, size), view in zip(places, buffers, strict=True):
                memory[offset : offset + size] = view
    return data.getvalue(), places


def load_shared(data: bytes, places: Sequence[tuple[int, int]], file: int) -> Any:
    """Undo `dump_shared` in a worker: the large arrays are views of `file`, copied only where they are written to."""
    if not places:
        return pickle.loads(data)
    memory = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_COPY))
    return pickle.loads(data, buffers=[memory[offset : offset + size] for offset, size in places])
