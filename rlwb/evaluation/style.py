"""The one look of all plots: themes, widths, headers, legends, axes of time, and what stands for a plot in words."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib import font_manager
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

from rlwb.errors import ConfigError
from rlwb.evaluation.results import PolicyResult

P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of a plot, as hex text, and the resolution of its file.

    Any two of the eight colours from `BLUE` to `GREY` are at least 20 apart in CIELAB, also as people see them who lack
    one kind of cone (Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009), and have a contrast of 3 to the paper;
    text has 4.5 (WCAG 2.2, 1.4.11 and 1.4.3).
    """

    PAPER: str
    INK: str  # text, and lines that are no policy's
    MUTED: str  # text that comes second
    GREY: str
    FAINT: str  # the grid
    BLUE: str
    ORANGE: str
    GREEN: str
    VERMILION: str
    PURPLE: str
    SKY: str
    dpi: int = 160

    @property
    def cycle(self) -> list[str]:
        """Colours C0 to C5."""
        return [self.BLUE, self.ORANGE, self.GREEN, self.VERMILION, self.PURPLE, self.SKY]

    @property
    def POINTS(self) -> tuple[tuple[str, str], ...]:  # noqa: N802
        """Colour and marker of points that are told apart by a legend."""
        colors = [self.BLUE, self.ORANGE, self.VERMILION, self.GREEN, self.PURPLE, self.SKY, self.INK, self.GREY]
        return tuple((colors[n % 8], "osD^vPX*"[(n + n // 8) % 8]) for n in range(64))


_SERIES: dict[str, Any] = {
    "BLUE": "#2348D0",
    "ORANGE": "#CF8500",
    "GREEN": "#00724C",
    "VERMILION": "#B03A00",
    "PURPLE": "#A2339B",
    "SKY": "#1C96F0",
    "GREY": "#8E8E8E",
}

#: Themes by name. `print` is `light` with black text, a fainter grid and 300 dots an inch.
THEMES = {
    "light": Theme(PAPER="#FFFFFF", INK="#1B1B1B", MUTED="#5C5C5C", FAINT="#E3E3E3", **_SERIES),
    "dark": Theme(
        PAPER="#16191D",
        INK="#F5F5F5",
        MUTED="#AEB4BA",
        GREY="#7E8287",
        FAINT="#33383E",
        BLUE="#5B6CFA",
        ORANGE="#F4CF55",
        GREEN="#3AB567",
        VERMILION="#EA4A1A",
        PURPLE="#C867D4",
        SKY="#A9D5FC",
    ),
    "print": Theme(PAPER="#FFFFFF", INK="#000000", MUTED="#404040", FAINT="#EDEDED", dpi=300, **_SERIES),
}

#: Width of a plot unless told otherwise, in inches, and what an inch is in pixels of a page.
WIDTH, INCH = 7.2, 110

_theme: ContextVar[Theme] = ContextVar("theme", default=THEMES["light"])
_width: ContextVar[float] = ContextVar("width", default=WIDTH)

if TYPE_CHECKING:  # of the theme that is drawn with, see __getattr__
    PAPER: str
    INK: str
    MUTED: str
    GREY: str
    FAINT: str
    BLUE: str
    ORANGE: str
    GREEN: str
    VERMILION: str
    PURPLE: str
    SKY: str
    POINTS: tuple[tuple[str, str], ...]
else:

    def __getattr__(name: str) -> Any:
        """Return a colour of the theme that is drawn with."""
        if name.isupper() and hasattr(_theme.get(), name):
            return getattr(_theme.get(), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


DASHED = (0, (4, 2))

_LOOKS: dict[str, tuple[str, object]] = {
    "checkpoint": ("BLUE", "solid"),
    "last": ("ORANGE", (0, (6, 1.5))),
    "fills": ("INK", "solid"),
    "attainable": ("GREEN", (0, (8, 2))),
    "unattainable": ("SKY", (0, (2, 2))),
}

#: Colours and dashes of baselines; the n-th has a pair of its own up to the thirtieth.
_BASELINE_COLORS = ("VERMILION", "GREEN", "PURPLE", "GREY", "INK")
_DASHES = ((5, 2), (1, 1.2), (5, 1.5, 1, 1.5), (3, 1), (8, 2, 2, 2), (2, 1, 2, 3))


@contextlib.contextmanager
def theme(name: str = "light", *, width: float | None = None) -> Iterator[Theme]:
    """Draw in a theme, ``light``, ``dark`` or ``print``, and for a width of so many pixels of a page.

    ``with style.theme("dark", width=400): plots.pa_distribution(results)`` draws for a phone at night. Letters keep
    their size at every width; titles, legends and panels are laid out anew.
    """
    if name not in THEMES:
        raise ConfigError(f"there is no theme {name!r}; choose one of {', '.join(THEMES)}.")
    if width is not None and not 240 <= width <= 4000:
        raise ConfigError(f"width is {width}; a plot is 240 to 4000 pixels wide.")
    set_theme = _theme.set(THEMES[name])
    set_width = _width.set(_width.get() if width is None else width / INCH)
    try:
        yield THEMES[name]
    finally:
        _theme.reset(set_theme)
        _width.reset(set_width)


@functools.cache
def _sheet() -> dict[str, Any]:
    """Return ``rlwb.mplstyle``, with the fonts that are installed."""
    sheet = mpl.rc_params_from_file(Path(__file__).with_name("rlwb.mplstyle"), use_default_template=False)
    installed = {entry.name for entry in font_manager.fontManager.ttflist}
    return {**sheet, "font.family": [font for font in sheet["font.family"] if font in installed]}


def settings(own: Theme | None = None) -> dict[str, Any]:
    """Return the settings of a theme for ``matplotlib.rc_context``, by default of the one that is drawn with."""
    own = own or _theme.get()
    colors = {
        own.PAPER: ("figure.facecolor", "axes.facecolor"),
        own.INK: ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.labelcolor", "ytick.labelcolor"),
        own.GREY: ("axes.edgecolor", "xtick.color", "ytick.color"),
        own.FAINT: ("grid.color",),
    }
    painted = {name: color for color, names in colors.items() for name in names}
    return {**_sheet(), **painted, "axes.prop_cycle": cycler(color=own.cycle), "savefig.dpi": own.dpi}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Run a drawing function in the theme, put a legend of all its axes under the figure, and lay out its words.

    No text is read as a formula. A figure that is no `Plot` keeps its size.
    """

    @functools.wraps(draw)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(settings()):
            figure = draw(*args, **kwargs)
            if isinstance(figure, Plot):
                figure.lay_out()
            else:
                _put_legend(figure)
                _as_text(figure)
            return figure

    return wrapper


class Plot(Figure):
    """A figure with a title and a subtitle over the whole of its width, and a legend below.

    Attributes
    ----------
    title, subtitle
        The finding, with its figures, and how to read the plot.
    body
        Height in inches without title, subtitle and legend.
    """

    def __init__(self, title: str, subtitle: str = "", *, height: float):
        super().__init__(figsize=(_width.get(), height), layout="constrained")
        self.theme = _theme.get()
        self.title, self.subtitle, self.body = readable(title, longest=300), readable(subtitle, longest=2_000), height
        bold = {"fontsize": 10.5, "fontweight": "bold", "color": self.theme.INK, "gid": "title"}
        small = {"fontsize": 8.5, "color": self.theme.MUTED, "gid": "subtitle"}
        self._header = [self.text(0, 1, "", va="top", linespacing=1.3, **look) for look in (bold, small)]
        self._tops = [0.0, 0.0, 0.0]  # of title, subtitle and axes, in inches from the top
        for text in self._header:
            text.set_in_layout(False)

    def lay_out(self) -> None:
        """Wrap all words to the width, make the legend, and take the height that they need; again as well."""
        with mpl.rc_context(settings(self.theme)):
            self._lay_out()

    def _lay_out(self) -> None:
        width, above = self.get_figwidth(), _MARGIN
        below = _put_legend(self)
        for number, words in enumerate((self.title, self.subtitle)):
            text = self._header[number]
            text.set_text("\n".join(wrapped(line, width - 2 * _MARGIN, text) for line in words.splitlines()))
            self._tops[number] = above
            above += len(text.get_text().splitlines()) * 1.3 * text.get_fontsize() / 72 + 0.03
        self._tops[-1] = above
        self.set_figheight(self.body + above + below)
        for axes in self.axes:
            if (grid := axes.get_subplotspec()) is not None:
                rows, columns = grid.get_gridspec().get_geometry()
                # The names of rows beside a narrow plot leave its axis little more than half of the width.
                across = width / columns - (0.7 if columns > 1 else 1.2 if width > 5 else 2.2)
                for label, room in ((axes.xaxis.label, across), (axes.yaxis.label, self.body / rows)):
                    label.set_text(wrapped(label.get_text().replace("\n", " "), max(room, 1.2), label))
        _as_text(self)

    def draw(self, renderer: RendererBase) -> None:
        """Draw the figure, with title and subtitle at its top whatever size it was given."""
        width, height = self.get_size_inches()
        for text, top in zip(self._header, self._tops, strict=False):
            text.set_position((_MARGIN / width, 1 - top / height))
        if isinstance(engine := self.get_layout_engine(), ConstrainedLayoutEngine):
            side = 0.5 * _MARGIN / width
            engine.set(rect=(side, 0, 1 - 2 * side, 1 - self._tops[-1] / height))
        super().draw(renderer)

    def get_tightbbox(self, renderer: Any = None, *, bbox_extra_artists: Any = None) -> Bbox:
        """Return the whole figure, in inches: a notebook that crops it would cut off the title, which is in no axes."""
        return Bbox.from_bounds(0.0, 0.0, *self.get_size_inches())

    def __repr__(self) -> str:
        return f"<Plot: {self.alt}>"  # which notebooks keep beside the picture, for those who cannot see it

    @property
    def alt(self) -> str:
        """The plot in words: its title with the figures, how to read it, its axes and its legend."""
        ends = [((axes.get_xlabel(), "across"), (axes.get_ylabel(), "up")) for axes in self.axes]
        axes = dict.fromkeys(", ".join(f"{label} {way}" for label, way in both if label) for both in ends)
        own = [legend for one in self.axes if (legend := one.get_legend()) is not None]
        shown = [text.get_text() for one in [*self.legends, *own] for text in one.get_texts()]
        parts = [self.title, *self.subtitle.splitlines(), *axes, *([f"shown are {', '.join(shown)}"] if shown else [])]
        return f"{'; '.join(' '.join(part.split()) for part in parts if part)}."


#: Margin around title and subtitle, in inches.
_MARGIN = 0.08


@functools.cache
def _ruler() -> RendererAgg:
    return RendererAgg(1, 1, 72)


def _width_of(words: str, look: Text) -> float:
    """Return the width in inches of words that are written like `look`."""
    font = look.get_fontproperties()
    return float(_ruler().get_text_width_height_descent(words, font, ismath=False)[0]) / 72


def _as_text(figure: Figure) -> None:
    for text in figure.findobj(Text):
        text.set_parse_math(False)


def _put_legend(figure: Figure) -> float:
    """Name under the figure what axes without a legend of their own show; return the height of that in inches."""
    for former in list(figure.legends):
        former.remove()
    named: dict[str, Artist] = {}
    for axes in figure.axes:
        if axes.get_legend() is None:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                named.setdefault(label, handle)
    if not named:
        return 0.0
    handles, labels = list(named.values()), list(named)
    size = mpl.rcParams["legend.fontsize"]
    room, handle = figure.get_figwidth() - 0.2, 4.8 * size / 72  # the handle and the spaces around it
    probe = Text(fontsize=size, fontfamily=mpl.rcParams["font.family"])
    widest = max(_width_of(label, probe) for label in labels) + handle
    columns = max(1, min(len(labels), 4, int(room / widest)))
    labels = [wrapped(label, room - handle, probe) for label in labels]
    made = figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    for text in made.get_texts():
        text.set_parse_math(False)
    return float(made.get_window_extent(RendererAgg(1, 1, figure.dpi)).height / figure.dpi + 0.1)


#: The space between two words, but not between a number and its unit.
_GAP = re.compile(r" (?!(?<=\d )(?:bp|%|ms))")


def wrapped(words: str, room: float, look: Text) -> str:
    """Return words in lines of at most `room` inches as `look` writes them; a word that is wider is broken.

    A number and its unit are one word.
    """
    lines, line = [], ""
    for word in _GAP.split(words):
        if line and _width_of(f"{line} {word}", look) > room:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
        while _width_of(line, look) > room and len(line) > 1:
            fits = max(1, int(len(line) * room / _width_of(line, look)))
            lines.append(line[:fits])
            line = line[fits:]
    return "\n".join([*lines, line])


def alt_of(path: str | os.PathLike[str]) -> str:
    """Return what `rlwb.evaluation.plots.save_figure` wrote into a PNG as the text in its place; empty without."""
    return words_of(Path(path).read_bytes())


def words_of(content: bytes) -> str:
    """Return a PNG in words, as `rlwb.evaluation.plots.save_figure` writes it into one; empty without."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            return str(image.info.get("Description", ""))
    except OSError:  # no picture that can be read, which the page shows as it is
        return ""


def canvas(
    title: str,
    subtitle: str = "",
    *,
    rows: int = 1,
    columns: int = 1,
    height: float = 3.7,
    share_x: bool = True,
    share_y: bool = False,
) -> tuple[Plot, list[Axes]]:
    """Return a figure of axes in rows, from left to right and down, `height` inches high without title and legend.

    Axes share x unless told otherwise; `fitting` says how many columns have room.
    """
    figure = Plot(title, subtitle, height=height)
    return figure, list(figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False).ravel())


def fitting(columns: int, *, least: float = 2.1) -> int:
    """Return how many panels of at least so many inches stand beside one another, at most `columns`."""
    return max(1, min(columns, int(_width.get() / least)))


def is_narrow() -> bool:
    """Tell whether plots are drawn for less than half of their usual width or a little more, as on a phone."""
    return _width.get() < 0.7 * WIDTH


@styled
def note_figure(title: str, note: str) -> Figure:
    """Return a figure that says why there is nothing to draw."""
    figure, (axes,) = canvas(title, height=1.7)
    axes.set_axis_off()
    axes.text(0.5, 0.5, note, ha="center", va="center", color=_theme.get().MUTED, transform=axes.transAxes, wrap=True)
    return figure


def zero_line(axes: Axes, *, vertical: bool = False) -> None:
    """Mark PA 0, which is the order's own TWAP."""
    (axes.axvline if vertical else axes.axhline)(0, color=_theme.get().INK, linewidth=0.8, zorder=1.5)


def whole_ticks(axes: Axes) -> None:
    """Put ticks of the x axis at whole numbers only."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def plain_log(axis: Axis, *, most: int = 6) -> None:
    """Name at most so many decades of a logarithmic axis in plain numbers, with 2 and 5 where it spans few."""
    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 50 * low else (1.0,), numticks=most))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def date_ticks(axes: Axes, most: int) -> None:
    """Put 3 to `most` dates under the x axis."""
    locator = AutoDateLocator(minticks=3, maxticks=most)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


@dataclass(frozen=True)
class Clock:
    """Ticks of a session, or of several, along an x axis on which closed hours are a narrow gap with no line across it.

    Parameters
    ----------
    seconds : int64 of shape (T,)
        Seconds since midnight at which each tick starts, in the sequence of the ticks; they may pass midnight.
    """

    seconds: np.ndarray

    @classmethod
    def of(cls, times: Sequence[dt.time]) -> Clock:
        """Return the clock of times of day."""
        return cls(np.array([one.hour * 3600 + one.minute * 60 + one.second for one in times], dtype=np.int64))

    @functools.cached_property
    def is_first(self) -> np.ndarray:
        """Ticks that the market opens with again, after lunch or a night: bool of shape (T,)."""
        steps = np.diff(self.seconds) % 86_400
        usual = steps[steps > 0].min(initial=86_400)
        return np.concatenate([[False], steps > 1.5 * usual])[: len(self.seconds)]

    @functools.cached_property
    def at(self) -> np.ndarray:
        """Place of each tick on the axis, float64 of shape (T,)."""
        gap = max(1.0, 0.03 * len(self.seconds))
        return np.arange(len(self.seconds)) + gap * np.cumsum(self.is_first)

    def line(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of a line through the first ``len(values)`` ticks, with a NaN where the market is closed."""
        count = len(values)
        breaks = np.flatnonzero(self.is_first[:count])
        x = np.insert(self.at[:count], breaks, np.nan)
        return x, np.insert(np.asarray(values, dtype=np.float64), breaks, np.nan)

    def steps(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of steps, of values before each of the first ticks and one after the last of these."""
        ends = [*np.flatnonzero(self.is_first[: len(values) - 1]), len(values) - 1]
        x, y = [], []
        for start, end in zip([0, *ends], ends, strict=False):
            x += [*self.at[start:end], self.at[end - 1] + 1, np.nan]
            y += [*values[start : end + 1], np.nan]
        return np.array(x[:-1]), np.array(y[:-1])

    def label(self, axes: Axes, *, shaded: Sequence[Axes] | None = None, most: int | None = None) -> None:
        """Write at most so many times of day under the axes, and mark the gaps on `shaded`, by default all axes."""
        count, most = len(self.seconds), most or (5 if is_narrow() else 9)
        minutes = self.seconds // 60 % 1440
        steps = np.diff(self.seconds)
        step = steps[steps > 0].min(initial=3600) / 60
        nice = next((n for n in (1, 2, 5, 10, 15, 30, 60, 120, 180, 240) if count * step / n <= most), 360)
        shown: list[int] = []
        for tick in np.flatnonzero((minutes % nice == 0) | self.is_first | (np.arange(count) == 0)):
            if shown and self.at[tick] - self.at[shown[-1]] < 0.7 * self.at[-1] / most:
                if not self.is_first[tick]:
                    continue
                shown.pop()
            shown.append(int(tick))
        axes.set_xticks(self.at[shown], [f"{minutes[one] // 60:02d}:{minutes[one] % 60:02d}" for one in shown])
        axes.set_xlabel("time of day")
        for one in axes.figure.axes if shaded is None else shaded:
            self.shade(one)

    def shade(self, axes: Axes) -> None:
        """Mark the gaps of closed hours on the axes."""
        color = _theme.get().FAINT
        for tick in np.flatnonzero(self.is_first):
            axes.axvspan(self.at[tick - 1] + 0.5, self.at[tick] - 0.5, color=color, linewidth=0, zorder=0.5)


def name_rows(axes: Axes, names: Sequence[str], *, longest: int | None = None) -> None:
    """Name the rows of a horizontal plot from the top down, and mark PA 0."""
    axes.set_yticks(range(len(names)), [readable(name, longest=longest) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    zero_line(axes, vertical=True)


def look(result: PolicyResult, baselines: Sequence[PolicyResult]) -> tuple[str, object]:
    """Return colour and dash of a policy: its kind's, or one of its own for each of the `baselines`."""
    own = _theme.get()
    if result.kind in _LOOKS:
        name, dash = _LOOKS[result.kind]
        return getattr(own, name), dash
    place = [baseline.policy for baseline in baselines].index(result.policy)
    around, column = divmod(place, len(_BASELINE_COLORS))
    return getattr(own, _BASELINE_COLORS[column]), (0, _DASHES[(column + around) % len(_DASHES)])


def points(count: int) -> list[tuple[str, str]]:
    """Return colour and marker of so many series; after the 64th they begin anew."""
    looks = _theme.get().POINTS
    return [looks[number % len(looks)] for number in range(count)]


def readable(text: str, *, longest: int | None = None) -> str:
    """Return a name as a plot can show it.

    Letters that no installed font can draw become their code points; long names lose their middle; before an
    underscore, which would keep a name out of the legend, stands a space.
    """
    longest = (18 if is_narrow() else 32) if longest is None else longest
    drawable = _drawable() | {10} if longest > 1_000 else _drawable()
    shown = "".join(c if ord(c) in drawable else f"<{ord(c):X}>" for c in text).replace("><", " ")
    if len(shown) > longest:
        shown = f"{shown[: longest // 2]}…{shown[1 - longest // 2 :]}"
    return f"\N{NO-BREAK SPACE}{shown}" if shown.startswith("_") else shown


@functools.cache
def _drawable() -> frozenset[int]:
    """Return the code points that the installed fonts can draw."""
    fonts = [font_manager.get_font(font_manager.findfont(name)) for name in _sheet()["font.family"]]
    return frozenset().union(*(font.get_charmap() for font in fonts))


def number(value: float, spec: str = "z.2f") -> str:
    """Format a number with a true minus sign, as the axes have it."""
    return format(value, spec).replace("-", "\N{MINUS SIGN}")


def estimate(name: str, value: float, lo: float = np.nan, hi: float = np.nan, unit: str = "bp") -> str:
    """Return a figure as titles state it: ``PA 17.3 bp [13.4, 21.2]``, without an interval where there is none."""
    ends = f" [{number(lo, 'z.1f')}, {number(hi, 'z.1f')}]" if np.isfinite(lo) and np.isfinite(hi) else ""
    return f"{name} {number(value, 'z.1f')}{unit and ' '}{unit}{ends}"


def counted(count: int, one: str) -> str:
    """Return ``1 day`` or ``48 days``."""
    return f"{count:,} {one if count == 1 else one + 's'}"


def robust_limits(values: np.ndarray, *, reach: float = 3.0) -> tuple[float, float]:
    """Return axis limits that show 0 and the bulk of the data, float64 of shape ``(N,)`` without NaN.

    From 8 values on they reach `reach` times the distance of the quartiles beyond these, at most to the data.
    """
    low, high = float(values.min()), float(values.max())
    if len(values) >= 8:
        q1, q3 = np.quantile(values, [0.25, 0.75])
        spread = (q3 - q1) or float(values.std()) / 10
        low, high = max(low, float(q1 - reach * spread)), min(high, float(q3 + reach * spread))
    low, high = min(low, 0.0), max(high, 0.0)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def label_outside(axes: Axes, row: float, value: float) -> None:
    """Write the mean of a row at the edge of the axes if its mark lies beyond."""
    low, high = axes.get_xlim()
    if low <= value <= high:
        return
    mean = f"mean {number(value, ',.0f')} bp"
    place, side, text = (1, "right", f"{mean} →") if value > high else (0, "left", f"← {mean}")
    box = {"facecolor": _theme.get().PAPER, "edgecolor": "none", "pad": 1.5}
    across = axes.get_yaxis_transform()
    axes.text(place, row, text, transform=across, ha=side, va="center", fontsize=8, bbox=box, zorder=6)
