"""The plot of a training: PA, losses, entropy and speed by iteration, as far as it has come."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from rlwb.evaluation import style
from rlwb.evaluation.results import PA_TITLES


@style.styled
def training_progress(train: pd.DataFrame, validation: pd.DataFrame, *, judged_by: str = "pa") -> Figure:
    """Draw PA, losses, entropy and speed of a training by iteration, those of them that it has logged.

    Parameters
    ----------
    train, validation
        ``metrics/train.csv`` and ``metrics/validation.csv``, which may be empty: columns `iteration`, `judged_by`
        (basis points), any with ``loss`` in its name, `entropy` (nats), `transitions` and `seconds`.
    judged_by
        The figure that checkpoints are chosen by: ``pa``, ``pa_net`` or ``objective``.
    """
    training, validated = _series(train, judged_by), _series(validation, judged_by)
    losses = {name: _series(train, name) for name in train if re.search(r"(^|_)loss$", str(name))}
    losses = {name: one for name, one in losses.items() if len(one)}
    entropy, speed = _series(train, "entropy"), steps_per_second(train)
    panels = [len(training) + len(validated), len(losses), len(entropy), len(speed)]
    if not any(panels):
        return style.note_figure("Training", "Nothing is logged yet: the first iteration has not ended.")
    rows = sum(map(bool, panels))
    title = f"{PA_TITLES[judged_by]} by iteration".capitalize() if judged_by == "objective" else "PA by iteration"
    if len(validated):
        best = int(validated.idxmax())
        title = f"Validation {PA_TITLES[judged_by]} {style.number(validated.iloc[-1])} bp"
        title += f" after iteration {validated.index[-1]}; best {style.number(validated.max())} bp at {best}"
    figure, axes = style.canvas(title, rows=rows, height=1.2 + 1.5 * rows)
    free = iter(axes)
    if panels[0]:
        axis = next(free)
        axis.plot(training, color=style.SKY, linewidth=1.2, label="training, with exploration")
        axis.plot(validated, color=style.BLUE, linewidth=1.4, marker="o", markersize=3, label="validation")
        axis.set_ylabel(f"{PA_TITLES[judged_by]}, bp")
        if judged_by != "objective":
            style.zero_line(axis)
    if losses:
        axis = next(free)
        # Beyond these no loss is drawn.
        colors = (style.VERMILION, style.ORANGE, style.PURPLE, style.GREEN)
        for color, (name, one) in zip(colors, losses.items(), strict=False):
            axis.plot(one, color=color, linewidth=1.2, label=str(name).replace("_", " "))
        values = np.concatenate([one.to_numpy() for one in losses.values()])
        axis.set_ylim(*style.robust_limits(values))
        axis.set_ylabel("loss (no unit)")
        if axis is not axes[0]:
            axis.legend(loc="upper right", fontsize=7)
    if len(entropy):
        axis = next(free)
        axis.plot(entropy, color=style.GREEN, linewidth=1.2)
        axis.set_ylabel("entropy, nats")
    if len(speed):
        axis = next(free)
        axis.plot(speed, color=style.INK, linewidth=1.2)
        axis.set_ylim(bottom=0)
        axis.set_ylabel("steps/s")
    axes[-1].set_xlabel("iteration")
    style.whole_ticks(axes[-1])
    return figure


def steps_per_second(train: pd.DataFrame) -> pd.Series:
    """Return the steps that were gathered and learnt from a second, by iteration; validation does not count."""
    if not {"transitions", "seconds"} <= set(train):
        return pd.Series(dtype=np.float64)
    seconds = train["seconds"].where(train["seconds"] > 0)
    return (train["transitions"] / seconds).set_axis(train["iteration"]).dropna()


def _series(frame: pd.DataFrame, column: str) -> pd.Series:
    """Return a figure by iteration, those that are there."""
    if column not in frame:
        return pd.Series(dtype=np.float64)
    return frame.set_index("iteration")[column].replace([np.inf, -np.inf], np.nan).dropna()
