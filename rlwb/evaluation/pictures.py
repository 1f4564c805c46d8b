"""Pictures in pages: as light as they can be, in the reader's colours, and laid out for a telephone as well."""

from __future__ import annotations

import base64
import html
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from markupsafe import Markup

from rlwb.evaluation import style
from rlwb.reading import read_bytes, read_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width on a telephone, in pixels of a page, and the folder of pictures of that width.
NARROW, NARROW_FOLDER = 380, "narrow"
#: Most letters of an SVG in a page, above which a PNG is the lighter one.
MOST_LETTERS = 300_000
_COLOR = re.compile("#[0-9a-f]{6}")


@dataclass(frozen=True)
class Picture:
    """A picture as a page holds it.

    Attributes
    ----------
    src
        Its content as a ``data:`` URI, ready to stand between double quotes.
    alt
        The picture in words; empty where it has none.
    caption
        What stands under it.
    narrow
        Content of the picture for a telephone; None where it has the same.
    """

    src: Markup
    alt: str
    caption: str = ""
    narrow: Markup | None = None


def picture(drawn: Figure | Path, caption: str = "") -> Picture:
    """Return a figure, or a PNG beside which `save_picture` wrote its others, for a page.

    One in the colours of the light theme alone becomes an SVG that a reader in the dark sees in those of the dark one
    (`follow_reader`); any other is a PNG. An SVG is also the smaller of the two, most often by more than half.
    """
    from rlwb.evaluation.plots import save_figure

    if isinstance(drawn, Path):
        return _vectors(drawn, caption) or _pixels(drawn, caption)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        save_picture(drawn, path.with_suffix(""), kinds=("svg",))
        if (found := _vectors(path, caption)) is None:
            save_figure(drawn, path.with_suffix(""), kinds=("png",))
            found = _pixels(path, caption)
        return found


def _vectors(path: Path, caption: str) -> Picture | None:
    """Return the SVG beside a PNG, and its narrow one; None where there is none that follows the reader."""
    vectors = path.with_suffix(".svg")
    told = read_text(vectors) if vectors.is_file() else ""
    if (svg := follow_reader(told)) is None:
        return None
    found = re.search("<dc:description>(.*?)</dc:description>", told, re.DOTALL)
    beside = path.parent / NARROW_FOLDER / vectors.name
    narrow = follow_reader(read_text(beside)) if beside.is_file() else None
    return Picture(_uri(svg), html.unescape(found[1]) if found else "", caption, _uri(narrow) if narrow else None)


def _pixels(path: Path, caption: str) -> Picture:
    content = read_bytes(path)
    src = f"data:image/png;base64,{base64.b64encode(content).decode('ascii')}"
    return Picture(Markup(src), style.words_of(content), caption)


def save_picture(figure: Figure, stem: str | os.PathLike[str], *, kinds: Sequence[str] = ("png", "svg")) -> None:
    """Write ``<stem>.png``, ``<stem>.svg`` and, of a `rlwb.evaluation.style.Plot`, ``narrow/<name>.svg``."""
    from rlwb.evaluation.plots import save_figure

    save_figure(figure, stem, kinds=kinds)
    if isinstance(figure, style.Plot):
        with _narrowed(figure):
            save_figure(figure, Path(stem).parent / NARROW_FOLDER / Path(stem).name, kinds=("svg",))


@contextmanager
def _narrowed(figure: style.Plot) -> Iterator[None]:
    width = figure.get_figwidth()
    figure.set_figwidth(NARROW / style.INCH)
    figure.lay_out()
    try:
        yield
    finally:
        figure.set_figwidth(width)
        figure.lay_out()


def follow_reader(svg: str) -> str | None:
    """Return Matplotlib's SVG in colours that a browser takes from the theme of its reader, ``light`` or ``dark``.

    What no reader sees is left out, and positions are rounded to a hundredth of a point. None where a colour is none
    of the light theme's, and of an SVG that is larger than a page should hold, or none.
    """
    light, dark = (vars(style.THEMES[name]) for name in ("light", "dark"))
    names = {light[name].lower(): (f"--{name}", light[name], dark[name]) for name in light if name != "dpi"}
    svg = _short(svg)
    if not svg or len(svg) > MOST_LETTERS or "<image" in svg or not names.keys() >= set(_COLOR.findall(svg)):
        return None
    svg = re.sub(r'\bfill="(#\w{6})"', r'style="fill:\1"', svg)  # an attribute holds no variable
    svg = _COLOR.sub(lambda one: f"var({names[one[0]][0]})", svg)
    here, there = ("".join(f"{one[0]}:{one[at]};" for one in names.values()) for at in (1, 2))
    sheet = f"<style>:root{{{here}}}@media (prefers-color-scheme:dark){{:root{{{there}}}}}</style>"
    return svg.replace(">", f">{sheet}", 1)


def _short(svg: str) -> str:
    """Return Matplotlib's SVG without what no reader sees."""
    svg = re.sub("<metadata>.*?</metadata>|<!--.*?-->", "", svg[svg.find("<svg") :], flags=re.DOTALL)
    svg = re.sub(r"\s+", " ", svg).replace("> <", "><").replace("xlink:href", "href")
    svg = re.sub(r'\b(?:d|x|y)="[^"]*"|translate\([^)]*\)', lambda one: re.sub(r"-?\d+\.\d+", _rounded, one[0]), svg)
    svg = re.sub(r'\bd="[^"]*"', lambda one: re.sub(" ?([MLQCz]) ?", r"\1", one[0]), svg)
    svg = re.sub(r'style="[^"]*"', lambda one: one[0].replace(": ", ":").replace("; ", ";"), svg)
    meant = r'(href="#|url\(#)([^")]+)'
    short = {name: f"i{number}" for number, (_, name) in enumerate(dict.fromkeys(re.findall(meant, svg)))}
    svg = re.sub(r' id="([^"]*)"', lambda one: f' id="{short[one[1]]}"' if one[1] in short else "", svg)
    return re.sub(meant, lambda one: one[1] + short[one[2]], svg)


def _rounded(number: re.Match[str]) -> str:
    return f"{float(number[0]):z.2f}".rstrip("0").rstrip(".")


def _uri(svg: str) -> Markup:
    text = quote(svg, safe=' <>/:;=,.()-_{}@*"').replace('"', "'")
    return Markup(f"data:image/svg+xml,{text}")
