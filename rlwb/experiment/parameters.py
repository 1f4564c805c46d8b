"""Parameters by name: what names a tree of settings has, and how values given by name become one tree."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from rlwb.errors import ConfigError, RlwbError

Tree = TypeVar("Tree", bound="Section")


class Layer(NamedTuple):
    """Values from one place.

    Attributes
    ----------
    origin
        The place, for errors: a file's name, ``--set``.
    values
        Nested mappings, dotted names, or both.
    """

    origin: str
    values: Mapping[str, Any]


ALIASES = {"train.lr": "train.learning_rate"}
"""Other names that are accepted for a parameter."""


class Section(BaseModel):
    """A frozen group of settings that knows its own names and refuses others.

    A setting may be a value, another `Section`, or a frozen dataclass of another room. Every
    setting is described under ``Parameters`` in its class's docstring.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @classmethod
    def group_default(cls, name: str, values: Mapping[str, Any]) -> Any:
        """Return the default of the group `name`, of another room, beside the `values` that are given."""
        return cls.model_fields[name].default


def children(owner: type[Any]) -> dict[str, type[Any] | None]:
    """Return the settings of a section or dataclass: name to the class of its own settings, None for a plain value."""
    if issubclass(owner, BaseModel):
        types = {name: field.annotation for name, field in owner.model_fields.items()}
    else:
        hints = inspect.get_annotations(owner, eval_str=True)
        types = {field.name: hints[field.name] for field in dataclasses.fields(owner)}
    return {name: _settings_class(hint) for name, hint in types.items()}


def _settings_class(hint: Any) -> type[Any] | None:
    for option in (hint, *get_args(hint)):
        if isinstance(option, type) and (issubclass(option, Section) or dataclasses.is_dataclass(option)):
            return option
    return None


def leaves(owner: type[Any], prefix: str = "") -> tuple[str, ...]:
    """Return the dotted names of all plain values below `owner`, in order."""
    names: list[str] = []
    for name, child in children(owner).items():
        names.extend(leaves(child, f"{prefix}{name}.") if child else (f"{prefix}{name}",))
    return tuple(names)


def short_names(owner: type[Any]) -> dict[str, str]:
    """Return every name a notebook may use, to the dotted name it means.

    ``train.learning_rate`` is ``train_learning_rate`` and, being the only parameter that ends so, also
    ``learning_rate``.
    """
    names = leaves(owner)
    ends = [name.rpartition(".")[2] for name in names]
    short = {end: name for end, name in zip(ends, names, strict=True) if ends.count(end) == 1}
    return {**short, **{name.replace(".", "_"): name for name in names}}


def descriptions(owner: type[Any], prefix: str = "") -> dict[str, str]:
    """Return dotted name to the text under ``Parameters`` in the class's docstring, sections included."""
    own = _parse_parameters(inspect.getdoc(owner) or "")
    texts: dict[str, str] = {}
    for name, child in children(owner).items():
        texts[f"{prefix}{name}"] = own.get(name, "")
        if child:
            texts |= descriptions(child, f"{prefix}{name}.")
    return texts


def _parse_parameters(doc: str) -> dict[str, str]:
    _, found, block = doc.partition("Parameters\n----------\n")
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in block.split("\n") if found else ():
        if re.match(r"-{3,}$", line):
            for name in names:
                texts.pop(name, None)
            break
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
            texts.update(dict.fromkeys(names, ""))
        elif line.strip():
            for name in names:
                texts[name] = f"{texts[name]} {line.strip()}".strip()
    return texts


def nearest(name: str, candidates: Sequence[str]) -> str | None:
    """Return the candidate that was probably meant by `name`, if one comes near."""
    wanted = name.lower().replace("-", "_")
    for candidate in candidates:
        initials = "".join(word[:1] for word in candidate.rpartition(".")[2].split("_"))
        if wanted == candidate.lower() or (len(wanted) > 1 and wanted == initials):
            return candidate
    close = difflib.get_close_matches(wanted, candidates, n=1, cutoff=0.6)
    if close:
        return close[0]
    return next((c for c in candidates if len(wanted) > 3 and (wanted in c or c.rpartition(".")[2] in wanted)), None)


