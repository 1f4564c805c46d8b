"""A run over rolling windows: a training each, and one report."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import CheckpointError, ConfigError
from rlwb.experiment.backtest import read_results
from rlwb.experiment.compare import audit_method, compare, do_stages
from rlwb.experiment.config import RunConfig
from rlwb.experiment.evaluate import begin_evaluation, evaluated
from rlwb.experiment.layers import Layer
from rlwb.experiment.report import write_report
from rlwb.experiment.rolling import walk, window_configs, windows_of
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.verify import verify_run
from rlwb.trainer import load_checkpoint
from tests.experiment.test_work import tiny

WALK = {
    "split.rolling": {"train": 6, "valid": 2, "test": 3},
    "train.iterations": 2,
    "baselines": ["twap", "pov", "hindsight"],
}
quiet = partial(do_stages, echo=lambda line: None)


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory.create(tmp_path_factory.mktemp("rolling") / "run", tiny(**WALK))
    quiet(run, tiny(**WALK))
    write_report(run)
    return run


def test_k06_each_window_is_the_run_that_one_would_have_with_its_dates(walked: RunDirectory, tmp_path: Path) -> None:
    """Its orders, its normaliser, its weights and its results are those of an ordinary run: nothing leaks in."""
    windows = windows_of(walked)
    assert [window.path.name for window in windows] == ["001", "002"]
    own = windows[1].config
    single = tiny(**{**WALK, "split.rolling": None, **{f"split.{name}": getattr(own.split, name) for name in PARTS}})
    assert single == own
    run = RunDirectory.create(tmp_path / "single", single)
    quiet(run, single)
    weights = [load_checkpoint(one.checkpoints / "0002.pt") for one in (run, windows[1])]
    assert weights[0]["meta"]["normaliser"] == weights[1]["meta"]["normaliser"]
    for name in ("summary.csv", "baselines.json"):
        assert (run.backtest / name).read_text() == (windows[1].backtest / name).read_text()
    other = load_checkpoint(windows[0].checkpoints / "0002.pt")
    assert other["meta"]["normaliser"] != weights[1]["meta"]["normaliser"], "fitted on each window's training days"


PARTS = ("train", "valid", "test")


def test_k06_pooled_orders_are_those_of_all_windows_each_counting_the_same(walked: RunDirectory) -> None:
    windows = [{one.policy: one for one in read_results(window)} for window in windows_of(walked)]
    pooled = {one.policy: one for one in read_results(walked)}
    twap = pooled["twap"].orders
    assert twap["order_id"].tolist() == [name for one in windows for name in one["twap"].orders["order_id"]]
    assert len(set(twap["date"])) == sum(len(set(one["twap"].orders["date"])) for one in windows)
    for rank in (1, 2):
        chosen = [[one for one in window.values() if one.kind == "checkpoint"][rank - 1] for window in windows]
        by_hand = np.concatenate([one.pa for one in chosen])
        np.testing.assert_array_equal(pooled[f"rank-{rank:02d}"].pa, by_hand)
    summary = pd.read_csv(walked.backtest / "summary.csv").set_index("policy")
    assert summary.loc["rank-01", "orders"] == len(twap)
    mean = np.nanmean(np.concatenate([one["pov"].pa for one in windows]))
    assert summary.loc["pov", "pa_mean"] == pytest.approx(mean, abs=1e-12)
    table = pd.read_csv(walked.backtest / "windows.csv")
    assert table["window"].tolist() == [1, 2]
    assert table["orders"].sum() == len(twap)
    notes = json.loads((walked.backtest / "headline.json").read_text())["notes"]
    assert notes[0].startswith("Walk-forward over 2 sliding windows, train 6, valid 2, test 3, step 3")
    page = walked.report.read_text()
    assert "Not here" not in page
    assert "Each window" in page
    assert (walked.figures / "pa_by_window.png").is_file()


def test_k06_a_walk_goes_on_where_it_was_and_windows_are_trained_once(walked: RunDirectory, tmp_path: Path) -> None:
    config = tiny(**WALK)
    run = RunDirectory.create(tmp_path / "run", config)
    done: list[str] = []

    def stopped(window: RunDirectory, own: RunConfig) -> None:
        if window.path.name == "002" and len(done) == 1:
            done.append("stopped")
            raise KeyboardInterrupt
        done.append(window.path.name)
        quiet(window, own)

    with pytest.raises(KeyboardInterrupt):
        walk(run, config, stopped, echo=lambda line: None)
    weights = (run.path / "windows" / "001" / "checkpoints" / "0002.pt").stat().st_mtime_ns
    walk(run, config, stopped, echo=lambda line: None)
    assert done == ["001", "stopped", "001", "002"]
    assert (run.path / "windows" / "001" / "checkpoints" / "0002.pt").stat().st_mtime_ns == weights
    for name in ("summary.csv", "windows.csv", "headline.txt"):
        assert (run.backtest / name).read_text() == (walked.backtest / name).read_text()


def test_k06_windows_that_the_settings_no_longer_have_are_set_aside(walked: RunDirectory, tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", tiny(**WALK))
    made: list[str] = []

    def begun(window: RunDirectory, own: RunConfig) -> None:
        made.append(window.path.name)
        if len(made) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        walk(run, tiny(**WALK), begun, echo=lambda line: None)
    longer = tiny(**{**WALK, "split.rolling": {"train": 9, "valid": 2, "test": 3}})
    said: list[str] = []
    made.clear()
    with pytest.raises(Exception):  # noqa: B017 - nothing was done in the window, so nothing can be pooled
        walk(run, longer, begun, echo=said.append)
    assert "windows that there are no longer: windows/002" in said[0]
    assert [path.name for path in (run.path / "windows").iterdir() if not path.name.startswith(".")] == ["001"]


def test_k06_a_walk_is_verified_and_a_changed_number_of_a_window_or_of_the_pool_is_named(walked: RunDirectory) -> None:
    assert verify_run(walked).disagreements == []
    path = walked.backtest / "windows.csv"
    before = path.read_text()
    table = pd.read_csv(path)
    table.loc[1, "ffr"] -= 0.5
    table.to_csv(path, index=False)
    found = [(one.file, one.row, one.column) for one in verify_run(walked).disagreements]
    path.write_text(before)
    assert found == [("backtest/windows.csv", "2", "ffr")]


def test_k06_methods_are_compared_over_windows(tmp_path: Path) -> None:
    configs = {"ppo": tiny(**WALK), "mlp": tiny(**WALK, network="mlp")}
    table = compare(tmp_path, configs, echo=lambda line: None)
    assert table.frame["policy"].tolist()[-2:] == ["ppo", "mlp"]
    assert table.frame["orders"].nunique() == 1
    with pytest.raises(ConfigError, match=r"ppo in .* other settings \(.*seed 0 there, 1 now"):
        compare(tmp_path, {**configs, "ppo": tiny(**WALK, seed=1)}, echo=lambda line: None)
    with pytest.raises(CheckpointError, match="is a run over windows"):
        audit_method(tmp_path, "ppo", "x")


def test_k06_what_cannot_walk_is_refused_before_any_training(walked: RunDirectory, tmp_path: Path) -> None:
    config = tiny(**{**WALK, "split.rolling": {"train": 60, "valid": 2, "test": 3}})
    run = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(ConfigError, match="train 60"):
        window_configs(run, config)
    with pytest.raises(ConfigError, match=r"written split\.rolling\.train now"):
        RunConfig.load(None, Layer("test", {"orders.split.rolling.train": 5}))
    with pytest.raises(ConfigError, match="name the run of one of them"):
        evaluated(walked)
    first = windows_of(walked)[0]
    beside = begin_evaluation(first, evaluated(first))
    assert beside.path.parent == first.path.parent
    assert beside.path not in {window.path for window in windows_of(walked)}, "an evaluation is no window"
    for wrong in ({"trian": 5}, {"train": "soon"}, 5):
        with pytest.raises(ConfigError, match=r"split\.rolling"):
            RunConfig.load(None, Layer("test", {"split.rolling": wrong}))
    changed = RunConfig.load(
        None, Layer("a", {"split.rolling": {"train": 9, "gap": 1}}), Layer("b", {"split.rolling.train": 7})
    )
    assert changed.split.rolling is not None
    assert (changed.split.rolling.train, changed.split.rolling.gap) == (7, 1), "one setting changes one"


def test_results_with_and_without_windows_are_not_mixed(walked: RunDirectory, tmp_path: Path) -> None:
    """A run that gets windows sets its own results aside, and one that loses them what was pooled."""

    def results(run: RunDirectory) -> set[str]:
        folders = (run.orders, run.backtest)
        return {path.relative_to(run.path).as_posix() for one in folders for path in one.rglob("*") if path.is_file()}

    plain = tiny(**{**WALK, "split.rolling": None})
    run = RunDirectory.create(tmp_path / "run", plain)
    quiet(run, plain)
    before = results(run)
    quiet(run, tiny(**WALK))
    assert results(run) == results(walked)
    fewer = tiny(**{**WALK, "baselines": ["twap"]})
    quiet(run, fewer)
    assert {path.stem for path in (run.backtest / "orders").iterdir()} == {"rank-01", "rank-02", "last", "twap"}
    assert verify_run(run).disagreements == []
    quiet(run, plain)
    assert results(run) == before
