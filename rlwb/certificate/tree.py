"""A tree of prices, small enough that every path is a session: values of policies are exact, without sampling.

The price starts at the root and makes one of K equally spaced moves between each two ticks, so T ticks have
K**(T - 1) paths. A decision is made before its tick's price is known. After prices p_0, …, p_{t-1} the move m, in units
of the largest, has the probability ``(1 + strength * pull * m) / K``, with pull in [-1, 1]

- for ``reversion``: minus the price's distance from the start, in units of two largest moves, cut to [-1, 1];
- for ``momentum``: the last move; 0 before there is one.

Prices are start * (1 + move_bp * 1e-4 * level), not exponentials, so strength 0 is a martingale. Paths are then
weighted by their TWAP (`rlwb.certificate.market`), which makes the optimum of PA at strength 0 exactly 0. Without the
weights it is 0.035 bp for a buy and 0.058 bp for a sell at the default sizes: the Jensen effect.

Without a penalty and caps the value is linear in what a tick trades, so all lots are best traded together: it is a
problem of optimal stopping, and an order of one lot has the same optimum. With `caps` a tick's volume lets no more than
some of the lots fill, and how many is known only afterwards, so an order must be spread: requests are cut to whole
lots, and what stays open at the end counts at the last price.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlwb.certificate.market import (
    LOT,
    START,
    CertifiedMarket,
    Solution,
    bellman,
    by_twap,
    check_ranges,
    panel,
)
from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, Known

_MOST_PATHS = 100_000
#: Share of a tick's volume that an order may take where there are caps.
_CAP = 0.1
#: Lots in each lot, for the optimum of policies that may trade any amount.
_FINE = 16


@dataclass(frozen=True)
class TreeSettings:
    """The shape of a tree.

    Parameters
    ----------
    moves
        Moves K between two ticks, 2 to 9; 3 are down, flat, up.
    ticks
        Ticks T of a session, each a step.
    lots
        Size of an order.
    signal
        What history says about the next move.
    strength
        How much, in [0, 1]; 0 is nothing.
    move_bp
        The largest move, in basis points of the starting price.
    penalty
        Weight of the squared shares in the objective, in basis points; 0 makes the objective PA itself.
    fair
        Whether paths are weighted by their TWAP, so that strength 0 is worth exactly 0 to everyone.
    caps
        Most lots that a tick fills, each as likely, drawn for each tick; none is no cap.
    """

    moves: int = 3
    ticks: int = 8
    lots: int = 4
    signal: Literal["reversion", "momentum"] = "reversion"
    strength: float = 0.5
    move_bp: float = 20.0
    penalty: float = 0.0
    fair: bool = True
    caps: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        infinite = float("inf")
        object.__setattr__(self, "caps", tuple(self.caps))
        if any(cap != int(cap) or cap < 0 for cap in self.caps):
            raise ConfigError(f"caps is {self.caps}; give whole numbers of lots, 0 or more.")
        check_ranges(self, moves=(2, 9), ticks=(2, infinite), lots=(1, infinite))
        check_ranges(self, strength=(0, 1), penalty=(0, infinite))
        if self.paths > _MOST_PATHS:
            raise ConfigError(f"the tree has {self.paths} paths; give fewer moves or ticks, for at most {_MOST_PATHS}.")
        if self.signal not in ("reversion", "momentum"):
            raise ConfigError(f"signal is {self.signal!r}; choose reversion or momentum.")
        if not 0 < self.move_bp * (self.ticks - 1) < 1e4:
            raise ConfigError(f"move_bp is {self.move_bp}; give a number above 0 with which no price falls to 0.")

    @property
    def outcomes(self) -> list[int]:
        """Outcomes of each tick: its cap, and from the second tick on the move before it."""
        caps = max(len(self.caps), 1)
        return [caps, *[self.moves * caps] * (self.ticks - 1)]

    @property
    def paths(self) -> int:
        """Number of paths, the product of `outcomes`."""
        return math.prod(self.outcomes)


def tree_paths(settings: TreeSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all N paths: moves taken as numbers 0 … K - 1 (N, T - 1), prices (N, T), and probabilities (N,).

    Paths are in the order of their outcomes, so that the paths through a node are neighbours.
    """
    count, caps = settings.moves, max(len(settings.caps), 1)
    taken = _digits(settings)[:, 1:] // caps
    move = np.linspace(-1.0, 1.0, count)[taken]
    level = np.concatenate([np.zeros((len(move), 1)), np.cumsum(move, axis=1)], axis=1)
    if settings.signal == "reversion":
        pull = -np.clip(level[:, :-1] / 2, -1.0, 1.0)
    else:
        pull = np.concatenate([np.zeros((len(move), 1)), move[:, :-1]], axis=1)
    probability = ((1 + settings.strength * pull * move) / count).prod(axis=1) / caps**settings.ticks
    price = START * (1 + settings.move_bp * 1e-4 * level)
    return taken, price, by_twap(probability, price) if settings.fair else probability


