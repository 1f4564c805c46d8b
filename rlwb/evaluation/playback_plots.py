"""Plots of single orders, step by step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from rlwb.evaluation import style
from rlwb.evaluation.playback import Played

#: Colour of the theme, marker and dash of each policy, and colours of the parts of a reward.
_LOOKS = (
    ("BLUE", "o", "solid"),
    ("VERMILION", "v", (0, (5, 2))),
    ("GREEN", "^", (0, (1, 1.2))),
)
_PARTS = ("SKY", "ORANGE", "PURPLE", "GREEN", "GREY")


class OrderFigure:
    """One order as policies executed it, with one step marked, which can be moved without drawing the rest again.

    Parameters
    ----------
    plays
        The same order by each policy, at most three; the panels on the right are of the first.
    step
        The step that is marked.
    told
        Whether what each policy expected in the step is written below.

    Attributes
    ----------
    figure
        The figure, whose layout stays as it was first drawn.
    """

    def __init__(self, plays: Sequence[Played], step: int = 0, *, told: bool = False) -> None:
        self.plays = list(plays[: len(_LOOKS)])
        self._reading = self.plays[0]
        self._told = told
        self.figure: Figure = style.styled(self._draw)()
        self.move(step)
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine("none")

    @property
    def left(self) -> tuple[Axes, ...]:
        """The axes over time, from the top down: price, amount left, cost of waiting, PA."""
        return self._left

    def move(self, step: int) -> None:
        """Mark another step: its bars, what is known before it, the chances of its actions, and its reward."""
        longest = max((one.decisions for one in self.plays), key=len)
        row = longest.iloc[min(step, len(longest) - 1)]
        start = self._reading.start
        first, stop = row["first"] - start - 0.5, row["stop"] - start - 0.5
        for span in self._spans:
            span.set_x(first)
            span.set_width(stop - first)
        self._veil.set_x(first)
        self._choice_title.set_text(f"{style.readable(self._reading.name)} at {row['time']}")
        numbers = self._reading.chances if self._reading.chances is not None else self._reading.values
        taken = self._reading.steps["action"]
        for place, bar in enumerate(self._bars):
            known = numbers is not None and step < len(numbers)
            bar.set_width(numbers[step, place] if known and numbers is not None else 0.0)
            bar.set_facecolor(style.BLUE if known and place == int(taken.iloc[step]) else style.GREY)
        self._at.set_x(step - 0.5)
        if self._told:
            self._words.set_text("\n".join(one.why(step) for one in self.plays))

    def _draw(self) -> Figure:
        reading, length = self._reading, len(self._reading.times)
        words = 0.19 * len(self.plays) + 0.1 if self._told else 0.0
        figure = Figure(figsize=(9.6, 6.2 + words), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=[2.5, 1], height_ratios=[6.2, max(words, 0.01)])
        left = grid[0, 0].subgridspec(4, 1, height_ratios=[2.2, 1.3, 1.5, 1.3])
        price = figure.add_subplot(left[0])
        others = [figure.add_subplot(left[row], sharex=price) for row in (1, 2, 3)]
        held, waiting, pa = others
        right = grid[0, 1].subgridspec(2, 1)
        self._choice, rewards = figure.add_subplot(right[0]), figure.add_subplot(right[1])
        self._left = (price, *others)
        price.set_title(style.readable(reading.title, longest=60))
        price.plot(reading.price, color=style.GREY, linewidth=1.1)
        label = f"benchmark {style.number(reading.benchmark, '.6g')}"
        price.axhline(reading.benchmark, color=style.INK, linewidth=0.9, linestyle=style.DASHED, label=label)
        came = max((one.decisions for one in self.plays), key=len)
        for (color, marker, dash), one in zip(_LOOKS, self.plays, strict=False):
            self._of_policy(one, getattr(style, color), marker, dash)
        places = (came["first"] + came["stop"] - 1) / 2 - reading.start
        waiting.plot(places, came["came"], "x", color=style.INK, markersize=5)
        legend = "dotted: the policy trades above it; ×: in hindsight"
        waiting.text(0.005, 0.98, legend, transform=waiting.transAxes, va="top", fontsize=7.5, color=style.MUTED)
        style.zero_line(waiting)
        style.zero_line(pa)
        price.set_ylabel("price, \ncurrency a share")
        held.set(ylabel="amount left, %", ylim=(-0.04, 1.06))
        held.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        waiting.set_ylabel("expected cost\nof waiting, bp")
        pa.set_ylabel("PA so far, bp")
        for axis in self._left[:-1]:
            axis.tick_params(labelbottom=False)
        _name_times(pa, reading.times)
        pa.set_xlabel("time of day; shaded: the step; pale: not known before it")
        pa.set_xlim(-0.5, length - 0.5)
        self._spans = [
            axis.axvspan(0, 1, color=style.ORANGE, alpha=0.22, linewidth=0, zorder=0.5) for axis in self._left
        ]
        self._veil: Rectangle = price.axvspan(0, length + 1, color=style.PAPER, alpha=0.5, linewidth=0, zorder=2.5)
        price.set_xlim(-0.5, length - 0.5)
        self._draw_choice()
        self._draw_rewards(rewards)
        below = figure.add_subplot(grid[1, :])
        below.set_axis_off()
        self._words = below.text(0, 1, "", va="top", fontsize=8.5, color=style.INK, linespacing=1.4)
        self._words.set_in_layout(False)
        return figure

    def _of_policy(self, one: Played, color: str, marker: str, dash: object) -> None:
        price, held, waiting, pa = self._left
        ticks, made = one.ticks, one.decisions
        done = ticks[ticks["filled"] > 0]
        earned = f"PA {style.number(one.pa, 'z.1f')} bp" if np.isfinite(one.pa) else "no PA"
        label = f"{style.readable(one.name)}: {earned}"
        size = 10 + 700 * done["filled"] / one.amount
        place = done["tick"] - one.start
        price.scatter(place, done["price"], s=size, color=color, marker=marker, alpha=0.6, label=label, zorder=3)
        edges = np.append(made["first"], made["stop"].iloc[-1]) - one.start - 0.5
        left = np.append(made["held"], made["held"].iloc[-1] - made["filled"].iloc[-1])
        held.step(edges, left, where="post", color=color, linestyle=dash, linewidth=1.8)
        middle = (made["first"] + made["stop"] - 1) / 2 - one.start
        waiting.plot(middle, made["waiting"], color=color, marker=marker, markersize=4, linewidth=1.3)
        waiting.plot(middle, made["threshold"], color=color, linestyle=(0, (1, 1)), linewidth=1.2, alpha=0.8)
        ends = made["stop"] - one.start - 0.5
        pa.plot(np.append(edges[0], ends), np.append(0.0, made["pa"]), color=color, linestyle=dash, linewidth=1.6)

    def _draw_choice(self) -> None:
        one, axis = self._reading, self._choice
        numbers = one.chances if one.chances is not None else one.values
        self._bars: list[Rectangle] = []
        self._choice_title = axis.set_title(" ")
        if numbers is None:
            axis.set_axis_off()
            text = "chooses amounts by a rule:\nno chances or values of actions"
            axis.text(0.5, 0.5, text, ha="center", va="center", color=style.MUTED, transform=axis.transAxes)
            return
        self._bars = list(axis.barh(range(len(one.actions)), numbers[0], color=style.GREY, height=0.7))
        axis.set_yticks(range(len(one.actions)), one.actions)
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_ylabel("action, share of the order")
        if one.chances is not None:
            axis.set(xlim=(0, 1), xticks=[0, 0.5, 1])
            axis.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
            axis.set_xlabel("chance, %; blue: taken")
        else:
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            axis.set_xlim(min(low, 0.0), max(high, 0.0) or 1.0)
            axis.set_xlabel("reward expected; blue: taken")

    def _draw_rewards(self, axis: Axes) -> None:
        one = self._reading
        axis.set_title("Reward by part", pad=24)
        count = max(len(each.decisions) for each in self.plays)
        axis.set(xlabel="step", ylabel="reward (no unit)", xlim=(-0.6, count - 0.4))
        parts = [name for name in one.steps if name.startswith("reward_")] or ["reward"]
        above, below = np.zeros(len(one.steps)), np.zeros(len(one.steps))
        for color, name in zip(_PARTS, parts, strict=False):
            values = one.steps[name].to_numpy(dtype=np.float64)
            base = np.where(values >= 0, above, below)
            axis.bar(
                range(len(values)), values, bottom=base, color=getattr(style, color), label=name.removeprefix("reward_")
            )
            above, below = above + np.maximum(values, 0.0), below + np.minimum(values, 0.0)
        self._at = axis.axvspan(-0.5, 0.5, color=style.ORANGE, alpha=0.22, linewidth=0, zorder=0.5)
        style.zero_line(axis)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2, columnspacing=1.0)


def _name_times(axis: Axes, times: Sequence[str]) -> None:
    places = range(0, len(times), max(1, -(-len(times) // 9)))
    axis.set_xticks(places, [times[place] for place in places])


def ring(figure: Figure, x: float, y: float) -> Line2D:
    """Mark a point of a figure's first axes by a ring, which can be moved; return it."""
    look = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": style.INK, "markeredgewidth": 1.8}
    (mark,) = figure.axes[0].plot([x], [y], marker="o", linestyle="", zorder=6, clip_on=False, **look)
    return mark
