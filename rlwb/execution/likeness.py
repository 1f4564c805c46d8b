"""Comparison of training and validation orders with the test orders: sides, instruments, sizes and windows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from rlwb.execution.engine import Engine
from rlwb.execution.order import FORMS_OF_FILLS, OrderBatch

#: Distributions that are further apart than this, in the largest difference of their cumulative shares, differ.
_APART = 0.2
#: Sizes differ only where one of these percentiles is as many times as large.
_TIMES = 1.5
_PERCENTILES = (10, 50, 90)


def unlike(engine: Engine, parts: Mapping[str, OrderBatch]) -> list[str]:
    """Return a sentence for each respect in which training or validation orders are unlike the test orders.

    Compared are sides, instruments, sizes as shares of the window's volume, forms, starts and lengths of windows. Two
    samples differ where their cumulative shares are more than 0.2 apart, and more than chance has them in one case of a
    hundred (the test of Kolmogorov and Smirnov); a side or an instrument that only test orders have is always told.

    Parameters
    ----------
    engine
        What executes the orders.
    parts
        Orders of the parts ``train``, ``valid`` and ``test``; one that is lacking is not compared.
    """
    test, found = parts["test"], []
    for part, title in {"train": "training", "valid": "validation"}.items():
        if part in parts:
            found += [
                f"{title} and test orders differ in {text}" for text in _differences(engine, parts[part], test, title)
            ]
    return found


def _differences(engine: Engine, orders: OrderBatch, test: OrderBatch, title: str) -> list[str]:
    found = []
    if _apart(orders.side, test.side) or not np.isin(test.side, orders.side).all():
        buys, of_test = ((100 * (batch.side > 0).mean()).round() for batch in (orders, test))
        found.append(f"side: {buys:g} % of the {title} orders buy, of the test orders {of_test:g} %")
    names, of_test = (engine.sessions.instruments[batch.session] for batch in (orders, test))
    new = ~np.isin(of_test, names)
    if new.any():
        count, first = len(np.unique(of_test[new])), np.unique(of_test[new])[0]
        found.append(
            f"instruments: {int(new.sum())} of {len(test)} test orders are of {count} instruments of which no {title} "
            f"order is, the first {first}"
        )
    sizes = [size_of(engine, batch) for batch in (orders, test)]
    sizes = [size[np.isfinite(size)] for size in sizes]
    if all(map(len, sizes)) and _apart(*sizes):
        low, high = (np.percentile(size, _PERCENTILES) for size in sizes)
        if (np.maximum(low / high, high / low) > _TIMES).any():
            texts = [f"{100 * ends[0]:.2g} to {100 * ends[2]:.2g} %" for ends in (low, high)]
            found.append(
                f"size: {texts[0]} of their window's volume ({title}), {texts[1]} (test), from the 10th to the 90th "
                "percentile"
            )
    for name in sorted(FORMS_OF_FILLS):
        if name in orders.source or name in test.source:
            stated = [_stated(batch, name) for batch in (orders, test)]
            if _apart(*stated):
                own, other = (f"{100 * share.mean():.0f} %" for share in stated)
                found.append(f"{name}: {own} of the {title} orders state one, of the test orders {other}")
    if _apart(orders.start, test.start):
        ends = [np.percentile(batch.start, (10, 90), method="nearest").tolist() for batch in (orders, test)]
        texts = [" to ".join(f"{engine.sessions.calendar.time_of(tick):%H:%M}" for tick in pair) for pair in ends]
        found.append(f"start: {texts[0]} ({title}), {texts[1]} (test), from the 10th to the 90th percentile")
    lengths = [batch.end - batch.start for batch in (orders, test)]
    if _apart(*lengths):
        ends = [np.percentile(length, (10, 90), method="nearest").tolist() for length in lengths]
        texts = [" to ".join(str(int(tick)) for tick in pair) for pair in ends]
        found.append(f"length: {texts[0]} bars ({title}), {texts[1]} (test), from the 10th to the 90th percentile")
    return found


def _stated(orders: OrderBatch, name: str) -> np.ndarray:
    """Return which orders state a form, bool of shape (N,)."""
    if name not in orders.source:
        return np.zeros(len(orders), dtype=bool)
    return ~np.asarray(pd.isna(orders.source[name][orders.row]))


def size_of(engine: Engine, orders: OrderBatch) -> np.ndarray:
    """Return the amount of each order as a share of its window's volume, float64 of shape (N,); NaN without volume."""
    volume = engine.benchmarks(orders).volume
    return np.divide(orders.amount, volume, out=np.full(len(orders), np.nan), where=volume > 0)


def _apart(one: np.ndarray, two: np.ndarray) -> bool:
    """Tell whether two samples differ; see `unlike`."""
    at = np.unique(np.concatenate([one, two]))
    shares = [np.searchsorted(np.sort(values), at, side="right") / len(values) for values in (one, two)]
    chance = 1.63 * np.sqrt(1 / len(one) + 1 / len(two))
    return bool(np.abs(shares[0] - shares[1]).max() > max(_APART, chance))
