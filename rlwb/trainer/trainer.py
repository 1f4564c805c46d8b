"""The loop: collect, update, validate, tell the callbacks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from rlwb.env import LogWriter
from rlwb.errors import CheckpointError, ConfigError
from rlwb.trainer.callbacks import Callback
from rlwb.trainer.checkpoint import load_checkpoint
from rlwb.trainer.collect import Episodes
from rlwb.trainer.environments import Environments
from rlwb.trainer.progress import bar_figures
from rlwb.trainer.vessel import TrainingVessel, summarise, take
from rlwb.trainer.watched import check_watched

_DEV_RUN_EPISODES = 8


class Trainer:
    """Trains and tests a vessel.

    Parameters
    ----------
    max_iters
        Number of iterations in all, those before a resume included. None trains until a callback stops it.
    val_every_n_iters
        Validate after every so many iterations; None never does.
    loggers
        Writers told of every training episode.
    callbacks
        Called in this order, those of a higher `Callback.rank` last.
    finite_env_type, concurrency
        See `make_env`. Workers are started once a fit, with the vessel's parts as they are then.
    fast_dev_run
        Cut everything to this many iterations of a handful of episodes, to see that all runs.
    progress
        Whether a progress bar is shown.

    Attributes
    ----------
    current_iter
        Number of iterations done: the number of the metrics row, the validation row and the checkpoint.
    metrics
        Figures of the last iteration; those of its validation under ``val/``.
    should_stop
        Set by a callback to end the fit after this iteration.

    Notes
    -----
    The same seeds give the same weights and figures, bit for bit on one machine, for ``"dummy"``, ``"subproc"``
    and ``"shmem"`` and for any `concurrency`. ``"native"`` gives the same observations, rewards and metrics for
    the same actions, but it may pass observations by reference, whose gradients are summed in another order:
    its weights agree up to the rounding of float32.
    """

    def __init__(
        self,
        *,
        max_iters: int | None = None,
        val_every_n_iters: int | None = None,
        loggers: Sequence[LogWriter] | LogWriter | None = None,
        callbacks: Sequence[Callback] | None = None,
        finite_env_type: str = "native",
        concurrency: int = 1,
        fast_dev_run: int | None = None,
        progress: bool = False,
    ) -> None:
        if max_iters is not None and max_iters < 1:
            raise ConfigError(f"max_iters is {max_iters}; train at least 1 iteration.")
        if val_every_n_iters is not None and val_every_n_iters < 1:
            raise ConfigError(f"val_every_n_iters is {val_every_n_iters}; validate every 1 or more, or give none.")
        if fast_dev_run is not None:
            if fast_dev_run < 1:
                raise ConfigError(f"fast_dev_run is {fast_dev_run}; run at least 1 iteration, or give none.")
            max_iters = fast_dev_run
            val_every_n_iters = None if val_every_n_iters is None else 1
        self.max_iters = max_iters
        self.val_every_n_iters = val_every_n_iters
        self.loggers = [loggers] if isinstance(loggers, LogWriter) else list(loggers or ())
        self.callbacks = sorted(callbacks or (), key=lambda callback: callback.rank)
        self.environments = Environments(finite_env_type, concurrency)
        self.fast_dev_run = fast_dev_run
        self.progress = progress
        self.current_iter = 0
        self.metrics: dict[str, float] = {}
        self.should_stop = False
        self.validation: Episodes | None = None
        self.vessel: TrainingVessel | None = None

    def fit(
        self, vessel: TrainingVessel, ckpt_path: str | os.PathLike[str] | None = None, *, train_on: bool = False
    ) -> None:
        """Train.

        Parameters
        ----------
        vessel
            What to train.
        ckpt_path
            A checkpoint to continue from.
        train_on
            Whether a run that a callback had stopped is continued; otherwise it stays stopped.

        Raises
        ------
        ConfigError
            When nothing would ever stop the fit, or a callback watches a figure that never comes.
        InterpreterError
            When a part of the vessel breaks its contract in a trial episode.
        """
        self._attach(vessel)
        if self.max_iters is None and not any(callback.can_stop for callback in self.callbacks):
            raise ConfigError("max_iters is empty and no callback can stop the fit; set max_iters.")
        if self.val_every_n_iters is not None and vessel.val_seed_iterator() is None:
            raise ConfigError("val_every_n_iters is set but the vessel has no val_initial_states; give them.")
        check_watched(self, vessel, vessel.rehearse().metrics)
        if ckpt_path is not None:
            self.load_state_dict(load_checkpoint(Path(ckpt_path)))
        self.should_stop &= not train_on
        self._call("on_fit_start")
        bar = tqdm(total=self.max_iters, initial=self.current_iter, desc="train", disable=not self.progress)
        try:
            while not self.should_stop and (self.max_iters is None or self.current_iter < self.max_iters):
                self._iterate(vessel)
                bar.set_postfix(bar_figures(self.metrics))
                bar.update()
        finally:
            bar.close()
            self.environments.close()
        self._call("on_fit_end")

    @property
    def is_last_iter(self) -> bool:
        """Whether the iteration just done ends the fit."""
        return self.should_stop or self.current_iter == self.max_iters

    def test(self, vessel: TrainingVessel) -> Episodes:
        """Run the vessel's policy greedily on its test part."""
        self._attach(vessel)
        states = vessel.test_seed_iterator()
        if states is None:
            raise ConfigError("the vessel has no test_initial_states; give them to test.")
        self._call("on_test_start")
        try:
            episodes = self._run_greedily(vessel, states)
        finally:
            self.environments.close()
        self.metrics.update({f"test/{name}": value for name, value in summarise(episodes).items()})
        self._call("on_test_end")
        return episodes

    def state_dict(self) -> dict[str, Any]:
        """Return all that an exact resume needs, in plain values and tensors."""
        return {
            "iteration": self.current_iter,
            "should_stop": self.should_stop,
            "metrics": dict(self.metrics),
            "vessel": self._attached().state_dict(),
            "callbacks": {key: callback.state_dict() for key, callback in self._keyed_callbacks().items()},
            "loggers": [logger.state_dict() for logger in self.loggers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken. Callbacks are matched by their key, loggers by their place."""
        missing = sorted({"iteration", "should_stop", "metrics", "vessel", "callbacks", "loggers"} - state.keys())
        if missing:
            raise CheckpointError(f"the checkpoint lacks {missing}; give one that a trainer has written.")
        self._attached().load_state_dict(state["vessel"])
        self.current_iter = int(state["iteration"])
        self.should_stop = bool(state["should_stop"])
        self.metrics = dict(state["metrics"])
        for key, callback in self._keyed_callbacks().items():
            if key in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][key])
        for logger, kept in zip(self.loggers, state["loggers"], strict=False):
            logger.load_state_dict(kept)

    def _attach(self, vessel: TrainingVessel) -> None:
        self.vessel = vessel
        vessel.assign_trainer(self)

    def _attached(self) -> TrainingVessel:
        if self.vessel is None:
            raise ConfigError("the trainer has no vessel yet; call fit or test first.")
        return self.vessel

    def _keyed_callbacks(self) -> dict[str, Callback]:
        """Return the callbacks by key; further ones of the same key are numbered."""
        keyed: dict[str, Callback] = {}
        for callback in self.callbacks:
            same = sum(other.state_key == callback.state_key for other in keyed.values())
            keyed[f"{callback.state_key} {same + 1}" if same else callback.state_key] = callback
        return keyed

    def _call(self, hook: str) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, self.vessel)

    def _iterate(self, vessel: TrainingVessel) -> None:
        began = time.perf_counter()
        self._call("on_iter_start")
        self._call("on_train_start")
        number = self.current_iter + 1
        states = vessel.train_seed_iterator(_DEV_RUN_EPISODES if self.fast_dev_run else None)
        with self.environments.open(vessel, states, self.loggers, told=True, seed=vessel.env_seed(number)) as env:
            figures = vessel.train(env, number)
        self.metrics = {**figures, "seconds": time.perf_counter() - began}
        self.current_iter = number
        self._call("on_train_end")
        self.validation = None
        if self.val_every_n_iters is not None and number % self.val_every_n_iters == 0:
            self._validate(vessel)
        self._call("on_iter_end")

    def _validate(self, vessel: TrainingVessel) -> None:
        states = vessel.val_seed_iterator()
        assert states is not None
        self._call("on_validate_start")
        self.validation = self._run_greedily(vessel, states)
        figures = summarise(self.validation)
        self.metrics.update({f"val/{name}": value for name, value in figures.items()})
        self._call("on_validate_end")

    def _run_greedily(self, vessel: TrainingVessel, states: Sequence[Any]) -> Episodes:
        if self.fast_dev_run:
            states = take(states, np.arange(min(len(states), _DEV_RUN_EPISODES)))
        # Seed 0, as in `backtest`: judging the same weights again gives the same figures.
        with self.environments.open(vessel, states, self.loggers, told=False, seed=0) as env:
            return vessel.validate(env)
