"""A configuration that is filled in field by field: what each takes and means, what is wrong, and the file of all."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.config import SLOTS, RunConfig
from rlwb.experiment.explain import UNIT, fields_below, json_schema, setting_schema, type_in_words
from rlwb.experiment.layers import Layer, leaves, nested, searches, unfolded, value_at
from rlwb.experiment.pipeline import check_config
from rlwb.experiment.yamlfile import dump_yaml, parse_yaml, read_yaml
from rlwb.files import write_text
from rlwb.parts import Part, complete, describe, names

_ORIGIN = "the form"
#: Kinds of parts that stand in lists.
_KINDS = ("baseline", "tracker")


@dataclass(frozen=True)
class Field:
    """One parameter of a form.

    Attributes
    ----------
    name
        Its dotted name.
    section
        The field of the outermost level that it is part of.
    text
        Its value as YAML, or what was written there and is refused.
    options
        The values or names of parts to choose among; empty where it is written.
    is_part
        Whether it is the name of a part, which may also be one's own, as ``file.py:Name``.
    takes
        Its type with its limits, in words.
    default
        Its default as YAML; empty without one.
    unit, meaning
        As the schema has them; may be empty.
    error
        Why its text is refused; empty where it is not.
    """

    name: str
    section: str
    text: str
    options: tuple[str, ...]
    is_part: bool
    takes: str
    default: str
    unit: str
    meaning: str
    error: str


class ConfigurationState:
    """A configuration that is filled in field by field; what is refused stays beside its field and counts for nothing.

    Attributes
    ----------
    config
        The configuration so far.
    errors
        Dotted name to the sentence on what was written there.
    """

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.config = RunConfig()

    def sections(self) -> dict[str, str]:
        """Return the names of the fields of the outermost level, with what each is."""
        return {name: _plain(one.get("description", "")) for name, one in json_schema()["properties"].items()}

    def fields(self, section: str) -> list[Field]:
        """Return the fields of a section: of a part its name, then the settings of the one that is chosen."""
        found, value = json_schema()["properties"][section], self.config.as_dict()[section]
        if section in SLOTS and isinstance(value, dict):
            name = self.chosen(section)
            return list(self._part(section, found, value if name == value["name"] else {"name": name}))
        return [
            self._field(name, one, now)
            for name, one, now in fields_below(section, found, value)
            if not any("properties" in option for option in _options(one))
        ]

    def chosen(self, section: str) -> str:
        """Return the name of the part that is chosen, which may lack a setting as yet; empty where none can be."""
        value = self.config.as_dict()[section]
        if section not in SLOTS or not isinstance(value, dict):
            return ""
        return self._lacking(section) or str(value["name"])

    def _lacking(self, section: str) -> str:
        """Return the name of a part that is chosen and refused, as one is that lacks a setting; else the empty text."""
        text = self._texts[section].strip() if section in self.errors else ""
        return text if section in SLOTS and text in names(SLOTS[section]) else ""

    def set(self, name: str, text: str) -> None:
        """Write a text, which is YAML, into a field; an empty one takes the default back.

        What was refused elsewhere, because it did not fit to this one, is tried again.
        """
        self._texts[name] = text
        self._try(name)
        for other in [one for one in self.errors if one != name]:
            self._try(other)

    def tree(self) -> dict[str, Any]:
        """Return what differs from the defaults, as nested values; settings of a part stand with its name, if said."""
        kept = self._given
        for name in sorted(leaves(kept), key=_is_name):
            fewer = _without(kept, name)
            is_told = _is_name(name) and len(value_at(kept, name.partition(".")[0])) > 1
            if not is_told and self._is_same(fewer):
                kept = fewer
        return kept

    def text(self) -> str:
        """Return what differs from the defaults, as YAML; the empty text where nothing does."""
        tree = self.tree()
        return dump_yaml(tree) if tree else ""

    def load(self, path: Path) -> None:
        """Take over a file of parameters in the place of all that was filled in; one that is refused changes nothing.

        Comments are not kept, and paths in it become absolute.

        Raises
        ------
        ConfigError
            For a file that `rlwb run` refuses, or that has search spaces.
        """
        config, layer = RunConfig.load(path), Layer(str(path), read_yaml(path), path.parent)
        check_config(config)
        for place, _ in searches(unfolded(layer, SLOTS)):
            raise ConfigError(f"{path}: {place} has a search space, which a form cannot show; edit the file itself.")
        self._take(config, nested(layer, SLOTS))

    def take(self, config: RunConfig) -> None:
        """Take over a configuration in the place of all that was filled in."""
        given = config.as_dict()
        lists = {name: list(map(_short, given[name])) for name in SLOTS if isinstance(given[name], list)}
        self._take(config, {**given, **lists})

    def save(self, path: Path) -> None:
        """Write what differs from the defaults, whole or not at all.

        Raises
        ------
        ConfigError
            While a field is refused.
        """
        if self.errors:
            name = next(iter(self.errors))
            raise ConfigError(f"{name} is not settled yet: {self.errors[name]}")
        try:
            write_text(path, self.text())
        except OSError as error:
            raise ConfigError(f"{path} cannot be written to ({error.strerror}); name another file.") from None

    def _take(self, config: RunConfig, given: Mapping[str, Any]) -> None:
        self._given, self._texts, self.errors, self.config = copy.deepcopy(dict(given)), {}, {}, config
        self._given = self.tree()  # so that what follows from another field still does

    def _part(self, place: str, found: Mapping[str, Any], value: Mapping[str, Any]) -> Iterator[Field]:
        yield self._field(place, found, value["name"], options=tuple(names(SLOTS[place])))
        for one in describe(SLOTS[place], value["name"]):
            about = setting_schema(one)
            set_to = value.get(one.name, about.get("default"))
            for name, schema, now in fields_below(f"{place}.{one.name}", about, set_to):
                if not any("properties" in option for option in _options(schema)):
                    yield self._field(name, schema, now)

    def _field(self, name: str, schema: Mapping[str, Any], value: Any, options: tuple[str, ...] | None = None) -> Field:
        leaves = [one for option in _options(schema) for one in option.get("anyOf", [option])]
        takes = " or ".join(dict.fromkeys(filter(None, map(type_in_words, leaves))))
        chosen = [_text(one) for leaf in leaves for one in leaf.get("enum", [])]
        if {str(leaf.get("type")) for leaf in leaves} <= {"boolean", "null"}:
            chosen = ["true", "false"]
        if not all("enum" in leaf or leaf.get("type") in ("boolean", "null") for leaf in leaves):
            chosen = []
        elif any(leaf.get("type") == "null" for leaf in leaves):
            chosen.append("null")
        is_none = value is None and schema.get("default") is None
        return Field(
            name=name,
            section=name.partition(".")[0],
            text=self._texts[name] if name in self.errors else "" if is_none and not chosen else _text(value),
            options=tuple(chosen) if options is None else options,
            is_part=options is not None,
            takes="a part by name" if options is not None else takes,
            default=_text(schema["default"]).replace("null", "none") if "default" in schema else "",
            unit=schema.get(UNIT, ""),
            meaning=_plain(schema.get("description", "")),
            error=self.errors.get(name, ""),
        )

    def _try(self, name: str) -> None:
        """Take over the text of a field, or note why not."""
        try:
            text, place = self._texts[name].strip(), name.partition(".")[0]
            lacking = self._lacking(place) if place != name else ""
            tree = {**self._given, place: {"name": lacking}} if lacking else self._given
            if not text:
                given = _without(tree, name)
            elif name in SLOTS and isinstance(value_at(self.config.as_dict(), name), dict):
                given = {**self._given, name: {"name": text}}
            else:
                given = _with(tree, name, parse_yaml(text, name))
            config = self._built(given)
            check_config(config)
        except ConfigError as error:
            self.errors[name] = str(error).removeprefix(f"{_ORIGIN}: ")
        else:
            self._given, self.config = given, config
            self.errors.pop(name, None)
            if lacking:
                del self.errors[place]
            if name in SLOTS:  # the settings of another part are other ones
                for other in [one for one in self.errors if one.startswith(f"{name}.")]:
                    del self.errors[other]

    def _built(self, given: Mapping[str, Any]) -> RunConfig:
        return RunConfig.load(None, Layer(_ORIGIN, given))

    def _is_same(self, given: Mapping[str, Any]) -> bool:
        try:
            return self._built(given) == self.config
        except ConfigError:
            return False


def _is_name(name: str) -> bool:
    """Tell whether a dotted name is that of a part's name."""
    place, _, last = name.partition(".")
    return place in SLOTS and last == "name"


