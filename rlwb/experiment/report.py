"""Tables and figures of a run for notebooks, one order in every detail, and the page ``report.html``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field

from rlwb.errors import DataError, FileError, OrderError
from rlwb.execution import OrderExecution, audit
from rlwb.execution.attribution import COST_COLUMNS, IMPACT_OFF, REACTION, reaction
from rlwb.execution.generate import OWN_VOLUME
from rlwb.execution.rules import BASIS_POINTS, BENCHMARKS
from rlwb.experiment.audit import read_audit, summary_of
from rlwb.experiment.backtest import find_policy, interval_of, read_frontier, read_results, read_summary
from rlwb.experiment.config import RunConfig, label
from rlwb.experiment.evidence import evidence_table
from rlwb.experiment.orders import load_orders
from rlwb.experiment.origin import WARNING, judged_on
from rlwb.experiment.player import PLAYER, Player
from rlwb.experiment.power import read_power
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stability import read_stability, stability_sentences, write_stability
from rlwb.experiment.stages import BACKTEST, ORDERS, STABILITY, TRAIN, Stage, stages_of
from rlwb.experiment.stress import STRESS_CAPTIONS, stress_pictures, stress_sentences, stress_view
from rlwb.experiment.verdict import TWIN, VERDICT, verdict_of
from rlwb.experiment.workbench import Workbench
from rlwb.experiment.yamlfile import dump_yaml
from rlwb.files import write_json, write_text
from rlwb.market.findings import KINDS, counted
from rlwb.reading import read_json, read_table

if TYPE_CHECKING:
    from markupsafe import Markup

    from rlwb.evaluation import PolicyResult
    from rlwb.evaluation.verdict import Verdict

CAPTIONS = {
    "learning_curves": "Learning. Rings mark the chosen checkpoints: they should lie on a plateau late in the training."
    " Be wary of scattered peaks on a noisy curve, and of validation that falls while training rises.",
    "validation_against_test": "Validation against test. The validation score of a selected checkpoint is biased "
    "upwards; the points would lie on the dashed line if all checkpoints were equally good and the choice had picked "
    "noise alone.",
    "frontier": "Mean and standard deviation of single orders against their arrival prices, after costs. Up is better, "
    "left is better; the grey line is the most mean that the policies give at each deviation. A policy up and to the "
    "right of TWAP gains by bearing more risk; be wary of calling that better.",
    "pa_distribution": "Single orders, by policy. They scatter far more than the mean is large; a mean and a median on "
    "different sides of 0 say that a few orders carry the result.",
    "pa_by_window": "By window, each trained by itself, with day-clustered intervals over its test days. Be wary of a "
    "gain that one window carries, or that fades from window to window.",
    "pa_by_month": "By month, with day-clustered intervals. Be wary of an edge that fades or that one month carries; a "
    "month with too few days has no interval.",
    "pa_by_instrument": "By instrument, with day-clustered intervals, sorted by the mean: the slope is there by "
    "construction, the intervals are what to look at.",
    "stability_groups": "By groups of orders, with intervals. Orange groups differ from all other orders by more than "
    "chance, corrected for the number of groups; be wary of a gain that one of them carries. Volatility and the "
    "time of trading are known afterwards only.",
    "inventory_paths": "What is left to trade after each step, beside the baselines. Thin bands are a fixed schedule "
    "that does not look at prices; an order kept to the end is a bet.",
    "cost_parts": "Cost of the orders against their arrival price, by part. Drift is the market's own move within the "
    "window, the same for all who fill all; the other parts are what a policy chose and paid.",
    "cumulative_pa": "Added up over the test days. A steady edge is a straight line; a jump is an event.",
}
"""What stands under a figure, by its file's stem: what it shows, and the warning signs to look for.

