"""The schema of a configuration: every field with type, default, unit and meaning, for people and for editors.

There is one schema. Types and defaults are those of the sections and of the parts' constructors, units and meanings
those of their docstrings; `json_schema` puts them together, and `explain` reads them from there. Files, ``--set``,
notebooks' parameters and search spaces are all checked by the same classes.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from rlwb.errors import ConfigError
from rlwb.execution.presets import PRESETS
from rlwb.experiment.config import SLOTS, RunConfig, Section
from rlwb.experiment.layers import READ_FROM_SOURCE
from rlwb.parts import BUILT_IN, Part, describe, names
from rlwb.signatures import REQUIRED, UNKNOWN, Setting, parameter_texts, parameter_units
from rlwb.values import suggestion

UNIT = "x-unit"
"""Key of a field's unit in the schema."""

OWN = "^.+:[A-Za-z_]\\w*$"
"""Pattern of the name of a part of one's own: ``file.py:Name`` or ``package.module:Name``."""

_URL = "http://json-schema.org/draft-07/schema#"
_OWN_PART = "Your own: file.py:Name or package.module:Name; its settings are its constructor's parameters."
_SEARCH = {
    "description": "The values that rlwb search looks at: a list, or a range.",
    "anyOf": [
        {"type": "array", "minItems": 1},
        {
            "type": "object",
            "properties": {
                "low": {"type": "number", "description": "The smallest value."},
                "high": {"type": "number", "description": "The largest value."},
                "log": {"type": "boolean", "description": "Whether values are drawn evenly on a logarithmic scale."},
                "step": {"type": "number", "exclusiveMinimum": 0, "description": "Distance of neighbouring values."},
                "points": {"type": "integer", "minimum": 1, "description": "Values of the range in a grid."},
            },
            "required": ["low", "high"],
            "additionalProperties": False,
        },
    ],
}
#: Where the name of a preset stands for a whole group.
_RULES = "execution.rules"
_WIDTH = 116


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 7) of a configuration file, for editors.

    It has all built-in parts, and those of installed packages, with their settings; parts of one's own are allowed, and
    so is a search space in place of every value. A name that is not there is an error.
    """
    tree = _section(RunConfig, "")
    groups = "|".join(name for name, one in RunConfig.model_fields.items() if not _is_leaf(one.annotation))
    return {
        "$schema": _URL,
        "title": "Configuration of an rlwb run",
        **tree,
        "patternProperties": {f"^({groups})\\.[a-z_.]+$": {"description": "A parameter by its dotted name."}},
        "definitions": {"search": _SEARCH, **{kind: _part(kind) for kind in dict.fromkeys(_kinds())}},
    }


def schema_text() -> str:
    """Return the schema as the file docs/config.schema.json has it."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _kinds() -> Iterator[str]:
    """Yield the kinds of parts that a configuration holds, those in parts' settings too."""
    for kind in SLOTS.values():
        yield kind
        for name in BUILT_IN[kind]:
            yield from (one.name for one in describe(kind, name) if one.is_part and one.name in BUILT_IN)


def _is_leaf(annotation: Any) -> bool:
    return _group(annotation) is None and Part not in (annotation, *typing.get_args(annotation))


def _group(annotation: Any) -> Any:
    """Return the section or dataclass that an annotation names, alone or beside None."""
    options = [one for one in (annotation, *typing.get_args(annotation)) if isinstance(one, type)]
    return next((one for one in options if issubclass(one, Section) or dataclasses.is_dataclass(one)), None)


