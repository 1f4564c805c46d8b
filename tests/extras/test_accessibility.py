"""Pages can be read and used by all: the rules of axe in Chromium, light, dark and on a telephone, and the Tab key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from rlwb.experiment.report import draw_stability, write_report
from rlwb.experiment.run import RunDirectory
from rlwb.study.across import compare_runs, write_across
from tests.browser.tools import chromium, needs_browser, new_page, picture
from tests.experiment.conftest import judged as judged
from tests.notebooks.small import NOTEBOOKS, by_hand
from tests.serving.test_page import Fake

pytestmark = needs_browser
#: What the Tab key has to reach; of radio buttons the chosen one, with arrows to the others.
CONTROLS = """() => [...document.querySelectorAll(
  'a[href], button, input:not([type=radio]:not(:checked)), select, summary, [tabindex="0"]')]
  .filter(one => one.checkVisibility({visibilityProperty: true}) && !one.disabled)
  .map((one, number) => { one.dataset.control = number; return String(number); })"""
FOCUSED = """() => { const one = document.activeElement, style = getComputedStyle(one);
  return [one.dataset.control, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2]; }"""


def violations(page: Any, *, exclude: tuple[str, ...] = (), **options: Any) -> list[str]:
    """Return what axe finds wrong, with the elements."""
    from axe_playwright_python.sync_playwright import Axe

    context = {"exclude": [[one] for one in exclude]} if exclude else None
    found = Axe().run(page, context, {"resultTypes": ["violations"], **options}).response["violations"]
    return [f"{one['id']}: {node['html'][:160]} ({node['failureSummary']})" for one in found for node in one["nodes"]]


def out_of_reach(page: Any) -> set[str]:
    """Return the controls that the Tab key does not reach from the page's top, or that do not show that it did."""
    controls = page.evaluate(CONTROLS)
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached = set()
    for _ in controls:
        page.keyboard.press("Tab")
        number, is_shown = page.evaluate(FOCUSED)
        reached |= {number} if is_shown else set()
    return set(controls) - reached


@pytest.fixture(scope="module")
def folder(judged: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run with its report, and a comparison's page beside it."""
    folder: Path = tmp_path_factory.mktemp("pages")
    shutil.copytree(judged.path, folder / "run", symlinks=True)
    run = RunDirectory.open(folder / "run")
    draw_stability(run, run.config)
    write_report(run)
    write_across(folder / "compared", compare_runs([run.path]))
    return folder


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.mark.parametrize(("scheme", "width"), [("light", 1300), ("dark", 1300), ("dark", 400)])
@pytest.mark.parametrize("name", ["run/report.html", "compared/runs.html"])
def test_a_page_of_runs_can_be_read_by_all(browser: Any, folder: Path, name: str, scheme: str, width: int) -> None:
    # axe is put into the page, which lets no script but its own run.
    options = {"viewport": {"width": width, "height": 900}, "bypass_csp": True}
    page, complaints = new_page(browser, color_scheme=scheme, offline=True, **options)
    page.goto((folder / name).as_uri())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    picture(page, f"axe-{Path(name).stem}-{scheme}-{width}", full_page=True)
    assert violations(page) == []
    if scheme == "light":
        assert out_of_reach(page) == set()
    assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing to scroll sideways"
    assert complaints == []
    page.context.close()


def test_the_services_pages_can_be_read_by_all(browser: Any) -> None:
    fake = Fake()
    try:
        for scheme, width in (("light", 1300), ("dark", 400)):
            options = {"viewport": {"width": width, "height": 900}, "bypass_csp": True}
            page, _ = new_page(browser, color_scheme=scheme, **options)
            page.goto(fake.url)
            page.wait_for_selector("#content:not([hidden])")
            assert violations(page) == []
            assert out_of_reach(page) == set()
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
    theme = (".jp-InputPrompt", ".jp-OutputPrompt", ".highlight")
    assert violations(page, exclude=theme, runOnly=["wcag2a", "wcag2aa"]) == []
    page.context.close()
