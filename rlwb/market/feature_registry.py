"""The features there are by name, how to add one, and the trial that each of one's own must stand.

A feature sees nothing of later ticks and later sessions, and of other instruments only where it says so
(`check_causal`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from rlwb import parts
from rlwb.errors import ConfigError
from rlwb.market.calendar import Calendar
from rlwb.market.catalogue import BUILT_IN, PROFILE_DAYS, Block, Feature, of_instrument
from rlwb.market.references import References
from rlwb.market.schema import FIELDS, PRICES
from rlwb.market.sessions import Sessions
from rlwb.values import shown, suggestion

_INSTRUMENTS, _DAYS = 3, 7
_TRIALS = 12
#: Ticks without any bar at the start of the first session, which no reference of earlier sessions bridges.
_SILENT = 4

Function = Callable[[Block], np.ndarray]

_FEATURES: dict[str, Feature] = dict(BUILT_IN)
#: Features from files and modules, by the hash of the file and the attribute's name.
_LOADED: dict[tuple[str, str], Feature] = {}


def feature(
    name: str, *, needs: Sequence[str] = (), lookback: int = PROFILE_DAYS, across: bool = False
) -> Callable[[Function], Feature]:
    """Make a feature of a function, to be named in `FeatureSettings.columns`.

    Parameters
    ----------
    name
        Its name. A later feature of the same name takes the place of an earlier one; those that are built in stay.
    needs
        Names of the fields that it reads, for a refusal before it is computed.
    lookback
        How many of the instrument's earlier sessions it reads, for a service, which keeps so many.
    across
        Whether it reads other instruments, by `Block.across`. A service has no such features.

    Raises
    ------
    ConfigError
        When the name is taken by a built-in one or has an @, or the function sees the future or what else it must not
        (`check_causal`).

    Examples
    --------
    How wide today's prices have spread so far:

    >>> import numpy as np
    >>> from rlwb.market import FeatureSettings, MarketFeatures, feature, synthetic_sessions
    >>> @feature("range_so_far", needs=("high", "low"))
    ... def range_so_far(block):
    ...     high = np.fmax.accumulate(block["high"], axis=1)
    ...     low = np.fmin.accumulate(block["low"], axis=1)
    ...     return np.log(high / low)
    >>> sessions = synthetic_sessions()
    >>> settings = FeatureSettings(columns=("close", "range_so_far"))
    >>> MarketFeatures.build(sessions, settings, fit_rows=sessions.dates < np.datetime64("2023-04-01")).columns
    ('close', 'range_so_far')
    """
    if name in BUILT_IN:
        raise ConfigError(f"the feature {name} is built in; give yours another name.")
    if "@" in name:
        raise ConfigError(f"the feature {name} has an @, which stands before an instrument; give it another name.")

    def add(function: Function) -> Feature:
        made = Feature(name, tuple(needs), function, lookback=lookback, across=across)
        check_causal(made)
        _FEATURES[name] = made
        return made

    return add


def feature_names() -> tuple[str, ...]:
    """Return the names of all features that need no path, those that are built in first."""
    return tuple(_FEATURES)


def check_name(name: str) -> None:
    """Raise `ConfigError`, with the names nearest to it, unless `name` can be a feature's; no code is run."""
    if name in _FEATURES or ":" in str(name) or name in parts.names("feature"):
        return
    base, at, instrument = str(name).partition("@")
    if at and instrument and "@" not in instrument:
        check_name(base)
        return
    hint = suggestion(base, _FEATURES)
    raise ConfigError(f"there is no feature {shown(name)}; {hint} Your own is file.py:Name or package.module:Name.")


def find_feature(name: str) -> Feature:
    """Return the feature of that name; the code of one's own is run.

    Parameters
    ----------
    name
        A built-in, one made by `feature` in this process, an entry point of the group ``rlwb.feature``,
        ``file.py:Name`` or ``package.module:Name``; `Name` is a function of a `Block`, or what `feature` made of one.
        ``NAME@INSTRUMENT`` is the feature NAME, of those without a path, of another instrument.

    Raises
    ------
    ConfigError
        When there is none, its code fails, or it sees the future; one sentence with file and line.
    """
    check_name(name)
    if name in _FEATURES:
        return _FEATURES[name]
    base, _, instrument = name.partition("@")
    if instrument and ":" not in name:
        return of_instrument(find_feature(base), instrument)
    code = parts.find("feature", name)
    key = (code.fingerprint(), code.attribute)
    if key not in _LOADED:
        found = code.load()
        if not callable(found):
            raise ConfigError(f"{name} is no function of a block of sessions; see docs/features.md.")
        if not isinstance(found, Feature):
            found = Feature(code.attribute, (), found)
            check_causal(found)
        _LOADED[key] = found
    return _LOADED[key]


