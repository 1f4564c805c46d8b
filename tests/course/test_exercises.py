"""Cases, what is said of an answer, a student's set, and what is refused."""

from __future__ import annotations

import itertools
import json
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.course import answers_of, wrong_answers
from rlwb.cli import main
from rlwb.course import Case, Exercises, Lab, case, close, outcome, small_market
from rlwb.course import books as course_books
from rlwb.course.books import cells_of, source_of, start
from rlwb.course.exercises import UNANSWERED, TimeLimitError, as_lines, course_notebooks, time_limit
from rlwb.course.grade import Grade, as_text, hand_ins, needed, write_table
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
    assert outcome(twice, unanswered) == UNANSWERED
    assert outcome(twice, fails) == "KeyError: 3"


class NoWordsError(Exception):
    def __str__(self) -> str:
        raise ValueError


def answer_that(does: Callable[[], object]) -> Callable[[float], object]:
    return lambda x: does()


def endless() -> object:
    while True:
        try:
            next(one for one in itertools.count() if one < 0)
        except Exception:
            continue


def deeper() -> object:
    return deeper()


def fail(error: BaseException) -> object:
    raise error


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (sys.exit, "SystemExit"),
        (endless, "longer than 0.1 seconds"),
        (deeper, "RecursionError"),
        (lambda: np.zeros(2**59), "Memory"),
        (lambda: fail(NoWordsError()), "NoWordsError"),
        (lambda: fail(ValueError("x" * 10**6)), "xxx..."),
        (lambda: fail(ValueError("two\nlines")), "two lines"),
        (lambda: "6", "'6'"),
        (lambda: 6 + 0j, "6"),
        (lambda: None, "None"),
        (lambda: object, "numbers"),
        (lambda: float("nan"), "nan"),
        (lambda: [6], "(1,)"),
    ],
)
def test_whatever_an_answer_does_is_one_short_sentence(does: Callable[[], object], told: str) -> None:
    said = outcome(twice, answer_that(does), seconds=0.1)
    assert said is not None
    assert told in said
    assert len(said) < 400
    assert "\n" not in said


def test_who_waits_may_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        outcome(twice, answer_that(lambda: fail(KeyboardInterrupt())))


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

    price_advantage = partial(lambda paid, twap, side: side * (1 - paid / twap) * 1e4)  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="price_advantage"):
        exercises.check(price_advantage)  # not the name of a cell

    def price_advantge(*_: object) -> None: ...

    with pytest.raises(ConfigError, match="price_advantage"):
        exercises.check(price_advantge)
    with pytest.raises(ConfigError, match="01_orders"):
        Exercises("01_order")


def test_an_answer_is_known_by_the_name_that_a_cell_gives_it(capsys: pytest.CaptureFixture[str]) -> None:
    cell = {"exercises": Exercises("01_orders")}
    exec("price_advantage = lambda paid, twap, side: side * (1 - paid / twap) * 1e4", cell)
    exec("exercises.check(price_advantage)", cell)
    assert capsys.readouterr().out.startswith("price_advantage: 3 of 3 points")


def test_an_exercise_without_an_answer_has_no_points_and_is_not_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    def price_advantage(paid: float, twap: float, side: float) -> float:
        raise NotImplementedError("your answer")

    Exercises("01_orders").check(price_advantage)
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("price_advantage: not answered yet")
    assert {line.split()[0] for line in others} == {"open"}
    assert len(others) == 3
    text = as_lines("Both", [("one", None), ("two", UNANSWERED), ("three", "it is 3")]).splitlines()
    assert text[0] == "Both: 1 of 3 points"
    assert [line.split()[0] for line in text[1:]] == ["right", "open", "wrong", "it"]


def test_what_an_answer_prints_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    def price_advantage(paid: float, twap: float, side: float) -> float:
        print("paid", paid)
        print("x" * 10**6)
        return 0.0

    Exercises("01_orders").check(price_advantage)
    out = capsys.readouterr().out
    assert out.startswith("paid 99.25")
    assert "price_advantage: 0 of 3 points" in out
    assert len(out) < 4000
    assert out.count("left out") == 1


def test_a_time_limit_ends_what_hangs() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TimeLimitError), time_limit(0.05):
        next(one for one in itertools.count() if one < 0)
    with time_limit(60):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_time_limit_lets_an_import_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_package.py").write_text("import time\ntime.sleep(0.2)\nfinished = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slow_package", raising=False)
    with pytest.raises(TimeLimitError), time_limit(0.05):
        next(one for one in itertools.count() if __import__("slow_package") and one < 0)
    assert sys.modules["slow_package"].finished


def test_a_time_limit_is_none_in_another_thread() -> None:
    def count() -> int:
        with time_limit(1e-3):
            return sum(range(10**6))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(count).result() == 499999500000


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
        hand_ins(tmp_path)


