"""Selection of checkpoints for the backtest: the best by validation PA, with a reason for each that is left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError, ConfigError, DataError
from rlwb.evaluation.results import PA_TITLES
from rlwb.reading import read_table


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with its validation PA in basis points, net of costs under rules that have them."""

    iteration: int
    path: Path
    validation_pa: float

    @property
    def policy(self) -> str:
        """The name of its results."""
        return f"checkpoint-{self.iteration:04d}"


@dataclass(frozen=True)
class Exclusion:
    """A checkpoint that could not be ranked or used; either the file or the validation row may not exist."""

    iteration: int | None
    path: Path | None
    reason: str
    is_damaged: bool = False

    def __str__(self) -> str:
        return f"{f'iteration {self.iteration}' if self.path is None else self.path.name}: {self.reason}"


@dataclass(frozen=True)
class Selection:
    """The selected checkpoints, and what was left out.

    Attributes
    ----------
    chosen
        Best first; at most `requested`.
    excluded
        Everything that dropped out for another reason than its rank, by iteration.
    requested
        How many were asked for.
    ranked
        How many checkpoints had a validation PA and a file, including damaged ones that were met: the N of "the best
        of N".
    metric
        The column that was ranked by, ``pa`` or ``pa_net``.
    candidates
        All that were ranked, best first, damaged ones among them.
    """

    chosen: tuple[Checkpoint, ...]
    excluded: tuple[Exclusion, ...]
    requested: int
    ranked: int
    metric: str = "pa"
    candidates: tuple[Checkpoint, ...] = ()

    def describe(self) -> str:
        """Return in a few lines what was selected and what was left out."""
        short = f" ({self.requested} were asked for)" if len(self.chosen) < self.requested else ""
        by = f"by validation {PA_TITLES.get(self.metric, self.metric)}"
        lines = [f"Chose n = {len(self.chosen)} of {self.ranked} validated checkpoints {by}{short}."]
        lines += [f"  iteration {c.iteration}: {c.validation_pa:.2f} bp" for c in self.chosen]
        if self.excluded:
            lines += [f"Left out {len(self.excluded)}:", *(f"  {item}" for item in self.excluded)]
        return "\n".join(lines)


def read_validation(path: Path, metric: str = "pa") -> pd.DataFrame:
    """Read ``metrics/validation.csv``: one row a validated iteration, with the column `metric`.

    Raises
    ------
    CheckpointError
        When there is none, because the run never validated.
    FileError
        When it is damaged.
    """
    if not path.exists():
        raise CheckpointError(f"{path} does not exist, so no checkpoint can be ranked; train with validation first.")
    return read_table(path, "iteration", numbers=["iteration", metric], is_numeric=True)


def select_checkpoints(
    validation: pd.DataFrame,
    folder: Path,
    *,
    count: int = 10,
    metric: str = "pa",
    check: Callable[[Path], object] = Path.stat,
) -> Selection:
    """Select the `count` checkpoints with the best validation PA.

    Equal PAs rank by iteration, the earlier first. A missing or infinite PA never ranks. Files are checked from the
    best downwards until `count` good ones are found, so a damaged file gives its place to the next.

    Parameters
    ----------
    validation
        One row a validated iteration with the columns `iteration` and `metric` (basis points).
    folder
        Holds the files ``0001.pt``, ``0002.pt``, … named by iteration.
    metric
        The column to rank by: ``pa``, or ``pa_net`` under rules with costs.
    check
        Opens a file and raises `CheckpointError` or `OSError` if it is damaged; what it returns is ignored. Without it
        a file need only exist.

    Raises
    ------
    CheckpointError
        If not a single checkpoint can be used.
    """
    if count < 1:
        raise ConfigError(f"count is {count}; ask for at least one checkpoint.")
    pas = _ranked_pas(validation, metric)
    if not folder.is_dir():
        raise CheckpointError(f"The checkpoint folder {folder} does not exist; train first or name the right run.")
    paths = sorted(folder.glob("[!.]*.pt"))  # a kill may leave half a file under a hidden name
    files = {int(path.stem): path for path in paths if path.stem.isdecimal()}
    excluded = [Exclusion(None, path, "its name is not an iteration") for path in paths if path not in files.values()]
    excluded += [Exclusion(i, path, "it has no validation PA row") for i, path in files.items() if i not in pas]
    missing = [i for i, pa in pas.items() if math.isnan(pa)]
    excluded += [Exclusion(i, files.get(i), "its validation PA is missing") for i in missing]
    validated = [i for i in pas if i not in missing]
    excluded += [Exclusion(i, None, f"{folder} holds no file of it") for i in validated if i not in files]
    ranked = [i for i in validated if i in files]
    chosen: list[Checkpoint] = []
    for iteration in ranked:
        if len(chosen) == count:
            break
        try:
            check(files[iteration])
        except (CheckpointError, OSError) as error:
            excluded.append(Exclusion(iteration, files[iteration], f"it is damaged: {error}", is_damaged=True))
        else:
            chosen.append(Checkpoint(iteration, files[iteration], pas[iteration]))

    excluded.sort(key=lambda item: (item.iteration is None, item.iteration or 0, str(item.path)))
    if not chosen:
        why = "; ".join(map(str, excluded[:3])) or "none was validated"
        raise CheckpointError(f"No checkpoint in {folder} can be chosen ({why}); train again with validation.")
    candidates = tuple(Checkpoint(one, files[one], pas[one]) for one in ranked)
    return Selection(tuple(chosen), tuple(excluded), count, len(ranked), metric, candidates)


def spread(candidates: Sequence[Checkpoint], most: int) -> tuple[Checkpoint, ...]:
    """Return at most `most` checkpoints evenly over the training, by iteration, the first and the last among them."""
    ordered = sorted(candidates, key=lambda one: one.iteration)
    places = np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int)
    return tuple(ordered[place] for place in np.unique(places))


def _ranked_pas(validation: pd.DataFrame, metric: str) -> dict[int, float]:
    """Return iteration to validation PA, best first, those without a PA (NaN) last."""
    for column in ("iteration", metric):
        if column not in validation:
            raise DataError(f"The validation metrics lack the column {column!r}; they have {list(validation)}.")
    rows = validation[["iteration", metric]].apply(pd.to_numeric, errors="coerce").drop_duplicates()
    if rows["iteration"].isna().any():
        raise DataError("The validation metrics hold a row without an iteration number; restore the file.")
    twice = rows.loc[rows["iteration"].duplicated(), "iteration"]
    if len(twice):
        raise DataError(
            f"The validation metrics give iteration {twice.iloc[0]} two different PAs; "
            "they mix two runs: keep the rows of one."
        )
    rows = rows.astype({"iteration": int, metric: float}).replace({metric: [np.inf, -np.inf]}, np.nan)
    rows = rows.sort_values([metric, "iteration"], ascending=[False, True])
    return dict(zip(rows["iteration"].tolist(), rows[metric].tolist(), strict=True))
