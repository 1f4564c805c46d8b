"""M09: every table that a run writes is tidy for whatever reads it: names for all columns, integers for counts."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from tests.experiment.test_work import tiny

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}

COUNTS = {
    *("n", "distinct", "orders", "days", "pa_missing", "iteration", "seed", "episodes", "transitions"),
    *("gradient_steps", "instruments", "num_steps", "left_out"),
}
TABLES = {
    *("orders/summary.csv", "orders/all.parquet", "metrics/train.csv", "metrics/validation.csv"),
    *("backtest/headline.csv", "backtest/summary.csv", "backtest/metrics.csv", "backtest/groups.csv"),
    "backtest/intervals.csv",
    *("backtest/frontier.csv", "backtest/costs.csv", "backtest/cost_groups.csv", "backtest/gap.csv"),
    *("backtest/orders/last.parquet", "backtest/orders/twap.parquet", "backtest/orders/hindsight.parquet"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny(**{"execution.rules.volume_limit": 0.05})  # so that there is a gap to tell, too
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "tiny", config)
    with recorded(run, list(WORK)):
        for stage, work in WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return run


def test_m09_columns_have_names_and_counts_are_integers(run: RunDirectory) -> None:
    found = {path.relative_to(run.path).as_posix(): path for path in run.path.rglob("*") if is_table(path)}
    assert found.keys() >= TABLES
    wrong = []
    for name, path in found.items():
        schema = (pa.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)).schema
        frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        assert isinstance(frame.index, pd.RangeIndex), f"{name} has an index that other readers do not know"
        for column in frame.columns:
            if not str(column).strip() or str(column).startswith(("Unnamed", "index", "__")):
                wrong.append(f"{name}: a column without a name")
            is_count = column in COUNTS or str(column).endswith("_count")
            is_mean = name.startswith("metrics/") and column == "num_steps"
            is_known = frame[column].notna().any()  # the ceiling takes no steps
            if is_count and is_known and not is_mean and not pa.types.is_integer(schema.field(column).type):
                wrong.append(f"{name}: {column} is {schema.field(column).type}")
        assert len(set(frame.columns)) == len(frame.columns)
    assert not wrong


def is_table(path: Path) -> bool:
    return path.suffix in (".csv", ".parquet") and not path.name.startswith(".")
