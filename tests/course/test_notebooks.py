"""The course's notebooks: executed with the model solutions, in the form that a class needs, linked to one another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from benchmarks.course import answers_of, checked, is_good, solved
from rlwb.course import load_cases
from rlwb.course.books import STUB, cells_of, source_of
from rlwb.course.exercises import course_notebooks
from tests.course.inside import run_inside
from tests.course.small import SMALL

ROOT = Path(__file__).resolve().parents[2]
BOOKS = course_notebooks()
NAMES = list(BOOKS)
EXERCISES = 3


def book_of(name: str) -> Any:
    return json.loads(BOOKS[name].read_text(encoding="utf-8"))


def texts_of(name: str) -> Iterator[tuple[str, str]]:
    for cell in book_of(name)["cells"]:
        if cell["cell_type"] == "markdown":
            yield cell["id"], source_of(cell)


def test_the_course_is_what_it_says() -> None:
    assert list(SMALL) == NAMES
    assert [name[:2] for name in SMALL] == [f"{number:02}" for number in range(1, 13)]


@pytest.mark.parametrize("name", NAMES)
def test_a_solved_notebook_runs_and_has_all_points(name: str) -> None:
    text, shown = run_inside(solved(name), SMALL[name])
    for exercise, cases in load_cases(name).items():
        assert f"{exercise}: {len(cases)} of {len(cases)} points" in text
    assert len([one for one in shown if re.match("<(Figure size|Plot:)", one.get("text/plain", ""))]) >= 2


@pytest.mark.parametrize("name", NAMES)
def test_checks_accept_right_answers_and_reject_wrong_ones(name: str) -> None:
    rows, amiss = checked(name)
    assert len(rows) == EXERCISES
    assert all(map(is_good, rows)), amiss


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_a_source_in_the_form_of_the_course(name: str) -> None:
    book = book_of(name)
    nbformat.validate(nbformat.from_dict(book))
    assert book["metadata"] == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert not re.search(r"(/home/|/root/|/Users/|/tmp/|[A-Z]:\\\\)", BOOKS[name].read_text()), "a machine's path"
    ids = [cell["id"] for cell in book["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in book["cells"]:
        assert re.fullmatch(r"[a-z0-9-]+", cell["id"]), "ids are names that stay"
        kind = cell["metadata"]["slideshow"]["slide_type"]
        assert kind in ("slide", "subslide", "fragment", "skip", "notes", "-")
        if cell["cell_type"] == "markdown" and (head := re.match("(##*) ", source_of(cell))):
            assert kind == ("slide" if len(head[1]) < 3 else "subslide"), "a heading begins a slide"
        if source_of(cell).startswith("exercises.check("):
            assert kind == "skip", "a check is for the student's screen"
    for cell in cells_of(book):
        assert not cell["outputs"]
        assert cell["execution_count"] is None
        if not {"parameters", "setup"} & set(cell["metadata"].get("tags", ())):
            assert len([line for line in source_of(cell).splitlines() if line.strip()]) <= 12, cell["id"]
    assert [len(cells_of(book, tag)) for tag in ("parameters", "setup", "exercise")] == [1, 1, EXERCISES]


@pytest.mark.parametrize("name", NAMES)
def test_exercises_are_stubs_that_the_story_does_not_need(name: str) -> None:
    book = book_of(name)
    assert all(STUB in source_of(cell) for cell in cells_of(book, "exercise"))
    stubs = [re.findall(r"^(?:def|class) (\w+)", source_of(cell), re.MULTILINE) for cell in cells_of(book, "exercise")]
    exercises = [stub for (stub,) in stubs]
    assert exercises == list(load_cases(name)) == list(answers_of(name))
    for cell in cells_of(book):
        source = source_of(cell)
        if cell not in cells_of(book, "exercise") and not source.startswith("exercises.check("):
            assert not re.search(rf"\b({'|'.join(exercises)})\b", source), cell["id"]
    checks = [source for source in map(source_of, cells_of(book)) if source.startswith("exercises.check(")]
    assert checks == [f"exercises.check({one})" for one in exercises]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_states_its_aims_and_its_time_by_section(name: str) -> None:
    texts = dict(texts_of(name))
    opening = next(iter(texts.values()))
    assert re.match(rf"# {name[:2]} \S", opening)
    for part in ("**Aims.**", "**Time.**", "**Before you begin.**"):
        assert part in opening
    total = int(re.search(r"\*\*Time\.\*\* (\d+) minutes", opening)[1])  # type: ignore[index]
    rows = re.findall(r"^\| (.+?) \| (\d+) \|$", opening, re.MULTILINE)
    sections = [head for text in texts.values() for head in re.findall(r"^## (\d .+|Exercises)$", text, re.MULTILINE)]
    assert [section for section, _ in rows] == sections
    assert sum(int(minutes) for _, minutes in rows) == total
    assert 45 <= total <= 75
    plan = "; ".join(f"{section} {minutes}" for section, minutes in rows)
    assert f"| {plan} | {total} |" in (ROOT / "docs" / "course.md").read_text(encoding="utf-8"), "the lecturer's plan"


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_to_notebooks_of_the_course_or_into_the_web(name: str) -> None:
    place = NAMES.index(name)
    links = {cell: re.findall(r"\]\(([^)\s]+)\)", text) for cell, text in texts_of(name)}
    for link in (one for found in links.values() for one in found):
        assert link.startswith("https://") or link.removesuffix(".ipynb") in NAMES, link
    if place + 1 < len(NAMES):
        assert f"{NAMES[place + 1]}.ipynb" in list(links.values())[-1], "the next one"
    if place:
        assert f"{NAMES[place - 1]}.ipynb" in next(iter(links.values())), "the one before"


@pytest.mark.parametrize("name", NAMES)
def test_further_reading_names_what_can_be_found(name: str) -> None:
    reading = next(text for _, text in texts_of(name) if "## Further reading" in text)
    entries = re.split(r"^- ", reading, flags=re.MULTILINE)[1:]
    assert len(entries) >= 3
    for entry in entries:
        assert re.search(r"https://(doi\.org/10\.|arxiv\.org/abs/\d{4}\.\d{4,5})", entry), entry
