"""Hyper-parameter search: Optuna chooses settings, trials train or trade with them, validation judges.

One directory holds one search. What is searched are studies in it: the learner, and rules beside it, each with as many
trials. Several worker processes, each a command ``rlwb search-worker``, take trials from one file.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.feasible import check_feasible
from rlwb.experiment.layers import Layer
from rlwb.experiment.notebook import progress_mode
from rlwb.experiment.own_code import require_trust, trust
from rlwb.experiment.pipeline import check_config, stop_on_terminate
from rlwb.experiment.run import RunDirectory, broken_seal, command, default_run_directory, now, short_path, write_sealed
from rlwb.experiment.yamlfile import read_yaml
from rlwb.files import atomic_path, locked, write_json
from rlwb.parts import Part
from rlwb.progress import Progress as Shown
from rlwb.reading import read_json
from rlwb.study.launch import Job, Launcher, Progress, make_launcher, run_jobs
from rlwb.study.space import LEARNER, Space, rule_index
from rlwb.study.store import SearchSettings, Store, is_dead
from rlwb.values import reason, shown

if TYPE_CHECKING:
    from optuna import Trial
    from optuna.trial import FrozenTrial

    from rlwb.study.search_report import SearchReport
    from rlwb.study.trial import Found, Rules

Echo = Callable[[str], None]

MEMORY = "search.yaml"
"""File with the settings that a search was begun with."""

#: Trials from the first on whose failure, all of them, ends a search: their settings are hardly at fault.
_ALL_FAIL = 5
#: Times that workers are started until all trials are done.
_ROUNDS = 3
#: Seconds between two looks at what trials have ended.
_LOOK = 1.0
#: Least time between two lines that say how far the trials are, in seconds.
_LINE_SECONDS = 60.0


@dataclass(frozen=True)
class Fresh:
    """A trial that is done again on a seed that its search has not seen."""

    study: str
    number: int
    seed: int

    @property
    def name(self) -> str:
        """Name of its files."""
        return f"{self.study}-{self.number:06d}-seed-{self.seed}"


class Search:
    """A search in its directory.

    Attributes
    ----------
    folder
        The directory, absolute.
    settings
        How it goes.
    space
        What is searched, with the configuration around it.
    """

    def __init__(self, folder: Path, settings: SearchSettings, space: Space) -> None:
        self.folder = folder.expanduser().resolve()
        self.settings = settings
        self.space = space

    @classmethod
    def open(cls, folder: Path) -> Search:
        """Return the search in a directory; a `ConfigError` where there is none, or its memory was changed."""
        path = folder / MEMORY
        if not path.is_file():
            raise ConfigError(f"{folder} holds no search; correct the path, or begin one there without --resume.")
        if fault := broken_seal(path):
            raise ConfigError(f"{path} is not as the search wrote it ({fault}); begin the search in another folder.")
        known = read_yaml(path)
        layers = [Layer(one["origin"], one["values"], Path(one["base"])) for one in known["layers"]]
        settings = SearchSettings.model_validate(
            {**known["settings"], "objectives": tuple(known["settings"]["objectives"])}
        )
        return cls(folder, settings, Space.read(layers))

    def save(self) -> None:
        """Write what the search goes by."""
        layers = [
            {"origin": one.origin, "values": dict(one.values), "base": str(one.base.absolute())}
            for one in self.space.layers
        ]
        known = {"settings": self.settings.model_dump(mode="json"), "layers": layers}
        write_sealed(self.folder / MEMORY, known)

    def is_begun(self) -> bool:
        """Tell whether its directory has what it goes by."""
        return (self.folder / MEMORY).is_file()

    @cached_property
    def config(self) -> RunConfig:
        """The configuration, with the values that stand beside the spaces."""
        return self.space.config()

    @cached_property
    def studies(self) -> list[str]:
        """Names of all that is searched: rules as in tables, then the learner."""
        return self.space.studies()

    @cached_property
    def store(self) -> Store:
        """The studies."""
        dimensions = {name: self.space.of(name) for name in self.studies}
        return Store(self.settings, dimensions, self.config.seed, self.folder, self.config.train.iterations)

    def begin(self) -> None:
        """Make the studies; each begins with the configuration's own values, or has the cells of its grid."""
        for name in self.studies:
            own = self.space.own(name)
            is_grid = self.settings.sampler == "grid"
            first = self.space.grid(name, self.settings.trials) if is_grid else [own] if own else []
            self.store.begin(name, first)

    def chosen(self, name: str, trial: Trial | FrozenTrial) -> dict[str, Any]:
        """Return the settings of a trial by their places."""
        return {one.name: one.value(trial.params[one.name]) for one in self.space.of(name)}

    def config_of(self, name: str, number: int, *, seed: int | None = None) -> RunConfig:
        """Return the configuration of a trial."""
        return self.space.config(self.chosen(name, self.store.trials(name)[number]), seed=seed)

    def orders(self, seed: int) -> RunDirectory:
        """Return the run whose orders all trials of a seed share; they are made when they are first asked for."""
        from rlwb.study.trial import shared_orders

        return shared_orders(self.folder / "orders", self.space.config(seed=seed))

    @cached_property
    def _rules(self) -> dict[int, Rules]:
        return {}

    def rules(self, seed: int) -> Rules:
        """Return what judges rules on the orders of a seed."""
        from rlwb.study.trial import Rules

        return self._rules.setdefault(seed, Rules(self.orders(seed)))

    def trial_path(self, number: int) -> Path:
        """Return the directory of a trial of the learner."""
        return self.folder / "trials" / f"{number:06d}"

    def terms_path(self, name: str, number: int) -> Path:
        """Return the file of what each validation order gave in a trial."""
        return self.folder / "validation" / f"{name}-{number:06d}.npy"

    def terms(self, name: str, number: int) -> np.ndarray | None:
        """Return what each validation order gave in a trial, float64 of shape (orders,) in basis points."""
        path = self.terms_path(name, number)
        return np.load(path, allow_pickle=False) if path.is_file() else None

    def counted(self, name: str) -> list[FrozenTrial]:
        """Return the trials that were looked at: all that were begun, but those whose worker died."""
        from optuna.trial import TrialState

        return [one for one in self.store.trials(name) if one.state is not TrialState.WAITING and not is_dead(one)]

    def given_up(self, name: str) -> list[FrozenTrial]:
        """Return the trials whose worker died and whose settings, for the second time, are not tried again."""
        trials = self.store.trials(name)
        again = {one.user_attrs.get("again_of") for one in trials}
        return [one for one in trials if is_dead(one) and one.number not in again]

    def best(self, name: str, count: int) -> list[FrozenTrial]:
        """Return the best trials that were seen to their end, best first; of two objectives, those that none passes.

        Of several with the same settings one stands for all.
        """
        from optuna.trial import TrialState

        trials = [one for one in self.store.trials(name) if one.state is TrialState.COMPLETE]
        if len(self.settings.objectives) > 1:
            trials = self.store.study(name).best_trials
        trials = sorted(trials, key=lambda one: (-one.values[0], one.number))
        distinct: list[FrozenTrial] = []
        for one in trials:
            if one.params not in [other.params for other in distinct]:
                distinct.append(one)
        return distinct[:count]

    def candidates(self, name: str) -> list[FrozenTrial]:
        """Return what is done again on fresh seeds: the best trials, and that of the configuration's own values."""
        best, own = self.best(name, self.settings.confirm), self.space.own(name)
        known = [one for one in self.best(name, self.settings.trials) if own and one.params == own]
        return [*best, *(one for one in known if best and one.number not in [other.number for other in best])]

    def fresh(self) -> list[Fresh]:
        """Return what is done again on fresh seeds, trial by trial and seed by seed."""
        seeds = range(self.config.seed + 1, self.config.seed + 1 + self.settings.fresh_seeds)
        return [
            Fresh(name, one.number, seed) for name in self.studies for one in self.candidates(name) for seed in seeds
        ]

    def fresh_figures(self, one: Fresh) -> dict[str, Any] | None:
        """Return what a trial gave on a fresh seed; None where it is not done."""
        path = self.fresh_path(one)
        return read_json(path) if path.is_file() else None

    def fresh_path(self, one: Fresh) -> Path:
        """Return the file of what a trial gave on a fresh seed."""
        return self.folder / "fresh" / f"{one.name}.json"

    @property
    def test_path(self) -> Path:
        """The file of what the winner gave on test orders."""
        return self.folder / "test.json"

    def how_to_resume(self) -> str:
        """Return the command that goes on with the search."""
        return command("search", "--resume", "--run-dir", short_path(self.folder))

    def check_any(self, name: str) -> None:
        """Refuse a study whose first trials have all failed, with the reason of the first."""
        ended = [one for one in self.counted(name) if one.state.is_finished()]
        errors = [one.user_attrs.get("error") for one in ended]
        if errors and all(errors) and len(errors) >= min(_ALL_FAIL, self.settings.trials):
            raise RlwbError(
                f"all {len(errors)} trials of {name} so far have failed, the first by: {errors[0]} Correct that and go "
                "on in another folder."
            )


