"""Layers of settings from files, command lines and notebooks, laid on each other to one tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from fnmatch import fnmatch
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rlwb.errors import ConfigError
from rlwb.experiment.yamlfile import MOST_LEVELS, parse_yaml
from rlwb.files import as_json
from rlwb.parts import settings_of
from rlwb.values import nearest, reason, shown

Tree = TypeVar("Tree", bound=BaseModel)

READ_FROM_SOURCE = {"market": "bars", "orders": "table"}
"""Place to what the part there is called whose settings name a ``source`` and no part."""

#: Places that hold several parts.
_LISTS = ("baselines", "trackers")
#: Settings of trackers that are paths.
_TRACKED_AT = ("folder", "store")
#: A text that names a file's class or function.
_IN_FILE = re.compile(r"(?P<file>.+\.py):(?P<attribute>\w+)")

RENAMED: dict[str, str] = {
    "market.synthetic.*": "market.*",
    "market.kind": "market.reader, as market: {reader: qlib}",
    "market.options.*": "market.reader.*, as market: {reader: {name: qlib, *: …}}",
    **{
        f"market.{name}": f"market.reader.{name}, as market: {{reader: {{name: table, {name}: …}}}}"
        for name in ("columns", "instrument_pattern", "datetime_format")
    },
    "features.imports": "features.columns, as features: {columns: [close, my_features.py:my_feature]}",
    "orders.generate.*": "orders.*",
    "orders.split.rolling.*": "split.rolling.*",
    "orders.split.*": "split.*",
    "execution.rules.odd_remainder": "execution.rules.odd_lot",
    "policy.network": "network, as network: mlp",
    "policy.hidden": "network.hidden",
    "policy.mask_actions": "head.mask_actions",
    "policy.even_start": "head.even_start",
    "train.algorithm": "algorithm, as algorithm: dqn",
    "train.dqn.epsilon_iterations": "algorithm.epsilon_updates",
    "train.dqn.*": "algorithm.*",
    "train.opd.*": "algorithm.*",
    "train.lr": "algorithm.learning_rate",
    "train.entropy": "algorithm.entropy_coef",
    "train.decay_iterations": "algorithm.decay_updates",
    "train.repeats": "algorithm.repeat",
    **{f"train.{name}": f"algorithm.{name}" for name in ("learning_rate", "gamma", "gae_lambda", "clip", "value_coef")},
    **{f"train.{name}": f"algorithm.{name}" for name in ("batch_size", "max_grad_norm")},
    "train.action_values": "action_interpreter.values",
    "train.reward": "reward, as reward: sparse",
    "train.penalty": "reward.penalty",
    "train.reward_scale": "reward.scale",
    "backtest.baselines": "baselines, as baselines: [twap, vwap]",
    "backtest.urgency": "a setting of its baseline, as baselines: [{name: almgren_chriss, urgency: 3}]",
}
"""Old name, or ``group.*``, to the form that takes its place; a ``*`` in it stands for the last part of the name."""
_SOME_OLD_NAME = re.compile("|".join(f"{re.escape(old.removesuffix('.*'))}(\\.|$)" for old in RENAMED))

#: In place of a value that nothing is said of.
_NOTHING = object()
#: Characters of a parameter's name at most.
_LONGEST_NAME = 200
#: Characters that no text has: controls but tab and line feed, and halves of a surrogate pair.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


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
        if not found or not name or not name.isprintable() or len(name) > _LONGEST_NAME:
            raise ConfigError(f"--set {shown(assignment)}: write it as name=value, for example train.iterations=20.")
        if name in values:
            raise ConfigError(f"--set {name} is given twice; keep one of the two.")
        values[name] = parse_yaml(text, f"--set {name}")
    return Layer("--set", values)


def is_search(value: Any) -> bool:
    """Tell whether a value is a search space beside the value it replaces, as in ``{value: 3, search: [1, 3, 9]}``.

    A mapping with a ``name`` is a part, which may have a setting of that name.
    """
    return isinstance(value, Mapping) and "search" in value and "name" not in value


def searches(tree: Any, place: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place of every search space in nested values, as ``baselines[1].urgency``, and what stands there."""
    if is_search(tree):
        yield place, {name: tree[name] for name in ("value", "search") if name in tree}
        tree = {name: one for name, one in tree.items() if name not in ("value", "search")}
    for key, value in tree.items() if isinstance(tree, Mapping) else ():
        yield from searches(value, f"{place}.{key}".lstrip("."))
    for number, value in enumerate(tree if isinstance(tree, (list, tuple)) else ()):
        yield from searches(value, f"{place}[{number}]")


