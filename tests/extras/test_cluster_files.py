"""The cluster files of the documentation are ones that Ray, and the shell, take."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private import util

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "cluster"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_a_cluster_file_is_complete(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    filled = util.prepare_config(config)
    util.validate_config(filled)  # which refuses unknown keys
    assert filled["head_start_ray_commands"] == config["head_start_ray_commands"]
    if config["provider"]["type"] == "local":
        assert config["min_workers"] == config["max_workers"] == len(config["provider"]["worker_ips"])


def test_the_script_for_slurm_is_one() -> None:
    subprocess.run(["bash", "-n", str(FOLDER / "slurm.sh")], check=True)
    lines = (FOLDER / "slurm.sh").read_text().splitlines()
    options = [line for line in lines if line.startswith("#SBATCH ")]
    assert lines[0] == "#!/bin/bash"
    assert lines.index(options[0]) < lines.index("set -euo pipefail")  # Slurm reads no further than the first command