def work(folder: Path, *, echo: Echo = print) -> None:
    """Take trials of a search and do them until there are none: what ``rlwb search-worker`` does."""
    stop_on_terminate()
    search = Search.open(folder)
    with search.store.worker() as worker:
        for name in search.studies:
            search.check_any(name)
            while (trial := search.store.take(name, worker)) is not None:
                _do(search, name, trial, echo)
                search.check_any(name)


def _do(search: Search, name: str, trial: Trial, echo: Echo) -> None:
    """Do a trial, and note what it found or how it failed."""
    from rlwb.study.trial import Pruned

    began, told, values = time.monotonic(), dict[str, Any](), None
    found: Found | None
    pruned = False
    try:
        found = _found(search, name, trial)
        values = [found.figures[one] for one in search.settings.objectives]
        if not np.isfinite(values).all():
            raise RlwbError(f"its figures are {values}; nothing can be said of them.")
    except Pruned as error:
        found, pruned = error.found, True
    except KeyboardInterrupt:
        search.store.note_stop(trial)
        raise
    except RlwbError as error:
        found, values, told["error"] = None, None, str(error)
    except Exception as error:  # one trial's fault is not that of the others
        echo(traceback.format_exc())
        found, values, told["error"] = None, None, f"{type(error).__name__}: {error}"
    if found is not None:
        told |= {"figures": found.figures, "iteration": found.iteration, "iterations": max(found.history, default=None)}
        with atomic_path(search.terms_path(name, trial.number)) as target:
            np.save(target, found.terms)
    seconds = round(time.monotonic() - began, 2)
    search.store.finish(name, trial, values, pruned=pruned, seconds=seconds, **told)
    echo(f"{name} {trial.number}: {told.get('error') or values or 'pruned'}")


