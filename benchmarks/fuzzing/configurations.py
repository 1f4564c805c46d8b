"""Random configurations: places of the real tree with values that fit, that border on what fits, and that do not."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from benchmarks.fuzzing.damage import TOKENS, Tree
from rlwb.errors import ConfigError
from rlwb.experiment.config import SLOTS, RunConfig
from rlwb.experiment.layers import RENAMED, leaves, parse_assignments
from rlwb.experiment.own_code import check_parts
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.parts import describe, names
from rlwb.signatures import REQUIRED, UNKNOWN

_NUMBERS = (0, 1, -1, 2, 10**4, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 0.0, -0.0, 0.5, 1.0, 1e-300, 1e300)
_ODD = (
    "yes",
    "none",
    "us",
    "cn",
    "crypto",
    "ppo",
    "dqn",
    "twap",
    "close",
    "09:30",
    "2024-01-02",
    "a.b",
    "a:b",
    "x.py:Y",
)
_BROKEN = (
    "\u2028",
    "\ud800",
    "\0",
    "\x1b[0m",
    "$x$",
    "<b>",
    "🦆",
    "a" * 5000,
    "é" * 300,
    "../..",
    "~",
    "/dev/null",
    "",
)
_SYNTAX = (
    "&a ",
    "*a",
    "<<: *a",
    "!!int ",
    "!!set ",
    "!!python/name:os.system ",
    "---\n",
    "- ",
    "? ",
    ": ",
    "[",
    "}",
    "#",
)
_SYNTAX += (
    "|\n",
    ">",
    "%YAML 1.1\n",
    "\t",
    "\r",
    "\x00",
    "\ufeff",
    "'",
    '"',
    "\\",
    "@",
    "`",
    "{<<: 1}",
    "0x",
    "1_0",
    "...",
)
_FITS = {int: st.integers(-2, 500), float: st.floats(-1, 2), bool: st.booleans(), str: st.sampled_from(_ODD)}


@cache
def _places() -> list[tuple[str, Any]]:
    """Return dotted name and default of every parameter, those of all parts by name among them."""
    tree = RunConfig().as_dict()
    found: dict[str, Any] = {}
    for name in leaves(tree):
        value: Any = tree
        for part in name.split("."):
            value = value[part]
        found[name] = value
    for place, kind in SLOTS.items():
        found[f"{place}.name"] = "x"
        for part in names(kind):
            known = {one.name: one.default for one in describe(kind, part) if one.default not in (REQUIRED, UNKNOWN)}
            found |= {f"{place}.{name}": default for name, default in known.items()}
    found |= dict.fromkeys([*tree, *RENAMED, "market.calendar.preset", "market.reader.name", "trian.iterations", "a"])
    return sorted(found.items(), key=lambda item: item[0])


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_NUMBERS),
    st.integers(),
    st.floats(),
    st.sampled_from((*_ODD, *_BROKEN, *TOKENS)),
    st.text(max_size=8),
)
_junk = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from((*_ODD, *_BROKEN)), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def _values(draw: st.DrawFn) -> dict[str, Any]:
    """Dotted names of one to six places with values: often of the default's type, and named parts."""
    values: dict[str, Any] = {}
    for _ in range(draw(st.sampled_from((1, 1, 2, 2, 3, 6)))):
        name, default = draw(st.sampled_from(_places()))
        slot = name.partition(".")[0]
        if slot in SLOTS and draw(st.booleans()):
            kind = SLOTS[slot]
            part = draw(st.sampled_from(names(kind)))
            chosen = draw(st.lists(st.sampled_from([one.name for one in describe(kind, part)] or ["x"]), max_size=2))
            value: Any = {"name": part, **{one: draw(_scalars) for one in chosen}}
            values[slot] = [value] if slot == "baselines" else value
        else:
            values[name] = draw(st.one_of(*[_FITS.get(type(default), st.just(default))] * 4, _scalars, _junk))
    return values


@st.composite
def files(draw: st.DrawFn) -> Tree:
    """A configuration file, whose text is changed in one of three."""
    values = draw(_values())
    tree: dict[str, Any] = {}
    for name, value in values.items():
        inner, parts = tree, name.split(".")
        for part in parts[:-1]:
            inner = inner.setdefault(part, {}) if isinstance(inner.get(part, {}), dict) else {}
        inner[parts[-1]] = value
    text = dump_yaml(values if draw(st.booleans()) else tree, flow=draw(st.booleans()))
    if draw(st.sampled_from((True, False, False))):
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(text)))
            end = draw(st.integers(at, min(len(text), at + 12)))
            new = draw(st.sampled_from((*_SYNTAX, *_BROKEN, text[at:end] * 2, "[" * 300, "{a: " * 300, "9" * 5000)))
            text = text[:at] + new + text[draw(st.sampled_from((at, end))) :]
    encoding = draw(st.sampled_from(("utf-8",) * 9 + ("utf-8-sig", "utf-16", "latin-1")))
    return {"config.yaml": text.encode(encoding, "surrogatepass" if encoding.startswith("utf") else "replace")}


@st.composite
def assignments(draw: st.DrawFn) -> Tree:
    """Words of ``--set``, as a JSON list."""
    words = []
    for name, value in draw(_values()).items():
        good = st.just(dump_yaml(value, flow=True).strip())
        text = draw(st.one_of(*[good] * 6, st.sampled_from((*_SYNTAX, *_BROKEN))))
        words.append(f"{name}{draw(st.sampled_from((*['='] * 16, ' = ', '==', ':', '')))}{text}")
    return {"set.json": json.dumps(words).encode()}


def resolve(folder: Path) -> None:
    """Load the configuration of a folder, or of its words; what it is printed as must load to the same."""
    file = folder / "config.yaml"
    if file.exists():
        config = RunConfig.load(file)
    else:
        config = RunConfig.load(None, parse_assignments(json.loads((folder / "set.json").read_text())))
    config.as_yaml(describe=True)
    again = folder / "again.yaml"
    again.write_text(config.as_yaml(), encoding="utf-8")
    if RunConfig.load(again) != config:
        raise AssertionError("what is printed is another configuration")
    try:
        check_parts(config)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error  # names the part and its setting
