"""Notebooks in JupyterLab, in Chromium: they run, and what moves in them is moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rlwb.experiment.compare import do_stages
from rlwb.experiment.control import ask
from rlwb.experiment.run import RunDirectory, last_iteration
from rlwb.experiment.stages import ORDERS
from tests.browser.lab import Lab, jupyterlab
from tests.browser.tools import chromium, needs_browser, new_page, picture
from tests.notebooks.small import small_config

pytestmark = needs_browser
#: Milliseconds to wait for what a kernel or a process does.
SLOW = 120_000


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


CONTROLS = """panel => [...panel.querySelectorAll(
  'button:not([disabled]), select:not([disabled]), input:not([disabled]), [role=slider]:not([disabled]), a[href]')]
  .filter(one => one.checkVisibility({visibilityProperty: true}) && one.tabIndex >= 0)
  .map((one, number) => { one.dataset.control = number; return one.ariaLabel || one.title || one.innerText; })"""


CANVAS = "() => document.querySelector('.jp-OutputArea canvas').toDataURL()"
DRAWN = """before => {
  const canvas = document.querySelector('.jp-OutputArea canvas');
  return canvas.width && canvas.toDataURL() !== before
    && canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean);
}"""


def reached_by_tab(page: Any, panel: Any) -> tuple[set[str], set[str]]:
    """Return the controls of a widget, and those that Tab reaches from the first of them, by number and name."""
    named = [f"{number} {name}" for number, name in enumerate(panel.evaluate(CONTROLS))]
    panel.locator("[data-control='0']").focus()
    reached = set()
    for _ in named:
        number = page.evaluate("document.activeElement?.dataset.control")
        reached |= {named[int(number)]} if number is not None else set()
        page.keyboard.press("Tab")
    return set(named), reached


ITERATION = """done => {
  const text = document.querySelector('.jp-OutputArea .widget-vbox').innerText;
  return Number(/iteration ([0-9,]+) of/.exec(text)?.[1].replaceAll(',', '')) > done;
}"""


def test_the_quickstart_runs_from_its_first_cell_to_its_last(lab: Lab, page: Any) -> None:
    from playwright.sync_api import expect

    lab.open(page, "00_quickstart.ipynb", days=20, instruments=4, iterations=3, episodes_per_iteration=80)
    outputs = lab.run_all(page)
    assert errors(outputs) == []
    assert page.locator(".jp-RenderedImage img").count() >= 5
    assert page.get_by_text("95 % interval").count() >= 1
    picture(page.locator(".jp-RenderedImage img").last, "quickstart")

    panel = page.locator(".jp-OutputArea .widget-vbox").first
    told = panel.get_by_role("status")
    page.wait_for_function(DRAWN, arg="")
    before, drawn = told.inner_text(), page.evaluate(CANVAS)
    panel.get_by_role("slider").focus()
    page.keyboard.press("ArrowRight")
    expect(told).not_to_have_text(before, timeout=SLOW)
    expect(told).to_contain_text(panel.locator(".widget-readout").inner_text(), timeout=SLOW)
    page.wait_for_function(DRAWN, arg=drawn)
    panel.evaluate("panel => panel.scrollIntoView()")
    picture(page, "explorer")
    controls, reached = reached_by_tab(page, panel)
    assert len(controls) == 7, "instrument, day, order, three policies, step"
    assert reached == controls


@pytest.fixture
def run(lab: Lab) -> Iterator[RunDirectory]:
    """A run with orders, of more iterations than anybody waits for; what trains it in the end is stopped."""
    made = RunDirectory.create(lab.folder / "run", small_config(train__iterations=1000))
    do_stages(made, made.config, lambda line: None, stages=(ORDERS,))
    yield made
    if made.state == "running":
        ask(made, "stop")


def test_a_training_is_stopped_and_started_by_buttons(lab: Lab, page: Any, run: RunDirectory) -> None:
    from playwright.sync_api import expect

    lab.open(page, "02_training.ipynb", run_dir=str(run.path))
    assert errors(lab.run_all(page)) == []
    panel = page.locator(".jp-OutputArea .widget-vbox").first
    start, stop = (panel.locator("button", has_text=name) for name in ("Start", "Stop"))
    expect(stop).to_be_enabled(timeout=SLOW)
    controls, reached = reached_by_tab(page, panel)
    assert len(controls) == 2, "Pause and Stop, while it trains"
    assert reached == controls
    panel.evaluate("panel => panel.scrollIntoView()")
    picture(page, "training")
    stop.click()
    expect(start).to_be_enabled(timeout=SLOW)
    done = last_iteration(run.checkpoints)
    assert 0 < done < 1000
    assert run.state == "interrupted"
    start.focus()
    page.keyboard.press("Enter")
    expect(stop).to_be_enabled(timeout=SLOW)
    page.wait_for_function(ITERATION, arg=done)
    stop.click()
    expect(start).to_be_enabled(timeout=SLOW)
    assert done < last_iteration(run.checkpoints) < 1000
    panel.evaluate("panel => panel.scrollIntoView()")
    picture(page, "training-stopped")