def _found(search: Search, name: str, trial: Trial) -> Found:
    from rlwb.study.trial import train_trial

    config = search.space.config(search.chosen(name, trial))
    if name != LEARNER:
        return search.rules(config.seed).judge(config, _index(search, name))
    path, before = search.trial_path(trial.number), trial.user_attrs.get("again_of")
    if before is not None and search.trial_path(before).exists() and not path.exists():
        search.trial_path(before).rename(path)  # its training goes on where it stopped

    def report(iteration: int, value: float) -> bool:
        trial.report(value, iteration)
        return trial.should_prune()

    is_single = len(search.settings.objectives) == 1
    return train_trial(path, config, search.orders(config.seed), report if is_single else None)


def _index(search: Search, name: str) -> int:
    """Return which of the baselines a study of a rule is of."""
    index = rule_index(search.space.of(name)[0].name)
    assert index is not None
    return index


def work_again(folder: Path, *, echo: Echo = print) -> None:
    """Do the best trials again on fresh seeds, judged by validation, leaving those that other workers have begun.

    The figures of each go to ``fresh/``.
    """
    stop_on_terminate()
    search = Search.open(folder)
    for one in search.fresh():
        with suppress(BlockingIOError), locked(search.folder / "fresh" / f".{one.name}.lock"):
            if search.fresh_figures(one) is None:
                _do_again(search, one)
                echo(f"{one.name}: done")


def _do_again(search: Search, one: Fresh) -> None:
    from rlwb.study.trial import train_trial

    config = search.config_of(one.study, one.number, seed=one.seed)
    if one.study == LEARNER:
        found = train_trial(search.folder / "fresh" / one.name, config, search.orders(one.seed))
    else:
        found = search.rules(one.seed).judge(config, _index(search, one.study))
    known = {"study": one.study, "trial": one.number, "seed": one.seed, "iteration": found.iteration}
    write_json(search.fresh_path(one), {**known, "figures": found.figures})


