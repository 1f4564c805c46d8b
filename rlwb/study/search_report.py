"""The results of a search: ``search.csv`` with a row a trial, ``search.md``, and the page ``search.html``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rlwb.evaluation.bootstrap import LEVEL, day_interval
from rlwb.evaluation.overfitting import expected_shrinkage, superiority
from rlwb.evaluation.page import render
from rlwb.evaluation.pictures import picture
from rlwb.evaluation.results import PA_TITLES
from rlwb.experiment.ledger import told_look
from rlwb.experiment.run import RunDirectory
from rlwb.files import atomic_path, write_json, write_text
from rlwb.reading import read_json, read_table
from rlwb.seeds import generator
from rlwb.study.space import LEARNER

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from optuna.trial import FrozenTrial

    from rlwb.study.search import Search

#: Trials that a table of the best shows, and trials whose figures tell how alike trials are, the best first.
_SHOWN, _COMPARED = 10, 50
#: Trials that have to end before the importance of settings is told.
_FOR_IMPORTANCE = 20
_RESAMPLES = 1000


class Estimate(NamedTuple):
    """A mean over seeds with its interval of Student's t; NaN where a single seed gives none."""

    mean: float
    lo: float
    hi: float

    def told(self) -> str:
        """Return mean and interval as tables show them."""
        if math.isnan(self.mean):
            return "-"
        return f"{self.mean:z.2f}" + ("" if math.isnan(self.lo) else f" [{self.lo:z.2f}, {self.hi:z.2f}]")

    def below(self, value: float) -> Estimate:
        """Return how far it lies below a value."""
        return Estimate(value - self.mean, value - self.hi, value - self.lo)


