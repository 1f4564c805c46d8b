"""Sets graded by Otter: right and wrong answers, what is left out, and what cannot be run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.course import solved
from rlwb.cli import main
from rlwb.course.books import cells_of, start
from rlwb.course.grade import as_text, grade
from rlwb.errors import ConfigError

NAME = "01_orders"


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    start(folder / "set")
    return folder / "set"


def test_a_class_is_graded(tmp_path: Path, handed_out: Path) -> None:
    for student in ("anna", "ben"):
        shutil.copytree(handed_out, tmp_path / student)
    (tmp_path / "notes").mkdir()
    (tmp_path / "anna" / f"{NAME}.ipynb").write_text(json.dumps(solved(NAME)))
    book = solved(NAME)
    first, second, third = cells_of(book, "exercise")
    first["source"] = "def price_advantage(paid, twap, side):\n    return (1 - paid / twap) * 1e4"
    second["source"] = "import no_such_package"
    third["source"] = json.loads((handed_out / f"{NAME}.ipynb").read_text())["cells"][-3]["source"]
    book["cells"].append({**first, "source": "while True:\n    raise SystemExit"})
    (tmp_path / "ben" / f"{NAME}.ipynb").write_text(json.dumps(book))

    grades = list(grade(tmp_path))
    points = {(one.student, one.exercise): (one.points, one.possible) for one in grades if one.notebook == NAME}
    assert points == {
        ("anna", "price_advantage"): (3, 3),
        ("anna", "average_price"): (4, 4),
        ("anna", "even_schedule"): (4, 4),
        ("ben", "price_advantage"): (1, 3),
        ("ben", "average_price"): (0, 4),
        ("ben", "even_schedule"): (0, 4),
    }
    others = [one for one in grades if one.notebook != NAME]
    assert all(set(one.wrong.values()) == {"not answered yet"} and not one.points for one in others)
    ben = {one.exercise: one for one in grades if one.student == "ben"}
    assert any("-100 is right" in said for said in ben["price_advantage"].wrong.values())
    assert all("there is no average_price" in said for said in ben["average_price"].wrong.values())
    text = as_text(grades)
    assert text.index("anna") < text.index("ben")
    assert "-100 is right" in text


def test_a_set_without_answers_has_no_points_and_runs_nothing(
    handed_out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["course", "grade", str(handed_out), "--json"])
    assert not stop.value.code
    found = json.loads(capsys.readouterr().out)
    assert {one["points"] for one in found} == {0}
    assert len(found) == 3 * len(list(handed_out.glob("*.ipynb")))


def test_what_is_no_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="01_orders"):
        list(grade(tmp_path))
    (tmp_path / f"{NAME}.ipynb").write_text("{")
    with pytest.raises(ConfigError, match="not a notebook"):
        list(grade(tmp_path))
