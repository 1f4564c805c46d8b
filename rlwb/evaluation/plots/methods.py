"""The figure of a comparison."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from rlwb.evaluation.plots.style import BLUE, GREY, canvas, note_figure, readable, styled, zero_line
from rlwb.evaluation.tables import Table, says_more

_AXIS = {
    "pa": "mean PA, bp",
    "over_twap": "mean PA over TWAP on the same order, bp",
    "net_over_twap": "mean net PA over TWAP on the same order, bp",
}


@styled
def method_intervals(comparison: Table) -> Figure:
    """Draw the mean PA of every method with its interval, in the order of the table.

    Ceilings are left out, for they see the future and would squeeze what does not. Where TWAP's own PA is not 0, the
    difference to TWAP is drawn instead, and where there are costs that of the net PA.
    """
    title = "Methods on the same orders"
    frame = comparison.frame
    rows = frame[~frame["kind"].isin(["ceiling", "unattainable"])]
    name = next((one for one in ("net_over_twap", "over_twap") if says_more(frame, one)), "pa")
    rows = rows[np.isfinite(rows[name])]
    if rows.empty:
        return note_figure(title, "No method has a PA.")
    subtitle = f"mean and {100 * comparison.level:g} % interval over days; grey: fixed policies"
    figure, (axis,) = canvas(title, subtitle=subtitle, height=1.6 + 0.34 * len(rows))
    place = np.arange(len(rows))[::-1]
    for at, (_, row) in zip(place, rows.iterrows(), strict=True):
        colour = GREY if row["kind"] == "baseline" else BLUE
        axis.plot(row[name], at, "o", color=colour, markersize=6, markeredgecolor="white", zorder=3)
        if np.isfinite(row[f"{name}_lo"]):
            axis.plot([row[f"{name}_lo"], row[f"{name}_hi"]], [at, at], color=colour, linewidth=2, alpha=0.6)
    axis.set_yticks(place, [readable(method) for method in rows["policy"]])
    axis.set_xlabel(_AXIS[name])
    axis.grid(axis="y", visible=False)
    zero_line(axis, vertical=True)
    return figure
