"""Pages that need nothing else: HTML from the templates of this room, with pictures in it."""

from __future__ import annotations

import base64
import io
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure


def render(template: str, **values: Any) -> str:
    """Return a page; every value is escaped.

    Parameters
    ----------
    template
        A file in ``rlwb/evaluation/templates``.
    values
        What it names; one that is missing is an error.
    """
    return _environment().get_template(template).render(**values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("rlwb.evaluation"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )


def encoded(content: bytes | Figure) -> str:
    """Return a PNG, or a figure as one, in the form that a page holds."""
    if isinstance(content, Figure):
        stream = io.BytesIO()
        content.savefig(stream, format="png", metadata={"Software": None})
        content = stream.getvalue()
    return base64.b64encode(content).decode("ascii")
