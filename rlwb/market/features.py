"""What a policy sees of the market: today so far, and yesterday; causal and normalised."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.catalogue import SETS, Block, Feature
from rlwb.market.feature_registry import check_name, find_feature
from rlwb.market.references import References, blocks
from rlwb.market.sessions import Sessions

#: Features of more bytes than this (256 MiB) are not kept in memory; their rows are computed when they are asked for.
KEPT_BYTES = 1 << 28
#: Gives the values of a column, array by array.
Source = Callable[[], Iterable[np.ndarray]]
#: Standard deviation of a normal law over the distance between its quartiles.
_NORMAL = 0.7413011092528009


@dataclass(frozen=True)
class FeatureSettings:
    """Which columns make the features.

    Parameters
    ----------
    columns
        Names of features: open, high, low, close, volume, bid, ask, bid_size, ask_size, vwap, spread, imbalance,
        volatility, volume_share, time, returns, gap, yesterday_return, yesterday_volatility, and those of Qlib,
        qlib_open, qlib_high, qlib_low, qlib_close, qlib_vwap, qlib_volume, of which ``qlib`` stands for all but vwap
        (docs/features.md defines them); across instruments market_return, market_returns, relative_return, breadth,
        and ``NAME@INSTRUMENT``, the feature NAME of one instrument, as ``returns@SPY``; and your own as
        ``file.py:Name`` or ``package.module:Name`` (`rlwb.market.feature_registry`), whose code is run when features
        are made.
    previous_day
        Whether observations also hold yesterday; if not, yesterday's block is zeros.
    clip : standard deviations
        Normalised values are cut to ``[-clip, clip]``, so an unadjusted split cannot swamp a network.
    scaling
        What values are normalised by: ``standard``, mean and standard deviation; ``robust``, median and quartiles,
        which wrong or wild values do not move; ``qlib``, for its features alone, one mean for all prices and one for
        the volume, yesterday's among them, and the standard deviation of the distances from it without their sign.
    """

    columns: tuple[str, ...] = ("open", "high", "low", "close", "volume")
    previous_day: bool = False
    clip: float = 20.0
    scaling: Literal["standard", "robust", "qlib"] = "standard"

    def __post_init__(self) -> None:
        named = (SETS.get(name, (name,)) for name in self.columns)
        object.__setattr__(self, "columns", tuple(name for names in named for name in names))
        for name in self.columns:
            check_name(name)
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ConfigError(f"feature columns {self.columns} must be one or more different names.")
        if not self.clip > 0:
            raise ConfigError(f"clip is {self.clip}; give a number above 0.")
        if self.scaling not in ("standard", "robust", "qlib"):
            raise ConfigError(f"scaling is {self.scaling!r}; write 'standard', 'robust' or 'qlib'.")
        other = [name for name in self.columns if not name.startswith("qlib_")]
        if self.scaling == "qlib" and other:
            raise ConfigError(f"scaling 'qlib' is for features of Qlib, not for {', '.join(other)}; leave it out.")


@dataclass(frozen=True, eq=False)
class Normaliser:
    """``(value - mean) / scale`` by column; NaN stays NaN.

    Parameters
    ----------
    columns
        Names of the ``C`` columns.
    mean, scale
        float64 of shape ``(C,)``: mean and standard deviation, or median and the deviation of a normal law with the
        same quartiles; the scale is 1 where a column is constant.
    """

    columns: tuple[str, ...]
    mean: np.ndarray
    scale: np.ndarray

    def __post_init__(self) -> None:
        for name in ("mean", "scale"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
            if array.shape != (len(self.columns),) or not np.isfinite(array).all():
                raise DataError(f"the normaliser's {name} {array} must be {len(self.columns)} finite numbers.")
        if not (self.scale > 0).all():
            raise DataError(f"the normaliser's scale {self.scale} must be above 0.")

    @classmethod
    def fit(cls, columns: tuple[str, ...], sources: Sequence[Source], *, robust: bool = False) -> Normaliser:
        """Take mean and standard deviation of what is present of each column; NaN is left out.

        Columns need not fit into memory: what is present of one is put into a temporary file and mapped.

        Parameters
        ----------
        sources
            One a column; a call gives all values of the column, in arrays of any shapes. Called twice when `robust`.
        robust
            Take the median, and 0.7413 times the distance between the quartiles, which a quarter of the values cannot
            move. Where the quartiles meet, it is the standard deviation still.

        Raises
        ------
        DataError
            For a column without any value.
        """
        means, scales = [], []
        for name, source in zip(columns, sources, strict=True):
            with _present(name, source) as values:
                mean = float(values.sum()) / len(values)
                np.subtract(values, mean, out=values)
                np.square(values, out=values)
                deviation = np.sqrt(float(values.sum()) / len(values))
            if robust:
                with _present(name, source) as values:
                    low, mean, high = _quartiles(values)
                deviation = (high - low) * _NORMAL if high > low else deviation
            means.append(mean)
            scales.append(deviation if deviation > 1e-12 * max(1.0, abs(mean)) else 1.0)
        return cls(tuple(columns), np.array(means), np.array(scales))

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as values that JSON can hold exactly and `from_dict` takes."""
        return {"columns": list(self.columns), "mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @property
    def fingerprint(self) -> str:
        """Hash of the columns and their statistics."""
        return hashlib.blake2b(repr(self.as_dict()).encode(), digest_size=16).hexdigest()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normaliser:
        """Rebuild a normaliser from `as_dict`."""
        return cls(tuple(values["columns"]), np.asarray(values["mean"]), np.asarray(values["scale"]))


@contextmanager
def _present(name: str, source: Source) -> Iterator[np.ndarray]:
    """Yield the finite values of a column, float64 of one axis, mapped from a file that goes afterwards."""
    with tempfile.TemporaryFile() as file:
        for values in source():
            file.write(values[np.isfinite(values)].astype(np.float64, copy=False).data)
        file.flush()
        if not file.tell():
            raise DataError(
                f"feature {name} has no value in the training part; leave it out or check the training dates."
            )
        yield np.memmap(file, np.float64, "r+").view(np.ndarray)


def _quartiles(values: np.ndarray) -> list[float]:
    """Return the quartiles, interpolated linearly; the values are put into another order."""
    places = (len(values) - 1) * np.array([0.25, 0.5, 0.75])
    below, above = np.floor(places).astype(np.int64), np.ceil(places).astype(np.int64)
    values.partition(np.unique([below, above]))
    found: list[float] = (values[below] + (values[above] - values[below]) * (places - below)).tolist()
    return found


def _fit_qlib(references: References, features: Sequence[Feature], rows: np.ndarray) -> Normaliser:
    """Return one mean and scale for all prices, and one for the volume; see `FeatureSettings`."""
    mean, scale = np.zeros(len(features)), np.ones(len(features))
    for sizes in (False, True):
        group = [place for place, one in enumerate(features) if one.name.endswith("volume") == sizes]
        both = [kind for place in group for kind in (features[place], features[place].yesterday())]
        source = partial(chain.from_iterable, [raw_blocks(references, one, rows) for one in both])
        if group:
            with _present(features[group[0]].name, source) as values:
                mean[group] = values.mean()
                scale[group] = np.abs(values - values.mean()).std() or 1.0
    return Normaliser(tuple(one.name for one in features), mean, scale)


def raw_blocks(references: References, feature: Feature, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Return the raw values of `rows`, some sessions at a time, each float64 of shape ``(n, T)``."""
    if feature.across:
        rows = rows[_by_date(references, rows)]
    return (feature(Block(references, part)) for part in blocks(rows, references.sessions.calendar.num_ticks))


def _by_date(references: References, rows: np.ndarray) -> np.ndarray:
    """Return the places of `rows` by date, so that what a feature makes of whole dates is made about once."""
    return np.argsort(references.sessions.dates[rows], kind="stable")


@dataclass(frozen=True)
class ComputedFeatures:
    """Reads like a float32 array of shape ``(S, T, C)``, of which only the rows asked for are made, block by block."""

    references: References
    features: tuple[Feature, ...]
    normaliser: Normaliser
    clip: float

    @property
    def shape(self) -> tuple[int, int, int]:
        sessions = self.references.sessions
        return len(sessions), sessions.calendar.num_ticks, len(self.features)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        rows = np.asarray(rows)
        order = None
        if any(one.across for one in self.features):
            order = _by_date(self.references, rows)
            rows = rows[order]
        out = np.empty((len(rows), *self.shape[1:]), dtype=np.float32)
        filled = 0
        for part in blocks(rows, self.shape[1]):
            block = Block(self.references, part)
            for index in range(len(self.features)):
                out[filled : filled + len(part), :, index] = np.where(
                    block.in_session, carry(self.normalised(index, block)), 0.0
                )
            filled += len(part)
        return out if order is None else out[np.argsort(order)]

    def normalised(self, index: int, block: Block) -> np.ndarray:
        """Return one feature of a block, normalised and cut, float64 of shape ``(n, T)``; NaN where it has no value."""
        value = (self.features[index](block) - self.normaliser.mean[index]) / self.normaliser.scale[index]
        np.clip(value, -self.clip, self.clip, out=value)
        return value


def carry(values: np.ndarray) -> np.ndarray:
    """Replace NaN by the last value before it in the row, else 0."""
    valid = np.isfinite(values)
    if valid.all():
        return values
    last = np.maximum.accumulate(np.where(valid, np.arange(values.shape[1]), -1), axis=1)
    carried = np.take_along_axis(values, np.maximum(last, 0), axis=1)
    return np.where(last >= 0, carried, 0.0)


def features_of(settings: FeatureSettings, fields: Iterable[str]) -> tuple[Feature, ...]:
    """Return the features that settings name, of bars with these fields; the code of one's own is run.

    Raises
    ------
    ConfigError, DataError
        Where two have one name, do not go together, or need a field that is not there.
    """
    features = tuple(map(find_feature, settings.columns))
    columns = tuple(feature.name for feature in features)
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"two of the feature columns are called {twice}; rename one of the two.")
    for feature in features:
        feature.check_fields(tuple(fields))
    if settings.previous_day and len({feature.of_yesterday is None for feature in features}) > 1:
        raise ConfigError("features of Qlib have yesterday's block of their own; name no others beside them.")
    return features


def check_normaliser(normaliser: Normaliser, columns: tuple[str, ...]) -> None:
    """Raise `DataError` unless a normaliser is for these columns."""
    if normaliser.columns != columns:
        raise DataError(
            f"the normaliser is for columns {normaliser.columns}, the features ask for {columns}; "
            "use the settings that the normaliser was fitted with."
        )


class MarketFeatures:
    """Normalised features of every session, and blocks of them as observations.

    Parameters
    ----------
    columns
        Names of the ``C`` features.
    values
        float32 of shape ``(S, T, C)``, or what computes its rows. A missing value carries the last one of the session,
        else 0; ticks after the session's end are 0.
    previous
        Row that holds yesterday, int32 of shape ``(S,)``; -1 = none.
    normaliser
        The statistics; they travel with a checkpoint.
    source
        Fingerprint of the sessions the features were made of.
    previous_day
        Whether observations hold yesterday; without it, whether any session has one.
    yesterday
        Yesterday's block of each session, like `values`, where it is not that of the session before.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        values: np.ndarray | ComputedFeatures,
        previous: np.ndarray,
        normaliser: Normaliser,
        source: str = "",
        *,
        previous_day: bool | None = None,
        yesterday: np.ndarray | ComputedFeatures | None = None,
    ) -> None:
        if len(values.shape) != 3 or values.shape[2] != len(columns) or previous.shape != values.shape[:1]:
            raise DataError(
                f"features of shape {values.shape} with {previous.shape} previous rows do not fit columns {columns}."
            )
        self.columns = tuple(columns)
        self._values = values
        if isinstance(values, np.ndarray):
            self._values = values.astype(np.float32, copy=False)
            self._values.setflags(write=False)
        self._yesterday = yesterday
        self.previous = previous.astype(np.int32, copy=False)
        self.normaliser = normaliser
        self.source = source
        self.previous_day = bool((self.previous >= 0).any()) if previous_day is None else previous_day
        #: The sessions that `build` took the normaliser's statistics from; None where the statistics were given.
        self.fit_rows: np.ndarray | None = None
        self._noted: set[int] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of sessions, ticks and columns, ``(S, T, C)``."""
        sessions, ticks, columns = self._values.shape
        return sessions, ticks, columns

    @property
    def today(self) -> np.ndarray:
        """All features, read-only float32 of shape ``(S, T, C)``; made whole each time where they are not kept."""
        if isinstance(self._values, np.ndarray):
            self._note(range(len(self)))
            return self._values
        whole = self.rows(np.arange(len(self)))
        whole.setflags(write=False)
        return whole

    @classmethod
    def build(
        cls,
        sessions: Sessions,
        settings: FeatureSettings | None = None,
        *,
        fit_rows: np.ndarray | None = None,
        normaliser: Normaliser | None = None,
    ) -> MarketFeatures:
        """Make the features of all `sessions`.

        Up to `KEPT_BYTES` they are made at once; beyond, when they are asked for, to the same bits. Either way the
        sessions are read block by block, so that they may be mapped and larger than memory; statistics take 8 bytes a
        training bar in the folder of temporary files for the time of a column.

        Parameters
        ----------
        fit_rows
            Rows (bool of shape ``(S,)`` or numbers) of the training part, from which the normaliser is taken.
        normaliser
            Statistics to use instead, for example a checkpoint's. Exactly one of the two must be given.
        """
        settings = settings or FeatureSettings()
        if (fit_rows is None) == (normaliser is None):
            raise ConfigError(
                "give fit_rows (the training rows) or a normaliser, one of them; statistics never come from test rows."
            )
        features, references = features_of(settings, sessions.fields), References(sessions)
        columns = tuple(feature.name for feature in features)
        if normaliser is not None:
            check_normaliser(normaliser, columns)
        apart = features[0].of_yesterday is not None
        rows = np.arange(len(sessions))[fit_rows]
        if normaliser is None and settings.scaling == "qlib":
            normaliser = _fit_qlib(references, features, rows)
        elif normaliser is None:
            normaliser = Normaliser.fit(
                columns,
                [partial(raw_blocks, references, feature, rows) for feature in features],
                robust=settings.scaling == "robust",
            )
        computed = ComputedFeatures(references, features, normaliser, settings.clip)
        yesterday = None
        if settings.previous_day and apart:
            yesterday = replace(computed, features=tuple(feature.yesterday() for feature in features))
        kept = 4 * np.prod(computed.shape, dtype=np.int64) <= KEPT_BYTES
        every = np.arange(len(sessions))
        previous = sessions.previous if settings.previous_day else np.full(len(sessions), -1, dtype=np.int32)
        made = cls(
            columns,
            computed[every] if kept else computed,
            previous,
            normaliser,
            sessions.fingerprint,
            previous_day=settings.previous_day,
            yesterday=yesterday[every] if kept and yesterday is not None else yesterday,
        )
        made.fit_rows = None if fit_rows is None else rows
        return made

    @contextmanager
    def noting(self) -> Iterator[set[int]]:
        """Give the set of the sessions whose features are read within the block, as numbers of their rows."""
        before, self._noted = self._noted, set()
        try:
            yield self._noted
        finally:
            self._noted = before

    def _note(self, rows: Iterable[int]) -> None:
        if self._noted is not None:
            self._noted.update(rows)

    def rows(self, sessions: np.ndarray) -> np.ndarray:
        """Return today of the sessions in these rows, whole: float32 of shape ``(N, T, C)``, a copy."""
        if self._noted is not None:
            self._note(np.arange(len(self))[sessions].ravel().tolist())
        return self._values[np.asarray(sessions)]

    def block(self, rows: np.ndarray, ticks: np.ndarray) -> np.ndarray:
        """Return today up to, not including, each tick: float32 of shape ``(N, T, C)``, 0 from the tick on."""
        block = self.rows(rows)
        block[np.arange(block.shape[1])[None, :] >= np.asarray(ticks)[:, None]] = 0.0
        return block

    def block_previous(self, rows: np.ndarray) -> np.ndarray:
        """Return yesterday: float32 of shape ``(N, T, C)``, 0 where there is none."""
        if self._yesterday is not None:
            return self._yesterday[np.asarray(rows)]
        before = self.previous[rows]
        known = before >= 0
        if known.all():
            return self.rows(before)
        block = np.zeros((len(before), *self.shape[1:]), dtype=np.float32)
        block[known] = self.rows(before[known])
        return block

    def check_matches(self, sessions: Sessions) -> None:
        """Raise `DataError` unless these are the features of exactly these sessions."""
        expected = (len(sessions), sessions.calendar.num_ticks)
        if self.shape[:2] != expected:
            raise DataError(
                f"features of {self.shape[0]} sessions with {self.shape[1]} ticks do not fit prices of "
                f"{expected[0]} sessions with {expected[1]} ticks; build the features from these sessions."
            )
        if self.source and self.source != sessions.fingerprint:
            raise DataError("the features were made from other bars or days than the prices; build them again.")
