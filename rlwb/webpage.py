"""Pages of one file for a browser: the file, and headers that let it run its own script and style alone."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path

PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


@functools.cache
def webpage(file: Path, images: str = "data:") -> tuple[bytes, dict[str, str]]:
    """Return a page and its headers.

    The policy of its content lets a browser run its own script and style alone, by their hashes, ask only the service
    that it came from, and show images from `images`.
    """
    text = file.read_text(encoding="utf-8")
    rules = ["default-src 'none'", "connect-src 'self'", f"img-src {images}", "form-action 'none'", "base-uri 'none'"]
    for tag in ("script", "style"):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
        rules.append(f"{tag}-src 'sha256-{digest}'")
    return text.encode(), {**PAGE_HEADERS, "content-security-policy": "; ".join([*rules, "frame-ancestors 'none'"])}
