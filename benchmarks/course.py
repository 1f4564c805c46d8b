"""Run every notebook of the course, and count which answers its checks accept: ``make course``.

Each notebook is executed by papermill in a kernel of its own, with the model solutions in place of the stubs. Its
checks must accept all right answers of ``notebooks/course/answers`` and reject wrong ones: every change of one of them
by an operator of cosmic-ray (signs, comparisons, numbers, conditions) or by one of `_Shift`, `_Swap` and `_Drop` (an
index one further, a minimum for a maximum, a call left out). A change that means the same is counted as wrong, too.

Rows of ``results/course.json`` are ``{notebook, seconds, cpu_seconds, exercises, checks}``; ``checks`` has for each
exercise its cases, the right answers and how many were accepted, and the wrong ones and how many were rejected.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import context
from benchmarks.mutation import mutants_of
from benchmarks.table import RESULTS
from rlwb.course import Case, load_cases, outcome
from rlwb.course.books import cells_of, source_of
from rlwb.course.exercises import TimeLimitError, course_folder, course_notebooks, time_limit
from rlwb.files import write_json

_OUT = RESULTS.with_name("course.json")
#: Share of the wrong answers that checks should reject, and how many wrong ones there must be.
GOAL, LEAST_WRONG, LEAST_RIGHT = 0.95, 10, 3
#: Seconds that a case may take of an answer; what takes longer is wrong.
_LIMIT = 5.0
_SWAPS = [("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("mean", "sum"), ("any", "all")]
_SWAPPED = {a: b for pair in _SWAPS for a, b in (pair, pair[::-1])} | {"cumsum": "cumprod", "floor": "ceil"}
_DROPPED = {"abs", "cumsum", "diff", "sqrt", "log", "exp", "mean", "max", "min", "clip", "where", "maximum", "minimum"}


def answers_of(notebook: str) -> dict[str, list[str]]:
    """Return the right answers of a notebook by exercise, as sources."""
    text = (course_folder() / "answers" / f"{notebook}.py").read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for block in re.split(r"^# %% ", text, flags=re.MULTILINE)[1:]:
        head, _, source = block.partition("\n")
        found.setdefault(head.partition(":")[0], []).append(source.strip() + "\n")
    return found


def names_before(notebook: str) -> dict[str, Any]:
    """Return the names that the parameters and the setup of a notebook define for its answers."""
    book = json.loads(course_notebooks()[notebook].read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for tag in ("parameters", "setup"):
        for cell in cells_of(book, tag):
            exec(re.sub(r"^%.*$", "", source_of(cell), flags=re.MULTILINE), names)
    return names


def faults(cases: list[Case], source: str, names: dict[str, Any]) -> list[str]:
    """Return what an answer, given as its source, does wrong."""
    space = dict(names)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with time_limit(_LIMIT):
                exec(compile(source, "answer", "exec"), space)
            answer = space[cases[0].exercise]
        except (Exception, TimeLimitError) as error:
            return [f"{type(error).__name__}: {error}"]
        said = [outcome(one, answer, _LIMIT) for one in cases]
    return [wrong for wrong in said if wrong is not None]


class _Change(ast.NodeTransformer):
    """Changes the n-th place that it finds."""

    def __init__(self, place: int) -> None:
        self.place, self.seen = place, -1

    def now(self) -> bool:
        self.seen += 1
        return self.seen == self.place


class _Shift(_Change):
    """Index or bound of a slice, one further."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        inside = node.slice
        for owner, name in (
            ((inside, "lower"), (inside, "upper")) if isinstance(inside, ast.Slice) else ((node, "slice"),)
        ):
            value = getattr(owner, name)
            if isinstance(value, ast.Name | ast.BinOp | ast.Attribute) and self.now():
                setattr(owner, name, ast.BinOp(value, ast.Add(), ast.Constant(1)))
        return node


class _Swap(_Change):
    """A function by its counterpart."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in _SWAPPED and self.now():
            node.id = _SWAPPED[node.id]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in _SWAPPED and self.now():
            node.attr = _SWAPPED[node.attr]
        return node


class _Drop(_Change):
    """A call left out: its first argument, or what it is a method of, instead."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in _DROPPED and self.now():
            if node.args:
                return node.args[0]
            if isinstance(node.func, ast.Attribute):
                return node.func.value
        return node


