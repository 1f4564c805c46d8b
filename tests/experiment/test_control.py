"""A run that is paused, resumed and stopped by requests in its directory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from rlwb.cli import main
from rlwb.errors import ConfigError, StopRequested
from rlwb.experiment.control import ask, obey, standing
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import PROGRESS, REQUEST, WINDOWS, RunDirectory
from rlwb.experiment.stages import ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.progress import read_progress
from rlwb.trainer import list_checkpoints
from tests.experiment.fakes import config
from tests.experiment.test_work import tiny


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.01)


@pytest.fixture
def working(tmp_path: Path) -> RunDirectory:
    """Return a run that this process works on."""
    run = RunDirectory.create(tmp_path / "run", config())
    run.update_status(state="running")
    return run


def test_requests_are_for_a_run_that_works(working: RunDirectory) -> None:
    for request in ("pause", "resume", "stop"):
        with pytest.raises(ConfigError, match="interrupted"):  # no process holds it
            ask(working, request)  # type: ignore[arg-type]
    with working.lock(), pytest.raises(ConfigError, match="not paused"):
        ask(working, "resume")
    assert not (working.path / REQUEST).exists()


def test_a_run_waits_while_it_is_to_pause_and_goes_on(working: RunDirectory) -> None:
    said: list[str] = []
    with working.lock():
        assert standing(working) == "running"
        assert "rlwb resume" in ask(working, "pause")
        assert standing(working) == "pausing"
        waiting = threading.Thread(target=obey, args=(working,), kwargs={"echo": said.append})
        waiting.start()
        wait_until(lambda: standing(working) == "paused")
        assert "goes on" in ask(working, "resume")
        waiting.join(60)
        assert not waiting.is_alive()
        assert standing(working) == "running"
    assert len(said) == 2
    assert str(working.short) in said[0]


def test_a_run_that_waits_can_be_stopped(working: RunDirectory) -> None:
    ended: list[str] = []

    def wait() -> None:
        try:
            obey(working, echo=lambda line: None)
        except StopRequested:
            ended.append("stopped")

    with working.lock():
        ask(working, "pause")
        waiting = threading.Thread(target=wait)
        waiting.start()
        wait_until(lambda: standing(working) == "paused")
        assert "--resume --run-dir" in ask(working, "stop")
        waiting.join(60)
        assert ended == ["stopped"]
        assert standing(working) == "running", "the request is used up"


def test_what_a_process_left_undone_asks_the_next_for_nothing(working: RunDirectory) -> None:
    for name in (REQUEST, PROGRESS):
        (working.path / name).write_text("stop")
    with working.lock():
        obey(working)
        assert standing(working) == "running"
        assert not (working.path / PROGRESS).exists()


def test_a_request_to_a_run_over_windows_reaches_the_window_that_works(working: RunDirectory) -> None:
    window = RunDirectory.create(working.path / WINDOWS / "001", config())
    with working.lock(), window.lock():
        ask(working, "stop")
        assert standing(working) == "stopping"
        with pytest.raises(StopRequested):
            obey(window)


def test_a_stop_ends_a_training_after_its_iteration_and_it_goes_on_to_the_same_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, as from another terminal, while it pauses after its second iteration."""
    settings = tiny(**{"train.iterations": 4})
    run, whole = (RunDirectory.create(tmp_path / name, settings) for name in ("run", "whole"))
    for one in (run, whole):
        run_stage(ORDERS, one, settings, make_orders, echo=lambda line: None)
    run_stage(TRAIN, whole, settings, lambda run, config: train_policy(run, config, progress="none"))
    codes, seen = list[int](), list[object]()

    def command(name: str) -> None:
        with pytest.raises(SystemExit) as caught:
            main([name, str(run.path)])
        codes.append(int(caught.value.code or 0))

    def act() -> None:
        wait_until(lambda: standing(run) == "paused")
        seen.append((max(list_checkpoints(run.checkpoints)), read_progress(run.path / PROGRESS)))
        command("stop")

    from rlwb.trainer import Callback

    class Asks(Callback):
        def on_iter_start(self, trainer, vessel) -> None:  # type: ignore[no-untyped-def]
            if trainer.current_iter == 1:
                command("pause")

    acting = threading.Thread(target=act)
    acting.start()
    with pytest.raises(StopRequested), recorded(run, [ORDERS, TRAIN]):
        run_stage(TRAIN, run, settings, lambda run, config: train_policy(run, config, [Asks()], progress="none"))
    acting.join(60)
    assert codes == [0, 0]
    ((saved, progress),) = seen  # type: ignore[misc]
    assert saved == max(list_checkpoints(run.checkpoints)) == 2
    assert progress["done"] in (1, 2)  # type: ignore[index]  # the file is written twice a second at most
    assert run.state == run.stage("train")["state"] == "interrupted"
    assert "rlwb run --resume" in capsys.readouterr().out
    again = run.load_config(Layer("test", {}))
    run_stage(TRAIN, run, again, lambda run, config: train_policy(run, config, progress="none"))
    for name in ("train.csv", "validation.csv"):
        mine, theirs = (
            pd.read_csv(one.metrics / name).drop(columns="seconds", errors="ignore") for one in (run, whole)
        )
        pd.testing.assert_frame_equal(mine, theirs, check_exact=True)
