"""The settings of a class or function, read from its source without running it."""

from __future__ import annotations

import ast
import importlib.machinery
import inspect
import re
import sys
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda self: "…"})()
"""The default of a setting that is computed, and therefore known only when its part is made."""

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "required"})()
"""The default of a setting that has none."""


class Setting(NamedTuple):
    """One setting of a part.

    Attributes
    ----------
    name
        The parameter's name.
    type
        Its type; `typing.Any` where the source does not say it in plain types.
    default
        Its default, `REQUIRED` or `UNKNOWN`.
    annotation
        The type as the source spells it.
    meaning
        What the docstring says about it, on one line.
    group
        The settings of the dataclass that it is annotated with; None for a plain value.
    is_field
        Whether it is a field of the dataclass of a parameter ``settings``, and no parameter itself.
    unit
        Its unit, which stands behind its name in the docstring, as in ``half_life : minutes``; may be empty.
    """

    name: str
    type: Any
    default: Any
    annotation: str
    meaning: str
    group: tuple[Setting, ...] | None = None
    is_field: bool = False
    unit: str = ""

    @property
    def is_part(self) -> bool:
        """Whether the value is a part of the kind that the setting is called, told by the annotation ``Part``."""
        return bool(re.search(r"\bPart\b", self.annotation))

    @property
    def may_be_none(self) -> bool:
        """Whether the annotation names None."""
        return "None" in self.annotation or "Optional" in self.annotation


class Signature(NamedTuple):
    """What a class or function can be called with.

    Attributes
    ----------
    settings
        Its parameters in order; the fields of a dataclass in place of a parameter called ``settings``.
    is_open
        Whether it takes names that it does not list (``**settings``).
    """

    settings: tuple[Setting, ...]
    is_open: bool


