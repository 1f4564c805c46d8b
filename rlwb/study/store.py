"""Studies of Optuna in one file that several processes share: who takes which trial, what was found, what died."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rlwb.errors import ConfigError
from rlwb.experiment.config import Count, CountOrZero, Section
from rlwb.files import is_locked, locked
from rlwb.packages import require_packages
from rlwb.seeds import derived_seed
from rlwb.study.space import Dimension

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

OBJECTIVES = {"pa": "maximize", "std": "minimize"}
"""Name of an objective to its direction; ``pa`` stands for the figure that checkpoints are chosen by."""

#: Trials that are seen to their end before a pruner compares.
_STARTUP = 5


class SearchSettings(Section):
    """The settings of a search beside its spaces.

    Parameters
    ----------
    trials
        Settings that are tried, of the learner and of each rule alike.
    sampler
        What chooses them: ``grid``, ``random``, ``tpe`` (tree-structured Parzen estimators) or ``gp`` (a Gaussian
        process).
    pruner
        What ends a training early whose validation is worse than that of others at the same iteration: ``median``,
        ``hyperband`` or ``none``.
    objectives
        ``pa``, or ``pa`` and ``std``: the second is the standard deviation of single orders' PA against arrival, which
        is to be small.
    storage
        File of the studies: ``journal`` or ``sqlite``.
    confirm
        Best trials of each study that are done again on fresh seeds; 0 for none.
    fresh_seeds
        How many of these.
    """

    trials: Count = 50
    sampler: Literal["grid", "random", "tpe", "gp"] = "tpe"
    pruner: Literal["median", "hyperband", "none"] = "median"
    objectives: tuple[Literal["pa", "std"], ...] = ("pa",)
    storage: Literal["journal", "sqlite"] = "journal"
    confirm: CountOrZero = 3
    fresh_seeds: CountOrZero = 5

    def check(self) -> None:
        """Refuse settings that do not go together."""
        if self.objectives not in (("pa",), ("pa", "std")):
            raise ConfigError(f"--objectives {','.join(self.objectives)}: give pa, or pa,std.")
        if len(self.objectives) > 1 and self.pruner != "none":
            raise ConfigError(f"--pruner {self.pruner}: with two objectives no trial can be pruned; give none.")
        if bool(self.confirm) != bool(self.fresh_seeds):
            raise ConfigError("--confirm and --fresh-seeds go together: give both 1 or more, or both 0.")


class _FileLock:
    """A lock on the journal that the system lets go of with its process; what a kill left of a line goes."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._held = ExitStack()

    def acquire(self) -> bool:
        self._held.enter_context(locked(self._journal.with_suffix(".lock"), wait=True))
        with self._journal.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            if size and (file.seek(size - 1), file.read(1))[1] != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        return True

    def release(self) -> None:
        self._held.close()