def path_names(outcomes: np.ndarray) -> list[str]:
    """Return the names of N paths, which spell the outcomes of their ticks, numbers of shape (N, …)."""
    digits = len(str(outcomes.max()))
    return ["".join(f"{one:0{digits}d}" for one in row) for row in outcomes.tolist()]


def tree_caps(settings: TreeSettings) -> np.ndarray:
    """Return the most lots that each tick of each path fills, int64 of shape (N, T)."""
    if not settings.caps:
        return np.full((settings.paths, settings.ticks), settings.lots)
    return np.array(settings.caps)[_digits(settings) % len(settings.caps)]


def _digits(settings: TreeSettings) -> np.ndarray:
    """Return the outcome of each tick of each path, int64 of shape (N, T)."""
    return np.stack(np.unravel_index(np.arange(settings.paths), settings.outcomes), axis=1)


class TreeSolution(Solution):
    """Backward induction over (history, lots left).

    With P(h) the probability of history h, and S_t(h) the sum over the paths through h of their probability times g_t,
    the values weighted by P(h) need no division:

        U_t(h, q) = max_a  sum over the outcomes o of tick t, with f = min(a, cap), of
                    f/L S_t(h o) - (f/L)**2 penalty P(h o) + U_{t+1}(h o, q - f).

    U_T is 0 without a lot left and -inf with one: an order is completed. Where caps can leave some open, U_T is what
    these gain at the last price, and the last tick is asked for all. The value is U_0 at the root.

    Attributes
    ----------
    values
        Of a buy (1) and of a sell (-1), in basis points.
    """

    def __init__(self, settings: TreeSettings, price: np.ndarray, probability: np.ndarray) -> None:
        self.settings = settings
        self.values: dict[int, float] = {}
        self._plans: dict[tuple[int, int], np.ndarray] = {}
        #: Paths through a node before each tick, and after the last.
        self._below = [math.prod(settings.outcomes[tick:]) for tick in range(settings.ticks + 1)]
        room, part = tree_caps(settings), np.arange(settings.lots + 1) / settings.lots
        for side in (1, -1):
            gain = probability[:, None] * side * (1 - price / price.mean(axis=1, keepdims=True)) * 1e4
            value = np.where(part > 0, -np.inf, 0.0) + np.zeros((len(probability), 1))
            if settings.caps:
                value = gain[:, -1:] * part
            for tick in range(settings.ticks - 1, -1, -1):
                after = self._below[tick + 1]
                now, mass = (each.reshape(-1, after).sum(axis=1) for each in (gain[:, tick], probability))
                value, self._plans[side, tick] = bellman(
                    now,
                    settings.penalty * mass,
                    value,
                    room[::after, tick],
                    branches=settings.outcomes[tick],
                    closing=tick == settings.ticks - 1,
                )
            self.values[side] = float(value[0, -1])

    @property
    def value(self) -> float:
        """Of an order that is a buy or a sell, each as likely, in basis points."""
        return sum(self.values.values()) / 2

    def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
        decided = np.zeros(len(left), dtype=np.int64)
        for (side, tick), plan in self._plans.items():
            rows = np.flatnonzero((obs.side == side) & (obs.tick == tick))
            decided[rows] = plan[obs.session[rows] // self._below[tick], left[rows]]
        return decided


def tree_market(settings: TreeSettings | None = None, *, name: str = "tree") -> CertifiedMarket:
    """Return the tree as a market; session s is path s, and its instrument spells the outcomes of the ticks."""
    settings = settings or TreeSettings()
    taken, price, probability = tree_paths(settings)
    solution = TreeSolution(settings, price, probability)
    spelt, volume, rules = taken, None, ExecutionRules()
    if settings.caps:
        spelt, volume = _digits(settings), (tree_caps(settings) + 0.5) * LOT / _CAP
        rules = ExecutionRules(volume_limit=_CAP, lot_size=LOT, unfilled_at="end")

    def of_any_amount() -> float:
        if settings.caps:
            return math.nan
        return TreeSolution(replace(settings, lots=_FINE * settings.lots), price, probability).value

    stopping = not settings.penalty and not settings.caps
    return CertifiedMarket(
        name=name,
        kind="tree",
        settings=settings,
        sessions=panel(path_names(spelt), price, volume),
        probability=probability,
        training=probability,
        amount=LOT * settings.lots,
        solution=solution,
        optimum=solution.value,
        penalty=settings.penalty,
        actions=settings.lots,
        rules=rules,
        of_any_amount=None if stopping else of_any_amount,
        stopping=stopping,
    )
