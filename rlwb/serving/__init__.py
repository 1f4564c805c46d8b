"""Serving: a trained policy as a bundle of files, in a process of one's own, and behind HTTP."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlwb.serving.bundle import Bundle, open_bundle
    from rlwb.serving.export import export_run
    from rlwb.serving.policy import BundlePolicy, Decision

__all__ = ["Bundle", "BundlePolicy", "Decision", "export_run", "open_bundle"]

#: Where each name is; modules are loaded when a name of theirs is asked for, since not all of them need torch.
_PLACES = {
    "Bundle": "bundle",
    "open_bundle": "bundle",
    "export_run": "export",
    "BundlePolicy": "policy",
    "Decision": "policy",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
