"""Settings of the site that `make docs` builds from README, docs/, notebooks/ and the docstrings, by Sphinx."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from rlwb import __version__  # noqa: E402

# The sources are the repository's root, so that the links of every page are right on a code host and on the site.
WANTED = ("README.md", "CHANGELOG.md", "docs", "notebooks", "benchmarks", "data")
project, author, release = "rlwb", "rlwb contributors", __version__
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "docs/**", "notebooks/**", "benchmarks/README.md", "data/README.md"]
exclude_patterns = [path.name for path in ROOT.iterdir() if path.name not in WANTED]
exclude_patterns += ["docs/examples", "docs/gallery/**.ipynb", "**/.ipynb_checkpoints"]


def _version_of_sources() -> str:
    files = sorted((ROOT / "rlwb").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
nb_execution_mode = "off"  # in tests, which run the notebooks by themselves; `make docs` says cache
nb_render_markdown_format = "myst"  # tables among what notebooks show as Markdown
nb_execution_timeout = 900
nb_execution_raise_on_error = True
# Outputs are of the library as it is: another one has another place, so that nothing in the cache fits it.
PLACE = ROOT / "build" / "site" / _version_of_sources()
nb_execution_cache_path = str(PLACE / "cache")
myst_heading_anchors = 4
suppress_warnings = [
    "misc.highlighting_failure",  # a shell's transcript with answers in JSON is no pure "console"
    "config.cache",  # the scraper of figures is a function
]

default_role = "py:obj"
autodoc_member_order = "groupwise"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_ivar = True


def _figure(block: Any, block_vars: Any, gallery_conf: Any, **options: Any) -> str:
    """Take the figure that a block of an example calls `figure`; its title is its text alternative."""
    from sphinx_gallery.scrapers import figure_rst

    figure = block_vars["example_globals"].pop("figure", None)
    if figure is None:
        return ""
    path = next(block_vars["image_path_iterator"])
    figure.savefig(path, dpi=150)
    said: str = figure_rst([path], gallery_conf["src_dir"], figure.axes[0].get_title())
    return said


sphinx_gallery_conf = {
    "image_scrapers": [_figure],
    "examples_dirs": [str(ROOT / "docs" / "examples")],
    "gallery_dirs": [str(ROOT / "docs" / "gallery")],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "run_stale_examples": True,  # they show the library as it is
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"rlwb {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "rlwb"},
    "header_links_before_dropdown": 10,
    "navbar_align": "left",
    "show_prev_next": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
copyright = "rlwb contributors, MIT licence"


def sections() -> list[tuple[str, str, list[str]]]:
    """Return the sections of docs/index.md: title, page, and the pages that it lists, as names of documents."""
    found = []
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for title, page, body in re.findall(r"^## \[(.+?)\]\((.+?)\)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE):
        links = re.findall(r"\]\(([\w./-]+\.(?:md|ipynb))\)", body)
        found.append((title, _document(page), list(dict.fromkeys(map(_document, links)))))
    return found


def _document(link: str) -> str:
    return str((ROOT / "docs" / link).resolve().relative_to(ROOT).with_suffix(""))


def _navigate(app: Any, docname: str, source: list[str]) -> None:
    """Give a page of docs/index.md its part of the navigation: a hidden table of contents."""
    source[0] = source[0].replace("](examples/)", "](gallery/index.rst)")  # what the gallery makes of the folder
    if docname.startswith("docs/"):  # names of files become the titles of their pages
        source[0] = re.sub(r"\[(?:[\w-]+/)*[\w-]+\.(?:md|ipynb)\](?=\([^)h])", "[]", source[0])
    taken = {page for _, page, _ in sections()} | {root_doc}
    entries = [f"{title} </{page}>" for title, page, _ in sections()] if docname == root_doc else []
    for _, page, pages in sections():
        own = [one for one in pages if one not in taken]
        taken.update(own)
        if page == docname:
            entries = [f"/{one}" for one in own]
    if docname == "docs/notebooks":
        folders = sorted({path.parent.relative_to(ROOT) for path in (ROOT / "notebooks").rglob("*.ipynb")})
        entries += ["/docs/gallery/index", *(f"/{folder}/*" for folder in folders)]
    if entries:
        lines = "\n".join(entries)
        source[0] += f"\n\n```{{toctree}}\n:hidden:\n:glob:\n:maxdepth: 1\n\n{lines}\n```\n"


_RUN = {"run_dir": "run"}
_LITTLE: dict[str, Any] = {"iterations": 10, "market": {"name": "synthetic", "days": 120}, "run_dir": "run"}
SMALL: dict[str, dict[str, Any]] = {
    "01_orders": _RUN,
    "02_training": _RUN,
    "03_backtest": _RUN,
    "04_stability": _RUN,
    "06_search": {**_LITTLE, "run_dir": "search", "trials": 6, "confirm": 1, "fresh_seeds": 2, "workers": 1},
    "07_serving": {**_RUN, "out_dir": "bundles", "days": 1},
    "08_risk": {**_LITTLE, "run_dir": "risk"},
    "11_certificate": {"iterations": 40, "methods": ["ppo", "pathwise"]},
    "12_comparison": {**_LITTLE, "run_dir": "comparison", "methods": ["ppo", "pathwise", "ppo_mlp"]},
    "13_learners": {**_LITTLE, "run_dir": "learners", "methods": ["all_actions", "ppo"]},
    "14_extending": {"run_dir": "extending"},
}
"""Notebooks that the site runs with other values than those in their cell of parameters, so that it is made sooner."""


def _execute_small(app: Any, docname: str, source: list[str]) -> None:
    """Put the values of `SMALL` into a cell of their own, as papermill does, which the page shows.

    Runs go to `PLACE`.
    """
    folder, _, name = docname.rpartition("/")
    if app.config.nb_execution_mode == "off" or folder != "notebooks" or name not in SMALL:
        return
    book = json.loads(source[0])
    place = Path("..") / PLACE.relative_to(ROOT)
    values = {key: str(place / value) if key.endswith("_dir") else value for key, value in SMALL[name].items()}
    lines = "".join(f"{key} = {value!r}\n" for key, value in values.items())
    at = next(at for at, cell in enumerate(book["cells"]) if "parameters" in cell["metadata"].get("tags", ()))
    cell = {"cell_type": "code", "execution_count": None, "id": "site", "metadata": {}, "outputs": []}
    book["cells"].insert(at + 1, {**cell, "source": f"# on these pages\n{lines}"})
    source[0] = json.dumps(book)


def _load_names(app: Any) -> None:
    """Load what packages load when it is asked for, which autodoc does not see otherwise."""
    for name in ("rlwb.tracking", "rlwb.serving"):
        module = importlib.import_module(name)
        vars(module).update({one: getattr(module, one) for one in module.__all__})


def _forget_others(app: Any) -> None:
    """Remove what other versions of the library have left, which no build reads again."""
    if app.config.nb_execution_mode != "off":
        for path in PLACE.parent.glob("*/"):
            if path != PLACE:
                shutil.rmtree(path)


#: What api.json says of each name of the API: its kind, signature and docstring.
API: dict[str, dict[str, str]] = {}


def _plain_defaults(app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Write defaults that are made anew each time as an ellipsis, without which Sphinx shows a signature raw."""
    signature = signature and signature.replace("<factory>", "...")
    API.setdefault(name, {"kind": what})["signature"] = (signature or "") + (f" -> {returns}" if returns else "")
    return signature, returns


