"""MLflow and Weights & Biases, each read back by its own reader, and a whole run followed by both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rlwb.experiment import tracked as module
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.tracked import tracked
from rlwb.tracking import MLflow, TrackedRun, Trackers, WandB
from tests.experiment.test_tracked import WORK, configured, do
from tests.tracking.test_tensorboard import read, rows, scalars

CONFIG = {"train.iterations": 3, "algorithm.name": "ppo"}


def client(store: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(tracking_uri=f"sqlite:///{store}")


def history(store: Path, run: str, name: str) -> list[tuple[int, float]]:
    found = client(store).get_metric_history(run, name)
    return sorted((metric.step, metric.value) for metric in found)


def runs(store: Path, experiment: str) -> list[Any]:
    own = client(store)
    return list(own.search_runs([own.get_experiment_by_name(experiment).experiment_id]))


def files(store: Path, run: str, folder: str) -> list[str]:
    return sorted(Path(one.path).name for one in client(store).list_artifacts(run, folder))


def offline_file(place: Path) -> Path:
    (found,) = place.glob("wandb/offline-run-*/run-*.wandb")
    return found


def inspected(place: Path) -> list[dict[str, Any]]:
    """Return the records of the one offline run in a folder, as the tool's own reader prints them."""
    words = [str(Path(sys.executable).parent / "wandb"), "leet", "inspect", "--json", str(offline_file(place))]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


def logged(place: Path) -> list[dict[str, Any]]:
    """Return the rows of history that Weights & Biases reads: figure to value."""
    return [record["history"]["item"] for record in inspected(place) if record["type"] == "history"]


def begin(tracker: Any, run: TrackedRun, said: list[str] | None = None) -> Trackers:
    trackers = Trackers([(type(tracker).__name__, tracker)], [].append if said is None else said.append)
    trackers.start(run)
    assert trackers
    return trackers


def test_mlflow_has_every_row_once_the_settings_and_the_files(tmp_path: Path) -> None:
    store, table = tmp_path / "mlflow.db", tmp_path / "headline.csv"
    table.write_text("policy\n")
    run = TrackedRun("abc", "seed-3", tmp_path, "sweep", CONFIG, {"commit": "f00d", "seed": "3"})
    trackers = begin(MLflow(), run)
    trackers.send("", rows(1, 2))  # and then it was killed
    trackers = begin(MLflow(), TrackedRun("abc", "seed-3", tmp_path, "sweep", {**CONFIG, "train.iterations": 4}))
    assert trackers.goes_on == {0: True}
    trackers.send("teacher/", [(1, {"train/pa": 7.0})])
    trackers.send("", rows(1, 4))
    trackers.each(0, lambda tracker: tracker.artefact(table, "backtest"))
    trackers.finish("finished")

    (found,) = runs(store, "sweep")
    assert found.info.run_name == "seed-3"
    assert found.info.status == "FINISHED"
    assert history(store, found.info.run_id, "train/pa") == [(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)]
    assert history(store, found.info.run_id, "teacher/train/pa") == [(1, 7.0)]
    assert found.data.params == {"train.iterations": "3", "algorithm.name": "ppo"}
    assert found.data.tags["now.train.iterations"] == "4"
    assert found.data.tags["mlflow.source.git.commit"] == "f00d"
    assert files(store, found.info.run_id, "backtest") == ["headline.csv"]


def test_mlflow_says_how_a_run_has_ended(tmp_path: Path) -> None:
    for status, told in (("failed", "FAILED"), ("interrupted", "KILLED")):
        begin(MLflow(str(tmp_path / "own.db"), "mine"), TrackedRun(status, status)).finish(status)
        assert {run.info.run_name: run.info.status for run in runs(tmp_path / "own.db", "mine")}[status] == told


MEMBER = """
import sys
from pathlib import Path
from rlwb.tracking import MLflow, TrackedRun, Trackers

name, folder = sys.argv[1], Path(sys.argv[2])
trackers = Trackers([("mlflow", MLflow())], lambda text: sys.exit(text))
trackers.start(TrackedRun(name, name, folder, "sweep"))
for step in range(1, 41):
    trackers.send("", [(step, {f"train/{k}": step * k for k in range(30)})])
trackers.finish("finished")
"""


def test_two_members_that_write_into_one_new_store_at_a_time_lose_no_row(tmp_path: Path) -> None:
    members = [subprocess.Popen([sys.executable, "-c", MEMBER, name, str(tmp_path)]) for name in ("one", "two")]
    assert [member.wait(300) for member in members] == [0, 0]
    found = runs(tmp_path / "mlflow.db", "sweep")
    assert sorted(run.info.run_name for run in found) == ["one", "two"]
    for run in found:
        for k in (0, 1, 29):
            wanted = [(step, float(step * k)) for step in range(1, 41)]
            assert history(tmp_path / "mlflow.db", run.info.run_id, f"train/{k}") == wanted