def _options(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return what a field takes, search spaces aside."""
    return [one for one in schema.get("anyOf", ()) if "search" not in one.get("properties", ())]


def _with(tree: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return nested values with another one at a dotted name."""
    first, _, rest = name.partition(".")
    inner = tree.get(first)
    return {**tree, first: _with(inner if isinstance(inner, Mapping) else {}, rest, value) if rest else value}


def _without(tree: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return nested values without that at a dotted name, and without groups that are empty then."""
    first, _, rest = name.partition(".")
    inner = tree.get(first)
    fewer = _without(inner, rest) if rest and isinstance(inner, Mapping) else None
    kept = {key: one for key, one in tree.items() if key != first}
    return {**kept, first: fewer} if fewer else kept


def _text(value: Any) -> str:
    """Return a value as YAML on one line, as it may be written into a field."""
    if isinstance(value, Part):
        value = value.model_dump()
    if isinstance(value, (list, tuple)):
        value = [_short(one) if isinstance(one, dict) and "name" in one else one for one in value]
    return dump_yaml(value, flow=True).strip().removesuffix("...").strip()


def _short(part: Mapping[str, Any]) -> Any:
    """Return a part of a list with the settings that are not its defaults; without any, its name."""
    kind = next((kind for kind in _KINDS if part["name"] in names(kind)), None)
    usual = complete(kind, Part(name=part["name"])).settings if kind else {}
    said = {key: one for key, one in part.items() if key == "name" or key not in usual or usual[key] != one}
    return part["name"] if set(said) == {"name"} else said


def _plain(text: str) -> str:
    return text.replace("`", "")
