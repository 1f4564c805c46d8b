"""Exercises of the course: the cases that an answer must pass, one point each, and what a notebook shows of them."""

from __future__ import annotations

import runpy
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from rlwb.errors import ConfigError
from rlwb.values import suggestion


@dataclass(frozen=True)
class Case:
    """One thing that an answer must do, worth a point.

    Parameters
    ----------
    exercise
        Name of the function or class that answers the exercise.
    title
        What it must do, in a sentence for the student.
    run
        Called with the answer; raises `AssertionError` with a sentence where it does something else.
    """

    exercise: str
    title: str
    run: Callable[[Any], None]


def case(exercise: str) -> Callable[[Callable[[Any], None]], Case]:
    """Make a function of an answer a case of an exercise; the first line of its docstring is the title."""

    def decorate(function: Callable[[Any], None]) -> Case:
        return Case(exercise, (function.__doc__ or function.__name__).strip().splitlines()[0], function)

    return decorate


def close(got: Any, wanted: Any, what: str = "the answer", tolerance: float = 1e-9) -> None:
    """Raise `AssertionError` unless a number or an array is the wanted one, in shape and in every value.

    Values may differ by `tolerance` of their size, or by `tolerance` where they are smaller than 1; NaN equals NaN.
    """
    if got is None:
        raise AssertionError(f"{what} is None; does the function return something?")
    try:
        found, right = np.asarray(got, dtype=float), np.asarray(wanted, dtype=float)
    except (TypeError, ValueError):
        raise AssertionError(f"{what} is {_shown(got)}; numbers are needed") from None
    if found.shape != right.shape:
        raise AssertionError(f"{what} has shape {found.shape}; {right.shape} is needed")
    with np.errstate(invalid="ignore"):
        wrong = ~np.isclose(found, right, rtol=tolerance, atol=tolerance, equal_nan=True)
    if wrong.any():
        if not found.ndim:
            raise AssertionError(f"{what} is {found:.6g}; {right:.6g} is right")
        place = tuple(int(axis[0]) for axis in np.nonzero(wrong))
        where = ", ".join(map(str, place))
        raise AssertionError(f"{what} is {found[place]:.6g} at [{where}]; {right[place]:.6g} is right")


def outcome(one: Case, answer: Any) -> str | None:
    """Return None where an answer passes a case, else a sentence that says what it does instead."""
    try:
        one.run(answer)
    except NotImplementedError:
        return "not answered yet"
    except AssertionError as error:
        return str(error) or "this does not hold"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class Exercises:
    """The exercises of a notebook, checked while a student works.

    Parameters
    ----------
    notebook
        Name of a notebook of the course, such as ``01_orders``.
    """

    def __init__(self, notebook: str) -> None:
        self.notebook = notebook
        self._cases = load_cases(notebook)

    def check(self, answer: Any) -> None:
        """Print the points of an answer, a function or class with the name of the exercise, and each case.

        Raises
        ------
        ConfigError
            For another name.
        """
        name = getattr(answer, "__name__", type(answer).__name__)
        if name not in self._cases:
            raise ConfigError(f"{self.notebook} has no exercise {name}; {suggestion(name, self._cases)}")
        said = [(one.title, outcome(one, answer)) for one in self._cases[name]]
        print(f"{name}: {sum(wrong is None for _, wrong in said)} of {len(said)} points")  # noqa: T201 - it is for that
        for title, wrong in said:
            print(f"  right  {title}" if wrong is None else f"  wrong  {title}\n         {wrong}")  # noqa: T201

    def __repr__(self) -> str:
        points = ", ".join(f"{name} ({len(cases)} points)" for name, cases in self._cases.items())
        return f"Exercises of {self.notebook}: {points}"


def course_folder() -> Path:
    """Return the folder of the course's notebooks, of the checkout or of the installation."""
    from rlwb.experiment.pipeline import find_notebooks

    return find_notebooks() / "course"


def course_notebooks() -> dict[str, Path]:
    """Return the notebooks of the course by name, in their order."""
    return {path.stem: path for path in sorted(course_folder().glob("[0-9][0-9]_*.ipynb"))}


def load_cases(notebook: str) -> dict[str, list[Case]]:
    """Return the cases of a notebook by exercise, in the order of ``checks/NOTEBOOK.py``.

    Raises
    ------
    ConfigError
        For a notebook that the course does not have.
    """
    path = course_folder() / "checks" / f"{notebook}.py"
    if not path.is_file():
        names = sorted(one.stem for one in path.parent.glob("*.py"))
        raise ConfigError(f"the course has no notebook {notebook}; {suggestion(notebook, names)}")
    found: dict[str, list[Case]] = {}
    for value in runpy.run_path(str(path)).values():
        if isinstance(value, Case):
            found.setdefault(value.exercise, []).append(value)
    return found


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the main thread where the block takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it takes longer than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    # Again and again: an exception within a callback of the garbage collector is swallowed.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
