"""Features computed for the rows that are asked, from the panel and a few numbers a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rlwb.market.block import Block, Feature
from rlwb.market.normaliser import Normaliser
from rlwb.market.references import References, blocks
from rlwb.market.sessions import Sessions


def raw_blocks(references: References, feature: Feature, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Return the raw values of `rows`, some sessions at a time, each float64 of shape ``(n, T)``."""
    return (feature(Block(references, part)) for part in blocks(rows, references.sessions.calendar.num_ticks))


class LazyFeatures:
    """Reads like a float32 array of shape ``(S, T, C)``, of which only the rows asked for are made.

    Beside what it returns it takes 16 bytes a session for the references, and at most some 64 MiB at a time.

    Parameters
    ----------
    references
        The panel, with its numbers a session.
    features
        The C features.
    normaliser
        Their statistics.
    clip
        See `FeatureSettings`.
    """

    def __init__(
        self, references: References, features: Sequence[Feature], normaliser: Normaliser, clip: float
    ) -> None:
        self.references = references
        self.features = tuple(features)
        self.normaliser = normaliser
        self.clip = clip

    @property
    def sessions(self) -> Sessions:
        """The panel."""
        return self.references.sessions

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(S, T, C)``."""
        return len(self.sessions), self.sessions.calendar.num_ticks, len(self.features)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the normalised values of `rows`, float32 of shape ``(n, T, C)``."""
        rows = np.asarray(rows)
        out = np.empty((len(rows), *self.shape[1:]), dtype=np.float32)
        filled = 0
        for part in blocks(rows, self.shape[1]):
            block = Block(self.references, part)
            for index, feature in enumerate(self.features):
                out[filled : filled + len(part), :, index] = self._column(index, feature(block), block.in_session)
            filled += len(part)
        return out

    def _column(self, index: int, raw: np.ndarray, in_session: np.ndarray) -> np.ndarray:
        value = (raw - self.normaliser.mean[index]) / self.normaliser.scale[index]
        np.clip(value, -self.clip, self.clip, out=value)
        return np.where(in_session, _carry(value), 0.0)


def _carry(values: np.ndarray) -> np.ndarray:
    """Replace NaN by the last value before it in the row, else 0."""
    valid = np.isfinite(values)
    if valid.all():
        return values
    last = np.maximum.accumulate(np.where(valid, np.arange(values.shape[1]), -1), axis=1)
    carried = np.take_along_axis(values, np.maximum(last, 0), axis=1)
    return np.where(last >= 0, carried, 0.0)
