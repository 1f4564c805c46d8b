"""A run followed by trackers: what they are sent, and that nothing that they do changes it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.experiment import tracked as module
from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig, parse_assignments
from rlwb.experiment.layers import Layer
from rlwb.experiment.notebook import NotebookStage
from rlwb.experiment.orders import make_orders
from rlwb.experiment.origin import refuse_training_changes
from rlwb.experiment.own_code import own_code
from rlwb.experiment.report import draw_stability
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, STABILITY, TRAIN, is_unchanged
from rlwb.experiment.tracked import flat, tracked
from rlwb.experiment.training import train_policy
from rlwb.trainer import load_checkpoint
from tests.experiment.test_work import TINY
from tests.tracking.test_tensorboard import read, scalars

SMALL = {**TINY, "train.iterations": 2, "market.instruments": 2, "market.days": 30}
WORK = {ORDERS: make_orders, TRAIN: train_policy, BACKTEST: backtest_policies, STABILITY: draw_stability}
OWN = """
from pathlib import Path
from rlwb.tracking import Tracker

class Lines(Tracker):
    def __init__(self, folder: str, breaks: bool = False):
        self.file, self.breaks = Path(folder), breaks

    def note(self, *words):
        with self.file.open("a") as file:
            print(*words, file=file)

    def start(self, run):
        self.note("start", run.id, run.name, run.group, run.config["seed"])
        if self.breaks:
            raise RuntimeError("no more")

    def log(self, step, figures):
        self.note("log", step, *sorted(figures))

    def figure(self, name, path, step):
        self.note("figure", name, step)

    def artefact(self, path, kind):
        self.note("artefact", kind, path.name)

    def finish(self, status):
        self.note("finish", status)
