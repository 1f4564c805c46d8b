"""Pages that rlwb writes and serves, opened in Chromium: no complaint in the console, and pictures to look at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlwb.experiment.run import RunDirectory
from tests.browser.tools import chromium, needs_browser, new_page, picture
from tests.notebooks.conftest import commanded
from tests.serving.test_page import Fake

__all__ = ["commanded"]
pytestmark = needs_browser


@pytest.fixture(scope="module")
def browser(commanded: tuple[RunDirectory, str]) -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (1300, "dark"), (400, "light")])
def test_the_report_opens_from_its_file_without_a_network(
    browser: Any, commanded: tuple[RunDirectory, str], width: int, scheme: str
) -> None:
    page, complaints = new_page(browser, offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(commanded[0].report.as_uri())
    assert page.get_by_text("TWAP").count()
    images = page.locator("img:visible")
    assert images.count() == len(list(commanded[0].figures.glob("*.png")))
    assert all(image.evaluate("image => image.complete && image.naturalWidth > 0") for image in images.all())
    assert all(len(image.get_attribute("alt") or "") > 20 for image in images.all()), "said in words too"
    assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing to scroll sideways"
    assert complaints == []
    picture(page, f"report-{width}-{scheme}", full_page=width == 1300)
    page.context.close()


def test_the_services_page_opens(browser: Any) -> None:
    fake = Fake()
    try:
        page, complaints = new_page(browser, viewport={"width": 1300, "height": 900})
        page.goto(fake.url)
        page.wait_for_selector("#content:not([hidden])")
        assert complaints == []
        picture(page, "service", full_page=True)
        page.context.close()
    finally:
        fake.close()
