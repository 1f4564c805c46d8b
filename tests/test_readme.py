"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig, parse_assignments

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_the_reward_of_your_own_trains(tmp_path: Path) -> None:
    (code,) = blocks("python")
    own = code[code.index("class ") : code.index("simulator =")]
    assert len(own.strip().splitlines()) <= 10
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line[:9] for line in lines] == ["iteration"] * 3
    assert lines[-1].endswith("done")


def test_the_file_of_your_own_bars_is_a_configuration(tmp_path: Path) -> None:
    (text,) = blocks("yaml")
    (tmp_path / "mine.yaml").write_text(text)
    config = RunConfig.load(tmp_path / "mine.yaml")
    assert config.market.settings["source"] == str(tmp_path / "bars")
    assert config.split.test == ("2024-06-01", "2024-07-31")


def test_the_refusal_is_the_one_that_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.load(None, parse_assignments(["algorithm.learing_rate=1e-3"]))
    assert f"\n    {caught.value}\n" in README


def test_every_file_and_folder_that_is_named_exists() -> None:
    for name in re.findall(r"`((?:rlwb|notebooks|data|configs|benchmarks)/[\w./]*)`", README):
        assert (ROOT / name).exists(), name
