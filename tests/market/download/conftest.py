from __future__ import annotations

import time

import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is asked directly, whatever proxy the machine is set to."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits in no time and remembers how long."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited
