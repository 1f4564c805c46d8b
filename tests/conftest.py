"""Settings of all tests."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import Phase, settings

# Code that tests name is remembered as trusted there, and not in the home of whoever runs them.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="rlwb-tests-")

# What is started in the background ignores an interrupt, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test fails for being slow. A run that decides whether a change may land draws the same examples each time;
# everywhere else they are new ones.
settings.register_profile("fresh", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True)
# Mutants: the same examples each time, and a failure is enough, so it is not made smaller.
settings.register_profile("mutants", deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
settings.load_profile("repeatable" if os.environ.get("CI") else "fresh")


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """Give signals back to whom they belonged: what a later test forks would inherit what this one set."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
