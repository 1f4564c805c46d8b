"""Cases, what is said of an answer, a student's set, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.course import answers_of, wrong_answers
from rlwb.cli import main
from rlwb.course import Case, Exercises, Lab, case, close, outcome, small_market
from rlwb.course import books as course_books
from rlwb.course.books import cells_of, source_of, start
from rlwb.course.exercises import course_notebooks, time_limit
from rlwb.course.grade import grade
from rlwb.errors import ConfigError, DataError
from rlwb.execution import (
    TWAP,
    CategoricalActionInterpreter,
    CurrentStepStateInterpreter,
    Direction,
    Engine,
    Order,
    OrderExecution,
    PAPenaltyReward,
)
from rlwb.policy import PPO


@pytest.mark.parametrize(
    ("got", "wanted", "told"),
    [
        (None, 1.0, "None"),
        ("one", 1.0, "'one'"),
        ([1.0], 1.0, "(1,)"),
        (1.0 + 1e-6, 1.0, "1"),
        (np.nan, 1.0, "nan"),
        (1.0, np.nan, "nan"),
        ([[1.0, 2.0], [3.0, 9.0]], [[1.0, 2.0], [3.0, 4.0]], "[1, 1]"),
    ],
)
def test_what_is_not_close_is_told(got: object, wanted: object, told: str) -> None:
    with pytest.raises(AssertionError) as caught:
        close(got, wanted, "the price")
    assert str(caught.value).startswith("the price ")
    assert told in str(caught.value)


def test_what_is_close_passes() -> None:
    close(1.0 + 1e-12, 1)
    close([1e6 + 1e-4], np.array([1e6]))
    close([np.nan, 2], [np.nan, 2.0])
    close(1.01, 1.0, tolerance=0.02)


@case("double")
def twice(answer: object) -> None:
    """Twice three is six.

    And more.
    """
    close(answer(3), 6)  # type: ignore[operator]


def unanswered(x: float) -> float:
    raise NotImplementedError("your answer")


def fails(x: float) -> float:
    raise KeyError(x)


def test_a_case_says_what_an_answer_does() -> None:
    assert isinstance(twice, Case)
    assert (twice.exercise, twice.title) == ("double", "Twice three is six.")
    assert outcome(twice, lambda x: 2 * x) is None
    assert outcome(twice, lambda x: x * x) == "the answer is 9; 6 is right"
    assert outcome(twice, unanswered) == "not answered yet"
    assert outcome(twice, fails) == "KeyError: 3"


def test_a_notebook_shows_points_and_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    exercises = Exercises("01_orders")

    def price_advantage(paid: float, twap: float, side: float) -> float:
        return (1 - paid / twap) * 1e4  # forgets the side

    exercises.check(price_advantage)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "price_advantage: 1 of 3 points"
    assert [line.split()[0] for line in lines[1:]] == ["right", "wrong", "the", "wrong", "the"]
    assert "100 is" in lines[3]
    assert "price_advantage (3 points)" in repr(exercises)

    def price_advantge(*_: object) -> None: ...

    with pytest.raises(ConfigError, match="price_advantage"):
        exercises.check(price_advantge)
    with pytest.raises(ConfigError, match="01_orders"):
        Exercises("01_order")


def test_a_time_limit_ends_what_hangs() -> None:
    with pytest.raises(TimeoutError), time_limit(0.05):
        next(one for one in itertools.count() if one < 0)
    with time_limit(60):
        pass


def test_wrong_answers_have_one_change_each() -> None:
    right = ["def f(x, t):\n    return x[:t].max() - 1\n", "def f(x, t):\n    return max(x[:t]) - 1\n"]
    wrong = {text.strip().splitlines()[-1].strip() for text, _ in wrong_answers(right)}
    assert wrong == {
        *("return x[:t].max() + 1", "return x[:t].max() - 2", "return x[:t].max() - 0"),
        *("return x[:t + 1].max() - 1", "return x[:t].min() - 1", "return x[:t] - 1"),
        *("return max(x[:t]) + 1", "return max(x[:t]) - 2", "return max(x[:t]) - 0"),
        *("return max(x[:t + 1]) - 1", "return min(x[:t]) - 1"),
    }


def test_a_student_s_set_has_stories_and_stubs_alone(tmp_path: Path) -> None:
    copies = start(tmp_path / "anna")
    assert sorted((tmp_path / "anna").iterdir()) == copies
    assert [path.stem for path in copies] == list(course_notebooks())
    for path in copies:
        book = json.loads(path.read_text(encoding="utf-8"))
        original = json.loads(course_notebooks()[path.stem].read_text(encoding="utf-8"))
        assert book == original
        assert not any(cell["outputs"] or cell["execution_count"] for cell in cells_of(book))
        text = "".join(map(source_of, book["cells"]))
        for answer in (one for several in answers_of(path.stem).values() for one in several):
            body = answer.partition("\n")[2].strip()
            assert body not in text


def test_a_set_is_not_copied_over_another(tmp_path: Path) -> None:
    (tmp_path / "01_orders.ipynb").write_text("mine")
    with pytest.raises(ConfigError, match="01_orders"):
        start(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["01_orders.ipynb"]


def test_a_lecturer_gets_the_answers_too(tmp_path: Path) -> None:
    start(tmp_path, answers=True)
    assert {path.stem for path in (tmp_path / "answers").iterdir()} == set(course_notebooks())


def test_outputs_are_not_handed_out_and_answers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = course_notebooks()["01_orders"]
    book = json.loads(path.read_text(encoding="utf-8"))
    first = cells_of(book)[0]
    first["outputs"], first["execution_count"] = [{"output_type": "stream", "name": "stdout", "text": "42"}], 1
    own = tmp_path / "01_orders.ipynb"
    own.write_text(json.dumps(book))
    monkeypatch.setattr(course_books, "course_notebooks", lambda: {"01_orders": own})
    (copy,) = start(tmp_path / "a")
    assert '"42"' not in copy.read_text()
    cells_of(book, "exercise")[0]["source"] = "def price_advantage(paid, twap, side):\n    return 0"
    own.write_text(json.dumps(book))
    with pytest.raises(ConfigError, match="exercise-1"):
        start(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_the_command_names_what_to_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["course", "start", str(tmp_path / "set")])
    assert not stop.value.code
    assert str(tmp_path / "set" / "01_orders.ipynb") in capsys.readouterr().out


def test_grading_without_otter_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlwb.packages.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"otter.*rlwb\[course\]"):
        list(grade(tmp_path))


def test_a_small_market_is_computed_by_hand() -> None:
    market = small_market([[10, 12], [11, 14]], [[100, 300], [50, 60]])
    assert market.fields["close"].tolist() == [[10, 12], [11, 14]]
    assert market.fields["open"].tolist() == [[10, 10], [11, 11]]
    assert market.fields["high"].tolist() == [[10, 12], [11, 14]]
    assert market.fields["low"].tolist() == [[10, 10], [11, 11]]
    simulator = OrderExecution(Engine(market, ticks_per_step=1))
    orders = [Order("TOY", "2024-01-03", Direction.SELL, 8.0)]  # type: ignore[arg-type]
    state = simulator.start(orders, np.zeros(1, dtype=np.uint64))
    state = simulator.step(simulator.step(state, np.array([2.0])), np.array([6.0]))
    figures = state.metrics()
    assert figures["price"][0] == pytest.approx((2 * 11 + 6 * 14) / 8)
    assert figures["vwap"][0] == pytest.approx((50 * 11 + 60 * 14) / 110)
    assert small_market([1.0] * 168).calendar.num_ticks == 168
    with pytest.raises(DataError):
        small_market(np.zeros((1, 1, 1)))
    with pytest.raises(DataError):
        small_market([1.0] * 169)


def test_a_lab_trains_on_earlier_days_and_judges_on_later_ones() -> None:
    lab = Lab(2, 20, seed=1)
    days = {name: orders.table["date"] for name, orders in lab.orders.items()}
    assert days["train"].max() < days["valid"].min() <= days["valid"].max() < days["test"].min()
    assert set(lab.market.dates[lab.learning]) == set(days["train"].to_numpy().astype("datetime64[D]"))
    twap = lab.judge("TWAP", TWAP(lab.desk.engine))
    assert len(twap.pa) == len(lab.orders["test"])
    assert np.abs(twap.pa).max() < 1e-6
    acts, sees = CategoricalActionInterpreter(4), CurrentStepStateInterpreter(lab.desk.engine.max_step)
    policy = PPO(lab.network(acts.shares, "mlp"), seed=1)
    history = lab.train(policy, sees, acts, PAPenaltyReward(), iterations=2, episodes=20)
    assert [row["iteration"] for row in history.validation] == [1, 2]
    learnt = lab.judge("learnt", policy, sees, acts)
    assert learnt.inventory is not None
    assert learnt.inventory[:, 0] == pytest.approx(1)
    assert learnt.inventory[:, -1] == pytest.approx(0)
