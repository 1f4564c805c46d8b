"""The noise twin of a run, on a tiny market."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.compare import do_stages
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.twin import make_twin, twin_config, twin_table
from rlwb.market import SyntheticSettings, synthetic_bars
from rlwb.parts import Part
from rlwb.reading import read_json
from tests.experiment.test_work import tiny


def quiet(line: str) -> None:
    return


def test_a_twin_stands_beside_its_run_and_is_made_once(tmp_path: Path) -> None:
    config = tiny()
    run = RunDirectory.create(tmp_path / "run", config)
    do_stages(run, config, quiet)
    lines: list[str] = []
    twin = make_twin(run, lines.append)
    assert twin.path == run.path / "twin"
    assert twin.config.market.settings["signal"] == 0.0
    assert twin.config.market.settings["seed"] == config.market.settings["seed"]
    own, other = (pd.read_parquet(one.orders / "test.parquet") for one in (run, twin))
    assert own["order_id"].tolist() == other["order_id"].tolist()
    told = read_json(run.path / "verdict.json")
    effect = read_json(twin.path / "verdict.json")["effect"]
    (sentence,) = [one["sentence"] for one in told["reasons"] if one["topic"] == "twin"]
    assert f"{abs(effect):.2f} bp" in sentence
    assert lines[-1] == sentence
    page = run.report.read_text()
    assert "noise twin (nothing to learn)" in page
    assert sentence in page
    assert "noise twin" not in twin.report.read_text()
    table = twin_table(run)
    assert table.index.tolist() == ["run", "noise twin"]
    assert table.loc["noise twin", "gain over the mark, bp"] == round(effect, 2)
    again: list[str] = []
    make_twin(run, again.append)
    assert [line for line in again if "unchanged, kept" in line] == [
        f"  {stage}: unchanged, kept" for stage in ("orders", "train", "backtest")
    ]


def test_a_twin_of_bars_has_returns_of_random_sign(tmp_path: Path) -> None:
    path = tmp_path / "bars.parquet"
    synthetic_bars(SyntheticSettings(instruments=2, days=15, seed=6)).to_parquet(path)
    bars = {"name": "bars", "source": str(path), "calendar": {"preset": "cn", "tick_minutes": 5}}
    config = RunConfig.load(None, Layer("test", {"market": bars, "seed": 7}))
    twin = twin_config(config)
    assert twin.market.settings["noise_seed"] == 7
    assert {**twin.market.settings, "noise_seed": None} == config.market.settings
    with pytest.raises(ConfigError, match="its own noise twin"):
        twin_config(twin)


def test_a_market_whose_twin_is_not_known_is_refused() -> None:
    own = RunConfig().model_copy(update={"market": Part(name="mine.py:Market")})
    with pytest.raises(ConfigError, match=r"mine\.py:Market has no noise twin"):
        twin_config(own)
    silent = RunConfig.load(None, Layer("test", {"market.signal": 0.0}))
    with pytest.raises(ConfigError, match=r"market\.signal"):
        twin_config(silent)
