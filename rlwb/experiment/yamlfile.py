"""YAML without its traps: what is written is what arrives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from rlwb.errors import ConfigError

_LEADING_ZERO = re.compile(r"^[-+]?0[0-9_]+$")


class _Loader(yaml.SafeLoader):
    """The safe loader under YAML 1.2's rules for plain scalars.

    ``on``, ``off``, ``yes`` and ``no`` are text, ``13:00`` is text and not 780, ``1e-4`` is a number, ``none`` is
    nothing. A number with leading zeros is refused because it would lose them, and so is a name that stands twice.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the base class's protocol


class _Dumper(yaml.SafeDumper):
    """The safe dumper; it quotes whatever either set of rules would read as something else than text."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # Only double quotes keep these line breaks of Unicode's.
    style = '"' if any(mark in text for mark in "\x85\u2028\u2029\ufeff") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

_NUMBER = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$")
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:null", re.compile(r"^(~|null|Null|NULL|none|None|)$"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9][0-9_]*$|^0x[0-9a-fA-F]+$"), list("-+0123456789")),
    ("tag:yaml.org,2002:float", _NUMBER, list("-+0123456789.")),
    ("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"]),
):
    _Loader.add_implicit_resolver(_tag, _pattern, _first)
    if _tag.endswith(("float", "null")):
        _Dumper.add_implicit_resolver(_tag, _pattern, _first)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(node.value)
    if _LEADING_ZERO.match(text):
        raise ConfigError(f'{_place(node)}: {text} would lose its leading zeros as a number; quote it: "{text}".')
    return int(text.replace("_", ""), 0)


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, (str, int, float, bool)):
            raise ConfigError(f"{_place(key_node)}: {key!r} cannot be a parameter's name.")
        if key in mapping:
            raise ConfigError(f"{_place(key_node)}: {key!r} stands here a second time; keep one of the two.")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def parse_yaml(text: str, origin: str) -> Any:
    """Return the value that `text` holds; `origin` names it in errors.

    Raises
    ------
    ConfigError
        For text that is not YAML, a doubled name, or a number that would lose its leading zeros.
    """
    loader = _Loader(text)
    loader.name = origin
    try:
        return loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{origin}, line {mark.line + 1}" if mark is not None else origin
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{place}: this is not YAML ({problem}).") from error
    finally:
        loader.dispose()


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the parameters in the file `path`, an empty file being no parameters at all."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such configuration file.") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a folder; name a YAML file of parameters.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as a configuration ({error}); write it again as UTF-8.") from error
    value = parse_yaml(text, str(path))
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: a configuration is a list of 'name: value' lines, not {type(value).__name__}.")
    return value


def dump_yaml(value: Any, *, flow: bool = False) -> str:
    """Return `value` (dicts, lists, text, numbers, booleans, None) as YAML in the given order.

    `flow` puts everything on one line.
    """
    width = 10_000 if flow else 120
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=flow, width=width)
    return str(text).removesuffix("...\n")
