"""The site of the docs: it is built without a warning, its pages hang together, and anybody can read it."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from functools import cache
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from tests.browser.tools import chromium, needs_browser, new_page, picture

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site, built once for tests that run side by side; a warning is an error."""
    base = tmp_path_factory.getbasetemp()
    folder: Path = (base if worker_id == "master" else base.parent) / "site"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").is_file():
            words = [sys.executable, "-m", "sphinx", "-c", "docs", "-b", "html", "-W", "--keep-going", "-q"]
            environment = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
            made = subprocess.run(
                [*words, ".", str(folder / "html")], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert made.returncode == 0, made.stderr[-4000:]
            (folder / "done").touch()
    return folder / "html"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def test_pages_notebooks_names_and_examples_are_on_the_site(site: Path) -> None:
    assert "docs/index.html" in text_of(site / "index.html")
    for source in (*ROOT.glob("docs/**/*.md"), *ROOT.glob("notebooks/**/*.ipynb")):
        assert (site / source.relative_to(ROOT).with_suffix(".html")).is_file(), source
    assert 'id="rlwb.execution.Engine"' in text_of(site / "docs/api/execution.html")
    for script in ROOT.glob("docs/examples/*.py"):
        page = text_of(site / f"docs/gallery/{script.stem}.html")
        assert "sphx-glr-script-out" in page or "sphx-glr-single-img" in page, "it was run"


ROOMS = ("certificate", "course", "env", "evaluation", "execution", "market", "market.download", "market.readers")
ROOMS += ("policy", "serving", "tracking", "trainer", "widgets")


def test_every_public_class_and_function_is_in_the_api(site: Path) -> None:
    shown = {
        name
        for page in (site / "docs/api").glob("*.html")
        for name in re.findall(r'id="rlwb\.([\w.]+)"', text_of(page))
    }
    for room in ROOMS:
        module = importlib.import_module(f"rlwb.{room}")
        public = {name for name in module.__all__ if callable(getattr(module, name))}
        lacking = {name for name in public if f"{room}.{name}" not in shown}
        assert not lacking, f"rlwb.{room}: {sorted(lacking)}"
    assert "train_gym" in shown


def test_what_the_site_passes_to_notebooks_are_parameters_of_theirs() -> None:
    small = runpy.run_path(str(ROOT / "docs" / "conf.py"))["SMALL"]
    assert {"01_orders", "02_training", "03_backtest", "04_stability"} <= set(small)
    for name, values in small.items():
        book = json.loads(text_of(ROOT / "notebooks" / f"{name}.ipynb"))
        (cell,) = (one for one in book["cells"] if "parameters" in one["metadata"].get("tags", ()))
        known = set(re.findall(r"^(\w+) = ", "".join(cell["source"]), re.MULTILINE))
        assert set(values) <= known, name


def test_values_of_the_site_stand_in_a_cell_of_their_own() -> None:
    insert = runpy.run_path(str(ROOT / "docs" / "conf.py"))["_execute_small"]
    before = text_of(ROOT / "notebooks" / "02_training.ipynb")
    source = [before]
    insert(SimpleNamespace(config=SimpleNamespace(nb_execution_mode="off")), "notebooks/02_training", source)
    assert source == [before]
    insert(SimpleNamespace(config=SimpleNamespace(nb_execution_mode="cache")), "notebooks/02_training", source)
    cells = json.loads(source[0])["cells"]
    at = next(at for at, one in enumerate(cells) if "parameters" in one["metadata"].get("tags", ()))
    values: dict[str, str] = {}
    exec(cells.pop(at + 1)["source"], values)
    assert values["run_dir"].startswith("../build/site/")
    assert cells == json.loads(before)["cells"]


def test_a_picture_of_a_notebook_is_told_in_words_and_no_place_of_this_machine() -> None:
    from docutils import nodes
    from docutils.utils import new_document

    page, words = new_document("page"), f"saved {ROOT}/build/a.csv"
    told, own = nodes.image(uri="a.png"), nodes.image(uri="b.png")
    output = nodes.container("", nodes.container("", told), nodes.literal_block("", "<Plot: PA 3 bp.>"))
    output["nb_element"] = "mime_bundle"
    page += nodes.section("", nodes.title("", "Result"), output, own, nodes.literal_block(words, words))
    page[0] += nodes.raw("", "<tr><th></th><th>PA</th></tr>", format="html")
    tidy = runpy.run_path(str(ROOT / "docs" / "conf.py"))["_tidy_outputs"]
    tidy(SimpleNamespace(env=SimpleNamespace(docname="notebooks/03_backtest")), page)
    assert (told["alt"], own["alt"]) == ("PA 3 bp.", "figure of the section Result")
    last = list(page.findall(nodes.literal_block))[-1]
    assert last.astext() == last.rawsource == "saved …/build/a.csv"
    assert next(iter(page.findall(nodes.raw))).astext() == "<tr><td></td><th>PA</th></tr>"


@cache
def places_in(page: Path) -> frozenset[str]:
    return frozenset(map(unescape, re.findall(r'\b(?:id|name)="([^"]+)"', text_of(page))))


def test_links_lead_to_what_is_there(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "_static" not in page.parts]
    for page in pages:
        for target, place in re.findall(r'(?:href|src)="([^"#:?]*)(?:#([^"]*))?"', text_of(page)):
            file = (page.parent / unquote(target)).resolve() if target else page
            assert file.exists(), f"{page.relative_to(site)}: {target}"
            if place and file.suffix == ".html":
                assert unquote(unescape(place)) in places_in(file), f"{page.relative_to(site)}: {target}#{place}"


def test_pictures_have_words_in_their_place(site: Path) -> None:
    for page in (site / "docs").rglob("*.html"):
        for image in re.findall(r"<img [^>]*>", text_of(page)):
            if "_thumb." in image:  # beside its title, and within the same link
                continue
            said = re.search(r'alt="([^"]*)"', image)
            assert said, image
            assert said[1], image
            assert not said[1].endswith(".png"), image


def test_a_program_finds_all_pages_as_text(site: Path) -> None:
    lines = text_of(site / "llms.txt").splitlines()
    linked = [re.search(r"\]\((.+)\)", line)[1] for line in lines if line.startswith("- [")]  # type: ignore[index]
    assert {"docs/running.md", "docs/serving/index.md", "README.md", "notebooks/14_extending.html", "api.json"} <= set(
        linked
    )
    assert all((site / name).is_file() for name in linked)
    reward = json.loads(text_of(site / "api.json"))["rlwb.reward.Reward.reward"]
    assert reward["kind"] == "method"
    assert reward["signature"].startswith("(outcome")
    assert "Returns\n-------" in reward["doc"]
    whole = text_of(site / "llms-full.txt")
    assert all(text_of(ROOT / name).strip() in whole for name in linked if name.endswith(".md"))


PAGES = ("docs/index.html", "docs/extending.html", "docs/api/protocols.html", "docs/gallery/plot_3_judge.html")


@needs_browser
def test_no_fault_of_accessibility_in_light_or_dark_on_a_desk_or_a_phone(site: Path) -> None:
    from axe_playwright_python.sync_playwright import Axe

    with chromium() as browser:
        for page, scheme, width in zip(PAGES, ("light", "dark", "dark", "light"), (1400, 400, 1400, 400), strict=True):
            opened, _ = new_page(browser, color_scheme=scheme, viewport={"width": width, "height": 900})
            opened.goto((site / page).as_uri())
            picture(opened, f"docs-{Path(page).stem}-{width}-{scheme}")
            found = Axe().run(opened).response["violations"]
            told = [(one["id"], one["impact"], [node["target"] for node in one["nodes"][:3]]) for one in found]
            assert not told, f"{page}, {scheme}, {width}: {json.dumps(told)}"
            wide = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{page} is {wide} pixels wider than a screen of {width}"
            opened.context.close()
