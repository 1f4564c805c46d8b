"""``rlwb rerun``: a run repeated in a new directory from its own configuration and code, and compared file by file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.compare import do_stages
from rlwb.experiment.config import RunConfig
from rlwb.experiment.diff import Change, made_differently
from rlwb.experiment.layers import Layer, leaves, parse_assignments, value_at
from rlwb.experiment.ledger import keep_look
from rlwb.experiment.likeness import FileLikeness, compare_runs, folded
from rlwb.experiment.origin import COPIES
from rlwb.experiment.own_code import require_trust
from rlwb.experiment.pipeline import check_config, run_pipeline, stop_on_terminate
from rlwb.experiment.policies import kept_policies, require_trust_of_policies
from rlwb.experiment.rolling import windows_of
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import STABILITY, STAGES
from rlwb.experiment.verify import find_runs
from rlwb.files import strict_json

HOW = ("threads", "train.env", "train.concurrency", "train.device")
"""Parameters that say how a run is computed, and not what."""

#: What runs are made with, and what other things of the kind may do to a result.
_TOPICS = {"packages": "packages", "machine": "machine", "code": "rlwb", "data": "data"}


@dataclass(frozen=True)
class Repetition:
    """A run, its repetition, and how alike they are.

    Attributes
    ----------
    run, again
        The directories of both.
    files
        Each file of them, compared.
    made
        What the second was not made alike with, by topic: packages, machine, rlwb's code, data.
    """

    run: Path
    again: Path
    files: tuple[FileLikeness, ...]
    made: Mapping[str, tuple[Change, ...]]

    @property
    def agrees(self) -> bool:
        """Whether all results are the same, up to rounding of 1e-9."""
        return all(one.agrees for one in self.files if one.is_result)

    def lines(self) -> Iterator[str]:
        """Yield the findings as people read them."""
        yield from folded(self.files)
        yield from self._circumstances()
        yield f"{self.run}: {self._sum()}"

    def _circumstances(self) -> Iterator[str]:
        for topic, said in _TOPICS.items():
            for change in self.made[topic][:8]:
                yield f"other {said}, {change.name}: {change.told('the first time', 'now')}"
        alike = [said for topic, said in _TOPICS.items() if not self.made[topic]]
        if alike:
            yield f"made with the same {', '.join(alike)}"

    def _sum(self) -> str:
        """Return the verdict over all files in a sentence."""
        results = [one for one in self.files if one.is_result and one.verdict != "other"]
        equal = [one for one in results if one.verdict in ("same", "times", "record")]
        rounded = [one for one in results if one.verdict in ("equal", "rounded")]
        other = [one for one in results if not one.agrees]
        timed = [one.file for one in results if one.verdict == "times"]
        said = [f"measured times in {', '.join(timed)}"] if timed else []
        said += ["the record of settings in checkpoints"] if any(one.verdict == "record" for one in results) else []
        but = f" (but for {' and '.join(said)})" if said else ""
        on = (
            f"on another {'processor' if _is_other_processor(self.made) else 'machine'}: "
            if self.made["machine"]
            else ""
        )
        if not rounded and not other:
            return f"{on}all {len(results)} files of results are the same, bit for bit{but}"
        parts = [f"{on}{len(equal)} of {len(results)} files of results are the same, bit for bit{but}"]
        parts += [f"{len(rounded)} equal in every value up to rounding (1e-9)"] if rounded else []
        parts += [f"{len(other)} differ{_furthest(other)}"] if other else []
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        made = {topic: [vars(one) for one in changes] for topic, changes in self.made.items()}
        files = [one.as_dict() for one in self.files]
        return {"agrees": self.agrees, "run": str(self.run), "again": str(self.again), "made": made, "files": files}


def _is_other_processor(made: Mapping[str, Sequence[Change]]) -> bool:
    return any(change.name in ("processor", "model") for change in made["machine"])


def _furthest(files: Sequence[FileLikeness]) -> str:
    """Say by how much the values of files differ at most, checkpoints apart from tables."""
    told = []
    for what, is_kind in (("tables", False), ("checkpoints", True)):
        chosen = [one for one in files if one.file.endswith(".pt") is is_kind]
        measured = [(one.largest.largest, one) for one in chosen if one.largest is not None]
        if measured:
            by, worst = max(measured, key=lambda pair: pair[0])
            assert worst.largest is not None
            told.append(f"{what} by {by:.2g} at most ({worst.file}, {worst.largest.name})")
    return f": {', '.join(told)}" if told else ""


def launch_rerun(
    path: Path,
    changes: Sequence[str] = (),
    run_dir: Path | None = None,
    *,
    as_json_text: bool = False,
    trust_code: bool = False,
    echo: Callable[[str], None] = print,
    progress: Callable[[str], None] = print,
) -> bool:
    """Do what ``rlwb rerun`` asks for: repeat the run in `path` in another directory; return whether the results agree.

    Parameters
    ----------
    changes
        Assignments ``name=value`` of what should not change the result (`HOW`).
    run_dir
        Where the repetition goes; None makes a directory beside the run.
    as_json_text
        Whether the findings are JSON.
    trust_code
        Run the code that the run names, wherever it is from.
    echo, progress
        What takes the lines of the findings, and those of the work.
    """
    run = repeatable(path)
    config = repeated(run, parse_assignments(changes))
    require_trust(config, given=trust_code)
    require_trust_of_policies(kept_policies(run), given=trust_code)
    check_config(config)
    again = begin_rerun(run, config, run_dir)
    progress(f"rerun: {again.path}")
    stop_on_terminate()
    try:
        repeat(run, again, config, progress)
    except BaseException:
        progress(f"What is done is kept in {again.path}. {again.how_to_resume('interrupted')}")
        raise
    found = compared(run, again)
    if as_json_text:
        echo(strict_json(found.as_dict()))
    else:
        for line in found.lines():
            echo(line)
    return found.agrees


def repeatable(path: Path) -> RunDirectory:
    """Return the run in a directory, to be repeated.

    Raises
    ------
    ConfigError
        For a folder of runs, and for a run that is not finished.
    """
    run = RunDirectory(path)
    if not run.is_run():
        if runs := find_runs(path):
            names = ", ".join(one.path.name for one in runs[:4])
            raise ConfigError(f"{path} is a folder of {len(runs)} runs; name the directory of one: {names}.")
        RunDirectory.open(path)
    if run.state == "running":
        raise ConfigError(f"another process works on {run.path}; repeat the run when it is done.")
    stages = run.status["stages"]
    if not stages or any(one.get("state") != "finished" for one in stages.values()):
        raise ConfigError(f"{run.path} is not finished ({run.describe()}); there is nothing to compare with yet.")
    return run


def repeated(run: RunDirectory, *changes: Layer) -> RunConfig:
    """Return the configuration of a repetition: the run's own, with `changes` of `HOW`; others are a `ConfigError`."""
    config = run.load_config(*changes)
    for name in leaves(config.as_dict()):
        if name not in HOW and value_at(config.as_dict(), name) != value_at(run.config.as_dict(), name):
            raise ConfigError(
                f"{name} is another setting, so the result would be that of another run; a repetition can change no "
                f"more than {', '.join(HOW)}."
            )
    return config.model_copy(update={"trackers": ()})  # a repetition is a check, not another result