@cache
def _section(owner: Any, place: str) -> dict[str, Any]:
    """Return the schema of a section or dataclass that stands at a place of the tree."""
    doc = owner.__doc__ or ""
    texts, units, default = parameter_texts(doc), parameter_units(doc), owner() if _has_defaults(owner) else None
    properties: dict[str, Any] = {}
    for name, annotation in _annotations(owner).items():
        at = f"{place}.{name}".lstrip(".")
        about = {"description": texts.get(name, "").replace("``", "`")}
        value = _plain(getattr(default, name, None))
        if at in SLOTS:
            kind = {"$ref": f"#/definitions/{SLOTS[at]}"}
            several = isinstance(getattr(default, name), tuple)
            found = {"type": "array", "items": kind} if several else kind
            called = [one["name"] for one in value] if several else []
            short = [name if called.count(name) == 1 else one for name, one in zip(called, value, strict=False)]
            chosen = short if several else value["name"]
            properties[name] = {**about, "default": chosen, "anyOf": [found, _space(found, is_part=not several)]}
        elif (inner := _group(annotation)) is not None:
            options = [_section(inner, at), {"type": "null"}]
            options += [_leaf(Literal[tuple(PRESETS)])] if at == _RULES else []
            properties[name] = {**about, "anyOf": options}
        else:
            leaf = _leaf(annotation)
            unit = {UNIT: units[name]} if units.get(name) else {}
            properties[name] = {**about, **unit, "default": value, "anyOf": [leaf, _space(leaf)]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _has_defaults(owner: Any) -> bool:
    if not dataclasses.is_dataclass(owner):
        return True
    missing = dataclasses.MISSING
    return all(one.default is not missing or one.default_factory is not missing for one in dataclasses.fields(owner))


def _annotations(owner: Any) -> dict[str, Any]:
    """Return the fields of a section or dataclass with their types, limits included."""
    if issubclass(owner, Section):
        return {name: _limited(one) for name, one in owner.model_fields.items()}
    hints = typing.get_type_hints(owner, include_extras=True)
    return {one.name: hints[one.name] for one in dataclasses.fields(owner)}


def _limited(field: FieldInfo) -> Any:
    """Return the type of a section's field with its limits, which pydantic keeps beside it."""
    kind: Any = field.annotation
    return Annotated[kind, *field.metadata] if field.metadata and _is_leaf(kind) else kind


def _leaf(kind: Any) -> dict[str, Any]:
    """Return the schema of a plain value of a type; of one that is not known, any."""
    found = TypeAdapter(kind).json_schema()
    return {key: one for key, one in found.items() if key not in ("title", "default")}


def _space(value: Mapping[str, Any], *, is_part: bool = False) -> dict[str, Any]:
    """Return the schema of a search space in place of a value; beside that of a part further settings may stand."""
    return {
        "type": "object",
        "properties": {"value": value, "search": {"$ref": "#/definitions/search"}},
        "required": ["search"],
        "additionalProperties": is_part,
    }


def _part(kind: str) -> dict[str, Any]:
    """Return the schema of a part: a name, or a name and settings; without a name, settings of the default part."""
    known = names(kind)
    own = {"type": "string", "pattern": OWN, "description": _OWN_PART}
    default = next((getattr(RunConfig(), slot) for slot, one in SLOTS.items() if one == kind), None)
    unnamed = {default.name} if isinstance(default, Part) else set()
    options: list[dict[str, Any]] = [{"type": "string", "enum": known}, own]
    for name in known:
        settings = describe(kind, name)
        option: dict[str, Any] = {
            "title": f"{kind} {name}",
            "type": "object",
            "properties": {"name": {"const": name}, **{one.name: setting_schema(one) for one in settings}},
            "additionalProperties": False,
        }
        if name == READ_FROM_SOURCE.get(kind):  # which a source without a name means
            option["anyOf"] = [{"required": ["name"]}, {"required": ["source"]}]
        elif name not in unnamed:
            option["required"] = ["name"]
        options.append(option)
    options.append({"type": "object", "properties": {"name": own}, "required": ["name"], "description": _OWN_PART})
    return {"anyOf": options}


def setting_schema(one: Setting) -> dict[str, Any]:
    """Return the schema of a part's setting."""
    found: dict[str, Any] = {"description": one.meaning.replace("``", "`")}
    if one.unit:
        found[UNIT] = one.unit
    if one.default not in (REQUIRED, UNKNOWN):
        found["default"] = _plain(one.default)
    if one.is_part and one.name in BUILT_IN:
        leaf: dict[str, Any] = {
            "anyOf": [{"$ref": f"#/definitions/{one.name}"}, {"type": ["object", "string", "null"]}]
        }
    elif one.group is not None:
        fields = {field.name: setting_schema(field) for field in one.group}
        leaf = {"type": ["object", "null"], "properties": fields, "additionalProperties": False}
    else:
        leaf = _leaf(one.type)
    return {**found, "anyOf": [leaf, _space(leaf)]}


def _plain(value: Any) -> Any:
    """Return a default as JSON has it."""
    return TypeAdapter(Any).dump_python(value, mode="json")


def explain(config: RunConfig, name: str | None = None) -> str:
    """Return every field of a configuration, or those of `name`, with type, default, unit and meaning, as text.

    Parameters
    ----------
    config
        Whose parts' settings are told, and whose values where they are not the defaults.
    name
        A section, a field such as ``train.keep``, a place of a part, of which all built-in parts are told, or the name
        of a part; None tells all fields.

    Raises
    ------
    ConfigError
        For a name that there is not, with the nearest.
    """
    schema = json_schema()
    if name is None:
        lines = [line for field in schema["properties"] for line in _of_field(config, schema, field)]
    else:
        lines = list(_named(config, schema, name))
    return "\n".join(lines) + "\n"


def _named(config: RunConfig, schema: Mapping[str, Any], name: str) -> Iterator[str]:
    first, _, rest = name.partition(".")
    properties = schema["properties"]
    if name in SLOTS:
        yield from _entry(name, properties[name], None)
        for part in names(SLOTS[name]):
            yield from _of_part(SLOTS[name], part, "")
        yield f"  {_OWN_PART}"
    elif first in SLOTS and rest:
        found = False
        for part in names(SLOTS[first]):
            settings = {one.name: one for one in describe(SLOTS[first], part)}
            if rest in settings:
                found = True
                yield from _entry(f"{first}.{rest} of {part}", setting_schema(settings[rest]), None)
        if not found:
            every = dict.fromkeys(one.name for part in names(SLOTS[first]) for one in describe(SLOTS[first], part))
            raise ConfigError(f"no built-in {SLOTS[first]} has a setting {rest}; {suggestion(rest, every)}")
    elif first in properties:
        yield from _of_field(config, schema, first, within=name)
    else:
        kinds = [kind for kind in dict.fromkeys(_kinds()) if name in names(kind)]
        if not kinds:
            parts = [part for kind in dict.fromkeys(_kinds()) for part in names(kind)]
            known = dict.fromkeys([*properties, *parts])  # some parts are called alike
            raise ConfigError(f"there is no parameter or part {name}; {suggestion(name, known)}")
        for kind in kinds:
            yield from _of_part(kind, name, "")


def _of_field(config: RunConfig, schema: Mapping[str, Any], name: str, within: str = "") -> Iterator[str]:
    """Yield the lines of a field of the outermost level, of a section those `within` a name."""
    found, value = schema["properties"][name], getattr(config, name)
    if name in SLOTS:
        yield from _entry(name, found, _plain(value))
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts:
            yield from _of_part(SLOTS[name], part.name, "  ", part.settings)
        return
    matched = False
    for at, one, now in fields_below(name, found, _plain(value)):
        if not within or at == within or at.startswith(f"{within}."):
            matched = True
            yield from _entry(at, one, now)
    if not matched:
        every = [at for at, _, _ in fields_below(name, found, None)]
        raise ConfigError(f"there is no parameter {within}; {suggestion(within, every)}")


def fields_below(place: str, found: Mapping[str, Any], value: Any) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Yield place, schema and value of a field and of all below it."""
    yield place, found, value
    for option in found.get("anyOf", ()):
        if "search" in option.get("properties", ()):
            continue
        for name, one in option.get("properties", {}).items():
            yield from fields_below(f"{place}.{name}", one, value.get(name) if isinstance(value, dict) else None)


def _of_part(kind: str, name: str, indent: str, values: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield the lines of a part and its settings."""
    yield f"{indent}{kind} {name}"
    settings = describe(kind, name)
    if not settings:
        yield f"{indent}    no settings"
    for one in settings:
        now = None if values is None else values.get(one.name)
        for at, found, own in fields_below(one.name, setting_schema(one), _plain(now)):
            yield from (f"{indent}  {line}" for line in _entry(at, found, own))


def _entry(name: str, found: Mapping[str, Any], now: Any) -> Iterator[str]:
    """Yield the lines of one field: name, type, default and unit, then what it means."""
    options = [one for one in found.get("anyOf", ()) if "search" not in one.get("properties", ())]
    kind = " or ".join(dict.fromkeys(filter(None, map(type_in_words, options))))
    default = f"default {_value(found['default'])}" if "default" in found else ""
    here = f"here {_value(now)}" if "default" in found and now is not None and now != found["default"] else ""
    if isinstance(now, dict) and now.get("name") == found.get("default"):
        here = ""
    is_group = any("properties" in one for one in options)
    facts = ["group"] if is_group else [kind, default or "required", here, found.get(UNIT, "")]
    yield f"{name}: {'; '.join(filter(None, facts))}"
    yield from (f"    {line}" for line in textwrap.wrap(found.get("description", "").replace("`", ""), _WIDTH))


def type_in_words(schema: Mapping[str, Any]) -> str:
    """Return the type of a value in words."""
    if "enum" in schema:
        return " | ".join(map(_value, schema["enum"]))
    if "const" in schema:
        return _value(schema["const"])
    if "$ref" in schema:
        return "a part by name"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(type_in_words, schema["anyOf"])))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(type_in_words({**schema, "type": one}) for one in kind)
    if kind == "array":
        inner: Any = schema.get("items") or next(iter(schema.get("prefixItems", ())), {})
        return f"list of {type_in_words(inner)}" if isinstance(inner, dict) and inner else "list"
    if kind == "object":
        return "group" if "properties" in schema else "mapping"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true | false", "null": "none"}
    limits = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    told = [f"{word} {schema[key]:g}" for key, word in limits.items() if key in schema]
    return " ".join([words.get(str(kind), "any value"), *told])


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_value, value))}]"
    return value if isinstance(value, str) and value else json.dumps(value)
