"""The fuzzer on small sizes: it reads its own inputs, and finds what readers may not do."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import fuzz
from benchmarks.fuzzing.damage import Tree, write_tree
from benchmarks.fuzzing.targets import TARGETS, UnexpectedError
from rlwb.errors import DataError


@pytest.mark.parametrize("name", list(TARGETS))
def test_every_seed_is_read(name: str, tmp_path: Path) -> None:
    for files in TARGETS[name].seeds():
        write_tree(files, tmp_path / "input")
        outcome = TARGETS[name].check(files, tmp_path / "input")
        assert outcome == ("refusals" if "not trusted" in name else "answers")


@pytest.mark.parametrize("name", ["csv", "import, parquet", "orders, csv"])
def test_a_short_run_finds_nothing(name: str, tmp_path: Path) -> None:
    row = fuzz.run(name, 1, 25, 60, tmp_path / "kept", tmp_path)
    assert (row["unexpected"], row["kinds"]) == (0, {})
    assert row["inputs"] >= 25
    assert row["answers"] + row["refusals"] <= row["inputs"]


def test_the_same_seed_makes_the_same_inputs(tmp_path: Path) -> None:
    one, two = (fuzz.run("lean", 7, 30, 60, tmp_path / "kept", tmp_path) for _ in range(2))
    assert all(one[name] == two[name] for name in ("inputs", "answers", "refusals"))


@pytest.mark.parametrize("name", ["csv", "csv.gz", "parquet", "binance", "lean", "lobster", "qlib"])
def test_a_wrong_bar_is_found(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    files = target.seeds()[0]
    write_tree(files, tmp_path / "input")
    frame = target.read(tmp_path / "input").query("volume > 0").reset_index(drop=True)
    later = frame.assign(datetime=frame["datetime"] + pd.Timedelta(minutes=1))
    for wrong in (frame.assign(close=frame["close"] + 0.01), frame.iloc[1:], later):
        changed = dataclasses.replace(target, read=lambda _, wrong=wrong: wrong)
        with pytest.raises(UnexpectedError, match="other bars than the source has"):
            changed.check(files, tmp_path / "input")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("x"), "raises KeyError"),
        (DataError("two\nlines in A.csv."), "not one sentence"),
        (DataError("no file is named."), "without naming the file"),
    ],
)
def test_a_refusal_that_is_none_is_found(error: Exception, words: str, tmp_path: Path) -> None:
    def read(folder: Path) -> pd.DataFrame:
        raise error

    write_tree({"A.csv": b""}, tmp_path / "input")
    with pytest.raises(UnexpectedError, match=words):
        dataclasses.replace(TARGETS["csv"], read=read).check({"A.csv": b""}, tmp_path / "input")


def writes(folder: Path) -> pd.DataFrame:
    (folder / "out").mkdir()
    raise DataError(f"{folder} is refused.")


def runs(folder: Path) -> pd.DataFrame:
    os.system("true")
    raise DataError(f"{folder} is refused.")


def stays(folder: Path) -> pd.DataFrame:
    while time.process_time() < 1e9:
        pass
    raise DataError(f"{folder} is refused.")


@pytest.mark.parametrize(
    ("read", "words"), [(writes, "more than reading: os.mkdir"), (runs, "os.system"), (stays, "takes longer than 1 s")]
)
def test_a_reader_that_does_more_than_reading_is_found(
    read: Callable[[Path], pd.DataFrame], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzz, "SECONDS", 1)
    watch = fuzz.Watch(dataclasses.replace(TARGETS["csv"], read=read), tmp_path / "input")
    with pytest.raises(UnexpectedError, match=words):
        watch.try_({"A.csv": b"x"})


def test_the_smallest_input_that_shows_a_fault_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(folder: Path) -> pd.DataFrame:
        if any(b"\0" in path.read_bytes() for path in folder.glob("A.csv") if path.is_file()):
            raise ValueError("a NUL")
        raise DataError(f"{folder} is refused.")

    seeds: list[Tree] = [{"A.csv": b"a,b\n1,2\n" * 9}]
    monkeypatch.setitem(TARGETS, "csv", dataclasses.replace(TARGETS["csv"], read=read, seeds=lambda: seeds))
    row = fuzz.run("csv", 0, 200, 60, tmp_path / "kept", tmp_path)
    assert list(row["kinds"])[:1] == ["UnexpectedError: raises ValueError: a NUL"]
    assert b"\0" in (tmp_path / "kept" / "csv" / "001" / "A.csv").read_bytes()
    assert "a NUL" in (tmp_path / "kept" / "csv" / "001.txt").read_text()


def test_a_target_runs_in_a_process_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = fuzz.fuzz("qlib_pickle, not trusted", 0, 20, 60, tmp_path)
    assert (row["inputs"], row["unexpected"]) == (20, 0)
    assert "20 inputs" in capsys.readouterr().out
    rows = [{**row, "target": name} for name in ("lean", "csv", "lean")]
    (tmp_path / "out.json").write_text(json.dumps([{"target": "lean", "inputs": 1}, {"target": "qlib", "inputs": 2}]))
    found = fuzz.merged(tmp_path / "out.json", rows)
    assert [(one["target"], one["inputs"]) for one in found] == [("csv", 20), ("lean", 20), ("qlib", 2)]


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("configuration, file", {"config.yaml": b"seed: 3"}, {"config.yaml": b"seed: x"}),
        ("configuration, --set", {"set.json": b'["seed=3"]'}, {"set.json": b'["seed=x"]'}),
    ],
)
def test_a_short_run_over_configurations_finds_nothing(name: str, good: Tree, bad: Tree, tmp_path: Path) -> None:
    for files, outcome in ((good, "answers"), (bad, "refusals")):
        write_tree(files, tmp_path / "one")
        assert TARGETS[name].check(files, tmp_path / "one") == outcome
    row = fuzz.run(name, 1, 60, 60, tmp_path / "kept", tmp_path)
    assert (row["unexpected"], row["kinds"]) == (0, {})
    assert row["refusals"] > 0


def test_k08_a_short_run_over_damaged_runs_finds_nothing(tmp_path: Path) -> None:
    row = fuzz.run("run", 1, 12, 60, tmp_path / "kept", tmp_path)
    assert (row["unexpected"], row["kinds"]) == (0, {})
    assert row["answers"] + row["refusals"] > 0


def test_k08_another_number_in_a_run_without_a_word_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = dict(TARGETS["run"].seeds()[0])
    monkeypatch.setattr("benchmarks.fuzzing.runs.is_unchanged", lambda *_: True)
    summary = files["backtest/summary.csv"].decode().splitlines()
    files["backtest/summary.csv"] = "\n".join([*summary[:-1], ""]).encode()
    write_tree(files, tmp_path / "input")
    with pytest.raises(UnexpectedError, match="other results without a word"):
        TARGETS["run"].check(files, tmp_path / "input")
