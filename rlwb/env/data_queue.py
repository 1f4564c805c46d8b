"""The stream of initial states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, Protocol, TypeVar, cast

import numpy as np

from rlwb.errors import ConfigError, DataError
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

    An exception raised by the data set reaches the consumer, and names the item that raised it.

    Parameters
    ----------
    dataset
        The items.
    repeat
        Number of epochs; -1 is endless.
    shuffle
        Whether each epoch has an order of its own; otherwise every epoch runs 0, 1, ….
    seed
        Seed of the orders, >= 0.
    """

    def __init__(self, dataset: Dataset[StateT], repeat: int = 1, shuffle: bool = True, seed: int = 0) -> None:
        if len(dataset) == 0:
            raise DataError("The data set of a DataQueue is empty; give it at least one initial state.")
        if repeat < 1 and repeat != -1:
            raise ConfigError(f"DataQueue(repeat={repeat}): give a number of epochs >= 1, or -1 for endless.")
        if seed < 0:
            raise ConfigError(f"DataQueue(seed={seed}): the seed may not be negative.")
        self.dataset = dataset
        self.repeat = repeat
        self.shuffle = shuffle
        self.seed = seed
        self._size = len(dataset)
        self._position = 0
        self._order: tuple[int, np.ndarray] | None = None  # the epoch and its order

    def __iter__(self) -> DataQueue[StateT]:
        if self._exhausted():
            self._position = 0
        return self

    def __next__(self) -> StateT:
        if self._exhausted():
            raise StopIteration
        epoch, index = divmod(self._position, self._size)
        if self.shuffle:
            if self._order is None or self._order[0] != epoch:
                self._order = epoch, generator(self.seed, epoch, Stream.INITIAL_STATE).permutation(self._size)
            index = int(self._order[1][index])
        try:
            state = self.dataset[index]
        except StopIteration as error:  # here it would look like the end
            raise DataError(f"Item {index} of the data set raised StopIteration; raise another exception.") from error
        except Exception as error:
            error.add_note(f"While item {index} of the data set of a DataQueue was read.")
            raise
        self._position += 1
        return state

    def reseed(self, seed: int) -> None:
        """Start over with another seed."""
        self.seed, self._order, self._position = seed, None, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the stream and what it depends on."""
        return {"position": self._position} | self._identity()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue at a position; raise `ConfigError` for one of another data set or another order."""
        for name, value in self._identity().items():
            if state_dict[name] != value:
                raise ConfigError(
                    f"The DataQueue's state was saved with {name}={state_dict[name]!r}, this queue has {value!r}; "
                    "resume with the same data and settings."
                )
        self._position = int(state_dict["position"])

    def _identity(self) -> dict[str, Any]:
        return {"size": self._size, "shuffle": self.shuffle, "seed": self.seed}

    def _exhausted(self) -> bool:
        return self.repeat != -1 and self._position >= self._size * self.repeat


def stream(states: Iterable[StateT] | Dataset[StateT]) -> Iterator[StateT]:
    """Iterate `states` so that only their real end looks like the end.

    A sequence is read by index up to its length, so an IndexError or StopIteration raised inside an item is an error.
    """
    if isinstance(states, Sized) and hasattr(states, "__getitem__") and not isinstance(states, Mapping):
        return _Items(states)
    return iter(cast(Iterable[StateT], states))


class _Items(Iterator[StateT]):
    """The items of a sequence, by index; unlike a generator it can be copied and pickled."""

    def __init__(self, states: Dataset[StateT]) -> None:
        self._states, self._next = states, 0

    def __next__(self) -> StateT:
        if self._next >= len(self._states):
            raise StopIteration
        self._next += 1
        try:
            return self._states[self._next - 1]
        except StopIteration as error:  # here it would look like the end
            raise DataError(f"Item {self._next - 1} raised StopIteration; raise another exception.") from error
