from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is asked directly, whatever proxy the machine is set to."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
