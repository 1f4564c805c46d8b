"""Otter in a process of its own, ``python -m rlwb.course.run_otter FOLDER CASES``, whose kernel goes with it.

The folder holds ``answers.ipynb`` and a test file for each exercise; ``results.json`` is written beside them: exercise
to a pair for each case, its title and what is wrong, null where nothing is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rlwb.course.exercises import CASE_LIMIT
from rlwb.course.kernel import CELL_LIMIT
from rlwb.files import write_json

#: Seconds after its own limits that a kernel is ended which does not heed them.
_GRACE = 15


def main(folder: Path, cases: int) -> None:
    """Grade the folder's notebook, whose last cell runs so many cases, and write the results."""
    from nbconvert import preprocessors
    from otter.execute import grade_notebook

    class Limited(preprocessors.ExecutePreprocessor):
        """Otter's executor, which ends a kernel that a loop in compiled code has taken hold of."""

        def __init__(self, **kwargs: Any) -> None:
            super().__init__(timeout_func=lambda _: int(_GRACE + max(CELL_LIMIT, cases * CASE_LIMIT)), **kwargs)

    setattr(preprocessors, "ExecutePreprocessor", Limited)  # noqa: B010 - grade_notebook has no argument for it
    tests = [str(path) for path in sorted(folder.glob("*.py"))]
    found = grade_notebook(str(folder / "answers.ipynb"), tests_glob=tests, test_dir=str(folder))
    write_json(
        folder / "results.json",
        {
            name: [
                (one.test_case.name, None if one.passed else one.message.splitlines()[-1])
                for one in test.test_case_results
            ]
            for name, test in found.results.items()
        },
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
