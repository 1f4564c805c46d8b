"""The tables and the page of a sweep, from the results of its members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rlwb.evaluation.metrics import METRICS, Beside
from rlwb.evaluation.overfitting import superiority
from rlwb.evaluation.page import link, render
from rlwb.evaluation.pictures import picture
from rlwb.evaluation.results import PA_TITLES, PolicyResult, best_rule, mean, of_kind, twap_of
from rlwb.evaluation.seeds import Trainings, improvement_table, profile_table, seed_table, too_few_seeds, values_of
from rlwb.evaluation.tables import Table, attained_note, rule_verdict
from rlwb.experiment.backtest import interval_of, read_results
from rlwb.experiment.ledger import told_looks
from rlwb.experiment.run import RunDirectory
from rlwb.files import atomic_path, write_text
from rlwb.seeds import generator
from rlwb.study.launch import Outcome
from rlwb.study.members import Sweep, is_done

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlwb.experiment.config import RunConfig


_ABSENT = "-"
_CHECKPOINTS, _LAST = "checkpoints", "last"
#: Lines of a failed member's output that the page shows.
_TAIL = 25


@dataclass(frozen=True, eq=False)
class Collected:
    """The results of the members of a sweep, put together.

    Attributes
    ----------
    folder
        The sweep's.
    members
        One row a member (``sweep.csv``).
    seeds
        One row a setting, policy and metric (``seeds.csv``); empty where no member is done.
    improvement
        Probabilities of improvement, one row a pair (``improvement.csv``).
    table
        The table for people (``sweep.md``); None where no member is done.
    failed
        Names of the members that are not done.
    """

    folder: Path
    members: pd.DataFrame
    seeds: pd.DataFrame
    improvement: pd.DataFrame
    table: Table | None
    failed: tuple[str, ...]

    @property
    def text(self) -> str:
        """The table, or what to say in its place, and which members failed."""
        shown = self.table.to_text().rstrip() if self.table else "No member is done, so there is no table."
        return f"{shown}\n{self._failures}" if self.table is None and self.failed else shown

    @property
    def _failures(self) -> str:
        return f"Failed: {', '.join(self.failed)}; what they printed is in {self.folder / 'logs'}."


def collect(folder: Path, sweep: Sweep, outcomes: Sequence[Outcome] = ()) -> Collected:
    """Read the members of a sweep and write its tables (``.csv``), ``sweep.md`` and ``sweep.html``.

    Parameters
    ----------
    outcomes
        How the jobs of those members ended that were run just now.
    """
    runs = {name: RunDirectory(folder / name) for name in sweep.members}
    done = {name: read_results(run) for name, run in runs.items() if is_done(run)}
    members = _members(sweep, runs, done, {one.job.name: one for one in outcomes})
    failed = tuple(name for name in sweep.members if name not in done)
    config = sweep.settings[0].config
    bootstrap = interval_of(config)
    groups = trainings(sweep, done) if done else {}
    seeds = _with_grid(seed_table(groups, **bootstrap), sweep) if groups else pd.DataFrame()
    judged = _judged_by(sweep)
    compared = {name: one for name, one in groups.items() if _policy(name) != _LAST and one.kind != "ceiling"}
    better = improvement_table(compared, judged, **bootstrap) if groups else pd.DataFrame()
    profiles = profile_table(compared, judged, **bootstrap) if groups else pd.DataFrame()
    table = _table(sweep, done, seeds, better, failed, [runs[name] for name in done]) if groups else None
    found = Collected(folder, members, seeds, better, table, failed)
    tables = {"sweep": members, "seeds": seeds, "improvement": better, "profiles": profiles}
    for name, frame in tables.items():
        with atomic_path(folder / f"{name}.csv") as target:
            frame.to_csv(target, index=False)
    write_text(folder / "sweep.md", table.to_markdown() if table else f"{found.text}\n")
    write_text(folder / "sweep.html", _page(found, sweep, runs, done))
    return found


def _policy(group: str) -> str:
    return group.rpartition("/")[2]


def _judged_by(sweep: Sweep) -> str:
    """Return the metric that settings are compared by: what checkpoints are chosen by, where it is the same for all."""
    names = {one.config.judged_by for one in sweep.settings}
    return names.pop() if len(names) == 1 else "pa"


def trainings(sweep: Sweep, done: Mapping[str, Sequence[PolicyResult]]) -> dict[str, Trainings]:
    """Return what differs by its seed alone, by setting and policy: chosen checkpoints, the last one, and rules.

    A rule that has the same result in all members stands once; one that differs between settings once for each.
    """
    groups: dict[str, Trainings] = {}
    beside: dict[str, dict[str, list[PolicyResult]]] = {}
    known: dict[str, dict[str, list[Beside]]] = {}
    is_grid = len(sweep.settings) > 1
    for setting in sweep.settings:
        found = [done[setting.member(seed)] for seed in sweep.seeds if setting.member(seed) in done]
        if not found:
            continue
        against = [Beside.of(results) for results in found]
        chosen = [of_kind(results, "checkpoint") for results in found]
        counts = {len(one) for one in chosen}
        many = f"{counts.pop()} best checkpoints" if len(counts) == 1 else "best checkpoints"
        title = setting.title if is_grid else many.replace("1 best checkpoints", "best checkpoint")
        groups[f"{setting.name}/{_CHECKPOINTS}"] = Trainings(title, "checkpoint", chosen, against)
        last = [of_kind(results, "last") for results in found]
        if all(last):
            title = f"{setting.title}, last checkpoint" if is_grid else "last checkpoint"
            groups[f"{setting.name}/{_LAST}"] = Trainings(title, "last", last, against)
        for results, its in zip(found, against, strict=True):
            for one in results:
                if one.kind not in ("checkpoint", "last"):
                    beside.setdefault(one.policy, {}).setdefault(setting.name, []).append(one)
                    known.setdefault(one.policy, {}).setdefault(setting.name, []).append(its)
    titles = {one.name: one.title for one in sweep.settings}
    ordered = sorted(beside.items(), key=lambda item: next(iter(item[1].values()))[0].kind == "ceiling")
    for policy, by_setting in ordered:
        every = [one for results in by_setting.values() for one in results]
        if _alike(every):
            by_setting = {"": every}
        for name, results in by_setting.items():
            own = known[policy][name or next(iter(known[policy]))]
            once = 1 if _alike(results) else len(results)
            title = results[0].display_name + (f", {titles[name]}" if name else "")
            seeds = [[one] for one in results[:once]]
            groups[f"{name}/{policy}"] = Trainings(title, results[0].kind, seeds, own[:once])
    return groups


def _alike(results: Sequence[PolicyResult]) -> bool:
    """Tell whether results are of the same orders and equal, order by order."""
    first = results[0]
    ids = first.orders["order_id"].to_numpy()
    return all(
        len(one.orders) == len(ids)
        and bool((one.orders["order_id"].to_numpy() == ids).all())
        and all(
            np.array_equal(one.values(name), first.values(name), equal_nan=True)
            for name in ("pa", "pa_net", "ffr", "amount")
        )
        for one in results[1:]
    )


def _members(
    sweep: Sweep,
    runs: Mapping[str, RunDirectory],
    done: Mapping[str, Sequence[PolicyResult]],
    outcomes: Mapping[str, Outcome],
) -> pd.DataFrame:
    """Return one row a member: its setting and seed, how it ended, and its own headline."""
    rows = []
    for name, (setting, seed) in sweep.members.items():
        run, outcome = runs[name], outcomes.get(name)
        row: dict[str, Any] = {"member": name, "setting": setting.name, **_shown(setting.grid), "seed": seed}
        row |= {"state": run.state if run.is_run() else "not begun"}
        row |= {"attempts": len(outcome.exits) if outcome else 0, "exits": outcome.describe() if outcome else "kept"}
        row |= {"seconds": round(outcome.seconds, 1) if outcome else None, "failure": _failure(run)}
        row |= dict.fromkeys(["n", "validation_pa", "pa_mean", "pa_lo", "pa_hi", "pa_last"])
        if name in done:
            head = pd.read_csv(run.backtest / "headline.csv").iloc[0]
            last = of_kind(done[name], "last")
            row |= {"n": int(head["n"]), "validation_pa": head["validation_pa"]}
            row |= {column: head[column] for column in ("pa_mean", "pa_lo", "pa_hi")}
            row |= {"pa_last": mean(last[0].pa) if last else None}
        rows.append(row)
    return pd.DataFrame(rows)


def _failure(run: RunDirectory) -> str | None:
    failure = run.status["failure"] if run.is_run() and run.state == "failed" else None
    return f"{failure['stage']}: {failure['error']}" if failure else None


def _shown(grid: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if isinstance(value, (int, float, str)) else str(value) for name, value in grid.items()}


def _with_grid(table: pd.DataFrame, sweep: Sweep) -> pd.DataFrame:
    """Return the table of seeds with setting, grid and policy in columns of their own in place of the group."""
    settings = {one.name: one for one in sweep.settings}
    names = [group.rpartition("/")[0] for group in table["of"]]
    about = [
        {"setting": name, **(_shown(settings[name].grid) if name in settings else {}), "policy": _policy(group)}
        for name, group in zip(names, table["of"], strict=True)
    ]
    return pd.concat([pd.DataFrame(about), table.drop(columns="of")], axis=1)


def _table(
    sweep: Sweep,
    done: Mapping[str, Sequence[PolicyResult]],
    seeds: pd.DataFrame,
    better: pd.DataFrame,
    failed: Sequence[str],
    runs: Iterable[RunDirectory],
) -> Table:
    """Return the table for people: a row a setting and policy."""
    config = sweep.settings[0].config
    rules, level = config.execution.rules, config.backtest.confidence
    rows, order = [], list(dict.fromkeys(zip(seeds["setting"], seeds["policy"], strict=True)))
    extra, plain = shown_metrics(seeds)
    is_twap = "twap" in set(seeds["policy"])
    for setting, policy in order:
        own = seeds[(seeds["setting"] == setting) & (seeds["policy"] == policy)].set_index("metric")
        pa, is_trained = own.loc["pa"], own["kind"].iloc[0] in ("checkpoint", "last")
        cells = [str(pa["title"]), str(pa["seeds"]) if is_trained else _ABSENT, _mean(pa, "pa", spread=is_trained)]
        cells += [_ends(pa, "mean", "pa"), _number(pa["iqm"], "pa") if is_trained else _ABSENT]
        cells += [_ends(pa, "iqm", "pa") if is_trained else _ABSENT]
        cells += [_improves(better, setting, policy)] if is_twap else []
        cells += [_mean(own.loc[name], name, spread=False) for name in (*extra, *plain)]
        rows.append(tuple(cells))
    interval = f"{100 * level:g} % interval, bp"
    header = [
        "setting" if len(sweep.settings) > 1 else "policy",
        "seeds",
        "PA mean ± std, bp",
        interval,
        "PA IQM, bp",
        interval,
    ]
    header += ["P(better than TWAP)"] if is_twap else []
    header += [METRICS[name].title for name in (*extra, *plain)]
    notes = notes_of(sweep, done, seeds, failed, runs)
    return Table(tuple(map(rules.name_pa, header)), tuple(rows), tuple(notes), seeds, level)


def shown_metrics(seeds: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the metrics that a sweep's table shows beside the PA: other PAs that differ from it, and all others."""
    frames = seeds.pivot(index=["setting", "policy"], columns="metric", values="mean")
    extra = [name for name in ("objective", "pa_net", "over_twap") if _differs(frames, name)]
    attained = ["attained"] if "attained" in frames and frames["attained"].notna().any() else []
    return extra, [*attained, "pa_value_weighted", "win_rate", "glr", "ffr"]


