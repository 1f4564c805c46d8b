"""Slow and independent ways to the optimum of a tree, written for reading; nothing here is shared with the library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.optimize import linprog, minimize

Path = tuple[float, ...]
Policy = Mapping[tuple[Path, int], int]


def order_value(price: Path, lots: Sequence[int], side: int, penalty: float) -> float:
    """Return PA less penalty, in basis points, of an order that trades `lots` at the ticks of one path."""
    total, twap = sum(lots), sum(price) / len(price)
    paid = sum(n * p for n, p in zip(lots, price, strict=True)) / total
    pa = (1 - paid / twap if side > 0 else paid / twap - 1) * 1e4
    return pa - penalty * sum((n / total) ** 2 for n in lots)


def policy_value(paths: Mapping[Path, float], lots: int, side: int, penalty: float, policy: Policy) -> float:
    """Return the expectation of `order_value` under a policy; what is left trades at the last tick."""
    total = 0.0
    for price, probability in paths.items():
        left, done = lots, []
        for tick in range(len(price)):
            last = tick == len(price) - 1
            done.append(left if last else policy[price[:tick], left])
            left -= done[-1]
        total += probability * order_value(price, done, side, penalty)
    return total


def all_policies(paths: Mapping[Path, float], lots: int) -> Iterator[Policy]:
    """Yield every way to map (prices of earlier ticks, lots left) to lots to trade now."""
    ticks = len(next(iter(paths)))
    # Nothing has been traded at tick 0.
    situations = [
        (history, left)
        for tick in range(ticks - 1)
        for history in sorted({path[:tick] for path in paths})
        for left in (range(1, lots + 1) if tick else [lots])
    ]
    for choice in itertools.product(*(range(left + 1) for _, left in situations)):
        yield {(h, 0): 0 for h, _ in situations} | dict(zip(situations, choice, strict=True))


def best_by_enumeration(paths: Mapping[Path, float], lots: int, side: int, penalty: float) -> float:
    """Return the value of the best of all policies."""
    return max(policy_value(paths, lots, side, penalty, policy) for policy in all_policies(paths, lots))


def best_by_linear_program(paths: Mapping[Path, float], side: int) -> float:
    """Return the greatest expected PA over all adapted schedules of any amounts.

    One variable for each history: the share to trade after it. Along each path the shares sum to 1.
    """
    ticks = len(next(iter(paths)))
    histories = [h for tick in range(ticks) for h in sorted({path[:tick] for path in paths})]
    column = {history: i for i, history in enumerate(histories)}
    gain, sums = np.zeros(len(histories)), np.zeros((len(paths), len(histories)))
    for row, (price, probability) in enumerate(paths.items()):
        twap = sum(price) / ticks
        for tick in range(ticks):
            gain[column[price[:tick]]] += probability * side * (1 - price[tick] / twap) * 1e4
            sums[row, column[price[:tick]]] += 1
    found = linprog(-gain, A_eq=sums, b_eq=np.ones(len(paths)), bounds=(0, 1), method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)


def least_cost_schedule(ticks: int, temporary: float, permanent: float, noise: float, aversion: float) -> np.ndarray:
    """Return the shares of least mean cost plus risk under linear impact, by a quadratic program over all schedules.

    The cost is written down as it falls due, tick by tick: each pays its own temporary impact and the permanent impact
    of those before; each move between two ticks acts on what is left.
    """
    hold = np.tril(np.ones((ticks, ticks)))[: ticks - 1]
    pay = temporary * np.eye(ticks) + permanent * np.tril(np.ones((ticks, ticks)), -1)

    def cost(shares: np.ndarray) -> float:
        left = 1.0 - hold @ shares
        return float(shares @ pay @ shares + aversion * noise**2 * left @ left)

    def slope(shares: np.ndarray) -> np.ndarray:
        return (pay + pay.T) @ shares - 2 * aversion * noise**2 * hold.T @ (1.0 - hold @ shares)

    whole = {"type": "eq", "fun": lambda shares: shares.sum() - 1.0, "jac": lambda shares: np.ones(ticks)}
    start = np.full(ticks, 1 / ticks)
    options = {"ftol": 1e-15, "maxiter": 1000}
    found = minimize(
        cost, start, jac=slope, bounds=[(0, 1)] * ticks, constraints=[whole], method="SLSQP", options=options
    )
    return np.asarray(found.x)
