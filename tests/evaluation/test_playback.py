"""Orders executed again: by hand, what was expected beside what came, and the state of an explorer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlwb.errors import OrderError
from rlwb.evaluation.playback import OrderView, Playback, play_order
from rlwb.evaluation.playback_plots import OrderFigure
from rlwb.execution import TWAP, AmountActionInterpreter, Engine, KnownStateInterpreter, OrderExecution, PAPenaltyReward
from rlwb.learner import Expectation
from tests.execution.markets import order, sessions_of

PRICES = [[10.0, 10.0, 8.0, 12.0, 20.0, 20.0]] * 2
KNOWN = KnownStateInterpreter(), AmountActionInterpreter()


class WaitsThenHalves:
    """Waits, trades half in the second step and the rest in the third; it expects 7 bp, then 9, then 11."""

    def act(self, obs: Any, noise: Any = None) -> np.ndarray:
        return np.where(obs.step == 0, 0.0, np.where(obs.step == 1, 0.5 * obs.amount, obs.position))

    def expectation(self, obs: Any) -> Expectation:
        return Expectation(7.0 + 2.0 * obs.step, np.full(len(obs), 8.0), np.array([[0.25, 0.75]]))


def playback(**more: Any) -> Playback:
    simulator = OrderExecution(Engine(sessions_of(PRICES), 2))
    orders = simulator.align([order(100.0, day=1), order(60.0, "SELL", day=1), order(40.0, day=2)])
    policies = {"halves": (WaitsThenHalves(), *KNOWN), "twap": (TWAP(simulator.engine), *KNOWN)}
    return Playback(simulator, orders, policies, PAPenaltyReward(penalty=100.0), **more)


def buy_and_sell() -> tuple[Any, Any]:
    book = playback()
    ids = book.orders("AAA", "2024-01-01")
    return book.play(ids[0], "halves"), book.play(ids[1], "halves")


def test_an_order_by_hand() -> None:
    """Steps cost 10, 10 and 20 on average, the window 80 / 6; half is bought at 10 and half at 20, so at 15."""
    bought, sold = buy_and_sell()
    found = bought.decisions
    np.testing.assert_allclose(found["held"], [1.0, 1.0, 0.5])
    np.testing.assert_allclose(found["asked"], [0.0, 0.5, 0.5])
    np.testing.assert_allclose(found["filled"], [0.0, 0.5, 0.5])
    np.testing.assert_allclose(found["came"], [5000.0, 10000.0, np.nan], err_msg="15 after 10, then 20 after 10")
    np.testing.assert_allclose(found["pa"], [0.0, 1250.0, -1250.0])
    assert bought.pa == pytest.approx(-1250.0), "the last of what is earned is the order's PA"
    np.testing.assert_allclose(
        found["waiting"], [7.0, 9.0, np.nan], err_msg="after the last step nothing is left to wait for"
    )
    assert found["time"].tolist() == ["09:30", "09:32", "09:34"]
    assert found["until"].tolist() == ["09:32", "09:34", "09:36"]
    np.testing.assert_allclose(sold.decisions["came"], -found["came"])
    np.testing.assert_allclose(sold.decisions["pa"], -found["pa"])


def test_the_parts_of_the_reward_add_up_to_the_order_s_row() -> None:
    bought, _ = buy_and_sell()
    table = bought.table()
    parts = [name for name in table if name.startswith("reward ")]
    assert len(parts) == 2
    np.testing.assert_allclose(table[parts].sum(axis=1), table["reward"])
    assert table["reward"].sum() == pytest.approx(bought.summary["reward"].iloc[0])
    assert bought.table(1)["filled"].tolist() == [25.0, 25.0]


def test_why_names_what_was_done_expected_and_what_came() -> None:
    bought, _ = buy_and_sell()
    waited, traded, after = bought.why(0), bought.why(1), bought.why(3)
    assert "waits" in waited
    assert "trades 50 %" in traded
    assert "cost 7.0 bp" in waited
    assert "more than 8.0 bp" in waited
    assert "75 %" in waited
    assert "cost 5000.0 bp" in waited
    assert "done at 09:36" in after
    plain = playback().play(playback().orders("AAA", "2024-01-01")[0], "twap")
    assert "no expectation" in plain.why(0)


def test_the_state_follows_what_is_chosen() -> None:
    view = OrderView(playback())
    assert (view.instrument, view.day) == ("AAA", "2024-01-01")
    assert view.policies == ("halves", "twap")
    assert view.steps() == ["09:30", "09:32", "09:34"]
    view.move(9)
    assert view.step == 2
    view.choose_day("2024-01-02")
    assert view.reading().amount == 40.0
    assert view.step == 2, "the step stays"
    view.choose_policies(["twap"])
    assert view.read == "twap"
    view.choose_policies([])
    assert view.policies == ("twap",), "none leaves what there is"
    assert [view.step_at(place) for place in (-0.4, 1.4, 1.6, 5.4)] == [0, 0, 1, 2]
    view.choose_policies(["halves", "twap", "halves"])
    assert view.policies == ("halves", "twap"), "each once"
    assert view.read == "halves"
    assert view.first_wait() == 0
    assert len(view.why()) == 2
    view.choose_instrument("AAA")
    assert view.day == "2024-01-02", "the day stays where the instrument has orders"


def test_what_is_kept_of_orders_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlwb.evaluation.playback._KEPT", 2)
    book = playback()
    ids = book.orders("AAA", "2024-01-01") + book.orders("AAA", "2024-01-02")
    first = book.play(ids[0], "twap")
    assert book.play(ids[0], "twap") is first
    for one in ids[1:]:
        book.play(one, "twap")
    assert len(book._played) == 2
    assert book.play(ids[0], "twap") is not first


def test_what_cannot_be_played_is_named() -> None:
    book = playback()
    with pytest.raises(OrderError, match="'x'"):
        book.play("x", "twap")
    with pytest.raises(OrderError, match="OrderExecution"):
        Playback(object(), book._orders, {})
    with pytest.raises(OrderError, match="no orders"):
        Playback(book.simulator, book._orders[[]], {})


def test_a_step_is_marked_without_drawing_the_rest_again() -> None:
    bought, _ = buy_and_sell()
    plain = play_order(playback().simulator, playback()._orders[[0]], "twap", playback().policies["twap"], None)
    drawn = OrderFigure([bought, plain], step=0)
    artists = set(map(id, drawn.figure.findobj()))
    span = drawn.left[0].patches[0]
    assert (span.get_x(), span.get_width()) == (-0.5, 2.0)
    drawn.move(2)
    assert set(map(id, drawn.figure.findobj())) == artists
    assert (span.get_x(), span.get_width()) == (3.5, 2.0)
    texts = [one.get_text() for one in drawn.figure.findobj(match=lambda one: hasattr(one, "get_text"))]
    assert any("09:34" in one for one in texts)


def test_the_figure_of_an_order_says_in_words_what_was_expected_and_earned() -> None:
    bought, sold = buy_and_sell()
    alt = OrderFigure([bought], step=2, told=True).figure.alt
    assert alt.startswith("AAA on 2024-01-01: buy 100; PA: halves \N{MINUS SIGN}1250.0 bp; ")
    assert " ".join(bought.why(2).split()) in alt
    assert "reward: penalty" in alt, "the legend of every panel"
    for one in (bought, sold):
        last = one.ticks.groupby("step")["tick"].max().to_numpy() - one.start
        np.testing.assert_allclose(one.earned()[last], one.decisions["pa"], atol=1e-9)
