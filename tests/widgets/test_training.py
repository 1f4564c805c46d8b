"""The monitor of a training: what it shows and asks for, and what is left of it when its cell is run again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.control import REQUEST
from rlwb.experiment.monitor import BackgroundTraining
from rlwb.widgets import CheckpointExplorer, TrainingMonitor
from rlwb.widgets import training as room
from tests.experiment.test_monitor import begun
from tests.widgets.conftest import Cell, alive


def told(monitor: TrainingMonitor) -> tuple[str, float, dict[str, bool]]:
    """Return text, share and buttons that can be pressed."""
    text, bar, buttons, _, _ = monitor.widget.children[0].children  # type: ignore[attr-defined]
    return text.value, bar.value, {one.description: not one.disabled for one in buttons.children}


def press(monitor: TrainingMonitor, name: str) -> str:
    """Press a button, and return what is said then."""
    _, _, buttons, answer, _ = monitor.widget.children[0].children  # type: ignore[attr-defined]
    next(one for one in buttons.children if one.description == name).click()
    return str(answer.value)


def test_buttons_ask_the_run_and_are_those_that_mean_something(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    monitor = TrainingMonitor(run)
    assert told(monitor)[2] == {"Pause": False, "Resume": False, "Stop": False}, "nobody works on it"
    with run.lock():
        monitor.refresh()
        text, share, buttons = told(monitor)
        assert "iteration 3 of 10" in text
        assert share == 0.3
        assert buttons == {"Pause": True, "Resume": False, "Stop": True}
        assert "rlwb resume" in press(monitor, "Pause")
        assert (run.path / REQUEST).read_text() == "pause"
        assert told(monitor)[2] == {"Pause": False, "Resume": True, "Stop": True}
        (run.path / REQUEST).unlink()
        monitor.refresh()
        assert "rlwb resume" not in monitor._parts["answer"].value, "what was asked for is over"
        press(monitor, "Pause")
        press(monitor, "Resume")
        assert not (run.path / REQUEST).exists()
        press(monitor, "Stop")
        assert (run.path / REQUEST).read_text() == "stop"
        assert told(monitor)[2] == {"Pause": False, "Resume": False, "Stop": False}
    assert "interrupted" in press(monitor, "Pause"), "it ended in between"
    assert "without saying so" in told(monitor)[0]
    run.update_status(state="interrupted")
    run.update_stage("train", {"state": "interrupted"})
    monitor.refresh()
    assert "without saying so" not in told(monitor)[0]
    assert f"rlwb run --resume --run-dir {run.short}" in told(monitor)[0]
    monitor.close()


def test_a_process_that_ends_is_not_said_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(tmp_path / "run")
    monitor = TrainingMonitor(run, lambda: BackgroundTraining.__new__(BackgroundTraining))
    monkeypatch.setattr(BackgroundTraining, "is_alive", lambda _: True)
    monitor.start()
    assert "starting" in told(monitor)[0]
    with run.lock():
        monitor.refresh()
        assert "running" in told(monitor)[0]
    run.update_status(state="interrupted")
    run.update_stage("train", {"state": "interrupted"})
    monitor.refresh()
    text, _, buttons = told(monitor)
    assert "stopped" in text
    assert "here with Start" not in text, "before its process has ended"
    assert not buttons["Start"]
    monitor.start()
    monitor.refresh()
    assert "starting" in told(monitor)[0]
    monitor.close()


def test_new_figures_are_drawn_with_a_text_that_stands_for_them(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    monitor = TrainingMonitor(run)
    curves: Any = monitor.widget.children[0].children[-1]  # type: ignore[attr-defined]
    before = curves.value
    assert "alt='ended; iteration 3 of 10" in before
    monitor.refresh()
    assert curves.value == before
    with (run.metrics / "train.csv").open("a") as file:
        file.write("4,2.5,400,0.1,1.3,2.0\n")
    monitor.refresh()
    assert "iteration 4 of 10" in curves.value
    assert curves.value != before
    monitor.close()


def test_one_that_can_start_a_training_says_why_it_did_not(tmp_path: Path) -> None:
    from rlwb.experiment.monitor import BackgroundTraining

    run = begun(tmp_path / "run")
    monitor = TrainingMonitor(run, lambda: BackgroundTraining(run, run.config))
    assert told(monitor)[2]["Start"]
    assert "; or here with Start" in told(monitor)[0]
    assert "train cannot start" in press(monitor, "Start")
    assert monitor.training is None
    monitor.close()


def test_it_looks_again_while_its_cell_is_there_and_no_longer(
    tmp_path: Path, cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, looks = begun(tmp_path / "run"), list[int]()
    read = room.read_training
    monkeypatch.setattr(room, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(room, "read_training", lambda run: (looks.append(1), read(run))[1])

    def show() -> None:
        TrainingMonitor(run)._repr_mimebundle_()

    async def notebook() -> None:
        cell.run(show)
        before = alive()
        for _ in range(3):
            cell.run(show)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 2, "this one, and the last monitor's"
        count = len(looks)
        while len(looks) < count + 3:
            await asyncio.sleep(0.01)
        assert alive() == before
        cell.run(lambda: TrainingMonitor(run).close())
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    async def within_a_minute() -> None:
        async with asyncio.timeout(60):
            await notebook()

    asyncio.run(within_a_minute())


@pytest.mark.parametrize("panel", [TrainingMonitor, CheckpointExplorer])
def test_a_cell_whose_directory_is_mended_runs(tmp_path: Path, cell: Cell, panel: type) -> None:
    def refused() -> None:
        with pytest.raises(ConfigError, match="holds no run"):
            panel(tmp_path / "none")

    cell.run(refused)
    cell.run(refused)
    cell.run(lambda: TrainingMonitor(begun(tmp_path / "run")).close())


def test_headless_it_is_a_figure(tmp_path: Path, cell: Cell) -> None:
    cell.attended = False
    monitor = TrainingMonitor(begun(tmp_path / "run"))
    assert monitor._repr_mimebundle_().keys() == {"text/plain", "image/png"}
