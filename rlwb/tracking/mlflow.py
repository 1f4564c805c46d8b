"""MLflow: runs of an experiment in an SQLite file that needs no server, or in a store that an address names."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlwb.files import locked
from rlwb.packages import require_packages
from rlwb.tracking.tracker import ITERATION, Status, TrackedRun, Tracker

FILES = "mlflow-artifacts"
"""The folder beside an SQLite store with the files of its runs."""

#: The tag by which a run is found again.
_ID = "rlwb.id"
#: Figures and parameters that the store takes at a time, and characters of a value.
_METRICS, _PARAMETERS, _LONGEST = 1000, 100, 6000
_ENDS = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_NO_NAME = re.compile(r"[^\w\-. :/]")


class MLflow(Tracker):
    """Figures, parameters, tags, pictures and files in the store of MLflow; read it with ``mlflow ui``.

    A row is written whole or not at all. The store takes nothing back: of a training that goes on from a checkpoint,
    rows beyond it stay, and are not written a second time. MLflow's reports on its use are switched off.

    Parameters
    ----------
    store
        An SQLite file, made when missing, or the address of a store (``http://…``, ``postgresql://…``); by default
        ``mlflow.db`` beside the run. The files of the runs of an SQLite store are in ``mlflow-artifacts`` beside it.
    experiment
        Which the runs belong to; by default named after the folder that the run is in.
    artefacts
        Whether files are kept: checkpoints, tables, pictures.
    """

    def __init__(self, store: str | None = None, experiment: str | None = None, artefacts: bool = True) -> None:
        require_packages("it", "mlflow", "mlflow")
        self.store = store
        self.experiment = experiment
        self.artefacts = artefacts
        self._file: Path | None = None
        self._client: Any = None
        self._run = ""
        self._known: dict[str, float] = {}

    def start(self, run: TrackedRun) -> bool:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read where mlflow is imported
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        from mlflow.tracking import MlflowClient

        if self.store is None or "://" not in self.store:
            self._file = Path(self.store or run.folder / "mlflow.db").absolute()
            self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._turn():
            self._client = MlflowClient(tracking_uri=f"sqlite:///{self._file}" if self._file else self.store)
            experiment = self._experiment(self.experiment or run.group or "rlwb")
            found = self._client.search_runs([experiment], f"tags.`{_ID}` = '{run.id}'", max_results=1)
            own = found[0] if found else self._client.create_run(experiment, tags={_ID: run.id}, run_name=run.name)
            self._run, self._known = own.info.run_id, dict(own.data.metrics)
            self._client.update_run(self._run, status="RUNNING")
            self._tell_settings(run, own.data.params)
        return bool(found)

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        place = self._file.with_name(FILES).as_uri() if self._file else None
        return str(self._client.create_experiment(name, artifact_location=place))

    def _tell_settings(self, run: TrackedRun, before: Mapping[str, str]) -> None:
        """Write parameters; of one that has changed, which MLflow does not allow, the new value is a tag."""
        from mlflow.entities import Param, RunTag

        wanted = {_name(name): str(value)[:_LONGEST] for name, value in run.config.items()}
        new = [Param(name, value) for name, value in wanted.items() if name not in before]
        changed = {f"now.{name}": one for name, one in wanted.items() if before.get(name, one) != one}
        group = {"group": run.group} if run.group else {}
        facts = {**group, **run.tags, **changed}
        if "commit" in facts:
            facts["mlflow.source.git.commit"] = facts["commit"]
        tags = [RunTag(name, str(value)) for name, value in facts.items()]
        for first in range(0, max(len(new), 1), _PARAMETERS):
            self._client.log_batch(self._run, params=new[first : first + _PARAMETERS], tags=[] if first else tags)

    def last_step(self, series: str = "") -> int:
        return int(self._known.get(f"{series}{ITERATION}", 0))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        # The iteration comes last, so that a row that is written in parts counts when all of it is there.
        ordered = sorted(figures.items(), key=lambda item: item[0].rpartition("/")[2] == ITERATION)
        metrics = [Metric(_name(name), value, now, step) for name, value in ordered]
        with self._turn():
            for first in range(0, len(metrics), _METRICS):
                self._client.log_batch(self._run, metrics=metrics[first : first + _METRICS])

    def figure(self, name: str, path: Path, step: int) -> None:
        self.artefact(path, "figures")

    def artefact(self, path: Path, kind: str) -> None:
        if self.artefacts:
            self._client.log_artifact(self._run, str(path), artifact_path=kind)

    def finish(self, status: Status) -> None:
        with self._turn():
            self._client.set_terminated(self._run, status=_ENDS[status])

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Hold a file of SQLite while writing, so that runs side by side wait for each other and lose no row."""
        if self._file is None:
            yield
            return
        with locked(self._file.with_name(f".{self._file.name}.lock"), wait=True):
            yield


def _name(name: str) -> str:
    """Return a name that MLflow takes."""
    return _NO_NAME.sub("_", name)