def _keep_docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    API.setdefault(name, {"kind": what})["doc"] = "\n".join(lines).strip()


def _unlink_words(app: Any, doctree: Any) -> None:
    """Leave single small words, which are parameters, columns and types, as they stand; other names are links."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") == "py" and re.fullmatch(r"[a-z][a-z0-9_]*", node["reftarget"]):
            node.replace_self(node.children)


def _tidy_outputs(app: Any, doctree: Any) -> None:
    """Say in words what each picture of a notebook shows, and leave out where on this machine it was executed."""
    if not app.env.docname.startswith("notebooks/"):
        return
    cells = {"<th></th>": "<td></td>"}  # of a table of pandas: an empty heading heads nothing
    places = {str(PLACE): "…", str(PLACE.relative_to(ROOT)): "build/site", str(ROOT): "…", **cells}
    for text in list(doctree.findall(nodes.Text)):
        words = str(text)
        for place, name in places.items():
            words = words.replace(place, name)
        if words != text:
            if getattr(text.parent, "rawsource", "") == text:
                text.parent.rawsource = words
            text.parent.replace(text, nodes.Text(words))
    for picture in doctree.findall(nodes.image):
        output = _above(picture, lambda node: node.get("nb_element") == "mime_bundle")
        section = _above(picture, lambda node: isinstance(node, nodes.section))
        words = [one.astext() for one in output.findall(nodes.literal_block)] if output is not None else []
        told = next((one[1] for one in (re.match(r"<Plot: (.+)>$", text, re.DOTALL) for text in words) if one), "")
        name = section.next_node(nodes.title).astext() if section is not None else app.env.docname
        picture["alt"] = told or picture.get("alt") or f"figure of the section {name}"


def _above(node: Any, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the nearest node above one that is wanted; None where there is none."""
    while node is not None and not (isinstance(node, nodes.Element) and is_wanted(node)):
        node = node.parent
    return node


