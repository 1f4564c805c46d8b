"""The callback by which a training of a script is tracked, without a run's directory."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Mapping
from typing import Any

from rlwb.tracking.tracker import TrackedRun, Tracker, Trackers
from rlwb.trainer import Callback, Trainer, TrainingVessel


class TrackerCallback(Callback):
    """Hands the figures of every iteration to trackers: of training under ``train/``, of validation under ``val/``.

    A training that goes on from a checkpoint goes on in the same tracked run. A tracker that fails is left out, with a
    warning. A fit that raises leaves its run open; ``finish`` of the callback closes it.

    Parameters
    ----------
    trackers
        Where figures go.
    name
        What the run is called; by default the time.
    config
        Parameters to be shown with it.
    tags
        Facts to be shown with it.
    """

    rank = 1

    def __init__(
        self,
        *trackers: Tracker,
        name: str | None = None,
        config: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        self.id = secrets.token_hex(6)
        self.name = name or f"{dt.datetime.now():%Y%m%d-%H%M%S}"
        self.config = dict(config or {})
        self.tags = dict(tags or {})
        self._trackers = Trackers([(type(tracker).__name__, tracker) for tracker in trackers])

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        step = trainer.current_iter
        self._trackers.start(TrackedRun(self.id, self.name, config=self.config, tags=self.tags, step=step))

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        figures = trainer.metrics.items()
        row = {name if name.startswith("val/") else f"train/{name}": value for name, value in figures}
        self._trackers.send("", [(trainer.current_iter, row)])

    def on_fit_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        self._trackers.finish("finished")

    def finish(self, status: str) -> None:
        """Close a run whose fit did not come to its end, as ``failed`` or ``interrupted``."""
        self._trackers.finish("interrupted" if status == "interrupted" else "failed")

    def state_dict(self) -> dict[str, Any]:
        return {"id": self.id, "name": self.name}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.id, self.name = str(state["id"]), str(state["name"])
