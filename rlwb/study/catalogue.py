"""``rlwb runs``: the runs below a folder, with how they stand and what came of them, read from their own files."""

from __future__ import annotations

import csv
import datetime as dt
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.run import RunDirectory, broken_seal
from rlwb.experiment.yamlfile import read_yaml
from rlwb.files import is_temporary, strict_json
from rlwb.tracking.mlflow import FILES as MLFLOW_FILES
from rlwb.values import suggestion

FOLDERS = {"comparison": "comparison.yaml", "sweep": "sweep.yaml", "search": "search.yaml"}
"""Kind of a folder of many runs to the file by which it is known."""

COLUMNS = ("name", "kind", "status", "PA, bp", "learner", "seed", "market", "age", "size")
"""The columns of the table."""

_ABSENT = "-"
#: What a run was killed with before it counted as one.
_BEGUN = {".lock", ".config.yaml", "config.yaml", "code"}
#: Folders of copies that trackers keep of runs; they are none.
_COPIES = {MLFLOW_FILES}
#: How a run's folder begins that was named by the time.
_DEFAULT_NAME = re.compile(r"\d{8}-\d{6}-")


@dataclass(frozen=True)
class Entry:
    """A run, or a folder of many, as the list shows it.

    Attributes
    ----------
    name
        Its path below the folder that was listed.
    path
        Its directory.
    kind
        ``run``, ``windows`` (a run over windows), ``evaluation``, ``trial`` (of a search), ``orders`` (what its trials
        share), or of many runs ``comparison``, ``sweep`` and ``search``.
    status
        ``created``, ``running``, ``finished``, ``failed``, ``interrupted``, ``half-made`` (killed as it began) or
        ``damaged``.
    reason
        The stage that it is in, or what failed or is wrong; empty where there is none.
    pa, lo, hi
        The mean PA of the chosen checkpoints on the test orders and its interval over days, in basis points; net of
        costs where there are any. NaN where there is none.
    pa_name
        What the PA is called: ``PA``, ``net PA``, and against what where that is not TWAP.
    learner, seed, market
        What it was begun with.
    begun
        When; None where that is not known.
    bytes
        Size of all its files.
    runs
        Of a folder of many, how many runs it holds.
    """

    name: str
    path: Path
    kind: str
    status: str
    reason: str = ""
    pa: float = math.nan
    lo: float = math.nan
    hi: float = math.nan
    pa_name: str = "PA"
    learner: str = ""
    seed: str = ""
    market: str = ""
    begun: dt.datetime | None = None
    bytes: int = 0
    runs: int = 0

    @property
    def age(self) -> float:
        """Seconds since it was begun; NaN where that is not known."""
        return math.nan if self.begun is None else (dt.datetime.now().astimezone() - self.begun).total_seconds()

    def cells(self) -> tuple[str, ...]:
        """Return the row of the table."""
        state = f"{self.status}: {self.reason}" if self.reason else self.status
        many = f", {self.runs} run{'' if self.runs == 1 else 's'}" if self.kind in FOLDERS else ""
        figures = (self.learner, self.seed, self.market)
        return (
            *(self.name, f"{self.kind}{many}", state, _figure(self)),
            *(one or _ABSENT for one in figures),
            *(_ABSENT if math.isnan(self.age) else _duration(self.age), _size(self.bytes)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        begun = self.begun.isoformat() if self.begun else None
        return {**vars(self), "path": str(self.path), "begun": begun, "age": self.age}


def _figure(entry: Entry) -> str:
    """Return the PA with its interval; a mean whose interval nothing tells is not shown."""
    if math.isnan(entry.pa):
        return _ABSENT
    if math.isnan(entry.lo) or math.isnan(entry.hi):
        return "too few days"
    what = "" if entry.pa_name == "PA" else f" ({entry.pa_name})"
    return f"{entry.pa:z.2f} [{entry.lo:z.2f}, {entry.hi:z.2f}]{what}"


SORTS: dict[str, Callable[[Entry], Any]] = {
    "age": lambda one: _last_if_missing(one.age),
    "kind": lambda one: one.kind,
    "learner": lambda one: one.learner,
    "market": lambda one: one.market,
    "name": lambda one: one.name,
    "pa": lambda one: _last_if_missing(-one.pa),
    "seed": lambda one: (len(one.seed), one.seed),
    "size": lambda one: -one.bytes,
    "status": lambda one: one.status,
}
"""Orders that a list may be sorted in: the newest, the highest PA and the largest come first."""


def _last_if_missing(value: float) -> tuple[bool, float]:
    return (math.isnan(value), 0.0 if math.isnan(value) else value)


def launch_list(
    folders: Sequence[Path], *, sort: str = "age", as_json_text: bool = False, echo: Callable[[str], None] = print
) -> list[Entry]:
    """Do what ``rlwb runs`` asks for: print the runs below folders, by default those below ``runs``."""
    if sort not in SORTS:
        raise ConfigError(f"--sort {sort}: runs are not sorted by that; {suggestion(sort, SORTS)}")
    if missing := [folder for folder in folders if not folder.is_dir()]:
        raise ConfigError(f"{missing[0]} is no folder; name one with runs in it.")
    default = [Path("runs")] if Path("runs").is_dir() else []
    entries = sorted(list_runs(folders or default), key=lambda one: (SORTS[sort](one), one.name))
    if as_json_text:
        echo(strict_json([one.as_dict() for one in entries]))
    elif not entries:
        echo(f"no runs in {', '.join(map(str, folders)) or 'runs'}")
    else:
        echo(_aligned([COLUMNS, *(one.cells() for one in entries)]))
    return entries


def list_runs(folders: Iterable[Path]) -> list[Entry]:
    """Return the runs and folders of runs at or below some folders; whatever is wrong with one is its entry's reason.

    What lies inside of a run belongs to it, such as the runs of its windows; name such a folder to list them.
    """
    found: dict[Path, Entry] = {}
    for folder in folders:
        root = folder.expanduser().resolve()
        for entry in _below(root, root, folder):
            found.setdefault(entry.path, entry)
    return list(found.values())


def _below(root: Path, path: Path, shown: Path, kind: str = "run") -> Iterator[Entry]:
    """Yield what lies at or below a folder; `kind` is that of the runs in it."""
    name = str(shown / path.relative_to(root)) if path != root else str(shown)
    try:
        here = sorted(os.scandir(path), key=lambda one: one.name)
    except OSError as error:
        yield Entry(name, path, kind, "damaged", f"{path} cannot be read ({error.strerror})")
        return
    names = {one.name for one in here if not is_temporary(one.name)}
    if "status.json" in names or ("manifest.json" in names and "config.yaml" in names):
        yield _run(name, path, kind)
        return
    own = next((one for one, mark in FOLDERS.items() if mark in names), None)
    folders = [one for one in here if one.is_dir(follow_symlinks=False) and not one.name.startswith(".")]
    inside = [one for one in folders if one.name not in _COPIES]
    is_named = path != root and _DEFAULT_NAME.match(path.name) is not None
    if own is None and ((names and names <= _BEGUN and ".lock" in names) or (not names and is_named)):
        reason = "it was stopped before its first file was whole" if names else "it is empty"
        yield Entry(name, path, kind, "half-made", reason, begun=_changed(path), bytes=_bytes(path))
        return
    kinds = {one.name: "trial" if own == "search" else kind for one in inside}
    if own == "search" and "orders" in kinds:
        kinds["orders"] = "orders"
    members = [entry for one in inside for entry in _below(root, Path(one.path), shown, kinds[one.name])]
    if own is not None:
        yield _folder(name, path, own, members)
    yield from members


def _folder(name: str, path: Path, kind: str, members: Sequence[Entry]) -> Entry:
    """Return the entry of a folder of many runs: it is finished when its runs and its table are."""
    status = next(
        (state for state in ("running", "failed", "damaged") if any(one.status == state for one in members)),
        "finished" if (path / f"{kind}.html").is_file() else "interrupted",
    )
    failed = sum(one.status in ("failed", "damaged") for one in members)
    begun = min((one.begun for one in members if one.begun), default=_changed(path))
    reason = f"{failed} of {len(members)}" if failed else ""
    fault = broken_seal(path / FOLDERS[kind])
    if fault:
        status, reason = "damaged", f"{FOLDERS[kind]}: {fault}"
    alike = {field: {getattr(one, field) for one in members} for field in ("learner", "market")}
    shared: dict[str, Any] = {field: values.pop() if len(values) == 1 else "" for field, values in alike.items()}
    return Entry(name, path, kind, status, reason, **shared, begun=begun, bytes=_bytes(path), runs=len(members))


def _run(name: str, path: Path, kind: str) -> Entry:
    """Return the entry of a run."""
    run, reasons, known = RunDirectory(path), [], {}
    try:
        status = run.status
        state = run.state
        known = _settings(run, status)
        failure = status["failure"]
        unfinished = [stage for stage, one in status["stages"].items() if one["state"] != "finished"]
        if state == "failed" and failure:
            reasons.append(f"{failure['stage']}, {_short(str(failure.get('error', '')))}")
        elif state in ("failed", "interrupted", "running") and unfinished:
            reasons.append(unfinished[-1])
    except (RlwbError, OSError) as error:
        state = "damaged"
        reasons.append(_short("status.json is missing" if not (path / "status.json").exists() else str(error)))
    copy = path / ".config.yaml"
    if fault := broken_seal(path / "config.yaml" if (path / "config.yaml").exists() else copy):
        state = "damaged"
        reasons.append(f"config.yaml: {fault}")
    figures: dict[str, Any] = {}
    try:
        figures = _headline(path / "backtest" / "headline.csv", known)
    except (OSError, ValueError, KeyError, csv.Error, UnicodeError) as error:
        state = "damaged"
        reasons.append(f"backtest/headline.csv cannot be read ({_short(str(error) or type(error).__name__)})")
    begun = known.pop("begun", None) or _changed(path)
    if (path / "windows").is_dir():
        kind = "windows"
    elif (path / "origin").is_dir():
        kind = "evaluation"
    shown: dict[str, Any] = {name: known.get(name, "") for name in ("learner", "seed", "market")}
    return Entry(name, path, kind, state, "; ".join(reasons), **figures, **shown, begun=begun, bytes=_bytes(path))


def _settings(run: RunDirectory, status: Mapping[str, Any]) -> dict[str, Any]:
    """Return learner, seed, market, rules and beginning of a run: of its last stage, or of its configuration."""
    settings: dict[str, Any] = {}
    times = []
    for stage in status["stages"].values():
        settings |= stage.get("settings") or {}
        times += [stage["started"]] if stage.get("started") else []
    if "algorithm.name" not in settings:
        tree = read_yaml(run.path / "config.yaml") if (run.path / "config.yaml").exists() else {}
        flat = {f"{slot}.name": _name(tree.get(slot)) for slot in ("algorithm", "network", "market")}
        part, rules = tree.get("market"), (tree.get("execution") or {}).get("rules") or {}
        source = part.get("source") if isinstance(part, dict) else None
        own = {"market.source": source, "seed": tree.get("seed"), "execution.rules.benchmark": rules.get("benchmark")}
        settings = {**flat, **own, **settings}
    source = _source_of(run) if settings.get("market.source") else None
    learner = ", ".join(str(one) for name in ("algorithm", "network") if (one := settings.get(f"{name}.name")))
    return {
        "learner": learner,
        "seed": "" if settings.get("seed") is None else str(settings["seed"]),
        "market": source or str(settings.get("market.name") or ""),
        "benchmark": str(settings.get("execution.rules.benchmark") or "twap"),
        "begun": _time(min(times, default=None)),
    }


def _name(part: Any) -> Any:
    return part.get("name") if isinstance(part, dict) else part


def _source_of(run: RunDirectory) -> str | None:
    """Return the name of the bars of a run; its stages know only what their files hold."""
    part = read_yaml(run.path / "config.yaml").get("market")
    source = part.get("source") if isinstance(part, dict) else None
    return Path(str(source)).name if source else None


def _headline(path: Path, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the PA of the chosen checkpoints with its interval, net under costs; nothing without a backtest."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        row = next((one for one in csv.DictReader(file) if one["kind"] == "checkpoint"), None)
    if row is None:
        raise ValueError("it has no row of checkpoints")

    def number(column: str) -> float:
        return float(row[column]) if row.get(column) else math.nan

    plain, net = number("pa_mean"), number("pa_net") if "pa_net" in row else math.nan
    is_net = abs(net - plain) > 1e-6  # False where there is none
    ends = ("pa_net", "pa_net_lo", "pa_net_hi") if is_net else ("pa_mean", "pa_lo", "pa_hi")
    against = known.get("benchmark", "twap")
    name = ("net PA" if is_net else "PA") + ("" if against == "twap" else f" over {against}")
    return {**dict(zip(("pa", "lo", "hi"), map(number, ends), strict=True)), "pa_name": name}


def _time(text: str | None) -> dt.datetime | None:
    return dt.datetime.fromisoformat(text).astimezone() if text else None


def _changed(path: Path) -> dt.datetime | None:
    try:
        return dt.datetime.fromtimestamp(path.stat().st_mtime).astimezone()
    except OSError:
        return None


def _bytes(path: Path) -> int:
    """Return the size of all files below a folder, links aside."""
    total = 0
    try:
        for one in os.scandir(path):
            if one.is_dir(follow_symlinks=False):
                total += _bytes(Path(one.path))
            else:
                total += one.stat(follow_symlinks=False).st_size
    except OSError:  # it is being written to, or belongs to another
        pass
    return total


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
