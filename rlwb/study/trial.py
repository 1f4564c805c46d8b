"""A trial of a search: a learner trained, or a rule that trades, with chosen settings, judged on validation orders.

A trial reads training and validation orders alone. Its directory is that of a run without test orders and backtest.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlwb.errors import ConfigError, DataError
from rlwb.execution import AmountActionInterpreter, Baseline, KnownStateInterpreter
from rlwb.experiment.backtest import Hindsight, play
from rlwb.experiment.config import RunConfig, baseline_labels
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.run import RunDirectory, update_manifest
from rlwb.experiment.stages import ORDERS, TRAIN, file_hashes, recorded, run_stage
from rlwb.experiment.tracked import tracked
from rlwb.experiment.training import train_policy
from rlwb.files import atomic_path, locked
from rlwb.trainer import Callback

if TYPE_CHECKING:
    from rlwb.experiment.workbench import Workbench
    from rlwb.trainer import Trainer, TrainingVessel

#: Called with an iteration and its validation figure; says whether the trial is to end there.
Report = Callable[[int, float], bool]
#: Files of the stage orders that a trial has: none of the test part.
_ORDERS = ("train.parquet", "valid.parquet", "data.json")


class Pruned(BaseException):
    """A trial was ended by its pruner: its run is interrupted and not failed, and may be taken up.

    `found` is what it found until then.
    """

    def __init__(self, found: Found | None) -> None:
        super().__init__("pruned by the search: its validation was worse than that of other trials")
        self.found = found


@dataclass
class Found:
    """The validation of a trial at its best iteration.

    Attributes
    ----------
    figures
        Objective's name to value: ``pa`` in basis points, net where the rules have costs, or the value of the
        configuration's objective; ``std``, the standard deviation of single orders' net PA against arrival in basis
        points.
    terms : float64 of shape (orders,)
        PA of each validation order.
    iteration
        The iteration; None of a rule.
    history
        Iteration to figure, of all that were validated.
    """

    figures: dict[str, float]
    terms: np.ndarray
    iteration: int | None = None
    history: dict[int, float] = field(default_factory=dict)


class Watch(Callback):
    """Keeps the best validation of a training, reports each, and ends the training where its report says so."""

    rank = 9  # after what gives the figure; a training ends after its checkpoint was written, and can be taken up

    def __init__(self, judged_by: str, terms_of: str, report: Report | None = None) -> None:
        self.watches = self.monitor = f"val/{judged_by}"
        self.terms_of = terms_of
        self.report = report
        self.found: Found | None = None
        self.history: dict[int, float] = {}

    @property
    def state_key(self) -> str:
        return "Watch"

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        assert trainer.validation is not None
        value, iteration = float(trainer.metrics[self.monitor]), trainer.current_iter
        self.history[iteration] = value  # before the checkpoint of the iteration, which keeps it
        if np.isfinite(value) and (self.found is None or value > self.found.figures["pa"]):
            metrics = trainer.validation.metrics
            figures = {"pa": value, "std": arrival_deviation(metrics)}
            self.found = Found(figures, np.asarray(metrics[self.terms_of], dtype=np.float64), iteration)

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        if trainer.current_iter in self.history:
            self._tell(trainer.current_iter, self.history[trainer.current_iter])

    def _tell(self, iteration: int, value: float) -> None:
        if self.report is not None and np.isfinite(value) and self.report(iteration, value):
            raise Pruned(self.result())

    def result(self) -> Found | None:
        """Return the best validation so far, None where none has a figure."""
        return self.found and dataclasses.replace(self.found, history=dict(self.history))

    def state_dict(self) -> dict[str, Any]:
        import torch

        state: dict[str, Any] = {"history": {str(at): one for at, one in self.history.items()}, "found": None}
        if self.found is not None:
            known = {"figures": self.found.figures, "iteration": self.found.iteration}
            state["found"] = {**known, "terms": torch.from_numpy(self.found.terms.copy())}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = {int(at): one for at, one in state["history"].items()}
        known = state["found"]
        self.found = known and Found(dict(known["figures"]), known["terms"].numpy().copy(), known["iteration"])

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None:
        for iteration, value in self.history.items():  # of a trial that was cut short and is taken up
            self._tell(iteration, value)


def shared_orders(folder: Path, config: RunConfig) -> RunDirectory:
    """Return the run in a search's folder whose stage orders all trials of the same seed share; it is made once."""
    path = folder / f"seed-{config.seed}"
    with locked(folder / f".seed-{config.seed}.lock", wait=True):
        run = RunDirectory(path)
        if not run.is_run():
            run = RunDirectory.create(path, config)
        if run.stage(ORDERS.name).get("state") != "finished":
            with recorded(run, [ORDERS]):
                run_stage(ORDERS, run, config, make_orders, echo=lambda line: None)
    return run