def judge_once(folder: Path, winners: Mapping[str, int]) -> None:
    """Judge the winner of each study, as it is on the fresh seeds, on the test orders of these seeds."""
    from rlwb.experiment.backtest import checkpoint_policy, choose_checkpoints, play
    from rlwb.experiment.ledger import day_hashes, ledger_of, note, settings_hashes
    from rlwb.experiment.orders import load_orders, workbench

    stop_on_terminate()
    search, rows, looks = Search.open(folder), [], []
    for one in search.fresh():
        if winners.get(one.study) != one.number:
            continue
        config, orders = search.config_of(one.study, one.number, seed=one.seed), search.orders(one.seed)
        run = RunDirectory(search.folder / "fresh" / one.name)
        bench = workbench(run, config)
        table = load_orders(orders, bench, "test")
        whole, seedless = settings_hashes(run, config)
        days = day_hashes(bench.sessions, table["date"])
        looks.append(note(ledger_of(run), run.path, days, by="search", config=whole, settings=seedless))
        if one.study == LEARNER:
            batch = bench.align(table, bench.objective.middle)
            playable = checkpoint_policy(bench, choose_checkpoints(run, config).chosen[0].path)
            value = bench.validation_figures(batch, play(bench, playable, batch))[config.judged_by]
        else:
            value = search.rules(one.seed).judge(config, _index(search, one.study), "test").figures["pa"]
        rows.append({"study": one.study, "trial": one.number, "seed": one.seed, "pa": float(value)})
    last = max(looks, key=lambda look: look["look"], default=None)
    write_json(search.test_path, {"at": now(), "rows": rows, "look": last})


def launch_search(
    config_file: Path | None,
    changes: Sequence[str],
    folder: Path | None,
    *,
    rules: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
    workers: int | None = None,
    launcher: Part | str = "processes",
    resume: bool = False,
    test: bool = False,
    trust_code: bool = False,
    echo: Echo = print,
) -> SearchReport:
    """Do what ``rlwb search`` asks for: search in a new folder, or go on in one.

    Parameters
    ----------
    config_file, changes
        The configuration with its spaces; None for the defaults, and assignments on top.
    folder
        The search's directory; None makes one under ``runs/``.
    rules
        Baselines that are tuned beside the learner, each with as many trials.
    given
        Settings by name (`SearchSettings`); what is missing or None is as the search was begun, or the default.
    workers, launcher
        Worker processes, and what starts them (`rlwb.study.launch.make_launcher`).
    resume
        Go on with the search in `folder`; more trials may be asked for.
    test
        Judge the winner on the test orders, once.
    trust_code
        Run the code that a resumed search names, wherever it is from.
    """
    said = {name: value for name, value in (given or {}).items() if value is not None}
    if resume:
        if folder is None:
            raise ConfigError("--resume needs the search to go on with; name its directory with --run-dir.")
        if config_file or changes or rules:
            raise ConfigError(
                "a search goes on with the configuration that it was begun with; drop CONFIG, --set and --baseline."
            )
        search = _resumed(Search.open(folder), said)
        require_trust(search.config, given=trust_code)
        check_config(search.config)
    else:
        layers = [] if config_file is None else [_layer(config_file)]
        search = _new([*layers, parse_assignments(changes)], folder, rules, said, echo)
        trust(search.config)
    if test and not search.settings.confirm:
        raise ConfigError("--test judges the winner as it is on fresh seeds; give --confirm and --fresh-seeds too.")
    stop_on_terminate()
    try:
        report = run_search(search, workers=workers, launcher=launcher, test=test, echo=echo)
    except BaseException:
        if search.is_begun():
            echo(f"What is done is kept. Go on with: {search.how_to_resume()}")
        raise
    echo(report.to_markdown())
    return report


def open_or_begin(
    folder: str | Path, layers: Sequence[Layer], rules: Sequence[str] = (), given: Mapping[str, Any] | None = None
) -> Search:
    """Return the search in a folder, or a new one for it, of a configuration and of settings of `SearchSettings`.

    A search that is there and is of another configuration is a `ConfigError`; more trials may be asked for.
    """
    folder, said = Path(folder), {name: value for name, value in (given or {}).items() if value is not None}
    if not (folder / MEMORY).is_file():
        return _new(layers, folder, rules, said, print)
    search, space = Search.open(folder), Space.read(layers, rules)
    if (search.config, search.space.dimensions) != (space.config(), space.dimensions):
        raise ConfigError(f"{folder} holds a search of another configuration or space; name another folder.")
    return _resumed(search, said)


