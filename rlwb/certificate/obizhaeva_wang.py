"""Transient impact on a price without a signal: the best schedule is known, and spreading out is right.

A. Obizhaeva and J. Wang, "Optimal trading strategy and supply/demand dynamics", Journal of Financial Markets 16 (2013),
in discrete time as A. Alfonsi, A. Fruth and A. Schied solve it ("Optimal execution strategies in limit order books with
general shape functions", Quantitative Finance 10, 2010, section 4). The rules move the price by `transient_bp` for a
fill of the whole amount, of which the share a is left a tick later; a fill pays what is left of the earlier moves and
half of its own. An order that trades the share w_t in tick t costs, in basis points,

    transient_bp / 2 * sum_s sum_t w_s a**|s - t| w_t,

which is least, at ``transient_bp / 2 * (1 + a) w_0``, for blocks at both ends and an even rate between:

    w_0 = w_{T-1} = 1 / (2 + (T - 2) (1 - a)),    w_t = (1 - a) w_0.

The price is a martingale of the tree (`rlwb.certificate.tree`, strength 0), so that no policy that reacts to it does
better: what tick t pays is known before its price is, so each price stands in the mean cost as the last one does, and
with the last price as the weight of paths the cost of every path is the form above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlwb.certificate.market import VOLUME, CertifiedMarket, check_ranges, panel
from rlwb.certificate.tree import TreeSettings, path_names, tree_paths
from rlwb.errors import ConfigError
from rlwb.execution import ExecutionRules, Known


@dataclass(frozen=True)
class ObizhaevaWangSettings:
    """The impact and the price.

    Parameters
    ----------
    ticks
        Ticks T of a session of one minute each, each a step.
    transient_bp
        How far an order moves the price that trades all in one tick, in basis points.
    half_life
        Minutes in which half of a move is gone.
    move_bp
        Size of a tick's move of the price up or down, in basis points of the starting price.
    actions
        Equal parts of the amount for a learner that chooses from a list.
    """

    ticks: int = 12
    transient_bp: float = 120.0
    half_life: float = 4.0
    move_bp: float = 10.0
    actions: int = 24

    def __post_init__(self) -> None:
        infinite = float("inf")
        check_ranges(self, transient_bp=(0, 1e4), actions=(1, infinite))
        if not 0 < self.half_life < infinite:
            raise ConfigError(f"half_life is {self.half_life}; give a number of minutes above 0.")
        _ = self.tree

    @property
    def tree(self) -> TreeSettings:
        """The tree of prices."""
        return TreeSettings(2, self.ticks, 1, strength=0.0, move_bp=self.move_bp)

    @property
    def kept(self) -> float:
        """Share a of a move that is left a tick later."""
        return float(0.5 ** (1 / self.half_life))


class FixedShares:
    """A policy that trades fixed shares of the amount, float64 of shape (T,), whatever it sees."""

    def __init__(self, shares: np.ndarray) -> None:
        self.shares = shares

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        """Return the amounts to trade in the step to come, float64 of shape (N,)."""
        return np.asarray(self.shares[obs.tick] * obs.amount)


def best_shares(settings: ObizhaevaWangSettings) -> np.ndarray:
    """Return the shares of the best schedule, float64 of shape (T,)."""
    decay = 1 - settings.kept
    block = 1 / (2 + (settings.ticks - 2) * decay)
    return np.array([block, *[decay * block] * (settings.ticks - 2), block])


def obizhaeva_wang_market(
    settings: ObizhaevaWangSettings | None = None, *, name: str = "obizhaeva-wang"
) -> CertifiedMarket:
    """Return the market with transient impact; session s is path s of its tree."""
    settings = settings or ObizhaevaWangSettings()
    taken, price, probability = tree_paths(settings.tree)
    shares = best_shares(settings)
    optimum = -settings.transient_bp / 2 * (1 + settings.kept) * float(shares[0])
    rules = ExecutionRules(
        volume_limit=1.0,
        transient_impact_bps=settings.transient_bp,
        transient_impact_shape="linear",
        transient_decay="exponential",
        transient_half_life=settings.half_life,
    )
    return CertifiedMarket(
        name=name,
        kind="obizhaeva_wang",
        settings=settings,
        sessions=panel(path_names(taken), price),
        probability=probability,
        training=probability,
        amount=VOLUME,
        solution=FixedShares(shares),
        optimum=optimum,
        rules=rules,
        actions=settings.actions,
    )
