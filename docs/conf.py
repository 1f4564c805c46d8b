"""Settings of the site that `make docs` builds from README, docs/, notebooks/ and the docstrings, by Sphinx."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

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

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
nb_execution_mode = "off"  # tests run the notebooks; with -D nb_execution_mode=cache their outputs are on the site
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


def _plain_defaults(app: Any, what: str, name: str, obj: Any, options: Any, signature: str, returns: str) -> Any:
    """Write defaults that are made anew each time as an ellipsis, without which Sphinx shows a signature raw."""
    return signature and signature.replace("<factory>", "..."), returns


def _unlink_words(app: Any, doctree: Any) -> None:
    """Leave single small words, which are parameters, columns and types, as they stand; other names are links."""
    for node in list(doctree.findall(pending_xref)):
        if node.get("refdomain") == "py" and re.fullmatch(r"[a-z][a-z0-9_]*", node["reftarget"]):
            node.replace_self(node.children)


def _machine_readable(app: Any, error: Exception | None) -> None:
    """Write each page's Markdown beside it, llms.txt with all their names and llms-full.txt with all their text."""
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
    (out / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "llms-full.txt").write_text("\n\n".join(full), encoding="utf-8")
    page = f"{root_doc}.html"
    refresh = f'<meta http-equiv="refresh" content="0; url={page}">'
    start = f'<!doctype html>\n<html lang="en"><title>rlwb</title>{refresh}<a href="{page}">rlwb</a></html>\n'
    (out / "index.html").write_text(start, encoding="utf-8")


def setup(app: Any) -> None:
    """Join what this file does to Sphinx."""
    app.connect("source-read", _navigate)
    app.connect("autodoc-process-signature", _plain_defaults)
    app.connect("doctree-read", _unlink_words)
    app.connect("build-finished", _machine_readable)
