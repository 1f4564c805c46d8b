"""Progress of work: lines, a bar, and the file that others read."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from rlwb.output import silent, talker
from rlwb.progress import PROGRESS_ENV, FollowedProgress, Progress, is_quiet, read_progress


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pause_between_two_units_lengthens_no_estimate() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress("checkpoint", 4, echo=lines.append, clock=clock)
    clock.now = 2.0
    progress.step({"PA": "1.00 bp"})
    clock.now = 1000.0
    progress.start()
    clock.now = 1004.0
    progress.step()
    assert (progress.each, progress.left) == (3.0, 6.0)
    assert lines == ["checkpoint 1 of 4  PA 1.00 bp  2.0 s each  6 s left", "checkpoint 2 of 4  3.0 s each  6 s left"]


def test_lines_come_no_more_often_than_asked_and_the_last_always() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress("policy", 9, echo=lines.append, clock=clock, every=10.0)
    for _ in range(9):
        clock.now += 3.0
        progress.step()
    assert [line[:8] for line in lines] == ["policy 4", "policy 8", "policy 9"]
    assert lines[-1].endswith("done")
    short = Progress("policy", 2, echo=lines.append, clock=clock, every=10.0)
    for _ in range(2):
        clock.now += 1.0
        short.step()
    assert len(lines) == 3, "what is over at once has no lines"


def test_without_a_total_nothing_is_said_of_the_end() -> None:
    progress = Progress("iteration", None, mode="none")
    progress.step()
    assert math.isnan(progress.left)


def test_others_read_how_far_it_is_from_the_file_which_goes_at_the_end(tmp_path: Path) -> None:
    file = tmp_path / ".progress.json"
    with Progress("iteration", 8, title="train", mode="none", done=2, clock=Clock(), file=file) as progress:
        begun = read_progress(file)
        assert begun is not None
        assert (begun["done"], begun["left"]) == (2, None)
        progress.step({"validation PA": "3.10"})
        found = read_progress(file)
    assert found is not None
    assert (found["title"], found["done"], found["total"]) == ("train", 3, 8)
    assert found["figures"] == {"validation PA": "3.10"}
    assert not file.exists()
    file.write_text("{")
    assert read_progress(file) is None


def test_a_bar_shows_rate_time_left_and_figures(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    with Progress("policy", 4, title="backtest", mode="bar", echo=said.append) as progress:
        progress.step({"PA of twap": "0.00 bp"})
        progress.note("a line")
    shown = capsys.readouterr().err
    assert "backtest" in shown
    assert "1/4" in shown
    assert "policy/s" in shown or "s/ policy" in shown
    assert "PA of twap=0.00 bp" in shown
    assert said == ["a line"]


def test_a_terminal_draws_the_bars_of_what_a_kernel_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / ".progress.json"
    with FollowedProgress(file):
        for title, total in (("teacher", 2), ("train", 5)):
            state = {"title": title, "unit": "iteration", "done": 1, "total": total, "figures": {"PA": "1.00"}}
            file.write_text(json.dumps(state))
            shown, deadline = "", time.monotonic() + 60
            while "PA=1.00" not in shown:
                assert time.monotonic() < deadline
                time.sleep(0.02)
                shown += capsys.readouterr().err
            assert title in shown
            assert f"1/{total}" in shown
    assert "5/5" in capsys.readouterr().err, "it came to its end"


def test_work_that_is_over_at_once_is_shown_at_its_end_by_who_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PROGRESS_ENV, "file")
    file = tmp_path / ".progress.json"
    with FollowedProgress(file), Progress("step", 3, title="orders", mode="none", file=file) as progress:
        for number in range(3):
            progress.step({"orders": str(number)})
    shown = capsys.readouterr().err
    assert "3/3" in shown
    assert "orders=2" in shown
    assert not file.exists()


def test_a_quiet_command_makes_all_that_it_starts_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlwb.experiment.notebook import log_line, progress_mode

    monkeypatch.setenv(PROGRESS_ENV, "")
    assert progress_mode() == "lines"
    log_line("said")
    assert talker(is_quiet=False) is not silent
    assert not is_quiet()
    assert talker(is_quiet=True) is silent
    assert progress_mode() == "none"
    log_line("unsaid")
    out = capsys.readouterr().out
    assert out[8:] == " said\n"
    assert out[2] == out[5] == ":"
