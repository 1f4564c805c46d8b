"""The headline and the comparison: tables for people, as views of the table of results."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rlwb.errors import DataError
from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, how_drawn, too_few_days
from rlwb.evaluation.metrics import CHECKPOINTS, METRICS, RISK, metric_table, wide, wide_name
from rlwb.evaluation.page import render
from rlwb.evaluation.results import (
    PA_TITLES,
    ZERO_BP,
    ZERO_SHARE,
    Kind,
    PolicyResult,
    best_rule,
    is_validated,
    mean,
    of_kind,
    standard_deviation,
)
from rlwb.execution import ExecutionRules

_ABSENT = "-"

_ATTAINED = (
    "Of the attainable: the PA as a share of that of the filter optimum, which makes the best of past prices by the "
    "market's law. It reads no volumes, so that a policy that does can pass it."
)
_RISK_NOTE = (
    "Risk is that of single orders, after costs: std is the standard deviation of their PA, downside the root mean "
    "square of the losses, CVaR 95 % the mean of the worst 5 % of orders, worst day the mean of the worst day, which "
    "has no interval because it is an extreme, and mean/std the gain per unit of risk."
)


class RuleVerdict(NamedTuple):
    """The learner beside the best simple rule, paired order by order.

    Attributes
    ----------
    rule
        Name of the policy.
    beats
        Whether the interval of the difference lies above 0; None where there is no interval.
    sentence
        Rule, difference and interval, and how the rule was chosen.
    """

    rule: str
    beats: bool | None
    sentence: str


@dataclass(frozen=True, eq=False)
class Table:
    """A table of text cells with its notes, and the numbers it shows.

    Attributes
    ----------
    header, rows, notes
        The cells, of which the first column names the row, and sentences to print below.
    risk
        The rows of a second table below, of the same policies: its header, and the metrics of `RISK`.
    rule
        How the learner stands beside the best simple rule; None where there is none of the two.
    opening
        A paragraph that stands before all; none where it is empty.
    metrics, level
        The table of results that it shows (`rlwb.evaluation.metrics.metric_table`), and its intervals' coverage.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    metrics: pd.DataFrame
    level: float
    risk: tuple[tuple[str, ...], ...] = ()
    rule: RuleVerdict | None = None
    opening: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """One row a policy, a column a metric and end of its interval (`rlwb.evaluation.metrics.wide`)."""
        return wide(self.metrics)

    def to_markdown(self) -> str:
        """Return the table and its notes as Markdown."""
        lines = [_literal(self.opening), ""] if self.opening else []
        for header, *rows in self._parts():
            lines += [f"| {' | '.join(header)} |", "|" + "|".join([" --- "] + [" ---: "] * (len(header) - 1)) + "|"]
            lines += [*(f"| {' | '.join(map(_literal, row))} |" for row in rows), ""]
        return "\n".join([*lines, *(f"- {_literal(note)}" for note in self.notes)]) + "\n"

    def to_text(self) -> str:
        """Return the table and its notes in aligned columns for a terminal."""
        lines = [self.opening] if self.opening else []
        for part in self._parts():
            rows = [[" ".join(cell.split()) for cell in row] for row in part]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            cells = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
            header, *below = ("  ".join(row).rstrip() for row in cells)
            rule = "-" * len(header)
            lines += [*([""] if lines else []), header, rule, *below, rule]
        return "\n".join([*lines, *self.notes]) + "\n"

    def _parts(self) -> list[tuple[tuple[str, ...], ...]]:
        return [(self.header, *self.rows), *([self.risk] if self.risk else [])]


def _literal(text: str) -> str:
    """Return a text on one line as Markdown that shows each of its characters."""
    return re.sub(r"([\\`*_<>|$~])", r"\\\1", " ".join(text.split()))


def headline_groups(results: Sequence[PolicyResult]) -> dict[str, list[PolicyResult]]:
    """Return name to results of the headline's rows: the selected checkpoints together, and all others alone."""
    checkpoints = of_kind(results, "checkpoint")
    if not checkpoints:
        raise DataError("The headline needs the backtest of at least one checkpoint; none was given.")
    kinds: tuple[Kind, ...] = ("last", "policy", "baseline", "control", "attainable", "unattainable", "ceiling")
    return {CHECKPOINTS: checkpoints} | {one.policy: [one] for kind in kinds for one in of_kind(results, kind)}


