"""The counts of lines, and which mutants are made, on small sources."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import mutants, size
from benchmarks.mutation import mutants_of

SOURCE = '''"""A module."""

import numba


@numba.njit(cache=True)
def share(part: float | None, whole: float) -> float | None:
    """Return a share.

    Of the whole.
    """
    # Nothing is no share.
    if part is None:
        raise ValueError(f"a part of {whole + 1}")
    text = """
    kept"""
    return part / whole
'''


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    # import, decorator, def, if, raise, two lines of text, return; docstrings: one line and three that hold something.
    assert size.count_lines(SOURCE) == (8, 4)


def test_sizes_add_up_by_first_level_part() -> None:
    paths = ["rlwb/cli.py", "rlwb/market/a.py", "rlwb/market/readers/b.py", "tests/market/c.py", "docs/d.py"]
    rooms = size.sizes((path, "x = 1\n") for path in paths)
    files = {room: found["files"] for room, found in rooms.items()}
    assert files == {"market": 2, "tests": 1, "top level": 1}
    assert rooms["market"] == {"files": 2, "code": 2, "docstrings": 0}
    table = size.markdown(rooms, rooms).splitlines()
    assert table[-1] == "| rlwb | 3 → 3 | 3 → 3 | 0 → 0 |"


def test_mutants_leave_annotations_decorators_and_texts_alone() -> None:
    made = list(mutants_of({"share.py": SOURCE}, random.Random(0)))
    changes = {(one.before, one.after.replace("  ", " ")) for one in made}
    assert changes == {
        ("if part is None:", "if part is not None:"),
        ("return part / whole", "return part * whole"),
    }
    assert {one.where for one in made} == {"share.py:13 share", "share.py:17 share"}


def test_the_same_seed_gives_the_same_mutants(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("a = [1 + 2, 3 * 4 < 5]\n")
    target = mutants.Target(("m.py",), ())
    first = mutants.sample(target, tmp_path, 3, seed=1)
    assert len({one.text for one in first}) == 3
    assert mutants.sample(target, tmp_path, 3, seed=1) == first
    assert mutants.sample(target, tmp_path, 3, seed=2) != first


def test_a_target_without_mutants_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text('"""Nothing."""\n')
    with pytest.raises(SystemExit, match="hollow"):
        mutants.measure("hollow", mutants.Target(("empty.py",), ()), tmp_path, 5, 0, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", mutants.TARGETS)
def test_targets_name_files_that_exist(name: str) -> None:
    target = mutants.TARGETS[name]
    for file in (*target.modules, *(test for test in target.tests if not test.startswith("-"))):
        assert (Path(mutants.__file__).parents[1] / file).is_file(), file


def test_every_reason_is_of_a_line_that_is_still_there() -> None:
    for module, entries in mutants.reasons().items():
        lines = [line.strip() for line in (Path(mutants.__file__).parents[1] / module).read_text().splitlines()]
        for entry in entries:
            assert entry["line"] in lines, f"{module} has no line {entry['line']!r}; take its reason out"
            assert entry["why"]