def over_seeds(values: Sequence[float], level: float = LEVEL) -> Estimate:
    """Return the mean of a figure over seeds with its interval."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) == 0:
        return Estimate(math.nan, math.nan, math.nan)
    mean = float(found.mean())
    if len(found) < 2:
        return Estimate(mean, math.nan, math.nan)
    half = float(stdtrit(len(found) - 1, 0.5 + level / 2) * found.std(ddof=1) / math.sqrt(len(found)))
    return Estimate(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Confirmed:
    """A trial that was done again on fresh seeds: its value in the search, in basis points, and those on the seeds."""

    study: str
    number: int
    value: float
    fresh: tuple[float, ...]

    @property
    def estimate(self) -> Estimate:
        """Its mean over the fresh seeds."""
        return over_seeds(self.fresh)


@dataclass(frozen=True)
class SearchReport:
    """The results of a search.

    Attributes
    ----------
    frame
        ``search.csv``.
    header, rows
        The table: a row for each that was searched.
    notes
        What is to be known with it.
    winners
        Study to the number of its winner, of those that were done on fresh seeds: the one with the best mean there.
    confirmed
        All that were done on fresh seeds.
    """

    frame: pd.DataFrame
    header: list[str]
    rows: list[list[str]]
    notes: list[str]
    winners: dict[str, int] = field(default_factory=dict)
    confirmed: tuple[Confirmed, ...] = ()

    def to_markdown(self) -> str:
        """Return the table and its notes."""
        lines = [f"| {' | '.join(self.header)} |", "|---" * len(self.header) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes)])

    def summary(self) -> dict[str, Any]:
        """Return the table in plain values, a mapping for each row."""
        return {"rows": [dict(zip(self.header, row, strict=True)) for row in self.rows], "notes": self.notes}


def trial_table(search: Search) -> pd.DataFrame:
    """Return one row a trial: how it ended, what it found and its settings, each in a column of its place."""
    from rlwb.study.store import is_dead

    rows = []
    for name in search.studies:
        for one in search.store.trials(name):
            told = one.user_attrs
            state = "dead" if is_dead(one) else {"FAIL": "failed"}.get(one.state.name, one.state.name.lower())
            figures = told.get("figures") or {}
            row = {
                "study": name,
                "trial": one.number,
                "state": state,
                "pa": figures.get("pa", math.nan),
                "std": figures.get("std", math.nan),
                "iteration": told.get("iteration"),
                "iterations": told.get("iterations"),
                "seconds": told.get("seconds", math.nan),
                "again_of": told.get("again_of"),
                "error": told.get("error"),
            }
            rows.append({**row, **one.params})
    frame = pd.DataFrame(rows)
    return frame.astype({name: "Int64" for name in ("iteration", "iterations", "again_of") if name in frame})


def luck(search: Search, name: str) -> tuple[float, float, float]:
    """Return standard error and correlation of the trials' validation figures over days, and the shrinkage of the best.

    As if all trials were equally good (`rlwb.evaluation.overfitting.expected_shrinkage`): each is the best of as many
    as were looked at. NaN where single orders have no figure, or there are too few days.
    """
    trials = search.best(name, _COMPARED)
    known = [terms for one in trials if (terms := search.terms(name, one.number)) is not None]
    if not known or search.config.judged_by == "objective":
        return math.nan, math.nan, math.nan
    orders = RunDirectory(search.folder / "orders" / f"seed-{search.config.seed}").orders
    dates = read_table(orders / "valid.parquet", "order_id")["date"]
    error = day_interval(known[0], dates.to_numpy(), generator(search.config.seed), resamples=_RESAMPLES).standard_error
    by_day = pd.DataFrame(dict(enumerate(known))).groupby(dates.to_numpy()).mean()
    pairs = by_day.corr().to_numpy()[np.triu_indices(len(known), 1)]
    alike = float(np.clip(np.nanmean(pairs), 0.0, 1.0)) if np.isfinite(pairs).any() else 0.0
    if not math.isfinite(error):
        return math.nan, alike, math.nan
    return error, alike, expected_shrinkage(error, len(search.counted(name)), 1, correlation=alike)


def superiority_of(search: Search, name: str) -> tuple[float, int]:
    """Return the p-value of the best trial against TWAP on validation orders, and how many trials it counts.

    See `rlwb.evaluation.overfitting.superiority`. Those that were ended early count too; what is not counted is the
    choice of an iteration within each. NaN where single orders have no figure, or there are too few days.
    """
    best = search.best(name, 1)
    known = {one.number: terms for one in search.counted(name) if (terms := search.terms(name, one.number)) is not None}
    if not best or best[0].number not in known or search.config.judged_by == "objective":
        return math.nan, 0
    found = search.rules(search.config.seed).excess(search.config, [*known.values()])
    if found is None:
        return math.nan, 0
    p = superiority(*found, generator(search.config.seed), resamples=_RESAMPLES)
    return float(p[[*known].index(best[0].number)]), len(known)


def confirmations(search: Search) -> list[Confirmed]:
    """Return the trials of which all fresh seeds are done, in the order of the search."""
    found: dict[tuple[str, int], list[float]] = {}
    for one in search.fresh():
        figures = search.fresh_figures(one)
        own = found.setdefault((one.study, one.number), [])
        own += [] if figures is None else [figures["figures"]["pa"]]
    return [
        Confirmed(name, number, _value(search, name, number), tuple(values))
        for (name, number), values in found.items()
        if len(values) == search.settings.fresh_seeds
    ]


def _value(search: Search, name: str, number: int) -> float:
    return float(search.store.trials(name)[number].values[0])


def write_report(search: Search) -> SearchReport:
    """Write ``search.csv``, ``search.md`` and ``search.html`` of what is done, and return it."""
    frame = trial_table(search)
    confirmed = confirmations(search)
    winners = {
        name: max(own, key=lambda one: one.estimate.mean).number
        for name in search.studies
        if (own := [one for one in confirmed if one.study == name])
    }
    tested = read_json(search.test_path) if search.test_path.exists() else {}
    header, rows = _table(search, confirmed, winners, tested)
    report = SearchReport(frame, header, rows, _notes(search, frame, confirmed, tested), winners, tuple(confirmed))
    with atomic_path(search.folder / "search.csv") as path:
        frame.to_csv(path, index=False)
    sections = _sections(search, confirmed, winners)
    text = [f"# {search.folder.name}", "", report.to_markdown()]
    for one in sections:
        table = [f"| {' | '.join(one['header'])} |", "|---" * len(one["header"]) + "|"] if one["rows"] else []
        table += [f"| {' | '.join(row)} |" for row in one["rows"]]
        text += ["", f"## {one['title']}", "", *(f"- {note}" for note in one["notes"]), "", *table]
    write_text(search.folder / "search.md", "\n".join(text) + "\n")
    write_json(search.folder / "search.json", {**report.summary(), "winners": winners})
    shown = {"header": header, "rows": rows, "notes": report.notes, "sections": sections}
    write_text(search.folder / "search.html", render("search.html", title=search.folder.name, **shown))
    return report


def _table(
    search: Search, confirmed: Sequence[Confirmed], winners: Mapping[str, int], tested: Mapping[str, Any]
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table: a row for each that was searched."""
    figure = f"{PA_TITLES[search.config.judged_by]}, bp"
    header = ["searched", "trials", f"own settings: {figure}", f"best: {figure}", "of it luck of the days"]
    is_confirmed = bool(search.settings.confirm)
    header += ["winner", f"on fresh seeds: {figure}", "shrinkage"] if is_confirmed else []
    header += [f"test: {figure}"] if tested else []
    rows = []
    for name in search.studies:
        best, own = search.best(name, 1), search.space.own(name)
        at_own = [one.values[0] for one in search.store.trials(name) if own and one.params == own and _is_whole(one)]
        row = [name, str(len(search.counted(name))), f"{at_own[0]:z.2f}" if at_own else "-"]
        row += [f"{best[0].values[0]:z.2f}" if best else "-", _told(luck(search, name)[2])]
        if is_confirmed:
            mine = next((one for one in confirmed if (one.study, one.number) == (name, winners.get(name))), None)
            shrunk = mine.estimate.below(mine.value).told() if mine else "-"
            row += [f"trial {mine.number}", mine.estimate.told(), shrunk] if mine else ["-", "-", "-"]
        if tested:
            row.append(over_seeds([one["pa"] for one in tested["rows"] if one["study"] == name]).told())
        rows.append(row)
    return header, rows