def check_causal(feature: Feature, *, trials: int = _TRIALS, seed: int = 0) -> None:
    """Raise `ConfigError` when a feature depends on what it must not know.

    On a small random market with gaps, all bars of all instruments from a random tick of a random day on are changed,
    appear or go missing; every value before must stay as it was, to the last bit. So must the values of sessions that
    are computed alone instead of together, and unless the feature is `Feature.across` instruments, those of an
    instrument when all bars of the others change.
    """
    rng = np.random.default_rng(seed)
    market = _market()
    rows, ticks = np.arange(len(market)), market.calendar.num_ticks
    values = feature(Block(References(market), rows))
    alone = np.concatenate([feature(Block(References(market), rows[row : row + 1])) for row in rows])
    if not np.array_equal(values, alone, equal_nan=True):
        raise ConfigError(
            f"feature {feature.name} of a session depends on which others are computed with it; let each row of the "
            "block speak for itself, and take other instruments by block.across."
        )

    def differ(changed: np.ndarray, where: np.ndarray) -> np.ndarray:
        after = feature(Block(References(_changed(market, changed, rng)), rows))
        return where & ~((values == after) | (np.isnan(values) & np.isnan(after)))

    for code in range(0 if feature.across else _INSTRUMENTS):
        own = np.broadcast_to((rows // _DAYS == code)[:, None], values.shape)
        if differ(~own, own).any():
            raise ConfigError(
                f"feature {feature.name} reads other instruments than its own; say so by @feature(…, across=True)."
            )
    cuts = zip(rng.integers(_DAYS, size=trials), rng.integers(ticks, size=trials), strict=True)
    number = (rows % _DAYS)[:, None] * ticks + np.arange(ticks)[None, :]
    for day, tick in ((0, _SILENT - 1), *cuts):
        future = number >= day * ticks + tick
        seen = differ(future, ~future)
        if seen.any():
            later = int((day * ticks + tick - number[seen]).min())
            raise ConfigError(
                f"feature {feature.name} sees the future: changing bars {later} ticks later changes it; use the "
                "columns up to its own tick, and earlier sessions, alone."
            )


@cache
def _market() -> Sessions:
    """Random bars with every field, of which a tenth is missing, on a short day with a break."""
    calendar = Calendar(segments=(("10:00", "10:24"), ("11:00", "11:24")), infer_early_close_minutes=0)
    rng = np.random.default_rng(0)
    count = _INSTRUMENTS * _DAYS
    dates = np.datetime64("2024-01-08") + np.arange(_DAYS)
    names = np.repeat(["A", "B", "C"], _DAYS)
    panel = (calendar, names, np.tile(dates, _INSTRUMENTS), np.full(count, calendar.num_ticks))
    fields = {name: _draw(name, (count, calendar.num_ticks), rng) for name in FIELDS}
    for values in fields.values():
        values[0, :_SILENT] = np.nan
    halted = rng.random((count, calendar.num_ticks)) < 0.1
    return Sessions(*panel, fields, halted=halted, factor=rng.uniform(0.5, 2.0, count))


def _changed(market: Sessions, future: np.ndarray, rng: np.random.Generator) -> Sessions:
    fields = {name: np.where(future, _draw(name, future.shape, rng), old) for name, old in market.fields.items()}
    assert market.factor is not None
    factor = np.where(future[:, 0], rng.uniform(0.5, 2.0, len(market)), market.factor)
    return replace(market, fields=fields, factor=factor)


def _draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    values = rng.uniform(5.0, 50.0, shape) if name in PRICES else rng.integers(0, 100, shape).astype(np.float64)
    return np.where(rng.random(shape) < 0.1, np.nan, values)
