"""The benchmark of sweeps: what it says differs, and whom it may kill."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import psutil
import pytest

from benchmarks import sweep

SEEDS, HOW = pd.DataFrame({"mean": [1.5]}), {"attempts": 1, "exits": "done", "seconds": 3.0}


def a_sweep(folder: Path, *, pa: float = 2.0, seconds: float = 3.0) -> Path:
    run = folder / "seed-0"
    (run / "metrics").mkdir(parents=True)
    (run / "status.json").write_text("{}")
    (run / "metrics" / "validation.csv").write_text(f"iteration,pa\n1,{pa}\n")
    pd.DataFrame([{"member": "seed-0", **HOW, "seconds": seconds}]).to_csv(folder / "sweep.csv", index=False)
    for name in ("seeds", "improvement"):
        SEEDS.to_csv(folder / f"{name}.csv", index=False)
    return folder


def test_equal_sweeps_do_not_differ_by_how_long_they_took(tmp_path: Path) -> None:
    assert sweep.differences(a_sweep(tmp_path / "a"), a_sweep(tmp_path / "b", seconds=9.0)) == []


def test_a_figure_of_a_member_or_of_the_sweep_that_differs_is_named(tmp_path: Path) -> None:
    first, second = a_sweep(tmp_path / "a"), a_sweep(tmp_path / "b", pa=2.5)
    (found,) = sweep.differences(first, second)
    assert found.startswith("seed-0/metrics/validation.csv")
    pd.DataFrame({"mean": [1.25]}).to_csv(second / "seeds.csv", index=False)
    shutil.rmtree(second / "seed-0" / "metrics")
    assert [text.partition(":")[0] for text in sweep.differences(first, second)] == [
        "seed-0/metrics/validation.csv",
        "seeds.csv",
    ]


@pytest.mark.parametrize(("module", "role"), [("rlwb.study.job", "member"), ("ipykernel_launcher", "kernel")])
def test_victims_are_told_by_their_module(module: str, role: str) -> None:
    program = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)", "-m", module]
    process = subprocess.Popen(program, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it has its own words only once it has begun
        one = psutil.Process(process.pid)
        assert [name for name in ("member", "kernel", "sweep") if sweep._is(name, one)] == [role]
    finally:
        process.kill()
        process.communicate()
    assert not sweep._is(role, one)