def _notes(search: Search, frame: pd.DataFrame, confirmed: Sequence[Confirmed], tested: Mapping[str, Any]) -> list[str]:
    settings, figure = search.settings, PA_TITLES[search.config.judged_by]
    counts = frame.groupby(["study", "state"], sort=False).size()
    looked = [
        f"{name}: {_trials(len(search.counted(name)))} looked at ("
        + ", ".join(f"{count} {state}" for state, count in counts[name].items())
        + ")"
        for name in search.studies
    ]
    how = f"Sampler {settings.sampler}, pruner {settings.pruner}, seed {search.config.seed} for every trial."
    has_died = " A dead trial is one whose process ended; its settings were tried again."
    notes = [f"{'; '.join(looked)}. {how}{has_died if (frame['state'] == 'dead').any() else ''}"]
    if given_up := [f"trial {one.number} of {name}" for name in search.studies for one in search.given_up(name)]:
        notes.append(f"Not looked at are the settings of {', '.join(given_up)}: the process ended twice (see logs/).")
    notes.append(f"A trial is judged by the best {figure} on validation orders among its iterations.")
    notes.append(
        "The luck of the days is the fall of the best on other days that is to be expected if all trials were equally "
        "good. Fresh seeds do not show it, since they are judged on the same days."
    )
    p_values = {name: superiority_of(search, name) for name in search.studies}
    if told := [f"{name} {p:.3f} ({_trials(tried)})" for name, (p, tried) in p_values.items() if not math.isnan(p)]:
        notes.append(
            "Were no trial better than TWAP, the best would look as good on the validation orders with a probability "
            f"of: {', '.join(told)}. It counts all trials (test for superior predictive ability), not the choice of an "
            "iteration within each."
        )
    if confirmed:
        seeds = sorted({one.seed for one in search.fresh()})
        best = "trial" if settings.confirm == 1 else f"{settings.confirm} trials"
        where, how = f"seeds {seeds[0]} to {seeds[-1]}", f"Intervals ({LEVEL:.0%}, Student's t) are over seeds."
        if len(seeds) == 1:
            where, how = f"one seed ({seeds[0]})", "Nothing tells how another seed would differ."
        notes.append(
            f"The best {best} of each, and the configuration's own settings, were done again on {where}, orders and "
            f"weights alike, judged on the same validation days; the winner has the best mean there. {how} The "
            "shrinkage is what the choice owed to its own seed."
        )
    if tested:
        notes.append(
            f"The winners were judged on the test orders of the fresh seeds, once, on {tested['at'][:10]}; nothing was "
            "chosen after that."
        )
        if tested.get("look"):
            notes.append(told_look(tested["look"]))
    else:
        notes.append("No test order was read.")
    return notes


