"""What ``rlwb run`` refuses before it touches a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.pipeline import check_config, launch
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import TRAIN, settings_of


@pytest.fixture
def finished(tmp_path: Path) -> RunDirectory:
    """A run whose eight iterations are trained."""
    config = RunConfig.load(None, Layer("test", {"train.iterations": 8}))
    run = RunDirectory.create(tmp_path / "run", config)
    run.checkpoints.mkdir(parents=True)
    for iteration in range(1, 9):
        (run.checkpoints / f"{iteration:04d}.pt").touch()
    run.update_stage(TRAIN.name, {"state": "finished", "settings": settings_of(TRAIN, config), "inputs": ""})
    run.update_status(state="finished")
    return run


def test_a_folder_of_orders_or_as_a_configuration_makes_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^orders\.source: .* is a folder; name one Parquet or CSV file of"):
        launch(None, [f"orders.source={tmp_path}"], tmp_path / "run", resume=False)
    with pytest.raises(ConfigError, match=r"cannot be read as a configuration \(Is a directory\)\.$"):
        launch(tmp_path, [], tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_qlibs_pickles_of_orders_is_one_of_orders(tmp_path: Path) -> None:
    (tmp_path / "AAA.pkl").touch()
    check_config(RunConfig.load(None, Layer("test", {"orders.source": str(tmp_path)})))


def test_a_shorter_training_is_refused_and_leaves_the_run_as_it_was(finished: RunDirectory) -> None:
    before = {path: path.read_bytes() for path in finished.path.iterdir() if path.is_file()}
    with pytest.raises(ConfigError, match=r"train\.iterations is 4, but 8 iterations are trained already"):
        launch(None, ["train.iterations=4"], finished.path, resume=True)
    assert {path: path.read_bytes() for path in finished.path.iterdir() if path.is_file()} == before


@pytest.mark.parametrize("name", ["market.source", "orders.source"])
def test_a_path_that_is_not_there_makes_no_run(tmp_path: Path, name: str) -> None:
    missing = tmp_path / "nowhere.csv"
    with pytest.raises(ConfigError, match=f"{name}: there is no file or folder .*nowhere.csv"):
        launch(None, [f"{name}={missing}"], tmp_path / "run", resume=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("algorithm.learning_rate=-1", ["all_actions", "learning_rate", "-1"]),
        ("reward=gone.py:Mine", ["gone.py"]),
        ("reward=no_such_package:Mine", ["no_such_package"]),
        ("features.columns=[gone.py:wide]", ["gone.py"]),
    ],
)
def test_what_a_part_refuses_makes_no_run(tmp_path: Path, change: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        launch(None, [change], tmp_path / "run", resume=False)
    assert all(text in str(caught.value) for text in named)
    assert not (tmp_path / "run").exists()
