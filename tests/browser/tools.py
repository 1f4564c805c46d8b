"""Chromium for tests, and the folder of the pictures that they take."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
#: For people to look at; no test compares them.
PICTURES = Path(__file__).resolve().parents[2] / "build" / "browser"
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the path")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium, headless, and close it in the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def new_page(browser: Any, **options: Any) -> tuple[Any, list[str]]:
    """Return a page in a profile of its own, and the list that collects what its console complains of."""
    page, complaints = browser.new_context(**options).new_page(), []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.set_default_timeout(120_000)
    return page, complaints


def picture(page: Any, name: str, **options: Any) -> Path:
    """Keep a screenshot of a page, or of an element, as ``build/browser/NAME.png``."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", **options)
    return PICTURES / f"{name}.png"