def test_wandb_writes_a_file_here_and_goes_on_in_one_with_all_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")  # the configuration says, not the environment
    run = TrackedRun("abc", "seed-3", tmp_path, "sweep", CONFIG, {"commit": "f00d"})
    trackers = begin(WandB("mine"), run)
    trackers.send("", rows(1, 2))
    trackers.finish("interrupted")
    first = offline_file(tmp_path)
    assert [row["train/pa"] for row in logged(tmp_path)] == [1, 2]
    trackers = begin(WandB("mine"), run)
    assert trackers.goes_on == {0: False}
    trackers.send("teacher/", [(1, {"train/pa": 7.0})])
    trackers.send("", rows(1, 3))
    trackers.finish("finished")

    assert not first.exists()
    found = logged(tmp_path)
    assert [(row["iteration"], row["train/pa"]) for row in found[1:]] == [(1, 1), (2, 2), (3, 3)]
    assert (found[0]["teacher/iteration"], found[0]["teacher/train/pa"]) == (1, 7)
    records = inspected(tmp_path)
    begun = next(record["run"] for record in records if record["type"] == "run")
    assert [begun[name] for name in ("run_id", "display_name", "project", "run_group")] == [
        *("abc", "seed-3", "mine", "sweep")
    ]
    assert begun["config"]["update"]["train.iterations"] == 3
    assert begun["config"]["update"]["facts"] == {"commit": "f00d"}


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Return a whole small run that all trackers have followed."""
    config = configured("tensorboard", "mlflow", "wandb")
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "one", config)
    with tracked(run, config):
        do(run, config, *WORK)
    return run


def test_every_tracker_has_the_whole_run(followed: RunDirectory) -> None:
    place, wanted = (
        followed.path.parent,
        pd.read_csv(followed.metrics / "train.csv", float_precision="round_trip")["pa"],
    )
    assert [value for _, value in scalars(place / "tensorboard" / "one", "train/pa")] == pytest.approx(list(wanted))
    (run,) = runs(place / "mlflow.db", place.name)
    own = run.info.run_id
    assert [value for _, value in history(place / "mlflow.db", own, "train/pa")] == list(wanted)
    headline = pd.read_csv(followed.backtest / "headline.csv", index_col="policy", float_precision="round_trip")
    for name in ("pa_mean", "pa_lo", "pa_hi"):
        assert run.data.metrics[f"test/checkpoints/{name}"] == headline.loc["checkpoints", name]
    assert files(place / "mlflow.db", own, "figures") == sorted(path.name for path in followed.figures.glob("*.png"))
    assert files(place / "mlflow.db", own, "checkpoints") == ["0001.pt", "0002.pt"]
    assert {"headline.csv", "metrics.csv"} <= set(files(place / "mlflow.db", own, "backtest"))
    assert {"config.yaml", "manifest.json"} <= set(files(place / "mlflow.db", own, "run"))
    found = logged(place)
    assert [row["train/pa"] for row in found if "train/pa" in row] == list(wanted)
    assert [row["test/checkpoints/pa_lo"] for row in found if "test/checkpoints/pa_lo" in row] == [
        headline.loc["checkpoints", "pa_lo"]
    ]
    assert {name for row in found for name in row if name.startswith("figures/")}
    kept = {record["artifact"]["type"] for record in inspected(place) if record["type"] == "artifact"}
    assert kept == {"run", "metrics", "backtest", "checkpoints"}


def test_a_run_that_is_followed_again_gets_no_row_or_picture_twice(followed: RunDirectory) -> None:
    config = configured("tensorboard", "mlflow", "wandb")
    with tracked(followed, config):
        pass
    place = followed.path.parent
    (run,) = runs(place / "mlflow.db", place.name)
    for name in ("train/pa", "val/pa", "test/checkpoints/pa_mean"):
        assert len(history(place / "mlflow.db", run.info.run_id, name)) == (1 if "test" in name else 2)
        assert len(scalars(place / "tensorboard" / "one", name)) == (1 if "test" in name else 2)
    assert len(read(place / "tensorboard" / "one").Images("figures/learning_curves")) == 1
    assert len([row for row in logged(place) if "train/pa" in row]) == 2


def test_a_store_that_cannot_be_written_ends_no_run(
    followed: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken.db").write_text("this is no database")
    with tracked(followed, configured({"name": "mlflow", "store": str(tmp_path / "broken.db")})):
        pass
    said = [record.message for record in caplog.records if record.name.startswith("rlwb")]
    assert len(said) == 1
    assert said[0].startswith("tracker mlflow: ")
    assert said[0].endswith("the run goes on without it.")


def test_trackers_look_often_enough_for_a_person() -> None:
    assert module.POLL_SECONDS <= 2
