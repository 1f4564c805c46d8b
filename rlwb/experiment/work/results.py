"""The tables of a backtest, written and read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from rlwb.errors import CheckpointError
from rlwb.experiment.run import RunDirectory
from rlwb.files import atomic_path

if TYPE_CHECKING:
    from rlwb.evaluation import PolicyResult


def write_result(folder: Path, result: PolicyResult) -> None:
    """Write a policy's order table and, where it has one, its inventory below the folder ``backtest``."""
    with atomic_path(folder / "orders" / f"{result.policy}.parquet") as path:
        result.orders.to_parquet(path, index=False)
    if result.inventory is None:
        return
    with atomic_path(folder / "inventory" / f"{result.policy}.npy") as path, path.open("wb") as file:
        np.save(file, np.asarray(result.inventory, dtype=np.float32))


def read_results(run: RunDirectory) -> list[PolicyResult]:
    """Return the backtest's results, in the order of its summary.

    Raises
    ------
    CheckpointError
        When the run has no backtest.
    """
    from rlwb.evaluation import PolicyResult

    summary = run.backtest / "summary.csv"
    if not summary.is_file():
        raise CheckpointError(f"{run.path.name} has no backtest yet; run the stage backtest first.")
    results = []
    for row in pd.read_csv(summary).itertuples():
        orders = pd.read_parquet(run.backtest / "orders" / f"{row.policy}.parquet")
        path = run.backtest / "inventory" / f"{row.policy}.npy"
        inventory = np.load(path) if path.is_file() else None
        iteration = None if pd.isna(row.iteration) else int(row.iteration)
        results.append(PolicyResult(row.policy, row.kind, orders, iteration, row.validation_pa, inventory))
    return results
