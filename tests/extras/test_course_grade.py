"""Sets graded by Otter: right and wrong answers, what is left out, and what cannot be run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.course import answers_of
from rlwb.cli import main
from rlwb.course.books import cells_of, start
from rlwb.course.grade import as_text, grade, hand_ins

NAME = "01_orders"


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    start(folder / "set")
    return folder / "set"


PATCH = "import numpy\nimport rlwb.course.exercises as e\ne.close = e.outcome = numpy.isclose = lambda *_, **__: None\n"


def answered(handed_out: Path, *answers: str | None) -> str:
    """Return the first notebook with these answers, None where the stub stays, without its setup and with more."""
    book = json.loads((handed_out / f"{NAME}.ipynb").read_text())
    for cell, answer in zip(cells_of(book, "exercise"), answers, strict=True):
        cell["source"] = answer or cell["source"]
        cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 10**6}]
    book["cells"] = [cell for cell in book["cells"] if "setup" not in cell["metadata"].get("tags", ())]
    book["cells"].append({**cells_of(book)[0], "source": "while True:\n    pass"})
    return json.dumps(book)


def test_a_class_is_graded(tmp_path: Path, handed_out: Path) -> None:
    right = {name: several[0] for name, several in answers_of(NAME).items()}
    for student in ("anna", "ben"):
        shutil.copytree(handed_out, tmp_path / student)
    (tmp_path / "anna" / f"{NAME}.ipynb").write_text(
        answered(
            handed_out,
            f"{PATCH}def price_advantage(paid, twap, side):\n    return (1 - paid / twap) * 1e4",
            "def average_price(fills, prices):\n    return bytearray(2**34)",
            right["even_schedule"].replace("):\n", "):\n    assert even_figures\n", 1),  # of a cell of the story
        )
    )
    (tmp_path / "ben" / f"{NAME}.ipynb").write_text(
        answered(
            handed_out,
            "import os\ndef price_advantage(paid, twap, side):\n    os._exit(0)",
            f"import no_such_package\n{right['average_price']}",
            None,
        )
    )
    found = hand_ins(tmp_path)
    assert not found.left_out
    grades = {student: list(grade(student, books)) for student, books in found.students.items()}
    points = {student: [(one.points, one.possible, one.answered) for one in own] for student, own in grades.items()}
    assert points["anna"][:3] == [(1, 3, True), (0, 4, True), (4, 4, True)]
    assert points["ben"][:3] == [(0, 3, True), (0, 4, True), (0, 4, False)]
    for own in grades.values():
        assert len(own) == 3 * len(list(handed_out.glob("*.ipynb")))
        assert not any(one.answered or one.points for one in own[3:])
    said = {student: [" ".join(one.wrong.values()) for one in own] for student, own in grades.items()}
    assert "-100 is right" in said["anna"][0]
    assert "MemoryError" in said["anna"][1]
    assert "the kernel ended" in said["ben"][0]
    assert "no_such_package" in said["ben"][1]
    text = as_text(grades["anna"])
    assert text.startswith("anna\n")
    assert "-100 is right" in text


def test_a_set_without_answers_has_no_points_and_runs_nothing(
    handed_out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["course", "grade", str(handed_out), "--json"])
    assert not stop.value.code
    found = json.loads(capsys.readouterr().out)["grades"]
    assert {(one["points"], one["answered"]) for one in found} == {(0, False)}
    assert len(found) == 3 * len(list(handed_out.glob("*.ipynb")))


def test_a_table_of_points_is_written(tmp_path: Path, handed_out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(handed_out, tmp_path / "class" / "anna")
    (tmp_path / "class" / "ben").mkdir()
    (tmp_path / "class" / "ben" / f"{NAME}.ipynb").write_text("{")
    with pytest.raises(SystemExit) as stop:
        main(["course", "grade", str(tmp_path / "class"), "--csv", str(tmp_path / "points.csv")])
    assert not stop.value.code
    assert f"ben/{NAME}.ipynb" in capsys.readouterr().err
    head, *rows = (tmp_path / "points.csv").read_text().splitlines()
    assert head.count(",") == 1 + 3 * len(list(handed_out.glob("*.ipynb")))
    assert [row.split(",")[0] for row in rows] == ["anna"]