def _machine_readable(app: Any, error: Exception | None) -> None:
    """Write each page as Markdown beside it, and llms.txt, llms-full.txt and api.json for programs."""
    if error is not None or app.builder.name != "html":
        return
    out = Path(app.outdir)
    full, lines = [], ["# rlwb", "", "> A workbench for trade execution with reinforcement learning.", ""]
    for title, page, pages in sections():
        lines += ["", f"## {title}", ""]
        for name in dict.fromkeys([page, *pages, *app.env.toctree_includes.get(page, [])]):
            path = ROOT / f"{name}.md"
            if path.is_file():
                text = path.read_text(encoding="utf-8")
                (out / f"{name}.md").write_text(text, encoding="utf-8")
                full.append(f"<!-- {name}.md -->\n\n{text}")
            heading = app.env.titles[name].astext()
            lines.append(f"- [{heading}]({name}.{'md' if path.is_file() else 'html'})")
    lines += ["", "## Names of the library", "", "- [signatures and docstrings of the API](api.json)"]
    (out / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "llms-full.txt").write_text("\n\n".join(full), encoding="utf-8")
    kept = out / "api.json"  # of pages that were not made anew
    before = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    kept.write_text(json.dumps(dict(sorted({**before, **API}.items())), indent=1), encoding="utf-8")
    page = f"{root_doc}.html"
    refresh = f'<meta http-equiv="refresh" content="0; url={page}">'
    start = f'<!doctype html>\n<html lang="en"><title>rlwb</title>{refresh}<a href="{page}">rlwb</a></html>\n'
    (out / "index.html").write_text(start, encoding="utf-8")


def setup(app: Any) -> None:
    """Join what this file does to Sphinx."""
    app.connect("builder-inited", _load_names)
    app.connect("builder-inited", _forget_others)
    app.connect("source-read", _navigate)
    app.connect("source-read", _execute_small)
    app.connect("autodoc-process-signature", _plain_defaults)
    app.connect("autodoc-process-docstring", _keep_docstring, priority=100)  # before they become another markup
    app.connect("doctree-read", _unlink_words)
    app.connect("doctree-read", _tidy_outputs)
    app.connect("build-finished", _machine_readable)
