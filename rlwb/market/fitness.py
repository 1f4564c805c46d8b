"""Fitness of bars: the number that a run can use of those that the calendar expects, and what cost the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from rlwb.market.calendar import Calendar


@dataclass(frozen=True)
class Fitness:
    """The bars that a calendar expects and the rows that were read, each with what cost those that are not used.

    A calendar expects a bar in every tick of each instrument's sessions from its first to its last: of the days on
    which any instrument has bars, and, where the calendar knows all holidays, of every other open day between them.
    ``expected == used + sum(lost.values())`` and ``rows == used + sum(dropped.values())``.
    """

    expected: int
    used: int  # with a price that orders can be filled at, in sessions that are kept
    #: Bars by what cost them: missing_session (no bar of the session), sparse_session (dropped by min_coverage, whole),
    #: missing_tick (no bar in a session that is kept), no_price (a bar there without a valid price).
    lost: Mapping[str, int]
    rows: int
    dropped: Mapping[str, int]  # rows by the kind of finding that dropped them, sparse_session, and no_price

    @property
    def share(self) -> float:
        """Share of the expected bars that are used; NaN where none is expected."""
        return self.used / self.expected if self.expected else float("nan")

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as values that JSON can hold."""
        return {"share": self.share, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Fitness:
        """Rebuild a fitness from `as_dict`."""
        return cls(**{name: value for name, value in values.items() if name != "share"})

    def as_text(self) -> str:
        """Return the figures as two lines for people."""
        share = "none" if np.isnan(self.share) else f"{np.floor(self.share * 10_000) / 100:.2f} %"
        return (
            f"fitness  {share} of {self.expected:,} expected bars are used{_rest(self.lost, self.expected)}\n"
            f"rows     {self.used:,} of {self.rows:,} read are used{_rest(self.dropped, self.rows)}"
        )


def _rest(costs: Mapping[str, int], whole: int) -> str:
    """Return costs above 0 in words, the largest first."""
    parts = sorted(((count, name) for name, count in costs.items() if count), reverse=True)
    text = ", ".join(f"{name} {count:,} ({count / whole:.2%})" for count, name in parts)
    return f"; lost: {text}" if text else ""


def fitness_of_sessions(table: pd.DataFrame, calendar: Calendar, rows: int, dropped: Mapping[str, int]) -> Fitness:
    """Return the fitness of bars that were laid on a clock.

    Parameters
    ----------
    table
        One row a session that has bars: instrument, day (since 1970), length in ticks, bars, priced (those with a
        price) and kept.
    rows, dropped
        Rows read, and those dropped before sessions were made, by kind of finding.
    """
    length = table.groupby("day")["length"].max()
    if calendar.covers is not None and len(length):
        days = np.arange(length.index.min(), length.index.max() + 1)
        days = days[calendar.is_open(days.astype("datetime64[D]"))]
        stated = pd.Series(calendar.ticks_on(days.astype("datetime64[D]")), days)
        length = length.reindex(length.index.union(days)).fillna(stated)
    whole = np.concatenate([[0], np.cumsum(length.to_numpy())])  # ticks of all days before each
    first, last = (np.searchsorted(length.index, table.groupby("instrument")["day"].agg(way)) for way in ("min", "max"))
    expected = int((whole[last + 1] - whole[first]).sum()) if len(table) else 0
    kept = table["kept"].astype(bool)
    of_kept = {name: int(table.loc[kept, name].sum()) for name in ("length", "bars", "priced")}
    no_price = of_kept["bars"] - of_kept["priced"]
    lost = {
        "missing_session": expected - int(table["length"].sum()),
        "sparse_session": int(table.loc[~kept, "length"].sum()),
        "missing_tick": of_kept["length"] - of_kept["bars"],
        "no_price": no_price,
    }
    sparse = int(table.loc[~kept, "bars"].sum())
    return Fitness(expected, of_kept["priced"], lost, rows, {**dropped, "sparse_session": sparse, "no_price": no_price})
