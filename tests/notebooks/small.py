"""The small setting in which the shipped notebooks are executed: the same cells, smaller numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import papermill
from nbformat import NotebookNode

from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer, short_names
from rlwb.experiment.yamlfile import dump_yaml

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "notebooks"

SMALL: dict[str, dict[str, Any]] = {
    "01_orders.ipynb": {"market": {"name": "synthetic", "instruments": 4, "days": 20}, "seed": 3},
    "02_training.ipynb": {
        "network": {"name": "recurrent", "hidden": 8},
        "algorithm": {"name": "ppo", "batch_size": 100, "repeat": 1},
        "iterations": 6,
        "episodes_per_iteration": 60,
    },
    "03_backtest.ipynb": {"top": 3, "bootstrap_samples": 200},
    "04_stability.ipynb": {},
}
"""Notebook of a stage to the values that are passed to it."""

SAME = ("metrics/train.csv", "metrics/validation.csv", "backtest/summary.csv", "backtest/headline.txt")
"""Files that must not depend on how the run was started."""


def small_values(**changes: Any) -> dict[str, Any]:
    """Return the small setting by the parameters' dotted names."""
    names = short_names(RunConfig().as_dict())
    given = {names[name]: value for values in SMALL.values() for name, value in values.items()}
    return {**given, **{name.replace("__", "."): value for name, value in changes.items()}}


def small_config(**changes: Any) -> RunConfig:
    return RunConfig.load(None, Layer("test", small_values(**changes)))


def command(run: Path, *words: str, **changes: Any) -> subprocess.Popen[str]:
    """Start ``rlwb run`` in the small setting."""
    asked = {name: dump_yaml(value, flow=True).strip() for name, value in small_values(**changes).items()}
    sets = [word for name, value in asked.items() for word in ("--set", f"{name}={value}")]
    return start("-m", "rlwb.cli", "run", "--run-dir", str(run), *sets, *words)


def start(*words: str) -> subprocess.Popen[str]:
    """Start Python as a user would, without the settings of the tests' own process."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *words], stdout=pipe, stderr=pipe, text=True, cwd=ROOT, env=environment)


def finish(process: subprocess.Popen[str], code: int = 0) -> tuple[str, str]:
    """Wait for a process and return what it said."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, f"{out}\n{err}"
    return out, err


def by_hand(notebook: Path, target: Path, **values: Any) -> NotebookNode:
    """Execute a notebook with papermill itself, outside of any pipeline."""
    return papermill.execute_notebook(
        str(notebook), str(target), values, cwd=str(ROOT), kernel_name="python3", progress_bar=False
    )


def printed(notebook: NotebookNode) -> str:
    """Return what the notebook's cells printed."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def shown(notebook: NotebookNode, kind: str) -> list[Any]:
    """Return what the notebook's cells display in a form, for example ``image/png``."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]
