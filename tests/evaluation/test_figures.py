"""Every figure function: axes have units, titles figures, and no text lies on another or is cut."""

import html
import inspect
import io
import itertools
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from benchmarks.pictures import IMAGES, PAGE, SHOWN, described
from rlwb.errors import ConfigError
from rlwb.evaluation import decision_plots, plots, seed_plots, stability_plots, stress_plots, style, training_plots
from rlwb.evaluation.quality import quality_page
from rlwb.execution import ExecutionRules
from rlwb.market import Calendar
from rlwb.study import search_plots
from tests.evaluation.figures import DRAWN, LUNCH, NIGHT, ODD, over_midnight, quality, sessions, ticks

MODULES = (plots, seed_plots, stability_plots, stress_plots, decision_plots, training_plots, search_plots)

#: How a label ends that has a unit, or says that there is none; and labels of places, which need none.
UNIT = re.compile(
    r"(bp|%|ms|nats|steps/s|shares|count|number|a share|bars|standard deviations|of a bar|\(no unit\)|\(1 is all\))$"
)
UNIT_INSIDE = re.compile(r"(, bp |\(1 is all\)|\btimes\b|parts of equal count|\(how many\)|, bp of )")
PLACES = {"day", "test day", "time of day", "day and time of day", "iteration", "steps done", "policy", "condition"}
PLACES |= {
    "instrument",
    "month, and its trading days (d) with a PA",
    "window, its first test day, and its test days (d)",
}


