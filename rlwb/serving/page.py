"""The pages of a service for people: one that asks it for its figures, and one that lists its operations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlwb.webpage import PAGE_HEADERS, webpage

_FILE = Path(__file__).with_name("static") / "page.html"


def page() -> tuple[bytes, dict[str, str]]:
    """Return the page and its headers (`rlwb.webpage.webpage`)."""
    return webpage(_FILE)


def operations_page(description: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return a page of all operations, made from their OpenAPI description, and its headers; it needs no script."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    templates = Environment(
        loader=PackageLoader("rlwb.serving"), autoescape=select_autoescape(), undefined=StrictUndefined
    )
    templates.filters["told"] = _told
    text = templates.get_template("operations.html").render(about=description)
    rules = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return text.encode(), {**PAGE_HEADERS, "content-security-policy": rules}


def _told(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema in a few words: ``number, above 0``, ``OrderIn or array of OrderIn``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    for name in ("anyOf", "oneOf"):
        if name in schema:
            return " or ".join(dict.fromkeys(_told(each) for each in schema[name]))
    if "enum" in schema:
        return " or ".join(repr(each) for each in schema["enum"])
    kind = schema.get("type", "anything")
    parts = [f"array of {_told(schema['items'])}" if kind == "array" and "items" in schema else str(kind)]
    words = {
        "format": "{}",
        "pattern": "matching {}",
        "exclusiveMinimum": "above {}",
        "minimum": "at least {}",
        "exclusiveMaximum": "below {}",
        "maximum": "at most {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "minItems": "at least {} of them",
        "maxItems": "at most {} of them",
        "default": "default {}",
    }
    return ", ".join([*parts, *(text.format(schema[name]) for name, text in words.items() if name in schema)])
