"""The verdict on a run: whether its policy beats TWAP, in plain English, and what in the run speaks against that."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from rlwb.evaluation.power import detectable
from rlwb.evaluation.results import standard_deviation

Outcome = Literal["found", "none", "worse", "cannot be told"]

#: An effect smaller than this, in basis points, is written as 0.00 and counts as none.
SHOWN_BP = 0.005

#: Topics of what else the run says of the effect.
_OF_THE_RUN = ("checkpoints", "last", "validation", "schedule", "selection", "looks", "twin")


@dataclass(frozen=True)
class Evidence:
    """The figures of one run that its verdict is made from; None or NaN where one cannot be computed.

    Attributes
    ----------
    effect, lo, hi, standard_error : bp
        The chosen checkpoints' gain over the mark, the ends of its interval, and its standard error over days.
    mark
        What is to be beaten.
    is_compared
        Whether the effect is a difference to another policy's figure, and not one by itself.
    is_net
        Whether the effect is after costs.
    objective
        The objective with its settings, where the effect is of that and not of the mean.
    mean : bp
        The gain in the mean and the ends of its interval, where the effect is of an objective.
    level
        Coverage of the interval.
    orders, days
        Orders and days of the test.
    checkpoints : bp
        The gain of each chosen checkpoint alone.
    distinct
        How many of them differ in what they do.
    last : bp
        The gain of the last checkpoint of the training.
    validation, shrinkage : bp
        The chosen checkpoints' gain over the mark on the validation orders, and how much of it the choice of the best
        among `candidates` explains by noise alone.
    is_blind
        Whether every chosen checkpoint trades by a schedule that looks at nothing, where neither costs nor an objective
        make one schedule better than another.
    risk
        ``"more"`` or ``"less"`` where the test tells the checkpoints' risk from TWAP's.
    rule, beats_rule
        A sentence on the best simple rule, and whether the learner is shown to beat it.
    attained : share
        Share of the attainable; `ceiling` is the PA, in basis points, of who knows the day's prices.
    reality_check
        p-value of the chosen checkpoint against TWAP among all that were tried.
    looks, paid : bp
        A sentence on how often the test days were looked at, and the ends of the interval with all looks counted.
    failed, checks
        Names of the failed checks of the leak audit, and how many there were; 0 where it was not made, and None where
        that is not asked.
    seeds
        Trainings that the figures are of.
    twin
        Outcome of the run's noise twin, on a market in which nothing can be learnt, with its effect and the ends of its
        interval in basis points; None where there is none.
    costs
        A sentence on costs, where the run has none.
    """

    effect: float
    lo: float = math.nan
    hi: float = math.nan
    standard_error: float = math.nan
    mark: str = "TWAP"
    is_compared: bool = True
    is_net: bool = False
    objective: str = ""
    mean: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    level: float = 0.95
    orders: int | None = None
    days: int | None = None
    checkpoints: tuple[float, ...] = ()
    distinct: int | None = None
    last: float = math.nan
    validation: float = math.nan
    shrinkage: float = math.nan
    candidates: int | None = None
    is_blind: bool = False
    risk: Literal["more", "less", "unclear"] = "unclear"
    rule: str = ""
    beats_rule: bool | None = None
    attained: float = math.nan
    ceiling: float = math.nan
    reality_check: float = math.nan
    looks: str = ""
    paid: tuple[float, float] = (math.nan, math.nan)
    failed: tuple[str, ...] = ()
    checks: int | None = None
    seeds: int = 1
    twin: tuple[Outcome, float, float, float] | None = None
    costs: str = ""


class Reason(NamedTuple):
    """One sentence of a verdict.

    Attributes
    ----------
    topic
        What it is on: ``effect``, ``power``, ``checkpoints``, ``last``, ``validation``, ``schedule``, ``selection``,
        ``looks``, ``leaks``, ``twin``, ``rule``, ``attainable``, ``seeds`` or ``costs``.
    sentence
        Figure, unit and meaning.
    is_against
        Whether it contradicts what the test days show, so that they alone do not decide.
    """

    topic: str
    sentence: str
    is_against: bool = False


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run's test, with the sentences that give the reasons.

    Attributes
    ----------
    outcome
        ``"found"``: better than the mark; ``"worse"``; ``"none"``: neither is shown; ``"cannot be told"``: there are
        too few days for an interval.
    answer
        The same for people, without a full stop.
    reasons
        The sentences that follow: the effect, what contradicts it, its power, and the rest.
    mark
        What was to be beaten.
    ends : bp
        The effect, and the ends of its interval.
    """

    outcome: Outcome
    answer: str
    reasons: tuple[Reason, ...]
    mark: str = "TWAP"
    ends: tuple[float, float, float] = (math.nan, math.nan, math.nan)

    @property
    def paragraphs(self) -> list[str]:
        """The sentences after the answer: on the effect, on what else the run says, and on how far it reaches."""
        parts: dict[int, list[str]] = {}
        for one in self.reasons:
            parts.setdefault(_place(one)[0], []).append(one.sentence)
        return [" ".join(sentences) for _, sentences in sorted(parts.items())]

    @property
    def text(self) -> str:
        """The sentences after the answer."""
        return " ".join(self.paragraphs)

    @property
    def opening(self) -> str:
        """Question, answer and sentences, as they stand before a table."""
        return f"Does the policy beat {self.mark}? {self.answer}. {self.text}"

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict in plain values, for a file; None where there is no number."""
        effect, lo, hi = (None if math.isnan(one) else one for one in self.ends)
        told = {"outcome": self.outcome, "mark": self.mark, "answer": self.answer, "effect": effect, "lo": lo, "hi": hi}
        return {**told, "reasons": [one._asdict() for one in self.reasons]}


def judge(found: Evidence) -> Verdict:
    """Return the verdict on a run.

    The interval of the effect decides: above 0 is ``"found"``, below ``"worse"``, else ``"none"``; an effect that is
    written as 0.00 is none. What contradicts it in the same run turns ``"found"`` and ``"worse"`` into ``"none"``: a
    chosen checkpoint on the other side of the mark, or a standard deviation over them above the effect; the last
    checkpoint of the training on the other side; a validation that, less what the choice explains by itself, is on the
    other side; an interval with all looks at the test days
    counted that holds 0; a failed leak audit; and a noise twin that finds a gain, too. A
    schedule that looks at nothing is ``"none"``. That the best simple rule is not beaten is said and changes nothing,
    because the question is whether the mark is beaten; nor does the reality check, because the test chooses nothing.
    """
    sign = 1.0 if found.effect >= 0 else -1.0
    is_nothing = abs(found.effect) < SHOWN_BP
    shown: Outcome
    if math.isnan(found.lo) and not is_nothing:
        shown = "cannot be told"
    else:
        shown = "none" if is_nothing or found.lo <= 0 <= found.hi else "found" if sign > 0 else "worse"
    reasons = list(_reasons(found, sign, is_shown=shown in ("found", "worse")))
    is_doubted = any(one.is_against for one in reasons)
    ordered = tuple(sorted(reasons, key=_place))
    outcome: Outcome = "none" if shown in ("found", "worse") and (is_doubted or found.is_blind) else shown
    return Verdict(
        outcome, _answer(found, shown, outcome, is_nothing), ordered, found.mark, (found.effect, found.lo, found.hi)
    )


def _place(one: Reason) -> tuple[int, int]:
    """Return the paragraph of a reason and its place there: the effect, what contradicts it and power come first."""
    if one.topic == "effect":
        return 0, 0
    if one.is_against:
        return 0, 1
    if one.topic == "power":
        return 0, 2
    return (1, 0) if one.topic in _OF_THE_RUN else (2, 0)


def _answer(found: Evidence, shown: Outcome, outcome: Outcome, is_nothing: bool) -> str:
    if is_nothing:
        return f"No: there is no difference to {found.mark}"
    if outcome == "cannot be told":
        return "So few days of orders cannot show it"
    if outcome != shown:
        what = "gain" if shown == "found" else "loss"
        if found.is_blind:
            return f"This test does not show it: the {what} is that of a schedule that looks at nothing"
        return f"This test does not show it: the {what} of the test days is contradicted by the rest of the run"
    at = {"more": ", at more risk", "less": ", at less risk", "unclear": ""}[found.risk]
    beyond = {
        "found": f"Yes{at}, on these test days",
        "worse": "No: it is worse, on these test days",
        "none": "This test does not show it",
    }[outcome]
    if found.beats_rule is False and outcome != "worse":
        so = "but it is not shown to beat" if outcome == "found" else "nor that it beats"
        beyond += f", {so} the best simple rule"
    return beyond


def _reasons(found: Evidence, sign: float, *, is_shown: bool) -> Iterator[Reason]:
    """Yield the sentences of a verdict; one is against where the effect is shown and it speaks against that."""
    yield Reason("effect", _effect(found))
    if found.is_blind:
        yield Reason(
            "schedule",
            "The chosen checkpoints trade by a schedule that looks at nothing; what that gains or loses is the drift "
            "of these days alone.",
            is_shown,
        )
    yield from _agreement(found, sign, is_shown)
    yield from _selection(found, sign, is_shown)
    if found.looks:
        lo, hi = found.paid
        yield Reason("looks", found.looks, is_shown and lo <= 0 <= hi)
    if found.twin is not None:
        outcome, *ends = found.twin
        told = "The same training on the same market without anything to learn (noise twin) "
        told += f"{_moved(ends[0], 'gains', 'loses')}{_span(found, *ends[1:])}"
        says = "; it finds a gain where there is none." if outcome == "found" else "."
        yield Reason("twin", f"{told}{says}", is_shown and sign > 0 and outcome == "found")
    # What lies beyond half the interval is seen, which is wider than by its error where days follow one another.
    days = found.days or 0
    seen = (found.hi - found.lo) / 2 + detectable(found.standard_error, days, level=0.0)
    if seen > 0:
        yield Reason(
            "power",
            f"A test of this size sees a difference of {seen:.2f} bp or more in at least four of five cases"
            + ("." if abs(found.effect) >= seen or is_shown else ", and misses smaller ones more often."),
        )
    if found.rule:
        yield Reason("rule", found.rule)
    if not math.isnan(found.attained):
        yield Reason("attainable", f"They have {100 * found.attained:.0f} % of what is attainable in this market.")
    elif not math.isnan(found.ceiling):
        yield Reason("attainable", f"Who knew all prices of the day ahead could gain {found.ceiling:.2f} bp.")
    if found.failed:
        yield Reason("leaks", f"The leak audit failed: {', '.join(found.failed)}.", is_shown)
    elif found.checks is not None:
        passed = f"The leak audit passed its {found.checks} checks."
        yield Reason("leaks", passed if found.checks else "No leak audit was made, which rlwb audit does.")
    if found.seeds == 1:
        yield Reason(
            "seeds", "This is one training (one seed): another may come out otherwise, which rlwb sweep measures."
        )
    else:
        yield Reason("seeds", f"The figures are means over {found.seeds} trainings that differ in their seed alone.")
    if found.costs:
        yield Reason("costs", found.costs)


def _effect(found: Evidence) -> str:
    """Return the effect and its interval, in a sentence; of an objective, in two."""
    told = _gain(found, (found.effect, found.lo, found.hi))
    if found.objective:
        than = f" {'more' if found.effect >= 0 else 'less'} than {found.mark}'s" if found.is_compared else ""
        worth = f"{abs(found.effect) if than else found.effect:z.2f} bp{than}{_span(found, found.lo, found.hi)}"
        told = f"By the objective {found.objective} the chosen checkpoints' orders are worth {worth}"
    size = f" ({found.orders:,} orders on {found.days} days)" if found.orders and found.days else ""
    mean = "" if math.isnan(found.mean[0]) else f" {_gain(found, found.mean)}."
    return f"{told}{size}.{mean}"


def _moved(value: float, up: str, down: str) -> str:
    """Return a figure in basis points after the verb of its sign; what is shown as 0.00 is no loss."""
    return f"{up if round(value, 2) >= 0 else down} {abs(value):.2f} bp"


def _gain(found: Evidence, ends: tuple[float, float, float]) -> str:
    to = "over" if ends[0] >= 0 else "to"
    over = f" {to} {found.mark}" if found.is_compared or found.mark != "TWAP" else ""
    gain = f"{'gain' if ends[0] >= 0 else 'lose'} {abs(ends[0]):.2f} bp an order{over}{' after costs' * found.is_net}"
    return f"The chosen checkpoints {gain} on average{_span(found, *ends[1:])}"


def _span(found: Evidence, lo: float, hi: float) -> str:
    return "" if math.isnan(lo) else f", with a {100 * found.level:g} % interval of [{lo:z.2f}, {hi:z.2f}] bp"


def _agreement(found: Evidence, sign: float, is_shown: bool) -> Iterator[Reason]:
    """Yield what the checkpoints say beside one another."""
    each = np.array([one for one in found.checkpoints if not math.isnan(one)])
    if len(each) > 1:
        gaining, other = int((each >= SHOWN_BP).sum()), int((sign * each <= -SHOWN_BP).sum())
        told = f"Of the {len(each)} chosen checkpoints {gaining or 'none'} gain{'s' * (gaining == 1)} "
        told += f"({each.min():z.2f} to {each.max():z.2f} bp)"
        if found.distinct is not None and found.distinct < len(each):
            told += f"; only {found.distinct} of them differ{'s' * (found.distinct == 1)} in what they do"
        is_apart = bool(standard_deviation(each) > abs(found.effect))
        if is_shown and is_apart:
            told += "; their standard deviation is larger than the effect"
        yield Reason("checkpoints", f"{told}.", is_shown and (other > 0 or is_apart))
    if not math.isnan(found.last):
        told = f"The last checkpoint of the training, which nothing chose, {_moved(found.last, 'gains', 'loses')}."
        yield Reason("last", told, is_shown and sign * found.last < SHOWN_BP)


def _selection(found: Evidence, sign: float, is_shown: bool) -> Iterator[Reason]:
    """Yield what validation and the count of all that was tried say."""
    if not math.isnan(found.validation):
        told = f"On the validation days they {_moved(found.validation, 'gained', 'lost')}"
        luck = 0.0 if math.isnan(found.shrinkage) else found.shrinkage
        if luck >= SHOWN_BP and found.candidates:
            of = "of which" if found.validation > 0 else "although"
            told += f", {of} choosing the best of {found.candidates} checkpoints is worth {luck:.2f} bp by luck alone"
        yield Reason("validation", f"{told}.", is_shown and sign * (found.validation - luck) < SHOWN_BP)
    if sign > 0 and not math.isnan(found.reality_check):
        often = f"{100 * found.reality_check:.1f} %" if found.reality_check >= 0.0005 else "less than 0.1 %"
        told = f"Were nothing that was tried better than {found.mark}, the best of it would gain as much in "
        told += f"{often} of cases."
        yield Reason("selection", told)