def begin_rerun(run: RunDirectory, config: RunConfig, run_dir: Path | None = None) -> RunDirectory:
    """Make the directory of a repetition; that of an evaluation gets copies of what it judges."""

    def fill(again: RunDirectory) -> None:
        for name in (one for one in COPIES if run.origin is not None and (run.path / one).is_dir()):
            shutil.copytree(run.path / name, again.path / name, symlinks=True)
        keep_look(run, again)

    return RunDirectory.create(run_dir or _beside(run), config, fill)


def repeat(run: RunDirectory, again: RunDirectory, config: RunConfig, echo: Callable[[str], None] = print) -> None:
    """Do the stages that `run` did once more in `again`, told by notebooks if they were told by notebooks there."""
    first = next(iter(windows_of(run)), run)
    stages = [stage for stage in STAGES if first.stage(stage.name)]
    if first.notebooks.is_dir():
        own = None if config.split.rolling is not None else stages
        run_pipeline(again, config, stages=own, echo=echo)
    else:
        do_stages(again, config, echo, stages=[stage for stage in stages if stage is not STABILITY])


def compared(run: RunDirectory, again: RunDirectory) -> Repetition:
    """Compare a run with its repetition, file by file, and what they were made with."""
    made = made_differently(run.manifest, again.manifest)
    return Repetition(run.path, again.path, tuple(compare_runs(run, again)), made)


def _beside(run: RunDirectory) -> Path:
    """Return a new path beside a run, named after it."""
    names = (f"{run.path.name}-rerun{'' if number == 1 else f'-{number}'}" for number in count(1))
    return next(path for name in names if not (path := run.path.parent / name).exists())