Figures appear in this order, others after them.
"""

#: Columns of the training's log that are what the learner reports of its updates.
_LEARNT = re.compile("loss|entropy|clip|kl|grad|^q$|epsilon")

#: Column of a file to its title, where that is not the column's name without its underscores.
_TITLES = {
    "validation_pa": "validation PA",
    "pa_mean": "test PA",
    "pa_lo": "low",
    "pa_hi": "high",
    "pa_net": "net PA",
    "over_twap": "over TWAP",
    "net_over_twap": "net over TWAP",
    "cvar": "CVaR 95 %",
    "glr": "gain/loss",
    "untraded": "in untraded bars",
    "pa": "PA",
    "difference_lo": "low",
    "difference_hi": "high",
    "first": "first day",
    "last": "last day",
    "last_pa": "last checkpoint",
}
_SUMMARY = (
    *("policy", "kind", "validation_pa", "pa_mean", "pa_lo", "pa_hi", "pa_net"),
    *("std", "cvar", "worst_day", "win_rate", "glr", "ffr", "untraded", "orders", "days"),
)
_GAP = ("cause", "pa", "pa_net", "difference", "difference_lo", "difference_hi", "ffr", "orders", "left_out")
_WINDOWS = (
    *("window", "train_first", "train_last", "test_first", "test_last", "orders", "days"),
    *("validation_pa", "pa_mean", "pa_lo", "pa_hi", "pa_net", "last_pa", "ffr"),
)
_ORDERS = ("part", "orders", "instruments", "days", "first", "last", "mean_amount")


class _Rule(BaseModel):
    """Names and types of the best simple rule in headline.json."""

    rule: str
    beats: bool | None
    sentence: str


class _Headline(BaseModel):
    """Names and types of headline.json."""

    header: list[str]
    rows: list[list[str]]
    notes: list[str]
    risk: list[list[str]] = []
    rule: _Rule | None = None


class _Caveats(BaseModel):
    """Names and types of caveats.json."""

    caveats: list[Annotated[str, Field(min_length=1)]]


class _Bars(BaseModel):
    """Names and types of the report on the bars in data.json."""

    findings: dict[str, dict[str, Any]] = {}


class _Data(BaseModel):
    """Names and types of data.json."""

    sessions: str
    text: str
    notes: list[str]
    report: _Bars = _Bars()
    calendar: dict[str, Any] | None = None


class _Excluded(BaseModel):
    """A checkpoint that was left out."""

    iteration: int | None
    reason: str


class Selected(BaseModel):
    """Names and types of selection.json."""

    chosen: list[Annotated[str, Field(pattern=r"checkpoint-\d+")]]
    excluded: list[_Excluded]
    expected_shrinkage: float | None


def _there(path: Path, stage: Stage) -> Path:
    """Refuse a file that its stage has not written."""
    if not path.exists():
        raise DataError(f"{path.name} is not there yet; run {stage.notebook} on this run first.")
    return path


def _titled(table: pd.DataFrame, columns: Sequence[str], **own: str) -> pd.DataFrame:
    """Return those of the columns that a table has, under their titles."""
    titles = {name: {**_TITLES, **own}.get(name, name.replace("_", " ")) for name in columns if name in table}
    return table[list(titles)].rename(columns=titles)


def _summary(run: RunDirectory) -> pd.DataFrame:
    """Return the summary: validation has the PA that is judged by; net PA and untraded bars are shown where any are."""
    _there(run.backtest / "summary.csv", BACKTEST)
    table = read_summary(run)
    if not (table.get("untraded", np.zeros(1)) > 0).any():
        table = table.drop(columns="untraded", errors="ignore")
    rules = run.config.execution.rules
    if rules.have_costs:
        shown = _titled(table, _SUMMARY, validation_pa="validation net PA", pa_net="net test PA")
    else:
        shown = _titled(table, [name for name in _SUMMARY if name != "pa_net"])
    return shown.rename(columns=rules.name_pa)


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its first column as index, rounded, without a minus before a zero."""
    table = table.set_index(table.columns[0]).round(3)
    numbers = table.select_dtypes("float").columns
    table[numbers] += 0.0
    return table


def order_parts(run: RunDirectory) -> dict[str, pd.DataFrame]:
    """Return the order tables of the run by the name of their part."""
    parts = {"train": "training", "valid": "validation", "test": "test"}
    paths = {title: _there(run.orders / f"{part}.parquet", ORDERS) for part, title in parts.items()}
    return {title: read_table(path, "order_id", numbers=["amount"]) for title, path in paths.items()}