def _sections(search: Search, confirmed: Sequence[Confirmed], winners: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return title, notes, table and figures of each part below the first table."""
    sections = []
    if confirmed:
        header = ["searched", "trial", "in the search, bp", "on fresh seeds, bp", "shrinkage, bp", "settings"]
        rows = [
            [
                f"{one.study}{' (winner)' if winners[one.study] == one.number else ''}",
                str(one.number),
                f"{one.value:z.2f}",
                one.estimate.told(),
                one.estimate.below(one.value).told(),
                _settings_told(search, one.study, search.store.trials(one.study)[one.number]),
            ]
            for one in confirmed
        ]
        sections.append(_section("The best on fresh seeds", header, rows))
    for name in search.studies:
        header = ["trial", "PA, bp", "std, bp", "iteration", "settings"]
        trials = search.best(name, _SHOWN)
        rows = [
            [
                str(one.number),
                f"{one.values[0]:z.2f}",
                _told(one.user_attrs["figures"]["std"]),
                str(one.user_attrs.get("iteration") or "-"),
                _settings_told(search, name, one),
            ]
            for one in trials
        ]
        is_front = len(search.settings.objectives) > 1
        notes = ["Trials that no other passes in both PA and deviation."] if is_front else []
        notes += importance_notes(search, name)
        title = f"{name}: {'the front' if is_front else f'the best of {len(search.counted(name))}'}"
        figures = [picture(figure, caption) for caption, figure in figures_of(search, name).items()]
        sections.append({**_section(title, header, rows), "notes": notes, "figures": figures})
    return sections


def _section(title: str, header: list[str], rows: list[list[str]]) -> dict[str, Any]:
    return {"title": title, "header": header, "rows": rows, "notes": [], "figures": []}


def importance_notes(search: Search, name: str) -> list[str]:
    """Say how much settings matter for being among the better trials (PED-ANOVA), where there are enough of these."""
    import optuna

    whole = [one for one in search.store.trials(name) if _is_whole(one)]
    if len(search.settings.objectives) > 1 or len(whole) < _FOR_IMPORTANCE or len(search.space.of(name)) < 2:
        return []
    found = optuna.importance.get_param_importances(search.store.study(name))
    told = ", ".join(f"{place} {share:.0%}" for place, share in found.items())
    return [f"What the better trials have in common, by setting (PED-ANOVA): {told}."]


def figures_of(search: Search, name: str) -> dict[str, Figure]:
    """Return caption to figure of a study: its history, its settings one by one, and the front of two objectives."""
    from rlwb.study import search_plots

    trials, unit = search.counted(name), f"validation {PA_TITLES[search.config.judged_by]}, bp"
    values = np.array([_best_so_far(one) for one in trials])
    whole = np.array([_is_whole(one) for one in trials], dtype=bool)
    if not whole.any():
        return {}
    numbers = np.array([one.number for one in trials])
    found = {"Validation of each trial, and the best so far.": search_plots.history(numbers, values, whole, unit)}
    settings = {one.name: ([trial.params[one.name] for trial in trials], one) for one in search.space.of(name)}
    found["Each setting alone; the others differ from point to point."] = search_plots.slices(
        settings, values, whole, unit
    )
    if len(search.settings.objectives) > 1:
        deviations = np.array([(one.user_attrs.get("figures") or {}).get("std", math.nan) for one in trials])
        front = np.array([one.number in {best.number for best in search.best(name, len(trials))} for one in trials])
        found["Mean and deviation; those that no other passes are joined."] = search_plots.front(
            values, deviations, front, unit
        )
    return found


def _best_so_far(trial: FrozenTrial) -> float:
    return float((trial.user_attrs.get("figures") or {}).get("pa", math.nan))


def _is_whole(trial: FrozenTrial) -> bool:
    return trial.state.name == "COMPLETE"


def _settings_told(search: Search, name: str, trial: FrozenTrial) -> str:
    short = [one.name.rpartition(".")[2] if name != LEARNER else one.name for one in search.space.of(name)]
    values = [trial.params[one.name] for one in search.space.of(name)]
    return ", ".join(
        f"{place} {f'{value:.4g}' if isinstance(value, float) else value}"
        for place, value in zip(short, values, strict=True)
    )


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"


def _told(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:z.2f}"
