"""``rlwb diff``: what differs between two runs, in configuration, data, code, packages, machine and result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlwb.experiment.cells import CLOCK, compare_tables, read_csv
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.own_code import described, own_code
from rlwb.experiment.rolling import windows_of
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import SOURCES
from rlwb.files import strict_json
from rlwb.reading import read_json, read_table

TOPICS = ("configuration", "data", "code", "packages", "machine", "result")
"""Topics that two runs are compared in, in the order of the answer."""

#: Figures of the headline, the one that is told first, and what they are called.
_HEADLINE = {
    "pa_mean": "PA",
    "pa_net": "net PA",
    "pa_value_weighted": "value-weighted PA",
    "win_rate": "win rate",
    "glr": "gain/loss",
    "ffr": "ffr",
    "std": "std of orders",
    "objective": "objective",
    "pa_lo": "low end of the PA's interval",
    "validation_pa": "validation PA",
}
_SHOWN = 30
_NONE = "nothing"


@dataclass(frozen=True)
class Change:
    """One thing that two runs have not in common.

    Attributes
    ----------
    name
        The parameter, package, file or figure.
    a, b
        What each run has; None where it has none.
    """

    name: str
    a: Any
    b: Any

    def __str__(self) -> str:
        return f"{self.name}: {self.told('in A', 'in B')}"

    def told(self, first: str, second: str) -> str:
        """Return both values, each with the words that say whose it is."""
        texts = [_told(self.a), _told(self.b)]
        if texts[0] == texts[1]:  # equal in the digits that are shown
            texts = [repr(self.a), repr(self.b)]
        return f"{texts[0]} {first}, {texts[1]} {second}"


@dataclass(frozen=True)
class RunsDiff:
    """Two runs compared.

    Attributes
    ----------
    a, b
        Their directories.
    changes
        What differs by topic (`TOPICS`); a topic in which nothing differs has none.
    notes
        What could not be compared, and why.
    """

    a: Path
    b: Path
    changes: Mapping[str, tuple[Change, ...]]
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not any(self.changes.values())

    def lines(self) -> Iterator[str]:
        """Yield what differs, as people read it."""
        yield f"A  {self.a}"
        yield f"B  {self.b}"
        for topic, changes in self.changes.items():
            if changes:
                yield topic
                yield from (f"  {one}" for one in changes[:_SHOWN])
                if len(changes) > _SHOWN:
                    yield f"  and {len(changes) - _SHOWN} more; --json lists them all"
        yield from (f"not compared: {note}" for note in self.notes)
        alike = [topic for topic, changes in self.changes.items() if not changes]
        if alike:
            yield f"the same: {', '.join(alike)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        changes = {topic: [vars(one) for one in found] for topic, found in self.changes.items()}
        return {"same": self.same, "a": str(self.a), "b": str(self.b), "changes": changes, "notes": self.notes}


def launch_diff(a: Path, b: Path, *, as_json_text: bool = False, echo: Callable[[str], None] = print) -> bool:
    """Do what ``rlwb diff`` asks for; return whether the runs are the same."""
    found = diff_runs(RunDirectory.open(a), RunDirectory.open(b))
    if as_json_text:
        echo(strict_json(found.as_dict()))
    else:
        for line in found.lines():
            echo(line)
    return found.same


def diff_runs(a: RunDirectory, b: RunDirectory) -> RunsDiff:
    """Compare two runs by what they keep; nothing is computed again, and no code of theirs is run.

    Code counts by its content and files outside a run by the hash of their contents, wherever they lie; times, paths
    and the words of the command line do not count.
    """
    notes: list[str] = []
    made = made_differently(a.manifest, b.manifest)
    changes = {
        "configuration": _of_configuration(a, b),
        "data": (*made["data"], *_of_sources(a, b)),
        "code": (*made["code"], *_of_own_code(a, b)),
        "packages": made["packages"],
        "machine": made["machine"],
        "result": tuple(_of_result(a, b, notes)),
    }
    return RunsDiff(a.path, b.path, changes, tuple(notes))


def made_differently(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Change, ...]]:
    """Return by topic what the manifests of two runs say that they were not made alike with.

    The topics are ``data`` (fingerprints of what was read), ``code`` (rlwb's version and commit), ``packages`` and
    ``machine``.
    """
    code = [{"rlwb": one.get("rlwb"), **(one.get("git") or {})} for one in (a, b)]
    packages = [{"python": one.get("python"), **one.get("packages", {})} for one in (a, b)]
    return {
        "data": _changes(*(one.get("data", {}) for one in (a, b))),
        "code": _changes(*code),
        "packages": _changes(*packages),
        "machine": tuple(
            one for one in _changes(*(one.get("machine", {}) for one in (a, b))) if None not in (one.a, one.b)
        ),  # what only one tells an earlier version did not ask for
    }


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Change, ...]:
    """Return one change for each leaf of two trees that differs."""
    one, two = ({name: value_at(tree, name) for name in leaves(tree)} for tree in (a, b))
    differ = [name for name in {**one, **two} if one.get(name) != two.get(name)]
    return tuple(Change(name, one.get(name), two.get(name)) for name in differ)


def _of_configuration(a: RunDirectory, b: RunDirectory) -> tuple[Change, ...]:
    """Compare the settings; files outside a run, which may lie elsewhere, are compared as data."""
    return tuple(one for one in _changes(described(a.config), described(b.config)) if one.name not in SOURCES)


def _of_sources(a: RunDirectory, b: RunDirectory) -> tuple[Change, ...]:
    """Compare the hashes of the files outside a run that its stages read."""

    def read_by(run: RunDirectory) -> dict[str, Any]:
        settings = [one.get("settings", {}) for one in run.status["stages"].values()]
        return {f"contents of {name}": one[name] for one in settings for name in SOURCES if name in one}

    return _changes(read_by(a), read_by(b))


def _of_own_code(a: RunDirectory, b: RunDirectory) -> tuple[Change, ...]:
    """Compare code of one's own by its place in the configuration and its content."""
    return _changes(*(_code_of(run) for run in (a, b)))


def _code_of(run: RunDirectory) -> dict[str, Any]:
    return {place.partition(" ")[0]: code.describe()["hash"] for place, code in own_code(run.config).items()}


def _of_result(a: RunDirectory, b: RunDirectory, notes: list[str]) -> Iterator[Change]:
    """Compare how far they came, the headline, the choice of checkpoints, and the training's figures."""
    if a.state != b.state:
        yield Change("state", a.state, b.state)
    yield from _of_headline(a, b, notes)
    if (a.backtest / "selection.json").is_file() and (b.backtest / "selection.json").is_file():
        chosen = [read_json(run.backtest / "selection.json")["chosen"] for run in (a, b)]
        if chosen[0] != chosen[1]:
            yield Change("chosen checkpoints", *(", ".join(_numbers(one)) for one in chosen))
    windows = [{one.path.name: one for one in windows_of(run)} for run in (a, b)]
    for name in sorted(windows[0].keys() & windows[1].keys()):
        yield from (
            Change(f"window {name}, {one.name}", one.a, one.b)
            for one in _of_training(windows[0][name], windows[1][name])
        )
    yield from _of_training(a, b)


def _of_headline(a: RunDirectory, b: RunDirectory, notes: list[str]) -> Iterator[Change]:
    paths = [run.backtest / "headline.csv" for run in (a, b)]
    if not all(path.is_file() for path in paths):
        if any(path.is_file() for path in paths):
            notes.append("the headline, which only one of them has")
        return
    one, two = (read_table(path, "policy", numbers=["pa_mean", "orders"]).set_index("policy") for path in paths)
    orders = [int(table["orders"].iloc[0]) for table in (one, two)]
    if orders[0] != orders[1]:
        yield Change("test orders", *orders)
    for policy in [*one.index, *(name for name in two.index if name not in one.index)]:
        sides = [table.loc[policy] if policy in table.index else None for table in (one, two)]
        if sides[0] is None or sides[1] is None:
            yield Change(str(policy), *("no row" if side is None else "a row" for side in sides))
            continue
        known = [name for name in _HEADLINE if name in one.columns and name in two.columns]
        if differ := [name for name in known if not _equal(sides[0][name], sides[1][name])]:
            yield Change(f"{policy}, {_HEADLINE[differ[0]]}", *(_headline(side, differ[0]) for side in sides))


def _headline(row: Any, name: str) -> Any:
    """Return a figure of the headline; a mean PA with its interval, where it has one."""
    value = row[name].item() if hasattr(row[name], "item") else row[name]
    if name != "pa_mean" or not np.isfinite(row["pa_lo"]):
        return value
    return f"{value:.6g} bp [{row['pa_lo']:.6g}, {row['pa_hi']:.6g}]"


def _of_training(a: RunDirectory, b: RunDirectory) -> Iterator[Change]:
    """Tell the first iteration at which the figures of two trainings part, and the first that has other weights."""
    for path in sorted({*_tables(a), *_tables(b)}):
        places = [run.metrics / path for run in (a, b)]
        if not all(place.is_file() for place in places):
            yield Change(f"metrics/{path}", *("there" if place.is_file() else None for place in places))
            continue
        one, two = (read_csv(place).drop(columns=list(CLOCK), errors="ignore") for place in places)
        if len(one) != len(two):
            yield Change(f"metrics/{path}, iterations", len(one), len(two))
        one, two = (side[side["iteration"].isin(other["iteration"])] for side, other in ((one, two), (two, one)))
        names = [name for name in one.columns if name in two.columns]
        different = compare_tables(*(side[names].reset_index(drop=True) for side in (one, two))).columns
        if different:
            first = min(different, key=lambda column: int(column.rows[0] or 0))
            where = f"metrics/{path} parts at iteration {first.rows[0]}, {first.name}"
            yield Change(where, first.stored[0], first.found[0])
    hashes = [run.manifest.get("files", {}) for run in (a, b)]
    shared = sorted(name for name in hashes[0] if name.startswith("checkpoints/") and name in hashes[1])
    parted = [name for name in shared if hashes[0][name] != hashes[1][name]]
    if parted:
        said = f"{len(parted)} of {len(shared)} checkpoints, the first {parted[0]}"
        yield Change(said, *(one[parted[0]] for one in hashes))


def _tables(run: RunDirectory) -> list[str]:
    return [path.relative_to(run.metrics).as_posix() for path in run.metrics.rglob("*.csv")]


def _numbers(names: Sequence[str]) -> list[str]:
    """Return the iterations of checkpoints by their names."""
    return [str(int(name.rpartition("-")[2])) for name in names]


def _equal(one: Any, two: Any) -> bool:
    both = isinstance(one, (float, np.floating)) and isinstance(two, (float, np.floating))
    return bool(one == two or (both and np.isnan(one) and np.isnan(two)))


def _told(value: Any) -> str:
    if value is None:
        return _NONE
    if isinstance(value, str):
        return value
    return f"{value:.10g}" if isinstance(value, (float, np.floating)) else json.dumps(value, default=str)
