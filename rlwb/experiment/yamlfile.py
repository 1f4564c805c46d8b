"""YAML without its traps: what is written is what arrives."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from rlwb.errors import ConfigError
from rlwb.values import shown

#: Characters of a text, values in it with all that aliases repeat, and levels of nesting that a configuration may have.
MOST_CHARACTERS, MOST_VALUES, MOST_LEVELS = 1_000_000, 20_000, 20
_MOST_DIGITS = 100
#: Characters of what PyYAML says that an error shows.
_QUOTED = 200
_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
#: Type of plain scalars to its pattern and the characters that it may begin with.
_PLAIN = {
    "null": (r"(~|null|Null|NULL|none|None|)", ["~", "n", "N", ""]),
    "bool": (r"(true|True|TRUE|false|False|FALSE)", list("tTfF")),
    "int": (r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (_FLOAT, list("-+0123456789.")),
    "merge": (r"<<", ["<"]),
}


class _Loader(yaml.SafeLoader):
    """The safe loader under YAML 1.2's rules for plain scalars, with bounds for what a text may grow to.

    ``on``, ``off``, ``yes`` and ``no`` are text, ``13:00`` is text and not 780, ``1e-4`` is a number, ``none`` is
    nothing; there are no dates, sets or bytes. A number with leading zeros is refused because it would lose them, and
    so is a name that stands twice in one mapping; what ``<<`` merges gives way to it.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the base class's protocol
    yaml_constructors: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._level, self._sizes, self._flat = 0, dict[yaml.Node, int](), set[yaml.Node]()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Bound depth and size while the text is read; an alias counts as much as what it repeats."""
        event = self.peek_event()
        self._level += 1
        if self._level > MOST_LEVELS:
            raise _wrong(event, f"more than {MOST_LEVELS} levels")
        node = super().compose_node(parent, index)
        self._level -= 1
        if isinstance(event, yaml.AliasEvent) and node not in self._sizes:
            raise _wrong(event, "a value that holds itself")
        if node not in self._sizes:
            inner = node.value if isinstance(node, yaml.CollectionNode) else []
            ones = chain.from_iterable(inner) if isinstance(node, yaml.MappingNode) else inner
            self._sizes[node] = 1 + sum(self._sizes[one] for one in ones)
        if max(self._sizes[node], len(self._sizes)) > MOST_VALUES:
            raise _wrong(event, f"more than {MOST_VALUES:,} values, all that aliases repeat included")
        return node

    def construct_plain(self, node: yaml.Node) -> Any:
        text, kind = str(self.construct_scalar(node)), node.tag.rpartition(":")[2]
        if kind != "str" and not re.fullmatch(_PLAIN[kind][0], text):
            raise _wrong(node, f"{shown(text)} is no {kind}")
        if kind == "int" and len(text) > _MOST_DIGITS:
            raise _wrong(node, f"a whole number of {len(text)} digits")
        if kind == "int" and re.fullmatch(r"[-+]?0[0-9_]+", text):
            raise ConfigError(f'{_place(node)}: {text} would lose its leading zeros as a number; quote it: "{text}".')
        if kind == "int":
            return int(text.replace("_", ""), 0)
        if kind == "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
        return {"bool": text.lower() == "true", "null": None, "str": text}[kind]

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge what ``<<`` names: of several the first counts most, and a name of one's own more than any."""
        if node in self._flat:
            return
        self._flat.add(node)
        own: dict[Any, Any] = {}
        merged: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag.endswith(":merge"):
                for one in value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]:
                    if not isinstance(one, yaml.MappingNode):
                        raise _wrong(one, "<< needs names with values, or a list of such")
                    self.flatten_mapping(one)
                    merged = {**{self.construct_object(pair[0]): pair for pair in one.value}, **merged}
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool)):
                raise ConfigError(f"{_place(key_node)}: {shown(key)} cannot be a parameter's name.")
            if key in own:
                raise ConfigError(f"{_place(key_node)}: {shown(key)} stands here a second time; keep one of the two.")
            own[key] = key_node, value_node
        node.value = [*{**merged, **own}.values()]


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


def _wrong(node: yaml.Node | yaml.Event, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


class _Dumper(yaml.SafeDumper):
    """The safe dumper; it quotes whatever either set of rules would read as something else than text."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        # Only double quotes keep these line breaks of Unicode's.
        style = '"' if any(mark in data for mark in "\x85\u2028\u2029\ufeff") else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)

for _name, (_pattern, _first) in _PLAIN.items():
    for _kind in (_Loader, _Dumper) if _name in ("null", "float") else (_Loader,):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(rf"^(?:{_pattern})$"), _first)
    if _name != "merge":
        _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _Loader.construct_plain)
_Loader.add_constructor("tag:yaml.org,2002:str", _Loader.construct_plain)
_Loader.add_constructor("tag:yaml.org,2002:seq", yaml.SafeLoader.construct_yaml_seq)
_Loader.add_constructor("tag:yaml.org,2002:map", yaml.SafeLoader.construct_yaml_map)
_Loader.add_constructor(None, yaml.SafeLoader.construct_undefined)


def parse_yaml(text: str, origin: str) -> Any:
    """Return the value that `text` holds; `origin` names it in errors.

    Raises
    ------
    ConfigError
        For text that is not YAML or larger than a configuration can be, a doubled name, or a number that would lose
        its leading zeros.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{origin}: this is longer than {MOST_CHARACTERS:,} characters; is it a configuration?")
    try:
        loader = _Loader(text)
        loader.name = origin
        return loader.get_single_data()
    except (ValueError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{origin}: this is not YAML (an escape such as \\UFFFFFFFF names no character).") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        before = text[: getattr(error, "position", 0)]  # of a character that no YAML has
        line = mark.line if mark is not None else before.count("\n") if before else None
        place = origin if line is None else f"{origin}, line {line + 1}"
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{place}: this is not YAML ({problem[:_QUOTED]}).") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the parameters in the file `path`, an empty file being no parameters at all."""
    try:
        with path.open(encoding="utf-8") as file:
            value = parse_yaml(file.read(MOST_CHARACTERS + 1), str(path))
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
