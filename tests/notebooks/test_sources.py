"""The notebooks as they are shipped: production defaults, short cells, honest openings."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import nbformat
import pytest

from rlwb.certificate import METHODS as CERTIFIED
from rlwb.certificate import GaussianSettings, TreeSettings, certify
from rlwb.experiment.compare import METHODS
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import short_names
from rlwb.experiment.stages import STAGES
from tests.notebooks.small import NOTEBOOKS, SMALL

ALL = sorted(NOTEBOOKS.glob("*.ipynb"))
LONGEST_CELL = 12
CERTIFICATE = "11_certificate.ipynb"
COMPARISON = "12_comparison.ipynb"
EXTENDING = "14_extending.ipynb"
SEARCH, SERVING, RISK = "06_search.ipynb", "07_serving.ipynb", "08_risk.ipynb"


def parameters_of(path: Path) -> dict[str, object]:
    book = nbformat.read(path, as_version=4)
    (cell,) = (cell for cell in book.cells if "parameters" in cell.metadata.get("tags", ()))
    return {node.targets[0].id: ast.literal_eval(node.value) for node in ast.parse(cell.source).body}  # type: ignore[attr-defined]


def test_every_stage_has_its_notebook() -> None:
    names = {path.name for path in ALL}
    alone = {
        "00_quickstart.ipynb",
        "05_data.ipynb",
        SEARCH,
        SERVING,
        RISK,
        "10_synthetic_market.ipynb",
        CERTIFICATE,
        COMPARISON,
        "13_learners.ipynb",
        EXTENDING,
    }
    assert names == {*alone, *(stage.notebook for stage in STAGES)}
    assert set(SMALL) == {stage.notebook for stage in STAGES}


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_stage_s_notebook_states_no_default_a_second_time(stage) -> None:  # type: ignore[no-untyped-def]
    """Its parameters are few, and None is what the run or the library has."""
    given = parameters_of(NOTEBOOKS / stage.notebook)
    assert given.pop("run_dir") == "../runs/notebook"
    assert given.pop("settings", {}) == {}
    assert given.pop("conditions", None) is None  # of the stress matrix, which is no part of a run
    assert set(given.values()) <= {None}
    assert len(given) <= 12
    assert set(given) <= set(short_names(RunConfig().as_dict()))


def test_the_comparison_names_all_methods() -> None:
    given = parameters_of(NOTEBOOKS / COMPARISON)
    assert given["run_dir"] == "../runs/comparison"
    assert given["methods"] == list(METHODS)


def test_parameters_of_the_certificate_are_the_defaults_of_its_markets_and_methods() -> None:
    given = parameters_of(NOTEBOOKS / CERTIFICATE)
    methods = given.pop("methods")
    assert methods == list(CERTIFIED)
    wanted = {**vars(TreeSettings()), "points": GaussianSettings().points, "seed": 0, "iterations": None}
    wanted["every"] = inspect.signature(certify).parameters["every"].default
    assert given == {name: wanted[name] for name in given}


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_notebook_sets_what_only_its_own_stage_or_a_later_one_depends_on(stage) -> None:  # type: ignore[no-untyped-def]
    """Else opening it would undo what an earlier notebook of the run was told."""
    names = short_names(RunConfig().as_dict())
    for name in parameters_of(NOTEBOOKS / stage.notebook).keys() - {"run_dir", "settings", "conditions"}:
        dotted = f"{names[name]}."
        assert any(dotted.startswith(f"{group}.") for group in stage.depends), name
        for earlier in stage.after:
            assert not any(dotted.startswith(f"{group}.") for group in earlier.depends), name


@pytest.mark.parametrize("path", ALL, ids=lambda p: p.name)
def test_a_notebook_reads_as_a_module(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert book.metadata.kernelspec.name == "python3"
    opening = book.cells[0]
    assert opening.cell_type == "markdown"
    for part in ("# ", "**Purpose.**", "**You will see**", "**Before you begin.**", "**Warnings.**"):
        assert part in opening.source
    for cell in book.cells:
        assert re.fullmatch(r"[a-z0-9-]+", cell.id), "ids are names that stay"
        if cell.cell_type == "code" and "parameters" not in cell.metadata.get("tags", ()):
            lines = [line for line in cell.source.splitlines() if line.strip()]
            most = (
                30 if cell.source.startswith("%%writefile") else LONGEST_CELL
            )  # which writes a part of the reader's own
            assert len(lines) <= most, f"{cell.id}: logic belongs in the library"


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_the_setup_cell_follows_the_parameters(stage) -> None:  # type: ignore[no-untyped-def]
    code = [c for c in nbformat.read(NOTEBOOKS / stage.notebook, as_version=4).cells if c.cell_type == "code"]
    assert code[0].metadata.tags == ["parameters"]
    call = code[1].source
    assert stage.name.upper() in call
    for name in parameters_of(NOTEBOOKS / stage.notebook):
        assert re.search(rf"\b{name}\b", call), f"{name} is passed on"


def test_the_parts_that_the_notebook_writes_are_those_of_the_page() -> None:
    parts = Path(__file__).parents[1] / "experiment"
    book = nbformat.read(NOTEBOOKS / EXTENDING, as_version=4)
    written = dict(cell.source.split("\n", 1) for cell in book.cells if cell.source.startswith("%%writefile"))
    for path in (*(parts / "parts").glob("*.py"), parts / "mine.yaml"):
        assert written[f"%%writefile {{folder}}/{path.relative_to(parts)}"] == path.read_text().rstrip("\n"), path


LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
OTHERS = re.compile(r"notebooks? `?\d\d\b|\b\d\d_\w+\.ipynb|\bdocs/[\w/-]+\.md", re.IGNORECASE)
COURSE = sorted(NOTEBOOKS.glob("course/*.ipynb"))


@pytest.mark.parametrize("path", [*ALL, *COURSE], ids=lambda path: path.stem)
def test_another_notebook_or_page_is_named_by_a_link_that_leads_to_it(path: Path) -> None:
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            named = OTHERS.findall(LINK.sub("", cell.source))
            # A student's set has no docs beside it, and the repository's notebooks share numbers with those of the set.
            assert [one for one in named if path not in COURSE or one.lower().startswith("notebook")] == []
            for target in LINK.findall(cell.source):
                assert ":" in target or (path.parent / target.partition("#")[0]).exists(), target
