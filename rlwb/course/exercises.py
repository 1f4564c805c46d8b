"""Exercises of the course: the cases that an answer must pass, one point each, and what a notebook shows of them."""

from __future__ import annotations

import io
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from rlwb.errors import ConfigError
from rlwb.values import suggestion

#: What is said of an answer that is still the stub.
UNANSWERED = "not answered yet"
#: Seconds that a case may take; the cases of the course take milliseconds.
CASE_LIMIT = 10.0
#: Characters that an answer may print in a check, and those of an error that are shown.
_PRINTED, _SHOWN = 2000, 300


class TimeLimitError(BaseException):
    """End of what takes longer than it may; no `Exception`, so that ``except Exception`` in an answer lets it pass."""


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
        if np.asarray(got).dtype.kind in "USc":
            raise TypeError("text and complex numbers")
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


def outcome(one: Case, answer: Any, seconds: float = CASE_LIMIT) -> str | None:
    """Return None where an answer passes a case, else a sentence that says what it does instead.

    Whatever the answer does ends here, also ``sys.exit()`` and what takes more than `seconds`; only the interrupt of
    who waits for it passes.
    """
    try:
        with time_limit(seconds):
            one.run(answer)
    except NotImplementedError:
        return UNANSWERED
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _sentence(error)
    return None


def _sentence(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # an answer may raise an error of its own whose text fails
        text = ""
    if isinstance(error, AssertionError | TimeLimitError):
        text = text or "this does not hold"
    else:
        text = f"{type(error).__name__}: {text}".removesuffix(": ")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class _FirstPart(io.TextIOBase):
    """The first characters of what is printed; the rest is left out, and that is said once."""

    def __init__(self, target: Any) -> None:
        self._target, self._room = target, _PRINTED

    def write(self, text: str) -> int:
        if self._room > 0:
            self._target.write(text[: self._room])
            if len(text) > self._room:
                self._target.write("\n... what the answer prints after this is left out\n")
        self._room -= len(text)
        return len(text)


def as_lines(name: str, said: list[tuple[str, str | None]]) -> str:
    """Return the points of an exercise and each case, a pair of its title and what is wrong, as lines."""
    if is_unanswered(said):
        return "\n".join([f"{name}: {UNANSWERED}; open:", *(f"  open   {title}" for title, _ in said)])
    lines = [f"{name}: {sum(wrong is None for _, wrong in said)} of {len(said)} points"]
    for title, wrong in said:
        if wrong is None or wrong == UNANSWERED:
            lines.append(f"  {'right' if wrong is None else 'open '}  {title}")
        else:
            lines += [f"  wrong  {title}", f"         {wrong}"]
    return "\n".join(lines)


def is_unanswered(said: Iterable[tuple[str, str | None]]) -> bool:
    """Tell whether an answer is still the stub in every case."""
    return all(wrong == UNANSWERED for _, wrong in said)


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
        """Print the points of an answer, the function or class that an exercise asks for, and each case.

        Raises
        ------
        ConfigError
            For what is not named as an exercise of the notebook.
        """
        name = getattr(answer, "__name__", type(answer).__name__)
        if name not in self._cases:  # made by lambda or partial: the name that the cell has given it
            given = sys._getframe(1).f_globals
            name = next((one for one in self._cases if given.get(one) is answer), name)
        if name not in self._cases:
            raise ConfigError(f"{self.notebook} has no exercise {name}; {suggestion(name, self._cases)}")
        with redirect_stdout(_FirstPart(sys.stdout)):
            said = [(one.title, outcome(one, answer)) for one in self._cases[name]]
        print(as_lines(name, said))  # noqa: T201 - it is for that

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
    """Raise `TimeLimitError` in the main thread where the block takes longer; no limit in others and on Windows.

    An import that is under way is finished first: a package whose import was broken off, torch for one, ends the
    process or stays broken when it is imported again.
    """
    if not hasattr(signal, "SIGALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stopper(seconds))
    start_timer(seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def start_timer(seconds: float) -> None:
    """Let the alarm come after `seconds`, and again and again."""
    # An exception within a callback of the garbage collector is swallowed, and an import is not interrupted.
    signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 1.0))


def stopper(seconds: float) -> Callable[[int, FrameType | None], None]:
    """Return a handler of the alarm that raises `TimeLimitError` unless an import is under way."""

    def stop(number: int, frame: FrameType | None) -> None:
        inner = frame
        while inner is not None:
            if inner.f_code.co_filename.startswith("<frozen importlib"):
                return
            inner = inner.f_back
        raise TimeLimitError(f"it takes longer than {seconds:g} seconds")

    return stop


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # an answer may return a thing of its own
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."
