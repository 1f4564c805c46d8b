"""Two runs compared by what they keep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from rlwb import cli
from rlwb.experiment.compare import do_stages
from rlwb.experiment.diff import Change, diff_runs
from rlwb.experiment.run import RunDirectory, update_manifest
from tests.experiment.test_work import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished runs ``a`` and ``other``, which was trained with another learning rate."""
    folder = tmp_path_factory.mktemp("diff")
    for name, rate in {"a": 0.002, "other": 0.02}.items():
        config = tiny(**{"algorithm.learning_rate": rate, "train.iterations": 2, "baselines": ["twap"]})
        do_stages(RunDirectory.create(folder / name, config), config, echo=lambda line: None)
    return folder


def test_a_copy_of_a_run_is_the_same_wherever_it_lies(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "a", tmp_path / "copy")
    with pytest.raises(SystemExit) as ended:
        cli.main(["diff", str(runs / "a"), str(tmp_path / "copy")])
    assert ended.value.code == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "the same: configuration, data, code, packages, machine, result"


def test_what_differs_is_told_by_topic_and_where_trainings_part(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["diff", str(runs / "a"), str(runs / "other"), "--json"])
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert found["changes"]["configuration"] == [{"name": "algorithm.learning_rate", "a": 0.002, "b": 0.02}]
    assert not any(found["changes"][topic] for topic in ("data", "code", "packages", "machine"))
    tables = [pd.read_csv(runs / name / "metrics" / "train.csv").drop(columns="seconds") for name in ("a", "other")]
    parts = (tables[0] != tables[1]).any(axis=1).idxmax() + 1  # the untrained policies are the same
    names = [one["name"] for one in found["changes"]["result"]]
    assert any(name.startswith(f"metrics/train.csv parts at iteration {parts}, ") for name in names)
    assert "2 of 2 checkpoints, the first checkpoints/0001.pt" in names


def test_packages_machine_and_commit_are_compared_by_the_manifest(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "a", tmp_path / "copy")
    one, two = RunDirectory.open(runs / "a"), RunDirectory.open(tmp_path / "copy")
    known = two.manifest
    update_manifest(
        two,
        packages={**known["packages"], "torch": "2.0"},
        machine={**known["machine"], "cores": -1},
        git={"commit": "0", "changed": False},
        data={"market": "0"},
    )
    found = diff_runs(one, two).changes
    assert found["packages"] == (Change("torch", known["packages"]["torch"], "2.0"),)
    assert found["machine"] == (Change("cores", known["machine"]["cores"], -1),)
    assert "commit" in [change.name for change in found["code"]]
    assert [change.name for change in found["data"]] == ["market"]
    assert found["configuration"] == found["result"] == ()
