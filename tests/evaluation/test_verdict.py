"""The verdict from hand-made figures: what decides, what contradicts, and what is said."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlwb.evaluation.verdict import Evidence, Reason, judge

#: A run in which everything agrees: ten checkpoints between 4 and 6 bp, validation and last checkpoint alike.
AGREED: dict[str, Any] = {
    "checkpoints": tuple(np.linspace(4.0, 6.0, 10)),
    "distinct": 10,
    "last": 4.5,
    "validation": 5.5,
    "shrinkage": 0.4,
    "candidates": 40,
    "standard_error": 1.0,
    "orders": 1920,
    "days": 48,
}
FOUND = Evidence(5.0, 3.0, 7.0, **AGREED)


def mirrored(one: Evidence) -> Evidence:
    """Return the evidence of a run that does as much worse as this one does better."""
    return replace(
        one,
        effect=-one.effect,
        lo=-one.hi,
        hi=-one.lo,
        checkpoints=tuple(-gain for gain in one.checkpoints),
        last=-one.last,
        validation=-one.validation,
    )


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        ((5.0, 3.0, 7.0), "found"),
        ((-5.0, -7.0, -3.0), "worse"),
        ((5.0, -1.0, 7.0), "none"),
        ((-5.0, -7.0, 0.0), "none"),
        ((5.0, math.nan, math.nan), "cannot be told"),
    ],
)
def test_without_other_figures_the_interval_decides(ends: tuple[float, float, float], outcome: str) -> None:
    assert judge(Evidence(*ends)).outcome == outcome


@pytest.mark.parametrize("effect", [0.0, 1e-13, -1e-13, 0.004, -0.004])
def test_what_is_written_as_zero_is_none(effect: float) -> None:
    """A schedule that looks at no price has a PA of 0 up to rounding, with an interval as narrow."""
    for half in (0.1, 0.999, math.nan):
        found = judge(Evidence(effect, effect - half * abs(effect), effect + half * abs(effect)))
        assert found.outcome == "none"
        assert found.answer.startswith("No")
        assert "worse" not in found.answer
        assert "0.00 bp" in found.text


def test_where_all_agrees_the_gain_is_found_and_the_loss_is_one() -> None:
    assert judge(FOUND).outcome == "found"
    assert judge(mirrored(FOUND)).outcome == "worse"
    assert not any(one.is_against for one in judge(FOUND).reasons)


@pytest.mark.parametrize(
    ("topic", "changes"),
    [
        ("validation", {"validation": -1.25}),
        ("checkpoints", {"checkpoints": (9.0, 11.0, -0.1)}),
        ("checkpoints", {"checkpoints": (0.1, 0.1, 14.0)}),  # a standard deviation of 8.0 bp
        ("last", {"last": 0.0}),
        ("last", {"last": -2.0}),
    ],
)
def test_what_contradicts_turns_a_gain_and_a_loss_into_nothing_shown(topic: str, changes: dict[str, Any]) -> None:
    for one in (replace(FOUND, **changes), mirrored(replace(FOUND, **changes))):
        found = judge(one)
        assert found.outcome == "none"
        assert [reason.topic for reason in found.reasons if reason.is_against] == [topic]
        assert found.reasons[1].topic == topic, "it stands right behind the effect"
        assert "contradicted" in found.answer


def test_what_choosing_the_best_explains_is_no_gain_of_the_validation() -> None:
    assert judge(replace(FOUND, validation=0.41)).outcome == "found"
    assert judge(replace(FOUND, validation=0.39)).outcome == "none"
    assert judge(mirrored(replace(FOUND, validation=-0.39))).outcome == "worse"
    assert judge(mirrored(replace(FOUND, validation=-0.41))).outcome == "none"


def test_a_failed_audit_turns_a_gain_into_nothing_shown_and_a_reality_check_is_told() -> None:
    failed = judge(replace(FOUND, checks=7, failed=("normaliser on all days",)))
    assert (failed.outcome, failed.reasons[1].topic) == ("none", "leaks")
    assert "normaliser on all days" in failed.text
    assert judge(replace(FOUND, checks=7)).outcome == "found"
    assert "No leak audit was made" in judge(replace(FOUND, checks=0)).text
    assert "audit" not in judge(FOUND).text
    checked = judge(replace(FOUND, reality_check=0.25))
    assert checked.outcome == "found", "the test days choose nothing"
    assert "would gain as much in 25.0 % of cases" in checked.text


def test_a_noise_twin_that_gains_too_takes_a_gain_back() -> None:
    found = judge(replace(FOUND, twin=("found", 4.0, 1.0, 7.0)))
    assert (found.outcome, found.reasons[1].topic) == ("none", "twin")
    assert "gains 4.00 bp, with a 95 % interval of [1.00, 7.00] bp; it finds a gain where there is none" in found.text
    assert judge(replace(FOUND, twin=("none", -0.5, -2.0, 1.0))).outcome == "found"
    assert judge(mirrored(replace(FOUND, twin=("found", 4.0, 1.0, 7.0)))).outcome == "worse"


def test_looks_at_the_test_days_are_paid_for() -> None:
    one = replace(FOUND, looks="This is look 9.", paid=(-0.1, 10.0))
    for found in (judge(one), judge(replace(mirrored(one), paid=(-10.0, 0.1)))):
        assert (found.outcome, found.reasons[1]) == ("none", Reason("looks", "This is look 9.", True))
    assert judge(replace(one, paid=(0.1, 10.0))).outcome == "found"


def test_a_schedule_that_looks_at_nothing_is_neither_better_nor_worse() -> None:
    for one in (FOUND, mirrored(FOUND)):
        found = judge(replace(one, is_blind=True))
        assert found.outcome == "none"
        assert "schedule that looks at nothing" in found.answer


def test_the_best_rule_and_the_number_that_differ_are_told_and_decide_nothing() -> None:
    found = judge(replace(FOUND, rule="The sentence.", beats_rule=False, distinct=1))
    assert found.outcome == "found"
    assert found.answer == "Yes, on these test days, but it is not shown to beat the best simple rule"
    assert "The sentence." in found.text
    assert "only 1 of them differs" in found.text


@given(
    effect=st.floats(-20, 20),
    half=st.floats(0, 20),
    each=st.lists(st.floats(-30, 30), max_size=10),
    last=st.floats(-30, 30),
    validation=st.floats(-30, 30),
)
def test_other_figures_never_make_more_of_the_interval_than_it_says(
    effect: float, half: float, each: list[float], last: float, validation: float
) -> None:
    found = judge(
        Evidence(effect, effect - half, effect + half, checkpoints=tuple(each), last=last, validation=validation)
    )
    alone = judge(Evidence(effect, effect - half, effect + half))
    assert found.outcome in (alone.outcome, "none")
    assert (found.outcome == alone.outcome) == (
        alone.outcome == "none" or not any(reason.is_against for reason in found.reasons)
    )
    assert found.reasons[0] == alone.reasons[0]
    assert "-0.00" not in found.text


def test_the_opening_says_each_figure() -> None:
    found = judge(replace(FOUND, attained=0.98, ceiling=89.0, costs="Costs are off.", checks=7))
    assert found.opening.startswith(
        "Does the policy beat TWAP? Yes, on these test days. The chosen checkpoints gain 5.00 bp "
    )
    for told in (
        "95 % interval of [3.00, 7.00] bp (1,920 orders on 48 days)",
        "Of the 10 chosen checkpoints 10 gain (4.00 to 6.00 bp)",
        "the training, which nothing chose, gains 4.50 bp",
        "On the validation days they gained 5.50 bp, of which choosing the best of 40 checkpoints is worth 0.40 bp",
        "sees a difference of 2.85 bp or more",
        "98 % of what is attainable",
        "one seed",
        "audit passed its 7 checks",
        "Costs are off.",
    ):
        assert told in found.text
    first, run, beyond = found.paragraphs
    assert "interval" in first
    assert "four of five" in first
    assert "validation days" in run
    assert "one seed" in beyond
    assert "89.00" in judge(replace(FOUND, ceiling=89.0)).text


def test_an_objective_is_what_the_effect_is_of_and_the_mean_stands_beside_it() -> None:
    text = judge(Evidence(-3.0, -5.0, -1.0, objective="cvar (share 0.1)", mean=(4.0, 3.0, 5.0), is_net=True)).text
    assert "By the objective cvar (share 0.1) the chosen checkpoints' orders are worth 3.00 bp less than TWAP's" in text
    assert "gain 4.00 bp an order over TWAP after costs on average, with a 95 % interval of [3.00, 5.00] bp" in text


def test_a_verdict_in_plain_values_has_every_reason() -> None:
    found = judge(FOUND)
    told = found.as_dict()
    assert (told["outcome"], told["mark"]) == ("found", "TWAP")
    assert [Reason(**one) for one in told["reasons"]] == list(found.reasons)
