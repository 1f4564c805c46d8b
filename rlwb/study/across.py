"""``rlwb compare RUN...``: runs beside one another, whatever made them, in one table and on one page."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError, FileError
from rlwb.experiment.backtest import interval_of, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import leaves, value_at
from rlwb.experiment.ledger import told_looks
from rlwb.experiment.own_code import described
from rlwb.experiment.run import RunDirectory, default_run_directory, short_path
from rlwb.experiment.stages import BACKTEST, ORDERS, SOURCES, TRAIN
from rlwb.files import as_json, atomic_path, strict_json, write_text
from rlwb.reading import read_table
from rlwb.study.catalogue import FOLDERS, Entry, list_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlwb.evaluation import PolicyResult, Table
    from rlwb.evaluation.metrics import Beside

MEMORY = "runs.json"
"""The file by which a folder with a table of runs is known; it holds all figures."""

#: Columns of an order's result that say what the order is, and what its prices were.
_ORDER, _PRICES = ("order_id", "direction", "amount", "start", "end"), ("twap", "arrival")
#: Most settings of which every pair is compared; of more, each with the first.
_ALL_PAIRS = 5
_ABSENT = "-"
_NAMES = {"pa": "PA", "pa_net": "net PA"}


@dataclass(frozen=True, eq=False)
class Judged:
    """A run with its results on the test orders.

    Attributes
    ----------
    label
        Its folder, with as much of the path as tells it from the others.
    kind
        As in `rlwb.study.catalogue.Entry`.
    """

    run: RunDirectory
    label: str
    kind: str

    @cached_property
    def config(self) -> RunConfig:
        """Its configuration."""
        return self.run.config

    @cached_property
    def results(self) -> list[PolicyResult]:
        """Its results, the chosen checkpoints first."""
        return read_results(self.run)

    @property
    def chosen(self) -> list[PolicyResult]:
        """The results of its chosen checkpoints."""
        return [one for one in self.results if one.kind == "checkpoint"]

    @property
    def against(self) -> Beside:
        """The results on its orders that others are compared with."""
        from rlwb.evaluation.metrics import Beside

        return Beside.of(self.results)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Dotted name to value of what its result depends on, the seed aside; files and code count by their content."""
        origin = self.run.origin
        flat = _flat(self.config)
        if origin is not None:  # what its checkpoints were trained with
            trained = _flat(origin.config)
            flat |= {name: trained[name] for name in trained if name.partition(".")[0] in ("train", "split")}
        hashes = {name: one[name] for one in self._stage_settings() for name in SOURCES if name in one}
        return {
            # The seed of the orders shows in the orders, which are compared themselves.
            **{name: hashes.get(name, value) for name, value in flat.items() if name != "orders.seed"},
            "rlwb": self.run.manifest.get("rlwb"),
        }

    def _stage_settings(self) -> Iterator[Mapping[str, Any]]:
        for stage in self.run.status["stages"].values():
            yield stage.get("settings", {})

    @cached_property
    def problem(self) -> dict[str, str]:
        """All that must be the same for figures to be compared order by order: topic to what tells it from others."""
        table = self.chosen[0].orders.sort_values("order_id")
        rules = dataclasses.asdict(self.config.execution.rules)
        benchmark = rules.pop("benchmark")
        parts = {"orders": _ORDER, "market": _PRICES}
        found = {topic: _digest(table[[name for name in names if name in table]]) for topic, names in parts.items()}
        simulator = as_json(described(self.config)["simulator"])
        return {**found, "rules": as_json(rules), "benchmark": str(benchmark), "simulator": simulator}


def _digest(table: pd.DataFrame) -> str:
    return hashlib.blake2b(table.to_csv(index=False).encode(), digest_size=16).hexdigest()


def _flat(config: RunConfig) -> dict[str, Any]:
    """Return dotted name to value of what a stage depends on and a result may change with, the seed aside."""
    tree = described(config)
    groups = tuple(f"{group}." for stage in (ORDERS, TRAIN, BACKTEST) for group in stage.depends if group != "seed")
    names = [name for name in leaves(tree) if f"{name}.".startswith(groups) and name not in TRAIN.indifferent]
    return {name: value_at(tree, name) for name in names}