def unknown_name(name: str, owner: type[Any], origin: str) -> ConfigError:
    """Return the refusal of the dotted `name`, with the valid name nearest to it."""
    parent, _, last = name.rpartition(".")
    while parent:
        try:
            group = _class_at(owner, parent)
            break
        except KeyError:
            parent, _, last = parent.rpartition(".")
    else:
        group = owner
    if group is None:
        return ConfigError(f"{origin}: there is no parameter {name}; {parent} is a single value.")
    prefix = f"{parent}." if parent else ""
    ends = {leaf.rpartition(".")[2]: leaf for leaf in reversed(leaves(owner))}
    ends |= {child: f"{prefix}{child}" for child in children(group)}
    guess = last if last in ends else nearest(last, list(children(group))) or nearest(last, list(ends))
    hint = f"did you mean {ends[guess]}?" if guess else f"the names here are {', '.join(children(group))}."
    return ConfigError(f"{origin}: there is no parameter {prefix}{last}; {hint}")


def _class_at(owner: type[Any], path: str) -> type[Any] | None:
    """Return the class of the group at `path`, None for a plain value; KeyError when there is no such name."""
    found: type[Any] | None = owner
    for part in path.split(".") if path else ():
        if found is None:
            raise KeyError(path)
        found = children(found)[part]
    return found


def flatten(values: Mapping[str, Any], owner: type[Any], origin: str) -> dict[str, Any]:
    """Return `values` (nested, dotted or both) as dotted name to plain value, every name checked against `owner`.

    Raises
    ------
    ConfigError
        For a name that `owner` does not have, one that is given twice, and a value where a group belongs.
    """
    flat: dict[str, Any] = {}
    for name, value in _walk(values, owner, "", origin):
        if name in flat:
            raise ConfigError(f"{origin}: {name} is given twice; keep one of the two.")
        flat[name] = value
    return flat


