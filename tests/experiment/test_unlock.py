"""Dates that nothing in a run reads until they are opened, once."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rlwb.cli import app
from rlwb.errors import ConfigError, FileError
from rlwb.execution import SplitSettings
from rlwb.execution.generate import locked_dates, split_orders
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.evaluate import begin_evaluation, evaluated
from rlwb.experiment.layers import Layer
from rlwb.experiment.ledger import ledger_of, read_ledger
from rlwb.experiment.likeness import compare_runs
from rlwb.experiment.orders import locked_span, make_orders, workbench
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.experiment.unlock import read_unlocked, unlock
from rlwb.experiment.verify import verify_run
from rlwb.files import write_json
from rlwb.market import Calendar
from rlwb.progress import PROGRESS_ENV
from tests.experiment.test_work import TINY
from tests.market.helpers import random_bars

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}
DAYS = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=24)]
CALENDAR = {"preset": "cn", "tick_minutes": 30, "label": "end"}
#: The last quarter of the days.
LOCKED = DAYS[18:]


def do(run: RunDirectory, config: RunConfig, **_: Any) -> None:
    stages = [stage for stage in WORK if stage is not TRAIN or run.origin is None]
    with recorded(run, stages):
        for stage in stages:
            run_stage(stage, run, config, WORK[stage], echo=lambda line: None)


def made(folder: Path, scale: float, **changes: Any) -> RunDirectory:
    """Return a finished run in a folder, on bars whose locked days are scaled in price and volume."""
    (folder / "bars").mkdir(parents=True)
    table = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["AAA", "BBB"], DAYS)
    stamps = pd.to_datetime(table["datetime"])
    inside = stamps.dt.strftime("%Y-%m-%d").isin(LOCKED)
    wave = np.where(inside, scale * (1 + 0.1 * np.sin(np.arange(len(table)))), 1.0)
    prices = [name for name in ("open", "high", "low", "close") if name in table]
    table[prices] = table[prices].mul(wave if scale != 1 else 1.0, axis=0)
    table["volume"] = table["volume"] * np.where(inside, scale, 1.0)
    for name, part in table.groupby("instrument"):
        part.to_csv(folder / "bars" / f"{name}.csv", index=False)
    own = {name: value for name, value in TINY.items() if not name.startswith("market")}
    values = {"market.source": str(folder / "bars"), "market.calendar": CALENDAR, "execution.ticks_per_step": 2}
    config = RunConfig.load(None, Layer("test", {**own, **values, "split.locked": 0.25, **changes}))
    run = RunDirectory.create(folder / "run", config)
    do(run, config)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, RunDirectory]:
    """Two runs whose bars differ on the locked days alone."""
    folder = tmp_path_factory.mktemp("locked")
    return made(folder / "a", 1.0), made(folder / "b", 1.7)


def test_nothing_in_a_run_reads_the_locked_days(runs: tuple[RunDirectory, RunDirectory]) -> None:
    one, other = runs
    assert (one.path.parent / "bars" / "AAA.csv").read_bytes() != (other.path.parent / "bars" / "AAA.csv").read_bytes()
    assert locked_span(one) == (LOCKED[0], LOCKED[-1])
    for part in ("train", "valid", "test", "all"):
        assert pd.read_parquet(one.orders / f"{part}.parquet")["date"].max() < pd.Timestamp(LOCKED[0])
    found = [file for file in compare_runs(one, other) if file.is_result]
    assert len(found) > 30
    # Those of the training hold times, checkpoints the hash of the files of bars, and the data report is on all bars.
    assert {file.file for file in found if file.verdict not in ("same", "times", "record")} <= {"orders/data.json"}
    assert workbench(one).sessions.fingerprint == workbench(other).sessions.fingerprint


@pytest.fixture
def run(runs: tuple[RunDirectory, RunDirectory], tmp_path: Path) -> RunDirectory:
    shutil.copytree(runs[0].path.parent, tmp_path / "copy", symlinks=True)
    found = RunDirectory.open(tmp_path / "copy" / "run")
    path = found.path / "config.yaml"
    path.write_text(path.read_text().replace(str(runs[0].path.parent), str(tmp_path / "copy")))
    found.save_config(RunConfig.load(path))
    return found


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("judged again")


def test_locked_days_open_once_and_show_the_same_then(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRESS_ENV, "")
    assert read_unlocked(run) is None
    record = unlock(run.path, see=do, echo=lambda line: None)
    inner = RunDirectory.open(run.path / "locked")
    dates = pd.read_parquet(inner.orders / "test.parquet")["date"]
    assert sorted(dates.dt.strftime("%Y-%m-%d").unique()) == LOCKED
    assert record["chosen"] == json.loads((run.backtest / "selection.json").read_text())["chosen"]
    assert record["headline"] == (inner.backtest / "headline.txt").read_text()
    assert "WARNING" not in record["headline"]
    assert [(one["by"], one["first"]) for one in read_ledger(ledger_of(run))][-1] == ("unlock", LOCKED[0])
    assert verify_run(inner).disagreements == []
    told: list[str] = []
    assert unlock(run.path, see=refuse, echo=told.append) == record
    assert record["headline"].rstrip() in told
    assert record["at"] in told[-1]
    assert json.loads(CliRunner().invoke(app, ["unlock", str(run.path), "--json"]).stdout).items() >= record.items()
    write_json(run.path / "locked.json", {**record, "headline": "better"})
    with pytest.raises(FileError, match=r"locked\.json"):
        unlock(run.path, see=refuse)


def test_an_opening_that_was_stopped_goes_on(run: RunDirectory) -> None:
    def stop(inner: RunDirectory, config: RunConfig, **_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unlock(run.path, see=stop, echo=lambda line: None)
    assert read_unlocked(run) is None
    unlock(run.path, see=do, echo=lambda line: None)
    assert read_unlocked(run) is not None


def test_there_is_no_other_way_to_the_locked_days(run: RunDirectory, tmp_path: Path) -> None:
    dates = Layer("test", {"split.test": [LOCKED[0], LOCKED[-1]]})
    with pytest.raises(ConfigError, match="unlock"):
        evaluated(run, dates)
    with pytest.raises(ConfigError, match="unlock"):
        evaluated(run, Layer("test", {"split.locked": None}))
    config = evaluated(run)
    assert config.split.locked == (LOCKED[0], LOCKED[-1])
    evaluation = begin_evaluation(run, config, tmp_path / "evaluation")
    bench = workbench(evaluation)
    assert bench.sessions.dates.max() < np.datetime64(LOCKED[0])
    assert bench.all_orders["date"].max() < pd.Timestamp(LOCKED[0])


def test_orders_of_ones_own_on_locked_days_are_left_out(run: RunDirectory, tmp_path: Path) -> None:
    table = pd.DataFrame({"instrument": "AAA", "date": DAYS, "direction": "BUY", "amount": 100.0})
    table.to_csv(tmp_path / "orders.csv", index=False)
    config = run.load_config(Layer("test", {"orders": {"source": str(tmp_path / "orders.csv")}}))
    own = RunDirectory.create(tmp_path / "own", config)
    make_orders(own, config)
    days = {
        part: pd.read_parquet(own.orders / f"{part}.parquet")["date"].nunique() for part in ("train", "valid", "test")
    }
    assert sum(days.values()) == 18


def test_a_run_without_locked_days_has_none_to_open(judged: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"split\.locked"):
        unlock(judged.path, see=refuse)


def test_the_locked_part_is_the_last_of_all_dates_and_the_others_share_the_rest() -> None:
    dates = np.arange("2024-01-01", "2024-01-11", dtype="datetime64[D]")
    table = pd.DataFrame({"date": dates.astype("datetime64[ns]")})
    settings = SplitSettings(0.5, 0.25, 0.25, locked=0.2)
    parts = split_orders(table, settings)
    assert [len(parts[name]) for name in ("train", "valid", "test", "all")] == [4, 2, 2, 8]
    assert locked_dates(settings, dates) == (np.datetime64("2024-01-09"), np.datetime64("2024-01-10"))
    assert parts["test"]["date"].max() == pd.Timestamp("2024-01-08")
    pairs = [("2024-01-01", "2024-01-02"), ("2024-01-03", "2024-01-04"), ("2024-01-05", "2024-01-06")]
    named = SplitSettings(*pairs, locked=("2024-01-08", "2024-01-09"))
    assert locked_dates(named, dates) == (np.datetime64("2024-01-08"), np.datetime64("2024-01-09"))
    assert locked_dates(SplitSettings(), dates) is None


@pytest.mark.parametrize("locked", [0.0, 1.0, 0.01, 0.99, ("2024-01-09",), ("2024-01-09", "2024-01-08")])
def test_an_impossible_locked_part_is_refused(locked: Any) -> None:
    dates = np.arange("2024-01-01", "2024-01-11", dtype="datetime64[D]")
    with pytest.raises(ConfigError, match=r"split\.locked"):
        locked_dates(SplitSettings(locked=locked), dates)


def test_a_locked_part_before_the_test_is_refused() -> None:
    dates = np.arange("2024-01-01", "2024-01-11", dtype="datetime64[D]")
    pairs = [("2024-01-01", "2024-01-02"), ("2024-01-03", "2024-01-04"), ("2024-01-05", "2024-01-08")]
    with pytest.raises(ConfigError, match=r"split\.locked"):
        locked_dates(SplitSettings(*pairs, locked=("2024-01-08", "2024-01-09")), dates)
    with pytest.raises(ConfigError, match=r"split\.locked"):
        RunConfig.load(None, Layer("test", {"split.rolling": {"train": 5, "valid": 2, "test": 2}, "split.locked": 0.1}))
