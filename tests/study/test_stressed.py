"""The stress matrix of a sweep: each member's, and both seeds in one table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from rlwb.cli import app
from rlwb.errors import ConfigError
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.orders import make_orders
from rlwb.experiment.own_code import keep_code
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stability import write_stability
from rlwb.experiment.training import train_policy
from rlwb.study.stressed import launch_stressed
from rlwb.study.sweep import sweep_folder
from tests.experiment.test_work import tiny

SEEDS = (0, 1)
SMALL = {"market.days": 20, "train.iterations": 1, "backtest.top": 1, "baselines": ["twap"], "orders.seed": 5}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, config = tmp_path_factory.mktemp("runs") / "sweep", tiny(**SMALL)
    folder.mkdir()
    asked = {"file": None, "set": [], "grid": [], "seeds": "0,1"}
    settings = [{"name": "", "grid": {}, "config": keep_code(config, folder)}]
    sweep_folder(folder).remember({"settings": settings, "seeds": list(SEEDS), "asked": asked})
    return folder


def test_a_sweep_without_a_finished_member_is_refused_and_then_seeds_stand_in_one_table(sweep: Path) -> None:
    with pytest.raises(ConfigError, match="no member of the sweep"):
        launch_stressed(sweep)
    for seed in SEEDS:
        config = tiny(**SMALL, seed=seed)
        run = RunDirectory.create(sweep / f"seed-{seed}", config)
        make_orders(run, config)
        train_policy(run, config, progress="none")
        backtest_policies(run, config)
        write_stability(run, config)
        run.update_status(state="finished")
    done = CliRunner().invoke(app, ["stress", str(sweep), "--only", "side"])
    assert done.exit_code == 0, done.output
    assert "2 of 2 members" in done.output
    table = pd.read_csv(sweep / "stress.csv").set_index(["condition", "policy", "metric"])
    singles = [pd.read_csv(sweep / f"seed-{seed}" / "stress" / "conditions.csv") for seed in SEEDS]
    own = [
        one.set_index(["condition", "policy", "metric"]).loc[("buys", "checkpoints", "pa_net"), "estimate"]
        for one in singles
    ]
    row = table.loc[("buys", "checkpoints", "pa_net")]
    assert [row["mean"], row["least"], row["most"]] == pytest.approx([sum(own) / 2, min(own), max(own)])
    assert row["std_seeds"] == pytest.approx(abs(own[0] - own[1]) / 2**0.5)
    assert row["seeds"] == 2
    assert set(table.index.get_level_values("metric")) == {"pa_net", "cvar", "ffr", "net_over_twap"}
    groups = pd.read_csv(sweep / "stability.csv").set_index(["by", "group"])
    assert groups.loc[("side", "buy"), "mean"] == pytest.approx(row["mean"])
    assert (groups["seeds"] == 2).all()
    assert groups["apart"].between(0, 2).all()
    assert "Does it hold under other conditions?" in (sweep / "seed-1" / "report.html").read_text()
