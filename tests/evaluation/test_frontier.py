"""The frontier of mean and deviation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text

from rlwb.evaluation import PolicyResult, headline_groups
from rlwb.evaluation.frontier import (
    against_arrival,
    below_frontier,
    frontier_mean,
    frontier_table,
    hypervolume,
    non_dominated,
    risk_verdict,
)
from rlwb.evaluation.plots import frontier
from tests.evaluation.tables import baseline, ceiling, checkpoint

#: Points by hand: mean and deviation. The third is dominated by the second, the fifth lies below a line.
MEAN = [0.0, 2.0, 1.0, 6.0, 3.0, math.nan]
DEVIATION = [1.0, 2.0, 2.5, 6.0, 4.0, 1.0]

POINTS = st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 9)), min_size=1, max_size=8)


def test_points_by_hand() -> None:
    assert non_dominated(MEAN, DEVIATION).tolist() == [True, True, False, True, True, False]
    assert non_dominated([1.0, 1.0], [2.0, 2.0]).tolist() == [True, True], "equal points"
    # Strips of the corner (-1, 8): 1 x 7, 2 x 6, 1 x 4, 3 x 2.
    assert hypervolume(MEAN, DEVIATION, (-1.0, 8.0)) == 7 + 12 + 4 + 6
    assert hypervolume(MEAN, DEVIATION, (7.0, 8.0)) == 0
    assert hypervolume(MEAN, DEVIATION, (-1.0, 1.0)) == 0
    found = frontier_mean([0.5, 1.0, 1.5, 4.0, 6.0, 9.0], MEAN, DEVIATION)
    np.testing.assert_allclose(found, [math.nan, 0.0, 1.0, 4.0, 6.0, 6.0])
    found = below_frontier([*MEAN, 5.0, -1.0], [*DEVIATION, 0.5, math.nan], MEAN, DEVIATION)
    np.testing.assert_allclose(found, [0.0, 0.0, 1.5, 0.0, 1.0, math.nan, 0.0, math.nan])
    assert np.isnan(frontier_mean([1.0], [math.nan], [1.0])).all()


@given(POINTS)
def test_what_a_frontier_is(points: list[tuple[int, int]]) -> None:
    mean, deviation = (np.array(one, dtype=float) for one in zip(*points, strict=True))
    for at, kept in enumerate(non_dominated(mean, deviation)):
        others = [one for one in points if one != points[at]]
        assert kept == (not any(m >= mean[at] and d <= deviation[at] for m, d in others))
    below = below_frontier(mean, deviation, mean, deviation)
    assert (below >= 0).all()
    assert below[np.argmax(mean - 1e-3 * deviation)] == 0, "the most mean, at the least deviation that gives it"
    # Unit squares within the corner that some point dominates.
    cells = sum(
        any(m > low and d <= left for m, d in points) for low in range(-10, 9) for left in range(10)
    )  # [low, low + 1] by [left, left + 1]
    assert hypervolume(mean, deviation, (-10.0, 10.0)) == pytest.approx(cells)


DAYS, ORDERS = 10, 40
#: PAs of an even schedule against arrival in basis points: every day has the mean 0, and its own scatter.
EVEN = np.repeat([-100.0, -20.0, 20.0, 100.0], DAYS) * np.tile([0.5, 1.5, 0.6, 1.4, 0.7, 1.3, 0.8, 1.2, 0.9, 1.1], 4)
BOOTSTRAP = {"resamples": 200, "seed": 1}


def results(learnt: np.ndarray, **schedules: np.ndarray) -> list[PolicyResult]:
    """Return a checkpoint, TWAP and other baselines by their net PA against arrival, which lies 25 % above the TWAP."""

    def columns(net: np.ndarray) -> dict[str, object]:
        # 5 bp of the benchmark, a fifth less than the arrival price, are 4 bp of that.
        return {"arrival": 12.5, "pa_arrival": net + 4.0, "pa_net": -5.0, "days": DAYS}

    nothing = np.zeros(ORDERS)
    found = [checkpoint(nothing, **columns(learnt)), baseline(nothing, **columns(EVEN))]
    return [*found, *(baseline(nothing, name, **columns(pa)) for name, pa in schedules.items())]


def test_a_result_against_arrival_is_after_costs() -> None:
    for one in results(EVEN + 3.0):
        np.testing.assert_allclose(against_arrival(one).pa, EVEN + (3.0 if one.kind == "checkpoint" else 0.0))
    bound = ceiling(np.zeros(4), arrival=12.5, pa_arrival=7.0, pa_net=math.nan)
    np.testing.assert_allclose(against_arrival(bound).pa, 7.0)
    free = baseline(np.zeros(4), arrival=12.5, pa_arrival=7.0)
    np.testing.assert_allclose(against_arrival(free).pa, 7.0)


def test_the_table_of_a_frontier() -> None:
    wide = 2.0 * EVEN + 8.0
    groups = headline_groups([*results(wide, half=EVEN / 2), ceiling(np.zeros(ORDERS), arrival=12.5, pa_arrival=500.0)])
    table = frontier_table(groups, **BOOTSTRAP).set_index("policy")
    own, scatter, worst = table.loc["checkpoints"], EVEN.std(ddof=1), np.sort(EVEN)[:2].mean()
    assert own["arrival_mean"] == pytest.approx(8.0)
    assert own["arrival_mean_over_twap"] == pytest.approx(8.0)
    assert own["arrival_std"] == pytest.approx(2 * scatter)
    assert own["arrival_std_over_twap"] == pytest.approx(scatter)
    assert own["arrival_cvar"] == pytest.approx(2 * worst + 8), "the worst two of 40"
    assert own["arrival_cvar_over_twap"] == pytest.approx(worst + 8)
    assert 0 < own["arrival_std_over_twap_lo"] < scatter < own["arrival_std_over_twap_hi"]
    # From 0 at half of the scatter to 8 at twice of it; TWAP lies a third of the way.
    assert table["below_frontier"].tolist()[:3] == pytest.approx([0.0, 8 / 3, 0.0])
    assert math.isnan(table.loc["hindsight", "below_frontier"])
    figure = frontier(table.reset_index())
    assert isinstance(figure, Figure)
    told = [text.get_text() for text in figure.findobj(Text)]
    assert any("before costs: 500.00 bp at 0.00 bp" in text for text in told), "the others are after costs"


@pytest.mark.parametrize(
    ("learnt", "risk", "told"),
    [
        (2.0 * EVEN + 8.0, "more", True),
        (2.0 * EVEN, "more", False),
        (0.5 * EVEN + 8.0, "less", False),
        (EVEN + 8.0, "unclear", False),
    ],
)
def test_a_gain_at_more_risk_is_told_apart(learnt: np.ndarray, risk: str, told: bool) -> None:
    found = risk_verdict(frontier_table(headline_groups(results(learnt)), **BOOTSTRAP))
    assert found is not None
    assert found.risk == risk
    spread, tail, *rest = found.sentences
    assert f"{learnt.std(ddof=1):.2f} bp, TWAP's {EVEN.std(ddof=1):.2f} bp" in spread
    assert f"{np.sort(learnt)[:2].mean():.2f} bp, TWAP's {np.sort(EVEN)[:2].mean():.2f} bp" in tail
    price = f"a gain of {8.0 / EVEN.std(ddof=1):.2f} bp"
    assert [price in rest[0], "No baseline" in rest[1]] == [True, True] if told else not rest


def test_a_baseline_that_gains_as_much_for_no_more_risk_is_named() -> None:
    table = frontier_table(headline_groups(results(2.0 * EVEN + 8.0, vwap=EVEN + 9.0, pov=EVEN + 7.0)), **BOOTSTRAP)
    found = risk_verdict(table)
    assert found is not None
    assert found.sentences[-1].startswith("VWAP has as much mean for no more: 9.00 bp")


def test_without_twap_or_days_nothing_is_said_of_risk() -> None:
    learnt = checkpoint(EVEN, arrival=12.5, pa_arrival=EVEN, days=DAYS)
    assert risk_verdict(frontier_table({"checkpoints": [learnt]}, **BOOTSTRAP)) is None
    short = [one(EVEN, arrival=12.5, pa_arrival=EVEN, days=2) for one in (checkpoint, baseline)]
    assert risk_verdict(frontier_table(headline_groups(short), **BOOTSTRAP)) is None


def test_the_objective_is_compared_order_by_order() -> None:
    both = [one.orders.assign(objective=value) for one, value in zip(results(EVEN), (5.0, 2.0), strict=True)]
    learnt, even = (
        PolicyResult(name, kind, orders)
        for name, kind, orders in zip(("checkpoint-0001", "twap"), ("checkpoint", "baseline"), both, strict=True)
    )
    row = frontier_table(headline_groups([learnt, even]), **BOOTSTRAP).iloc[0]
    assert row["objective_over_twap"] == row["objective_over_twap_lo"] == pytest.approx(3.0)
