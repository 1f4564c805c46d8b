"""The plot of stability: net PA by groups of orders, and which groups differ from the rest."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.evaluation import style

#: Most groups of one kind that are drawn; of more, those that are least alike to the rest.
_MOST = 12


@style.styled
def stability_groups(table: pd.DataFrame, *, level: float) -> Figure:
    """Draw the net PA of the chosen checkpoints by groups of orders, with intervals.

    Parameters
    ----------
    table
        Rows of `rlwb.evaluation.stability.stability_table` of one policy.
    level
        The intervals' coverage.
    """
    parts = [rows for _, rows in table.groupby("by", sort=False) if len(rows) > 1]
    if not parts:
        return style.note_figure("Net PA by groups of orders", "All orders are of one group.")
    kept = [rows.loc[rows["p"].fillna(1.0).nsmallest(_MOST).index].sort_index() for rows in parts]
    rows = pd.concat(kept)
    different = int((table["p_adjusted"] <= 0.05).sum())
    low, high = (style.number(end, "z.1f") for end in (rows["judged"].min(), rows["judged"].max()))
    title = f"Net PA from {low} to {high} bp by group; {different} of {style.counted(len(table), 'group')} differ"
    shown = (
        "orange diamonds: differ from all other orders by an adjusted p of at most 0.05; "
        f"lines: {100 * level:g} % intervals"
    )
    figure, (axes,) = style.canvas(title, shown, height=0.8 + 0.19 * len(rows))
    for place, row in enumerate(rows.itertuples()):
        color, marker = (style.ORANGE, "D") if row.p_adjusted <= 0.05 else (style.BLUE, "o")
        if np.isfinite(row.judged_lo):
            axes.plot([row.judged_lo, row.judged_hi], [place, place], color=color, linewidth=3.5, alpha=0.35)
        axes.plot(row.judged, place, marker, color=color, markersize=4, zorder=3)
    longest = 22 if style.is_narrow() else 44
    style.name_rows(axes, [f"{row.by}: {row.group}" for row in rows.itertuples()], longest=longest)
    axes.tick_params(axis="y", labelsize=7)
    borders = np.cumsum([len(one) for one in kept])[:-1]
    for border in borders:
        axes.axhline(border - 0.5, color=style.FAINT, linewidth=1.0)
    axes.set_xlabel("mean net PA, bp")
    return figure