def _differs(frames: pd.DataFrame, name: str) -> bool:
    """Tell whether a metric has values, and others than the PA."""
    return bool(frames[name].notna().any() and ((frames[name] - frames["pa"]).abs() > 1e-6).any())


def pair_with_twap(better: pd.DataFrame, setting: str, policy: str) -> pd.Series | None:
    """Return the row of ``improvement.csv`` that compares trainings with TWAP; None where there is none."""
    if better.empty:
        return None
    over = better[(better["of"] == f"{setting}/{policy}") & better["over"].isin([f"{setting}/twap", "/twap"])]
    return None if over.empty else over.iloc[0]


def _improves(better: pd.DataFrame, setting: str, policy: str) -> str:
    row = pair_with_twap(better, setting, policy)
    if row is None:
        return _ABSENT
    ends = "" if pd.isna(row["lo"]) else f" [{row['lo']:.2f}, {row['hi']:.2f}]"
    return f"{row['probability']:.2f}{ends}"


def _mean(row: Mapping[Any, Any], metric: str, *, spread: bool) -> str:
    std = f" ± {_number(row['std_seeds'], metric)}" if spread and not pd.isna(row["std_seeds"]) else ""
    return f"{_number(row['mean'], metric)}{std}"


def _ends(row: Mapping[Any, Any], aggregate: str, metric: str) -> str:
    lo, hi = row[f"{aggregate}_lo"], row[f"{aggregate}_hi"]
    return _ABSENT if pd.isna(lo) else f"[{_number(lo, metric)}, {_number(hi, metric)}]"


