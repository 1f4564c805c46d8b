"""Pages and texts from the templates of this room; a page is one HTML file with its pictures in it."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATES = Environment(
    loader=PackageLoader("rlwb.evaluation"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
)


def render(template: str, **values: Any) -> str:
    """Return a file of ``rlwb/evaluation/templates`` with all the values that it names; HTML is escaped."""
    return _TEMPLATES.get_template(template).render(**values)


def encoded(content: bytes | Figure) -> str:
    """Return a PNG, or a figure drawn as one, in base64 as pages hold it."""
    if not isinstance(content, bytes):
        stream = io.BytesIO()
        content.savefig(stream, format="png", metadata={"Software": None})
        content = stream.getvalue()
    return base64.b64encode(content).decode("ascii")
