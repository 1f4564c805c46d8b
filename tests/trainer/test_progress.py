"""Lines of progress, and figures kept in memory."""

from __future__ import annotations

import itertools

import pytest

from rlwb.trainer import History, ProgressLines, Trainer
from rlwb.trainer.trainer import bar_figures
from tests.trainer.small import small_vessel


class Told:
    """What the callback reads of a trainer."""

    def __init__(self, total: int | None) -> None:
        self.max_iters, self.current_iter, self.metrics = total, 0, {"pa": 1.0, "reward": 2.0}

    @property
    def is_last_iter(self) -> bool:
        return self.current_iter == self.max_iters


def lines_of(total: int | None, count: int, seconds: float, start: int = 0) -> list[str]:
    lines: list[str] = []
    callback = ProgressLines(echo=lines.append, clock=itertools.count(0, seconds).__next__)
    told = Told(total)
    told.current_iter = start
    callback.on_fit_start(told, None)  # type: ignore[arg-type]
    for _ in range(count):
        told.current_iter += 1
        callback.on_iter_end(told, None)  # type: ignore[arg-type]
    return lines


def test_g07_a_line_an_iteration_with_the_time_left() -> None:
    lines = lines_of(500, 500, 2.0)
    assert len(lines) == 500
    assert lines[0] == "iteration   1 of 500  PA 1.00  reward 2.00  2.0 s each  16 min 38 s left"
    assert lines[-1] == "iteration 500 of 500  PA 1.00  reward 2.00  2.0 s each  done"
    assert sum(map(len, lines)) < 100_000
    assert not any("\r" in line for line in lines)


def test_a_resumed_training_says_so_and_knows_no_end_without_one() -> None:
    lines = lines_of(None, 1, 1.0, start=7)
    assert lines == ["continued after iteration 7", "iteration 8  PA 1.00  reward 2.00  1.0 s each"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert lines_of(2, 1, seconds)[0].endswith(f"s each  {text} left")


def test_a_bar_shows_the_net_figure_where_costs_make_one() -> None:
    free = {"pa": 1.0, "pa_net": 1.0, "val/pa": 2.0, "val/pa_net": 2.0, "reward": 3.0, "seconds": 9.0}
    assert bar_figures(free) == {"reward": "3", "pa": "1", "val/pa": "2"}
    assert bar_figures({**free, "pa_net": 0.5, "val/pa_net": -1.0}) == {
        "reward": "3",
        "pa_net": "0.5",
        "val/pa_net": "-1",
    }
    assert bar_figures({"reward": 3.0}) == {"reward": "3"}


def test_history_keeps_every_iteration() -> None:
    history, lines = History(), []
    trainer = Trainer(max_iters=2, val_every_n_iters=2, callbacks=[ProgressLines(echo=lines.append), history])
    trainer.fit(small_vessel())
    assert [row["iteration"] for row in history.train] == [1, 2]
    assert [row["iteration"] for row in history.validation] == [2]
    assert history.validation[0]["pa"] == trainer.metrics["val/pa"]
    assert "pa" in history.train[0]
    assert not any(name.startswith("val/") for name in history.train[1])
    again = History()
    again.load_state_dict(history.state_dict())
    assert again.train == history.train
    assert len(lines) == 2
    assert "validation PA" in lines[1]
