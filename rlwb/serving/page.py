"""The page of a service for people: one file, which asks the service for its figures."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

_FILE = Path(__file__).with_name("static") / "page.html"


@functools.cache
def page() -> tuple[bytes, dict[str, str]]:
    """Return the page and its headers.

    The policy of its content lets a browser run its own script and style alone, by their hashes, and ask only
    the service that it came from.
    """
    text = _FILE.read_text(encoding="utf-8")
    rules = ["default-src 'none'", "connect-src 'self'", "img-src data:", "form-action 'none'", "base-uri 'none'"]
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
        rules.append(f"{tag}-src 'sha256-{digest}'")
    return text.encode(), {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "; ".join([*rules, "frame-ancestors 'none'"]),
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-cache",
    }
