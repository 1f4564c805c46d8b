"""The features there are by name, and how to add one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from rlwb.errors import ConfigError
from rlwb.market.block import Block, Piece
from rlwb.market.catalogue import BUILT_IN
from rlwb.market.causality import check_causal
from rlwb.parts import load

_PIECES: dict[str, Piece] = dict(BUILT_IN)

Function = Callable[[Block], np.ndarray]


def feature(name: str, *, needs: Sequence[str]) -> Callable[[Function], Piece]:
    """Add a feature of your own, to be named in `FeatureSettings.columns`.

    Where the function stands in a file or module, ``file.py:function`` and ``package.module:function`` name it too.

    Parameters
    ----------
    name
        Its name. A later feature of the same name takes the place of an earlier one; those that are built in stay.
    needs
        Names of the fields that it reads.

    Raises
    ------
    ConfigError
        When the name is taken by a built-in one, or the function fails the trial of `check_causal`.

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

    def add(function: Function) -> Piece:
        piece = Piece(name, tuple(needs), function)
        check_causal(piece)
        _PIECES[name] = piece
        return piece

    return add


def feature_names() -> tuple[str, ...]:
    """Return the names of all features there are, those that are built in first."""
    return tuple(_PIECES)


def find_piece(name: str) -> Piece:
    """Return the feature of that name; an unknown one is a `ConfigError` with the names nearest to it.

    A name with a colon is loaded as a part is (`rlwb.parts`), which runs its code.
    """
    if ":" in name:
        piece = load("feature", name)
        if not isinstance(piece, Piece):
            raise ConfigError(f"{name} is no feature; put @feature(name, needs=[...]) above the function.")
        return piece
    if name not in _PIECES:
        near = difflib.get_close_matches(str(name), _PIECES, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(_PIECES)}."
        raise ConfigError(f"there is no feature {name!r}; {hint}")
    return _PIECES[name]
