"""Price limits: how they are rounded, on both sides."""

from __future__ import annotations

import pytest

from rlwb.execution import TWAP, ExecutionRules
from tests.execution.markets import order, run, sessions_of


def fills(close: float, price: float, side: str, **settings: float) -> bool:
    """Whether an order fills in a session that trades at `price` after one that closed at `close`."""
    rules = ExecutionRules(**{"price_limit": 0.1} | settings)  # type: ignore[arg-type]
    _, _, summary = run(sessions_of([[close] * 2, [price] * 2]), [order(1.0, side, day=2)], 2, TWAP, rules)
    filled = summary["filled"].iloc[0]
    assert filled in (0.0, 1.0)
    return bool(filled)


@pytest.mark.parametrize(
    ("close", "upper", "lower", "settings"),
    [
        # 11.055 and 9.045: halves go up on both sides.
        (10.05, 11.06, 9.05, {}),
        # 11.044 and 9.036, 11.066 and 9.054: to the nearest, down and up on each side.
        (10.04, 11.04, 9.04, {}),
        (10.06, 11.07, 9.05, {}),
        # 18.865 and 15.435, which in floating point are a rounding less, and still halves.
        (17.15, 18.87, 15.44, {}),
        # 11.11 and 9.09 in moves of 0.05.
        (10.10, 11.10, 9.10, {"price_tick": 0.05}),
        # 12.60 and 8.40: a limit of a fifth.
        (10.50, 12.60, 8.40, {"price_limit": 0.2}),
        # 0.022 and 0.018 would be the close itself, so both are one move away.
        (0.02, 0.03, 0.01, {}),
    ],
)
def test_a_limit_is_rounded_to_the_nearest_move_and_blocks_from_there_on(
    close: float, upper: float, lower: float, settings: dict[str, float]
) -> None:
    move = settings.get("price_tick", 0.01)
    assert not fills(close, upper, "BUY", **settings)
    assert not fills(close, upper + move, "BUY", **settings)
    assert fills(close, upper - move, "BUY", **settings)
    assert not fills(close, lower, "SELL", **settings)
    assert fills(close, lower + move, "SELL", **settings)
    # The other side trades at the limit, and beyond it.
    assert fills(close, upper, "SELL", **settings)
    assert fills(close, lower, "BUY", **settings)


def test_a_price_a_rounding_away_from_the_limit_is_at_it() -> None:
    assert not fills(10.0, 11.0 - 5e-8, "BUY")
    assert not fills(10.0, 9.0 + 5e-8, "SELL")
    assert fills(10.0, 11.0 - 1e-3, "BUY")
    assert fills(10.0, 9.0 + 1e-3, "SELL")


def test_the_first_session_has_no_limit() -> None:
    sessions = sessions_of([[1.0, 1000.0]])
    _, _, summary = run(sessions, [order(2.0), order(2.0, "SELL")], 2, TWAP, ExecutionRules(price_limit=0.1))
    assert summary["filled"].tolist() == [2.0, 2.0]