def wrong_answers(right: list[str]) -> Iterator[tuple[str, str]]:
    """Yield right answers with one change, each with what was changed."""
    seen = {ast.dump(ast.parse(source)) for source in right}
    for number, source in enumerate(right):
        for mutant in mutants_of({"answer": source}, random.Random(0)):
            if (meaning := ast.dump(ast.parse(mutant.text))) not in seen:
                seen.add(meaning)
                yield mutant.text, f"answer {number + 1}: {mutant.before}  ->  {mutant.after}"
        for kind in (_Shift, _Swap, _Drop):
            for place in range(100):
                change = kind(place)
                tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
                if change.seen < place:
                    break
                if (meaning := ast.dump(tree)) not in seen:
                    seen.add(meaning)
                    old, new = (ast.unparse(one).splitlines() for one in (ast.parse(source), tree))
                    (before, after), *_ = [pair for pair in zip(old, new, strict=False) if pair[0] != pair[1]]
                    yield ast.unparse(tree), f"answer {number + 1}: {before.strip()}  ->  {after.strip()}"


def checked(notebook: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return what the checks of a notebook accept and reject by exercise, and what they should not have, in words."""
    names, answers = names_before(notebook), answers_of(notebook)
    rows, amiss = [], []
    for exercise, cases in load_cases(notebook).items():
        right = answers.get(exercise, [])
        refused = [(number, found) for number, one in enumerate(right) if (found := faults(cases, one, names))]
        wrong = list(wrong_answers(right))
        survivors = [what for text, what in wrong if not faults(cases, text, names)]
        amiss += [f"{exercise}, right answer {number + 1} is refused: {found[0]}" for number, found in refused]
        amiss += [f"{exercise} accepts {what}" for what in survivors]
        row = {"exercise": exercise, "cases": len(cases), "right": len(right), "accepted": len(right) - len(refused)}
        rows.append({**row, "wrong": len(wrong), "rejected": len(wrong) - len(survivors)})
    return rows, amiss


def is_good(row: dict[str, Any]) -> bool:
    """Tell whether an exercise's checks accept what is right and reject what is wrong, as far as asked."""
    enough = row["right"] >= LEAST_RIGHT and row["wrong"] >= LEAST_WRONG
    return enough and row["accepted"] == row["right"] and row["rejected"] >= GOAL * row["wrong"]


def solved(notebook: str) -> Any:
    """Return a notebook with the model solutions in place of its stubs."""
    book = json.loads(course_notebooks()[notebook].read_text(encoding="utf-8"))
    answers = answers_of(notebook)
    for cell in cells_of(book, "exercise"):
        (name,) = (name for name in answers if re.search(rf"^(def|class) {name}\b", source_of(cell), re.MULTILINE))
        cell["source"] = answers[name][0]
    return book


def run_notebook(notebook: str) -> dict[str, float]:
    """Execute a solved notebook in a kernel of its own; return the seconds that it takes, by the clock and of cores."""
    import papermill

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{notebook}.ipynb"
        source.write_text(json.dumps(solved(notebook)), encoding="utf-8")
        began, used = time.perf_counter(), sum(os.times()[2:4])
        papermill.execute_notebook(str(source), str(Path(folder) / "out.ipynb"), cwd=folder, progress_bar=False)
        passed = {"seconds": time.perf_counter() - began, "cpu_seconds": sum(os.times()[2:4]) - used}
    return {name: round(value, 1) for name, value in passed.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[""], metavar="NN", help="how notebooks' names begin; else all")
    parser.add_argument("--no-notebooks", action="store_true", help="check the checks alone; nothing is written")
    parser.add_argument("--survivors", action="store_true", help="show the wrong answers that are accepted")
    asked = parser.parse_args()
    rows, is_well = [], True
    for notebook in course_notebooks():
        if not notebook.startswith(tuple(asked.only)):
            continue
        checks, amiss = checked(notebook)
        times = {} if asked.no_notebooks else run_notebook(notebook)
        rows.append({"notebook": notebook, **times, "exercises": len(checks), "checks": checks})
        print(notebook, *(f"{name} {value}" for name, value in times.items()), flush=True)
        for row in checks:
            is_well = is_well and is_good(row)
            share = f"{row['rejected']} of {row['wrong']} wrong rejected ({row['rejected'] / max(row['wrong'], 1):.1%})"
            accepted = f"{row['accepted']} of {row['right']} right accepted"
            said = f"  {row['exercise']}: {row['cases']} cases, {accepted}, {share}"
            print(said if is_good(row) else f"{said}: NOT ENOUGH")
        for line in amiss if asked.survivors else [one for one in amiss if "refused" in one]:
            print(f"    {line}")
    if not asked.no_notebooks and asked.only == [""]:
        write_json(_OUT, {**context(), "notebooks": rows})
    if not is_well:
        raise SystemExit("some checks accept too much or refuse what is right")


if __name__ == "__main__":
    main()