def iteration_table(run: RunDirectory, *, most: int = 60) -> pd.DataFrame:
    """Return one row an iteration, training beside validation; of many iterations `most`, evenly apart.

    PAs are in basis points; the columns after the rewards are what the learner reports of its update.
    """
    costs = {"pa_net": "net PA"} if run.config.execution.rules.have_costs else {}
    metrics = {"pa": "PA", **costs, "reward": "reward"}
    from rlwb.evaluation import read_validation

    numbers = ["iteration", *metrics, "seconds"]
    path = _there(run.metrics / "train.csv", TRAIN)
    train = read_table(path, "iteration", numbers=numbers, is_numeric=True).set_index("iteration")
    path = run.metrics / "validation.csv"
    validation = read_validation(path).set_index("iteration") if path.exists() else pd.DataFrame()
    table = pd.DataFrame({title: train[name] for name, title in metrics.items()})
    for name, title in metrics.items():
        table[f"validation {title}"] = validation.get(name, np.nan)
    learnt = [name for name in train if _LEARNT.search(name)]
    table[[*learnt, "seconds"]] = train[[*learnt, "seconds"]]
    rows = np.unique(np.linspace(0, len(table) - 1, min(most, len(table))).round().astype(int))
    return table.iloc[rows].round(3).rename(columns=run.config.execution.rules.name_pa) + 0.0


def summary_table(run: RunDirectory) -> pd.DataFrame:
    """Return ``backtest/summary.csv`` as people read it, one row a policy."""
    return _rounded(_summary(run))


def groups_table(run: RunDirectory) -> pd.DataFrame:
    """Return the chosen checkpoints' results by side, size and window of the orders, one row a group."""
    path = _there(run.backtest / "groups.csv", BACKTEST)
    table = read_table(
        path,
        numbers=["pa_mean", "pa_net", "over_twap", "net_over_twap", "std", "cvar", "ffr"],
        texts=["by", "group", "kind"],
    )
    from rlwb.evaluation.metrics import wide_name

    rules = run.config.execution.rules
    net = "net_" if rules.have_costs else ""
    own = "pa_net" if net else "pa"
    figures = (wide_name(own), f"{own}_lo", f"{own}_hi", f"{net}over_twap", "std", "cvar", "ffr")
    columns = ["by", "group", *figures, "orders", "days"]
    low, high = f"{own}_lo", f"{own}_hi"
    shown = _titled(table[table["kind"] == "checkpoint"], columns, pa_mean="PA", **{low: "low", high: "high"})
    return shown.rename(columns=rules.name_pa)


def rules_gap(run: RunDirectory) -> pd.DataFrame:
    """Return what each rule does to the best checkpoint's net PA, in basis points; no rows under the simple rules."""
    _there(run.backtest / "summary.csv", BACKTEST)
    path = run.backtest / "gap.csv"
    table = read_table(path, "cause", numbers=_GAP[1:]) if path.exists() else pd.DataFrame(columns=list(_GAP))
    return _rounded(_titled(table, _GAP)).rename(columns=run.config.execution.rules.name_pa)


def costs_table(run: RunDirectory) -> pd.DataFrame:
    """Return what orders cost against arrival, as `costs_view` shows it."""
    return costs_view(read_costs(_there(run.backtest / "costs.csv", BACKTEST)))


def costs_view(costs: pd.DataFrame) -> pd.DataFrame:
    """Return `rlwb.evaluation.cost_table` as people read it, in basis points, one row a policy; see docs/costs.md.

    Columns are the parts, their total, the ends of its interval, the total in currency, and what impact changed in the
    fills where there is any.
    """
    from rlwb.evaluation.costs import wide_costs

    total = costs[costs["component"] == "total"].set_index("policy")[["lo", "hi", "currency"]]
    table = wide_costs(costs).join(total.rename(columns={"lo": "low", "hi": "high"})).set_index("title")
    names = [*COST_COLUMNS, "low", "high", "currency", REACTION]
    table = table[[name for name in names if name in table]].rename(columns=lambda name: name.replace("_", " "))
    return _rounded(table.rename_axis(index="policy", columns=None).reset_index())


def benchmarks_table(run: RunDirectory) -> pd.DataFrame:
    """Return each policy's mean PA against every benchmark, before costs, and with those against arrival, one row each.

    All are of the same orders and the same fills; a row of several checkpoints has their mean.
    """
    from rlwb.evaluation.frontier import against_arrival
    from rlwb.evaluation.results import mean

    rows = {}
    for title, members in _titled_groups(read_results(run)).items():
        row = {name: np.mean([mean(one.values(f"pa_{name}")) for one in members]) for name in BENCHMARKS}
        rows[title] = {**row, "arrival, after costs": np.mean([mean(against_arrival(one).pa) for one in members])}
    return _rounded(pd.DataFrame(rows).T.rename_axis("PA over, bp").reset_index())


