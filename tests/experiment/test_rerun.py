"""Runs repeated, and compared file by file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rlwb import cli
from rlwb.errors import ConfigError
from rlwb.experiment.cells import Column
from rlwb.experiment.compare import do_stages
from rlwb.experiment.evaluate import begin_evaluation, evaluated
from rlwb.experiment.layers import Layer
from rlwb.experiment.likeness import FileLikeness, compare_runs, folded
from rlwb.experiment.rerun import compared, launch_rerun, repeatable, repeated
from rlwb.experiment.run import RunDirectory, update_manifest
from rlwb.experiment.stages import BACKTEST, ORDERS, TRAIN
from rlwb.files import write_json
from rlwb.trainer import load_checkpoint, save_checkpoint
from tests.experiment.test_work import tiny

QUICK = {"train.iterations": 2, "backtest.top": 1, "baselines": ["twap"]}
quiet = partial(do_stages, echo=lambda line: None)
again = partial(launch_rerun, echo=lambda line: None, progress=lambda line: None)


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory.create(tmp_path_factory.mktemp("rerun") / "run", tiny(**QUICK))
    quiet(run, run.config)
    return run


@pytest.fixture
def copied(trained: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained.path, tmp_path / "copy", symlinks=True)
    return RunDirectory.open(tmp_path / "copy")


def unlike(one: RunDirectory, other: RunDirectory) -> dict[str, FileLikeness]:
    return {found.file: found for found in compare_runs(one, other) if found.verdict not in ("same", "times")}


def test_a_run_is_repeated_bit_for_bit_and_stays_as_it_is(
    trained: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in trained.path.rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as ended:
        cli.main(["rerun", str(trained.path), "--run-dir", str(tmp_path / "again"), "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    verdicts = {one["file"]: one["verdict"] for one in found["files"]}
    assert found["agrees"]
    assert verdicts.pop("metrics/train.csv") == verdicts.pop("manifest.json") == verdicts.pop("status.json") == "times"
    assert set(verdicts.values()) == {"same"}
    assert {"checkpoints/0001.pt", "checkpoints/0002.pt", "orders/all.parquet", "backtest/summary.csv"} < set(verdicts)
    assert not any(found["made"].values()), "the same packages, machine, code and data"
    assert {path: path.read_bytes() for path in trained.path.rglob("*") if path.is_file()} == before


def test_how_far_a_table_is_off_is_told_by_its_cell(trained: RunDirectory, copied: RunDirectory) -> None:
    path = copied.backtest / "orders" / "twap.parquet"
    table = pd.read_parquet(path)
    names, was = list(table["order_id"]), table["price"].to_numpy(copy=True)
    table.loc[[1, 2], "price"] = was[[1, 2]] * [1.001, 1.5]
    table.to_parquet(path, index=False)
    (found,) = unlike(trained, copied).values()
    assert not found.agrees
    (column,) = found.columns
    assert (column.name, column.rows) == ("price", [str(names[1]), str(names[2])])
    assert column.largest == pytest.approx(1 / 3)  # of 1 and 1.5, relative to the larger
    assert f"2 of {table.size:,} values, most in price, {names[2]}" in str(found)


def test_how_far_weights_are_off_is_told_by_their_tensor(trained: RunDirectory, copied: RunDirectory) -> None:
    path = copied.checkpoints / "0002.pt"
    state = load_checkpoint(path)
    network = state["vessel"]["policy"]["network"].items()
    name, tensor = next((key, one) for key, one in network if key.endswith("layers.0.weight"))
    tensor.view(-1)[3] += 0.125
    state["metrics"]["reward"] += 5.0
    save_checkpoint(path, state)
    found = unlike(trained, copied)["checkpoints/0002.pt"]
    assert found.largest is not None
    assert found.largest.name == f"vessel.policy.network.{name}", "weights before figures"
    assert found.largest.largest == pytest.approx(0.125, rel=1e-6)
    assert found.largest.rows == ["3"]


def test_rounding_agrees_and_is_told_apart(trained: RunDirectory, copied: RunDirectory) -> None:
    path = copied.metrics / "validation.csv"
    table = pd.read_csv(path, float_precision="round_trip")
    table["reward"] *= 1 + 1e-12
    table.to_csv(path, index=False)
    (found,) = unlike(trained, copied).values()
    assert (found.verdict, found.agrees) == ("rounded", True)
    table["reward"] *= 1 + 1e-6
    table.to_csv(path, index=False)
    assert unlike(trained, copied)["metrics/validation.csv"].verdict == "different"


def test_another_record_is_not_told_as_rounding() -> None:
    threads = Column("record.threads", [""], [1], [2])
    text = str(FileLikeness("checkpoints/0001.pt", "rounded", values=9, columns=(threads,)))
    assert text == "checkpoints/0001.pt: equal up to rounding (1e-9), but for its record of how it was made"


def test_files_of_one_side_and_files_that_no_stage_makes_are_named(trained: RunDirectory, copied: RunDirectory) -> None:
    (copied.checkpoints / "0001.pt").unlink()
    (copied.backtest / "orders" / "mine.parquet").write_bytes(b"")
    (copied.path / "notes.txt").write_text("mine")
    verdicts = {name: (one.verdict, one.agrees) for name, one in unlike(trained, copied).items()}
    assert verdicts == {
        "checkpoints/0001.pt": ("missing", False),
        "backtest/orders/mine.parquet": ("new", False),
        "notes.txt": ("other", True),
    }
    assert any(line.startswith("checkpoints/0001.pt: ") for line in folded(compare_runs(trained, copied)))


def test_a_damaged_file_differs(trained: RunDirectory, copied: RunDirectory) -> None:
    for name in ("checkpoints/0001.pt", "backtest/summary.csv", "orders/all.parquet"):
        (copied.path / name).write_bytes(b"\x00\xff")
    assert {name: one.verdict for name, one in unlike(trained, copied).items()} == {
        "checkpoints/0001.pt": "different",
        "backtest/summary.csv": "different",
        "orders/all.parquet": "different",
    }


def account(folder: Path, place: str, seconds: float, price: str, rest: str = "") -> RunDirectory:
    """Return a run that is nothing but its accounts."""
    run = RunDirectory(folder / place)
    table = (
        "<table><thead><tr><th></th><th>pa</th><th>seconds</th></tr></thead>"
        f"<tbody><tr><th>1</th><td>{price}</td><td>{seconds}</td></tr></tbody></table>"
    )
    cell = {
        "cell_type": "code",
        "source": ["train(run)\n"],
        "metadata": {"papermill": {"duration": seconds}},
        "outputs": [
            {"output_type": "stream", "text": f"{run.path} at 2024-01-0{int(seconds)}T10:11:12: {seconds} s left\n"},
            {"output_type": "display_data", "data": {"text/html": table, "text/plain": f"{seconds}"}},
        ],
    }
    run.notebooks.mkdir(parents=True)
    write_json(run.notebooks / "02_training.ipynb", {"cells": [cell], "metadata": {}})
    run.report.write_text(f"<title>{place}: ppo</title>\ncommand:\n- run\n- {place}\nseed: 0\n{rest}")
    write_json(run.path / "status.json", {"state": "finished", "stages": {"train": {"seconds": seconds}}})
    return run


def test_times_paths_and_ids_of_accounts_do_not_count_and_all_else_does(tmp_path: Path) -> None:
    one, same = account(tmp_path, "one", 1.5, "7.25"), account(tmp_path, "two", 2.5, "7.25")
    assert {found.verdict for found in compare_runs(one, same)} == {"times"}
    other = account(tmp_path, "other", 2.5, "7.26", "a line more\n")
    changed = unlike(one, other)
    assert sorted(changed) == ["notebooks/02_training.ipynb", "report.html"]
    assert not any(found.is_result for found in changed.values())
    (line,) = changed["report.html"].columns
    assert (line.stored, line.found) == (["nothing"], ["a line more"])


def test_what_it_was_made_with_is_said_beside_the_result(trained: RunDirectory, copied: RunDirectory) -> None:
    known = copied.manifest
    update_manifest(
        copied,
        packages={**known["packages"], "torch": "2.0"},
        machine={**known["machine"], "model": "another"},
        data={"market": "0"},
    )
    text = "\n".join(compared(trained, copied).lines())
    assert f"other packages, torch: {known['packages']['torch']} the first time, 2.0 now" in text
    assert "other data, market" in text
    assert "on another processor: all" in text


def test_what_cannot_be_repeated_is_refused_by_name(trained: RunDirectory, copied: RunDirectory) -> None:
    with pytest.raises(ConfigError, match=r"folder of \d runs.*copy"):
        repeatable(copied.path.parent)
    with pytest.raises(ConfigError, match="holds no run"):
        repeatable(copied.orders)
    copied.update_stage(BACKTEST.name, {"state": "failed"})
    with pytest.raises(ConfigError, match="not finished"):
        repeatable(copied.path)
    with pytest.raises(ConfigError, match=r"train\.iterations"):
        repeated(trained, Layer("--set", {"train.iterations": 3}))
    with pytest.raises(ConfigError, match="holds a run already"):
        again(trained.path, run_dir=trained.path)


def test_an_evaluation_is_repeated_on_its_copies(trained: RunDirectory, tmp_path: Path) -> None:
    evaluation = begin_evaluation(trained, evaluated(trained), tmp_path / "evaluation")
    quiet(evaluation, evaluation.config, stages=(ORDERS, BACKTEST))
    assert again(evaluation.path)
    assert not unlike(evaluation, RunDirectory.open(tmp_path / "evaluation-rerun"))


def test_a_run_over_windows_is_repeated(tmp_path: Path) -> None:
    config = tiny(**{**QUICK, "split.rolling": {"train": 7, "valid": 2, "test": 5}, "train.iterations": 1})
    run = RunDirectory.create(tmp_path / "run", config)
    quiet(run, config)
    assert again(run.path)
    found = compare_runs(run, RunDirectory.open(tmp_path / "run-rerun"))
    assert {one.verdict for one in found} <= {"same", "times"}
    assert {"windows/001/checkpoints/0001.pt", "backtest/windows.csv"} < {one.file for one in found}


WAYS = {
    "dummy, one at a time": {"train.env": "dummy", "train.concurrency": 1},
    "dummy, four": {"train.env": "dummy", "train.concurrency": 4},
    "subproc, four": {"train.env": "subproc", "train.concurrency": 4},
    "shmem, two": {"train.env": "shmem", "train.concurrency": 2},
    "arrays": {},
    "arrays, two threads": {"threads": 2},
}


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """Trainings of one seed, each computed in another way."""
    folder, runs = tmp_path_factory.mktemp("ways"), {}
    for number, (name, changes) in enumerate(WAYS.items()):
        config = tiny(**{**QUICK, "network.hidden": 32, "train.episodes_per_iteration": 20, **changes})
        runs[name] = RunDirectory.create(folder / str(number), config)
        quiet(runs[name], config, stages=(ORDERS, TRAIN))
    return runs


@pytest.mark.parametrize("way", [name for name in WAYS if "arrays" not in name])
def test_any_number_of_workers_of_any_type_gives_the_same_bits(ways: dict[str, RunDirectory], way: str) -> None:
    found = compare_runs(ways["dummy, one at a time"], ways[way])
    assert {one.file: one.verdict for one in found if one.is_result and one.verdict not in ("same", "times")} == {}
    assert "checkpoints/0002.pt" in {one.file for one in found}


def test_a_run_of_some_stages_alone_is_repeated_as_far_as_it_went(ways: dict[str, RunDirectory]) -> None:
    run = ways["arrays"]
    assert again(run.path)
    assert sorted(RunDirectory.open(f"{run.path}-rerun").status["stages"]) == ["orders", "train"]


@pytest.mark.parametrize("way", ["arrays", "arrays, two threads"])
def test_arrays_and_threads_give_the_same_orders_and_weights_and_figures_up_to_rounding(
    ways: dict[str, RunDirectory], way: str
) -> None:
    """Weights are of single precision, 1.2e-7; a few updates add little to that."""
    found = {one.file: one for one in compare_runs(ways["dummy, one at a time"], ways[way]) if one.is_result}
    assert {one.verdict for name, one in found.items() if name.startswith("orders/")} == {"same"}
    for name in ("checkpoints/0001.pt", "checkpoints/0002.pt", "metrics/train.csv", "metrics/validation.csv"):
        columns = [one for one in found[name].columns if one.name not in ("record.threads", "loss", "policy_loss")]
        assert max([one.largest for one in columns if np.isfinite(one.largest)], default=0.0) < 1e-5, name
