"""A tree of prices, small enough that every path is a session: values of policies are exact, without sampling.

The price starts at the root and makes one of K equally spaced moves between each two ticks, so T ticks have
K**(T - 1) paths. A decision is made before its tick's price is known. After prices p_0, …, p_{t-1} the move m, in units
of the largest, has the probability ``(1 + strength * pull * m) / K``, with pull in [-1, 1]

- for ``reversion``: minus the price's distance from the start, in units of two largest moves, cut to [-1, 1];
- for ``momentum``: the last move; 0 before there is one.

Prices are start * (1 + move_bp * 1e-4 * level), not exponentials, so strength 0 is a martingale. Paths are then
weighted by their TWAP (`rlwb.certificate.market`), which makes the optimum of PA at strength 0 exactly 0. Without the
weights it is 0.035 bp for a buy and 0.058 bp for a sell at the default sizes: the Jensen effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rlwb.certificate.market import START, CertifiedMarket, Solution, bellman, by_twap, check_ranges, panel
from rlwb.errors import ConfigError
from rlwb.execution import Known

_MOST_PATHS = 100_000


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
    """

    moves: int = 3
    ticks: int = 8
    lots: int = 4
    signal: Literal["reversion", "momentum"] = "reversion"
    strength: float = 0.5
    move_bp: float = 20.0
    penalty: float = 0.0
    fair: bool = True

    def __post_init__(self) -> None:
        infinite = float("inf")
        check_ranges(self, moves=(2, 9), ticks=(2, infinite), lots=(1, infinite))
        check_ranges(self, strength=(0, 1), penalty=(0, infinite))
        if self.paths > _MOST_PATHS:
            raise ConfigError(f"the tree has {self.paths} paths; give fewer moves or ticks, for at most {_MOST_PATHS}.")
        if self.signal not in ("reversion", "momentum"):
            raise ConfigError(f"signal is {self.signal!r}; choose reversion or momentum.")
        if not 0 < self.move_bp * (self.ticks - 1) < 1e4:
            raise ConfigError(f"move_bp is {self.move_bp}; give a number above 0 with which no price falls to 0.")

    @property
    def paths(self) -> int:
        """Number of paths, ``moves ** (ticks - 1)``."""
        return int(self.moves ** (self.ticks - 1))


def tree_paths(settings: TreeSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all N paths: moves taken as numbers 0 … K - 1 (N, T - 1), prices (N, T), and probabilities (N,).

    Paths are in the order of their moves, so that the paths through a node are neighbours.
    """
    count, steps = settings.moves, settings.ticks - 1
    taken = np.arange(settings.paths)[:, None] // count ** np.arange(steps - 1, -1, -1) % count
    move = np.linspace(-1.0, 1.0, count)[taken]
    level = np.concatenate([np.zeros((len(move), 1)), np.cumsum(move, axis=1)], axis=1)
    if settings.signal == "reversion":
        pull = -np.clip(level[:, :-1] / 2, -1.0, 1.0)
    else:
        pull = np.concatenate([np.zeros((len(move), 1)), move[:, :-1]], axis=1)
    probability = ((1 + settings.strength * pull * move) / count).prod(axis=1)
    price = START * (1 + settings.move_bp * 1e-4 * level)
    return taken, price, by_twap(probability, price) if settings.fair else probability


class TreeSolution(Solution):
    """Backward induction over (history, lots left).

    With P(h) the probability of history h, and S_t(h) the sum over the paths through h of their probability times g_t,
    the values weighted by P(h) need no division:

        U_t(h, q) = max_a  a/L S_t(h) - (a/L)**2 penalty P(h) + sum over moves m of U_{t+1}(h m, q - a),

    U_T is 0 without a lot left and -inf with one: an order is completed. The value is U_0 at the root.

    Attributes
    ----------
    values
        Of a buy (1) and of a sell (-1), in basis points.
    """

    def __init__(self, settings: TreeSettings, price: np.ndarray, probability: np.ndarray) -> None:
        self.settings = settings
        self.values: dict[int, float] = {}
        self._plans: dict[tuple[int, int], np.ndarray] = {}
        for side in (1, -1):
            gain = probability[:, None] * side * (1 - price / price.mean(axis=1, keepdims=True)) * 1e4
            value = np.full((len(probability), settings.lots + 1), -np.inf)
            value[:, 0] = 0.0
            for tick in range(settings.ticks - 1, -1, -1):
                # The price of tick 0 is the root's, so decisions 0 and 1 are made on the same, empty history.
                nodes = settings.moves ** max(tick - 1, 0)
                ahead = value.reshape(nodes, -1, settings.lots + 1).sum(axis=1)
                now = gain[:, tick].reshape(nodes, -1).sum(axis=1)
                mass = probability.reshape(nodes, -1).sum(axis=1)
                value, self._plans[side, tick] = bellman(now, settings.penalty * mass, ahead)
            self.values[side] = float(value[0, -1])

    def lots(self, obs: Known, left: np.ndarray) -> np.ndarray:
        decided = np.zeros(len(left), dtype=np.int64)
        for (side, tick), plan in self._plans.items():
            rows = np.flatnonzero((obs.side == side) & (obs.tick == tick))
            # The paths through a node are neighbours; so many lie below it.
            below = self.settings.moves ** (self.settings.ticks - 1 - max(tick - 1, 0))
            decided[rows] = plan[obs.session[rows] // below, left[rows]]
        return decided


def tree_market(settings: TreeSettings | None = None, *, name: str = "tree") -> CertifiedMarket:
    """Return the tree as a market; session s is path s, and its instrument spells the moves taken."""
    settings = settings or TreeSettings()
    taken, price, probability = tree_paths(settings)
    solution = TreeSolution(settings, price, probability)
    return CertifiedMarket(
        name=name,
        sessions=panel(["".join(map(str, row)) for row in taken.tolist()], price),
        probability=probability,
        training=probability,
        lots=settings.lots,
        penalty=settings.penalty,
        solution=solution,
        optimum=sum(solution.values.values()) / 2,
        exact=True,
    )
