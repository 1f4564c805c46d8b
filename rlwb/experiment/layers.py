"""Layers of settings from files, command lines and notebooks, laid on each other to one tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlwb.errors import ConfigError
from rlwb.experiment.renamed import RENAMED
from rlwb.experiment.yamlfile import parse_yaml
from rlwb.files import as_json
from rlwb.parts import BUILT_IN, settings_of
from rlwb.values import nearest, reason

Tree = TypeVar("Tree", bound=BaseModel)

#: What a part is called whose settings name a ``source`` and no part.
_READ_FROM_SOURCE = {"market": "bars", "orders": "table"}


class Layer(NamedTuple):
    """Values from one place.

    Attributes
    ----------
    origin
        The place, for errors: a file's name, ``--set``.
    values
        Nested mappings; a key of the outermost may be a dotted name.
    base
        Folder that relative paths start at.
    """

    origin: str
    values: Mapping[str, Any]
    base: Path = Path()


def parse_assignments(assignments: Sequence[str]) -> Layer:
    """Return the layer that ``--set name=value`` options make; values are read as YAML."""
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, found, text = assignment.partition("=")
        name = name.strip()
        if not found or not name:
            raise ConfigError(f"--set {assignment}: write it as name=value, for example train.iterations=20.")
        if name in values:
            raise ConfigError(f"--set {name} is given twice; keep one of the two.")
        values[name] = parse_yaml(text, f"--set {name}")
    return Layer("--set", values)


def nested(layer: Layer, slots: Mapping[str, str]) -> dict[str, Any]:
    """Return a layer's values as nested mappings: dotted names taken apart, parts as mappings, paths absolute.

    Parameters
    ----------
    layer
        The values.
    slots
        Name in the tree to kind of the part that stands there.

    Raises
    ------
    ConfigError
        For a name that is given twice or was renamed.
    """
    tree: dict[str, Any] = {}
    for dotted, value in layer.values.items():
        *parents, last = str(dotted).split(".")
        level = tree
        for place, parent in enumerate(parents):
            inner = level.setdefault(parent, {})
            if isinstance(inner, str) and parent in slots and place == 0:
                inner = level[parent] = {"name": inner}
            if not isinstance(inner, dict):
                raise ConfigError(f"{layer.origin}: {'.'.join(parents)} is {inner!r} and has {last} beside; keep one.")
            level = inner
        _put(level, last, value, layer.origin, dotted, is_slot=not parents and last in slots)
    for old, new in RENAMED.items():
        if (found := _old_name(tree, old)) is not None:
            raise ConfigError(f"{layer.origin}: {found} is written {new.replace('*', found.rpartition('.')[2])} now.")
    for name, value in tree.items():
        if name in slots and not isinstance(value, (str, dict, type(None))) and name != "baselines":
            raise ConfigError(f"{layer.origin}: {name} is {value!r}; write a name, or {{name: …}} with its settings.")
    return {name: _rooted(value, name, slots.get(name), layer.base) for name, value in tree.items()}


def _put(level: dict[str, Any], key: str, value: Any, origin: str, name: str, *, is_slot: bool) -> None:
    if key not in level:
        level[key] = dict(value) if isinstance(value, Mapping) else value
        return
    old, new = (({"name": one} if is_slot and isinstance(one, str) else one) for one in (level[key], value))
    if not isinstance(old, dict) or not isinstance(new, Mapping) or old.keys() & new.keys():
        raise ConfigError(f"{origin}: {name} is given twice; keep one of the two.")
    level[key] = {**old, **new}


def _old_name(tree: Mapping[str, Any], pattern: str) -> str | None:
    """Return the dotted name in the tree that an old name or ``group.*`` stands for."""
    level: Any = tree
    for part in pattern.split("."):
        if not isinstance(level, Mapping):
            return None
        if part == "*":
            return pattern.replace("*", next(iter(level))) if level else None
        if part not in level:
            return None
        level = level[part]
    return pattern


def _rooted(value: Any, name: str, kind: str | None, base: Path) -> Any:
    """Return a value of the tree with the paths in it made absolute, and a part as a mapping."""
    if kind is not None and isinstance(value, (list, tuple)):
        return [_rooted(one, name, kind, base) for one in value]
    if kind is not None and isinstance(value, str):
        value = {"name": value}
    if name == "features" and isinstance(value, Mapping) and isinstance(value.get("columns"), (list, tuple)):
        return {**value, "columns": [_from(base, one) if ".py:" in str(one) else one for one in value["columns"]]}
    if kind is None or not isinstance(value, Mapping):
        return value
    value = dict(value)
    if name in _READ_FROM_SOURCE and isinstance(value.get("source"), str):
        value.setdefault("name", _READ_FROM_SOURCE[name])
        value["source"] = _from(base, value["source"])
    for key, own in value.items():
        if key == "name" and ".py:" in str(own):
            value[key] = _from(base, own)
        elif key in BUILT_IN and key != kind:  # tianshou's setting `algorithm` is a text
            value[key] = _rooted(own, key, key, base)
    return value


def _from(base: Path, path: str) -> str:
    return str((base / Path(path).expanduser()).resolve())


def merge(tree: Mapping[str, Any], new: Mapping[str, Any], slots: Mapping[str, str], defaults: Any) -> dict[str, Any]:
    """Return a tree with the values of another laid on it; a part of another name brings none of the old settings.

    Parameters
    ----------
    tree, new
        From `nested`.
    slots
        See `nested`.
    defaults
        The tree of defaults, for the names of parts that are not given.
    """
    merged = dict(tree)
    for name, value in new.items():
        kind, old = slots.get(name), merged.get(name)
        if kind is not None and isinstance(value, Mapping):
            default = getattr(defaults, name).name
            own = old if isinstance(old, Mapping) else {}
            part = value.get("name", own.get("name", default))
            groups = _groups(kind, part)
            own = own if own.get("name", default) == part else {}
            merged[name] = {"name": part, **_joined(own, value, lambda key, groups=groups: key in groups)}
        elif kind is None and isinstance(value, Mapping) and isinstance(old, Mapping):
            if name == "execution" and "preset" in value:
                old = {key: one for key, one in old.items() if key != "rules"}
            merged[name] = _joined(old, value, lambda key: key == "rules")
        else:
            merged[name] = value
    return merged


def _is_group(value: Any) -> bool:
    return isinstance(value, BaseModel) or is_dataclass(value)


def _groups(kind: str, part: Any) -> set[str]:
    """Return the settings of a part that have settings of their own; none for a name that is refused later."""
    try:
        known = settings_of(kind, part)
    except (ConfigError, AttributeError):
        return set()
    return {one.name for one in known.settings if one.group or one.is_part} if known else set()


def _joined(old: Mapping[str, Any], new: Mapping[str, Any], is_group: Any) -> dict[str, Any]:
    joined = dict(old)
    for key, value in new.items():
        before = joined.get(key)
        both = isinstance(value, Mapping) and isinstance(before, Mapping) and is_group(key)
        joined[key] = {**before, **value} if both else value  # type: ignore[dict-item]
    return joined


def build(owner: type[Tree], layers: Sequence[Layer], slots: Mapping[str, str]) -> Tree:
    """Return the tree of `owner` with the values of `layers`, a later layer winning over an earlier one.

    Raises
    ------
    ConfigError
        For an unknown name, a wrong type or an impossible value, naming parameter, value and origin.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    defaults = owner()
    for layer in layers:
        given = nested(layer, slots)
        # An empty group, as in "train:" with nothing below, says nothing.
        new = {name: one for name, one in given.items() if one is not None or not _is_group(getattr(defaults, name, 0))}
        values = merge(values, new, slots, defaults)
        origins |= dict.fromkeys(leaves(new), layer.origin)
    try:
        # JSON is the strict form that files, command lines and notebooks share: a list is a tuple, text is no number.
        return owner.model_validate_json(as_json(values), strict=True)
    except ValidationError as error:
        found: dict[str, list[ErrorDetails]] = {}
        for detail in error.errors():
            place = detail["loc"] if detail["type"] == "extra_forbidden" else _without_types(detail["loc"], values)
            found.setdefault(_name(place), []).append(detail)
        sentences = [_sentence(name, details, defaults, origins) for name, details in found.items()]
        raise ConfigError(" ".join(sentences[:3])) from None


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of all values of nested mappings that are no mappings, or empty ones."""
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def value_at(tree: Mapping[str, Any], name: str) -> Any:
    """Return the value at a dotted name."""
    for part in name.split("."):
        tree = tree[part]
    return tree


def _without_types(loc: tuple[int | str, ...], values: Any) -> tuple[int | str, ...]:
    """Return a location as far as it lies in the values; pydantic adds the types that it tried."""
    for place, part in enumerate(loc):
        try:
            values = values[part]
        except (LookupError, TypeError):
            return loc[:place]
    return loc


def _name(loc: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _sentence(name: str, details: list[ErrorDetails], defaults: BaseModel, origins: Mapping[str, str]) -> str:
    """Turn pydantic's findings on one parameter into the sentence a user can act on."""
    detail, inside = details[0], f"{name.partition('[')[0]}."
    origin = next((o for at, o in reversed(list(origins.items())) if f"{at}.".startswith(inside)), "defaults")
    if detail["type"] == "extra_forbidden":
        return f"{origin}: there is no parameter {name}; {_guess(name, defaults.model_dump())}"
    if detail["type"] == "value_error":
        said = reason(details)
        return f"{origin}: {said}" if not name or said.startswith(f"{name} ") else f"{origin}: {name}: {said}"
    if detail["type"] in ("model_type", "dataclass_type"):
        group = getattr(defaults, name, None)
        names = ", ".join(vars(group)) if group is not None else "its settings"
        return f"{origin}: {name} is {detail['input']!r}, but it is a group of parameters; give some of {names}."
    return f"{origin}: {name} is {detail['input']!r}; {reason(details)}"


def _guess(name: str, tree: Mapping[str, Any]) -> str:
    """Say which parameter was probably meant: one beside it, or one elsewhere in the tree."""
    parent, _, last = name.rpartition(".")
    beside = list(value_at(tree, parent) if parent else tree)
    ends = {leaf.rpartition(".")[2]: leaf for leaf in reversed(list(leaves(tree)))}
    ends |= {key: f"{parent}.{key}".lstrip(".") for key in beside}
    guess = last if last in ends else nearest(last, beside) or nearest(last, ends)
    return f"did you mean {ends[guess]}?" if guess else f"the names here are {', '.join(beside)}."


def short_names(tree: Mapping[str, Any]) -> dict[str, str]:
    """Return every short name of a parameter in a tree, to the dotted name it means.

    ``train.iterations`` is ``train_iterations`` and, being the only parameter that ends so, also ``iterations``; a
    part is called by its place, like ``reward``.
    """
    names = list(leaves(tree))
    ends = [re.sub(r".*\.", "", name) for name in names]
    short = {end: name for end, name in zip(ends, names, strict=True) if ends.count(end) == 1}
    return {**short, **{name.replace(".", "_"): name for name in names}, **{name: name for name in tree}}
