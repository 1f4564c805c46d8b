"""A run computed again and compared, sound and tampered with."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb import cli
from rlwb.errors import ConfigError
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.cells import Disagreement
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN, file_hashes, recorded, run_stage
from rlwb.experiment.training import train_policy
from rlwb.experiment.verify import launch_verification, verify_run
from rlwb.files import write_json
from rlwb.market import Calendar
from rlwb.reading import read_json
from tests.experiment.test_work import TINY
from tests.market.helpers import random_bars

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}
DAYS = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=15)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, ``run``, on the bars in ``bars``."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "bars").mkdir()
    table = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["AAA", "BBB"], DAYS)
    for name, part in table.groupby("instrument"):
        part.to_csv(folder / "bars" / f"{name}.csv", index=False)
    calendar = {"preset": "cn", "tick_minutes": 30, "label": "end"}
    own = {name: value for name, value in TINY.items() if not name.startswith("market")}
    values = {"market.source": str(folder / "bars"), "market.calendar": calendar, "execution.ticks_per_step": 2}
    config = RunConfig.load(None, Layer("test", {**own, **values}))
    run = RunDirectory.create(folder / "run", config)
    with recorded(run, list(WORK)):
        for stage, work in WORK.items():
            run_stage(stage, run, config, work, echo=lambda line: None)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> RunDirectory:
    """The run and its bars, to be tampered with."""
    shutil.copytree(trained, tmp_path / "copy", symlinks=True)
    run = RunDirectory.open(tmp_path / "copy" / "run")
    path = run.path / "config.yaml"
    path.write_text(path.read_text().replace(str(trained), str(tmp_path / "copy")))
    run.save_config(RunConfig.load(path))
    return run


def found(run: RunDirectory) -> list[Disagreement]:
    return verify_run(run).disagreements


def test_k34_a_sound_run_agrees_to_the_last_bit_and_is_not_touched(run: RunDirectory) -> None:
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    result = verify_run(run)
    assert result.disagreements == []
    assert result.rounded == 0
    assert result.notes == []
    rows = len(pd.read_parquet(run.orders / "test.parquet"))
    policies = len(list((run.backtest / "orders").iterdir()))
    assert result.values > rows * policies * 10
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def edit_cell(path: Path, column: str, row: int, change: float) -> tuple[float, float]:
    """Add to a cell of a table; return what was there and what is."""
    table = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, float_precision="round_trip")
    was = float(table.loc[row, column])
    table.loc[row, column] = was + change
    table.to_parquet(path, index=False) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return was, was + change


@pytest.mark.parametrize(
    ("file", "column"),
    [
        ("backtest/orders/twap.parquet", "price"),
        ("backtest/orders/hindsight.parquet", "pa"),
        ("backtest/summary.csv", "pa_mean"),
        ("metrics/validation.csv", "ffr"),
    ],
)
def test_k34_a_changed_number_is_named_with_both_values(run: RunDirectory, file: str, column: str) -> None:
    was, now = edit_cell(run.path / file, column, 1, 1e-3)
    table = pd.read_parquet(run.path / file) if file.endswith("parquet") else pd.read_csv(run.path / file)
    key = table.iloc[:, 0]
    disagreements = found(run)
    (cell,) = [one for one in disagreements if one.column == column]
    assert (cell.file, cell.row) == (file, str(key[1]) if key.is_unique else "1")
    assert (cell.stored, cell.found) == (pytest.approx(now, rel=1e-12), pytest.approx(was, rel=1e-12))
    assert [one.file for one in disagreements if one.column == "hash"] == [file]


def test_k34_a_number_of_the_json_files_and_of_an_array_is_found(run: RunDirectory) -> None:
    known = read_json(run.backtest / "selection.json")
    write_json(run.backtest / "selection.json", {**known, "correlation": known["correlation"] + 0.5})
    inventory = np.load(run.backtest / "inventory" / "last.npy")
    inventory[3, 1] += 0.25
    np.save(run.backtest / "inventory" / "last.npy", inventory)
    cells = {(one.file, one.row, one.column) for one in found(run) if one.column != "hash"}
    assert cells == {("backtest/selection.json", "correlation", "value"), ("backtest/inventory/last.npy", "3", "1")}


def test_k34_a_swapped_checkpoint_is_found_by_its_hash_and_by_its_scores(run: RunDirectory) -> None:
    shutil.copy(run.checkpoints / "0001.pt", run.checkpoints / "0003.pt")
    disagreements = found(run)
    assert "checkpoints/0003.pt" in {one.file for one in disagreements if one.column == "hash"}
    assert "checkpoints/0001.pt" not in {one.file for one in disagreements}
    named = {(one.file, one.row) for one in disagreements}
    assert ("metrics/validation.csv", "3") in named or ("checkpoints/0003.pt", None) in named


def test_figures_that_an_earlier_version_did_not_write_are_no_disagreements(run: RunDirectory) -> None:
    """As a run of before `over_rule`, ``frontier.csv`` and a key of ``selection.json``."""
    for name in ("headline", "summary"):
        table = pd.read_csv(run.backtest / f"{name}.csv", float_precision="round_trip")
        fewer = table.drop(columns=[one for one in table if one.startswith("over_")])
        fewer.to_csv(run.backtest / f"{name}.csv", index=False)
    table = pd.read_csv(run.backtest / "metrics.csv", float_precision="round_trip")
    table[table["metric"] != "over_rule"].to_csv(run.backtest / "metrics.csv", index=False)
    known = read_json(run.backtest / "selection.json")
    write_json(run.backtest / "selection.json", {key: one for key, one in known.items() if key != "description"})
    (run.backtest / "headline.md").write_text("| policy |\n")
    (run.backtest / "frontier.csv").unlink()
    manifest = read_json(run.path / "manifest.json")
    others = {name: one for name, one in manifest["files"].items() if not name.startswith("backtest/")}
    write_json(run.path / "manifest.json", {**manifest, "files": {**others, **file_hashes(run, ["backtest"])}})
    result = verify_run(run)
    assert result.disagreements == []
    noted = "\n".join(result.notes)
    for name in ("over_rule of backtest/metrics.csv", "over_twap", "description", "headline.md", "frontier.csv"):
        assert name in noted
    table["more"] = 1.0
    table.to_csv(run.backtest / "metrics.csv", index=False)
    (lost,) = [one for one in verify_run(run).disagreements if one.column == "more"]
    assert (lost.stored, lost.found) == ("a column", "none")


def test_k34_a_damaged_added_or_lost_file_is_found(run: RunDirectory) -> None:
    path = run.checkpoints / "0002.pt"
    path.write_bytes(path.read_bytes()[:500])
    shutil.copy(run.checkpoints / "0001.pt", run.checkpoints / "0099.pt")
    (run.backtest / "orders" / "pov.parquet").unlink()
    texts = "\n".join(map(str, found(run)))
    for name in (
        "checkpoints/0002.pt",
        "checkpoints/0099.pt, hash: no hash there",
        "backtest/orders/pov.parquet: none there",
    ):
        assert name in texts


def test_k34_an_edited_bar_is_found_in_the_source_and_in_what_follows(run: RunDirectory) -> None:
    path = run.path.parent / "bars" / "AAA.csv"
    bars = pd.read_csv(path)
    bars.loc[bars.index[-3], ["open", "high", "low", "close"]] *= 1.01
    bars.to_csv(path, index=False)
    disagreements = found(run)
    named = {(one.file, one.column) for one in disagreements}
    assert ("status.json", "market.source") in named
    assert ("manifest.json", "data.market") in named
    last = f"AAA-{DAYS[-1].replace('-', '')}-B"
    assert ("backtest/orders/twap.parquet", last) in {(one.file, one.row) for one in disagreements}
    assert not any(one.row and one.row.startswith("BBB") for one in disagreements)


def test_k34_an_edited_order_is_found_by_row_and_column(run: RunDirectory) -> None:
    was, now = edit_cell(run.orders / "test.parquet", "amount", 2, 5.0)
    order = pd.read_parquet(run.orders / "test.parquet")["order_id"][2]
    disagreements = found(run)
    assert Disagreement("orders/test.parquet", order, "amount", now, was) in disagreements
    assert {one.row for one in disagreements if one.file == "backtest/orders/twap.parquet"} == {order}
    assert {one.file for one in disagreements if one.column == "hash"} == {"orders/test.parquet"}


def test_k34_an_order_that_cannot_be_executed_is_a_finding_and_no_end(run: RunDirectory) -> None:
    edit_cell(run.orders / "test.parquet", "amount", 0, -1e12)
    assert any(one.file == "backtest" and "amount" in str(one.found) for one in found(run))


def test_k34_rounding_is_counted_and_is_no_disagreement(run: RunDirectory) -> None:
    edit_cell(run.backtest / "orders" / "twap.parquet", "price", 0, 1e-10)
    result = verify_run(run)
    assert result.rounded == 1
    assert [one.column for one in result.disagreements] == ["hash"], "the file is another all the same"
    assert "1 equal up to rounding" not in "\n".join(result.lines()), "it is said where all else agrees"


def test_k34_the_command_line_ends_with_1_and_names_it_as_text_and_as_json(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            cli.main(["verify", str(run.path), *words])
        return int(stop.value.code or 0), capsys.readouterr().out

    code, out = call()
    assert (code, out.count("\n")) == (0, 1)
    assert "all equal to the last bit" in out
    edit_cell(run.backtest / "summary.csv", "pa_mean", 0, -1.0)
    code, out = call()
    assert code == 1
    assert out.startswith("backtest/summary.csv, hash: ") or "backtest/summary.csv, row checkpoint-" in out
    edit_cell(run.backtest / "summary.csv", "ffr", 0, np.nan)
    code, out = call("--json")
    told = json.loads(out, parse_constant=pytest.fail)
    assert (code, told["agrees"]) == (1, False)
    assert {one["file"] for one in told["runs"][0]["disagreements"]} == {"backtest/summary.csv"}


def test_k34_a_folder_of_runs_is_verified_one_by_one(run: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(run.path, run.path.parent / "second")
    edit_cell(run.path.parent / "second" / "backtest" / "summary.csv", "ffr", 0, -0.5)
    said: list[str] = []
    assert not launch_verification(run.path.parent, echo=said.append)
    assert said[0].endswith("all equal to the last bit")
    assert any("summary.csv" in line for line in said[1:])
    with pytest.raises(ConfigError, match="holds no run"):
        launch_verification(tmp_path / "nowhere")


def test_k34_a_run_at_work_is_refused_and_one_that_may_not_be_written_to_is_verified(run: RunDirectory) -> None:
    (run.path / ".lock").unlink()
    assert found(run) == []
    assert not (run.path / ".lock").exists()
    run.update_status(state="running")
    other = RunDirectory.open(run.path)
    with other.lock(), pytest.raises(ConfigError, match="another process works on"):
        verify_run(run)


def test_k34_a_run_that_is_not_finished_says_what_is_not_compared(run: RunDirectory) -> None:
    run.update_stage("backtest", {"state": "interrupted"})
    result = verify_run(run)
    assert result.disagreements == []
    assert any("backtest" in note for note in result.notes)
