"""Event files, read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from rlwb.tracking import TensorBoard, TrackedRun, Trackers

CONFIG = {"train.iterations": 3, "algorithm.name": "ppo", "market.quotes": False, "split.rolling": None}


def read(place: Path) -> EventAccumulator:
    return EventAccumulator(str(place), size_guidance={"scalars": 0, "images": 0}).Reload()


def scalars(place: Path, tag: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in read(place).Scalars(tag)]


def begin(run: TrackedRun, folder: Path | None = None) -> Trackers:
    trackers = Trackers([("tensorboard", TensorBoard(str(folder) if folder else None))])
    trackers.start(run)
    return trackers


def rows(first: int, last: int, factor: float = 1.0) -> list[tuple[int, dict[str, float]]]:
    return [(step, {"train/pa": factor * step, "val/pa": step / 2}) for step in range(first, last + 1)]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(picture)
    (tmp_path / "headline.md").write_text("| policy | PA |")
    run = TrackedRun("abc", "one", tmp_path, config=CONFIG, tags={"commit": "f00"})
    trackers = begin(run)
    trackers.send("", rows(1, 3))
    trackers.send("teacher/", [(1, {"train/pa": 7.0})])
    assert trackers.each(0, lambda tracker: tracker.figure("figures/curves", picture, 3))
    assert trackers.each(0, lambda tracker: tracker.artefact(tmp_path / "headline.md", "backtest"))
    trackers.finish("finished")

    place = tmp_path / "tensorboard" / "one"
    assert scalars(place, "train/pa") == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert scalars(place, "val/pa") == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert scalars(place, "teacher/train/pa") == [(1, 7.0)]
    found = read(place)
    (image,) = found.Images("figures/curves")
    assert (image.step, image.width, image.height) == (3, 3, 2)
    assert image.encoded_image_string == picture.read_bytes()
    assert found.Tensors("headline")[0].tensor_proto.string_val == [b"| policy | PA |"]
    assert b"| commit | f00 |" in found.Tensors("facts")[0].tensor_proto.string_val[0]

    start, end = (
        HParamsPluginData.FromString(found.SummaryMetadata(f"_hparams_/session_{name}_info").plugin_data.content)
        for name in ("start", "end")
    )
    settings = start.session_start_info.hparams
    assert settings["train.iterations"].number_value == 3
    assert settings["algorithm.name"].string_value == "ppo"
    assert settings["market.quotes"].HasField("bool_value")
    assert settings["split.rolling"].string_value == "None"
    assert end.session_end_info.status == api_pb2.STATUS_SUCCESS


def test_a_run_that_goes_on_sends_what_is_missing(tmp_path: Path) -> None:
    run = TrackedRun("abc", "one", tmp_path)
    trackers = begin(run)
    trackers.send("", rows(1, 2))
    trackers.send("teacher/", [(1, {"train/pa": 7.0})])  # a killed process finishes nothing
    trackers = begin(run)
    assert trackers.goes_on == {0: True}
    trackers.send("teacher/", [(1, {"train/pa": 7.0}), (2, {"train/pa": 8.0})])
    trackers.send("", rows(1, 4))
    trackers.finish("finished")
    place = tmp_path / "tensorboard" / "one"
    assert scalars(place, "train/pa") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert scalars(place, "teacher/train/pa") == [(1, 7.0), (2, 8.0)]


def test_rows_beyond_the_step_that_it_goes_on_from_are_taken_back(tmp_path: Path) -> None:
    begin(TrackedRun("abc", "one", tmp_path, step=0)).send("", rows(1, 5))
    trackers = begin(TrackedRun("abc", "one", tmp_path, step=3))
    trackers.send("", rows(4, 6, factor=10))
    trackers.finish("failed")
    place = tmp_path / "tensorboard" / "one"
    assert scalars(place, "train/pa") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 40.0), (5, 50.0), (6, 60.0)]
    trackers = begin(TrackedRun("abc", "one", tmp_path))
    trackers.send("", rows(1, 7, factor=10))
    assert scalars(place, "train/pa")[2:] == [(3, 3.0), (4, 40.0), (5, 50.0), (6, 60.0), (7, 70.0)]


@pytest.mark.parametrize("cut", [1, 11, 30])
def test_half_a_record_of_a_killed_process_costs_that_row_alone(tmp_path: Path, cut: int) -> None:
    begin(TrackedRun("abc", "one", tmp_path)).send("", rows(1, 3))
    (events,) = (tmp_path / "tensorboard" / "one").glob("events*")
    events.write_bytes(events.read_bytes()[:-cut])
    begin(TrackedRun("abc", "one", tmp_path)).send("", rows(1, 4))
    assert scalars(events.parent, "train/pa") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]


def test_another_run_of_the_same_name_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for name in ("abc", "other"):
        begin(TrackedRun(name, "seed-3", tmp_path, group="sweep"), tmp_path / "logs").send("", rows(1, 1))
    assert {path.name for path in (tmp_path / "logs" / "sweep").iterdir()} == {"seed-3", "seed-3-other"}
