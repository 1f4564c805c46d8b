"""Tables to show, as views of the tidy table: the headline and the comparison, as text, Markdown or cells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.evaluation.bootstrap import too_few_days
from rlwb.evaluation.figures import FIGURES, figure_table, wide
from rlwb.evaluation.notes import headline_notes
from rlwb.evaluation.results import Kind, PolicyResult, of_kind
from rlwb.evaluation.statistics import ZERO_BP

ABSENT = "-"


@dataclass(frozen=True, eq=False)
class Table:
    """Cells to show, and what a reader must know to read them.

    Attributes
    ----------
    header, rows
        The cells; the first column names the row, the others hold figures.
    notes
        Sentences to print below.
    figures
        The tidy table that it shows (`rlwb.evaluation.figures.figure_table`).
    level
        Nominal coverage of the intervals.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    figures: pd.DataFrame
    level: float

    @property
    def frame(self) -> pd.DataFrame:
        """One row a policy, a column a figure and end of its interval (`rlwb.evaluation.figures.wide`)."""
        return wide(self.figures)

    def to_markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        lines = [
            f"| {' | '.join(self.header)} |",
            "|" + "|".join([" --- "] + [" ---: "] * (len(self.header) - 1)) + "|",
        ]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in self.rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)]) + "\n"

    def to_text(self) -> str:
        """Return the table and its notes in aligned columns for a terminal."""
        widths = [max(len(row[i]) for row in [self.header, *self.rows]) for i in range(len(self.header))]

        def line(row: Sequence[str]) -> str:
            cells = [row[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            return "  ".join(cells).rstrip()

        rule = "-" * len(line(self.header))
        return "\n".join([line(self.header), rule, *map(line, self.rows), rule, *self.notes]) + "\n"


def headline(
    results: Sequence[PolicyResult],
    *,
    requested: int = 10,
    candidates: int | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Table:
    """Return the headline: what the chosen checkpoints reach together, beside the last one and the baselines.

    Parameters
    ----------
    results
        At least one of kind ``"checkpoint"``; all on the same orders.
    requested
        How many checkpoints were asked for; the notes say so when there are fewer.
    candidates
        How many the chosen ones were chosen from; None when that is not known.
    """
    checkpoints = of_kind(results, "checkpoint")
    if not checkpoints:
        raise DataError("The headline needs the backtest of at least one checkpoint; none was given.")
    kinds: tuple[Kind, ...] = ("last", "baseline", "unattainable", "ceiling")
    groups = {f"best checkpoints by validation (n = {len(checkpoints)})": checkpoints}
    groups |= {one.display_name: [one] for kind in kinds for one in of_kind(results, kind)}
    figures = figure_table(groups, level=level, resamples=resamples, seed=seed)
    frame = wide(figures)
    columns: dict[str, Any] = {
        "policy": lambda row: row["policy"],
        "n": lambda row: str(row["n"]),
        "PA mean ± std, bp": lambda row: _with_spread(row, "pa"),
        f"{100 * level:g} % interval, bp": lambda row: _ends(row, "pa") or ABSENT,
        FIGURES["over_twap"].title: lambda row: _cell(row, "over_twap"),
        FIGURES["pa_net"].title: lambda row: f"{_with_spread(row, 'pa_net')} {_ends(row, 'pa_net')}".rstrip(),
        FIGURES["net_over_twap"].title: lambda row: _cell(row, "net_over_twap"),
        **{
            FIGURES[name].title: lambda row, name=name: _number(row[name], name)
            for name in ("pa_value_weighted", "win_rate", "glr", "ffr")
        },
    }
    hidden = set() if twap_is_off(frame) else {FIGURES["over_twap"].title}  # it would repeat the PA
    if not net_is_off(frame):
        hidden |= {FIGURES["pa_net"].title, FIGURES["net_over_twap"].title}
    shown = {title: show for title, show in columns.items() if title not in hidden}
    rows = tuple(tuple(show(row) for show in shown.values()) for _, row in frame.iterrows())
    notes = headline_notes(
        results,
        frame,
        requested=requested,
        candidates=candidates,
        level=level,
        resamples=resamples,
        twap_is_off=twap_is_off(frame),
        net_is_off=net_is_off(frame),
    )
    return Table(tuple(shown), rows, notes, figures, level)


def comparison(
    results: Mapping[str, PolicyResult],
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    notes: Sequence[str] = (),
) -> Table:
    """Return methods side by side on the same orders, every figure with its interval.

    Parameters
    ----------
    results
        Method to its result.
    seed
        Of the bootstrap.

    Notes
    -----
    The form is that of Fang et al. (AAAI 2021, arXiv 2103.10860), who give reward, PA, gain-loss ratio and share of
    winning orders; intervals, fulfilment rate and the difference to TWAP on the same order are added.
    """
    figures = figure_table(
        {method: [one] for method, one in results.items()}, level=level, resamples=resamples, seed=seed
    )
    frame = wide(figures)
    names = [name for name in FIGURES if name != "pa_value_weighted" and says_more(frame, name)]
    rows = tuple((str(row["policy"]), *(_cell(row, name) for name in names)) for _, row in frame.iterrows())
    days = int(frame["days"].iloc[0])
    basis = (
        f"{frame['orders'].iloc[0]:,} test orders on {days} days; {100 * level:g} % intervals by a bootstrap of whole "
        "days."
    )
    few = too_few_days(days, level)
    header = ("method", *(FIGURES[name].title for name in names))
    return Table(header, rows, (basis, *([few] if few else []), *notes), figures, level)


def says_more(frame: pd.DataFrame, name: str) -> bool:
    """Tell whether a figure is there at all and, where it is another PA, says more than the PA."""
    if name == "net_over_twap" and not says_more(frame, "pa_net"):
        return False
    repeats = name in ("over_twap", "pa_net") and bool(((frame[name] - frame["pa"]).abs() <= ZERO_BP).all())
    return bool(frame[name].notna().any()) and not repeats


def twap_is_off(frame: pd.DataFrame) -> bool:
    """Tell whether TWAP is there and has a price advantage of its own, so that 0 is not the mark to beat.

    A ceiling tells nothing of it: it may have a PA on orders of which TWAP fills nothing.
    """
    policies = frame[frame["kind"] != "ceiling"]
    return bool(((policies["pa"] - policies["over_twap"]).abs() > ZERO_BP).any())


def net_is_off(frame: pd.DataFrame) -> bool:
    """Tell whether costs make any net PA differ from the PA."""
    return bool(((frame["pa_net"] - frame["pa"]).abs() > ZERO_BP).any())


def _with_spread(row: pd.Series, name: str) -> str:
    spread = f" ± {_number(row[f'{name}_std'])}" if row["kind"] == "checkpoint" else ""
    return _number(row[name]) + spread


def _ends(row: pd.Series, name: str) -> str:
    lo, hi = row[f"{name}_lo"], row[f"{name}_hi"]
    if np.isnan(lo):
        return ""
    return f"[{_number(lo, name, unit='')}, {_number(hi, name, unit='')}]"


def _cell(row: pd.Series, name: str) -> str:
    return f"{_number(row[name], name)} {_ends(row, name)}".rstrip()


def _number(value: float, name: str = "", unit: str = " %") -> str:
    """Return a figure as people read it: shares in percent, all else with two digits, no minus before a zero."""
    if math.isnan(value):
        return ABSENT
    if name in FIGURES and FIGURES[name].is_share:
        return f"{100 * value:.1f}{unit}"
    shown = f"{value:.2f}"
    return shown if float(shown) else shown.lstrip("-")