@dataclass(frozen=True, eq=False)
class Setting:
    """Runs that share all settings but the seed, each of a seed of its own."""

    title: str
    runs: tuple[Judged, ...]

    @property
    def members(self) -> list[PolicyResult]:
        """The chosen checkpoints of all its runs."""
        return [one for run in self.runs for one in run.chosen]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that its runs share."""
        return self.runs[0].settings

    def by_problem(self) -> dict[str, Setting]:
        """Return what traded the same, by what it traded; seeds may have had orders of their own."""
        found: dict[str, list[Judged]] = {}
        for run in self.runs:
            found.setdefault(as_json(run.problem), []).append(run)
        if len(found) == 1:
            return dict.fromkeys(found, self)
        return {
            problem: Setting(f"{self.title}, seed {', '.join(str(run.config.seed) for run in runs)}", tuple(runs))
            for problem, runs in found.items()
        }

    def averaged(self) -> PolicyResult:
        """Return one result with the mean PA of all members on each order; NaN where one has none."""
        first, *_ = members = self.members
        names = [name for name in ("pa", "pa_net") if name in first.orders]
        means = {name: np.mean([one.values(name, first) for one in members], axis=0) for name in names}
        table = first.orders[["order_id", "instrument", "date", "ffr"]].assign(**means)
        return dataclasses.replace(first, policy=self.title, orders=table, inventory=None)


@dataclass(frozen=True, eq=False)
class Part:
    """Settings that traded the same orders at the same prices under the same rules, so that orders can be paired.

    Attributes
    ----------
    letter
        What it is called where there are several.
    differs
        How it differs from the first part, in words.
    table
        Policies side by side.
    pairs
        Differences order by order; None where there is one setting.
    """

    letter: str
    differs: tuple[str, ...]
    settings: tuple[Setting, ...]
    table: Table
    pairs: Table | None
    figure: Figure


@dataclass(frozen=True, eq=False)
class Across:
    """Runs compared.

    Attributes
    ----------
    parts
        Settings by what they traded; figures of two parts are not paired.
    seeds
        What the seeds of a setting say together; None where no setting has two.
    configuration
        The parameters that differ between settings; None where none does.
    runs
        One row a run.
    left_out
        Path to reason of what is not compared.
    """

    parts: tuple[Part, ...]
    seeds: Table | None
    configuration: Table | None
    runs: Table
    left_out: Mapping[str, str]
    curves: Figure | None

    @property
    def frame(self) -> pd.DataFrame:
        """One row a policy of a part, with its interval to every metric."""
        return pd.concat([one.table.frame.assign(part=one.letter) for one in self.parts], ignore_index=True)

    def sections(self) -> Iterator[tuple[str, Table]]:
        """Yield heading and table of all that is to be read."""
        yield "Runs", self.runs
        several = len(self.parts) > 1
        for part in self.parts:
            name = f" {part.letter}" if several else ""
            yield f"Orders{name}" if several else "Results", part.table
            if part.pairs is not None:
                yield f"Order by order{name}", part.pairs
        if self.seeds is not None:
            yield "Over seeds", self.seeds
        if self.configuration is not None:
            yield "What differs", self.configuration

    def to_text(self) -> str:
        """Return all tables for a terminal."""
        return "\n".join(f"{heading}\n\n{table.to_text()}" for heading, table in self.sections())

    def as_dict(self) -> dict[str, Any]:
        """Return all figures as plain values."""
        return {
            "policies": self.frame.to_dict("records"),
            "seeds": _records([self.seeds]),
            "pairs": _records(one.pairs for one in self.parts),
            "parts": [
                {"part": one.letter, "differs": one.differs, "settings": [own.title for own in one.settings]}
                for one in self.parts
            ],
            "configuration": [] if self.configuration is None else self.configuration.metrics.to_dict("records"),
            "runs": self.runs.metrics.to_dict("records"),
            "left_out": dict(self.left_out),
        }


def _records(tables: Iterable[Table | None]) -> list[dict[str, Any]]:
    return [dict(row) for table in tables if table is not None for row in table.metrics.to_dict("records")]


def launch_across(
    paths: Sequence[Path],
    folder: Path | None = None,
    *,
    idle: str = "",
    is_json: bool = False,
    echo: Callable[[str], None] = print,
    progress: Callable[[str], None] | None = None,
) -> tuple[Across, Path]:
    """Do what ``rlwb compare RUN...`` asks for: compare runs and write tables and page into a folder.

    Parameters
    ----------
    folder
        None makes one under ``runs/``.
    idle
        Options that were given and that only a training has.
    is_json
        Whether the result is told as JSON.
    echo, progress
        Take the result, and where its page is; by default both are told in one place.
    """
    if idle:
        raise ConfigError(f"{idle} has no effect on runs that are there; drop it, or name one configuration to train.")
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} holds something already; choose another directory.")
    found = compare_runs(paths)
    folder = (folder or default_run_directory("compared")).absolute()
    write_across(folder, found)
    page = folder / "runs.html"
    if is_json:
        echo(strict_json({"page": str(page), **found.as_dict()}))
    else:
        echo(found.to_text().rstrip())
        (progress or echo)(f"page: {short_path(page)}")
    return found, folder


def compare_runs(paths: Sequence[Path]) -> Across:
    """Compare the runs in some folders: of runs, evaluations, sweeps, searches and comparisons.

    A run is judged by the checkpoints that it chose, which count by their mean. Nothing is computed again.

    Raises
    ------
    ConfigError
        Where a folder holds no run, or none of them has a backtest.
    """
    judged, left_out = _judged(paths)
    if not judged:
        said = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise ConfigError(f"none of these runs was judged on test orders, so there is nothing to compare ({said}).")
    settings, repeats = _settings(judged)
    left_out |= repeats
    parts: dict[str, list[Setting]] = {}
    for setting in settings:
        for problem, one in setting.by_problem().items():
            parts.setdefault(problem, []).append(one)
    letters = [chr(ord("A") + number) if number < 26 else str(number + 1) for number in range(len(parts))]
    first = next(iter(parts.values()))[0]
    made = [_part(letter, one, first) for letter, one in zip(letters, parts.values(), strict=True)]
    names = {run.label: one.letter for one in made for setting in one.settings for run in setting.runs}
    return Across(
        tuple(made),
        _over_seeds(settings),
        _configuration(settings),
        _runs(settings, names if len(parts) > 1 else {}, left_out),
        left_out,
        _curves(settings),
    )


def _judged(paths: Sequence[Path]) -> tuple[list[Judged], dict[str, str]]:
    """Return the runs that have results, and path to reason of all others."""
    entries: dict[Path, Entry] = {}
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"{path} is no folder; name directories of runs, or one YAML file of a configuration.")
        found = list_runs([path])
        if not found:
            raise ConfigError(f"{path} holds no run; correct the path.")
        entries.update({one.path: one for one in found if one.kind not in FOLDERS})
    left_out: dict[str, str] = {}
    kept: list[Entry] = []
    trials: dict[Path, int] = {}
    for entry in entries.values():
        run = RunDirectory(entry.path)
        if entry.status in ("damaged", "half-made"):
            left_out[short_path(entry.path)] = f"{entry.status}: {entry.reason}"
        elif entry.kind == "orders":
            continue
        elif entry.kind == "trial" and not (run.backtest / "summary.csv").is_file():
            search = next(one for one in entry.path.parents if (one / FOLDERS["search"]).is_file())
            trials[search] = trials.get(search, 0) + 1
        elif not (run.backtest / "summary.csv").is_file() or not _is_judged(run, entry):
            left_out[short_path(entry.path)] = f"{entry.status}, without a finished backtest"
        else:
            kept.append(entry)
    for search, count in trials.items():
        left_out[short_path(search)] = f"its {count} trainings never read the test orders; see its own page"
    labels = _labels([one.path for one in kept])
    return [Judged(RunDirectory(one.path), labels[one.path], one.kind) for one in kept], left_out


def _is_judged(run: RunDirectory, entry: Entry) -> bool:
    return entry.status == "finished" or run.stage(BACKTEST.name).get("state") == "finished"


def _labels(paths: Sequence[Path]) -> dict[Path, str]:
    """Return each path's last folders, as many as tell it from the others."""
    labels = {}
    for path in paths:
        parts = range(1, len(path.parts))
        ends = {count: ["/".join(one.parts[-count:]) for one in paths] for count in parts}
        count = next((count for count in parts if ends[count].count("/".join(path.parts[-count:])) == 1), len(parts))
        labels[path] = "/".join(path.parts[-count:])
    return labels