def module_file(name: str) -> Path | None:
    """Return the source file of a module, None when there is none; imports nothing, not even its packages."""
    path: Sequence[str] | None = None
    spec: importlib.machinery.ModuleSpec | None = None
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        full = ".".join(parts[:count])
        found = (finder.find_spec(full, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((one for one in found if one is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def read_signature(file: Path, name: str) -> Signature | None:
    """Return what the class or function `name` of a Python file can be called with.

    Parameters
    ----------
    file
        The file; names that it imports are followed into their files.
    name
        A class (its ``__init__``, a base's, or a dataclass's fields count) or a function.

    Returns
    -------
    Signature or None
        None when the source does not define the name in a form that can be read without running it.
    """
    found = _find(file, name)
    if found is None:
        return None
    file, node = found
    if isinstance(node, ast.FunctionDef):
        return _of_function(file, node, ast.get_docstring(node))
    if _is_dataclass(node):
        fields = _fields(file, node)
        return None if fields is None else Signature(tuple(fields.values()), False)
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            doc = "\n\n".join(filter(None, (ast.get_docstring(node), ast.get_docstring(item))))
            return _of_function(file, item, doc, skip=1)
    base = next(iter(_bases(node)), None)
    if base is None:
        return Signature((), False)
    return read_signature(file, base.id) if isinstance(base, ast.Name) else None


def _of_function(file: Path, node: ast.FunctionDef, doc: str | None, skip: int = 0) -> Signature:
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(plain, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    texts, units = parameter_texts(doc or ""), parameter_units(doc or "")
    settings, is_open = [], arguments.kwarg is not None
    for argument, default in pairs[skip:]:
        if argument.arg == "settings":
            fields = _annotated_fields(file, argument.annotation)
            is_open |= fields is None
            settings += [one._replace(is_field=True) for one in fields or ()]
        else:
            settings.append(_setting(file, argument.arg, argument.annotation, default, texts, units))
    return Signature(tuple(settings), is_open)


def _bases(node: ast.ClassDef) -> list[ast.expr]:
    """Return the bases that may bring parameters of their own."""
    names = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    neutral = ("ABC", "Generic", "Protocol", "object")
    return [one for one in names if not (isinstance(one, ast.Name) and one.id in neutral)]


def _annotated_fields(file: Path, annotation: ast.expr | None) -> tuple[Setting, ...] | None:
    """Return the fields of the dataclass that an annotation names."""
    for name in re.findall(r"\w+", "" if annotation is None else ast.unparse(annotation)):
        found = _find(file, name)
        if found and _is_dataclass(found[1]):
            fields = _fields(*found)
            return None if fields is None else tuple(fields.values())
    return None


def _fields(file: Path, node: ast.stmt) -> dict[str, Setting] | None:
    """Return the fields of a dataclass, its bases' first; None when a base cannot be read."""
    assert isinstance(node, ast.ClassDef)
    fields: dict[str, Setting] = {}
    for base in _bases(node):
        found = _find(file, base.id) if isinstance(base, ast.Name) else None
        inherited = _fields(*found) if found and isinstance(found[1], ast.ClassDef) else None
        if inherited is None:
            return None
        fields |= inherited
    doc = ast.get_docstring(node) or ""
    texts = {name: one.meaning for name, one in fields.items()} | parameter_texts(doc)
    units = {name: one.unit for name, one in fields.items()} | parameter_units(doc)
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            name = item.target.id
            if "ClassVar" not in ast.unparse(item.annotation):
                fields[name] = _setting(file, name, item.annotation, item.value, texts, units)
    return fields


def _setting(
    file: Path,
    name: str,
    annotation: ast.expr | None,
    default: ast.expr | None,
    texts: Mapping[str, str],
    units: Mapping[str, str],
) -> Setting:
    value = REQUIRED if default is None else _literal(file, default)
    text = "" if annotation is None else ast.unparse(annotation).strip("'\"")
    kind = _plain_type(text)
    group = _annotated_fields(file, annotation) if kind is Any else None
    return Setting(name, kind, value, text, texts.get(name, ""), group or None, unit=units.get(name, ""))


def _literal(file: Path, node: ast.expr) -> Any:
    """Return the value of a literal, of a constant of the module, or of ``field(default=…)``; else `UNKNOWN`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("field", "Field"):
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if "default" in given:
            return _literal(file, given["default"])
        made = given.get("default_factory")
        return {"dict": {}, "list": [], "tuple": ()}.get(made.id, UNKNOWN) if isinstance(made, ast.Name) else UNKNOWN
    try:
        return ast.literal_eval(node)
    except ValueError:
        pass
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):  # a share, like 1 / 3
        above, below = _literal(file, node.left), _literal(file, node.right)
        return above / below if isinstance(above, (int, float)) and isinstance(below, (int, float)) else UNKNOWN
    for statement in _statements(file):
        if isinstance(statement, ast.Assign) and ast.unparse(node) in map(ast.unparse, statement.targets):
            return _literal(file, statement.value)
    return UNKNOWN


_TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, int, float, str, list, tuple, dict)},
    **{name: getattr(typing, name) for name in ("Any", "Literal", "Optional", "Union")},
    **{kind.__name__: kind for kind in (Sequence, Mapping)},
}
_SAFE = (ast.Expression, ast.Load, ast.Subscript, ast.BinOp, ast.BitOr, ast.Constant, ast.Tuple, ast.UnaryOp, ast.USub)


def _plain_type(annotation: str) -> Any:
    """Return the type that an annotation of plain names spells; nothing but subscripts and ``|`` is evaluated."""
    try:
        tree = ast.parse(annotation, mode="eval")
        if all(isinstance(one, _SAFE) or getattr(one, "id", None) in _TYPES for one in ast.walk(tree)):
            return eval(compile(tree, "annotation", "eval"), {"__builtins__": {}}, dict(_TYPES))
    except (SyntaxError, TypeError):
        pass
    return Any


def _is_dataclass(node: ast.stmt) -> bool:
    return isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(one) for one in node.decorator_list)


def _find(file: Path, name: str) -> tuple[Path, ast.ClassDef | ast.FunctionDef] | None:
    """Return the definition of a name and the file it stands in, following imports."""
    for node in _statements(file):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            return file, node
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    other = module_file(node.module)
                    return _find(other, alias.name) if other and other != file else None
    return None


def _statements(file: Path) -> Iterator[ast.stmt]:
    """Yield a file's statements, those under ``if TYPE_CHECKING:`` too."""
    try:
        body = _body(file, file.stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):  # who runs the file will say what is wrong with it
        return
    for node in body:
        yield node
        if isinstance(node, ast.If):
            yield from node.body


@lru_cache(maxsize=256)
def _body(file: Path, changed: int) -> list[ast.stmt]:
    return ast.parse(file.read_bytes()).body


def parameter_texts(doc: str) -> dict[str, str]:
    """Return name to text under ``Parameters`` or ``Attributes`` in a NumPy docstring, each on one line."""
    return {name: text for name, (_, text) in _parameters(doc).items()}


def parameter_units(doc: str) -> dict[str, str]:
    """Return name to what stands behind it under ``Parameters``: a setting's unit, as in ``half_life : minutes``."""
    return {name: unit for name, (unit, _) in _parameters(doc).items()}


def _parameters(doc: str) -> dict[str, tuple[str, str]]:
    """Return name to what stands behind a parameter's name, and its text."""
    found: dict[str, tuple[str, str]] = {}
    for block in re.split(r"(?:Parameters|Attributes)\n-{10}\n", inspect.cleandoc(doc))[1:]:
        names: list[str] = []
        block = re.split(r"^.*\n-{3,}$", block, maxsplit=1, flags=re.MULTILINE)[0]
        for line in block.split("\n"):
            if line and not line.startswith(" "):
                called, _, behind = line.partition(" : ")
                names = [name for one in called.split(",") if (name := one.strip()) not in found]
                found.update(dict.fromkeys(names, (behind.strip(), "")))
            elif line.strip():
                found.update({name: (found[name][0], f"{found[name][1]} {line.strip()}".strip()) for name in names})
    return found
