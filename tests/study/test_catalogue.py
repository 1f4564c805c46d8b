"""`rlwb runs`: every run below a folder with how it stands, whatever it has gone through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlwb import cli
from rlwb.errors import ConfigError
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.run import RunDirectory, write_sealed
from rlwb.study.catalogue import Entry, launch_list, list_runs

HEAD = "policy,kind,pa_mean,pa_lo,pa_hi,pa_net,pa_net_lo,pa_net_hi\n"
ROW = "checkpoints,checkpoint,3,1,5,3,1,5\n"
TWAP = "twap,baseline,0,0,0,0,0,0\n"


def made(
    path: Path, state: str = "finished", head: str | None = "checkpoints,checkpoint,3,1,5,3,1,5\n", **values: Any
) -> Path:
    """Make a run that says of itself that all its stages are done, with a headline."""
    run = RunDirectory.create(path, RunConfig.load(None, Layer("test", values)))
    stage = {
        "state": "finished",
        "started": "2026-01-02T03:04:05+00:00",
        "settings": {"algorithm.name": "dqn", "seed": 7},
    }
    run.update_status(state=state, stages={"orders": stage})
    if head is not None:
        run.backtest.mkdir()
        (run.backtest / "headline.csv").write_text(HEAD + TWAP + head)
    return path


def found(*folders: Path) -> dict[str, Entry]:
    return {one.path.name: one for one in list_runs(folders)}


def test_runs_are_found_in_folders_of_many_and_below(tmp_path: Path) -> None:
    made(tmp_path / "a/one")
    made(tmp_path / "sweep/seed-0")
    made(tmp_path / "sweep/seed-1", state="failed")
    made(tmp_path / "search/trials/000001", head=None)
    made(tmp_path / "search/orders/seed-5", head=None)
    made(tmp_path / "walk")
    made(tmp_path / "walk/windows/001")
    made(tmp_path / "judged")
    (tmp_path / "judged/origin").mkdir()
    kept = tmp_path / "sweep/mlflow-artifacts/2ddf/artifacts/run"
    kept.mkdir(parents=True)
    for name in ("config.yaml", "manifest.json"):
        (kept / name).write_text("a copy that a tracker keeps, no run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/notes.txt").write_text("no run")
    for kind in ("sweep", "search"):
        write_sealed(tmp_path / kind / f"{kind}.yaml", {"of": kind})
    entries = found(tmp_path)
    kinds = {name: one.kind for name, one in entries.items()}
    assert kinds == {
        "one": "run",
        "seed-0": "run",
        "seed-1": "run",
        "000001": "trial",
        "seed-5": "orders",
        "walk": "windows",
        "judged": "evaluation",
        "sweep": "sweep",
        "search": "search",
    }
    sweep = entries["sweep"]
    assert (sweep.runs, sweep.status, sweep.reason) == (2, "failed", "1 of 2")
    assert entries["search"].status == "interrupted", "it has no page yet"
    assert found(tmp_path / "walk/windows").keys() == {"001"}
    assert found(tmp_path / "a/one").keys() == {"one"}
    assert len(list_runs([tmp_path, tmp_path / "a"])) == len(entries), "each once"


def test_the_headline_stands_with_its_interval_and_never_alone(tmp_path: Path) -> None:
    made(tmp_path / "plain", head="checkpoints,checkpoint,3,1,5,3,1,5\n")
    made(tmp_path / "costs", head="checkpoints,checkpoint,3,1,5,-2,-4,0.5\n")
    made(tmp_path / "few", head="checkpoints,checkpoint,3,,,3,,\n")
    made(tmp_path / "none", head=None)
    arrival = RunDirectory(made(tmp_path / "arrival"))
    arrival.update_stage("orders", {"settings": {"execution.rules.benchmark": "arrival"}})
    cells = {name: one.cells()[3] for name, one in found(tmp_path).items()}
    assert cells == {
        "plain": "3.00 [1.00, 5.00]",
        "costs": "-2.00 [-4.00, 0.50] (net PA)",
        "few": "too few days",
        "none": "-",
        "arrival": "3.00 [1.00, 5.00] (PA over arrival)",
    }


def test_learner_seed_market_and_time_are_told(tmp_path: Path) -> None:
    made(tmp_path / "run")
    run = RunDirectory.create(tmp_path / "new", RunConfig.load(None, Layer("test", {"seed": 5})))
    run.update_status(state="created")
    (tmp_path / "bars").mkdir()
    bars = {"market": {"name": "bars", "source": str(tmp_path / "bars")}, "algorithm": "dqn"}
    RunDirectory.create(tmp_path / "mine", RunConfig.load(None, Layer("test", bars)))
    entries = found(tmp_path)
    assert (entries["run"].learner, entries["run"].seed) == ("dqn", "7"), "of its stages"
    assert entries["run"].begun is not None
    assert entries["run"].begun.isoformat().startswith("2026-01-0")
    new = entries["new"]
    assert (new.learner, new.seed, new.market, new.status) == ("all_actions, signals", "5", "synthetic", "created")
    assert (entries["mine"].learner, entries["mine"].market) == ("dqn, signals", "bars")
    assert new.bytes == sum(path.stat().st_size for path in (tmp_path / "new").rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("status.json", "{", "status.json"),
        ("status.json", '{"state": "dreaming"}', "status.json"),
        ("status.json", None, "status.json is missing"),
        ("config.yaml", "seed: 3\n", "config.yaml"),
        ("backtest/headline.csv", "policy,kind\n", "headline.csv"),
        ("backtest/headline.csv", HEAD + "checkpoints,checkpoint,much,1,5,3,1,5\n", "headline.csv"),
        ("backtest/headline.csv", b"\xff\xfe\x00", "headline.csv"),
    ],
)
def test_damage_is_listed_with_its_reason(tmp_path: Path, file: str, content: Any, told: str) -> None:
    path = made(tmp_path / "run")
    (path / "manifest.json").write_text("{}")
    if content is None:
        (path / file).unlink()
    else:
        (path / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (entry,) = list_runs([tmp_path])
    assert entry.status == "damaged"
    assert told in entry.reason


def test_what_was_killed_as_it_began_is_listed(tmp_path: Path) -> None:
    (tmp_path / "20260102-030405-synthetic").mkdir()
    (tmp_path / "begun").mkdir()
    for name in (".lock", ".config.yaml"):
        (tmp_path / "begun" / name).touch()
    (tmp_path / "empty").mkdir()
    assert {name: one.status for name, one in found(tmp_path).items()} == {
        "20260102-030405-synthetic": "half-made",
        "begun": "half-made",
    }


def test_a_run_that_was_stopped_says_in_which_stage(tmp_path: Path) -> None:
    run = RunDirectory(made(tmp_path / "run", state="running", head=None))
    run.update_stage("train", {"state": "running"})
    assert found(tmp_path)["run"].cells()[2] == "interrupted: train"
    with run.lock():
        assert found(tmp_path)["run"].cells()[2] == "running: train"
    run.update_status(state="failed", failure={"stage": "train", "error": "no memory"})
    assert found(tmp_path)["run"].cells()[2] == "failed: train, no memory"


def test_lists_are_sorted_and_missing_figures_come_last(tmp_path: Path) -> None:
    made(tmp_path / "low", head="checkpoints,checkpoint,1,0,2,1,0,2\n")
    made(tmp_path / "none", head=None)
    made(tmp_path / "high", head="checkpoints,checkpoint,9,8,10,9,8,10\n")
    for sort, names in (("pa", ["high", "low", "none"]), ("name", ["high", "low", "none"]), ("size", None)):
        entries = launch_list([tmp_path], sort=sort, echo=lambda text: None)
        assert names is None or [one.path.name for one in entries] == names
    assert [one.bytes for one in entries] == sorted((one.bytes for one in entries), reverse=True)
    with pytest.raises(ConfigError, match="size"):
        launch_list([tmp_path], sort="sizes")
    with pytest.raises(ConfigError, match="gone"):
        launch_list([tmp_path / "gone"])


def test_the_command_prints_a_table_or_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            cli.main(["runs", *words])
        assert not stop.value.code
        return capsys.readouterr().out

    assert call() == "no runs in runs\n"
    made(tmp_path / "runs/one")
    header, _, row = call().splitlines()
    assert header.split()[:3] == ["name", "kind", "status"]
    assert row.startswith("runs/one")
    (entry,) = json.loads(call("runs", "--json"))
    assert (entry["pa"], entry["lo"], entry["hi"], entry["status"]) == (3, 1, 5, "finished")
