"""Parts of one's own, each a short file, through ``rlwb run`` without a change to the library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment import own_code
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.notebook import open_stage
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.pipeline import launch
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import ORDERS, TRAIN, settings_of
from rlwb.experiment.workbench import Workbench
from rlwb.market import Calendar
from tests.market.helpers import random_bars

PARTS = Path(__file__).parent / "parts"
CONFIG = PARTS.with_name("mine.yaml")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(PARTS, tmp_path / "parts")
    days = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=20)]
    table = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["AAA", "BBB", "CCC"], days)
    (tmp_path / "bars").mkdir()
    for name, rows in table.groupby("instrument"):
        told = rows.assign(time=rows["datetime"].astype(str)).drop(columns=["datetime", "instrument"])
        told.to_json(tmp_path / "bars" / f"{name}.jsonl", orient="records", lines=True)
    return Path(shutil.copy(CONFIG, tmp_path))


def test_all_of_them_go_through_a_run_to_its_report_and_the_run_keeps_them(config: Path, tmp_path: Path) -> None:
    place = tmp_path / "run"
    words = [sys.executable, "-m", "rlwb.cli", "run", str(config), "--run-dir", str(place)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr
    run = RunDirectory.open(place)
    assert run.state == "finished"
    assert "Thin" in run.report.read_text()
    train = pd.read_csv(run.metrics / "train.csv")
    assert {"loss", "pa", "ffr"} <= set(train)
    assert train["reward"].abs().max() > 0
    checks = json.loads((place / "audit.json").read_text())["checks"]
    assert [one["name"] for one in checks if one["passed"] is False] == []
    assert [one["name"] for one in checks if one["passed"] is None] == ["fills"]  # which the simulator makes
    named = {one["name"] for one in json.loads((place / "manifest.json").read_text())["code"]}
    assert named == {
        "action_interpreter.py:ShareOfRest",
        "algorithm.py:Reinforce",
        "baseline.py:Hurry",
        "feature.py:range_so_far",
        "network.py:LSTM",
        "reader.py:read_json_lines",
        "reward.py:Arrival",
        "simulator.py:Thin",
        "state_interpreter.py:WithMove",
    }

    shutil.rmtree(tmp_path / "parts")  # the run has copies, so it goes on without the files
    again = subprocess.run([*words[:4], "--resume", *words[5:]], capture_output=True, text=True, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count("unchanged, kept") == 4


def test_a_part_of_ones_own_trains_alike_in_every_environment(config: Path, tmp_path: Path) -> None:
    from rlwb.experiment.training import train_policy

    tables = []
    for env in ("native", "dummy"):
        settings = RunConfig.load(config, Layer("test", {"train.env": env, "network": "mlp"}))
        run = RunDirectory.create(tmp_path / env, settings)
        make_orders(run, settings)
        train_policy(run, settings, progress="none")
        tables.append(pd.read_csv(run.metrics / "train.csv").drop(columns="seconds"))
    pd.testing.assert_frame_equal(*tables, rtol=1e-9)


def test_code_counts_by_its_content_not_by_its_place(config: Path, tmp_path: Path) -> None:
    here = RunConfig.load(config)
    (tmp_path / "there").mkdir()
    shutil.copytree(tmp_path / "parts", tmp_path / "there" / "parts")
    shutil.copytree(tmp_path / "bars", tmp_path / "there" / "bars")
    moved = RunConfig.load(Path(shutil.copy(config, tmp_path / "there")))
    assert settings_of(TRAIN, moved) == settings_of(TRAIN, here)
    reward = tmp_path / "there" / "parts" / "reward.py"
    reward.write_text(reward.read_text().replace("1e4", "1e3"))
    assert settings_of(TRAIN, moved) != settings_of(TRAIN, here)
    assert settings_of(ORDERS, moved) == settings_of(ORDERS, here)


def test_opening_printing_and_checking_run_no_code(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')\n\n\nclass Reward:\n    pass\n")
    config = RunConfig.load(None, Layer("test", {"reward": "evil.py:Reward"}, tmp_path))
    assert "evil.py:Reward" in config.as_yaml(describe=True)
    run = RunDirectory.create(tmp_path / "run", config)
    assert run.config.reward.name.endswith("evil.py:Reward")
    settings_of(TRAIN, run.config)


def test_a_run_from_elsewhere_asks_before_it_runs_its_code(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = RunConfig.load(config)
    run = RunDirectory.create(tmp_path / "run", settings)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    with pytest.raises(ConfigError, match=r"reward\.py:Arrival.*--trust-code"):
        workbench(run)
    with pytest.raises(ConfigError, match="--trust-code"):
        launch(None, [], run.path, resume=True)
    with pytest.raises(ConfigError, match="--trust-code"):
        open_stage(ORDERS, run.path, seed=3).do(make_orders)
    monkeypatch.setattr(own_code.sys, "stdin", type("Tty", (), {"isatty": lambda self: True})())
    monkeypatch.setattr("builtins.input", lambda question: "no")
    with pytest.raises(ConfigError, match="not trusted"):
        workbench(run)
    monkeypatch.setattr("builtins.input", lambda question: "yes")
    workbench(run)
    monkeypatch.setattr("builtins.input", lambda question: pytest.fail("asked twice"))
    workbench(run)


def test_a_part_that_is_none_is_refused_in_the_first_stage(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    pass\n")
    config = RunConfig.load(None, Layer("test", {"reward": "mine.py:Mine", "market.days": 5}, tmp_path))
    run = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(ConfigError, match=r"mine\.py:Mine makes a Mine, which is no Reward; .*rlwb\.reward\.Reward"):
        make_orders(run, config)


def test_a_market_of_ones_own_has_a_seed_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rlwb.market import SyntheticSettings, synthetic_sessions\n\n\n"
        "def calm(days: int = 4, seed: int = 0):\n"
        "    return synthetic_sessions(SyntheticSettings(instruments=2, days=days, tick_minutes=30, seed=seed))\n"
    )
    market = {"name": "mine.py:calm", "days": 5, "seed": 3}
    config = RunConfig.load(None, Layer("test", {"market": market}, tmp_path))
    assert config.market.settings == {"days": 5, "seed": 3}
    assert len(Workbench(config).sessions) == 10


def test_code_that_the_user_names_is_trusted(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    stage = open_stage(ORDERS, tmp_path / "run", reward=f"{config.parent}/parts/reward.py:Arrival")
    workbench(stage.run, stage.config)


def test_a_module_of_an_installed_package_asks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path / "run", RunConfig.load(None, Layer("test", {"reward": "subprocess:run"})))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "somebody"))
    with pytest.raises(ConfigError, match=r"subprocess:run.*--trust-code"):
        workbench(run)