def _number(value: float, metric: str) -> str:
    if pd.isna(value):
        return _ABSENT
    return f"{100 * value:.1f} %" if METRICS[metric].is_share else f"{value:z.2f}"


def notes_of(
    sweep: Sweep,
    done: Mapping[str, Sequence[PolicyResult]],
    seeds: pd.DataFrame,
    failed: Sequence[str],
    runs: Iterable[RunDirectory] = (),
) -> list[str]:
    """Return what is to be said below the table of a sweep.

    Parameters
    ----------
    done
        The results of the members that are done, by name.
    seeds
        ``seeds.csv``.
    failed
        Names of the members that are not done.
    runs
        The members that are done, for which looks at the test days they were.
    """
    judged = _judged_by(sweep)
    config = sweep.settings[0].config
    rules, level = config.execution.rules, config.backtest.confidence
    trained = seeds[(seeds["policy"] == _CHECKPOINTS) & (seeds["metric"] == "pa")]
    counts = sorted(set(trained["seeds"]))
    orders = [results[0].orders for results in done.values()]
    days, many = int(seeds["days"].iloc[0]), sorted({len(one) for one in orders})
    shown = f"{many[0]:,}" if len(many) == 1 else f"{many[0]:,} to {many[-1]:,}"
    notes = [*_rule_note(sweep, done, seeds, level)]
    notes.append(
        f"{shown} test orders on {days} days; PA against {rules.benchmark_title}; every order counts the same."
    )
    best = f"its best checkpoints by validation {PA_TITLES[judged]}, whose mean counts"
    if counts == [1]:
        notes.append(f"A trained policy is one training (one seed, {_seeds(sweep.seeds)}): {best}.")
    else:
        notes.append(
            f"A trained policy is {_span(counts)} trainings that differ in their seed alone ({_seeds(sweep.seeds)}), "
            f"of each {best}. ± is the standard deviation over seeds, IQM the mean of the middle half of them."
        )
    ids = [one[["order_id", "amount"]] if "amount" in one else one[["order_id"]] for one in orders]
    if all(one.equals(ids[0]) for one in ids[1:]):
        notes += ["All members traded the same test orders."] if len(ids) > 1 else []
    else:
        notes.append("The members did not all trade the same test orders; days are compared, not orders.")
    if seeds.loc[seeds["metric"] == "attained", "mean"].notna().any():
        most = seeds[(seeds["kind"] == "attainable") & (seeds["metric"] == "pa")]
        notes.append(attained_note(most.loc[most["policy"] == most["policy"].iloc[0], "mean_lo"]))
    few = too_few_seeds(counts[0], level)
    if few:
        notes.append(few)
    if any(one.config.execution.rules != rules for one in sweep.settings):
        notes.append("The rules of execution differ between settings; each is judged under its own.")
    if not too_few_seeds(counts[-1], level):
        resamples = f"{config.backtest.bootstrap_samples:,}"
        notes.append(
            f"Intervals ({100 * level:g} %) are for another seed and other days, by {resamples} bootstrap resamples of "
            "seeds and of whole days, the same days for all seeds; those of rules, which have no seed, are over days."
        )
        notes.append(
            "P(better than TWAP) is the share of trainings that do better than TWAP, a tie counting half, with its "
            "interval over seeds and days; where all do, its lower end is that of as many trials without a failure."
        )
    if len(sweep.settings) > 1:
        notes.append(_choice(sweep, done, judged))
    notes += told_looks(runs, level=level)
    if failed:
        notes.append(f"Failed, and so in no figure: {', '.join(failed)}.")
    return notes


