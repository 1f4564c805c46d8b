"""Trackers of a training in a script, without a run's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlwb.tracking import TensorBoard, TrackerCallback
from rlwb.trainer import Checkpoint, Trainer
from tests.tracking.test_tensorboard import read, scalars
from tests.tracking.test_trackers import Notes
from tests.trainer.small import assert_same_weights, small_vessel


def train(*callbacks: object, iterations: int = 3, resume: Path | None = None) -> Trainer:
    trainer = Trainer(max_iters=iterations, val_every_n_iters=1, callbacks=list(callbacks))
    trainer.fit(small_vessel(), resume)
    return trainer


def test_every_figure_of_every_iteration_is_there_and_the_weights_are_the_same(tmp_path: Path) -> None:
    tracked = train(TrackerCallback(TensorBoard(str(tmp_path)), name="mine", config={"hidden": 8}))
    assert_same_weights(tracked.vessel.policy, train().vessel.policy)
    tags = set(read(tmp_path / "mine").Tags()["scalars"])
    wanted = {name if name.startswith("val/") else f"train/{name}" for name in tracked.metrics}
    assert tags == {*wanted, "iteration"}
    assert {"train/loss", "train/seconds", "train/pa", "val/pa"} <= tags
    steps = scalars(tmp_path / "mine", "val/pa")
    assert [step for step, _ in steps] == [1, 2, 3]
    assert steps[-1][1] == pytest.approx(tracked.metrics["val/pa"], rel=1e-6)


def test_a_training_that_goes_on_goes_on_in_the_same_run(tmp_path: Path) -> None:
    def callbacks() -> list[object]:
        return [TrackerCallback(TensorBoard(str(tmp_path / "logs"))), Checkpoint(tmp_path / "kept")]

    train(*callbacks(), iterations=3)
    (place,) = (tmp_path / "logs").iterdir()
    before = scalars(place, "train/loss")
    train(*callbacks(), iterations=4, resume=tmp_path / "kept" / "0002.pt")
    assert list((tmp_path / "logs").iterdir()) == [place]
    after = scalars(place, "train/loss")
    assert [step for step, _ in after] == [1, 2, 3, 4]
    assert after[:3] == before, "the same training again"


def test_a_tracker_that_breaks_ends_no_training(caplog: pytest.LogCaptureFixture) -> None:
    notes = Notes(breaks=2)
    trainer = train(TrackerCallback(notes))
    assert trainer.current_iter == 3
    assert [step for step, _ in notes.rows] == [1]
    assert [record.message for record in caplog.records] == [
        "tracker Notes: OSError: the disk is full; the run goes on without it."
    ]