def settled(
    tree: Any, origin: str, slots: Mapping[str, str], chosen: Mapping[str, Any] | None = None, place: str = ""
) -> Any:
    """Return nested values with one value in place of every search space: of `chosen` by place, else its ``value``.

    A space without a value leaves its setting to what else is said of it. Further settings beside the space of a part
    are those of whichever part is chosen.
    """
    if isinstance(tree, Mapping):
        said = {}
        for key, value in tree.items():
            at = f"{place}.{key}".lstrip(".")
            if not is_search(value):
                said[key] = settled(value, origin, slots, chosen, at)
                continue
            more = {name: one for name, one in value.items() if name not in ("value", "search")}
            if more and at not in slots:
                raise ConfigError(f"{origin}: {at} has {next(iter(more))} beside value and search; keep these two.")
            one = (chosen or {}).get(at, value.get("value", _NOTHING))
            if one is not _NOTHING and at in slots and not isinstance(one, (Mapping, list)):
                one = {"name": one}
            if more:
                one = {**({} if one is _NOTHING else one), **settled(more, origin, slots, chosen, at)}
            if one is not _NOTHING:
                said[key] = one
        return said
    if isinstance(tree, (list, tuple)):
        return [_settled_item(one, origin, slots, chosen, f"{place}[{i}]") for i, one in enumerate(tree)]
    return tree


def _settled_item(
    item: Any, origin: str, slots: Mapping[str, str], chosen: Mapping[str, Any] | None, place: str
) -> Any:
    if not is_search(item):
        return settled(item, origin, slots, chosen, place)
    if place not in (chosen or {}) and "value" not in item:
        raise ConfigError(f"{origin}: {place} has a search and no value; say the value that a run takes.")
    return (chosen or {}).get(place, item.get("value"))


def unfolded(layer: Layer, slots: Mapping[str, str]) -> dict[str, Any]:
    """Return a layer's values with dotted names taken apart, search spaces as they stand."""
    tree: dict[str, Any] = {}
    for dotted, value in layer.values.items():
        lengths = [len(part) for part in str(dotted).split(".")]
        if not all(lengths) or max(lengths) > _LONGEST_NAME:
            raise ConfigError(f"{layer.origin}: {shown(dotted)} cannot be a parameter's name.")
        _check_plain(value, layer.origin, str(dotted), str(dotted).count("."))
        for part in reversed(str(dotted).split(".")):
            value = {part: value}
        _add(tree, value, layer.origin, slots)
    return tree


