"""Plots of single orders, step by step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import numpy as np
import pandas as pd
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
_HOW_TO_READ = (
    "shaded: the step; pale prices: not known before it; marks: fills, larger for more; cost of waiting: as expected, "
    "dotted: a policy trades above it, ×: in hindsight; blue bar: the action that was taken"
)


class OrderFigure:
    """One order as policies executed it, with one step marked, which can be moved without drawing the rest again.

    Parameters
    ----------
    plays
        The same order by each policy, at most three; chances of actions and rewards are those of the first.
    step
        The step that is marked.
    told
        Whether the subtitle has what each policy expected in the step.

    Attributes
    ----------
    figure
        The figure. Unless it tells, its layout stays as it was first drawn.
    """

    def __init__(self, plays: Sequence[Played], step: int = 0, *, told: bool = False) -> None:
        self.plays = list(plays[: len(_LOOKS)])
        self._reading = self.plays[0]
        self._told = told
        self.clock = style.Clock.of([dt.time.fromisoformat(one) for one in self._reading.times])
        self.figure: style.Plot = style.styled(self._draw)()
        self.move(step)
        if not told:
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")

    @property
    def left(self) -> tuple[Axes, ...]:
        """The axes over time, from the top down: price, amount left, cost of waiting, PA."""
        return self._left

    def tick_at(self, x: float) -> int:
        """Return the tick of the window that is nearest to a place of the axes over time."""
        return int(np.abs(self.clock.at - x).argmin())

    def move(self, step: int) -> None:
        """Mark another step: its bars, what is known before it, the chances of its actions, and its reward."""
        longest = max((one.decisions for one in self.plays), key=len)
        row = longest.iloc[min(step, len(longest) - 1)]
        first, stop = self._edges(row["first"], row["stop"])
        for span in self._spans:
            span.set_x(first)
            span.set_width(stop - first)
        self._veil.set_x(first)
        self._choice_title.set_text(f"{style.readable(self._reading.name, longest=20)}\n{row['time']}")
        numbers = self._reading.chances if self._reading.chances is not None else self._reading.values
        taken = self._reading.steps["action"]
        for place, bar in enumerate(self._bars):
            known = numbers is not None and step < len(numbers)
            bar.set_width(numbers[step, place] if known and numbers is not None else 0.0)
            is_taken = known and place == int(taken.iloc[step])
            bar.set_facecolor(self.figure.theme.BLUE if is_taken else self.figure.theme.GREY)
        self._at.set_x(step - 0.5)
        if self._told:
            self.figure.subtitle = "\n".join([_HOW_TO_READ, *(one.why(step) for one in self.plays)])
            self.figure.lay_out()

    def _edges(self, first: float, stop: float) -> tuple[float, float]:
        """Return where ticks ``[first, stop)`` of the session begin and end on the axes over time."""
        begin, end = int(first) - self._reading.start, int(stop) - self._reading.start
        return float(self.clock.at[begin]) - 0.5, float(self.clock.at[end - 1]) + 0.5

    def _draw(self) -> Figure:
        reading, clock, is_narrow = self._reading, self.clock, style.is_narrow()
        earned = ", ".join(f"{style.readable(one.name)} {_earned(one)}" for one in self.plays)
        figure = style.Plot(f"{reading.title}; PA: {earned}", _HOW_TO_READ, height=9.6 if is_narrow else 5.8)
        if is_narrow:
            grid = figure.add_gridspec(6, 1, height_ratios=[2.2, 1.2, 1.5, 1.2, 1.5, 1.2])
            places, beside = [grid[row] for row in range(4)], [grid[4], grid[5]]
        else:
            grid = figure.add_gridspec(1, 2, width_ratios=[2.7, 1])
            over_time, of_steps = (
                grid[0].subgridspec(4, 1, height_ratios=[2.2, 1.3, 1.5, 1.3]),
                grid[1].subgridspec(2, 1),
            )
            places, beside = [over_time[row] for row in range(4)], [of_steps[0], of_steps[1]]
        price = figure.add_subplot(places[0])
        held, waiting, pa = (figure.add_subplot(place, sharex=price) for place in places[1:])
        self._choice, rewards = figure.add_subplot(beside[0]), figure.add_subplot(beside[1])
        self._left = (price, held, waiting, pa)
        price.plot(*clock.line(reading.price), color=style.GREY, linewidth=1.1)
        label = f"benchmark {style.number(reading.benchmark, '.6g')}"
        price.axhline(reading.benchmark, color=style.INK, linewidth=0.9, linestyle=style.DASHED, label=label)
        for (color, marker, dash), one in zip(_LOOKS, self.plays, strict=False):
            self._of_policy(one, getattr(style, color), marker, dash)
        came = max((one.decisions for one in self.plays), key=len)
        waiting.plot(self._middles(came), came["came"], "x", color=style.INK, markersize=5)
        style.zero_line(waiting)
        style.zero_line(pa)
        price.set_ylabel("price, currency a share")
        held.set(ylabel="amount left, %", ylim=(-0.04, 1.06))
        held.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
        waiting.set_ylabel("cost of waiting, bp")
        pa.set_ylabel("PA so far, bp")
        for axis in self._left[:-1]:
            axis.tick_params(labelbottom=False)
        clock.label(pa, shaded=self._left, most=5 if is_narrow else 7)
        self._spans = [
            axis.axvspan(0, 1, color=style.ORANGE, alpha=0.22, linewidth=0, zorder=0.6) for axis in self._left
        ]
        end = float(clock.at[-1]) + 0.5
        self._veil: Rectangle = price.axvspan(0, end + 1, color=style.PAPER, alpha=0.5, linewidth=0, zorder=2.5)
        price.set_xlim(-0.5, end)
        self._draw_choice()
        self._draw_rewards(rewards)
        return figure

    def _of_policy(self, one: Played, color: str, marker: str, dash: object) -> None:
        price, held, waiting, pa = self._left
        ticks, made, at = one.ticks, one.decisions, self.clock.at
        filled = ticks["filled"].to_numpy(dtype=np.float64)
        done, place = filled > 0, at[ticks["tick"].to_numpy() - one.start]
        look = {"color": color, "marker": marker, "zorder": 3}
        price.scatter(
            place[done], ticks["price"][done], s=10 + 700 * filled[done] / one.amount, alpha=0.6, clip_on=False, **look
        )
        label = f"{style.readable(one.name)}: PA {_earned(one)}"
        price.plot([], [], color=color, marker=marker, linestyle=dash, linewidth=1.6, label=label)
        x, left = self.clock.steps(np.append(one.amount, ticks["left"]) / one.amount)
        held.plot(x - 0.5, left, drawstyle="steps-post", color=color, linestyle=dash, linewidth=1.8)
        x, earned = self.clock.steps(np.append(0.0, one.earned()))
        pa.plot(x - 0.5, earned, color=color, linestyle=dash, linewidth=1.6)
        begins = made["first"].to_numpy() - one.start
        breaks = np.flatnonzero(self.clock.is_first[begins])
        middle = np.insert(self._middles(made), breaks, np.nan)
        expected, limit = (np.insert(made[name].to_numpy(float), breaks, np.nan) for name in ("waiting", "threshold"))
        waiting.plot(middle, expected, color=color, marker=marker, markersize=4, linewidth=1.3)
        waiting.plot(middle, limit, color=color, linestyle=(0, (1, 1)), linewidth=1.2, alpha=0.8)

    def _middles(self, decisions: pd.DataFrame) -> np.ndarray:
        """Return the middle of each step on the axes over time."""
        ends = (self._edges(*one) for one in zip(decisions["first"], decisions["stop"], strict=True))
        return np.array([(begin + end) / 2 for begin, end in ends])

    def _draw_choice(self) -> None:
        one, axis = self._reading, self._choice
        numbers = one.chances if one.chances is not None else one.values
        self._bars: list[Rectangle] = []
        self._choice_title = axis.set_title("\n", fontsize=9, fontweight="normal")
        if numbers is None:
            axis.set_axis_off()
            text = "trades amounts:\nno chances or\nvalues of actions"
            axis.text(0.5, 0.5, text, ha="center", va="center", color=style.MUTED, transform=axis.transAxes)
            return
        self._bars = list(axis.barh(range(len(one.actions)), numbers[0], color=style.GREY, height=0.7))
        shown = range(0, len(one.actions), -(-len(one.actions) // 12))
        axis.set_yticks(list(shown), [one.actions[place] for place in shown])
        axis.invert_yaxis()
        axis.grid(visible=False, axis="y")
        axis.set_ylabel("action: share of the order, %" if one.actions[0].endswith("%") else "action, number")
        if one.chances is not None:
            axis.set(xlim=(0, 1), xticks=[0, 0.5, 1])
            axis.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
            axis.set_xlabel("chance, %")
        else:
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            axis.set_xlim(min(low, 0.0), max(high, 0.0) or 1.0)
            axis.set_xlabel("value (no unit)")

    def _draw_rewards(self, axis: Axes) -> None:
        one = self._reading
        count = max(len(each.decisions) for each in self.plays)
        axis.set(xlabel="step, number", ylabel="reward (no unit)", xlim=(-0.6, count - 0.4))
        parts = [name for name in one.steps if name.startswith("reward_")] or ["reward"]
        above, below = np.zeros(len(one.steps)), np.zeros(len(one.steps))
        for color, name in zip(_PARTS, parts, strict=False):
            values = one.steps[name].to_numpy(dtype=np.float64)
            base = np.where(values >= 0, above, below)
            label = f"reward: {name.removeprefix('reward_').replace('_', ' ')}" if name != "reward" else "reward"
            axis.bar(range(len(values)), values, bottom=base, color=getattr(style, color), label=label)
            above, below = above + np.maximum(values, 0.0), below + np.minimum(values, 0.0)
        self._at = axis.axvspan(-0.5, 0.5, color=style.ORANGE, alpha=0.22, linewidth=0, zorder=0.5)
        style.zero_line(axis)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))


def _earned(one: Played) -> str:
    return f"{style.number(one.pa, 'z.1f')} bp" if np.isfinite(one.pa) else "unknown"


def ring(figure: Figure, x: float, y: float) -> Line2D:
    """Mark a point of a figure's first axes by a ring, which can be moved; return it."""
    look = {"markersize": 15, "markerfacecolor": "none", "markeredgecolor": style.INK, "markeredgewidth": 1.8}
    (mark,) = figure.axes[0].plot([x], [y], marker="o", linestyle="", zorder=6, clip_on=False, **look)
    return mark
