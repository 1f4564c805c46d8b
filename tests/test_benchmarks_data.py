"""The measurement of readers, and the fuzzer, on small sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import fuzz
from benchmarks.data import write_sources
from benchmarks.data_job import JOBS
from benchmarks.data_sources import market, write_qlib
from benchmarks.fuzzing.check import Unexpected, check_answer, check_refusal
from benchmarks.fuzzing.coverage import Arcs
from benchmarks.fuzzing.loop import Loop
from benchmarks.fuzzing.targets import TARGETS
from benchmarks.fuzzing.tree import Tree, read_tree
from benchmarks.qlib_agreement import differences, frequencies
from rlwb.errors import DataError
from rlwb.market import read_bars


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    write_sources(folder, instruments=2, days=1)
    return folder


@pytest.mark.parametrize("job", list(JOBS))
def test_every_job_reads_all_bars(job: str, sources: Path) -> None:
    for _ in range(2):  # a second round finds nothing done by the first
        figures = JOBS[job](sources)
        assert figures["bars"] == 2 * (390 if "lobster" in job else 240)
        assert figures["seconds"] > 0
        assert figures["peak_mb"] >= 0


def test_bars_that_differ_from_qlibs_are_counted(tmp_path: Path) -> None:
    write_qlib(market(3, 5), tmp_path / "q", ("1min", "5min", "day"), holes=True)
    assert frequencies(tmp_path / "q") == ["1min", "5min", "day"]
    ours = read_bars(tmp_path / "q", kind="qlib", options={"freq": "5min"})
    theirs = ours.astype({"instrument": str}).copy()
    assert differences(ours, theirs)["different"] == 0
    theirs.loc[3, "close"] += 0.01
    theirs.loc[4, "volume"] = np.nan if theirs.loc[4, "volume"] == theirs.loc[4, "volume"] else 1.0
    counted = differences(ours, theirs.drop(index=[0, 1]))
    assert counted == {
        "instruments": 3,
        "bars_compared": len(ours) - 2,
        "different": 2,
        "only_rlwb": 2,
        "only_qlib": 0,
    }


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_seed_is_read_and_a_short_run_finds_nothing(name: str, tmp_path: Path) -> None:
    loop = Loop(name, seed=1, keep=tmp_path / "kept")
    result = loop.run(25, 60, tmp_path / "input")
    assert result.inputs == 25
    assert result.unexpected == 0, result.kinds
    assert result.answers + result.refusals <= 25
    assert result.arcs > 10
    assert (result.answers > 0) == ("not trusted" not in name)


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    one, two = (Loop("lean", seed=7, keep=tmp_path / "kept") for _ in range(2))
    counts = [loop.run(40, 60, tmp_path / "input") for loop in (one, two)]
    assert counts[0].answers == counts[1].answers
    assert [tree.files for tree in one.corpus] == [tree.files for tree in two.corpus]


def test_lines_that_run_are_told_apart(tmp_path: Path) -> None:
    tree, arcs = TARGETS["qlib"].seeds()[0], Arcs()
    tree.write(tmp_path / "whole")
    arcs.run(lambda: TARGETS["qlib"].read(tmp_path / "whole"))
    whole = arcs.found
    tree.replace("calendars/1min.txt", b"x").write(tmp_path / "damaged")
    with pytest.raises(DataError):
        arcs.run(lambda: TARGETS["qlib"].read(tmp_path / "damaged"))
    assert arcs.found - whole
    assert whole - arcs.found


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("x"), "raises KeyError"),
        (DataError("two\nlines in A.csv."), "not one sentence"),
        (DataError("no file is named."), "without naming the file"),
    ],
)
def test_a_refusal_that_is_none_is_found(error: Exception, words: str, tmp_path: Path) -> None:
    Tree({"A.csv": b""}).write(tmp_path / "input")
    check_refusal(DataError("A.csv is empty."), tmp_path / "input")
    with pytest.raises(Unexpected, match=words):
        check_refusal(error, tmp_path / "input")


@pytest.mark.parametrize("name", ["csv", "parquet", "binance", "lean", "lobster", "qlib", "qlib_pickle, trusted"])
def test_a_wrong_bar_is_found(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    tree = target.seeds()[0]
    tree.write(tmp_path / "input")
    frame = target.read(tmp_path / "input")
    check_answer(target, tree, frame, tmp_path / "input", lay_out=True)
    later = frame.assign(datetime=frame["datetime"] + pd.Timedelta(minutes=1))
    for wrong in (frame.assign(close=frame["close"] + 0.01), frame.iloc[1:], later):
        with pytest.raises(Unexpected, match="other bars than the source has"):
            check_answer(target, tree, wrong.reset_index(drop=True), tmp_path / "input", lay_out=False)


def test_reproducers_are_kept_and_read_again(tmp_path: Path) -> None:
    tree = Tree({"a/b.csv": b"1", "c.csv": b"2"})
    tree.write(tmp_path / "kept")
    assert read_tree(tmp_path / "kept").files == tree.files
    smaller = Tree({"c.csv": b"3"})
    smaller.write(tmp_path / "kept", tree)
    assert read_tree(tmp_path / "kept").files == smaller.files


def test_the_time_is_parted_among_the_targets_the_longest_first() -> None:
    seconds = fuzz.seconds_of(list(TARGETS), 14, 2)
    assert list(seconds)[-1] == "qlib_pickle, not trusted"
    assert seconds["lean"] == seconds["csv"] == pytest.approx(5 * seconds["qlib_pickle, not trusted"])
    assert sum(seconds.values()) + 3 * len(TARGETS) == pytest.approx(14 * 60 * 2)
    assert fuzz.seconds_of(["lean"], 1, 2) == {"lean": 57}


def test_a_target_runs_in_a_process_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = fuzz.fuzz("qlib_pickle, not trusted", 0, 20, 60, tmp_path)
    assert (row["inputs"], row["unexpected"]) == (20, 0)
    assert "20 inputs" in capsys.readouterr().out
    rows = [{**row, "target": name} for name in ("lean", "csv", "lean")]
    (tmp_path / "out.json").write_text(json.dumps([{"target": "lean", "inputs": 1}, {"target": "qlib", "inputs": 2}]))
    found = fuzz.merged(tmp_path / "out.json", rows)
    assert [(one["target"], one["inputs"]) for one in found] == [("csv", 20), ("lean", 20), ("qlib", 2)]
