"""The sentence that refuses a figure which will never come."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def unknown_figure(who: str, name: str, known: Collection[str]) -> str:
    """Return what is wrong when `who` watches the figure `name`, and which figures there are."""
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    names = ", ".join(sorted(name for name in known if not name.endswith("_count")))
    return f"{who} watches {name!r}, which is not among the figures {names}{hint}"
