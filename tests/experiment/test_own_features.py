"""A configuration's own features: found from its folder, known by their content, told in the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlwb.errors import CheckpointError, ConfigError, DataError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.own_code import check_parts, own_code
from rlwb.experiment.run import RunDirectory, begin_manifest, read_json
from rlwb.experiment.stages import ORDERS, TRAIN, settings_of
from rlwb.experiment.workbench import Workbench
from rlwb.market import feature_registry
from rlwb.market.catalogue import BUILT_IN
from rlwb.trainer import record_of

CODE = """
from rlwb.market import feature

@feature("own_twice", needs=["close"])
def own_twice(block):
    return {factor} * block["close"]
"""
CONFIG = """
market: {name: synthetic, instruments: 2, days: 12, tick_minutes: 30}
features: {columns: [close, my_features.py:own_twice]}
"""


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_registry, "_FEATURES", dict(BUILT_IN))


def write(folder: Path, factor: int = 2) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "my_features.py").write_text(CODE.format(factor=factor))
    (folder / "run.yaml").write_text(CONFIG)
    return folder / "run.yaml"


def meta(config: RunConfig) -> dict[str, Any]:
    bench = Workbench(config)
    return bench.meta(bench.features(bench.make_orders()[0]["all"]))


def test_a_relative_path_starts_at_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig.load(write(tmp_path / "here").relative_to(tmp_path))
    assert config.features.columns == ("close", f"{tmp_path}/here/my_features.py:own_twice")
    (tmp_path / "written.yaml").write_text(config.as_yaml())
    assert RunConfig.load(tmp_path / "written.yaml") == config


def test_a_missing_file_is_refused_with_the_place(tmp_path: Path) -> None:
    file = write(tmp_path / "here")
    (tmp_path / "here" / "my_features.py").unlink()
    with pytest.raises(ConfigError, match=r"my_features\.py cannot be read"):
        check_parts(RunConfig.load(file))


def test_the_observation_has_the_column_under_its_name(tmp_path: Path) -> None:
    bench = Workbench(RunConfig.load(write(tmp_path / "here")))
    features = bench.features(bench.make_orders()[0]["all"])
    assert features.columns == ("close", "own_twice")
    assert features.today.shape[2] == 2
    assert np.isfinite(features.today).all()


def test_a_changed_file_asks_for_another_training_and_not_for_other_orders(tmp_path: Path) -> None:
    before = RunConfig.load(write(tmp_path / "here"))
    train, orders = settings_of(TRAIN, before), settings_of(ORDERS, before)
    assert train["features.columns"][1].startswith("my_features.py:own_twice ")
    moved = RunConfig.load(write(tmp_path / "there"))
    assert settings_of(TRAIN, moved) == train
    after = RunConfig.load(write(tmp_path / "here", factor=3))
    assert settings_of(TRAIN, after) != train
    assert settings_of(ORDERS, after) == orders


def test_the_manifest_tells_what_was_imported(tmp_path: Path) -> None:
    config = RunConfig.load(write(tmp_path / "here"))
    run = RunDirectory.create(tmp_path / "run", config)
    begin_manifest(run, ["rlwb", "run"])
    manifest = read_json(run.path / "manifest.json")
    assert manifest["code"] == [one.describe() for one in own_code(config).values()]
    assert manifest["code"][0]["name"] == "my_features.py:own_twice"


def checkpoint(config: Path) -> dict[str, Any]:
    bench = Workbench(RunConfig.load(config))
    features = bench.features(bench.make_orders()[0]["all"])
    record = record_of(bench.simulator, bench.state_interpreter(features), bench.action_interpreter)
    policy = bench.learner(features).state_dict()
    return {"meta": bench.meta(features), "record": record.as_dict(), "vessel": {"policy": policy}}


def test_a_checkpoint_records_features_across_instruments(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(CONFIG.replace("my_features.py:own_twice", "breadth, returns@SYN002"))
    state = checkpoint(tmp_path / "one.yaml")
    assert state["record"]["features"] == ("close", "breadth", "returns@SYN002")
    Workbench(RunConfig.load(tmp_path / "one.yaml")).restore(state, tmp_path / "0001.pt")
    (tmp_path / "other.yaml").write_text((tmp_path / "one.yaml").read_text().replace("@SYN002", "@SYN001"))
    with pytest.raises(DataError, match="returns@SYN001"):
        Workbench(RunConfig.load(tmp_path / "other.yaml")).restore(state, tmp_path / "0001.pt")


def test_a_checkpoint_is_for_the_features_it_was_trained_with(tmp_path: Path) -> None:
    state = checkpoint(write(tmp_path / "here"))
    Workbench(RunConfig.load(write(tmp_path / "there"))).restore(state, tmp_path / "0001.pt")
    changed = Workbench(RunConfig.load(write(tmp_path / "here", factor=3)))
    with pytest.raises(CheckpointError, match="features"):
        changed.restore(state, tmp_path / "0001.pt")