def worst_days(run: RunDirectory, count: int = 5) -> pd.DataFrame:
    """Return the days on which the chosen checkpoints' orders cost most against arrival, worst first.

    Columns are the mean net PA against arrival of the checkpoints and of each baseline, in basis points, and `orders`.
    """
    from rlwb.evaluation.frontier import against_arrival
    from rlwb.evaluation.results import day_matrix

    results = read_results(run)
    groups = {title: [against_arrival(one) for one in members] for title, members in _titled_groups(results).items()}
    days = pd.DataFrame({title: day_matrix(members).mean(axis=1) for title, members in groups.items()})
    days["orders"] = pd.Series(results[0].dates).value_counts()
    return days.sort_values(days.columns[0], kind="stable").head(count).round(2).replace(-0.0, 0.0).rename_axis("day")


def _titled_groups(results: Sequence[PolicyResult]) -> dict[str, list[PolicyResult]]:
    """Return the headline's rows by what people read, without the ceilings."""
    from rlwb.evaluation import headline_groups
    from rlwb.evaluation.metrics import short_title

    groups = headline_groups(results).items()
    return {short_title(name, one): one for name, one in groups if one[0].kind != "ceiling"}


def frontier_view(run: RunDirectory) -> pd.DataFrame:
    """Return the frontier as people read it, one row a policy, in basis points."""
    titles = {
        "title": "policy",
        "arrival_mean": "mean",
        "arrival_mean_lo": "low",
        "arrival_mean_hi": "high",
        "arrival_std": "std",
        "arrival_std_over_twap": "std over TWAP",
        "arrival_std_over_twap_lo": "its low",
        "arrival_std_over_twap_hi": "its high",
        "arrival_cvar": "CVaR 95 %",
        "below_frontier": "below the frontier",
    }
    _there(run.backtest / "frontier.csv", BACKTEST)
    return _rounded(read_frontier(run)[list(titles)].rename(columns=titles)).round(2)


def read_costs(path: Path) -> pd.DataFrame:
    """Return ``costs.csv`` of a backtest."""
    numbers = ["currency", "cost_bp", "lo", "hi", "orders", "days"]
    return read_table(path, ("policy", "component"), numbers=numbers, texts=["policy", "title", "component"])


