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


Capped = tuple[Path, tuple[int, ...]]


def best_with_caps(paths: Mapping[Capped, float], lots: int, side: int, penalty: float) -> float:
    """Return the value of the best of all policies where a tick fills no more lots than its cap, unknown before.

    A policy maps (prices and caps of earlier ticks, lots left) to lots to ask for; the last tick is asked for all that
    is left, and what then stays open counts at its price.
    """
    ticks = len(next(iter(paths))[0])
    seen = [sorted({(price[:t], caps[:t]) for price, caps in paths}) for t in range(ticks - 1)]
    situations = [
        (history, left) for t, histories in enumerate(seen) for history in histories for left in range(1, lots + 1)
        if t or left == lots
    ]  # fmt: skip
    best = -np.inf
    for choice in itertools.product(*(range(left + 1) for _, left in situations)):
        policy, total = dict(zip(situations, choice, strict=True)), 0.0
        for (price, caps), probability in paths.items():
            left, filled = lots, []
            for t in range(ticks):
                asked = left if t == ticks - 1 or not left else policy[(price[:t], caps[:t]), left]
                filled.append(min(asked, caps[t]))
                left -= filled[-1]
            twap = sum(price) / ticks
            paid = (sum(n * p for n, p in zip(filled, price, strict=True)) + left * price[-1]) / lots
            squares = sum((n / lots) ** 2 for n in filled)
            total += probability * (side * (1 - paid / twap) * 1e4 - penalty * squares)
        best = max(best, total)
    return best


def best_of_any_amounts(paths: Mapping[Path, float], side: int, penalty: float) -> float:
    """Return the greatest expected PA less penalty over all adapted schedules of any amounts, by quadratic program."""
    ticks = len(next(iter(paths)))
    histories = [h for tick in range(ticks) for h in sorted({path[:tick] for path in paths})]
    column = {history: i for i, history in enumerate(histories)}
    gain, mass, sums = np.zeros(len(histories)), np.zeros(len(histories)), np.zeros((len(paths), len(histories)))
    for row, (price, probability) in enumerate(paths.items()):
        for tick in range(ticks):
            at = column[price[:tick]]
            gain[at] += probability * side * (1 - price[tick] / (sum(price) / ticks)) * 1e4
            mass[at] += probability
            sums[row, at] += 1

    sums = np.unique(sums, axis=0)  # paths that part at the last tick sum the same
    whole = {"type": "eq", "fun": lambda w: sums @ w - 1.0, "jac": lambda w: sums}
    found = minimize(
        lambda w: -gain @ w + penalty * mass @ w**2,
        np.full(len(histories), 1 / ticks),
        jac=lambda w: -gain + 2 * penalty * mass * w,
        bounds=[(0, 1)] * len(histories),
        constraints=[whole],
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    return float(-found.fun)


def least_transient_schedule(ticks: int, transient: float, half_life: float) -> tuple[np.ndarray, float]:
    """Return the shares of least cost under transient impact, and the cost, by a quadratic program over all schedules.

    The cost is written down as it falls due: the move of a fill halves every `half_life` ticks, and a fill pays the
    moves before it and half of its own.
    """
    pay = np.zeros((ticks, ticks))
    for now in range(ticks):
        pay[now, now] = transient / 2
        for before in range(now):
            pay[now, before] = transient * 2 ** (-(now - before) / half_life)
    found = minimize(
        lambda w: float(w @ pay @ w),
        np.full(ticks, 1 / ticks),
        jac=lambda w: (pay + pay.T) @ w,
        bounds=[(0, 1)] * ticks,
        constraints=[{"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: np.ones(ticks)}],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return np.asarray(found.x), float(found.fun)


def best_against_signal(ticks: int, strength: float, move: float, cost: float, parts: int) -> float:
    """Return the value of a buy in equal parts where a move of one size is repeated with (1 + strength) / 2, by a grid.

    The state is (level of the price, last move, parts left); the price enters as it is paid, tick by tick.
    """

    def value(tick: int, level: int, last: int, memo: dict[tuple[int, int, int], np.ndarray]) -> np.ndarray:
        key = (tick, level, last)
        if key not in memo:
            chances = {0: 1.0} if tick == 0 else {m: (1 + strength * last * m) / 2 for m in (-1, 1)}
            mean = sum(chance * (level + m) for m, chance in chances.items())
            share = np.arange(parts + 1) / parts
            now = -mean * move * share - cost * share**2
            if tick == ticks - 1:
                memo[key] = now
            else:
                ahead = sum(chance * value(tick + 1, level + m, m, memo) for m, chance in chances.items())
                memo[key] = np.array([(now[: q + 1] + ahead[q::-1]).max() for q in range(parts + 1)])
        return memo[key]

    return float(value(0, 0, 0, {})[-1])
