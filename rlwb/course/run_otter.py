"""Otter in a process of its own: ``python -m rlwb.course.run_otter FOLDER``, whose log server and kernel go with it.

The folder holds ``answers.ipynb`` and a test file for each exercise; ``results.json`` is written beside them: exercise
to a pair for each case, its title and what is wrong, null where nothing is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rlwb.files import write_json


def main(folder: Path) -> None:
    """Grade the folder's notebook and write the results."""
    from otter.execute import grade_notebook

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
    main(Path(sys.argv[1]))