def _settings(judged: Sequence[Judged]) -> tuple[list[Setting], dict[str, str]]:
    """Group runs by all that they share but the seed; a run of the same settings and seed as another is left out."""
    groups: dict[str, dict[int, Judged]] = {}
    repeats: dict[str, str] = {}
    for one in judged:
        key = as_json(sorted(one.settings.items()))
        known = groups.get(key, {}).get(one.config.seed)
        if known is not None and known.problem != one.problem:  # of files that were exchanged since
            key += as_json(one.problem)
        own = groups.setdefault(key, {})
        if one.config.seed in own:
            other = own[one.config.seed].label
            repeats[short_path(one.run.path)] = f"the same settings and seed as {other}, so it is no other training"
        else:
            own[one.config.seed] = one
    differing = _differing([next(iter(own.values())).settings for own in groups.values()])
    folders = [{one.run.path.parent for one in own.values()} for own in groups.values()]
    titles = [
        _title(
            list(own.values()), differing, is_folder=len(here) == 1 and sum(bool(here & one) for one in folders) == 1
        )
        for own, here in zip(groups.values(), folders, strict=True)
    ]
    unique = [title if titles.count(title) == 1 else f"{title} ({number})" for number, title in enumerate(titles, 1)]
    return [Setting(title, tuple(own.values())) for title, own in zip(unique, groups.values(), strict=True)], repeats


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values are not the same everywhere."""
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if any(one.get(name) != settings[0].get(name) for one in settings[1:])]


def _title(runs: Sequence[Judged], differing: Sequence[str], *, is_folder: bool) -> str:
    """Return what tables call a setting: its run, or of several what their folders' names share, else what differs.

    `is_folder` tells that they lie in a folder in which no other setting lies.
    """
    if len(runs) == 1:
        return runs[0].label
    names = [one.run.path.name for one in runs]
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip("0123456789")
    shared = re.sub(r"[-_. ]*(seed)?[-_. =]*$", "", shared)
    if re.search("[^0-9_.-]", shared):
        return shared
    if is_folder:
        return runs[0].run.path.parent.name
    told = ", ".join(f"{_short(name)} = {_shown(runs[0].settings.get(name))}" for name in differing[:3])
    return told or f"{runs[0].label} and {len(runs) - 1} more"


def _short(name: str) -> str:
    """Return the last part of a parameter's name, or all of it where that says too little."""
    last = name.rpartition(".")[2]
    return name if last in ("name", "seed") else last


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, Mapping) and "name" in one for one in value):
        value = ", ".join(str(one["name"]) for one in value)
    text = _ABSENT if value is None else value if isinstance(value, str) else as_json(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _part(letter: str, settings: Sequence[Setting], first: Setting) -> Part:
    """Compare settings that traded the same orders under the same rules."""
    from rlwb.evaluation import comparison
    from rlwb.evaluation.plots import method_intervals, rename

    config = settings[0].runs[0].config
    rules, bootstrap = config.execution.rules, interval_of(config)
    beside, titles = _beside(settings)
    groups: dict[str, PolicyResult | list[PolicyResult]] = {**{one.title: one.members for one in settings}, **beside}
    differs = tuple(_differences(first.runs[0], settings[0].runs[0]))
    notes = [
        "A run is judged by the checkpoints that it chose by validation, whose mean counts.",
        *(
            [f"Not on the orders of part A, so nothing here is paired with it: {'; '.join(differs)}."]
            if differs
            else []
        ),
        "Intervals are over days, for these very trainings; they do not hold the luck of a seed.",
        f"Rules: {rules.describe()}.",
        *told_looks((run.run for one in settings for run in one.runs), level=bootstrap["level"]),
    ]
    own = {one.title: one.title for one in settings}
    table = comparison(groups, titles={**titles, **own}, rules=rules, notes=notes, **bootstrap)
    figure = rename(method_intervals(table), rules.name_pa)
    return Part(letter, differs, tuple(settings), table, _pairs(settings), figure)


def _beside(settings: Sequence[Setting]) -> tuple[dict[str, PolicyResult], dict[str, str]]:
    """Return what stands beside the trained policies, and titles: once where all runs agree, else once for each run."""
    found: dict[str, list[tuple[str, PolicyResult]]] = {}
    for run in (run for setting in settings for run in setting.runs):
        for one in run.results:
            if one.kind in ("checkpoint", "last"):
                continue
            known = found.setdefault(one.policy, [])
            if not any(_alike(one, other) for _, other in known):
                known.append((run.label, one))
    beside, titles = {}, {}
    for policy, variants in sorted(found.items(), key=lambda item: item[1][0][1].kind == "ceiling"):
        for number, (label, one) in enumerate(variants):
            name = policy if not number else f"{policy} of {label}"
            beside[name] = one
            titles[name] = one.display_name if len(variants) == 1 else f"{one.display_name} of {label}"
    return beside, titles


def _alike(one: PolicyResult, other: PolicyResult) -> bool:
    return all(np.array_equal(one.values(name), other.values(name, one), equal_nan=True) for name in ("pa", "ffr"))


def _differences(first: Judged, other: Judged) -> Iterator[str]:
    """Say in what two runs did not trade the same."""
    one, two = first.problem, other.problem
    if one["orders"] != two["orders"]:
        there, here = _orders(first), _orders(other)
        yield "other amounts or times of the orders" if there == here else f"other orders ({there} there, {here} here)"
    elif one["market"] != two["market"]:
        yield "another market: the same orders met other prices"
    if one["benchmark"] != two["benchmark"]:
        yield f"another benchmark ({one['benchmark']} there, {two['benchmark']} here)"
    if one["rules"] != two["rules"]:
        rules = [vars(run.config.execution.rules) for run in (first, other)]
        names = [name for name in rules[0] if rules[0][name] != rules[1][name] and name != "benchmark"]
        yield f"other rules ({', '.join(f'{name} {rules[0][name]} there, {rules[1][name]} here' for name in names)})"
    if one["simulator"] != two["simulator"]:
        yield "another simulator"


def _orders(run: Judged) -> str:
    table = run.chosen[0].orders
    return f"{len(table):,} from {table['date'].min():%Y-%m-%d} to {table['date'].max():%Y-%m-%d}"


def _judging(config: RunConfig) -> str:
    return "pa_net" if config.execution.rules.have_costs else "pa"


def _over_seeds(settings: Sequence[Setting]) -> Table | None:
    """Return what settings of several seeds say of another training; None where all have one."""
    from rlwb.evaluation import Table
    from rlwb.evaluation.seeds import Trainings, seed_table, too_few_seeds

    many = [one for one in settings if len(one.runs) > 1]
    if not many:
        return None
    config = many[0].runs[0].config
    bootstrap, rules, metric = interval_of(config), config.execution.rules, _judging(config)
    groups = {
        one.title: Trainings(
            one.title, "checkpoint", [run.chosen for run in one.runs], [run.against for run in one.runs]
        )
        for one in many
    }
    table = seed_table(groups, **bootstrap)
    own = table[table["metric"] == metric]
    level = bootstrap["level"]
    interval = f"{100 * level:g} % interval, bp"
    name = _NAMES[metric]
    header = ("setting", "seeds", f"{name} mean ± std over seeds, bp", interval, f"{name} IQM, bp", interval)
    rows = tuple(
        (
            *(str(row["title"]), str(row["seeds"]), f"{row['mean']:z.2f} ± {row['std_seeds']:z.2f}"),
            *(_ends(row["mean_lo"], row["mean_hi"]), f"{row['iqm']:z.2f}", _ends(row["iqm_lo"], row["iqm_hi"])),
        )
        for row in own.to_dict("records")
    )
    few = dict.fromkeys(said for one in many if (said := too_few_seeds(len(one.runs), level)))
    seeds = "; ".join(f"{one.title}: {', '.join(str(run.config.seed) for run in one.runs)}" for one in many)
    notes = (
        "Intervals are for another seed and other days, by a bootstrap of seeds and of whole days.",
        "IQM is the mean of the middle half of the seeds.",
        f"Seeds: {seeds}.",
        *few,
        *([_OTHER_ORDERS] if any(len(one.by_problem()) > 1 for one in many) else []),
    )
    return Table(tuple(map(rules.name_pa, header)), rows, notes, table, level)


def _ends(lo: float, hi: float) -> str:
    return _ABSENT if np.isnan(lo) or np.isnan(hi) else f"[{lo:z.2f}, {hi:z.2f}]"


def _pairs(settings: Sequence[Setting]) -> Table | None:
    """Return differences of settings order by order; None of one alone."""
    from rlwb.evaluation import Table, metric_difference

    if len(settings) < 2:
        return None
    config = settings[0].runs[0].config
    bootstrap, metric = interval_of(config), _judging(config)
    seed = bootstrap.pop("seed")
    results = {one.title: one.averaged() for one in settings}
    is_short = len(settings) <= _ALL_PAIRS
    pairs = itertools.combinations(results, 2) if is_short else ((settings[0].title, one) for one in [*results][1:])
    found: list[dict[str, Any]] = []
    for one, other in pairs:
        made = metric_difference(results[other], results[one], metric, np.random.default_rng(seed), **bootstrap)
        both = np.isfinite(results[one].values(metric)) & np.isfinite(results[other].values(metric, results[one]))
        ends = {"estimate": made.estimate, "lo": made.lo, "hi": made.hi}
        found.append({"policy": other, "less": one, "metric": metric, **ends, "orders": int(both.sum())})
    frame = pd.DataFrame(found)
    rows = tuple(
        (row["policy"], row["less"], f"{row['estimate']:z.2f}", _ends(row["lo"], row["hi"]), f"{row['orders']:,}")
        for row in found
    )
    name = _NAMES[metric]
    header = ("policy", "less", f"{name} difference, bp", f"{100 * bootstrap['level']:g} % interval, bp", "orders")
    more = "" if is_short else f" Each is compared with the first, {settings[0].title}, alone."
    note = (
        "Means of the differences on the same orders, with intervals over days: what the day did to both cancels. An "
        f"interval that contains 0 does not tell the two apart.{more}"
    )
    return Table(tuple(map(config.execution.rules.name_pa, header)), rows, (note,), frame, bootstrap["level"])


def _configuration(settings: Sequence[Setting]) -> Table | None:
    """Return the parameters that differ, a column a setting."""
    from rlwb.evaluation import Table

    differing = _differing([one.settings for one in settings])
    if not differing:
        return None
    rows = tuple((name, *(_shown(one.settings.get(name, _ABSENT)) for one in settings)) for name in differing)
    values = [{"parameter": name, **{one.title: one.settings.get(name) for one in settings}} for name in differing]
    notes = ("Parameters that are the same everywhere, and the seed, are left out.",)
    return Table(("parameter", *(one.title for one in settings)), rows, notes, pd.DataFrame(values), 0.0)


def _runs(settings: Sequence[Setting], parts: Mapping[str, str], left_out: Mapping[str, str]) -> Table:
    """Return one row a run."""
    from rlwb.evaluation import Table
    from rlwb.evaluation.metrics import wide_name

    rows, records = [], []
    for setting in settings:
        for run in setting.runs:
            metric = _judging(run.config)
            names = [wide_name(metric, end) for end in ("", "_lo", "_hi")]
            head = _headline(run.run, [*names, "validation_pa"])
            pa, lo, hi = (float(head[name]) for name in names)
            records.append(
                {
                    "run": run.label,
                    "path": str(run.run.path),
                    "kind": run.kind,
                    "setting": setting.title,
                    "part": parts.get(run.label, "A"),
                    "seed": run.config.seed,
                    "metric": metric,
                    "estimate": pa,
                    "lo": lo,
                    "hi": hi,
                    "validation_pa": head["validation_pa"],
                }
            )
            part = [parts[run.label]] if parts else []
            rows.append((run.label, *part, run.kind, str(run.config.seed), f"{pa:z.2f}", _ends(lo, hi), _NAMES[metric]))
    header = ("run", *(["orders"] if parts else []), "kind", "seed", "mean, bp", "interval over days, bp", "of")
    notes = tuple(f"Left out: {name} ({reason})." for name, reason in left_out.items())
    return Table(header, tuple(rows), notes, pd.DataFrame(records), 0.0)


def _headline(run: RunDirectory, numbers: Sequence[str]) -> Mapping[Any, Any]:
    """Return the row of a run's headline that is of its chosen checkpoints."""
    table = read_table(run.backtest / "headline.csv", "policy", numbers=numbers, texts=["policy", "kind"])
    found = table[table["kind"] == "checkpoint"].to_dict("records")
    if not found:
        raise FileError(f"{run.backtest / 'headline.csv'} has no checkpoint; resume the run to have it made again.")
    return found[0]


def _curves(settings: Sequence[Setting]) -> Figure | None:
    """Draw the validation of every training; None where none was trained here."""
    from rlwb.evaluation import read_validation
    from rlwb.evaluation.results import PA_TITLES
    from rlwb.evaluation.seed_plots import learning_curves_of_seeds

    curves: dict[str, list[pd.Series]] = {}
    names = set()
    for setting in settings:
        for run in setting.runs:
            path, figure = run.run.metrics / "validation.csv", run.config.judged_by
            if run.run.origin is None and path.is_file():
                table = read_validation(path, figure)
                names.add(PA_TITLES[figure])
                curves.setdefault(setting.title, []).append(pd.Series(table[figure].to_numpy(), table["iteration"]))
    name = names.pop() if len(names) == 1 else "figure that checkpoints are chosen by"
    return learning_curves_of_seeds(curves, name=name) if curves else None


def write_across(folder: Path, found: Across) -> None:
    """Write ``runs.html``, ``runs.md``, ``runs.csv`` (one row a policy) and ``runs.json`` (all figures)."""
    from rlwb.evaluation.page import link, render
    from rlwb.evaluation.pictures import picture

    with atomic_path(folder / "runs.csv") as target:
        found.frame.to_csv(target, index=False)
    parts = [f"## {heading}\n\n{table.to_markdown()}" for heading, table in found.sections()]
    write_text(folder / "runs.md", "\n".join(parts))
    figures = [] if found.curves is None else [picture(found.curves, _CURVES)]
    pictures = {one.letter: picture(one.figure, _INTERVALS) for one in found.parts}
    links = {row["run"]: Path(row["path"]) / "report.html" for row in found.runs.metrics.to_dict("records")}
    page = render(
        "across.html",
        title=f"{folder.name}: {len(links)} run{'' if len(links) == 1 else 's'} compared",
        parts=found.parts,
        pictures=pictures,
        seeds=found.seeds,
        configuration=found.configuration,
        runs=found.runs,
        links={name: link(path, folder / "runs.html") for name, path in links.items() if path.is_file()},
        figures=figures,
    )
    write_text(folder / "runs.html", page)
    write_text(folder / MEMORY, strict_json(found.as_dict()) + "\n")


_OTHER_ORDERS = (
    "Seeds of a setting did not all trade the same orders; days are compared, not orders. Set orders.seed to have them "
    "trade the same."
)
_CURVES = "Validation by iteration: a colour for each setting, thin lines for seeds and a thick one for their mean."
_INTERVALS = "Mean of each policy with its interval over days; grey: fixed policies."
