"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# A run that decides whether a change may land draws the same examples each time; everywhere else they are new ones.
settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("repeatable")