def headline(
    results: Sequence[PolicyResult],
    *,
    requested: int = 10,
    candidates: int | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    rules: ExecutionRules | None = None,
) -> Table:
    """Return the headline: the selected checkpoints together, beside the last one, the baselines and the ceilings.

    Parameters
    ----------
    results
        At least one of kind ``"checkpoint"``; all on the same orders.
    requested
        How many checkpoints were asked for; the notes say so when there are fewer.
    candidates
        How many the checkpoints were selected from; None when that is not known.
    level, resamples, seed
        Settings of the bootstrap.
    rules
        The rules of execution, which name the benchmark of the PAs; by default the simple ones.
    """
    rules = rules or ExecutionRules()
    groups = headline_groups(results)
    checkpoints = groups[CHECKPOINTS]
    metrics = metric_table(groups, level=level, resamples=resamples, seed=seed)
    frame = wide(metrics)
    records = frame.to_dict("records")
    with_interval, plain = shown_metrics(frame)
    untraded = "untraded" in plain
    header = ("policy", "n", "PA mean ± std, bp", f"{100 * level:g} % interval, bp")
    rows = tuple(
        (
            *(row["title"], _count(row), _estimate(row, "pa", spread=True), _ends(row, "pa") or _ABSENT),
            *(_cell(row, name, spread=name == "pa_net") for name in with_interval),
            *(_estimate(row, name) for name in plain),
        )
        for row in records
    )
    dates, missing = checkpoints[0].dates, frame[frame["pa_missing"] > 0]
    best, own = best_rule(results), frame.loc[0, ["over_rule", "over_rule_lo", "over_rule_hi"]].tolist()
    rule = None if best is None or math.isnan(own[0]) else rule_verdict(best, tuple(own), level, results)
    blind = [one for one in results if abs(mean(one.pa)) <= ZERO_BP and standard_deviation(one.pa) > 1e-3]
    notes = render(
        "headline_notes.txt",
        best=records[0],
        rule=rule,
        span=f" from {dates.min()} to {dates.max()}" if len(dates) else "",
        requested=requested,
        candidates=candidates,
        level=f"{100 * level:g}",
        resamples=resamples,
        has_costs="pa_net" in with_interval,
        has_objective="objective" in with_interval,
        twap_is_off="over_twap" in with_interval,
        too_few_days=too_few_days(records[0]["days"], level),
        how_drawn=how_drawn(*(metrics[name].iloc[0] for name in ("days", "block_days", "autocorrelation"))),
        untraded=untraded,
        missing=[f"{row.title}: {row.pa_missing}" for row in missing.itertuples()],
        blind=blind,
        rules=rules,
        risk=risk_note(frame, rules),
        schedules=schedule_notes({one.display_name: one for one in results}),
        blind_checkpoints=len(of_kind(blind, "checkpoint")),
        attained=attained_note(_attainable_lows(frame)) if "attained" in with_interval else None,
        controls=[one.title for one in of_kind(results, "control")],
        unattainable=[one.title for one in of_kind(results, "unattainable")],
        ceilings=[one.policy for one in of_kind(results, "ceiling")],
    )
    shown = (METRICS[name].title for name in (*with_interval, *plain))
    titles = tuple(map(rules.name_pa, (*header, *shown)))
    risk = _risk_rows("policy", frame, rules)
    return Table(titles, rows, tuple(filter(None, notes.splitlines())), metrics, level, risk, rule)


