"""Pages and texts from the templates of this room; a page is one HTML file with its pictures in it."""

from __future__ import annotations

import base64
import functools
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

if TYPE_CHECKING:
    from markupsafe import Markup


@functools.cache
def script(name: str) -> Markup:
    """Return a script of ``rlwb/evaluation/templates``, as a page holds it between its tags."""
    from markupsafe import Markup

    return Markup((Path(__file__).with_name("templates") / name).read_text(encoding="utf-8"))


def digest(name: str) -> Markup:
    """Return a script's hash, by which the policy of a page's content lets a browser run it."""
    from markupsafe import Markup

    found = base64.b64encode(hashlib.sha256(script(name).encode()).digest()).decode("ascii")
    return Markup(f"'sha256-{found}'")


def columns_of_words(rows: Sequence[Sequence[object]]) -> set[int]:
    """Return the columns after the first in which a cell begins with a letter: read, not compared by digits."""
    return {at for row in rows for at, cell in enumerate(row) if at and str(cell)[:1].isalpha()}


def link(path: Path, page: Path) -> str:
    """Return the address of a file in a page that lies at `page`: relative, so that their folder can be moved."""
    try:
        return quote(Path(os.path.relpath(path, page.parent)).as_posix())
    except ValueError:  # on another drive of Windows
        return path.absolute().as_uri()


_TEMPLATES = Environment(
    loader=PackageLoader("rlwb.evaluation"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)
_TEMPLATES.globals.update(script=script, digest=digest, columns_of_words=columns_of_words)


def render(template: str, **values: Any) -> str:
    """Return a file of ``rlwb/evaluation/templates`` with all the values that it names; HTML is escaped."""
    return _TEMPLATES.get_template(template).render(**values)