def _walk(values: Mapping[str, Any], owner: type[Any], prefix: str, origin: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = ALIASES.get(f"{prefix}{key}", f"{prefix}{key}")
        try:
            child = _class_at(owner, name)
        except KeyError:
            raise unknown_name(name, owner, origin) from None
        if child is None:
            yield name, value
        elif isinstance(value, Mapping):
            yield from _walk(value, owner, f"{name}.", origin)
        elif value is not None:
            names = ", ".join(children(child))
            raise ConfigError(f"{origin}: {name} is {value!r}, but it is a group of parameters; give one of {names}.")


def build(owner: type[Tree], layers: Sequence[Layer]) -> Tree:
    """Return the tree of `owner` with the values of `layers`, a later layer winning over an earlier one.

    Parameters
    ----------
    owner
        The class of the whole tree.
    layers
        Values from files, the command line, a notebook.

    Raises
    ------
    ConfigError
        For an unknown name, a wrong type or an impossible value, naming parameter, value and origin.
    """
    flat: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, values in layers:
        new = flatten(values, owner, origin)
        flat |= new
        origins |= dict.fromkeys(new, origin)
    nested: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split(".")
        level = nested
        for parent in parents:
            level = level.setdefault(parent, {})
        level[last] = value
    _complete(owner, nested)
    _check_rooms_own(owner, nested, origins)
    try:
        # JSON is the strict form that files, command lines and notebooks share: a list is a tuple, text is no number.
        return owner.model_validate_json(_json(nested), strict=True)
    except ValidationError as error:
        found = _by_parameter(error.errors(), owner)
        raise ConfigError(" ".join(_sentence(found[name], owner, origins) for name in list(found)[:3])) from None


def _complete(owner: type[Section], values: dict[str, Any]) -> None:
    """Fill the groups that were given in part with the tree's own defaults, where a room's own may differ."""
    for name, child in children(owner).items():
        given = values.get(name)
        if child is None or not isinstance(given, dict):
            continue
        if issubclass(child, Section):
            _complete(child, given)
        else:
            values[name] = {**dataclasses.asdict(owner.group_default(name, values)), **given}


def _check_rooms_own(owner: type[Any], values: Mapping[str, Any], origins: Mapping[str, str], prefix: str = "") -> None:
    """Let the rooms' own settings refuse a value first; what they raise does not know its place in the tree."""
    for name, child in children(owner).items():
        given = values.get(name)
        if child is None or not isinstance(given, dict):
            continue
        if issubclass(child, Section):
            _check_rooms_own(child, given, origins, f"{prefix}{name}.")
            continue
        try:
            TypeAdapter(child).validate_json(_json(given), strict=True)
        except RlwbError as error:
            raise ConfigError(f"{_origin_of(prefix + name, origins)}: {prefix}{name}: {error}") from error
        except ValidationError:
            pass  # the whole tree says it better


def _origin_of(name: str, origins: Mapping[str, str]) -> str:
    inside = f"{name}." if name else ""
    return next((o for n, o in reversed(list(origins.items())) if f"{n}.".startswith(inside)), "defaults")


def _json(values: Mapping[str, Any]) -> str:
    return json.dumps(values, default=_plain)


def _name_of(loc: tuple[int | str, ...], owner: type[Any]) -> str:
    """Return pydantic's location as a parameter's name; the steps it takes through unions are not names."""
    name, group = "", children(owner)
    for part in loc:
        if isinstance(part, int):
            name += f"[{part}]"
        elif part in group:
            name = f"{name}.{part}" if name else part
            child = group[part]
            group = children(child) if child else {}
    return name


def _by_parameter(errors: list[ErrorDetails], owner: type[Any]) -> dict[str, list[ErrorDetails]]:
    """Return the findings by parameter; a parameter that may be of several types has one for each of them."""
    names = [_name_of(detail["loc"], owner) for detail in errors]
    found: dict[str, list[ErrorDetails]] = {}
    for name, detail in zip(names, errors, strict=True):
        whole = name.partition("[")[0]
        found.setdefault(whole if whole in names else name, []).append(detail)
    return found


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy, of which a notebook's values are often made
        return value.tolist()
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return str(value)


def _sentence(details: list[ErrorDetails], owner: type[Any], origins: Mapping[str, str]) -> str:
    """Turn pydantic's findings on one parameter into the sentence a user can act on."""
    detail, *others = details
    name = _name_of(detail["loc"], owner)
    origin = _origin_of(re.sub(r"\[\d+\]", "", name), origins)
    value = detail["input"]
    reason = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "value_error":
        return f"{origin}: {name + ': ' if name else ''}{reason}"
    if detail["type"] == "string_type" and isinstance(value, (bool, int, float)):
        # An id such as 000001 loses its zeros on the way; nobody can know how many there were.
        shown = str(value).lower() if isinstance(value, bool) else f"{value:06}"
        reason = f'text is needed, so quote it as it is meant, like "{shown}"'
    elif detail["type"] == "literal_error":
        reason = f"it must be {detail['ctx']['expected']}"
        if guess := nearest(str(value), re.findall(r"'([^']+)'", detail["ctx"]["expected"])):
            reason += f"; did you mean {guess!r}?"
    else:
        reason = _NEEDED.get(detail["type"]) or f"it{reason.removeprefix('Input')}"
    reason = ", or ".join([reason, *dict.fromkeys(map(_else, others))])
    return f"{origin}: {name} is {value!r}; {reason}{'' if reason.endswith(('.', '?')) else '.'}"


_NEEDED = {
    "dict_type": "names with values are needed, like {a: b}",
    "missing": "one more value is needed",
    "bool_type": "true or false is needed",
    "float_type": "a number is needed",
    "int_type": "a whole number is needed",
    "int_from_float": "a whole number is needed",
    "string_type": "text is needed",
    "tuple_type": "a list is needed, like [a, b]",
}


def _else(detail: ErrorDetails) -> str:
    """Return what another of the types that a parameter may be of needs."""
    needed = {"too_long": "fewer values are needed", **_NEEDED}.get(detail["type"], detail["msg"])
    within = detail["type"] == "too_long" or isinstance(detail["loc"][-1], int)
    return re.sub(r" (is|are) needed", "", needed) + (" in the list" if within else "")
