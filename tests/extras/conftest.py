"""Tests of the large extras, which have an environment of their own; elsewhere one test says what is missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

if find_spec("ray") is None:
    collect_ignore = [path.name for path in Path(__file__).parent.glob("test_*.py") if path.stem != "test_environment"]
