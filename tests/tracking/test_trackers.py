"""Several trackers as one: nothing that one does ends what is tracked."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from rlwb import packages
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.own_code import check_parts
from rlwb.tracking import TrackedRun, Tracker, Trackers


class Notes(Tracker):
    """Remembers rows; breaks at a step."""

    def __init__(self, breaks: int = 0) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.breaks = breaks

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        if step == self.breaks:
            raise OSError("the disk\nis full.")
        self.rows.append((step, dict(figures)))


def test_one_that_fails_is_told_of_once_and_left_out() -> None:
    said: list[str] = []
    broken, sound = Notes(breaks=2), Notes()
    trackers = Trackers([("broken", broken), ("sound", sound)], said.append)
    trackers.start(TrackedRun("a", "a"))
    for step in (1, 2, 3):
        trackers.send("", [(step, {"train/pa": 1.0})])
    trackers.finish("finished")
    assert [step for step, _ in broken.rows] == [1]
    assert [step for step, _ in sound.rows] == [1, 2, 3]
    assert said == ["tracker broken: OSError: the disk is full; the run goes on without it."]
    assert trackers
    assert not trackers.each(0, lambda tracker: None)


def test_rows_are_sent_once_and_missing_figures_are_left_out() -> None:
    tracker = Notes()
    trackers = Trackers([("notes", tracker)])
    trackers.start(TrackedRun("a", "a"))
    rows = [(1, {"pa": math.nan, "loss": 2.0}), (2, {"pa": 1.0, "loss": math.inf})]
    trackers.send("teacher/", rows[:1])
    trackers.send("teacher/", rows)
    assert tracker.rows == [
        (1, {"teacher/loss": 2.0, "teacher/iteration": 1.0}),
        (2, {"teacher/pa": 1.0, "teacher/loss": math.inf, "teacher/iteration": 2.0}),
    ]


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_package_that_is_missing_is_refused_before_any_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    config = RunConfig.load(None, Layer("test", {"trackers": [name]}))
    with pytest.raises(ConfigError, match=rf"{name}.* needs the package {name}; pip install 'rlwb\[{name}\]'"):
        check_parts(config)
