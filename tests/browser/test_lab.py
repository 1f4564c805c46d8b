"""Notebooks in JupyterLab, in Chromium: they run, and what moves in them is moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.lab import Lab, jupyterlab
from tests.browser.tools import chromium, needs_browser, new_page, picture

pytestmark = needs_browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with jupyterlab(tmp_path_factory.mktemp("lab")) as started:
        yield started


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with chromium() as browser:
        opened, _ = new_page(browser, viewport={"width": 1300, "height": 1000})
        yield opened
        picture(opened, "lab")  # also of a test that failed


def errors(outputs: list[list[dict[str, Any]]]) -> list[str]:
    return [f"{one['ename']}: {one['evalue']}" for cell in outputs for one in cell if one["output_type"] == "error"]


def test_the_quickstart_runs_from_its_first_cell_to_its_last(lab: Lab, page: Any) -> None:
    lab.open(page, "00_quickstart.ipynb", days=20, instruments=4, iterations=3, episodes_per_iteration=80)
    outputs = lab.run_all(page)
    assert errors(outputs) == []
    assert page.locator(".jp-RenderedImage img").count() >= 5
    assert page.get_by_text("95 % interval").count() >= 1
    picture(page.locator(".jp-RenderedImage img").last, "quickstart")
