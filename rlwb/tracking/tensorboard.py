"""TensorBoard: a folder of event files a run, by TensorBoard's own writer; torch is not needed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlwb.files import write_text
from rlwb.tracking.tracker import ITERATION, Status, TrackedRun, Tracker

#: The file that tells whose a folder of event files is.
_ID = ".rlwb-id"
#: Files that are shown as texts.
_TEXTS = ("headline.md",)


class TensorBoard(Tracker):
    """Scalars, pictures, the configuration as hyper-parameters, and the headline as a text, in event files.

    A training that goes on does so in a further file of the same folder. TensorBoard keeps scalars as float32, and no
    files.

    Parameters
    ----------
    folder
        Where the folders of runs are; by default ``tensorboard`` beside the run.
    """

    def __init__(self, folder: str | None = None) -> None:
        self.folder = folder
        self._writer: Any = None
        self._last: dict[str, int] = {}

    def start(self, run: TrackedRun) -> bool:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        place = self._place(run)
        self._last = _last_steps(place)
        goes_on = bool(self._last)
        write_text(place / _ID, run.id)
        while any(place.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):  # files are read in order of seconds
            time.sleep(0.05)
        self._writer = EventFileWriter(str(place))
        if run.step is not None and any(step > run.step for step in self._last.values()):
            self._last = {name: min(step, run.step) for name, step in self._last.items()}
            again = SessionLog(status=SessionLog.START)  # whereby readers take back rows from that step on
            self._add(Event(step=run.step + 1, session_log=again))
        if not goes_on:
            self._tell_settings(run)
        return goes_on

    def _place(self, run: TrackedRun) -> Path:
        """Return the folder of a run, another than that of a run of the same name."""
        parent = run.folder / "tensorboard" if self.folder is None else Path(self.folder) / run.group
        place = parent / run.name
        taken = place / _ID
        if taken.is_file() and taken.read_text(encoding="utf-8") != run.id:
            return parent / f"{run.name}-{run.id[:6]}"
        return place

    def last_step(self, series: str = "") -> int:
        return self._last.get(f"{series}{ITERATION}", 0)

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._write(step, *(Summary.Value(tag=name, simple_value=value) for name, value in figures.items()))

    def figure(self, name: str, path: Path, step: int) -> None:
        from PIL import Image
        from tensorboard.compat.proto.summary_pb2 import Summary

        with Image.open(path) as image:
            width, height = image.size
        picture = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=path.read_bytes())
        self._write(step, Summary.Value(tag=name, image=picture))

    def artefact(self, path: Path, kind: str) -> None:
        if path.name in _TEXTS:
            self._text(path.stem, path.read_text(encoding="utf-8"))

    def finish(self, status: Status) -> None:
        from tensorboard.plugins.hparams import api_pb2, metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo

        known = {"finished": api_pb2.STATUS_SUCCESS, "failed": api_pb2.STATUS_FAILURE}
        end = SessionEndInfo(status=known.get(status, api_pb2.STATUS_UNKNOWN), end_time_secs=time.time())
        self._hparams(metadata.SESSION_END_INFO_TAG, HParamsPluginData(session_end_info=end))
        self._text("status", status)
        self._writer.close()

    def _tell_settings(self, run: TrackedRun) -> None:
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionStartInfo

        start = SessionStartInfo(group_name=run.name, start_time_secs=time.time())
        for name, value in run.config.items():
            own = start.hparams[name]
            if isinstance(value, bool):
                own.bool_value = value
            elif isinstance(value, (int, float)):
                own.number_value = value
            else:
                own.string_value = str(value)
        self._hparams(metadata.SESSION_START_INFO_TAG, HParamsPluginData(session_start_info=start))
        rows = "".join(f"| {name} | {value} |\n" for name, value in run.tags.items())
        self._text("facts", f"| fact | value |\n| --- | --- |\n{rows}")

    def _hparams(self, tag: str, content: Any) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import metadata

        about = metadata.create_summary_metadata(content)
        self._write(0, Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR))

    def _text(self, name: str, text: str) -> None:
        import numpy as np
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text import metadata
        from tensorboard.util import tensor_util

        content = tensor_util.make_tensor_proto(np.array(text.encode(), dtype=object))
        about = metadata.create_summary_metadata(display_name=name, description="")
        self._write(0, Summary.Value(tag=name, metadata=about, tensor=content))

    def _write(self, step: int, *values: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    def _add(self, event: Any) -> None:
        self._writer.add_event(event)
        self._writer.flush()


def _last_steps(place: Path) -> dict[str, int]:
    """Return the last step of each series in a folder of event files, by the name of its figure `ITERATION`."""
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found: dict[str, int] = {}
    for path in sorted(place.glob("events.out.tfevents.*")):
        for event in LegacyEventFileLoader(str(path)).Load():  # which ends where a killed process had written half
            if event.HasField("session_log"):
                found = {name: min(step, event.step - 1) for name, step in found.items()}
            for value in event.summary.value:
                if value.tag.rpartition("/")[2] == ITERATION:
                    found[value.tag] = event.step
    return found