class Store:
    """The studies of a search.

    Parameters
    ----------
    settings
        How the search goes.
    studies
        Name of each study to the dimensions of its space.
    seed
        Of the samplers. What a trial is given follows from this seed, the trial's number and the trials that have ended
        before, so one worker repeats a search exactly.
    folder
        Where the file is; None keeps the studies in memory.
    iterations
        Of a whole training, for the pruner.
    """

    def __init__(
        self,
        settings: SearchSettings,
        studies: Mapping[str, Sequence[Dimension]],
        seed: int,
        folder: Path | None = None,
        iterations: int = 1,
    ) -> None:
        require_packages("a search", "search", "optuna")
        self.settings = settings
        self.dimensions = {name: tuple(dimensions) for name, dimensions in studies.items()}
        self.seed = seed
        self.folder = folder
        self.iterations = iterations
        self._studies: dict[str, Study] = {}

    @cached_property
    def _storage(self) -> BaseStorage:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if self.folder is None:
            return optuna.storages.InMemoryStorage()
        if self.settings.storage == "sqlite":
            url = f"sqlite:///{self.folder / 'studies.db'}"
            return optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 120}})
        from optuna.storages.journal import JournalFileBackend, JournalStorage

        path = self.folder / "studies.log"
        lock: Any = _FileLock(path)  # whatever has acquire and release serves
        return JournalStorage(JournalFileBackend(str(path), lock))

    def begin(self, name: str, first: Sequence[Mapping[str, Any]] = ()) -> None:
        """Make a study unless it is there; it begins with the settings of `first`."""
        import optuna

        with self._alone():
            if name in optuna.get_all_study_names(self._storage):
                return
            directions = [OBJECTIVES[one] for one in self.settings.objectives]
            study = optuna.create_study(study_name=name, storage=self._storage, directions=directions)
            for one in first[: self.settings.trials]:
                study.enqueue_trial(dict(one))

    def study(self, name: str) -> Study:
        """Return a study that was begun."""
        import optuna

        if name not in self._studies:
            study = optuna.load_study(study_name=name, storage=self._storage, sampler=self._sampler(name, 0))
            study.pruner = self._pruner()
            self._studies[name] = study
        return self._studies[name]

    def take(self, name: str, worker: str | None = None) -> Trial | None:
        """Return a trial to do, its settings chosen; None when there are as many as there are to be.

        A trial whose worker has died does not count, and its settings are given out once more.
        """
        from optuna.trial import TrialState

        with self._alone():
            self.mend(name)
            study = self.study(name)
            trials = study.get_trials(deepcopy=False)
            waiting = [one for one in trials if one.state is TrialState.WAITING]
            begun = [one for one in trials if one.state is not TrialState.WAITING and not is_dead(one)]
            if not waiting and (len(begun) >= self.settings.trials or self.settings.sampler == "grid"):
                return None
            number = waiting[0].number if waiting else len(trials)
            study.sampler = self._sampler(name, number)
            trial = study.ask({one.name: one.distribution() for one in self.dimensions[name]})
            if worker is not None:
                trial.set_user_attr("worker", worker)
            return trial

    def finish(
        self, name: str, trial: Trial, values: Sequence[float] | None, *, pruned: bool = False, **told: Any
    ) -> None:
        """Note how a trial ended, and what else is to be `told` of it; without values it has failed."""
        from optuna.trial import TrialState

        for key, value in told.items():
            trial.set_user_attr(key, value)
        state = TrialState.PRUNED if pruned else TrialState.FAIL if values is None else TrialState.COMPLETE
        self.study(name).tell(trial.number, None if values is None or pruned else list(values), state=state)

    def note_stop(self, trial: Trial) -> None:
        """Note that a trial was stopped on purpose, which is not held against its settings (see `mend`)."""
        trial.set_user_attr("stopped", True)

    def mend(self, name: str) -> list[int]:
        """Mark trials as failed whose worker has died, and give their settings out again; return their numbers.

        Settings whose second worker died too are given up, since they may be why; being stopped counts for nothing.
        """
        from optuna.trial import TrialState

        if self.folder is None:
            return []
        study, dead = self.study(name), []
        for one in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            worker = one.user_attrs.get("worker")
            if worker is not None and is_locked(self._worker_lock(worker)):
                continue
            study.tell(one.number, state=TrialState.FAIL)
            dead.append(one.number)
            if one.params and ("again_of" not in one.user_attrs or one.user_attrs.get("stopped")):
                study.enqueue_trial(one.params, user_attrs={"again_of": one.number})
        return dead

    def mend_all(self) -> list[tuple[str, int]]:
        """Do as `mend` in all studies; return study and number of the trials that had died."""
        with self._alone():
            return [(name, number) for name in self.dimensions for number in self.mend(name)]

    def is_done(self, name: str) -> bool:
        """Tell whether a study has all its trials, and none of them runs."""
        from optuna.trial import TrialState

        trials = self.trials(name)
        open_ones = [one for one in trials if not one.state.is_finished()]
        counted = [one for one in trials if one.state is not TrialState.WAITING and not is_dead(one)]
        return not open_ones and (len(counted) >= self.settings.trials or self.settings.sampler == "grid")

    def trials(self, name: str) -> list[FrozenTrial]:
        """Return all trials of a study by number, dead ones and those that wait among them."""
        return self.study(name).get_trials(deepcopy=False)

    @contextmanager
    def worker(self) -> Iterator[str]:
        """Yield the name of a worker, by whose lock others know that it lives."""
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        path = self._worker_lock(name)
        with locked(path):
            try:
                yield name
            finally:
                path.unlink(missing_ok=True)

    def _worker_lock(self, name: str) -> Path:
        assert self.folder is not None
        return self.folder / "workers" / f"{name}.lock"

    def _alone(self) -> Any:
        """Hold the studies, so that no two processes give out the same number or count what the other begins."""
        return nullcontext() if self.folder is None else locked(self.folder / ".take.lock", wait=True)

    def _sampler(self, name: str, number: int) -> BaseSampler:
        """Return a sampler for one trial, whose random numbers follow from the seed and the number alone."""
        from optuna import samplers

        seed = derived_seed(self.seed, list(self.dimensions).index(name), number)
        kind = self.settings.sampler
        if kind == "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True)
        if kind == "gp":
            return samplers.GPSampler(seed=seed, warn_independent_sampling=False)
        return samplers.RandomSampler(seed=seed)  # the cells of a grid are given out one by one

    def _pruner(self) -> BasePruner:
        from optuna import pruners

        if self.settings.pruner == "median":
            warm = max(1, self.iterations // 4)
            return pruners.MedianPruner(n_startup_trials=_STARTUP, n_warmup_steps=warm)
        if self.settings.pruner == "hyperband":
            least = max(1, self.iterations // 9)
            return pruners.HyperbandPruner(min_resource=least, max_resource=self.iterations)
        return pruners.NopPruner()


def is_dead(trial: FrozenTrial) -> bool:
    """Tell whether a trial ended because its worker did: one that fails by itself says by which error."""
    from optuna.trial import TrialState

    return trial.state is TrialState.FAIL and "error" not in trial.user_attrs


def maximise(
    function: Callable[[dict[str, Any]], float],
    dimensions: Sequence[Dimension],
    settings: SearchSettings,
    seed: int,
    first: Sequence[Mapping[str, Any]] = (),
) -> list[float]:
    """Return the values of a function at the settings that a search of one worker tries, in their order."""
    store = Store(settings, {"function": dimensions}, seed)
    store.begin("function", first)
    values = []
    while (trial := store.take("function")) is not None:
        chosen = {one.name: one.value(trial.params[one.name]) for one in dimensions}
        values.append(float(function(chosen)))
        store.finish("function", trial, [values[-1]])
    return values
