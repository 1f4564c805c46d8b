"""YAML without its traps: what is written is what arrives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from rlwb.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """The safe loader under YAML 1.2's rules for plain scalars.

    ``on``, ``off``, ``yes`` and ``no`` are text, ``13:00`` is text and not 780, ``1e-4`` is a number, ``none`` is
    nothing. A number with leading zeros is refused because it would lose them, and so is a name that stands twice.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the base class's protocol

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = str(node.value)
        if re.match(r"[-+]?0[0-9_]+$", text):
            raise ConfigError(f'{_place(node)}: {text} would lose its leading zeros as a number; quote it: "{text}".')
        return int(text.replace("_", ""), 0)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)):
                raise ConfigError(f"{_place(key_node)}: {key!r} cannot be a parameter's name.")
            if key in mapping:
                raise ConfigError(f"{_place(key_node)}: {key!r} stands here a second time; keep one of the two.")
            mapping[key] = self.construct_object(value_node, deep=True)
        return mapping


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


class _Dumper(yaml.SafeDumper):
    """The safe dumper; it quotes whatever either set of rules would read as something else than text."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Only double quotes keep these line breaks of Unicode's.
        style = '"' if any(mark in data for mark in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)

_FLOAT = r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"
for _name, _pattern, _first in (
    ("null", r"^(~|null|Null|NULL|none|None|)$", ["~", "n", "N", ""]),
    ("bool", r"^(true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^[-+]?[0-9][0-9_]*$|^0x[0-9a-fA-F]+$", list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
    ("merge", r"^<<$", ["<"]),
):
    for _kind in (_Loader, _Dumper) if _name in ("null", "float") else (_Loader,):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(_pattern), _first)


def parse_yaml(text: str, origin: str) -> Any:
    """Return the value that `text` holds; `origin` names it in errors.

    Raises
    ------
    ConfigError
        For text that is not YAML, a doubled name, or a number that would lose its leading zeros.
    """
    try:
        loader = _Loader(text)
        loader.name = origin
        return loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{origin}, line {mark.line + 1}" if mark is not None else origin
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{place}: this is not YAML ({problem}).") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the parameters in the file `path`, an empty file being no parameters at all."""
    try:
        value = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or f"{error}; write it again as UTF-8"
        raise ConfigError(f"{path}: cannot be read as a configuration ({reason}).") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a configuration is a list of 'name: value' lines, not {type(value).__name__}.")
    return value


def dump_yaml(value: Any, *, flow: bool = False) -> str:
    """Return `value` (dicts, lists, text, numbers, booleans, None) as YAML in the given order; `flow`: on one line."""
    width = 10_000 if flow else 120
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=width)
    return str(text).removesuffix("...\n")
