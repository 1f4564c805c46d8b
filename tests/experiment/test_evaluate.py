"""A finished run judged on other dates, orders and bars, without training."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import CheckpointError, ConfigError, OrderError
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, play, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.evaluate import begin_evaluation, evaluated, launch_evaluation
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders
from rlwb.experiment.report import draw_stability, write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import BACKTEST, ORDERS, STABILITY, TRAIN, recorded, run_stage, stages_of
from rlwb.experiment.training import train_policy
from rlwb.experiment.verify import verify_run
from rlwb.experiment.workbench import Workbench
from tests.experiment.test_work import tiny

WORK = {ORDERS: make_orders, TRAIN: partial(train_policy, progress="none"), BACKTEST: backtest_policies}


def do(run: RunDirectory, config: RunConfig) -> list[str]:
    """Do the stages of a run; return what became of each."""
    with recorded(run, list(WORK)):
        return [run_stage(stage, run, config, work, echo=lambda line: None) for stage, work in WORK.items()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "tiny", tiny())
    do(run, tiny())
    return run


@pytest.fixture
def copied(trained: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained.path, tmp_path / "run", symlinks=True)
    return RunDirectory.open(tmp_path / "run")


@pytest.mark.parametrize("split", [{"split.test": 0.1}, {"split.test": ["2023-01-13", "2023-01-16"]}])
def test_k06_other_test_dates_do_not_train_again(trained: RunDirectory, tmp_path: Path, split: dict[str, Any]) -> None:
    """Shares of the dates and dates alike; the training reads the rows of its orders, not how they were asked for."""
    first = dict(split)
    if isinstance(split["split.test"], list):
        first |= {"split.train": ["2023-01-02", "2023-01-09"], "split.valid": ["2023-01-10", "2023-01-12"]}
    before = {**first, "split.test": ["2023-01-17", "2023-01-20"]} if len(first) > 1 else {}
    run = RunDirectory.create(tmp_path / "run", tiny(**before))
    assert do(run, tiny(**before)) == ["done"] * 3
    weights = {path.name: path.stat().st_mtime_ns for path in run.checkpoints.glob("*.pt")}
    assert do(run, tiny(**first)) == ["done", "unchanged", "done"]
    assert {path.name: path.stat().st_mtime_ns for path in run.checkpoints.glob("*.pt")} == weights


def test_k06_orders_of_ones_own_that_were_moved_do_not_train_again(trained: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    shutil.copy(trained.orders / "all.parquet", tmp_path / "a" / "mine.parquet")
    here = tiny(**{"orders.source": str(tmp_path / "a" / "mine.parquet")})
    run = RunDirectory.create(tmp_path / "run", here)
    do(run, here)
    (tmp_path / "a").rename(tmp_path / "b")
    moved = tiny(**{"orders.source": str(tmp_path / "b" / "mine.parquet"), "split.test": 0.1})
    assert do(run, moved) == ["done", "unchanged", "done"]


def judge(run: RunDirectory, folder: Path, **changes: Any) -> RunDirectory:
    """Evaluate a run in a folder, with changes to its configuration."""
    config = evaluated(run, Layer("test", {name.replace("__", "."): value for name, value in changes.items()}))
    evaluation = begin_evaluation(run, config, folder / "evaluation")
    works = {**WORK, STABILITY: draw_stability}
    with recorded(evaluation, stages_of(evaluation)):
        for stage in stages_of(evaluation):
            run_stage(stage, evaluation, config, works[stage], echo=lambda line: None)
    write_report(evaluation)
    return evaluation


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def notes(run: RunDirectory) -> str:
    return "\n".join(json.loads((run.backtest / "headline.json").read_text())["notes"])


def test_k06_on_its_own_test_dates_a_run_is_judged_to_the_same_bits_and_stays_as_it_is(
    trained: RunDirectory, tmp_path: Path
) -> None:
    before = contents(trained.path)
    found = judge(trained, tmp_path)
    assert contents(trained.path) == before
    assert [stage.name for stage in stages_of(found)] == ["orders", "backtest", "stability"]
    for one, other in zip(read_results(found), read_results(trained), strict=True):
        assert (one.policy, one.iteration) == (other.policy, other.iteration)
        np.testing.assert_equal(one.validation_pa, other.validation_pa)
        pd.testing.assert_frame_equal(one.orders, other.orders, check_exact=True)
    assert (found.backtest / "summary.csv").read_text() == (trained.backtest / "summary.csv").read_text()
    told = notes(found)
    assert "WARNING" not in told
    first = pd.read_parquet(trained.orders / "train.parquet")["date"].min()
    assert f"of the run tiny were trained on the market synthetic (3 instruments, {first:%Y-%m-%d} to" in told
    assert verify_run(found).disagreements == []


def test_k06_dates_of_the_training_or_of_the_choice_are_said_first_in_headline_and_page(
    trained: RunDirectory, tmp_path: Path
) -> None:
    dates = {part: pd.read_parquet(trained.orders / f"{part}.parquet")["date"].unique() for part in ("train", "valid")}
    first, last = (f"{day:%Y-%m-%d}" for day in (dates["train"][-2], dates["valid"][0]))
    found = judge(trained, tmp_path, split__test=[first, last])
    told = notes(found).splitlines()
    assert told[0].startswith("WARNING: this is no test: the checkpoints were trained on 2 of the 3 test days")
    assert "12 of 18 orders with the same instruments" in told[0], "three instruments, a buy and a sell each"
    assert told[1].startswith("WARNING: this is no test: the checkpoints were chosen on 1 of the 3 test days")
    assert pd.read_parquet(found.orders / "test.parquet")["date"].nunique() == 3
    page = found.report.read_text()
    assert page.index("this is no test") < page.index("Evaluation without training")


def test_k06_another_market_of_the_same_contract_is_judged_by_what_was_learnt(
    trained: RunDirectory, tmp_path: Path
) -> None:
    """The weights act on the other bars as they are: the normaliser and the baselines' estimates are the run's."""
    found = judge(trained, tmp_path, market__seed=5, market__instruments=4)
    test = pd.read_parquet(found.orders / "test.parquet")
    assert test["instrument"].nunique() == 4
    same = pd.read_parquet(trained.orders / "test.parquet")
    assert test["date"].agg(["min", "max"]).equals(same["date"].agg(["min", "max"])), "the test dates are the run's"
    assert (found.backtest / "baselines.json").read_text() == (trained.backtest / "baselines.json").read_text()
    summary = pd.read_csv(found.backtest / "summary.csv")
    assert summary["policy"].tolist() == pd.read_csv(trained.backtest / "summary.csv")["policy"].tolist()
    bench = Workbench(tiny(**{"market.seed": 5, "market.instruments": 4}))
    playable = checkpoint_policy(bench, trained.checkpoints / "0003.pt")
    by_hand = play(bench, playable, bench.align(test)).metrics["pa"]
    np.testing.assert_array_equal(pd.read_parquet(found.backtest / "orders" / "last.parquet")["pa"], by_hand)
    assert np.abs(by_hand).max() > 1
    assert verify_run(found).disagreements == []


def test_k06_under_other_rules_the_checkpoints_are_those_of_the_run_and_the_difference_is_told(
    trained: RunDirectory, tmp_path: Path
) -> None:
    found = judge(trained, tmp_path, execution__rules__commission_bps=3.0)
    assert "The rules are not those of the training: commission_bps 0.0 there, 3.0 here." in notes(found)
    summary = pd.read_csv(found.backtest / "summary.csv").set_index("policy")
    own = pd.read_csv(trained.backtest / "summary.csv").set_index("policy")
    assert summary["validation_pa"].isna().all(), "no validation was under these rules"
    np.testing.assert_array_equal(summary["pa_mean"], own["pa_mean"])
    policies = summary.index[summary["kind"] != "ceiling"]
    for name in policies:
        orders = pd.read_parquet(found.backtest / "orders" / f"{name}.parquet")
        fees = 3.0 * (orders["price"] / orders["twap"]).mean()  # of what was paid, in basis points of the benchmark
        assert summary.loc[name, "pa_net"] == pytest.approx(own.loc[name, "pa_mean"] - fees, abs=1e-6), name


def test_k06_a_table_of_orders_of_ones_own_is_judged(trained: RunDirectory, tmp_path: Path) -> None:
    table = pd.read_parquet(trained.orders / "test.parquet").iloc[:5]
    table.assign(amount=table["amount"] * 2).to_csv(tmp_path / "mine.csv", index=False)
    found = judge(trained, tmp_path, orders__source=str(tmp_path / "mine.csv"))
    judged = pd.read_parquet(found.backtest / "orders" / "twap.parquet")
    assert judged["order_id"].tolist() == table["order_id"].tolist()
    np.testing.assert_allclose(judged["amount"], table["amount"] * 2)


def test_orders_with_forms_are_judged_kept_and_verified(trained: RunDirectory, tmp_path: Path) -> None:
    table = pd.read_parquet(trained.orders / "test.parquet").iloc[:5]
    arrival = pd.read_parquet(trained.backtest / "orders" / "twap.parquet")["arrival"].iloc[:5]
    limit = np.where(table["direction"] == "BUY", 0.998, 1.002) * arrival
    forms = {"limit_price": limit, "notional": 1e4, "latest_end": table["end"], "amount": np.nan}
    table.assign(**forms, end=table["start"] + pd.Timedelta(hours=1)).to_csv(tmp_path / "mine.csv", index=False)
    found = judge(trained, tmp_path, orders__source=str(tmp_path / "mine.csv"))
    judged = pd.read_parquet(found.backtest / "orders" / "twap.parquet")
    np.testing.assert_allclose(judged["amount"], 1e4 / arrival)
    assert judged["latest_end"].tolist() == table["end"].tolist()
    worse = np.where(judged["direction"] == "BUY", judged["price"] > limit, judged["price"] < limit)
    assert not worse.any()
    assert judged["filled"].any()
    assert verify_run(found).disagreements == []


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"train.iterations": 9}, ConfigError, ["train.iterations", "3", "9"]),
        ({"algorithm": "dqn"}, ConfigError, ["algorithm", "all_actions", "dqn"]),
        ({"features.columns": ["close"]}, ConfigError, ["features.columns"]),
        ({"execution.ticks_per_step": 2}, ConfigError, ["execution.ticks_per_step", "6", "2"]),
        ({"backtest.top": 1}, ConfigError, ["backtest.top"]),
        ({"split.train": 0.5}, ConfigError, ["split.train", "0.6", "0.5"]),
        ({"split.test": 0.5}, ConfigError, ["split.test", "0.5"]),
        ({"split.test": ["2031-01-01", "2031-02-01"]}, OrderError, ["2031-01-01", "2023-01-23"]),
        ({"market.tick_minutes": 10}, CheckpointError, ["bar_seconds 300 there, 600 here"]),
        ({"baselines": [{"name": "almgren_chriss", "urgency": 9}]}, ConfigError, ["almgren_chriss"]),
    ],
)
def test_k06_k22_what_the_checkpoints_were_not_made_for_is_refused_by_name(
    trained: RunDirectory, tmp_path: Path, changes: dict[str, Any], error: type[Exception], named: list[str]
) -> None:
    before = contents(trained.path)
    with pytest.raises(error) as caught:
        judge(trained, tmp_path, **changes)
    assert all(text in str(caught.value) for text in named), str(caught.value)
    assert contents(trained.path) == before


def test_k06_a_run_without_a_backtest_of_its_files_and_an_evaluation_are_refused(
    copied: RunDirectory, tmp_path: Path
) -> None:
    found = judge(copied, tmp_path)
    with pytest.raises(ConfigError, match="is an evaluation itself"):
        evaluated(found)
    shutil.copy(copied.checkpoints / "0001.pt", copied.checkpoints / "0002.pt")
    with pytest.raises(ConfigError, match="no finished backtest of the files that are there"):
        evaluated(copied)


def test_k06_the_copies_are_those_that_the_run_chose(copied: RunDirectory, tmp_path: Path) -> None:
    found = judge(copied, tmp_path)
    chosen = json.loads((copied.backtest / "selection.json").read_text())["chosen"]
    names = {f"{name.removeprefix('checkpoint-')}.pt" for name in chosen} | {"0003.pt"}
    assert {path.name for path in found.checkpoints.glob("*.pt")} == names
    (found.checkpoints / f"{chosen[0].removeprefix('checkpoint-')}.pt").unlink()
    with pytest.raises(CheckpointError, match="other checkpoints than its run chose"):
        backtest_policies(found, found.config)


def test_k22_test_dates_without_orders_are_refused_before_a_directory_is_made(
    trained: RunDirectory, tmp_path: Path
) -> None:
    with pytest.raises(OrderError, match="2031-01-01"):
        launch_evaluation(trained.path, None, ["split.test=[2031-01-01, 2031-02-01]"], tmp_path / "evaluation")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["metrics/validation.csv", "origin/backtest/baselines.json", "checkpoints/0003.pt"])
def test_k34_changes_to_an_evaluations_copies_of_what_it_judges_are_found(
    trained: RunDirectory, tmp_path: Path, name: str
) -> None:
    found = judge(trained, tmp_path)
    with (found.path / name).open("ab") as file:
        file.write(b"\n")
    assert name in [one.file for one in verify_run(found).disagreements]


def test_a_copying_that_is_cut_short_leaves_no_run_that_would_train(
    trained: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copyfile", stopped)
    with pytest.raises(KeyboardInterrupt):
        begin_evaluation(trained, evaluated(trained), tmp_path / "evaluation")
    assert not RunDirectory(tmp_path / "evaluation").is_run()


def test_a_run_whose_configuration_was_deleted_is_judged_by_its_copy(copied: RunDirectory, tmp_path: Path) -> None:
    (copied.path / "config.yaml").unlink()
    found = begin_evaluation(copied, evaluated(copied), tmp_path / "evaluation")
    assert found.origin is not None
    (found.origin.path / "config.yaml").unlink()
    assert found.origin is not None, "an evaluation does not become a run that trains"
    assert found.origin.config == copied.config