def run_search(
    search: Search,
    *,
    workers: int | None = None,
    launcher: Part | str = "processes",
    test: bool = False,
    echo: Echo = print,
) -> SearchReport:
    """See a search through and return what it found; what is done is not done again (see `launch_search`)."""
    with ExitStack() as held:
        one = held.enter_context(make_launcher(launcher, workers=workers, threads=search.config.threads))
        search.folder.mkdir(parents=True, exist_ok=True)
        echo(f"search: {search.folder}")
        try:
            held.enter_context(locked(search.folder / ".lock"))
        except BlockingIOError:
            raise ConfigError(
                f"another process searches in {search.folder}; wait for it or choose another directory."
            ) from None
        search.save()
        return _see_through(search, one, test=test, echo=echo)


def _settings(values: Mapping[str, Any]) -> SearchSettings:
    """Return settings, checked; a `ConfigError` names the option."""
    values = {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}
    for name, value in values.items():
        try:
            SearchSettings.model_validate({name: value})
        except ValidationError as error:
            raise ConfigError(f"--{name.replace('_', '-')} is {shown(value)}; {reason(error.errors())}") from None
    many = len(values.get("objectives", ())) > 1
    made = SearchSettings.model_validate({**({"pruner": "none"} if many else {}), **values})
    made.check()
    return made


def _layer(file: Path) -> Layer:
    return Layer(str(file), read_yaml(file), file.absolute().parent)


def _new(
    layers: Sequence[Layer], folder: Path | None, rules: Sequence[str], said: Mapping[str, Any], echo: Echo
) -> Search:
    settings = _settings(said)
    space = Space.read(layers, rules)
    if not space.dimensions:
        raise ConfigError(
            "there is nothing to search; write a space beside a value, as --set "
            "'algorithm.learning_rate={value: 0.001, search: {low: 0.0001, high: 0.01, log: true}}', or tune a rule, "
            "as --baseline pov."
        )
    config = space.config()
    check_config(config)
    space.check()
    if config.split.rolling is not None:
        raise ConfigError(
            "split.rolling makes a run of each window; search on one split, and run what was found over them."
        )
    if settings.sampler == "grid":
        for name in space.studies():
            space.grid(name, settings.trials)
    if (
        folder is not None
        and folder.exists()
        and (not folder.is_dir() or any(one.name != ".lock" for one in folder.iterdir()))
    ):
        instead = f"go on there with {command('search', '--resume', '--run-dir', short_path(folder.absolute()))}"
        other = "choose another directory"
        raise ConfigError(f"{folder} holds something already; {instead if (folder / MEMORY).is_file() else other}.")
    check_feasible(config, folder)
    for refusal in space.refusals(lambda one: check_feasible(one, folder)):
        echo(f"warning: {refusal} Trials of it beside the others' own values will fail.")
    folder = folder or default_run_directory("search")
    return Search(folder, settings, space)


def _resumed(search: Search, said: Mapping[str, Any]) -> Search:
    before = search.settings.model_dump(mode="json")
    for name in ("sampler", "pruner", "objectives", "storage"):
        if name in said and list(said[name]) != list(before[name]):
            raise ConfigError(f"--{name}: the search was begun with {before[name]}; begin another for {said[name]}.")
    settings = _settings({**before, **said})
    if search.test_path.exists() and settings != search.settings:
        raise ConfigError("the winners of this search were judged on the test orders already; begin another search.")
    if settings.trials < search.settings.trials:
        raise ConfigError(
            f"--trials {settings.trials}: the search was begun with {search.settings.trials}; give as many or more."
        )
    if settings.sampler == "grid" and settings.trials != search.settings.trials:
        raise ConfigError("--trials: a grid has the cells that it was begun with; begin another search.")
    return Search(search.folder, settings, search.space)


