"""Pages against the rules of WCAG 2 A and AA, by axe in Chromium, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from rlwb.experiment.compare import compare
from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from tests.browser.tools import chromium, needs_browser, new_page, picture
from tests.experiment.test_work import tiny
from tests.notebooks.small import NOTEBOOKS, by_hand
from tests.serving.test_page import Fake

pytestmark = needs_browser
SMALL = {"train.iterations": 2, "baselines": ["twap", "hindsight"]}


def violations(page: Any, *, exclude: tuple[str, ...] = ()) -> list[str]:
    """Return what axe finds wrong, with the elements."""
    from axe_playwright_python.sync_playwright import Axe

    options = {"runOnly": ["wcag2a", "wcag2aa"], "resultTypes": ["violations"]}
    context = {"exclude": [[one] for one in exclude]} if exclude else None
    found = Axe().run(page, context, options).response["violations"]
    return [f"{one['id']}: {node['html'][:160]} ({node['failureSummary']})" for one in found for node in one["nodes"]]


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of one small run, with the page of either."""
    folder = tmp_path_factory.mktemp("compared")
    compare(folder, {"ppo": tiny(**SMALL)}, echo=lambda line: None)
    write_report(RunDirectory.open(folder / "ppo"))
    return folder


@pytest.fixture(scope="module")
def browser(compared: Path) -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["comparison.html", "ppo/report.html"])
def test_a_page_of_runs_can_be_read_by_all(browser: Any, compared: Path, name: str, scheme: str) -> None:
    page, _ = new_page(browser, color_scheme=scheme)
    page.goto((compared / name).as_uri())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    picture(page, f"axe-{Path(name).stem}-{scheme}", full_page=True)
    assert violations(page) == []
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_services_page_can_be_read_by_all(browser: Any, scheme: str) -> None:
    fake = Fake()
    try:
        page, _ = new_page(browser, color_scheme=scheme)
        page.goto(fake.url)
        page.wait_for_selector("#content:not([hidden])")
        assert violations(page) == []
        page.context.close()
    finally:
        fake.close()


def test_an_exported_notebook_can_be_read_by_all(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the prompts and the colours of code, which are nbconvert's own theme."""
    import nbconvert

    book = by_hand(NOTEBOOKS / "10_synthetic_market.ipynb", tmp_path / "book.ipynb", days=20, instruments=2)
    # Its templates lie in the environment that this one lies on.
    monkeypatch.setenv("JUPYTER_PATH", str(Path(nbconvert.__file__).parents[4] / "share" / "jupyter"))
    text, _ = nbconvert.HTMLExporter().from_notebook_node(nbformat.from_dict(book))
    (tmp_path / "book.html").write_text(text)
    page, _ = new_page(browser)
    page.goto((tmp_path / "book.html").as_uri())
    assert violations(page, exclude=(".jp-InputPrompt", ".jp-OutputPrompt", ".highlight")) == []
    page.context.close()
