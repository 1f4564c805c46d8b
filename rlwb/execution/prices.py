"""Which price a tick has under the rules."""

from __future__ import annotations

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.rules import ExecutionRules
from rlwb.market import Sessions


def check_data(rules: ExecutionRules, sessions: Sessions) -> None:
    """Refuse rules that ask for what the data lack.

    Raises
    ------
    ConfigError
        Naming the rule and what is missing.
    """
    if rules.price_field == "quotes":
        missing = [name for name in ("bid", "ask") if name not in sessions.fields]
        if missing:
            raise ConfigError(
                f"price_field is 'quotes', but the data have no {' and no '.join(missing)}; they have "
                f"{sorted(sessions.fields)}. Choose one of these prices, and half_spread_bps for the spread."
            )
    elif rules.price_field not in sessions.fields:
        raise ConfigError(
            f"price_field is {rules.price_field!r}, which the data lack; they have {sorted(sessions.fields)}."
        )
    if not rules.halts and sessions.halted is None:
        raise ConfigError("halts off has no effect: the data do not say which bars were halted; drop it.")


def tick_prices(sessions: Sessions, rules: ExecutionRules, rows: np.ndarray | None = None) -> np.ndarray:
    """Return the price that each tick's fills are valued at before costs.

    Under ``"quotes"`` it is the mid of bid and ask, NaN where one of the two is missing: nothing is filled there.

    Parameters
    ----------
    rows
        Rows of the panel; None means all, without a copy where the data have the price.

    Returns
    -------
    float64 of shape (rows, T)
    """
    rows = slice(None) if rows is None else rows  # type: ignore[assignment]
    if rules.price_field != "quotes":
        return sessions.fields[rules.price_field][rows]
    bid, ask = (sessions.fields[name][rows] for name in ("bid", "ask"))
    return bid + (ask - bid) / 2


def half_spreads(sessions: Sessions) -> np.ndarray:
    """Return half the distance from bid to ask, at least 0, in currency, float64 of shape (S, T)."""
    return np.maximum((sessions.fields["ask"] - sessions.fields["bid"]) / 2, 0.0)
