"""What a policy sees of the market: today so far, and yesterday; causal and normalised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.market.normaliser import Normaliser
from rlwb.market.schema import PRICES, SIZES
from rlwb.market.sessions import Sessions

SPREAD = "spread"
_ANCHORS = ("open", "close", "vwap", "bid", "ask", "high", "low")


@dataclass(frozen=True)
class FeatureSettings:
    """Which columns make the features.

    Parameters
    ----------
    columns
        Names of fields of `Sessions`, and ``"spread"`` (log of ask over bid).
    previous_day
        Whether observations also hold yesterday; if not, yesterday's block is zeros.
    clip
        Normalised values are cut to ``[-clip, clip]``, so an unadjusted split cannot swamp a network.
    """

    columns: tuple[str, ...] = ("open", "high", "low", "close", "volume")
    previous_day: bool = True
    clip: float = 20.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(self.columns))
        known = (*PRICES, *SIZES, SPREAD)
        unknown = [name for name in self.columns if name not in known]
        if unknown or not self.columns or len(set(self.columns)) != len(self.columns):
            raise ConfigError(f"feature columns {self.columns} must be different names out of {', '.join(known)}.")
        if not self.clip > 0:
            raise ConfigError(f"clip is {self.clip}; give a number above 0.")


def raw_column(sessions: Sessions, name: str) -> np.ndarray:
    """Return one feature before normalisation, float64 of shape ``(S, T)``, NaN where the bar has no value.

    With ``p`` a price and ``v`` a volume or size at tick t of a session:

    - prices: ``log(p[t] / reference)``, the reference being the last valid close of the instrument's earlier
      sessions, or, in a first session, the first valid price of the session itself;
    - volume and sizes: ``log1p(v[t] / reference)``, the reference being the mean tick volume of the instrument's
      last earlier session that traded, or, where there is none, the session's own mean volume up to and including t;
    - spread: ``log(ask[t] / bid[t])``.

    A value at tick t depends on ticks up to t of its session and on earlier sessions, on nothing else.
    """
    fields = sessions.fields
    missing = {"bid", "ask"} - fields.keys() if name == SPREAD else {name} - fields.keys()
    if missing:
        raise DataError(
            f"feature {name} needs {', '.join(sorted(missing))}, which these bars lack; they have {', '.join(fields)}."
        )
    if name == SPREAD:
        return np.log(fields["ask"]) - np.log(fields["bid"])
    if name in PRICES:
        return np.log(fields[name]) - np.log(_price_reference(sessions))[:, None]
    volume = fields["volume"]
    with np.errstate(invalid="ignore", divide="ignore"):
        earlier = _earlier(sessions, _positive(_row_mean(volume)))
        own = np.nancumsum(volume, axis=1) / np.cumsum(np.isfinite(volume), axis=1)
        reference = np.where(np.isfinite(earlier)[:, None], earlier[:, None], _positive(own))
        value = np.log1p(fields[name] / reference)
    return np.where(fields[name] == 0, 0.0, value)


class MarketFeatures:
    """Normalised features of every session, and blocks of them as observations.

    Parameters
    ----------
    columns
        Names of the ``C`` features.
    today
        float32 of shape ``(S, T, C)``. A missing value carries the last one of the session, else 0; ticks after the
        session's end are 0.
    previous
        Row that holds yesterday, int32 of shape ``(S,)``; -1 = none.
    normaliser
        The statistics; they travel with a checkpoint.
    source
        Fingerprint of the sessions the features were made of.
    """

    def __init__(
        self,
        columns: tuple[str, ...],
        today: np.ndarray,
        previous: np.ndarray,
        normaliser: Normaliser,
        source: str = "",
    ) -> None:
        if today.ndim != 3 or today.shape[2] != len(columns) or previous.shape != today.shape[:1]:
            raise DataError(
                f"features of shape {today.shape} with {previous.shape} previous rows do not fit columns {columns}."
            )
        self.columns = tuple(columns)
        self.today = today.astype(np.float32, copy=False)
        self.today.setflags(write=False)
        self.previous = previous.astype(np.int32, copy=False)
        self.normaliser = normaliser
        self.source = source

    def __len__(self) -> int:
        return len(self.today)

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
        if normaliser is not None and normaliser.columns != settings.columns:
            raise DataError(
                f"the normaliser is for columns {normaliser.columns}, the features ask for {settings.columns}; "
                "use the settings that the normaliser was fitted with."
            )
        raw = [raw_column(sessions, name) for name in settings.columns]
        if normaliser is None:
            normaliser = Normaliser.from_columns(settings.columns, [column[fit_rows] for column in raw])
        today = np.zeros((len(sessions), sessions.calendar.num_ticks, len(raw)), dtype=np.float32)
        for index, column in enumerate(raw):
            value = (column - normaliser.mean[index]) / normaliser.scale[index]
            value = _carry(np.clip(value, -settings.clip, settings.clip))
            today[:, :, index] = np.where(sessions.in_session, value, 0.0)
        previous = sessions.previous if settings.previous_day else np.full(len(sessions), -1, dtype=np.int32)
        return cls(settings.columns, today, previous, normaliser, sessions.fingerprint)

    def block(self, rows: np.ndarray, ticks: np.ndarray) -> np.ndarray:
        """Return today up to, not including, each tick: float32 of shape ``(N, T, C)``, 0 from the tick on."""
        block = self.today[rows]
        block[np.arange(block.shape[1])[None, :] >= np.asarray(ticks)[:, None]] = 0.0
        return block

    def block_previous(self, rows: np.ndarray) -> np.ndarray:
        """Return yesterday: float32 of shape ``(N, T, C)``, 0 where there is none."""
        before = self.previous[rows]
        block = self.today[before]
        block[before < 0] = 0.0
        return block

    def check_matches(self, sessions: Sessions) -> None:
        """Raise `DataError` unless these are the features of exactly these sessions."""
        expected = (len(sessions), sessions.calendar.num_ticks)
        if self.today.shape[:2] != expected:
            raise DataError(
                f"features of {self.today.shape[0]} sessions with {self.today.shape[1]} ticks do not fit prices of "
                f"{expected[0]} sessions with {expected[1]} ticks; build the features from these sessions."
            )
        if self.source and self.source != sessions.fingerprint:
            raise DataError("the features were made from other bars or days than the prices; build them again.")


def _price_reference(sessions: Sessions) -> np.ndarray:
    """Return the reference price of each session, ``(S,)``; NaN when it has no price at all."""
    fields = sessions.fields
    anchors = np.full(fields["close"].shape, np.nan)
    for name in _ANCHORS:
        if name in fields:
            anchors = np.where(np.isfinite(anchors), anchors, fields[name])
    first = np.argmax(np.isfinite(anchors), axis=1)
    own = anchors[np.arange(len(anchors)), first]
    earlier = previous_close(sessions)
    return np.where(np.isfinite(earlier), earlier, own)


def previous_close(sessions: Sessions) -> np.ndarray:
    """Return the last valid close before each session, float64 of shape ``(S,)``; NaN where there is none."""
    return _earlier(sessions, last_close(sessions))


def last_close(sessions: Sessions) -> np.ndarray:
    """Return each session's last valid close, float64 of shape ``(S,)``; NaN where it has none."""
    close = sessions.fields["close"]
    valid = np.isfinite(close) & (close > 0)
    last = close.shape[1] - 1 - np.argmax(valid[:, ::-1], axis=1)
    return np.where(valid.any(axis=1), close[np.arange(len(close)), last], np.nan)


def _earlier(sessions: Sessions, values: np.ndarray) -> np.ndarray:
    """Return for each session the last finite one of `values` (S,) among the instrument's earlier sessions."""
    rows = np.arange(len(values))
    first = np.maximum.accumulate(np.where(sessions.previous < 0, rows, 0))
    known = np.maximum.accumulate(np.where(np.isfinite(values), rows, -1))
    before = np.concatenate([[-1], known[:-1]]).astype(np.int64) if len(rows) else rows
    return np.where(before >= first, values[before], np.nan)


def _row_mean(values: np.ndarray) -> np.ndarray:
    return np.nansum(values, axis=1) / np.isfinite(values).sum(axis=1)


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)


def _carry(values: np.ndarray) -> np.ndarray:
    """Replace NaN by the last value before it in the row, else 0."""
    valid = np.isfinite(values)
    last = np.maximum.accumulate(np.where(valid, np.arange(values.shape[1]), -1), axis=1)
    carried = np.take_along_axis(values, np.maximum(last, 0), axis=1)
    return np.where(last >= 0, carried, 0.0)
