"""A signal that fades, linear temporary impact and an order to finish: a linear-quadratic problem in closed form.

N. Garleanu and L. H. Pedersen, "Dynamic trading with predictable returns and transaction costs", Journal of Finance 68
(2013), sections I and II, with an order to be filled by the last tick in place of a portfolio that is held for ever,
and no penalty for risk. The price is that of `rlwb.certificate.tree` with the signal ``momentum``: of the last move
f_{t-1}, in units of the largest, the next one keeps the share ``rho = strength * E[m**2]`` on average, so that the
signal is an autoregression that bars show. In basis points of the starting price, with w_t the share of the order that
tick t trades, q_t what is left before it, and g the largest move times rho, a buy (a sell is its mirror image) is worth

    E[ -sum_t w_t x_t - c sum_t w_t**2 ] = E[ -sum_{t>0} q_t g f_{t-1} - c sum_t w_t**2 ].

The value ahead is ``-A_t q**2 - B_t q f + C_t f**2 + D_t`` with A = c, B = g, C = D = 0 at the last tick, and before
it, with A', B', … those of the next tick,

    w = (A' q + B' rho f / 2) / (A' + c),       A = A' c / (A' + c),       B = g + B' rho c / (A' + c),
    C = (B' rho)**2 / (4 (A' + c)),             D = C' E[m**2] + D'.

An order trades one way only; the settings are such that w lies in [0, q] on every path, so that this binds nowhere.

A tick's volume is in proportion to its price, so that impact in currency is linear in shares, as in the paper, whatever
the price; with sessions weighted by their TWAP (`rlwb.certificate.market`) the value that the engine pays is then the
one above exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlwb.certificate.market import START, VOLUME, CertifiedMarket, check_ranges, panel
from rlwb.certificate.tree import TreeSettings, path_names, tree_paths
from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, Known

#: Rounding beyond which a share counts as below 0 or above what is left.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class GarleanuPedersenSettings:
    """The signal and the cost of trading.

    Parameters
    ----------
    moves, ticks, strength, move_bp
        Of the tree of prices, see `TreeSettings`.
    temporary_bp
        Impact c on an order that trades all in one tick, in basis points.
    actions
        Equal parts of the amount for a learner that chooses from a list.
    """

    moves: int = 2
    ticks: int = 8
    strength: float = 0.8
    move_bp: float = 20.0
    temporary_bp: float = 120.0
    actions: int = 48

    def __post_init__(self) -> None:
        infinite = float("inf")
        check_ranges(self, temporary_bp=(0, 1e4), actions=(1, infinite))
        _ = self.tree

    @property
    def tree(self) -> TreeSettings:
        """The tree of prices."""
        return TreeSettings(self.moves, self.ticks, 1, "momentum", self.strength, self.move_bp)

    @property
    def square(self) -> float:
        """Mean of a squared move, in units of the largest."""
        return float((np.linspace(-1.0, 1.0, self.moves) ** 2).mean())

    @property
    def kept(self) -> float:
        """Share rho of the last move that the next one keeps on average."""
        return self.strength * self.square


class GarleanuPedersenSolution:
    """The feedback rule ``w = held q + pressed f``, by the recursion.

    Attributes
    ----------
    held, pressed
        Its coefficients by tick, float64 of shape (T,).
    value
        Of an order, in basis points.
    """

    def __init__(self, settings: GarleanuPedersenSettings) -> None:
        self.settings = settings
        c, rho, gain = settings.temporary_bp, settings.kept, settings.move_bp * settings.kept
        a, b, of_signal, rest = c, gain, 0.0, 0.0
        self.held, self.pressed = np.ones(settings.ticks), np.zeros(settings.ticks)
        for tick in range(settings.ticks - 2, -1, -1):
            self.held[tick], self.pressed[tick] = a / (a + c), b * rho / (2 * (a + c))
            # The first tick has no move before it, so f is 0 before the second.
            rest += of_signal * settings.square if tick > 0 else 0.0
            of_signal = (b * rho) ** 2 / (4 * (a + c))
            a, b = a * c / (a + c), gain + b * rho * c / (a + c)
        self.value = rest - a

    def shares(self, signal: np.ndarray) -> np.ndarray:
        """Return what the rule trades, shares of the amount, where f is `signal` before each tick; both (N, T)."""
        left, found = np.ones(len(signal)), np.empty(signal.shape)
        for tick in range(self.settings.ticks):
            found[:, tick] = self.held[tick] * left + self.pressed[tick] * signal[:, tick]
            left = left - found[:, tick]
        return found

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        seen, tick, row = obs.bars(), obs.tick, np.arange(len(obs))
        signal = np.zeros(len(obs))
        if seen.shape[1] > 1:
            move = seen[row, np.maximum(tick - 1, 1)] - seen[row, np.maximum(tick - 2, 0)]
            signal = np.where(tick > 1, obs.side * move / START * 1e4 / self.settings.move_bp, 0.0)
        return self.held[tick] * obs.position + self.pressed[tick] * signal * obs.amount


def garleanu_pedersen_market(
    settings: GarleanuPedersenSettings | None = None, *, name: str = "garleanu-pedersen"
) -> CertifiedMarket:
    """Return the market with the fading signal; session s is path s of its tree.

    Raises
    ------
    ConfigError
        Where the rule would sell some of a buy back.
    """
    settings = settings or GarleanuPedersenSettings()
    solution = GarleanuPedersenSolution(settings)
    taken, price, probability = tree_paths(settings.tree)
    move = np.linspace(-1.0, 1.0, settings.moves)[taken]
    signal = np.concatenate([np.zeros((len(move), 2)), move[:, :-1]], axis=1)
    shares = solution.shares(signal)
    if shares.min() < -_ROUNDING or shares.cumsum(axis=1)[:, :-1].max() > 1 + _ROUNDING:
        raise ConfigError(
            f"with temporary_bp {settings.temporary_bp} the best rule trades back and forth, which an order cannot; "
            "raise it, or lower strength or move_bp."
        )
    return CertifiedMarket(
        name=name,
        kind="garleanu_pedersen",
        settings=settings,
        sessions=panel(path_names(taken), price, VOLUME * price / START),
        probability=probability,
        training=probability,
        amount=VOLUME,
        solution=solution,
        optimum=solution.value,
        rules=ExecutionRules(volume_limit=1.0, temporary_impact_bps=settings.temporary_bp),
        actions=settings.actions,
    )
