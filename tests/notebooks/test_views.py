"""What the notebooks show of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import CheckpointError, DataError, OrderError
from rlwb.experiment import report
from rlwb.experiment.orders import workbench
from rlwb.experiment.run import RunDirectory
from tests.notebooks.small import small_config


def test_b17_an_audit_adds_up_to_the_order_s_row(commanded: tuple[RunDirectory, str]) -> None:
    run = commanded[0]
    bench = workbench(run, run.config)
    for policy in ("last", "twap", "vwap", "pov", "almgren_chriss", report.selection_tables(run)[0]["policy"].iloc[0]):
        order_id = report.typical_order(run, policy)
        audit = report.audit_order(run, bench, policy, order_id)
        checks = audit.checks()
        np.testing.assert_allclose(checks.iloc[:, 0], checks.iloc[:, 1], rtol=1e-12, atol=1e-12)
        table = pd.read_parquet(run.backtest / "orders" / f"{policy}.parquet").set_index("order_id")
        for name in ("filled", "price", "pa", "reward"):
            assert audit.summary[name].iloc[0] == pytest.approx(table.loc[order_id, name], abs=1e-9), (policy, name)


def test_an_unknown_order_or_policy_is_named(commanded: tuple[RunDirectory, str]) -> None:
    run = commanded[0]
    bench = workbench(run, run.config)
    with pytest.raises(OrderError, match=r"there is no order 'x' in part test; .*test\.parquet is 'SYN001-"):
        report.audit_order(run, bench, "twap", "x")
    with pytest.raises(CheckpointError, match="the run has no policy 'best'; it has checkpoint-0001, "):
        report.audit_order(run, bench, "best", report.typical_order(run, "twap"))
    with pytest.raises(CheckpointError, match="hindsight is a ceiling and no policy, so it has no trades to show"):
        report.audit_order(run, bench, "hindsight", report.typical_order(run, "hindsight"))


def test_g07_a_long_training_shows_a_table_of_readable_length(commanded: tuple[RunDirectory, str]) -> None:
    run = commanded[0]
    table = report.iteration_table(run)
    assert list(table.index) == [1, 2, 3, 4, 5, 6]
    assert {"PA", "validation PA", "reward", "seconds"} <= set(table)
    assert list(report.iteration_table(run, most=3).index) in ([1, 3, 6], [1, 4, 6])


def test_tables_of_the_backtest(commanded: tuple[RunDirectory, str]) -> None:
    run = commanded[0]
    chosen, excluded = report.selection_tables(run)
    assert list(chosen.index) == [1, 2, 3]
    assert chosen["validation PA"].is_monotonic_decreasing
    assert excluded.empty
    rules = ["twap", "vwap", "pov", "almgren_chriss", "forecast"]
    assert list(report.summary_table(run).index)[3:10] == ["last", *rules, "hindsight"]
    assert list(report.order_parts(run)) == ["training", "validation", "test"]


def test_g13_what_is_missing_is_said_with_its_notebook(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_config())
    for show, notebook in (
        (report.order_parts, "01_orders"),
        (report.iteration_table, "02_training"),
        (report.summary_table, "03_backtest"),
        (report.selection_tables, "03_backtest"),
    ):
        with pytest.raises(DataError, match=f"is not there yet; run {notebook}.ipynb on this run first"):
            show(run)
