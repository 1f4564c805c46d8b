"""Two small stages and the notebooks that tell them."""

from __future__ import annotations

from pathlib import Path

import nbformat

from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import Stage

FIRST = Stage(
    name="first",
    notebook="1.ipynb",
    depends=("market", "seed"),
    inputs=(),
    outputs=("orders",),
)
SECOND = Stage(
    name="second",
    notebook="2.ipynb",
    depends=("train", "algorithm"),
    inputs=("orders/*.txt",),
    outputs=("checkpoints", "metrics"),
    after=(FIRST,),
    extends=("train.iterations",),
    indifferent=(
        "train.env",
        "train.concurrency",
    ),
)
FAKES = (FIRST, SECOND)


def first(run: RunDirectory, config: RunConfig) -> None:
    run.orders.mkdir(exist_ok=True)
    (run.orders / "all.txt").write_text(f"seed {config.seed}\n")


def second(run: RunDirectory, config: RunConfig) -> None:
    """Train: goes on from the iterations that are there, prints a line for each."""
    for folder in (run.checkpoints, run.metrics):
        folder.mkdir(exist_ok=True)
    for iteration in range(len(list(run.checkpoints.iterdir())) + 1, config.train.iterations + 1):
        print(f"iteration {iteration} of {config.train.iterations}")
        (run.checkpoints / f"{iteration}.pt").write_text(str(config.algorithm.settings["learning_rate"]))
    (run.metrics / "train.csv").write_text("iteration,pa,reward,seconds\n")


PARAMETERS = {1: 'run_dir = "runs/x"\nseed = None', 2: 'run_dir = "runs/x"\niterations = None'}
ASKED = {1: "seed=seed", 2: "iterations=iterations"}


def notebook(*cells: str, tagged: int | None = 0) -> nbformat.NotebookNode:
    """Return a notebook of these code cells; cell `tagged` has the tag ``parameters``."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell, id=f"c{i}") for i, cell in enumerate(cells)]
    if tagged is not None:
        book.cells[tagged].metadata["tags"] = ["parameters"]
    return book


def stage_notebook(number: int, *extra: str, tagged: int | None = 0, parameters: str = "") -> nbformat.NotebookNode:
    name = {1: "first", 2: "second"}[number]
    setup = (
        f"from tests.experiment.fakes import {name.upper()}, {name}\n"
        f"from rlwb.experiment.notebook import open_stage\nstage = open_stage({name.upper()}, run_dir, {ASKED[number]})"
    )
    return notebook(parameters or PARAMETERS[number], setup, *extra, f"stage.do({name})", tagged=tagged)


def write_notebooks(
    folder: Path, first: nbformat.NotebookNode | None = None, second: nbformat.NotebookNode | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(first or stage_notebook(1), folder / "1.ipynb")
    nbformat.write(second or stage_notebook(2), folder / "2.ipynb")
    return folder


def config(**values: object) -> RunConfig:
    return RunConfig.load(
        None, Layer("test", {"train.iterations": 3, **{n.replace("__", "."): v for n, v in values.items()}})
    )
