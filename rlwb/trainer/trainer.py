"""The loop: collect, update, validate, tell the callbacks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from rlwb.batch import take
from rlwb.env import FiniteVectorEnv
from rlwb.env.slots import ENV_TYPES, check_env_type
from rlwb.env.workers import uninterrupted
from rlwb.errors import CheckpointError, ConfigError
from rlwb.progress import Progress
from rlwb.record import check_record
from rlwb.trainer.checkpoint import load_checkpoint, restoring
from rlwb.trainer.collect import OF_ANY_COLLECT, OF_TRAINING, Episodes, unknown_figure
from rlwb.trainer.record import recorded_in
from rlwb.trainer.vessel import TrainingVessel

if TYPE_CHECKING:
    from rlwb.trainer.actors import CollectingActors

T = TypeVar("T")

_DEV_RUN_EPISODES = 8
_TO_GO_ON = (
    "go on with the parts, orders and settings that it was trained with, or start a new training with its weights "
    "alone (rlwb.trainer.restore_policy)."
)


class Callback:
    """Base of callbacks; every hook does nothing until overridden."""

    #: Whether the callback may end a fit, so that max_iters may be empty.
    can_stop = False
    #: Callbacks with a higher rank are called later; `Checkpoint` saves what all others have settled.
    rank = 0

    #: Name of a figure in ``trainer.metrics`` that must exist, checked before training; None for none.
    watches: str | None = None

    #: Names of figures that the callback adds to ``trainer.metrics`` before those of a higher rank look.
    gives: tuple[str, ...] = ()

    @property
    def state_key(self) -> str:
        """Name of the callback's state in a checkpoint."""
        return type(self).__name__

    def on_fit_start(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_fit_end(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_iter_start(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_iter_end(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_train_start(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_train_end(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_validate_start(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_validate_end(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_test_start(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def on_test_end(self, trainer: Trainer, vessel: TrainingVessel) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""


class Trainer:
    """Trains and tests a vessel.

    Parameters
    ----------
    max_iters
        Number of iterations in all, those before a resume included. None trains until a callback stops it.
    val_every_n_iters
        Validate after every so many iterations; None never does.
    callbacks
        Called in this order, those of a higher `Callback.rank` last.
    finite_env_type, concurrency
        See `rlwb.env.make_env`. Workers are started once a fit, with the vessel's parts as they are then.
    actors
        Processes of a Ray cluster that gather the training episodes, each with a copy of the policy, in place of the
        environment here, which still validates; 0 for none. See `rlwb.trainer.actors`.
    fast_dev_run
        Cut everything to this many iterations of a handful of episodes, to see that all runs.
    progress
        Whether a progress bar is shown.

    Attributes
    ----------
    current_iter
        Number of iterations done: the number of the metrics row, the validation row and the checkpoint.
    metrics
        Figures of the last iteration: means over its episodes, see `Episodes.metrics`, and what the policy's `learn`
        returned; those of its validation under ``val/``, of a test under ``test/``.
    episodes, validation
        Figures of each episode of the last iteration's training and validation, without transitions.
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
        callbacks: Sequence[Callback] | None = None,
        finite_env_type: str = "native",
        concurrency: int = 1,
        actors: int = 0,
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
        if max_iters is not None and val_every_n_iters is not None and val_every_n_iters > max_iters:
            raise ConfigError(
                f"val_every_n_iters is {val_every_n_iters} and max_iters {max_iters}, so nothing would be validated; "
                f"validate every {max_iters} or fewer, or give none."
            )
        self.max_iters = max_iters
        self.val_every_n_iters = val_every_n_iters
        self.callbacks = sorted(callbacks or (), key=lambda callback: callback.rank)
        check_env_type(finite_env_type, concurrency, ENV_TYPES)
        self.finite_env_type = finite_env_type
        self.concurrency = concurrency
        if actors < 0:
            raise ConfigError(f"actors is {actors}; give the number of processes that collect, or 0 for none.")
        self.actors = actors
        self.fast_dev_run = fast_dev_run
        self.progress = progress
        self.current_iter = 0
        self.metrics: dict[str, float] = {}
        self.should_stop = False
        self.episodes: Episodes | None = None
        self.validation: Episodes | None = None
        self.vessel: TrainingVessel | None = None
        self._env: FiniteVectorEnv | None = None
        self._collecting: CollectingActors | None = None

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
        CheckpointError
            When the checkpoint is of a training of something else, naming what differs.
        InterpreterError
            When a part of the vessel breaks its contract in a trial episode.
        """
        self.vessel = vessel
        if self.max_iters is None and not any(callback.can_stop for callback in self.callbacks):
            raise ConfigError("max_iters is empty and no callback can stop the fit; set max_iters.")
        if self.val_every_n_iters is not None and vessel.val_seed_iterator() is None:
            raise ConfigError("val_every_n_iters is set but the vessel has no val_initial_states; give them.")
        self._check_watched(vessel, vessel.check_env())
        record = vessel.record()
        if ckpt_path is not None:
            state = load_checkpoint(Path(ckpt_path))
            check_record(recorded_in(state), record, f"the checkpoint {ckpt_path}", do=_TO_GO_ON)
            with restoring(ckpt_path):
                self.load_state_dict(state)
            if self.max_iters is not None and self.current_iter > self.max_iters:
                raise ConfigError(
                    f"max_iters is {self.max_iters}, but {ckpt_path} is of iteration {self.current_iter}; give at "
                    "least as many."
                )
        vessel.policy.trained_for = record
        self.should_stop &= not train_on
        self._tell(lambda callback: callback.on_fit_start(self, vessel))
        mode: Literal["bar", "none"] = "bar" if self.progress else "none"
        with Progress("iteration", self.max_iters, title="train", mode=mode, done=self.current_iter) as bar:
            self._then_close(lambda: self._iterate_until_done(vessel, bar))
        self._tell(lambda callback: callback.on_fit_end(self, vessel))

    @property
    def is_last_iter(self) -> bool:
        """Whether the iteration just done ends the fit."""
        return self.should_stop or self.current_iter == self.max_iters

    def test(self, vessel: TrainingVessel) -> Episodes:
        """Run the vessel's policy greedily on its test part."""
        self.vessel = vessel
        states = vessel.test_seed_iterator()
        if states is None:
            raise ConfigError("the vessel has no test_initial_states; give them to test.")
        self._tell(lambda callback: callback.on_test_start(self, vessel))
        episodes = self._then_close(lambda: self._run_greedily(vessel, states))
        self.metrics.update({f"test/{name}": value for name, value in episodes.summary().items()})
        self._tell(lambda callback: callback.on_test_end(self, vessel))
        return episodes

    def state_dict(self) -> dict[str, Any]:
        """Return all that an exact resume needs, in plain values and tensors."""
        return {
            "iteration": self.current_iter,
            "should_stop": self.should_stop,
            "metrics": {name: value for name, value in self.metrics.items() if name != "seconds"},
            "record": self._attached().record().as_dict(),
            "vessel": self._attached().state_dict(),
            "callbacks": {key: callback.state_dict() for key, callback in self._keyed_callbacks().items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken. Callbacks are matched by their key."""
        missing = sorted({"iteration", "should_stop", "metrics", "vessel", "callbacks"} - state.keys())
        if missing:
            raise CheckpointError(f"the checkpoint lacks {missing}; give one that a trainer has written.")
        self._attached().load_state_dict(state["vessel"])
        self.current_iter = int(state["iteration"])
        self.should_stop = bool(state["should_stop"])
        self.metrics = dict(state["metrics"])
        for key, callback in self._keyed_callbacks().items():
            if key in state["callbacks"]:
                callback.load_state_dict(state["callbacks"][key])

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

    def _tell(self, hook: Callable[[Callback], None]) -> None:
        for callback in self.callbacks:
            hook(callback)

    def _iterate_until_done(self, vessel: TrainingVessel, bar: Progress) -> None:
        # Also undoes what an interrupt within torch.no_grad leaves: gradients that are off for good.
        with torch.enable_grad():
            while not self.should_stop and (self.max_iters is None or self.current_iter < self.max_iters):
                self._iterate(vessel)
                bar.step(bar_figures(self.metrics))

    def _iterate(self, vessel: TrainingVessel) -> None:
        began = time.perf_counter()
        self._tell(lambda callback: callback.on_iter_start(self, vessel))
        self._tell(lambda callback: callback.on_train_start(self, vessel))
        number = self.current_iter + 1
        states = vessel.train_seed_iterator(_DEV_RUN_EPISODES if self.fast_dev_run else None)
        if self.actors:
            episodes = self._open_actors(vessel).collect(vessel, states, number)
            learnt = vessel.learn(episodes, states)
        else:
            episodes, learnt = vessel.train(self._open_env(vessel, states, vessel.env_seed(number)), number)
        self.episodes = episodes.without_transitions()
        self.metrics = {**episodes.summary(), "transitions": len(episodes.reward), **learnt}
        self.metrics["seconds"] = time.perf_counter() - began
        del episodes  # the transitions of two iterations need not be held at once
        self.current_iter = number
        self._tell(lambda callback: callback.on_train_end(self, vessel))
        self.validation = None
        if self.val_every_n_iters is not None and number % self.val_every_n_iters == 0:
            self._validate(vessel)
        self._tell(lambda callback: callback.on_iter_end(self, vessel))

    def _validate(self, vessel: TrainingVessel) -> None:
        states = vessel.val_seed_iterator()
        assert states is not None
        self._tell(lambda callback: callback.on_validate_start(self, vessel))
        self.validation = self._run_greedily(vessel, states)
        self.metrics.update({f"val/{name}": value for name, value in self.validation.summary().items()})
        self._tell(lambda callback: callback.on_validate_end(self, vessel))

    def _run_greedily(self, vessel: TrainingVessel, states: Sequence[Any]) -> Episodes:
        if self.fast_dev_run:
            states = take(states, np.arange(min(len(states), _DEV_RUN_EPISODES)))
        # Seed 0, as in `backtest`: judging the same weights again gives the same figures.
        return vessel.validate(self._open_env(vessel, states, 0))

    def _open_env(self, vessel: TrainingVessel, states: Sequence[Any], seed: int) -> FiniteVectorEnv:
        """Return the environment that serves all collects: starting a worker process takes about a second."""
        if self._env is None:
            kwargs = {"finite_env_type": self.finite_env_type, "concurrency": self.concurrency}
            self._env = vessel.make_env(states, **kwargs)
        self._env.initial_states, self._env.seed = states, seed
        return self._env

    def _open_actors(self, vessel: TrainingVessel) -> CollectingActors:
        if self._collecting is None:
            from rlwb.trainer.actors import CollectingActors

            self._collecting = CollectingActors(vessel, self.actors)
        return self._collecting

    def _then_close(self, work: Callable[[], T]) -> T:
        try:
            try:
                return work()
            finally:
                self._close_env()
        finally:
            self._close_env()  # for a second interrupt, which came before the first call had begun

    def _close_env(self) -> None:
        with uninterrupted():
            opened, self._env, self._collecting = (self._env, self._collecting), None, None
            for one in opened:
                if one is not None:
                    one.close()

    def _check_watched(self, vessel: TrainingVessel, episode: Mapping[str, float]) -> None:
        """Raise `ConfigError` for a callback that watches a figure which will not come; `episode` is one's figures."""
        collected = {*OF_ANY_COLLECT, *episode, *(f"{name}_count" for name in episode)}
        validated = set() if self.val_every_n_iters is None else {f"val/{name}" for name in collected}
        learnt = vessel.policy.figures
        given = {name for callback in self.callbacks for name in callback.gives}
        known = {*collected, *OF_TRAINING, *(learnt or ()), *validated, *given}
        for callback in self.callbacks:
            who, name = type(callback).__name__, callback.watches
            if name is None:
                continue
            if callback.can_stop and self.val_every_n_iters is None:
                raise ConfigError(f"{who} watches {name!r} at validations, but val_every_n_iters is empty; set it.")
            # Of a policy that does not say what it reports, only figures of validation are known before it has learnt.
            if name not in known and (learnt is not None or name.startswith("val/")):
                raise ConfigError(unknown_figure(who, name, known))


def bar_figures(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return the figures of a progress bar; a net PA stands in for one that it differs from."""
    shown = {}
    for name in ("reward", "pa", "val/pa"):
        net = f"{name}_net"
        best = net if net in metrics and metrics[net] != metrics.get(name) else name
        if best in metrics:
            shown[best] = f"{metrics[best]:.3g}"
    return shown