def _see_through(search: Search, launcher: Launcher, *, test: bool, echo: Echo) -> SearchReport:
    """Do all trials, the best again on fresh seeds, and the test if it is asked for; write the report."""
    from rlwb.study.search_report import write_report

    for name in search.studies:
        echo(f"{name}: " + "; ".join(f"{one.name} {one.describe()}" for one in search.space.of(name)))
    search.orders(search.config.seed)
    search.begin()
    _do_trials(search, launcher, echo)
    for name in search.studies:
        search.check_any(name)
    report = write_report(search)
    todo = [one for one in search.fresh() if search.fresh_figures(one) is None]
    if todo:
        echo(f"fresh seeds: {len(todo)} to do")
        jobs = [_job(search, f"again-{number + 1}", "--again") for number in range(min(launcher.workers, len(todo)))]
        _run(search, launcher, jobs, echo)
        report = write_report(search)
    if test and not search.test_path.exists():
        words = [word for name, number in report.winners.items() for word in ("--winner", f"{name}={number}")]
        echo(f"test orders, once: {', '.join(report.winners)}")
        _run(search, launcher, [_job(search, "test", "--test", *words)], echo)
        report = write_report(search)
    return report


def _do_trials(search: Search, launcher: Launcher, echo: Echo) -> None:
    """Let workers do all trials; trials that died at the very end are done by workers of another round."""
    told: set[tuple[str, int]] = set()
    for _ in range(_ROUNDS):
        for name, number in search.store.mend_all():
            echo(f"{name} {number}: its worker died; its settings are tried again")
        if all(search.store.is_done(name) for name in search.studies):
            return
        jobs = [_job(search, f"worker-{number + 1}") for number in range(launcher.workers)]
        total, mode = len(search.studies) * search.settings.trials, progress_mode()
        with Shown("trial", total, title="search", mode=mode, done=len(told), echo=echo, every=_LINE_SECONDS) as shown:
            looked = 0.0

            def tell() -> None:
                for line in _news(search, told):
                    shown.note(line)
                    shown.step(_best(search))

            def look(now: Progress) -> None:
                nonlocal looked
                if time.monotonic() - looked >= _LOOK:
                    looked = time.monotonic()
                    tell()

            outcomes = list(run_jobs(launcher, jobs, progress=look))
            tell()
        for name in search.studies:
            search.check_any(name)
        if all(not one.is_done for one in outcomes):
            raise RlwbError(f"no worker could go on ({outcomes[0].describe()}): {_last_line(outcomes[0].job.log)}")
    search.store.mend_all()


def _news(search: Search, told: set[tuple[str, int]]) -> Iterator[str]:
    """Yield a line for each trial that has ended since the last time."""
    for name in search.studies:
        trials = search.counted(name)
        for one in trials:
            if not one.state.is_finished() or (name, one.number) in told:
                continue
            told.add((name, one.number))
            values = [other.values[0] for other in trials if other.values and other.state.name == "COMPLETE"]
            best = f", best {max(values):z.2f}" if values else ""
            said = f"{one.values[0]:z.2f} bp" if one.state.name == "COMPLETE" else one.state.name.lower()
            error = one.user_attrs.get("error")
            done = sum(other.state.is_finished() for other in trials)
            said = f"failed: {error}" if error else said
            yield f"{name} {one.number}: {said} ({done} of {search.settings.trials}{best})"


def _best(search: Search) -> dict[str, str]:
    """Return the best value so far of what is searched first, the learner where there is one."""
    values = [one.values[0] for one in search.counted(next(iter(search.studies))) if one.values]
    return {"best": f"{max(values):z.2f} bp"} if values else {}


def _job(search: Search, name: str, *words: str) -> Job:
    log = search.folder / "logs" / f"{name}.txt"
    return Job(name, ("search-worker", str(search.folder), *words), log, search.config.threads)


def _run(search: Search, launcher: Launcher, jobs: Sequence[Job], echo: Echo) -> None:
    """Run jobs that do trials again, and refuse to go on where one has failed twice."""
    told: set[str] = set()

    def look(now: Progress) -> None:
        for one in search.fresh():
            if one.name not in told and search.fresh_path(one).is_file():
                told.add(one.name)
                figures = search.fresh_figures(one) or {}
                echo(f"{one.study} {one.number}, seed {one.seed}: {figures['figures']['pa']:z.2f} bp")

    told |= {one.name for one in search.fresh() if search.fresh_path(one).is_file()}
    failed = [one for one in run_jobs(launcher, jobs, progress=look) if not one.is_done]
    if failed:
        raise RlwbError(f"{failed[0].job.name} failed ({failed[0].describe()}): {_last_line(failed[0].job.log)}")


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return f"{lines[-1].removeprefix('rlwb: ')} ({log})" if lines else f"its log is {log}."