def nested(layer: Layer, slots: Mapping[str, str], chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a layer's values as nested mappings: dotted names taken apart, parts as mappings, paths absolute.

    A name that is given twice or was renamed is a `ConfigError`; `slots` are the names of parts, with their kinds. Of
    search spaces the value stays that `settled` takes.
    """
    tree = settled(unfolded(layer, slots), layer.origin, slots, chosen)
    for name in filter(_SOME_OLD_NAME.match, leaves(tree)):
        for old, new in RENAMED.items():
            if fnmatch(name, old) or name.startswith(f"{old}."):
                new = new.replace("*", name.rpartition(".")[2])
                raise ConfigError(f"{layer.origin}: {name} is written {new} now.")
    for name, value in tree.items():
        if name in slots and not isinstance(value, (dict, type(None))) and name not in _LISTS:
            raise ConfigError(
                f"{layer.origin}: {name} is {shown(value)}; write a name, or {{name: …}} with its settings."
            )

    execution = tree.get("execution")
    if isinstance(execution, dict) and isinstance(execution.get("rules"), str):
        name = execution.pop("rules")
        if execution.get("preset") not in (None, name):
            raise ConfigError(f"{layer.origin}: execution.rules and execution.preset name two presets; keep one.")
        execution["preset"] = name

    def rooted(path: str) -> str:
        return str((layer.base / Path(path).expanduser()).resolve())

    for place, reads in READ_FROM_SOURCE.items():
        own = tree.get(place)
        if isinstance(own, dict) and isinstance(own.get("source"), str):
            tree[place] = {"name": reads, **own, "source": rooted(own["source"])}
    algorithm = tree.get("algorithm")
    if isinstance(algorithm, dict) and isinstance(algorithm.get("checkpoint"), str):
        tree["algorithm"] = {**algorithm, "checkpoint": rooted(algorithm["checkpoint"])}
    trackers = tree.get("trackers")
    if isinstance(trackers, (list, tuple)):
        tree["trackers"] = [_tracked_at(one, rooted) for one in trackers]
    return with_code(tree, lambda code: f"{rooted(code['file'])}:{code['attribute']}")


def _tracked_at(tracker: Any, rooted: Callable[[str], str]) -> Any:
    """Return a tracker's settings with paths made absolute; an address stays."""
    if not isinstance(tracker, Mapping):
        return tracker
    paths = {
        key: rooted(one)
        for key, one in tracker.items()
        if key in _TRACKED_AT and isinstance(one, str) and "://" not in one
    }
    return {**tracker, **paths}


def _check_plain(value: Any, origin: str, name: str, level: int = 0) -> None:
    """Refuse what neither YAML nor JSON can hold, and names that nobody can read; `name` is the value's."""

    def refusal(said: str) -> str:
        return f"{origin}: {name} is {said}; a configuration holds names, texts and numbers of a usual size."

    if not name.rpartition(".")[2] or not name.isprintable() or len(name) > MOST_LEVELS * _LONGEST_NAME:
        raise ConfigError(f"{origin}: {shown(name)} cannot be a parameter's name.")
    if level > MOST_LEVELS:
        raise ConfigError(f"{origin}: {shown(name)} is more than {MOST_LEVELS} levels deep; no parameter is.")
    if isinstance(value, str) and (odd := _NO_TEXT.search(value)):
        raise ConfigError(refusal(f"a text with the character #x{ord(odd[0]):02x}"))
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(refusal(f"{shown(value)}, beyond 64 bits"))
    if isinstance(value, Mapping):
        for key, one in value.items():
            if not isinstance(key, (str, int, float)) or len(str(key)) > _LONGEST_NAME:
                raise ConfigError(refusal(f"a mapping with the name {shown(key)}"))
            _check_plain(one, origin, f"{name}.{key}", level + 1)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, one in enumerate(value):
            _check_plain(one, origin, f"{name}[{number}]", level + 1)


def _add(tree: dict[str, Any], new: Mapping[str, Any], origin: str, slots: Mapping[str, str], place: str = "") -> None:
    """Add values to nested mappings, and refuse one that is there already."""
    for key, value in new.items():
        name = f"{place}{key}"
        if name in slots and isinstance(value, str):
            value = {"name": value}
        if isinstance(value, Mapping) and isinstance(tree.setdefault(key, {}), dict):
            _add(tree[key], value, origin, slots, f"{name}.")
        elif key in tree:
            raise ConfigError(f"{origin}: {name} is given twice; keep one of the two.")
        else:
            tree[key] = value


def with_code(value: Any, change: Callable[[re.Match[str]], str]) -> Any:
    """Return a tree with every text that names a file's class or function changed; its groups: file, attribute."""
    if isinstance(value, Mapping):
        return {key: with_code(one, change) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_code(one, change) for one in value]
    match = _IN_FILE.fullmatch(value) if isinstance(value, str) else None
    return change(match) if match else value


def _merge(tree: dict[str, Any], new: Mapping[str, Any], slots: Mapping[str, str]) -> None:
    """Lay values on a tree; a part of another name brings none of the old settings."""
    for name, value in new.items():
        old = tree.get(name)
        if not isinstance(value, Mapping) or not isinstance(old, Mapping):
            tree[name] = value
        elif name in slots:
            part = value.get("name", old["name"])
            tree[name] = _joined(old if part == old["name"] else {}, value, _groups(slots[name], part))
        elif name == "execution" and "preset" in value:
            tree[name] = _joined({key: one for key, one in old.items() if key != "rules"}, value)
        else:
            tree[name] = _joined(old, value, {"rules", "rolling"})


def _joined(old: Mapping[str, Any], new: Mapping[str, Any], groups: Container[str] = ()) -> dict[str, Any]:
    """Return settings with others laid on them; those of `groups` have settings of their own."""
    joined = dict(old)
    for key, value in new.items():
        both = key in groups and isinstance(value, Mapping) and isinstance(joined.get(key), Mapping)
        joined[key] = {**joined[key], **value} if both else value
    return joined


def _groups(kind: str, part: Any) -> set[str]:
    """Return the settings of a part that have settings of their own; none for a name that is refused later."""
    try:
        known = settings_of(kind, part)
    except (ConfigError, AttributeError, TypeError):
        return set()
    return {one.name for one in known.settings if one.group or one.is_part} if known else set()


def merged(
    defaults: BaseModel, layers: Sequence[Layer], slots: Mapping[str, str], chosen: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of `layers` laid on each other, unchecked, and the origin of each by its dotted name.

    A later layer wins over an earlier one; `chosen` has values for the places of search spaces.
    """
    values: dict[str, Any] = {
        slot: {"name": part.name} for slot in slots if not isinstance(part := getattr(defaults, slot), tuple)
    }
    origins: dict[str, str] = {}
    for layer in layers:
        # An empty group, as in "train:" with nothing below, says nothing.
        given = {
            name: one
            for name, one in nested(layer, slots, chosen).items()
            if one is not None or not _is_group(getattr(defaults, name, None))
        }
        _merge(values, given, slots)
        origins |= dict.fromkeys(leaves(given), layer.origin)
    return values, origins


def build(
    owner: type[Tree], layers: Sequence[Layer], slots: Mapping[str, str], chosen: Mapping[str, Any] | None = None
) -> Tree:
    """Return the tree of `owner` with the values of `layers`, a later layer winning over an earlier one.

    Parameters
    ----------
    chosen
        Values for search spaces, by their places; without, each is the value that stands beside the space.

    Raises
    ------
    ConfigError
        For an unknown name, a wrong type or an impossible value, naming parameter, value and origin.
    """
    defaults = owner()
    values, origins = merged(defaults, layers, slots, chosen)
    given = {".".join(name.split(".")[:depth]) for name in origins for depth in (1, 2)}
    values = {name: value for name, value in values.items() if name in given}
    parts = [slot for slot in slots if slot in values and not isinstance(getattr(defaults, slot), tuple)]
    unnamed = [slot for slot in parts if f"{slot}.name" not in given and slot not in origins]
    try:
        if unnamed:  # settings of the default part, which may depend on the other parts
            others = {name: value for name, value in values.items() if name not in unnamed}
            around = owner.model_validate_json(as_json(others), strict=True)
            values |= {slot: {**values[slot], "name": getattr(around, slot).name} for slot in unnamed}
        # JSON is the strict form that files, command lines and notebooks share: a list is a tuple, text is no number.
        return owner.model_validate_json(as_json(values), strict=True)
    except ValidationError as error:
        found: dict[tuple[str, str], list[ErrorDetails]] = {}
        for detail in error.errors():
            place = detail["loc"] if detail["type"] == "extra_forbidden" else _without_types(detail["loc"], values)
            name = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
            inside = ".".join(str(part) for part in takewhile(lambda part: isinstance(part, str), place))
            found.setdefault((name, inside), []).append(detail)
        first = islice(found.items(), 3)
        raise ConfigError(" ".join(_sentence(*names, details, defaults, origins) for names, details in first)) from None


def _is_group(value: Any) -> bool:
    return isinstance(value, BaseModel) or is_dataclass(value)


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


def _sentence(
    name: str, inside: str, details: list[ErrorDetails], defaults: BaseModel, origins: Mapping[str, str]
) -> str:
    """Turn pydantic's findings on one parameter, `inside` a parameter with an origin, into a sentence to act on."""
    detail = details[0]

    def concerned(at: str) -> bool:  # a finding on the whole tree names the parameters that do not fit together
        return f"{at}.".startswith(f"{inside}.") if inside else at in reason(details)

    origin = next((one for at, one in reversed(list(origins.items())) if concerned(at)), "defaults")
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{origin}: there is no parameter {name}; {_guess(name, defaults.model_dump())}"
    if detail["type"] == "value_error":
        said = reason(details)
        return f"{origin}: {said}" if not name or said.startswith(f"{name} ") else f"{origin}: {name}: {said}"
    if detail["type"] in ("model_type", "dataclass_type"):
        group = getattr(defaults, name, None)
        names = ", ".join(vars(group)) if group is not None else "its settings"
        return f"{origin}: {name} is {shown(detail['input'])}, but it is a group of parameters; give some of {names}."
    return f"{origin}: {name} is {shown(detail['input'])}; {reason(details)}"


def _guess(name: str, tree: Mapping[str, Any]) -> str:
    """Say which parameter was probably meant: one beside it, or one elsewhere in the tree."""
    parent, _, last = name.rpartition(".")
    try:
        beside = list((value_at(tree, parent) or {}) if parent else tree)
    except (LookupError, TypeError):  # a name with a dot in it
        beside = list(tree)
    if not beside:  # a group that is none by default
        return "rlwb config says what there is."
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
    ends = [name.rpartition(".")[2] for name in names]
    short = {end: name for end, name in zip(ends, names, strict=True) if ends.count(end) == 1}
    return {**short, **{name.replace(".", "_"): name for name in names}, **{name: name for name in tree}}