def take_orders(run: RunDirectory, source: RunDirectory, names: tuple[str, ...] = _ORDERS) -> None:
    """Give a run the orders of another of the same market, orders, split and seed, as links where that can be."""
    run.orders.mkdir(exist_ok=True)
    for name in names:
        target = run.orders / name
        if target.exists():
            continue
        with atomic_path(target) as path:
            path.unlink(missing_ok=True)
            try:
                os.link(source.orders / name, path)
            except OSError:  # another file system, or one without links
                shutil.copyfile(source.orders / name, path)
    known = run.manifest.get("files", {})
    update_manifest(run, files={**known, **file_hashes(run, ORDERS.outputs)}, data=source.manifest["data"])
    run.update_stage(ORDERS.name, source.stage(ORDERS.name))


def train_trial(path: Path, config: RunConfig, orders: RunDirectory, report: Report | None = None) -> Found:
    """Train a learner in a directory, new or begun before, and return its best validation.

    Raises
    ------
    Pruned
        Where `report` says that the training is to end.
    DataError
        When no validation gave a figure.
    """
    # A trial is judged by its figures; of its weights the best and the newest are enough.
    config = config.model_copy(update={"train": config.train.model_copy(update={"keep": config.train.keep or 1})})
    run = RunDirectory(path)
    if not run.is_run():
        run = RunDirectory.create(path, config)
    watch = Watch(config.judged_by, config.execution.rules.judged_by, report)
    work = partial(train_policy, callbacks=[watch], progress="none")
    with recorded(run, [TRAIN]), tracked(run, config):
        if run.stage(ORDERS.name).get("state") != "finished":
            take_orders(run, orders)
        run_stage(TRAIN, run, config, work, echo=lambda line: None)
    if not watch.history:
        _read_again(run, watch)
    found = watch.result()
    if found is None:
        raise DataError("no validation of this training has a figure; look at its metrics.")
    return found


def _read_again(run: RunDirectory, watch: Watch) -> None:
    """Let `watch` know a training that was done already; its process ended before it could tell."""
    from rlwb.trainer import find_resumable, load_checkpoint

    path, _ = find_resumable(run.checkpoints)
    if path is not None:
        watch.load_state_dict(load_checkpoint(path)["callbacks"][watch.state_key])


@dataclass
class Rules:
    """The rules of a search on the validation orders of one seed; bars and orders are prepared once."""

    orders: RunDirectory
    _bench: Workbench | None = None
    _batches: dict[str, Any] = field(default_factory=dict)

    def excess(self, config: RunConfig, terms: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray] | None:
        """Return what trials gave on each validation order beyond TWAP, and the order's date.

        None where TWAP is not among the baselines.

        Parameters
        ----------
        terms : float64 of shape (orders,) each
            In basis points, as in `Found`.

        Returns
        -------
        tuple
            float64 of shape (orders, trials), and datetime64 of shape (orders,).
        """
        labels = baseline_labels(config.baselines)
        if "twap" not in labels:
            return None
        twap = self.judge(config, labels.index("twap")).terms
        return np.stack(terms, axis=1) - twap[:, None], self._batches["valid"].table["date"].to_numpy()

    def judge(self, config: RunConfig, index: int, part: str = "valid") -> Found:
        """Return how the baseline at an index of a configuration trades orders, told of training sessions alone."""
        if self._bench is None:
            self._bench = workbench(self.orders, config)
        bench = self._bench
        for name in ("train", part):
            if name not in self._batches:
                table = load_orders(self.orders, bench, name)
                self._batches[name] = bench.align(table, bench.objective.middle)
        baseline = bench.make("baseline", config.baselines[index])
        if isinstance(baseline, Hindsight):
            raise ConfigError(f"{config.baselines[index].name} is a ceiling and has nothing to tune; name a rule.")
        orders = self._batches[part]
        if isinstance(baseline, Baseline):
            baseline.fit(self._batches["train"])
            baseline.check(orders)
        episodes = play(bench, (baseline, KnownStateInterpreter(), AmountActionInterpreter()), orders)
        value = float(bench.validation_figures(orders, episodes)[config.judged_by])
        if not np.isfinite(value):
            raise DataError("no order has a figure.")
        terms = np.asarray(episodes.metrics[config.execution.rules.judged_by], dtype=np.float64)
        return Found({"pa": value, "std": arrival_deviation(episodes.metrics)}, terms)


def arrival_deviation(metrics: Mapping[str, np.ndarray]) -> float:
    """Return the standard deviation of single orders' net PA against arrival in basis points, NaN where unknown.

    Parameters
    ----------
    metrics
        Figures of orders by name, each of shape (N,), of `rlwb.execution.metrics`.
    """
    values = np.asarray(metrics.get("pa_arrival", np.nan), dtype=np.float64)
    if "pa_net" in metrics:
        charged = metrics["pa"] - metrics["pa_net"]
        values = values - charged * metrics["benchmark"] / metrics["arrival"]
    values = values[np.isfinite(values)] if values.ndim else np.empty(0)
    return float(values.std()) if len(values) > 1 else float("nan")
