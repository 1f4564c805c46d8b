"""A run's report against axe, the rules of which are those of WCAG."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rlwb.experiment.report import write_report
from rlwb.experiment.run import RunDirectory
from tests.experiment.conftest import judged as judged
from tests.experiment.test_player import CHROMIUM, FLAGS, needs_chromium


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_a_report(judged: RunDirectory, tmp_path: Path, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    from playwright.sync_api import sync_playwright

    shutil.copytree(judged.path, tmp_path / "run", symlinks=True)
    page = write_report(RunDirectory.open(tmp_path / "run"))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        # axe is put into the page, which lets no script but its own run.
        tab = browser.new_context(color_scheme=scheme, bypass_csp=True).new_page()
        tab.goto(page.as_uri())
        tab.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
        found = axe.Axe().run(tab)
        browser.close()
    assert found.violations_count == 0, found.generate_report()