def shown_metrics(frame: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the metrics that a headline shows beside the PA: those with their interval, and those without.

    `frame` has one row a policy (`rlwb.evaluation.metrics.wide`).
    """
    ends = ("objective", "over_twap", "pa_net", "net_over_twap", "attained")
    plain = ["pa_value_weighted", "win_rate", "glr", "ffr"]
    untraded = ["untraded"] if is_informative(frame, "untraded") else []
    return [name for name in ends if is_informative(frame, name)], [*plain, *untraded]


def rule_verdict(
    rule: PolicyResult,
    ends: tuple[float, float, float],
    level: float,
    results: Sequence[PolicyResult],
    resampled: str = "days",
    title: str | None = None,
) -> RuleVerdict:
    """Return how the learner stands beside the best simple rule.

    Parameters
    ----------
    rule
        The best simple rule.
    ends : bp
        The difference of the learner to it, and the ends of its interval, NaN where there is none.
    level
        Coverage of the interval.
    results
        Those that the rule was chosen among.
    resampled
        What there is too little of where there is no interval.
    title
        What the rule is called; its own name by default.
    """
    less, lo, hi = ends
    beats = None if math.isnan(lo) else bool(lo > 0)
    shown = "does worse than" if hi < 0 else "is not shown to beat"
    does = {True: "beats", False: shown, None: f"cannot, by so few {resampled}, be told from"}[beats]
    span = "" if beats is None else f", {100 * level:g} % interval [{lo:z.2f}, {hi:z.2f}] bp"
    is_net = (np.abs(rule.pa - rule.after_costs().pa) > ZERO_BP).any()
    by_order = f"{PA_TITLES['pa_net' if is_net else 'pa']} an order"
    figure = "the objective" if rule.judged_by == "objective" else by_order
    gain = f"{abs(less):.2f} bp of {figure} {'more' if less >= 0 else 'less'}"
    told = f"The learner {does} the best simple rule, {title or rule.display_name}: {gain} on the same orders{span}."
    return RuleVerdict(rule.policy, beats, told + _how_chosen(results))


def _how_chosen(results: Sequence[PolicyResult]) -> str:
    """Return how the best rule among results was chosen, as a sentence; nothing where there is no choice."""
    rules = of_kind(results, "baseline")
    if len(rules) < 2:
        return ""
    if is_validated(rules):
        return f" It is the best of {len(rules)} by validation."
    return f" It is the best of {len(rules)} on these orders themselves, which flatters it."


def comparison(
    results: Mapping[str, PolicyResult | Sequence[PolicyResult]],
    *,
    titles: Mapping[str, str] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
    notes: Sequence[str] = (),
    rules: ExecutionRules | None = None,
) -> Table:
    """Return methods, by name, side by side on the same orders, every metric with its interval.

    The form is that of Fang et al. (AAAI 2021, arXiv 2103.10860), who give reward, PA, gain-loss ratio and share of
    winning orders; intervals, fulfilment rate and the difference to TWAP on the same order are added. Of several
    results under one name the mean counts. `titles` are what people read in place of a name, `notes` sentences to add
    to those below the table, `rules` those of execution, which name the benchmark of the PAs; the other settings are
    those of the bootstrap.
    """
    groups = {name: [one] if isinstance(one, PolicyResult) else list(one) for name, one in results.items()}
    metrics = metric_table(groups, titles=titles, level=level, resamples=resamples, seed=seed)
    frame = wide(metrics)
    left_out = ("pa_value_weighted", *RISK)
    names = [name for name in METRICS if name not in left_out and is_informative(frame, name)]
    rows = tuple((row["title"], *(_cell(row, name) for name in names)) for row in frame.to_dict("records"))
    orders, days = frame["orders"].iloc[0], int(frame["days"].iloc[0])
    basis = f"{orders:,} orders on {days} days; {100 * level:g} % intervals by a bootstrap of whole days."
    few = too_few_days(days, level) or how_drawn(
        *(metrics[name].iloc[0] for name in ("days", "block_days", "autocorrelation"))
    )
    rules = rules or ExecutionRules()
    everyone = [one for members in groups.values() for one in members]
    best = best_rule(everyone)
    beside = []
    if best is not None and "over_rule" in names:
        beside.append(f"Over the best rule: less {best.display_name}, order by order.{_how_chosen(everyone)}")
    if "attained" in names:
        beside.append(attained_note(_attainable_lows(frame)))
    header = ("method", *(rules.name_pa(METRICS[name].title) for name in names))
    said = (
        basis,
        *beside,
        *([few] if few else []),
        *schedule_notes({title: one[0] for title, one in zip(frame["title"], groups.values(), strict=True)}),
        risk_note(frame, rules),
        *notes,
    )
    return Table(header, rows, said, metrics, level, _risk_rows("method", frame, rules))


def _risk_rows(first: str, frame: pd.DataFrame, rules: ExecutionRules) -> tuple[tuple[str, ...], ...]:
    """Return header and rows of the metrics of risk."""
    names = [name for name in RISK if name != "cvar_over_twap" and is_informative(frame, name)]
    header = (first, *(rules.name_pa(METRICS[name].title) for name in names))
    return (header, *((row["title"], *(_risk_cell(row, name) for name in names)) for row in frame.to_dict("records")))


def _attainable_lows(frame: pd.DataFrame) -> pd.Series:
    return frame.loc[frame["kind"] == "attainable", "pa_lo"][:1]


def attained_note(lows: pd.Series) -> str:
    """Say what the share of the attainable is, and that it says little where the attainable is not told from nothing.

    `lows` are the lower ends of the intervals of what is attainable, in basis points, one for each market; NaN where
    there is none.
    """
    doubt = (
        " Its own interval reaches down to 0 here, so that these orders do not tell what is attainable; shares of it "
        "say little, and their intervals are of the resamples alone in which it gains."
    )
    return _ATTAINED + (doubt if (lows <= 0).any() else "")


def risk_note(frame: pd.DataFrame, rules: ExecutionRules) -> str:
    """Return what the second table shows, in a sentence or two."""
    less = " std over TWAP is the policy's less that of TWAP: a gain with a higher one is bought with risk."
    if rules.benchmark != "arrival":
        less = (
            f" std over TWAP is the policy's less that of TWAP, both against {rules.benchmark_title}: how far it "
            "strays from it, not the risk between the decision and the fills, which is against arrival prices."
        )
    return _RISK_NOTE + (less if is_informative(frame, "std_over_twap") else "")


def _risk_cell(row: Mapping[Any, Any], name: str) -> str:
    return _estimate(row, name) if name.endswith("unfilled") else _cell(row, name)


def schedule_notes(results: Mapping[str, PolicyResult]) -> list[str]:
    """Return a sentence for each fixed schedule by which trained policies, named by their titles, trade every order."""
    same: dict[str, list[str]] = {}
    for title, one in results.items():
        left = one.fixed_schedule()
        if left is None or one.kind not in ("checkpoint", "last", "policy", "unattainable"):
            continue
        steps = int(np.argmax(left <= ZERO_SHARE)) or len(left) - 1
        traded = ", ".join(f"{100 * share:z.0f} %" for share in -np.diff(left[: steps + 1]))
        penalty = mean(one.values("reward/penalty"))
        paid = "" if math.isnan(penalty) else f"; the reward's penalty for that is {penalty:z.2f} an order"
        same.setdefault(f"whatever it sees, its steps trade {traded} of an order{paid}", []).append(title)
    return [f"A fixed schedule ({', '.join(titles)}): {what}." for what, titles in same.items()]


def is_informative(frame: pd.DataFrame, name: str) -> bool:
    """Tell whether a table (`wide`) shows a metric: it has a value, and where it is another PA, it differs from the PA.

    The metrics over TWAP differ only where TWAP is there with a PA of its own, so that 0 is not the mark to beat, or
    where there are costs, and that of the deviation where TWAP has one; that over the best rule where the rule has one.
    Ceilings are left out: they may have a PA on orders of which TWAP fills nothing. The share of fills in untraded
    bars, and what stays open, are shown where any policy has some.
    """
    if name in ("untraded", "unfilled", "pa_unfilled"):
        return bool((frame[name.removeprefix("pa_")] > 0).any())
    own = "std" if name == "std_over_twap" else "pa_mean"
    compared = {
        "over_twap": "over_twap",
        "pa_net": "pa_net",
        "net_over_twap": "pa_net",
        "over_rule": "over_rule",
        "std_over_twap": "std_over_twap",
    }
    policies = frame[frame["kind"] != "ceiling"]
    differs = name not in compared or ((policies[compared[name]] - policies[own]).abs() > ZERO_BP).any()
    return bool(differs and frame[wide_name(name)].notna().any())


def _count(row: Mapping[Any, Any]) -> str:
    """Return the number of policies in a row, and how many of them differ where not all do."""
    return f"{row['n']}" if row["distinct"] == row["n"] else f"{row['n']} ({row['distinct']} differ)"


def _cell(row: Mapping[Any, Any], name: str, *, spread: bool = False) -> str:
    return f"{_estimate(row, name, spread=spread)} {_ends(row, name)}".rstrip()


def _estimate(row: Mapping[Any, Any], name: str, *, spread: bool = False) -> str:
    """Return the estimate, with the standard deviation over checkpoints if asked for."""
    text = _number(row[wide_name(name)], name)
    return f"{text} ± {_number(row[f'{name}_std_checkpoints'])}" if spread and row["kind"] == "checkpoint" else text


def _ends(row: Mapping[Any, Any], name: str) -> str:
    """Return the interval; nothing where there is none."""
    ends = [_number(row.get(f"{name}_{end}", math.nan), name, unit="") for end in ("lo", "hi")]
    return "" if _ABSENT in ends else f"[{', '.join(ends)}]"


def _number(value: float, name: str = "", unit: str = " %") -> str:
    """Return a number as people read it: shares in percent, all else with two digits, no minus before a zero."""
    if math.isnan(value):
        return _ABSENT
    return f"{100 * value:.1f}{unit}" if name in METRICS and METRICS[name].is_share else f"{value:z.2f}"
