"""Settings of all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# No test fails for being slow. A run that decides whether a change may land draws the same examples each time;
# everywhere else they are new ones.
settings.register_profile("fresh", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable" if os.environ.get("CI") else "fresh")
