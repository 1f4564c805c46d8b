"""What clusters need and an installation lacks."""

from __future__ import annotations

from typing import Any

import pytest

from rlwb import packages
from rlwb.env import make_env
from rlwb.errors import ConfigError
from rlwb.execution import PAPenaltyReward
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.pipeline import check_config
from rlwb.study.launch import make_launcher
from tests.trainer.small import small


@pytest.fixture(autouse=True)
def _none_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None)


@pytest.mark.parametrize(("name", "extra"), [("ray", "ray"), ("submitit", "slurm")])
def test_a_launcher_without_its_package_names_it(name: str, extra: str) -> None:
    with pytest.raises(ConfigError, match=rf"needs the package {name}; pip install 'rlwb\[{extra}\]'"):
        make_launcher(name)


@pytest.mark.parametrize("setting", ["train.env=ray", "train.actors=2", "backtest.actors=2"])
def test_a_run_on_ray_without_ray_is_refused_before_any_work(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"rlwb\[ray\]"):
        check_config(RunConfig.load(None, parse_assignments([setting])))


def test_an_environment_on_ray_without_ray_names_it() -> None:
    market = small()
    parts: Any = (market.simulator, market.observer, market.chooser, PAPenaltyReward(), market.orders)
    with pytest.raises(ConfigError, match=r"rlwb\[ray\]"):
        make_env(*parts, finite_env_type="ray")