def _rule_note(
    sweep: Sweep, done: Mapping[str, Sequence[PolicyResult]], seeds: pd.DataFrame, level: float
) -> Iterator[str]:
    """Say how the trainings of the only setting stand beside the best simple rule, each beside that of its own run."""
    rules = {rule.policy: rule for results in done.values() if (rule := best_rule(results)) is not None}
    own = seeds[(seeds["policy"] == _CHECKPOINTS) & (seeds["metric"] == "over_rule")]
    if rules and len(sweep.settings) == len(own) == 1 and not pd.isna(own["mean"].iloc[0]):
        row, first = own.iloc[0], next(iter(done.values()))
        ends = row["mean"], row["mean_lo"], row["mean_hi"]
        names = " or ".join(one.display_name for one in rules.values())
        title = f"that of each run ({names})" if len(rules) > 1 else names
        yield rule_verdict(next(iter(rules.values())), ends, level, first, "trainings or days", title).sentence


def _span(counts: Sequence[int]) -> str:
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _choice(sweep: Sweep, done: Mapping[str, Sequence[PolicyResult]], judged: str) -> str:
    """Say which setting is best by validation, and that the best by test is flattered."""
    scores = {}
    for setting in sweep.settings:
        found = [done[name] for seed in sweep.seeds if (name := setting.member(seed)) in done]
        values = [mean(np.array([one.validation_pa for one in of_kind(results, "checkpoint")])) for results in found]
        if values:
            scores[setting.title] = mean(np.array(values))
    best = max(scores, key=lambda title: -np.inf if np.isnan(scores[title]) else scores[title])
    chosen = next(one for one in sweep.settings if one.title == best)
    p, tried = _superiority(done, [chosen.member(seed) for seed in sweep.seeds], sweep.settings[0].config)
    counted = (
        ""
        if np.isnan(p)
        else f" Were none of the {tried} trainings better than TWAP, the best of them would look as good on the test "
        f"days as those of this setting do on average with a probability of {p:.3f} (test for superior predictive "
        "ability)."
    )
    return (
        f"The best of {len(sweep.settings)} settings by these test figures is flattered by that choice. By validation "
        f"{PA_TITLES[judged]}, which the test days do not enter, it is {best} ({scores[best]:z.2f} bp).{counted}"
    )


