"""Log writers to the console and to CSV files."""

from __future__ import annotations

import csv
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from rlwb.env.logs import LogLevel, LogWriter, Means
from rlwb.errors import ConfigError
from rlwb.files import atomic_path


class ConsoleWriter(LogWriter):
    """Prints ``name latest (mean over the collect)`` every few episodes.

    Parameters
    ----------
    log_every_n_episode
        Print after each such number of episodes.
    total_episodes
        Shown beside the count, and printed when reached, if known.
    prefix
        Text at the start of each line.
    stream
        Where to print; None is the standard output of the moment.
    """

    def __init__(
        self,
        log_every_n_episode: int = 20,
        total_episodes: int | None = None,
        prefix: str = "",
        float_format: str = ".4f",
        loglevel: int | LogLevel = LogLevel.PERIODIC,
        stream: TextIO | None = None,
    ) -> None:
        if log_every_n_episode < 1:
            raise ConfigError(f"log_every_n_episode is {log_every_n_episode}; give a number of episodes >= 1.")
        self.log_every_n_episode = log_every_n_episode
        self.total_episodes = total_episodes
        self.prefix = prefix
        self.float_format = float_format
        self.stream = stream
        super().__init__(loglevel)

    def clear(self) -> None:
        super().clear()
        self._means = Means()

    def log_episode(self, length: int, rewards: list[float], contents: list[dict[str, Any]]) -> None:
        values = self.episode_values(length, rewards, contents)
        self._means.add(values)
        if self.episode_count % self.log_every_n_episode == 0 or self.episode_count == self.total_episodes:
            stream = self.stream or sys.stdout
            stream.write(self.message(values) + "\n")
            stream.flush()

    def message(self, values: Mapping[str, float]) -> str:
        """Return the line for an episode with these values."""
        count = (
            str(self.episode_count) if self.total_episodes is None else f"{self.episode_count}/{self.total_episodes}"
        )
        parts = [f"{name} {self._text(value)} ({self._text(self._means[name])})" for name, value in values.items()]
        return "  ".join([*([self.prefix] if self.prefix else []), f"[{count}]", *parts])

    def _text(self, value: float) -> str:
        return "missing" if math.isnan(value) else format(value, self.float_format)


class CsvWriter(LogWriter):
    """Writes one table a collect: ``episodes-000001.csv``, ``episodes-000002.csv``, …, one row an episode.

    Columns are episode (since the writer was made, from 0), length, reward, then every logged number or text in order
    of first appearance. A missing value is an empty cell. Each file appears whole. A new writer in a folder with files
    goes on behind the last one; a resumed one goes on behind the collect at which its state was taken.

    Parameters
    ----------
    output_dir
        The folder; it and its parents are made.
    """

    def __init__(self, output_dir: str | Path, loglevel: int | LogLevel = LogLevel.PERIODIC) -> None:
        self.output_dir = Path(output_dir)
        self.output_dir.mkdir(parents=True, exist_ok=True)
        names = (re.fullmatch(r"episodes-(\d+)\.csv", path.name) for path in self.output_dir.iterdir())
        self.collect = max((int(name[1]) for name in names if name), default=0)
        self._rows: list[dict[str, Any]] = []
        super().__init__(loglevel)

    def log_episode(self, length: int, rewards: list[float], contents: list[dict[str, Any]]) -> None:
        texts: dict[str, str] = {}
        for step in contents:
            for name, value in step.items():
                if isinstance(value, str):
                    texts.setdefault(name, value)
        values = self.episode_values(length, rewards, contents)
        row = {"episode": self.global_episode - 1, "length": length, "reward": values["reward"]}
        self._rows.append(row | {name: value for name, value in values.items() if name not in row} | texts)

    def on_env_all_ready(self) -> None:
        # The collect before was cut off: what it had logged is kept in a table of its own.
        self._write()
        super().on_env_all_ready()

    def on_env_all_done(self) -> None:
        self._write()

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"collect": self.collect}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.collect = int(state_dict["collect"])
        self._rows = []

    def _write(self) -> None:
        if not self._rows:
            return
        columns = list(dict.fromkeys(name for row in self._rows for name in row))
        with (
            atomic_path(self.output_dir / f"episodes-{self.collect + 1:06d}.csv") as path,
            path.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in self._rows:
                writer.writerow(["" if self._missing(row.get(name)) else row[name] for name in columns])
        self.collect += 1
        self._rows = []

    @staticmethod
    def _missing(value: Any) -> bool:
        return value is None or (isinstance(value, float) and math.isnan(value))
