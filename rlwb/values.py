"""A value checked against a type, with a reason that people understand where it does not fit."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from rlwb.files import as_json

#: Characters of a value that an error shows.
_SHOWN = 100


def check_value(kind: Any, value: Any) -> Any:
    """Return `value` as the type `kind`, by the strict rules of JSON: a list is a tuple, text is no number.

    Raises
    ------
    ValueError
        With the reason, beginning with "it" or with what is needed.
    """
    try:
        return TypeAdapter(kind).validate_json(as_json(value), strict=True)
    except ValidationError as error:
        raise ValueError(reason(error.errors())) from None


def fitting(kind: Any, value: Any) -> Any:
    """Return `value` as the type `kind`, numbers and texts turned into each other where no digit is lost.

    Raises
    ------
    ValueError
        With the place in it and the reason.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{place} is {shown(first['input'])}; {reason([first])}") from None


def reason(details: Sequence[ErrorDetails]) -> str:
    """Return pydantic's findings on one value, one for each type that it may be of, as half a sentence."""
    detail, *others = details
    value, text = detail["input"], detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "value_error":
        return text
    if detail["type"] == "string_type" and isinstance(value, (bool, int, float)):
        # An id such as 000001 loses its zeros on the way; nobody can know how many there were.
        shown = str(value).lower() if isinstance(value, bool) else f"{value:06}"
        text = f'text is needed, so quote it as it is meant, like "{shown}"'
    elif detail["type"] == "literal_error":
        expected = detail["ctx"]["expected"]
        guess = nearest(str(value), re.findall(r"'([^']+)'", expected))
        text = f"it must be {expected}" + (f"; did you mean {guess!r}?" if guess else "")
    else:
        text = _NEEDED.get(detail["type"]) or f"it{text.removeprefix('Input')}"
    text = ", or ".join([text, *dict.fromkeys(map(_else, others))])
    return text if text.endswith((".", "?")) else f"{text}."


_NEEDED = {
    "dict_type": "names with values are needed, like {a: b}",
    "missing": "one more value is needed",
    "bool_type": "true or false is needed",
    "float_type": "a number is needed",
    "int_type": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "string_type": "text is needed",
    "tuple_type": "a list is needed, like [a, b]",
    "list_type": "a list is needed, like [a, b]",
    "finite_number": "a finite number is needed",
}


def _else(detail: ErrorDetails) -> str:
    """Return what another of the types that a value may be of needs."""
    needed = {"too_long": "fewer values are needed", **_NEEDED}.get(detail["type"], detail["msg"])
    within = detail["type"] == "too_long" or isinstance(detail["loc"][-1] if detail["loc"] else "", int)
    return re.sub(r" (is|are) needed", "", needed) + (" in the list" if within else "")


def shown(value: Any) -> str:
    """Return `value` as an error shows it: its repr, cut after 100 characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits; a value that holds itself
        text = f"a {type(value).__name__} too large to be shown"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that was probably meant by `name`, if one comes near."""
    candidates = list(candidates)
    if len(name) > _SHOWN:  # the search is slow there, and nobody mistypes so much
        return None
    wanted = name.lower().replace("-", "_")
    for candidate in candidates:
        initials = "".join(word[:1] for word in candidate.rpartition(".")[2].split("_"))
        if wanted == candidate.lower() or (len(wanted) > 1 and wanted == initials):
            return candidate
    close = difflib.get_close_matches(wanted, candidates, n=1, cutoff=0.6)
    if close:
        return close[0]
    return next((c for c in candidates if len(wanted) > 3 and (wanted in c or c.rpartition(".")[2] in wanted)), None)


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """Return "did you mean …?" for the nearest candidate, or a list of all where none is near."""
    candidates = list(candidates)
    guess = nearest(name, candidates)
    return f"did you mean {guess}?" if guess else f"choose among {', '.join(candidates)}."