def _superiority(
    done: Mapping[str, Sequence[PolicyResult]], chosen: Sequence[str], config: RunConfig
) -> tuple[float, int]:
    """Return the p-value of the mean of some trainings against TWAP, and how many trainings it counts.

    Each day counts the same, since members may have orders of their own. NaN where some have no TWAP or too few days.
    """
    days = {}
    for name, results in done.items():
        twap = twap_of(results)
        if twap is not None:
            own = [one.judged - twap.values(one.judged_by, one) for one in of_kind(results, "checkpoint")]
            days[name] = pd.Series(np.mean(own, axis=0), results[0].dates).groupby(level=0).mean()
    ours = [name for name in chosen if name in days]
    if not ours:
        return np.nan, 0
    table = pd.DataFrame(days)
    excess = np.column_stack([table, table[ours].mean(axis=1, skipna=False)])
    found = superiority(
        excess, table.index.to_numpy(), generator(config.seed), resamples=config.backtest.bootstrap_samples
    )
    return float(found[-1]), len(days)


def _page(
    found: Collected,
    sweep: Sweep,
    runs: Mapping[str, RunDirectory],
    done: Mapping[str, Sequence[PolicyResult]],
) -> str:
    figures = figures_of(sweep, runs, done, found.seeds) if found.table else []
    reports = {name: run.report for name, run in runs.items() if run.report.is_file()}
    links = {name: link(path, found.folder / "sweep.html") for name, path in reports.items()}
    rows = [
        {
            **row,
            "report": links.get(row["member"]),
            **{name: _number(row[name], "pa") for name in ("validation_pa", "pa_mean", "pa_last")},
            "interval": _ends({"mean_lo": row["pa_lo"], "mean_hi": row["pa_hi"]}, "mean", "pa"),
            "seconds": "kept" if pd.isna(row["seconds"]) else f"{row['seconds']:.0f}",
        }
        for row in found.members.to_dict("records")
    ]
    logs = {name: _tail(found.folder / "logs" / f"{name}.txt") for name in found.failed}
    named = _titles(found.seeds)
    better = [
        (
            named.get(row["of"], row["of"]),
            named.get(row["over"], row["over"]),
            f"{row['probability']:.2f}",
            _ABSENT if pd.isna(row["lo"]) else f"[{row['lo']:.2f}, {row['hi']:.2f}]",
        )
        for row in found.improvement.to_dict("records")
    ]
    table = found.table
    return render(
        "sweep.html",
        title=f"Sweep {found.folder.name}",
        header=table.header if table else (),
        rows=table.rows if table else (),
        notes=table.notes if table else (found.text,),
        figures=[picture(figure, caption) for figure, caption in figures],
        better=better,
        level=f"{100 * sweep.settings[0].config.backtest.confidence:g}",
        members=rows,
        done=len(done),
        logs=logs,
    )


