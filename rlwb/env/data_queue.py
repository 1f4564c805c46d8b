"""The stream of initial states."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from rlwb.errors import ConfigError, DataError, RlwbError
from rlwb.seeds import Stream, generator

StateT = TypeVar("StateT")
StateT_co = TypeVar("StateT_co", covariant=True)


class Dataset(Protocol[StateT_co]):
    """Anything with a length and items from 0 on."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> StateT_co: ...


class DataQueue(Iterator[StateT]):
    """Hands out the items of a data set, epoch by epoch, each exactly once an epoch.

    The queue is one stream with a position: a loop that is left early is continued by the next loop. When a finite
    queue is used up, the next loop starts over with the same order. The order of epoch ``e`` is a permutation drawn
    by ``rlwb.seeds.generator(seed, e, Stream.INITIAL_STATE)``, so it depends on nothing but seed, epoch and size.

    An exception raised by the data set reaches the consumer, at the item that raised it.

    Parameters
    ----------
    dataset
        The items.
    repeat
        Number of epochs; -1 is endless.
    shuffle
        Whether each epoch has an order of its own; otherwise every epoch runs 0, 1, ….
    producer_num_workers
        Threads that read items ahead of the consumer; 0 reads each item when it is asked for. The order is the same.
    queue_maxsize
        Most items held ready by the threads; 0 means twice their number.
    seed
        Seed of the orders, >= 0.
    """

    def __init__(
        self,
        dataset: Dataset[StateT],
        repeat: int = 1,
        shuffle: bool = True,
        producer_num_workers: int = 0,
        queue_maxsize: int = 0,
        seed: int = 0,
    ) -> None:
        if len(dataset) == 0:
            raise DataError("The data set of a DataQueue is empty; give it at least one initial state.")
        if repeat < 1 and repeat != -1:
            raise ConfigError(f"DataQueue(repeat={repeat}): give a number of epochs >= 1, or -1 for endless.")
        if producer_num_workers < 0 or queue_maxsize < 0 or seed < 0:
            raise ConfigError(
                f"DataQueue(producer_num_workers={producer_num_workers}, queue_maxsize={queue_maxsize}, seed={seed}): "
                "none of them may be negative."
            )
        self.dataset = dataset
        self.repeat = repeat
        self.shuffle = shuffle
        self.producer_num_workers = producer_num_workers
        self.queue_maxsize = queue_maxsize or 2 * producer_num_workers
        self.seed = seed
        self._size = len(dataset)
        self._position = 0
        self._order: tuple[int, np.ndarray] | None = None  # the epoch and its order
        self._executor: ThreadPoolExecutor | None = None
        self._ahead: deque[Future[StateT]] = deque()
        self._closed = False

    def __len__(self) -> int:
        """Return the number of items in all epochs, handed out or not."""
        if self.repeat == -1:
            raise TypeError("an endless DataQueue has no length")
        return self._size * self.repeat

    def __iter__(self) -> DataQueue[StateT]:
        if self._exhausted(self._position):
            self._move(0)
        return self

    def __next__(self) -> StateT:
        if self._closed:
            raise RlwbError("This DataQueue is closed; make a new one to read on.")
        if self._exhausted(self._position):
            raise StopIteration
        if self.producer_num_workers == 0:
            state = self._read(self._index(self._position))
        else:
            self._read_ahead()
            try:
                state = self._ahead.popleft().result()
            except BaseException:
                self._move(self._position)
                raise
        self._position += 1
        return state

    def reseed(self, seed: int) -> None:
        """Start over with another seed."""
        self.seed = seed
        self._order = None
        self._move(0)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the consumed stream and what it depends on."""
        return {"position": self._position} | self._identity()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a position; refuse one of another data set or another order."""
        for name, value in self._identity().items():
            if state_dict[name] != value:
                raise ConfigError(
                    f"The DataQueue's state was saved with {name}={state_dict[name]!r}, this queue has {value!r}; "
                    "resume with the same data and settings."
                )
        self._move(int(state_dict["position"]))

    def close(self) -> None:
        """Stop the reading threads; waits for the items being read. May be called twice."""
        self._closed = True
        self._drop_ahead()
        if self._executor is not None:
            self._executor.shutdown(wait=True)
            self._executor = None

    def __enter__(self) -> DataQueue[StateT]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_executor": None, "_ahead": deque()}

    def _identity(self) -> dict[str, Any]:
        return {"size": self._size, "shuffle": self.shuffle, "seed": self.seed}

    def _exhausted(self, position: int) -> bool:
        return self.repeat != -1 and position >= self._size * self.repeat

    def _index(self, position: int) -> int:
        epoch, place = divmod(position, self._size)
        if not self.shuffle:
            return place
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, generator(self.seed, epoch, Stream.INITIAL_STATE).permutation(self._size)
        return int(self._order[1][place])

    def _read(self, index: int) -> StateT:
        try:
            return self.dataset[index]
        except StopIteration as error:
            raise DataError(f"Item {index} of the data set raised StopIteration; raise another exception.") from error
        except Exception as error:
            error.add_note(f"While item {index} of the data set of a DataQueue was read.")
            raise

    def _read_ahead(self) -> None:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self.producer_num_workers, thread_name_prefix="DataQueue")
        while len(self._ahead) < self.queue_maxsize and not self._exhausted(self._position + len(self._ahead)):
            index = self._index(self._position + len(self._ahead))
            self._ahead.append(self._executor.submit(self._read, index))

    def _move(self, position: int) -> None:
        self._drop_ahead()
        self._position = position

    def _drop_ahead(self) -> None:
        for future in self._ahead:
            future.cancel()
        self._ahead.clear()


def stream(states: Iterable[StateT] | Dataset[StateT]) -> Iterator[StateT]:
    """Iterate `states` so that only their real end looks like the end.

    A sequence is read by index up to its length, so an IndexError or StopIteration raised inside an item is an error,
    not the end; anything else that has a length must hand out that many states.
    """
    if isinstance(states, Iterator):
        # Not `yield from`, which would close the caller's iterator together with this one.
        for state in states:
            yield state
        return
    if hasattr(states, "__getitem__") and isinstance(states, Sized) and not isinstance(states, Mapping):
        for index in range(len(states)):
            yield states[index]
        return
    count = 0
    for state in cast(Iterable[StateT], states):
        yield state
        count += 1
    if isinstance(states, Sized) and len(states) != count:
        raise DataError(f"The initial states say that they are {len(states)}, but {count} came; correct their length.")


def take(states: Sequence[StateT], rows: np.ndarray) -> Sequence[StateT]:
    """Return ``states[rows]``, rows int64 of shape (n,), by array indexing where the sequence has it."""
    try:
        picked: Sequence[StateT] = states[rows]  # type: ignore[call-overload]
    except TypeError:
        picked = [states[int(row)] for row in rows]
    return picked
