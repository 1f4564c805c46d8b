"""The features there are by name, and how to add one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from rlwb import parts
from rlwb.errors import ConfigError
from rlwb.market.block import Block, Feature
from rlwb.market.catalogue import BUILT_IN
from rlwb.market.causality import check_causal

Function = Callable[[Block], np.ndarray]

_FEATURES: dict[str, Feature] = dict(BUILT_IN)
#: Features from files and modules, by the hash of the file and the attribute's name.
_LOADED: dict[tuple[str, str], Feature] = {}


def feature(name: str, *, needs: Sequence[str] = ()) -> Callable[[Function], Feature]:
    """Make a feature of a function, to be named in `FeatureSettings.columns`.

    Parameters
    ----------
    name
        Its name. A later feature of the same name takes the place of an earlier one; those that are built in stay.
    needs
        Names of the fields that it reads, for a refusal before it is computed.

    Raises
    ------
    ConfigError
        When the name is taken by a built-in one, or the function sees the future (`check_causal`).

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

    def add(function: Function) -> Feature:
        made = Feature(name, tuple(needs), function)
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
    near = difflib.get_close_matches(str(name), _FEATURES, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_FEATURES)}."
    raise ConfigError(f"there is no feature {name!r}; {hint} Your own is file.py:Name or package.module:Name.")


def find_feature(name: str) -> Feature:
    """Return the feature of that name; the code of one's own is run.

    Parameters
    ----------
    name
        A built-in, one made by `feature` in this process, an entry point of the group ``rlwb.feature``,
        ``file.py:Name`` or ``package.module:Name``; `Name` is a function of a `Block`, or what `feature` made of one.

    Raises
    ------
    ConfigError
        When there is none, its code fails, or it sees the future; one sentence with file and line.
    """
    check_name(name)
    if name in _FEATURES:
        return _FEATURES[name]
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