def _titles(seeds: pd.DataFrame) -> dict[str, str]:
    if seeds.empty:
        return {}
    return {f"{row.setting}/{row.policy}": row.title for row in seeds.itertuples()}


def _tail(log: Path) -> str:
    if not log.is_file():
        return ""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:])


def figures_of(
    sweep: Sweep,
    runs: Mapping[str, RunDirectory],
    done: Mapping[str, Sequence[PolicyResult]],
    seeds: pd.DataFrame,
) -> list[tuple[Figure, str]]:
    """Return the figures of a sweep with what stands under them: its seeds, and their learning curves if there are any.

    Parameters
    ----------
    runs, done
        The members by name, and the results of those that are done.
    seeds
        ``seeds.csv``.
    """
    from rlwb.evaluation.seed_plots import learning_curves_of_seeds, seed_points
    from rlwb.evaluation.select import read_validation

    config = sweep.settings[0].config
    judged = _judged_by(sweep)
    left_out = ("ceiling", "last") if len(sweep.settings) > 1 else ("ceiling",)
    groups = {name: one for name, one in trainings(sweep, done).items() if one.kind not in left_out}
    points = {name: values_of(one, judged).tolist() for name, one in groups.items()}
    own = seeds[seeds["metric"] == judged]
    table = own.assign(group=own["setting"] + "/" + own["policy"]).set_index("group")
    level = config.backtest.confidence
    told = (
        "Each circle is one training (one seed), judged on the test orders; the bar is the interval of the mean over "
        "seeds and days, the diamond the interquartile mean. Rules have no seed."
    )
    figures = [(seed_points(points, table, name=PA_TITLES[judged], level=level), told)]
    curves: dict[str, list[pd.Series]] = {}
    for setting in sweep.settings:
        for seed in sweep.seeds:
            if (name := setting.member(seed)) in done and (runs[name].metrics / "validation.csv").is_file():
                log = read_validation(runs[name].metrics / "validation.csv", judged)
                curves.setdefault(setting.title, []).append(log.set_index("iteration")[judged])
    if curves:
        figures.append(
            (
                learning_curves_of_seeds(curves, name=PA_TITLES[judged]),
                f"Validation {PA_TITLES[judged]} by iteration: thin lines are seeds, the thick one their mean.",
            )
        )
    return figures
