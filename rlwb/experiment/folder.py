"""A folder of many runs, such as a comparison or a sweep, that remembers what it was begun with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.rolling import windows_of
from rlwb.experiment.run import RunDirectory, broken_seal, command, short_path, write_sealed
from rlwb.experiment.stages import Stage, differences, settings_of
from rlwb.experiment.yamlfile import read_yaml
from rlwb.files import is_temporary


@dataclass(frozen=True)
class RunsFolder:
    """A folder with a run in a folder of its own for each member, and a sealed file of what it was begun with.

    Attributes
    ----------
    path
        The folder.
    kind
        What it is called, for example ``comparison``; the file is ``<kind>.yaml``.
    verb
        The command that makes one and goes on with it, for example ``compare``.
    words
        The options, beside CONFIG and --set, that say what is in it.
    """

    path: Path
    kind: str
    verb: str
    words: str

    @property
    def memory(self) -> Path:
        """The sealed file."""
        return self.path / f"{self.kind}.yaml"

    @property
    def runs(self) -> dict[str, RunDirectory]:
        """The runs by the names of their members."""
        return {path.parent.name: RunDirectory(path.parent) for path in sorted(self.path.glob("*/status.json"))}

    @property
    def is_ours(self) -> bool:
        """Whether one was begun here."""
        return self.memory.is_file() or bool(self.runs)

    def resume(self, words: Sequence[str] = ()) -> str:
        """Return the command that goes on with it, as it was begun or with other words."""
        return command(self.verb, *words, "--resume", "--run-dir", short_path(self.path))

    def remember(self, values: Mapping[str, Any]) -> None:
        """Write what it was begun with."""
        write_sealed(self.memory, values)

    def remembered(self) -> dict[str, Any]:
        """Return what it was begun with; a `ConfigError` where that is missing or not as it was written."""
        self.refuse_nothing()
        if fault := broken_seal(self.memory):
            raise ConfigError(
                f"{self.memory} is not as the {self.kind} wrote it ({fault}); give {self.words} as it was begun, and "
                "--resume."
            )
        return read_yaml(self.memory)

    def refuse_nothing(self) -> None:
        """Refuse to go on where none was begun."""
        if not self.is_ours:
            raise ConfigError(
                f"{self.path} holds no {self.kind}; correct the path, or begin one there without --resume."
            )

    def refuse_taken(self) -> None:
        """Refuse to begin one where something lies; what a killed beginning left is nothing."""
        if not self.path.exists() or self._is_begun_anew():
            return
        instead = f"go on there with {self.resume()}" if self.is_ours else "choose another directory"
        raise ConfigError(f"{self.path} holds something already; {instead}.")

    def _is_begun_anew(self) -> bool:
        return self.path.is_dir() and all(
            one.name in (".lock", "code", self.memory.name) or is_temporary(one.name) for one in self.path.iterdir()
        )

    def refuse_others(self, configs: Mapping[str, RunConfig], stages: Iterable[Stage]) -> None:
        """Refuse members and settings that would leave out, or do again, what the folder has."""
        runs, stages = self.runs, list(stages)
        own = f"leave them as they were, as {self.resume()} does, or begin another {self.kind} in another folder"
        if left := [name for name in runs if name not in configs]:
            raise ConfigError(f"the {self.kind} in {self.path} has {', '.join(left)} too; {own}.")
        for name, run in runs.items():
            walked = run.config if windows_of(run) and run.state != "failed" else None  # its windows have the stages
            for stage in stages:
                known = run.stage(stage.name)
                if walked is not None:
                    known = {"state": run.state, "settings": settings_of(stage, walked)}
                if known.get("state", "failed") == "failed":  # what failed may be corrected
                    continue
                if changes := differences(known["settings"], settings_of(stage, configs[name])):
                    raise ConfigError(
                        f"{name} in {self.path} was begun with other settings ({'; '.join(changes[:3])}); {own}."
                    )
