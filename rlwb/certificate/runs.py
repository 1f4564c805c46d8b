"""Markets as a run has them: a run's market is a sample of sessions, its orders a buy and a sell in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from rlwb.certificate.garleanu_pedersen import GarleanuPedersenSettings, garleanu_pedersen_market
from rlwb.certificate.gaussian import GaussianSettings, gaussian_market
from rlwb.certificate.market import DAY, CertifiedMarket, with_day_before
from rlwb.certificate.obizhaeva_wang import ObizhaevaWangSettings, obizhaeva_wang_market
from rlwb.certificate.tree import TreeSettings, tree_market
from rlwb.market import Sessions

#: Name of a law to its settings and what makes a market of them.
KINDS: dict[str, tuple[type[Any], Callable[..., CertifiedMarket]]] = {
    "tree": (TreeSettings, tree_market),
    "gaussian": (GaussianSettings, gaussian_market),
    "obizhaeva_wang": (ObizhaevaWangSettings, obizhaeva_wang_market),
    "garleanu_pedersen": (GarleanuPedersenSettings, garleanu_pedersen_market),
}
#: Markets that are measured, by name; more of a kind by their settings.
MARKETS: dict[str, Callable[[], CertifiedMarket]] = {
    "tree": tree_market,
    "tree, momentum": lambda: tree_market(TreeSettings(signal="momentum"), name="tree, momentum"),
    "gaussian": gaussian_market,
    "tree, penalty 4": lambda: tree_market(TreeSettings(penalty=4.0), name="tree, penalty 4"),
    "tree, capped": lambda: tree_market(TreeSettings(ticks=6, strength=0.8, caps=(1, 2)), name="tree, capped"),
    "obizhaeva-wang": obizhaeva_wang_market,
    "garleanu-pedersen": garleanu_pedersen_market,
}
#: Sessions that a run validates on, each with two orders, as many as a run on the synthetic market has.
_VALIDATED = 960
#: Dates of the sessions to train on, to validate on, and to test on, of which there is one because a run has some.
_DATES = DAY + np.arange(3)


def drawn(of: str, law: dict[str, Any], train: int, valid: int, seed: int = 0) -> Sessions:
    """Return sessions of a certified market, drawn by their probability, those to train on first.

    Parameters
    ----------
    of
        A name in `KINDS`.
    law
        The market's settings.
    train, valid : sessions
        How many.
    seed
        Of the draws.
    """
    market = _market(of, KINDS[of][0](**law))
    counts = [train, valid, 1]
    rows = np.concatenate([market.draw(count, seed, part) for part, count in enumerate(counts)])
    return with_day_before(market.sessions, rows, np.repeat(_DATES, counts))


@lru_cache(maxsize=4)
def _market(kind: str, settings: Any) -> CertifiedMarket:
    return KINDS[kind][1](settings)


def run_settings(market: CertifiedMarket, orders: int, seed: int) -> dict[str, Any]:
    """Return what a run on a market sets, which is the problem itself: bars, orders, rules, and the objective.

    Parameters
    ----------
    orders
        Orders to train on, one half of them buys; a training that executes no more never meets one again.
    seed
        Of the sessions.
    """
    sizes = {"train": -(-orders // 2), "valid": _VALIDATED}
    days = {part: (str(date), str(date)) for part, date in zip(("train", "valid", "test"), _DATES, strict=True)}
    return {
        "market": {
            "name": "rlwb.certificate.runs:drawn",
            "of": market.kind,
            "law": asdict(market.settings),
            "seed": seed,
            **sizes,
        },
        "orders": {"name": "rlwb.certificate.market:both_sides", "amount": market.amount},
        "split": days,
        "execution": {"ticks_per_step": 1, "rules": asdict(market.rules)},
        "reward": {"name": "pa_penalty", "penalty": market.penalty},
        "baselines": ["twap"],
    }
