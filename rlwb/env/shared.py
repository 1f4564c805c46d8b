"""Memory shared between the main process and its workers, without a name that could be left behind."""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np

from rlwb.env.batch import empty_batch
from rlwb.errors import ConfigError

ALIGNMENT = 64

#: Buffers of at least this many bytes are shared by all workers instead of being sent to each.
SHARE_FROM = 1 << 16


def anonymous_file() -> int:
    """Return the descriptor of an empty file without a name; its memory is freed with its last descriptor and map."""
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
    """Pickle `value`; its large arrays go into `file` once. Return the pickle and where each array lies."""
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
        end += -(-view.nbytes // ALIGNMENT) * ALIGNMENT
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


def shared_batch(space: gym.Space[Any], n: int, file: int) -> Any:
    """Return a batch of `n` observations that lies in `file`, the same one in each process that calls this."""
    end = 0

    def measure(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        nonlocal end
        if dtype.hasobject:
            raise ConfigError(
                f"The observation space {space} has a part without a fixed size, which shared memory cannot hold; "
                "use finite_env_type='subproc'."
            )
        end += -(-int(np.prod(shape)) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
        return np.empty(0)

    empty_batch(space, n, measure)
    if os.fstat(file).st_size < end:
        os.ftruncate(file, end)
    memory = mmap.mmap(file, max(end, 1)) if end else mmap.mmap(-1, 1)
    offset = 0

    def place(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        nonlocal offset
        array: np.ndarray = np.frombuffer(memory, dtype, int(np.prod(shape)), offset).reshape(shape)
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        return array

    return empty_batch(space, n, place)
