"""The vector environments of a trainer: native ones made for each collect, slots kept for the whole fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rlwb.env import FiniteVectorEnv, LogWriter
from rlwb.env.vector import SlotVectorEnv
from rlwb.errors import ConfigError
from rlwb.trainer.vessel import TrainingVessel

KINDS = ("native", "dummy", "subproc", "shmem")


class _Turn:
    """The initial states of the collect to come; each iteration over it runs through those of the moment."""

    states: Sequence[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return (self.states[i] for i in range(len(self.states)))


class Environments:
    """Opens vector environments, and closes what it keeps.

    Starting a worker process takes about a second, so workers are started once and serve every collect. They
    hold the vessel's parts as these were then.

    Parameters
    ----------
    kind, concurrency
        `finite_env_type` and `concurrency` of `make_env`.
    """

    def __init__(self, kind: str, concurrency: int) -> None:
        if kind not in KINDS:
            raise ConfigError(f"finite_env_type is {kind!r}; choose one of {', '.join(KINDS)}.")
        if concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency}; give the number of parallel episodes, at least 1.")
        self.kind = kind
        self.concurrency = concurrency
        self._turn: Any = _Turn()
        self._kept: FiniteVectorEnv | None = None

    @contextmanager
    def open(
        self, vessel: TrainingVessel, states: Sequence[Any], loggers: Sequence[LogWriter], *, told: bool, seed: int
    ) -> Iterator[FiniteVectorEnv]:
        """Give an environment of `states`.

        Parameters
        ----------
        loggers, told
            The trainer's writers, and whether they are told of this collect.
        seed
            Seeds the episodes' own random numbers.
        """
        kwargs = {"finite_env_type": self.kind, "concurrency": self.concurrency, "seed": seed}
        if self.kind == "native":
            with vessel.make_env(states, **kwargs) as env:
                yield env
            return
        if self._kept is None:
            self._kept = vessel.make_env(self._turn, **kwargs)
        assert isinstance(self._kept, SlotVectorEnv)
        self._turn.states, self._kept.seed = states, seed
        self._kept.loggers = tuple(loggers) if told else ()
        yield self._kept

    def close(self) -> None:
        """End the workers that are kept; may be called twice."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()
