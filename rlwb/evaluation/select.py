"""Which checkpoints go on to the backtest: the best by validation PA, and why the others do not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rlwb.errors import CheckpointError, ConfigError, DataError
from rlwb.evaluation.results import PA_TITLES


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint with the PA, net under rules with costs, that it had on the validation orders, in basis points."""

    iteration: int
    path: Path
    validation_pa: float

    @property
    def policy(self) -> str:
        """The name its results go by."""
        return f"checkpoint-{self.iteration:04d}"


@dataclass(frozen=True)
class Exclusion:
    """A checkpoint that could not be ranked or used; either the file or the validation row may not exist."""

    iteration: int | None
    path: Path | None
    reason: str


@dataclass(frozen=True)
class Selection:
    """The outcome of choosing.

    Attributes
    ----------
    chosen
        Best first; at most `requested`.
    excluded
        Everything that dropped out for another reason than its rank, by iteration.
    requested
        How many were asked for.
    ranked
        How many checkpoints had a validation PA and a file, damaged ones that were met included: the
        N of "the best of N".
    figure
        The column that was chosen by, ``pa`` or ``pa_net``.
    """

    chosen: tuple[Checkpoint, ...]
    excluded: tuple[Exclusion, ...]
    requested: int
    ranked: int
    figure: str = "pa"

    def describe(self) -> str:
        """Say in a few lines what was chosen and what was left out."""
        short = f" ({self.requested} were asked for)" if len(self.chosen) < self.requested else ""
        by = f"by validation {PA_TITLES.get(self.figure, self.figure)}"
        lines = [f"Chose n = {len(self.chosen)} of {self.ranked} validated checkpoints {by}{short}."]
        lines += [f"  iteration {c.iteration}: {c.validation_pa:.2f} bp" for c in self.chosen]
        if self.excluded:
            lines.append(f"Left out {len(self.excluded)}:")
            lines += [f"  {_name(item)}: {item.reason}" for item in self.excluded]
        return "\n".join(lines)


def read_validation(path: Path) -> pd.DataFrame:
    """Read ``metrics/validation.csv``; a run that never validated has none and is refused."""
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist, so no checkpoint can be ranked; train with validation first.")
    try:
        return pd.read_csv(path)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as CSV ({error}); restore it or train again.") from error


def select_checkpoints(
    validation: pd.DataFrame,
    folder: Path,
    *,
    count: int = 10,
    figure: str = "pa",
    check: Callable[[Path], object] | None = None,
) -> Selection:
    """Choose the `count` checkpoints with the best validation PA.

    Equal PAs rank by iteration, the earlier first. A missing or infinite PA never ranks. Files are checked from
    the best downwards until `count` good ones are found, so a damaged file costs its place to the next.

    Parameters
    ----------
    validation
        One row a validated iteration with the columns `iteration` and `figure` (basis points).
    folder
        Holds the files ``0001.pt``, ``0002.pt``, … named by iteration.
    figure
        The column to choose by: ``pa``, or ``pa_net`` under rules with costs.
    check
        Opens a file and raises `CheckpointError` if it is damaged; what it returns is ignored.

    Raises
    ------
    CheckpointError
        If not a single checkpoint can be used.
    """
    if count < 1:
        raise ConfigError(f"count is {count}; ask for at least one checkpoint.")
    pas = _validation_pas(validation, figure)
    files, excluded = _checkpoint_files(folder)
    excluded += [Exclusion(i, files[i], "it has no validation PA row") for i in files if i not in pas]

    candidates = []
    for iteration, pa in pas.items():
        if not math.isfinite(pa):
            excluded.append(Exclusion(iteration, files.get(iteration), "its validation PA is missing"))
        elif iteration not in files:
            excluded.append(Exclusion(iteration, None, f"{folder} holds no file of it"))
        else:
            candidates.append(Checkpoint(iteration, files[iteration], pa))
    candidates.sort(key=lambda checkpoint: (-checkpoint.validation_pa, checkpoint.iteration))

    chosen: list[Checkpoint] = []
    for checkpoint in candidates:
        if len(chosen) == count:
            break
        damage = _damage(checkpoint.path, check)
        if damage is None:
            chosen.append(checkpoint)
        else:
            excluded.append(Exclusion(checkpoint.iteration, checkpoint.path, damage))

    excluded.sort(key=lambda item: (item.iteration is None, item.iteration or 0, str(item.path)))
    if not chosen:
        why = "; ".join(f"{_name(item)}: {item.reason}" for item in excluded[:3]) or "none was validated"
        raise CheckpointError(f"No checkpoint in {folder} can be chosen ({why}); train again with validation.")
    return Selection(tuple(chosen), tuple(excluded), count, len(candidates), figure)


def _validation_pas(validation: pd.DataFrame, figure: str) -> dict[int, float]:
    for column in ("iteration", figure):
        if column not in validation:
            raise DataError(f"The validation metrics lack the column {column!r}; they have {list(validation)}.")
    rows = validation[["iteration", figure]].rename(columns={figure: "pa"})
    rows = rows.apply(pd.to_numeric, errors="coerce").drop_duplicates()
    if rows["iteration"].isna().any():
        raise DataError("The validation metrics hold a row without an iteration number; restore the file.")
    twice = rows.loc[rows["iteration"].duplicated(), "iteration"]
    if len(twice):
        raise DataError(
            f"The validation metrics give iteration {twice.iloc[0]} two different PAs; "
            "they mix two runs: keep the rows of one."
        )
    return {int(row.iteration): float(row.pa) for row in rows.sort_values("iteration").itertuples()}


def _checkpoint_files(folder: Path) -> tuple[dict[int, Path], list[Exclusion]]:
    if not folder.is_dir():
        raise CheckpointError(f"The checkpoint folder {folder} does not exist; train first or name the right run.")
    files: dict[int, Path] = {}
    excluded = []
    for path in sorted(folder.glob("*.pt")):
        if path.stem == "latest" or path.name.startswith("."):  # a kill may leave half a file under a hidden name
            continue
        if not path.stem.isdecimal():
            excluded.append(Exclusion(None, path, "its name is not an iteration"))
        elif int(path.stem) in files:
            excluded.append(Exclusion(int(path.stem), path, f"{files[int(path.stem)].name} has the same iteration"))
        else:
            files[int(path.stem)] = path
    return files, excluded


def _damage(path: Path, check: Callable[[Path], object] | None) -> str | None:
    if not path.is_file():
        return "it is no file, or a link to nothing"
    if path.stat().st_size == 0:
        return "the file is empty"
    if check is None:
        return None
    try:
        check(path)
    except CheckpointError as error:
        return f"it is damaged: {error}"
    return None


def _name(item: Exclusion) -> str:
    return f"iteration {item.iteration}" if item.path is None else item.path.name