def drawn_texts(figure):
    """Return the texts that are seen with their boxes, in pixels of the figure."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    shown = [*figure.texts, *(text for one in figure.legends for text in one.get_texts())]
    for axes in figure.axes:
        shown += axes.texts
        if axes.get_visible() and axes.axison:
            shown += [axes.title, axes._left_title]
            for axis in (axes.xaxis, axes.yaxis):
                low, high = sorted(axis.get_view_interval())
                seen = [tick for tick in axis._update_ticks() if low - 1e-9 <= tick.get_loc() <= high + 1e-9]
                shown += [axis.label, axis.offsetText, *(label for one in seen for label in (one.label1, one.label2))]
    shown = [text for text in dict.fromkeys(shown) if text.get_visible() and text.get_text().strip()]
    return [(text, text.get_window_extent(canvas.get_renderer())) for text in shown]


def faults(figure, *, paper=None):
    """Return what is wrong with the words of a figure."""
    found, boxes = [], drawn_texts(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in boxes:
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1:
            found.append(f"{text.get_text()!r} is cut: {np.round(box.extents)} in {width:.0f} x {height:.0f}")
        if (
            paper and contrast(text.get_color(), paper) < 4.5 and text.get_fontsize() > 5.5
        ):  # numbers on a map of colours
            found.append(f"{text.get_text()!r} is hard to see")
        if text.get_parse_math() and "$" in text.get_text():
            found.append(f"{text.get_text()!r} is read as a formula")
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across, up = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if across > 1 and up > 2:
            found.append(f"{one.get_text()!r} lies on {other.get_text()!r} by {across:.0f} x {up:.0f}")
    return found


def linear(color):
    """Return red, green and blue of light, of a colour in sRGB."""
    values = np.array(to_rgb(color))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """Return the contrast of WCAG 2.2."""
    low, high = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) + 0.05 for color in (one, other))
    return high / low


#: What people see who lack one kind of cone, of linear red, green and blue: Machado, Oliveira and Fernandes (2009).
SEEN = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(light):
    """Return CIELAB of linear sRGB under D65."""
    xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    ) @ np.clip(light, 0, 1)
    x, y, z = (np.cbrt(v) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz / [0.95047, 1.0, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_cielab_is_that_of_white_and_of_red():
    np.testing.assert_allclose(lab(linear("#FFFFFF")), [100, 0, 0], atol=0.02)
    np.testing.assert_allclose(lab(linear("#FF0000")), [53.24, 80.09, 67.20], atol=0.02)
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21.0)


@pytest.mark.parametrize("name", style.THEMES)
def test_colours_are_told_apart_by_everybody_and_seen_on_the_paper(name):
    theme = style.THEMES[name]
    colors = {color for color, _ in theme.POINTS}
    assert len(colors) == 8
    for matrix in SEEN.values():
        seen = [lab(matrix @ linear(color)) for color in sorted(colors)]
        assert min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2)) > 20
    assert min(contrast(color, theme.PAPER) for color in colors) > 2.99
    assert min(contrast(color, theme.PAPER) for color in (theme.INK, theme.MUTED)) > 4.5
    assert len(set(theme.POINTS)) == 64


def test_every_figure_function_is_among_the_drawn():
    functions = {
        name
        for module in MODULES
        for name, one in inspect.getmembers(module, inspect.isfunction)
        if one.__module__ == module.__name__ and not name.startswith("_") and hasattr(one, "__wrapped__")
    }
    assert functions | {"OrderFigure"} == set(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_at_900_pixels_has_units_a_title_with_its_figure_and_words_in_its_place(name):
    with style.theme("light", width=900):
        figure = DRAWN[name]()
    assert faults(figure, paper="#FFFFFF") == []
    assert re.search(r"\d", figure.title), figure.title
    for axes in figure.axes:
        if not axes.axison or axes.get_label() == "<colorbar>":
            continue
        place = axes.get_subplotspec()
        for axis, is_outer in ((axes.xaxis, place.is_last_row()), (axes.yaxis, place.is_first_col())):
            label = axis.get_label().get_text().replace("\n", " ")
            ok = UNIT.search(label) or UNIT_INSIDE.search(label) or label in PLACES
            is_named = not label and any(re.search("[A-Za-z]", one.get_text()) for one in axis.get_ticklabels())
            setting = name == "slices" and axis is axes.xaxis
            assert ok or is_named or setting or not (label or is_outer), f"the axis {label!r} has no unit"
    assert figure.alt.startswith(figure.title)
    assert "\n" not in figure.alt


def test_pictures_hold_the_plot_in_words(tmp_path):
    figure = DRAWN["seed_points"]()
    png, svg = plots.save_figure(figure, tmp_path / "points")
    assert style.alt_of(png) == figure.alt
    assert figure.alt in repr(figure), "what a notebook keeps beside the picture"
    assert figure.alt.startswith("10 best checkpoints: test PA 17.3 bp [13.8, 20.8] over 10 seeds; circles: seeds; ")
    assert figure.alt.endswith("; mean test PA, bp across.")
    assert b"<dc:description>" in svg.read_bytes()
    figure.savefig(stream := io.BytesIO())  # as a notebook does
    assert stream.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", [*DRAWN, *ODD])
def test_f07_a_figure_for_a_phone_at_night_has_no_text_on_another(name):
    with style.theme("dark", width=400):
        figure = {**DRAWN, **ODD}[name]()
    assert figure.get_figwidth() * style.INCH == pytest.approx(400)
    assert faults(figure, paper=style.THEMES["dark"].PAPER) == []
    assert to_rgb(figure.get_facecolor()) == to_rgb(style.THEMES["dark"].PAPER)


def test_themes_end_where_they_end_and_unknown_ones_are_named():
    with style.theme("dark", width=400), style.theme("print"):
        assert style.INK == "#000000"
        assert style.is_narrow()
    assert style.INK == style.THEMES["light"].INK
    assert not style.is_narrow()
    with pytest.raises(ConfigError, match="blue"), style.theme("blue"):
        pass
    with pytest.raises(ConfigError, match="width"), style.theme(width=10):
        pass
    with pytest.raises(AttributeError, match="PINK"):
        _ = style.PINK


def test_a_figure_that_is_renamed_is_laid_out_again():
    figure = DRAWN["pa_by_month"]()
    height = figure.get_figheight()
    assert plots.rename(figure, lambda text: text).get_figheight() == pytest.approx(height)
    plots.rename(figure, ExecutionRules(benchmark="arrival").name_pa)
    assert figure.title.startswith("PA over arrival ")
    assert "PA over arrival" in figure.alt
    assert faults(figure) == []


def test_words_are_wrapped_to_the_room():
    probe = Text(fontsize=9)
    assert style.wrapped("a b c", 9.0, probe) == "a b c"
    assert style.wrapped("aaaa bbbb", 0.4, probe) == "aaaa\nbbbb"
    assert style.wrapped("PA 0.0 bp", 0.5, probe) == "PA\n0.0 bp", "a number and its unit are one word"
    assert style.wrapped("a" * 30, 1.0, probe).replace("\n", "") == "a" * 30
    assert max(map(len, style.wrapped("a" * 30, 1.0, probe).splitlines())) < 20


def test_a_clock_parts_the_line_at_lunch():
    clock = style.Clock(np.array([36000, 36060, 46800, 46860]))
    assert clock.is_first.tolist() == [False, False, True, False]
    assert clock.at.tolist() == [0, 1, 3, 4]
    x, y = clock.line(np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(x, [0, 1, np.nan, 3, 4])
    np.testing.assert_array_equal(y, [1, 2, np.nan, 3, 4])
    x, y = clock.steps(np.array([1.0, 0.75, 0.5, 0.25, 0.0]))
    np.testing.assert_array_equal(x, [0, 1, 2, np.nan, 3, 4, 5])
    np.testing.assert_array_equal(y, [1, 0.75, 0.5, np.nan, 0.5, 0.25, 0])
    x, _ = clock.steps(np.array([1.0, 0.5, 0.0]))  # was filled before lunch
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_a_clock_runs_over_midnight_and_an_hour_alone_has_no_break():
    assert not style.Clock(np.array([86280, 86340, 0, 60])).is_first.any()
    assert style.Clock(np.array([86280, 86340, 9000])).is_first.tolist() == [False, False, True]
    assert style.Clock(np.array([36000])).is_first.tolist() == [False]
    assert style.Clock(np.array([], dtype=np.int64)).is_first.tolist() == []


@pytest.mark.parametrize(
    ("draw", "gaps"),
    [
        (lambda: plots.session_bars(sessions(LUNCH), 0), 1),
        (lambda: plots.session_bars(sessions(Calendar.preset("us")), 0), 0),
        (lambda: plots.intraday_profiles(sessions(NIGHT)), 3),
        (lambda: plots.order_path({"a": ticks(NIGHT)}), 3),
        (lambda: plots.order_path({"a": over_midnight()}), 0),
        (DRAWN["worst_findings"], 2),
        (DRAWN["OrderFigure"], 1),
    ],
)
def test_no_line_is_drawn_across_closed_hours(draw, gaps):
    figure = draw()
    for axes in figure.axes[:4]:  # of an order, those over time come first
        grey = [patch for patch in axes.patches if to_rgb(patch.get_facecolor()) == to_rgb(style.FAINT)]
        spans = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in grey]
        assert len(spans) == gaps
        for line in axes.lines:
            x = np.asarray(line.get_xdata() if line.get_linestyle() != "None" else [], dtype=float)
            for low, high in spans:
                middle = (low + high) / 2
                across = (x[:-1] < middle) & (x[1:] > middle)
                assert not across.any() or len(x) == 2, "a line lies across a break"


def test_a_figure_of_30_policies_gives_each_a_look_of_its_own():
    figure = ODD["cumulative_pa of 30 policies"]()
    labels = figure.axes[0].get_legend_handles_labels()
    baselines = [
        (handle.get_color(), str(handle.get_linestyle()), str(handle._unscaled_dash_pattern))
        for handle, label in zip(*labels, strict=True)
        if "chosen" not in label
    ]
    assert len(set(baselines)) == len(baselines) == 33


def test_the_gallery_describes_each_picture_by_the_words_that_it_holds():
    page = PAGE.read_text(encoding="utf-8")
    assert described(page) == page
    named = set(re.findall(r"\(images/(\w+)\.png\)", page))
    assert {*SHOWN, "order", "order_dark", "order_phone", "session_bars", "intraday_profiles"} == named
    assert all(len(style.alt_of(IMAGES / f"{name}.png")) > 60 for name in named)
    for name in DRAWN:
        assert re.search(rf"`[\w.]*\b{name}`", page), f"docs/plots.md does not name {name}"


def test_the_blocks_of_the_page_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(style, "THEMES", dict(style.THEMES))
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        exec(block, names)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["learning.png", "learning.svg"]
    assert names["figure"].alt.startswith("Highest validation PA 9.0 bp; ")
    assert style.THEMES["mine"].BLUE == "#003F88"


def test_a_figure_that_is_made_smaller_keeps_its_title_over_the_axes():
    figure = DRAWN["learning_curves_of_seeds"]()
    figure.set_size_inches(7.2, 3.0)
    assert faults(figure) == []
    top = max(axes.get_window_extent().y1 for axes in figure.axes)
    assert top < min(text.get_window_extent().y0 for text in figure.texts)


def test_a_notebook_that_crops_a_figure_leaves_its_title():
    """As IPython's inline backend saves them."""
    figure, file = DRAWN["learning_curves_of_seeds"](), io.BytesIO()
    figure.savefig(file, format="png", dpi=figure.dpi, bbox_inches="tight", pad_inches=0)
    height, width, _ = imread(io.BytesIO(file.getvalue())).shape
    assert (width, height) == tuple(np.floor(figure.bbox.size))


def test_a_figure_of_another_layout_has_its_legend_and_no_formula():
    @style.styled
    def draw():
        figure = Figure(layout="constrained")
        figure.add_subplot().plot([0, 1], label="$a$ and $b$")
        return figure

    figure = draw()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["$a$ and $b$"]
    assert faults(figure) == []


def test_pages_say_in_words_what_a_picture_shows():
    found = quality(["A", "B"], 10)
    page = quality_page(found)
    assert plots.coverage_calendar(found).alt in html.unescape(page)
    assert page.count('alt="') == page.count("<img") == 4, "one of them for a narrow page as well"
    assert style.words_of(b"no picture") == ""