"""


def configured(*trackers: object, **changes: object) -> RunConfig:
    return RunConfig.load(None, Layer("test", {**SMALL, "trackers": list(trackers), **changes}))


def do(run: RunDirectory, config: RunConfig, *stages: object) -> None:
    for stage in stages:
        NotebookStage(stage, run, config).do(WORK[stage])


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    yield
    assert not module._followed


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, RunConfig]:
    """Return a whole run, followed from beginning to end by TensorBoard."""
    config = configured("tensorboard")
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "one", config)
    with tracked(run, config):
        do(run, config, *WORK)
    return run, config


def test_all_that_the_run_has_is_read_back(done: tuple[RunDirectory, RunConfig]) -> None:
    run, _ = done
    place = run.path.parent / "tensorboard" / "one"
    train, validation = (pd.read_csv(run.metrics / f"{name}.csv") for name in ("train", "validation"))
    found = read(place)
    for prefix, table in (("train", train), ("val", validation)):
        for name in table.columns.drop("iteration"):
            wanted = table.set_index("iteration")[name].dropna()
            if len(wanted):
                events = found.Scalars(f"{prefix}/{name}")
                assert [event.step for event in events] == list(wanted.index), name
                np.testing.assert_allclose([event.value for event in events], wanted, rtol=1e-6, atol=1e-30)
    headline = pd.read_csv(run.backtest / "headline.csv", index_col="policy")
    for name in ("pa_mean", "pa_lo", "pa_hi", "win_rate", "ffr"):
        (event,) = found.Scalars(f"test/checkpoints/{name}")
        assert (event.step, event.value) == (2, pytest.approx(headline.loc["checkpoints", name], rel=1e-6))
    assert found.Tags()["images"] == sorted(f"figures/{path.stem}" for path in run.figures.glob("*.png"))
    assert b"best checkpoints" in found.Tensors("headline")[0].tensor_proto.string_val[0]
    assert found.Tensors("status")[0].tensor_proto.string_val == [b"finished"]


def test_weights_are_bit_equal_without_and_another_tracker_makes_nothing_again(
    done: tuple[RunDirectory, RunConfig], tmp_path: Path
) -> None:
    run, _ = done
    plain = configured()
    other = RunDirectory.create(tmp_path / "plain", plain)
    do(other, plain, ORDERS, TRAIN)
    mine, theirs = (load_checkpoint(one.checkpoints / "0002.pt")["vessel"] for one in (run, other))
    flat_mine, flat_theirs = (torch.utils._pytree.tree_flatten(state)[0] for state in (mine, theirs))
    assert len(flat_mine) == len(flat_theirs) > 5
    for one, two in zip(flat_mine, flat_theirs, strict=True):
        assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two
    assert all(is_unchanged(stage, run, plain) for stage in WORK)
    assert not (tmp_path / "tensorboard").exists()
    assert not (other.path / "tracking.json").exists()


def test_a_tracker_of_ones_own_is_told_everything_and_a_later_one_is_sent_all(
    done: tuple[RunDirectory, RunConfig], tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    mine = {"name": f"{tmp_path}/mine.py:Lines", "folder": str(tmp_path / "lines.txt")}
    run = RunDirectory(shutil.copytree(done[0].path, tmp_path / "runs" / "later"))
    config = configured("tensorboard", mine)
    assert list(own_code(config)) == [f"trackers {mine['name']}"], "it falls under the rule of trust"
    with tracked(run, config):
        pass
    lines = (tmp_path / "lines.txt").read_text().splitlines()
    known = json.loads((run.path / "tracking.json").read_text())
    assert lines[0] == f"start {known['id']} later runs 0"
    assert [line.split()[:2] for line in lines[1:4]] == [["log", "1"], ["log", "2"], ["log", "2"]]
    assert "train/loss" in lines[1]
    assert "val/pa" in lines[1]
    assert "test/checkpoints/pa_lo" in lines[3]
    assert "figure figures/learning_curves 2" in lines
    for wanted in ("checkpoints 0001.pt", "checkpoints 0002.pt", "backtest headline.csv", "metrics train.csv"):
        assert f"artefact {wanted}" in lines
    assert lines[-1] == "finish finished"
    assert [step for step, _ in scalars(tmp_path / "runs" / "tensorboard" / "later", "train/pa")] == [1, 2]


def test_rows_beyond_the_last_checkpoint_wait_until_they_stand(
    done: tuple[RunDirectory, RunConfig], tmp_path: Path
) -> None:
    """A run that is killed between a row and its checkpoint repeats that row; the tracker has it once."""
    run = RunDirectory(shutil.copytree(done[0].path, tmp_path / "killed"))
    (run.path / "tracking.json").unlink()
    (run.checkpoints / "0002.pt").unlink()
    config = configured({"name": "tensorboard", "folder": str(tmp_path / "logs")})
    with pytest.raises(KeyboardInterrupt), tracked(run, config):
        raise KeyboardInterrupt
    (place,) = (tmp_path / "logs").rglob("killed")
    assert [step for step, _ in scalars(place, "train/pa")] == [1]
    assert read(place).Tensors("status")[0].tensor_proto.string_val == [b"interrupted"]
    before = pd.read_csv(run.metrics / "train.csv")["pa"]
    with tracked(run, config):
        do(run, config, TRAIN)
    assert scalars(place, "train/pa") == [(1, pytest.approx(before[0])), (2, pytest.approx(before[1]))]


def test_a_training_of_other_settings_is_another_run_and_the_old_rows_are_not_its(
    done: tuple[RunDirectory, RunConfig], tmp_path: Path
) -> None:
    run = RunDirectory(shutil.copytree(done[0].path, tmp_path / "runs" / "one"))
    config = configured("tensorboard", **{"algorithm.learning_rate": 0.01})
    with tracked(run, config):
        pass
    place = tmp_path / "runs" / "tensorboard" / "one-2"
    assert read(place).Tags()["scalars"] == []
    assert read(place).Tags()["images"] == []
    do(run, config, TRAIN)
    rates = pd.read_csv(run.metrics / "train.csv")["pa"]
    assert scalars(place, "train/pa") == [(i, pytest.approx(rates[i - 1])) for i in (1, 2)]


def test_a_tracker_that_breaks_or_hangs_ends_no_run(
    done: tuple[RunDirectory, RunConfig], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    mine = {"name": f"{tmp_path}/mine.py:Lines", "folder": str(tmp_path / "lines.txt"), "breaks": True}
    run = RunDirectory(shutil.copytree(done[0].path, tmp_path / "one"))
    with tracked(run, configured(mine)):
        pass
    (record,) = caplog.records
    assert record.message.endswith("Lines: RuntimeError: no more; the run goes on without it.")


def test_one_that_does_not_answer_is_not_waited_for(
    done: tuple[RunDirectory, RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    hangs = threading.Event()
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("rlwb.tracking.tensorboard.TensorBoard.start", lambda self, run: hangs.wait())
    run = RunDirectory(shutil.copytree(done[0].path, tmp_path / "one"))
    with tracked(run, configured("tensorboard")):
        pass
    hangs.set()


def test_places_are_paths_from_the_file_and_addresses_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "trackers: [tensorboard, {name: mlflow, store: stores/mlflow.db}, {name: mlflow, store: 'http://host:5000'}]"
    )
    first, second, third = RunConfig.load(tmp_path / "mine.yaml").trackers
    assert first.settings == {"folder": None}
    assert second.settings == {"store": str(tmp_path / "stores/mlflow.db"), "experiment": None, "artefacts": True}
    assert third.settings["store"] == "http://host:5000"
    assert RunConfig.load(None, parse_assignments(["trackers=[tensorboard]"])).trackers == (first,)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("[tensorbord]", "tensorboard"),
        ("[{name: tensorboard, foldr: x}]", "folder"),
        ("tensorboard", "trackers"),
        ("[{name: wandb, mode: onlin}]", "online"),
    ],
)
def test_what_is_misspelt_is_named(given: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        RunConfig.load(None, parse_assignments([f"trackers={given}"]))


def test_an_evaluation_may_have_other_trackers() -> None:
    refuse_training_changes(configured("tensorboard"), configured())


def test_settings_are_flat_and_keep_their_types() -> None:
    found = flat(configured())
    assert found["train.iterations"] == 2
    assert found["market.signal"] == 1.0
    assert found["head.mask_actions"] is True
    assert found["train.patience"] is None
    assert json.loads(found["features.columns"])[0] == "open"
    assert not any(name.startswith("trackers") for name in found)
