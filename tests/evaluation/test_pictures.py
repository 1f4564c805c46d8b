"""Pictures in pages: those of a reader in the dark are what is drawn in the dark, and a telephone has its own."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

import tests.evaluation.figures as drawings
from rlwb.evaluation import plots, style
from rlwb.evaluation.page import link
from rlwb.evaluation.pictures import follow_reader, picture, save_picture


def drawn_in(theme: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(drawings, "RNG", np.random.default_rng(0))
    with style.theme(theme):
        (path,) = plots.save_figure(drawings.DRAWN[name](), folder / theme, kinds=("svg",))
    return path.read_text()


def painted(svg: str, theme: str) -> list[str]:
    """Return all colours of a picture that follows its reader, in order, as a reader of a theme sees them."""
    told = re.search(rf"{'dark' if theme == 'dark' else '<style'}[^{{]*{{?:root{{(.*?)}}", svg)
    assert told is not None
    colors = dict(one.split(":") for one in told[1].strip(";").split(";"))
    return [colors[name].lower() for name in re.findall(r"var\((--\w+)\)", svg)]


@pytest.mark.parametrize("name", ["cost_parts", "pa_distribution", "learning_curves", "frontier"])
def test_the_dark_picture_has_the_colours_and_lines_of_one_drawn_in_the_dark(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {theme: drawn_in(theme, name, tmp_path, monkeypatch) for theme in ("light", "dark")}
    found = follow_reader(texts["light"])
    assert found is not None
    assert len(found) < 0.75 * len(texts["light"])
    ElementTree.fromstring(found)
    for theme, text in texts.items():
        assert painted(found, theme) == re.findall("#[0-9a-f]{6}", text), theme
    paths = {theme: len(re.findall("<path", text)) for theme, text in {**texts, "found": found}.items()}
    assert len(set(paths.values())) == 1


def test_what_has_other_colours_or_too_many_letters_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    svg = drawn_in("light", "pa_by_month", tmp_path, monkeypatch)
    assert follow_reader(svg.replace(style.THEMES["light"].BLUE.lower(), "#123456")) is None
    monkeypatch.setattr("rlwb.evaluation.pictures.MOST_LETTERS", 10_000)
    assert follow_reader(svg) is None
    assert follow_reader("") is None
    figure = drawings.DRAWN["coverage_calendar"]()
    shown = picture(figure, "Days")
    assert shown.src.startswith("data:image/png;base64,")
    assert not shown.narrow
    assert (shown.alt, shown.caption) == (figure.alt, "Days")


def test_a_page_holds_a_picture_for_either_width_with_the_same_words(tmp_path: Path) -> None:
    figure = drawings.DRAWN["pa_by_month"]()
    width, height = figure.get_size_inches()
    save_picture(figure, tmp_path / "month")
    assert figure.get_size_inches() == pytest.approx([width, height]), "it is the caller's, as it was"
    shown = picture(tmp_path / "month.png")
    assert shown.alt == figure.alt == html.unescape(shown.alt)
    assert shown == picture(figure)
    wide, narrow = (
        ElementTree.fromstring(unquote(one.removeprefix("data:image/svg+xml,")).replace("'", '"'))
        for one in (shown.src, shown.narrow)
    )
    assert float(wide.get("width", "").removesuffix("pt")) == pytest.approx(72 * width)
    assert float(narrow.get("width", "").removesuffix("pt")) == pytest.approx(72 * 380 / style.INCH, abs=0.1)
    assert '"' not in shown.src


def test_links_of_a_page_are_relative_to_it(tmp_path: Path) -> None:
    assert link(tmp_path / "runs/a b?/report.html", tmp_path / "out/page.html") == "../runs/a%20b%3F/report.html"
    assert link(tmp_path / "out/one.html", tmp_path / "out/page.html") == "one.html"