@pytest.fixture
def without_otter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlwb.packages.find_spec", lambda name: name)


def hand_in(path: Path, name: str = "01_orders", *, encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(course_notebooks()[name].read_text(encoding="utf-8"), encoding=encoding)


@pytest.mark.usefixtures("without_otter")
def test_what_was_handed_in_is_known_by_its_content(tmp_path: Path) -> None:
    hand_in(tmp_path / "anna" / "01_orders.ipynb")
    hand_in(tmp_path / "anna" / "01_orders-Copy1.ipynb")
    hand_in(tmp_path / "anna" / ".ipynb_checkpoints" / "01_orders-checkpoint.ipynb")
    hand_in(tmp_path / "ben" / "week 1" / "my homework (2).ipynb", encoding="utf-8-sig")
    hand_in(tmp_path / "ben" / "02.ipynb", "02_reinforcement_learning")
    (tmp_path / "carl").mkdir()
    (tmp_path / "carl" / "01_orders.ipynb").write_text("{")
    (tmp_path / "carl" / "other.ipynb").write_text(json.dumps({"cells": []}))
    (tmp_path / "dora").mkdir()
    (tmp_path / "dora" / "homework.py").write_text("")
    (tmp_path / "all.zip").write_text("")
    found = hand_ins(tmp_path)
    assert found.students == {
        "anna": {"01_orders": tmp_path / "anna" / "01_orders.ipynb"},
        "ben": {
            "01_orders": tmp_path / "ben" / "week 1" / "my homework (2).ipynb",
            "02_reinforcement_learning": tmp_path / "ben" / "02.ipynb",
        },
    }
    left_out = {"01_orders-Copy1.ipynb", "01_orders.ipynb", "other.ipynb", "dora", "all.zip"}
    assert {path.name for path in found.left_out} == left_out
    assert "not a notebook" in found.left_out[tmp_path / "carl" / "01_orders.ipynb"]


@pytest.mark.usefixtures("without_otter")
def test_files_named_after_students_are_a_class_and_a_set_is_one_student(tmp_path: Path) -> None:
    for student in ("smith_anna", "lee_ben"):
        for name in ("01_orders", "03_simulator"):
            hand_in(tmp_path / "class" / f"{student}_{name}.ipynb", name)
    assert {student: list(books) for student, books in hand_ins(tmp_path / "class").students.items()} == {
        "lee_ben": ["01_orders", "03_simulator"],
        "smith_anna": ["01_orders", "03_simulator"],
    }
    start(tmp_path / "set")
    assert {student: list(books) for student, books in hand_ins(tmp_path / "set").students.items()} == {
        "": list(course_notebooks())
    }
    one = tmp_path / "set" / "03_simulator.ipynb"
    assert hand_ins(one).students == {"": {"03_simulator": one}}
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="01_orders"):
        hand_ins(tmp_path / "none")


def test_only_what_an_answer_needs_is_run() -> None:
    story = ["table = 3", "slow = train(table)", "def f(x):\n    raise NotImplementedError", "check(f)"]
    helper = "!pip install everything\nhelper = lambda x: x * half"
    answer = "def f(x):\n    inner = math.sqrt(x)\n    return helper(inner) * table"
    other = ["%matplotlib inline\nimport numpy as np", "slow = 1", "while True: pass"]
    own = [*other, "import math", *story, helper, answer, "half = 0.5", "%%bash\nf", "return f ("]
    kept = needed(own, ["f"], story, ["import numpy as np"])
    assert kept == ["import math", "table = 3", helper, answer, "half = 0.5", "%%bash\nf", "return f ("]
    assert not needed([*other, *story], ["f"], story, [])


def grades_of(student: str) -> list[Grade]:
    wrong = {"A case.": "the answer is 0; 1 is right", "Another.": UNANSWERED}
    return [
        Grade(student, "01_orders", "price_advantage", 1, 3, True, wrong),
        Grade(student, "01_orders", "average_price", 0, 4, False, {"A case.": UNANSWERED}),
    ]


def test_grades_tell_wrong_from_not_answered() -> None:
    lines = as_text(grades_of("anna")).splitlines()
    assert lines[0] == "anna"
    assert lines[1].split() == ["01_orders", "price_advantage", "1", "of", "3"]
    assert "the answer is 0; 1 is right" in lines[3]
    assert "not answered yet" in lines[-2]
    assert " of " not in lines[-2]
    assert lines[-1].split() == ["sum", "1", "of", "7"]


def test_a_table_of_points_has_a_row_a_student(tmp_path: Path) -> None:
    write_table(tmp_path / "points.csv", [*grades_of("anna"), *grades_of("ben")])
    assert (tmp_path / "points.csv").read_text().splitlines() == [
        "student,01_orders price_advantage,01_orders average_price,sum",
        "anna,1,,1",
        "ben,1,,1",
    ]


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
