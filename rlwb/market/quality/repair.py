"""Repairs that a person decides on after a check; what a run repairs by itself needs none."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, DataError
from rlwb.market.findings import KINDS, Finding, Report
from rlwb.market.quality.check import Quality

#: Kinds whose bars are wrong beyond repair, and that a run would use as they are.
DROPPED = ("outlier", "high_low")


def repair_bars(
    bars: pd.DataFrame, quality: Quality, *, drop: Collection[str] = DROPPED, splits: bool = True
) -> tuple[pd.DataFrame, Report]:
    """Return the bars without those that findings name, and with a factor for each suspected split.

    Parameters
    ----------
    bars
        The bars that were checked, in the schema, as `rlwb.market.read_bars` returns them from the data set.
    quality
        Their check; every finding of the kinds must be listed, so give it a limit that is high enough.
    drop
        Kinds of findings whose bars are left out; a run then sees a tick without a trade.
    splits
        Whether bars before a suspected split get a column ``factor`` by which the days can be compared
        (`rlwb.market.actions`). The prices stay as they were traded.

    Returns
    -------
    bars : pandas.DataFrame
        The repaired ones.
    report : Report
        What was done, by reason.
    """
    for kind in drop:
        if kind not in KINDS:
            raise ConfigError(f"there is no kind of finding {kind!r}; choose from {', '.join(KINDS)}.")
    report = Report()
    names = bars["instrument"].astype(str)
    gone = np.zeros(len(bars), dtype=bool)
    for kind in drop:
        listed = _listed(quality, kind)
        keys = pd.MultiIndex.from_tuples(
            [(one.instrument, pd.Timestamp(one.stamp)) for one in listed if one.stamp], names=["instrument", "datetime"]
        )
        found = pd.MultiIndex.from_arrays([names, bars["datetime"]]).isin(keys) & ~gone
        if found.any():
            report.add("finding_dropped", int(found.sum()), f"{kind} {listed[0].place()}")
        gone |= found
    repaired = bars[~gone].reset_index(drop=True)
    found_splits = _listed(quality, "split_suspected") if splits else []
    if found_splits:
        names = repaired["instrument"].astype(str)
        factor = (
            repaired["factor"].to_numpy(dtype=np.float64, copy=True) if "factor" in repaired else np.ones(len(names))
        )
        for one in found_splits:
            before = ((names == one.instrument) & (repaired["datetime"] < pd.Timestamp(one.date))).to_numpy()
            factor[before] /= one.value
            report.add("factor_added", int(before.sum()), one.place())
        repaired["factor"] = factor
    return repaired, report


def _listed(quality: Quality, kind: str) -> list[Finding]:
    listed = quality.found.listed.get(kind, [])
    if len(listed) < quality.found.counts.get(kind, 0):
        raise DataError(
            f"{quality.found.counts[kind]:,} findings of {kind} were counted and {len(listed):,} are listed; check "
            "again with a higher limit."
        )
    return list(listed)
