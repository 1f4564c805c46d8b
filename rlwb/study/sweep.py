"""``rlwb sweep``: whole runs of many seeds and settings side by side, and what they say together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.feasible import check_feasible
from rlwb.experiment.folder import RunsFolder
from rlwb.experiment.layers import Layer
from rlwb.experiment.notebook import progress_mode
from rlwb.experiment.own_code import keep_code, require_trust
from rlwb.experiment.pipeline import check_config, require_trust_of_kept, stop_on_terminate
from rlwb.experiment.run import RunDirectory, default_run_directory, last_iteration
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN
from rlwb.experiment.watch import headline_pa
from rlwb.files import locked
from rlwb.parts import Part
from rlwb.study.collect import Collected, collect
from rlwb.study.launch import Job, Launcher, Outcome, Progress, make_launcher, run_jobs
from rlwb.study.members import Setting, Sweep, is_done, make_settings, parse_grid, parse_seeds

Echo = Callable[[str], None]

#: Seconds between two lines that say how far the members are, where nobody watches a bar.
LINE_SECONDS = 30.0
_STAGES = (ORDERS, TRAIN, BACKTEST)
_DEFAULT_SEEDS = "10"


def sweep_folder(path: Path) -> RunsFolder:
    """Return the folder of a sweep."""
    return RunsFolder(path, "sweep", "sweep", "CONFIG, --seeds, --grid and --set")


def remembered_sweep(path: Path) -> Sweep:
    """Return the sweep that a folder was begun with; a `ConfigError` where there is none."""
    here = sweep_folder(path)
    known = here.remembered()
    settings = tuple(
        Setting(one["name"], RunConfig.load(None, Layer(str(here.memory), one["config"], path)), one["grid"])
        for one in known["settings"]
    )
    return Sweep(settings, tuple(known["seeds"]), known["asked"])


def launch_sweep(
    config_file: Path | None,
    changes: Sequence[str],
    folder: Path | None,
    *,
    seeds: str | None = None,
    grid: Sequence[str] = (),
    workers: int | None = None,
    launcher: Part | str = "processes",
    attempts: int = 2,
    resume: bool = False,
    trust_code: bool = False,
    echo: Echo = print,
) -> Collected:
    """Do what ``rlwb sweep`` asks for: run all members in a new folder, or go on in one, and collect them.

    Parameters
    ----------
    config_file, changes
        As for ``rlwb run``: what all members share.
    folder
        None makes one under ``runs/``.
    seeds, grid
        What ``--seeds`` and each ``--grid`` say; a sweep that is resumed without any words is that which was begun, and
        with seeds alone has these. Without seeds it has those that it was begun with.
    workers, launcher
        Members at a time, and what starts them.
    attempts
        How often a member is tried until it counts as failed.

    Returns
    -------
    Collected
        The tables of the members that are done, and those that failed.
    """
    if resume and folder is None:
        raise ConfigError("--resume needs the sweep to go on with; name its directory with --run-dir.")
    if folder is not None and resume and not (config_file or changes or grid):
        sweep = remembered_sweep(folder)
        if seeds is not None:
            sweep = Sweep(sweep.settings, parse_seeds(seeds), {**sweep.asked, "seeds": seeds})
    else:
        if folder is not None and resume:
            here = sweep_folder(folder)
            here.refuse_nothing()
            seeds = here.remembered()["asked"]["seeds"] if seeds is None else seeds
        file = str(config_file.absolute()) if config_file else None
        seeds = _DEFAULT_SEEDS if seeds is None else seeds
        settings = make_settings(config_file, parse_assignments(changes), parse_grid(grid))
        asked = {"file": file, "set": list(changes), "grid": list(grid), "seeds": seeds}
        sweep = Sweep(tuple(settings), parse_seeds(seeds), asked)
    if folder is not None and not resume:
        sweep_folder(folder).refuse_taken()
    for one in sweep.settings:
        if resume:
            require_trust(one.config, given=trust_code)
        check_config(one.config)
    for run in sweep_folder(folder).runs.values() if folder is not None and resume else ():
        require_trust_of_kept(run, given=trust_code)  # members are told not to ask
    threads = max(one.config.threads for one in sweep.settings)
    with make_launcher(launcher, workers=workers, threads=threads) as started:
        if not resume:
            for one in sweep.settings:
                check_feasible(one.config, folder)
        folder = (folder or default_run_directory("sweep")).expanduser().absolute()
        here = sweep_folder(folder)
        here.refuse_others({name: one.of_seed(seed) for name, (one, seed) in sweep.members.items()}, _STAGES)
        echo(f"sweep: {folder}")
        stop_on_terminate()
        try:
            return run_sweep(folder, sweep, started, attempts=attempts, echo=echo)
        except BaseException as error:
            is_input = isinstance(error, RlwbError) and type(error) is not RlwbError
            correct = "Correct what is wrong, in the input or in these words. " if is_input else ""
            echo(f"{correct}What is finished is kept. Go on with: {here.resume(sweep.words() if is_input else ())}")
            raise


def run_sweep(
    folder: Path,
    sweep: Sweep,
    launcher: Launcher,
    *,
    attempts: int = 2,
    echo: Echo = print,
) -> Collected:
    """Run the members of a sweep that are not done, and write its tables and its page.

    Each member is the run in the folder of its name; ``logs/`` has what it printed, and ``sweep.yaml`` what the sweep
    was begun with. A member that fails is tried again, up to `attempts` times in all; the others go on.
    """
    here = sweep_folder(folder)
    try:
        with locked(folder / ".lock"):
            settings = [
                {"name": one.name, "grid": dict(one.grid), "config": keep_code(one.config, folder)}
                for one in sweep.settings
            ]
            here.remember({"settings": settings, "seeds": list(sweep.seeds), "asked": dict(sweep.asked)})
            jobs = _jobs(folder, sweep)
            kept = len(sweep.members) - len(jobs)
            told = f"; {kept} are done already" if kept else ""
            plural = "s" if len(sweep.members) != 1 else ""
            echo(f"{len(sweep.members)} member{plural}, {launcher.workers} at a time{told}")
            outcomes: list[Outcome] = []
            with _View(folder, sweep, kept, echo) as view:
                outcomes.extend(run_jobs(launcher, jobs, attempts=attempts, progress=view))
            return collect(folder, sweep, outcomes)
    except BlockingIOError:
        raise ConfigError(f"another process works on {folder}; wait for it or choose another directory.") from None


def _jobs(folder: Path, sweep: Sweep) -> list[Job]:
    """Make the runs of the members that there are none of; return the jobs of those that are not done."""
    jobs = []
    for name, (setting, seed) in sweep.members.items():
        config, run = setting.of_seed(seed), RunDirectory(folder / name)
        if is_done(run):
            continue
        if not run.is_run():
            run = RunDirectory.create(run.path, config)
        elif run.state == "failed":  # and its settings may have been corrected
            run.save_config(config)
        words = ("run", "--resume", "--trust-code", "--run-dir", str(run.path))
        jobs.append(Job(name, words, folder / "logs" / f"{name}.txt", config.threads))
    return jobs


class _View:
    """Shows how far the members are: by a bar where someone watches, else by lines."""

    def __init__(self, folder: Path, sweep: Sweep, kept: int, echo: Echo) -> None:
        from tqdm.auto import tqdm

        self._folder, self._echo, self._kept = folder, echo, kept
        self._members = sweep.members
        is_drawn = progress_mode() == "bar" and len(self._members) > kept
        self._bar = tqdm(total=len(self._members), initial=kept, desc="sweep", unit=" run", disable=not is_drawn)
        self._told, self._last = set[str](), time.monotonic()

    def __enter__(self) -> _View:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def __call__(self, now: Progress) -> None:
        for one in now.ended:
            if one.job.name not in self._told:
                self._told.add(one.job.name)
                self._bar.update(1)
                self._say(self._ended(one))
        moment = time.monotonic()
        if moment - self._last < (1.0 if not self._bar.disable else LINE_SECONDS):
            return
        self._last = moment
        running = ", ".join(f"{job.name} {self._where(job.name)}" for job in now.running)
        failed = f"; {len(now.failed)} failed" if now.failed else ""
        if self._bar.disable:
            self._echo(f"running: {running}{failed}")
        else:
            self._bar.set_postfix_str(f"{running}{failed}")

    def _say(self, line: str) -> None:
        with self._bar.external_write_mode():
            self._echo(line)

    def _ended(self, one: Outcome) -> str:
        how = "done" if one.is_done and len(one.exits) == 1 else one.describe()
        count = f"({self._kept + len(self._told)} of {len(self._members)})"
        if not one.is_done:
            return f"{one.job.name}: failed ({how}); what it printed is in {one.job.log} {count}"
        mean = (headline_pa(RunDirectory(self._folder / one.job.name)) or {}).get("mean")
        figure = "" if mean is None else f", PA {mean:z.2f} bp"
        return f"{one.job.name}: {how} in {one.seconds:.0f} s{figure} {count}"

    def _where(self, name: str) -> str:
        """Return the stage that a member is in, and of a training its iteration."""
        run = RunDirectory(self._folder / name)
        try:
            stages = run.status["stages"]
        except (OSError, RlwbError):  # it is being written
            return "(starting)"
        stage = next((key for key, one in stages.items() if one.get("state") == "running"), None)
        if stage == TRAIN.name:
            iterations = self._members[name][0].config.train.iterations
            return f"(iteration {last_iteration(run.checkpoints)} of {iterations})"
        return f"({stage})" if stage else "(starting)"