def selection_tables(run: RunDirectory) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return which checkpoints were chosen, best first, and which were left out and why."""
    from rlwb.evaluation import read_validation
    from rlwb.evaluation.results import PA_TITLES

    selection = read_json(_there(run.backtest / "selection.json", BACKTEST), Selected)
    rules, figure = run.config.execution.rules, run.config.judged_by
    validation = read_validation(run.metrics / "validation.csv", figure).set_index("iteration")[figure]
    iterations = [int(name.rpartition("-")[2]) for name in selection["chosen"]]
    chosen = pd.DataFrame(
        {
            "rank": range(1, len(iterations) + 1),
            "policy": selection["chosen"],
            "iteration": iterations,
            rules.name_pa(f"validation {PA_TITLES[figure]}"): validation.reindex(iterations).to_numpy(),
        }
    ).set_index("rank")
    return chosen.round(3), pd.DataFrame(selection["excluded"], columns=["iteration", "reason"])


@dataclass(frozen=True)
class OrderAudit:
    """All that happened to one order.

    Attributes
    ----------
    ticks, steps
        See `rlwb.execution.audit`.
    summary
        One row: the order, its figures, its cost by part, and its reward.
    """

    ticks: pd.DataFrame
    steps: pd.DataFrame
    summary: pd.DataFrame

    def costs(self) -> pd.DataFrame:
        """Return the parts of the order's cost that are not 0, in currency and in basis points of amount times arrival.

        Where trading has impact, the last two rows are the cost of the same order by the same policy without impact,
        and what impact changed in the fills, beside what it charged.
        """
        order = self.summary.iloc[0]
        costs = {part: order[column] for part, column in COST_COLUMNS.items() if part == "total" or order[column] != 0}
        if IMPACT_OFF in order:
            costs |= {"total without impact": order[IMPACT_OFF], REACTION: reaction(order)}
        table = pd.DataFrame.from_dict(costs, orient="index", columns=["currency"])
        return table.assign(bp=BASIS_POINTS * table["currency"] / (order["amount"] * order["arrival"]))

    def checks(self) -> pd.DataFrame:
        """Return the sums of the ticks beside the row of the summary that they must give."""
        order, ticks = self.summary.iloc[0], self.ticks
        value = float((ticks["filled"] * ticks["price"]).sum())
        pairs = {
            "amount filled": (ticks["filled"].sum(), order["filled"]),
            "filled in steps": (self.steps["fill"].sum(), order["filled"]),
            "value traded": (value, order["filled"] * order["price"]),
            "average price": (value / ticks["filled"].sum(), order["price"]),
            "reward": (self.steps["reward"].sum(), order["reward"]),
        }
        return pd.DataFrame.from_dict(pairs, orient="index", columns=["sum of the parts", "summary row"])


def audit_order(run: RunDirectory, bench: Workbench, policy: str, order_id: str, part: str = "test") -> OrderAudit:
    """Execute one order of `part` again by a policy of the summary (``last``, ``twap``), recording every tick.

    Raises
    ------
    OrderError
        When there is no such order, or the run's simulator keeps no ticks.
    CheckpointError
        When there is no such policy.
    """
    orders = load_orders(run, bench, part)
    chosen = orders[orders["order_id"] == order_id]
    if chosen.empty:
        known = f"the first in {run.orders / f'{part}.parquet'} is {orders['order_id'].iloc[0]!r}"
        raise OrderError(f"there is no order {order_id!r} in part {part}; {known}.")
    actor, state, action = find_policy(run, bench, policy)
    if not isinstance(bench.simulator, OrderExecution):
        raise OrderError("the run's simulator keeps no ticks; derive it from rlwb.execution.OrderExecution.")
    parts: dict[str, Any] = {"state_interpreter": state, "action_interpreter": action, "reward": bench.reward}
    batch = bench.align(chosen, bench.objective.middle)
    ticks, steps, summary = audit(bench.simulator, batch, actor, **parts)
    if bench.impact_free is not None:
        summary[IMPACT_OFF] = audit(bench.impact_free[1], batch, actor, **parts)[2]["cost"]  # type: ignore[arg-type]
    return OrderAudit(ticks, steps, summary)


def typical_order(run: RunDirectory, policy: str) -> str:
    """Return the id of the order with the median PA of the policy's backtest."""
    path = _there(run.backtest / "orders" / f"{policy}.parquet", BACKTEST)
    table = read_table(path, "order_id", numbers=["pa"]).dropna(subset="pa")
    if table.empty:
        raise OrderError(f"no order of {policy} has a PA, so none is typical; name one yourself.")
    return str(table.sort_values(["pa", "order_id"])["order_id"].iloc[len(table) // 2])


def draw_stability(run: RunDirectory, config: RunConfig) -> None:
    """Draw the run's ``figures`` (`save_picture`), and write ``stability/*.csv``: the work of the stage stability."""
    from rlwb.evaluation.pictures import save_picture

    write_stability(run, config)
    for name, figure in stability_figures(run, config).items():
        save_picture(figure, run.figures / name)


def stability_figures(run: RunDirectory, config: RunConfig) -> dict[str, Any]:
    """Return the figures of a run by name; under rules with costs they are of the net PA."""
    from rlwb.evaluation import plots, read_validation
    from rlwb.evaluation.stability_plots import stability_groups

    results, rules = read_results(run), config.execution.rules
    summary, figure, pa = read_summary(run), config.judged_by, rules.judged_by
    costs = run.backtest / "costs.csv"
    shrinkage = read_json(run.backtest / "selection.json", Selected)["expected_shrinkage"]
    validation = read_validation(run.metrics / "validation.csv", figure)
    train = read_table(run.metrics / "train.csv", "iteration", numbers=["iteration", pa], is_numeric=True)
    if rules.have_costs:
        results = [result.after_costs() for result in results]
    chosen = [result.iteration for result in results if result.kind == "checkpoint" and result.iteration is not None]
    learning = plots.learning_curves(train, validation, chosen=chosen, judged_by=figure)
    figures = {
        "validation_against_test": plots.validation_against_test(
            summary, expected_shrinkage=shrinkage, judged_by=figure
        ),
        **({"frontier": plots.frontier(read_frontier(run))} if (run.backtest / "frontier.csv").exists() else {}),
        **plots.order_figures(results, **interval_of(config)),
        **({"cost_parts": plots.cost_parts(read_costs(costs))} if costs.exists() else {}),
    }
    if (groups := read_stability(run)) is not None:
        own = groups[groups["kind"] == "checkpoint"]
        figures["stability_groups"] = stability_groups(own, level=config.backtest.confidence)
    renamed = {name: plots.rename(one, rules.name_judged) for name, one in figures.items()}
    return {"learning_curves": plots.rename(learning, rules.name_pa), **renamed}


def write_report(run: RunDirectory) -> Path:
    """Write report.html, and ``verdict.json``, from what lies in the run's directory; the page's path is returned.

    Parts whose files are not there are named as missing, so a report of half a run is honest about it.
    """
    from rlwb.evaluation import risk_verdict
    from rlwb.evaluation.page import link, render
    from rlwb.evaluation.pictures import picture

    config, rules = run.config, run.config.execution.rules
    manifest = run.manifest
    if not manifest and any(stage.get("state") == "finished" for stage in run.status["stages"].values()):
        raise FileError(f"{run.path / 'manifest.json'} is gone, which says how the run was made; restore it.")
    source = config.market.settings.get("source")
    data = _json(run.orders / "data.json", _Data)
    caveats = _json(run.backtest / "caveats.json", _Caveats)
    risk = risk_verdict(read_frontier(run)) if (run.backtest / "frontier.csv").exists() else None
    verdict = verdict_of(run, config, read_results(run) if (run.backtest / "orders").is_dir() else ())
    if verdict is not None:
        write_json(run.path / VERDICT, verdict.as_dict())
    figures = {path.stem: picture(path, text) for text, path in _figures(run)}
    headline = _with_twin(run, _json(run.backtest / "headline.json", _Headline))
    said = " ".join([*(verdict.paragraphs if verdict else ()), *(risk.sentences if risk else ())])
    number, player = _number(config, verdict), _player(run)
    method = f"{label(config.algorithm)}, seed {config.seed}"
    unfinished = _unfinished(run)
    gain = f" {number['effect']} bp" if number is not None else f" {unfinished[0]}," if unfinished else ""
    gain += f" [{number['lo']}, {number['hi']}]" if number is not None and number["lo"] else ""
    page = render(
        "report.html",
        title=f"{run.path.name}:{gain} {method}",
        name=run.path.name,
        method=label(config.algorithm),
        unfinished=unfinished,
        resume=run.how_to_resume("failed"),
        number=number,
        player=player,
        player_data=_as_script(player),
        learning=figures.get("learning_curves"),
        training=list(_training(run)),
        iterations=cells(iteration_table(run).reset_index()) if (run.metrics / "train.csv").exists() else None,
        notebooks=sorted(path.name for path in run.notebooks.glob("[!.]*.ipynb")),
        market=Path(source).name if source else f"the market {config.market.name}",
        seed=config.seed,
        started=_time(manifest.get("started"))[:16],
        verdict=verdict,
        risk=None if risk is None else " ".join(risk.sentences),
        caveats=[*_warnings(run), *_caveats(config, data or {}, caveats["caveats"] if caveats else ())],
        headline=headline,
        notes=[one for one in (headline["notes"] if headline else ()) if one.rstrip(".") not in said],
        has_costs=rules.have_costs,
        figures=[figure for name, figure in figures.items() if name not in ("cost_parts", "learning_curves")],
        stability=stability_sentences(run),
        stress=_stress(run),
        cost_figure=figures.get("cost_parts"),
        costs=cells(costs_table(run).reset_index()) if (run.backtest / "costs.csv").exists() else None,
        summary=cells(_summary(run)) if (run.backtest / "summary.csv").exists() else None,
        orders=_file_cells(run.orders / "summary.csv", _ORDERS, texts=("first", "last")),
        data=data,
        power=read_power(run.backtest / "power.json"),
        rules=rules.describe(),
        ticks_per_step=config.execution.ticks_per_step,
        gap=_file_cells(run.backtest / "gap.csv", _GAP, name=rules.name_pa),
        level=f"{100 * config.backtest.confidence:g}",
        groups=cells(groups_table(run)) if (run.backtest / "groups.csv").exists() else None,
        evidence=None if (told := evidence_table(run)) is None else cells(told),
        windows=_windows(run),
        window_pages={
            path.parent.name: link(path, run.report) for path in sorted(run.path.glob("windows/*/report.html"))
        },
        audit=_audit(run),
        stages=list(_stages(run)),
        config=dump_yaml(_resolved(config, data or {})),
        # How the run ended is left out: the page is written just before.
        manifest=dump_yaml({name: value for name, value in manifest.items() if name not in ("status", "ended")}),
    )
    write_text(run.report, page)
    return run.report


def _number(config: RunConfig, verdict: Verdict | None) -> dict[str, Any] | None:
    """Return the gain as the page shows it first, and where it and its interval lie on a line; None without one."""
    if verdict is None or not np.isfinite(verdict.ends[0]):
        return None
    effect, lo, hi = verdict.ends
    after = ", after costs" if config.execution.rules.have_costs else ""
    what = ", by the objective" if config.judged_by == "objective" else after
    told: dict[str, Any] = {"effect": f"{effect:+z.2f}", "what": what, "lo": "", "hi": ""}
    if np.isfinite([lo, hi]).all():
        low, high = min(lo, 0.0), max(hi, 0.0)
        ends = {"left": lo, "at": effect, "right": hi, "zero": 0.0}
        told |= {name: round(12.0 + 328.0 * (one - low) / max(high - low, 1e-9), 1) for name, one in ends.items()}
        told |= {"lo": f"{lo:z.2f}", "hi": f"{hi:z.2f}"}
    return told


def _player(run: RunDirectory) -> dict[str, Any]:
    """Return what the page plays the policy by; a reason where it does not, as for backtests of earlier versions."""
    if run.config.split.rolling is not None:
        return {"refused": "Each window has a policy of its own, which the window's page plays."}
    if not (run.backtest / "summary.csv").exists():
        return {"refused": "The backtest has not been done, whose best policy the page plays."}
    found = _json(run.backtest / PLAYER, Player)
    reason = f"There is no backtest/{PLAYER}, which backtests write since pages can play; make this run's anew."
    return {"refused": reason} if found is None else found


def _as_script(value: Mapping[str, Any]) -> Markup:
    """Return a value as JSON that can stand in a page: no text in it ends the script."""
    from markupsafe import Markup

    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def _training(run: RunDirectory) -> Iterator[dict[str, str]]:
    """Yield what the learner reported by iteration, and its speed, each as a line in a small picture and in words."""
    path = run.metrics / "train.csv"
    if not path.exists():
        return
    log = read_table(path, "iteration", numbers=["iteration", "seconds"], is_numeric=True)
    shown = {name: log[name] for name in log if _LEARNT.search(name)}
    if "transitions" in log:
        shown["steps a second"] = log["transitions"] / log["seconds"].where(log["seconds"] > 0)
    for name, column in shown.items():
        known = column.to_numpy(np.float64)
        known = known[np.isfinite(known)]
        if not len(known):
            continue
        low, high = float(known.min()), float(known.max())
        x = np.linspace(2.0, 238.0, len(known))
        y = 66.0 - 60.0 * (known - low) / (high - low if high > low else 1.0)
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        ends = f"from {known[0]:.4g} to {known[-1]:.4g}, between {low:.4g} and {high:.4g}"
        yield {"path": f"M{points}", "told": f"{name.replace('_', ' ')}: {ends}"}


def _stress(run: RunDirectory) -> dict[str, Any] | None:
    """Return what the page says of the stress matrix; None where there is none."""
    from rlwb.evaluation.pictures import picture

    if not (sentences := stress_sentences(run)):
        return None
    pictures = {name: path for name, path in stress_pictures(run).items() if path.exists()}
    figures = [picture(path, STRESS_CAPTIONS[name]) for name, path in pictures.items()]
    return {"sentences": sentences, "figures": figures, "table": cells(stress_view(run).reset_index())}


def _resolved(config: RunConfig, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the calendar that the bars brought, where none was given."""
    tree = config.as_dict()
    if "calendar" in tree["market"]:
        tree["market"]["calendar"] = tree["market"]["calendar"] or data.get("calendar")
    return tree


def _with_twin(run: RunDirectory, headline: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the headline with the chosen checkpoints of the run's noise twin as one more row, where it has one."""
    twin = _json(run.path / TWIN / "backtest" / "headline.json", _Headline)
    if headline is None or twin is None or not twin["rows"]:
        return headline
    own = dict(zip(twin["header"], twin["rows"][0], strict=True))
    row = ["noise twin (nothing to learn)", *(own.get(name, "-") for name in headline["header"][1:])]
    return {**headline, "rows": [headline["rows"][0], row, *headline["rows"][1:]]}


def _warnings(run: RunDirectory) -> Iterator[str]:
    """Say beside the answer whether an evaluation's test dates were known to its checkpoints."""
    if (run.orders / "test.parquet").exists():
        yield from (note for note in judged_on(run, run.config) if note.startswith(WARNING))


def _caveats(config: RunConfig, data: Mapping[str, Any], caveats: Sequence[str]) -> Iterator[str]:
    """Say beside the answer what it holds for, and what in the data may void it."""
    if config.market.name == "synthetic":
        if config.market.settings.get("signal") == 0:
            yield "The market is synthetic and has no signal: there is nothing to be found, and what is gained is luck."
        else:
            yield (
                "The market is synthetic and has a structure to be found: a gain shows that the learner finds it, and "
                "says nothing about a real market."
            )
    yield f"It holds under these rules: {config.execution.rules.describe()}."
    for note in (*(one for one in data.get("notes", ()) if one == OWN_VOLUME), *caveats):
        yield f"{note[0].upper()}{note[1:]}."
    findings = data.get("report", {}).get("findings", {})
    for kind in (kind for kind in KINDS if KINDS[kind].severity == "fault" and kind in findings):
        found = findings[kind]
        what = f"{counted(int(found.get('count', 0)), KINDS[kind].unit)}: {KINDS[kind].text}"
        yield f"Doubt about the data: {what} (first: {found.get('example', '')})."


def _figures(run: RunDirectory) -> Iterator[tuple[str, Path]]:
    """Yield caption and file of each figure."""
    found = {path.stem: path for path in sorted(run.figures.glob("*.png"))}
    for stem in dict.fromkeys([*CAPTIONS, *found]):
        if stem in found:
            yield CAPTIONS.get(stem, stem.replace("_", " ")), found[stem]


def _windows(run: RunDirectory) -> tuple[list[str], list[list[str]]] | None:
    """Return titles and cells of ``windows.csv``, each window by the name of its folder."""
    rules = run.config.execution.rules
    found = _file_cells(run.backtest / "windows.csv", _WINDOWS, texts=_WINDOWS[1:5], name=rules.name_pa)
    return None if found is None else (found[0], [[f"{int(row[0]):03d}", *row[1:]] for row in found[1]])


def _audit(run: RunDirectory) -> dict[str, Any] | None:
    """Return what an audit of the run found, nothing where it has had none."""
    found = read_audit(run)
    words = {True: "ok", False: "FAILED", None: "not told"}
    rows = [[one.name, words[one.passed], one.detail] for one in found]
    return {"summary": summary_of(found), "table": (["check", "result", "what was found"], rows)} if found else None


def _stages(run: RunDirectory) -> Iterator[list[str]]:
    """Yield how each stage ended, when it began and how long it took."""
    names = [*run.status["stages"]] if run.config.split.rolling else [stage.name for stage in stages_of(run)]
    for name in names:
        known = run.stage(name)
        yield [name, known.get("state", "not done"), _time(known.get("started")), str(known.get("seconds") or "")]


def _unfinished(run: RunDirectory) -> tuple[str, str] | None:
    """Return of the first stage that is not finished its name with its state, and why; None where all are.

    Figures alone are done without in runs of a comparison and in twins.
    """
    for name, state, *_ in _stages(run):
        if state != "finished" and (name, state) != (STABILITY.name, "not done"):
            return f"{name} {state}", run.stage(name).get("error") or ""
    return None


def _time(stamp: str | None) -> str:
    return (stamp or "")[:19].replace("T", " ")


def _json(path: Path, kind: Any) -> dict[str, Any] | None:
    return read_json(path, kind) if path.exists() else None


def _file_cells(
    path: Path, columns: Sequence[str], texts: Sequence[str] = (), name: Callable[[str], str] = str
) -> tuple[list[str], list[list[str]]] | None:
    """Return titles and cells of a file whose first column is its key, and whose others are numbers or `texts`."""
    if not path.exists():
        return None
    numbers = [name for name in columns[1:] if name not in texts]
    table = read_table(path, columns[0], numbers=numbers, texts=texts)
    return cells(_titled(table, columns).rename(columns=name))


def cells(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return titles and cells as the page shows them."""
    shown = table.astype(object)
    return list(shown), [[_cell(*one) for one in row.items()] for _, row in shown.iterrows()]


def _cell(title: str, value: Any) -> str:
    """Return a figure as people read it: rates in percent, counts whole, all else with two digits."""
    if pd.isna(value) or value in (np.inf, -np.inf):
        return ""
    if title in ("win rate", "ffr", "in untraded bars"):
        return f"{100 * value:.1f} %"
    return f"{value:z.2f}" if isinstance(value, float) else str(value)
