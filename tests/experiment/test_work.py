"""The work of the stages on a tiny market, called as a script calls it."""

from __future__ import annotations

import html
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rlwb.errors import CheckpointError, ConfigError, DataError, OrderError
from rlwb.evaluation import SUMMARY_COLUMNS
from rlwb.execution.generate import OWN_VOLUME
from rlwb.experiment import backtest, report
from rlwb.experiment.backtest import backtest_policies, checkpoint_policy, play, read_results
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import load_orders, make_orders, workbench
from rlwb.experiment.report import draw_stability, stability_figures, write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.stages import ORDERS, TRAIN, run_stage
from rlwb.experiment.training import temporary_run, train_policy
from rlwb.experiment.workbench import Workbench
from rlwb.parts import Part
from rlwb.reading import read_json
from rlwb.record import ACTING
from rlwb.trainer import list_checkpoints, load_checkpoint, restore_policy, save_checkpoint

TINY = {
    "market.instruments": 3,
    "market.days": 15,
    "network.hidden": 8,
    "train.iterations": 3,
    "train.episodes_per_iteration": 40,
    "algorithm.batch_size": 40,
    "algorithm.repeat": 1,
    "backtest.top": 2,
    "backtest.bootstrap_samples": 200,
}


#: Kinds of what is known of the market's law, without and with its volatility.
KNOWN = ("attainable", "unattainable")


def tiny(**changes: object) -> RunConfig:
    return RunConfig.load(None, Layer("test", {**TINY, **changes}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny()
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "tiny", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    return run


@pytest.fixture
def copied(trained: RunDirectory, tmp_path: Path) -> RunDirectory:
    shutil.copytree(trained.path, tmp_path / "run", symlinks=True)
    return RunDirectory.open(tmp_path / "run")


def test_scoring_a_checkpoint_again_gives_the_logged_number(trained: RunDirectory) -> None:
    config = trained.config
    bench = workbench(trained, config)
    orders = bench.align(load_orders(trained, bench, "valid"))
    logged = pd.read_csv(trained.metrics / "validation.csv").set_index("iteration")
    for iteration, path in list_checkpoints(trained.checkpoints).items():
        means = play(bench, checkpoint_policy(bench, path), orders).means()
        for name in ("pa", "ffr", "pa_net"):
            assert means[name] == pytest.approx(logged.loc[iteration, name], abs=1e-9), (iteration, name)


def test_f01_a_backtest_writes_one_file_a_policy_and_again_the_same(copied: RunDirectory) -> None:
    config = copied.config
    backtest_policies(copied, config)
    files = {path.name: path.read_bytes() for path in sorted((copied.backtest / "orders").iterdir())}
    summary = (copied.backtest / "summary.csv").read_text()
    chosen = pd.read_csv(copied.backtest / "summary.csv")
    assert list(files) == sorted(f"{policy}.parquet" for policy in chosen["policy"])
    assert chosen["kind"].tolist() == ["checkpoint", "checkpoint", "last", *["baseline"] * 5, "ceiling", *KNOWN]
    assert chosen["policy"].tolist()[3:9] == ["twap", "vwap", "pov", "almgren_chriss", "forecast", "hindsight"]
    assert chosen.columns.tolist() == [*SUMMARY_COLUMNS, "seed", "algorithm", "network", "reward_part"]
    backtest_policies(copied, config)
    assert (copied.backtest / "summary.csv").read_text() == summary
    orders = load_orders(copied, workbench(copied, config), "test")
    for name in files:
        again = pd.read_parquet(copied.backtest / "orders" / name)
        assert again["order_id"].tolist() == orders["order_id"].tolist()


def test_j05_the_backtest_writes_results_by_side_size_and_window(copied: RunDirectory) -> None:
    backtest_policies(copied, copied.config)
    table = pd.read_csv(copied.backtest / "groups.csv")
    summary = pd.read_csv(copied.backtest / "summary.csv").set_index("policy")
    assert table["by"].unique().tolist() == ["side", "size", "window"]
    assert set(table["kind"]) == {"checkpoint", "last", "baseline", *KNOWN}
    sides = table[(table["policy"] == "last") & (table["by"] == "side")].set_index("group")
    # Every session has a buy and a sell, so the mean over all orders is the mean of the two.
    assert sides.loc[["buy", "sell"], "pa_mean"].mean() == pytest.approx(summary.loc["last", "pa_mean"], abs=1e-9)
    whole = table[(table["policy"] == "last") & (table["by"] == "window")]
    assert whole["pa_mean"].tolist() == pytest.approx([summary.loc["last", "pa_mean"]], abs=1e-9)
    sizes = table[(table["policy"] == "twap") & (table["by"] == "size")]
    assert sizes["orders"].sum() == summary.loc["twap", "orders"]
    assert sizes["orders"].max() - sizes["orders"].min() <= 1
    shown = report.groups_table(copied)
    assert shown["group"].tolist() == table.loc[table["kind"] == "checkpoint", "group"].tolist()


def test_j05_training_orders_of_one_side_are_told_before_training_and_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Workbench(tiny())
    parts, _ = bench.make_orders()
    whole = parts["all"]
    learnt = whole["date"].isin(parts["train"]["date"])
    whole[(whole["direction"] == "BUY") | ~learnt].to_csv(tmp_path / "own.csv", index=False)
    config = tiny(**{"orders.source": str(tmp_path / "own.csv"), "execution.rules.sell_tax_bps": 5.0})
    run = RunDirectory.create(tmp_path / "run", config)
    make_orders(run, config)
    told = read_json(run.orders / "data.json")["notes"]
    assert (
        told[0] == "training and test orders differ in side: 100 % of the training orders buy, of the test orders 50 %"
    )
    assert "halted" in told[1]
    train_policy(run, config, progress="none")
    assert "a rule that cannot act: sell_tax_bps" in capsys.readouterr().out
    backtest_policies(run, config)
    caveats = read_json(run.backtest / "caveats.json")["caveats"]
    assert told[0] in caveats
    assert f"T{told[0][1:]}." in write_report(run).read_text()


def test_j08_a_run_leaves_out_wrong_rows_of_an_order_table_where_asked(tmp_path: Path) -> None:
    whole = Workbench(tiny()).make_orders()[0]["all"].astype({"amount": object})
    whole.loc[3, "amount"], whole.loc[4, "instrument"] = "many", "NONE"
    whole.to_csv(tmp_path / "own.csv", index=False)
    refused = Workbench(tiny(**{"orders.source": str(tmp_path / "own.csv")}))
    with pytest.raises(OrderError, match=r"own.csv, line 5 \(.*'many'"):
        refused.make_orders()
    config = tiny(**{"orders.source": str(tmp_path / "own.csv"), "orders.on_refused": "drop"})
    parts, notes = Workbench(config).make_orders()
    assert len(parts["all"]) == len(whole) - 2
    assert "own.csv, line 5" in notes[0]
    assert notes[1] == "1 orders were left out: the instrument is not in the data"


def test_j11_a_run_whose_orders_know_their_days_volume_says_so(tmp_path: Path) -> None:
    for days in (0, 3):
        config = tiny(**{"orders.volume_days": days})
        run = RunDirectory.create(tmp_path / f"run{days}", config)
        make_orders(run, config)
        assert (OWN_VOLUME in read_json(run.orders / "data.json")["notes"]) == (days == 0)
        assert (OWN_VOLUME[1:] in html.unescape(write_report(run).read_text()).partition("How stable")[0]) == (
            days == 0
        )


def test_what_the_backtest_wrote_is_read_back(copied: RunDirectory) -> None:
    backtest_policies(copied, copied.config)
    for result in read_results(copied):
        if result.kind == "ceiling":
            assert result.inventory is None
            continue
        assert result.inventory is not None
        np.testing.assert_allclose(result.inventory[:, 0], 1.0)
        np.testing.assert_allclose(result.inventory[:, -1], 0.0, atol=1e-6)
    figures = stability_figures(copied, copied.config)
    assert len(figures) == 9


def test_e13_a_backtest_without_checkpoints_is_refused(copied: RunDirectory) -> None:
    shutil.rmtree(copied.checkpoints)
    with pytest.raises(CheckpointError):
        backtest_policies(copied, copied.config)
    assert not copied.backtest.joinpath("summary.csv").exists()
    with pytest.raises(CheckpointError, match="has no backtest yet"):
        read_results(copied)


def bits(value: Any) -> Any:
    """Return a policy's state with its tensors as bytes."""
    if isinstance(value, Mapping):
        return {key: bits(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [bits(one) for one in value]
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("number", [3, 2, 1], ids=["the last", "in the middle", "the first"])
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "killed"])
def test_k04_a_damaged_checkpoint_is_trained_again_to_the_same_bits(
    copied: RunDirectory, number: int, finished: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run, config = copied, copied.config
    work = {ORDERS: make_orders, TRAIN: train_policy}
    if finished:
        for stage, do in work.items():
            run_stage(stage, run, config, do)
    before = {path.name: load_checkpoint(path) for path in list_checkpoints(run.checkpoints).values()}
    content = (run.checkpoints / f"{number:04d}.pt").read_bytes()
    (run.checkpoints / f"{number:04d}.pt").write_bytes(content[: len(content) // 2 if number > 1 else 0])
    capsys.readouterr()
    if finished:
        assert [run_stage(stage, run, config, do) for stage, do in work.items()] == ["unchanged", "done"]
        assert f"checkpoints/{number:04d}.pt is not as the stage left it" in capsys.readouterr().out
    else:
        train_policy(run, config, progress="none")
        assert f"made again from there on: the checkpoint {run.checkpoints}/{number:04d}.pt" in capsys.readouterr().out
    after = {path.name: load_checkpoint(path) for path in list_checkpoints(run.checkpoints).values()}
    assert after.keys() == before.keys()
    for name, state in after.items():
        assert bits(state["vessel"]["policy"]) == bits(before[name]["vessel"]["policy"]), name
    assert (run.checkpoints / "latest").resolve().name == "0003.pt"


@pytest.mark.parametrize("name", ["metrics/train.csv", "metrics/validation.csv"])
def test_k04_tables_that_are_lost_are_trained_again(copied: RunDirectory, name: str) -> None:
    """No checkpoint has the figures of the iterations before it."""
    run, config, work = copied, copied.config, {ORDERS: make_orders, TRAIN: train_policy}
    for stage, do in work.items():
        run_stage(stage, run, config, do)
    before = pd.read_csv(run.path / name).drop(columns="seconds", errors="ignore")
    (run.path / name).write_text("iteration\n")
    assert [run_stage(stage, run, config, do) for stage, do in work.items()] == ["unchanged", "done"]
    pd.testing.assert_frame_equal(pd.read_csv(run.path / name).drop(columns="seconds", errors="ignore"), before)


def test_k04_what_cannot_be_read_is_told_in_the_headline(copied: RunDirectory) -> None:
    (copied.checkpoints / "0003.pt").write_bytes(b"")
    backtest_policies(copied, copied.config)
    for name in ("headline.txt", "headline.md", "headline.json"):
        assert "Left out, because they cannot be read: 0003.pt" in (copied.backtest / name).read_text()


def test_f03_a_damaged_checkpoint_is_left_out_and_named(copied: RunDirectory) -> None:
    backtest_policies(copied, copied.config)
    first = pd.read_csv(copied.backtest / "summary.csv")["policy"].iloc[0]
    path = copied.checkpoints / f"{first.removeprefix('checkpoint-')}.pt"
    path.write_bytes(path.read_bytes()[:1000])
    backtest_policies(copied, copied.config)
    names = pd.read_csv(copied.backtest / "summary.csv")["policy"].tolist()
    assert first not in names
    assert path.name in (copied.backtest / "selection.json").read_text()


@pytest.mark.parametrize("column", ["pa", "ffr", "reward", "length", "episodes", "reward/pa"])
def test_k31_a_validation_that_cannot_be_reproduced_stops_the_backtest(copied: RunDirectory, column: str) -> None:
    """Every figure that was logged is scored again; the PA alone is blind where it is 0."""
    file = copied.metrics / "validation.csv"
    table = pd.read_csv(file)
    table[column] += 1 if column == "episodes" else 1e-6
    table.to_csv(file, index=False)
    with pytest.raises(DataError, match=rf"does not score .*{column} .*logged"):
        backtest_policies(copied, copied.config)


def test_k31_each_row_of_the_table_is_scored_again(copied: RunDirectory) -> None:
    """The chosen ones and the last."""
    file = copied.metrics / "validation.csv"
    table = pd.read_csv(file)
    best = table["pa"].nlargest(2).index
    last = table.index[-1]
    for at in {*best, last}:
        changed = table.astype({"length": float})
        changed.loc[at, "length"] += 0.5
        changed.to_csv(file, index=False)
        with pytest.raises(DataError, match=rf"000{at + 1}\.pt .*length"):
            backtest_policies(copied, copied.config)


def retrained(run: RunDirectory, folder: Path, **changes: object) -> RunDirectory:
    """Return another run, of other settings."""
    other = RunDirectory.create(folder, tiny(**changes))
    make_orders(other, other.config)
    train_policy(other, other.config, progress="none")
    return other


OTHER_TRAININGS = {
    "another seed of the weights": {"seed": 1},
    "other bars": {"market.seed": 1},
    "another learning rate": {"algorithm.learning_rate": 1e-3},
}


@pytest.mark.parametrize("change", OTHER_TRAININGS.values(), ids=OTHER_TRAININGS)
def test_k31_a_foreign_checkpoint_is_refused_by_name(
    copied: RunDirectory, tmp_path: Path, change: dict[str, object]
) -> None:
    other = retrained(copied, tmp_path / "other", **change)
    foreign = other.checkpoints / "0003.pt"
    shutil.copyfile(foreign, copied.checkpoints / "0099.pt")
    with pytest.raises(CheckpointError, match=r"0099\.pt was trained for something else: run .* there.*take it out"):
        backtest_policies(copied, copied.config)
    (copied.checkpoints / "0099.pt").unlink()
    best = pd.read_csv(copied.metrics / "validation.csv").set_index("iteration")["pa"].idxmax()
    shutil.copyfile(foreign, copied.checkpoints / f"{best:04d}.pt")
    with pytest.raises(CheckpointError, match=rf"{best:04d}\.pt was trained for something else"):
        backtest_policies(copied, copied.config)
    shutil.copyfile(foreign, copied.checkpoints / "0003.pt")
    with pytest.raises(CheckpointError, match=r"0003\.pt was trained for something else: .*run .* there"):
        train_policy(copied, tiny(**{"train.iterations": 4}), progress="none")


def test_k31_equal_trainings_are_no_strangers(copied: RunDirectory, tmp_path: Path) -> None:
    """A run is known by what its weights depend on: its length, place and environment are not among it."""
    other = retrained(copied, tmp_path / "other", **{"train.iterations": 4, "train.keep": 4, "train.env": "dummy"})
    shutil.copyfile(other.checkpoints / "0003.pt", copied.checkpoints / "0003.pt")
    backtest_policies(copied, copied.config)


#: Other bars, steps, hours and rules than those of the training, and what is named.
MARKETS = {
    "bar_seconds": {"market.tick_minutes": 1, "execution.ticks_per_step": 30},
    "ticks_per_step": {"execution.ticks_per_step": 12},
    "calendar": {"market.session": "us"},
    "rules.volume_limit": {"execution.rules.volume_limit": 0.1},
    "rules.price_field": {"execution.rules.price_field": "open"},
}


@pytest.mark.parametrize(("named", "change"), MARKETS.items(), ids=MARKETS)
def test_k22_a_checkpoint_of_another_market_is_not_restored(
    trained: RunDirectory, named: str, change: dict[str, object]
) -> None:
    bench = Workbench(tiny(algorithm="all_actions", **change))
    path = trained.checkpoints / "0003.pt"
    with pytest.raises(CheckpointError, match=rf"0003\.pt was trained for something else: .*{named}"):
        bench.restore(load_checkpoint(path), path)
    if named.startswith("rules"):
        learner, _ = bench.restore(load_checkpoint(path), path, names=ACTING)
        assert learner.trained_for is not None


def test_k22_a_checkpoint_without_a_record_is_not_restored(trained: RunDirectory, tmp_path: Path) -> None:
    state = load_checkpoint(trained.checkpoints / "0003.pt")
    for name in ("record", "meta"):
        with pytest.raises(CheckpointError, match="does not say what it was trained for"):
            workbench(trained, trained.config).restore({k: v for k, v in state.items() if k != name}, tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"vessel": 3},
        {"vessel": None},
        {"vessel": {}},
        {"vessel": {"policy": [1]}},
        {"vessel": {"policy": {"network": 3, "optimizer": {}, "updates": 0, "device": "cpu"}}},
        {"vessel": {"policy": {"network": {}, "optimizer": [], "updates": 0}}},
        {"meta": 3},
        {"meta": []},
        {"meta": {"normaliser": "x"}},
        {"record": 3},
        {"record": {"ticks": {}}},
    ],
    ids=str,
)
def test_k08_a_checkpoint_of_another_shape_is_refused_by_name(
    trained: RunDirectory, tmp_path: Path, changed: dict[str, Any]
) -> None:
    bench, path = workbench(trained, trained.config), tmp_path / "0003.pt"
    whole = load_checkpoint(trained.checkpoints / "0003.pt")
    learner, _ = bench.restore(whole, path)
    save_checkpoint(path, {**whole, **changed})
    with pytest.raises(CheckpointError, match=r"0003\.pt"):
        bench.restore(load_checkpoint(path), path)
    if "vessel" in changed:
        with pytest.raises(CheckpointError, match=r"0003\.pt"):
            restore_policy(learner, path)


@pytest.mark.parametrize(
    "other",
    [
        {"algorithm": "dqn", "head.mask_actions": True, "algorithm.n_step": 2},
        {"network": "convolution", "head.mask_actions": True},
        {"network": "attention", "features.previous_day": True, "algorithm": "dqn"},
    ],
)
def test_other_learners_train_and_are_judged_alike(other: dict[str, object], tmp_path: Path) -> None:
    """From orders to figures; a training that is taken up again ends as one without a break."""
    config = tiny(**other)
    whole = RunDirectory.create(tmp_path / "whole", config)
    parts = RunDirectory.create(tmp_path / "parts", config)
    make_orders(whole, config)
    shutil.copytree(whole.orders, parts.orders, dirs_exist_ok=True)
    train_policy(whole, config, progress="none")
    train_policy(parts, tiny(**other, **{"train.iterations": 2}), progress="none")
    train_policy(parts, config, progress="none")
    tables = [pd.read_csv(run.metrics / "train.csv").drop(columns="seconds") for run in (whole, parts)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)
    assert ("replay" in tables[0]) == (config.algorithm.name == "dqn")
    backtest_policies(whole, config)
    assert pd.read_csv(whole.backtest / "summary.csv")["kind"].tolist()[:3] == ["checkpoint", "checkpoint", "last"]
    draw_stability(whole, config)
    assert len(list(whole.figures.glob("*.png"))) == 10


def test_a_policy_above_the_ceiling_stops_the_backtest_before_any_figure(
    copied: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prices that a policy gets and the market did not have; the ceiling need not be among the baselines."""
    real = backtest.result

    def flattered(*arguments: Any, **known: Any) -> Any:
        result = real(*arguments, **known)
        if result.policy == "last":
            result.orders.loc[5, "pa"] = 4321.0
        return result

    monkeypatch.setattr(backtest, "result", flattered)
    with pytest.raises(RuntimeError, match=r"^last has a PA of 4321.0000 bp on order .* the most that .* \(1 such"):
        backtest_policies(copied, tiny(baselines=["twap"]))
    table = pd.read_parquet(copied.backtest / "orders" / "last.parquet")
    assert table["pa"].max() == 4321.0, "the evidence is kept"
    assert not list(copied.backtest.glob("*.csv"))


def test_k13_the_advice_for_a_longer_training_with_a_falling_rate_works(tmp_path: Path) -> None:
    """Rates of all updates change with decay_updates, so the training begins anew, and says so before and after."""
    fall = {"algorithm.decay_updates": 2, "train.iterations": 2}
    run = RunDirectory.create(tmp_path / "run", tiny(**fall))
    train = partial(train_policy, progress="none")
    for stage, task in ((ORDERS, make_orders), (TRAIN, train)):
        run_stage(stage, run, run.config, task)
    with pytest.raises(ConfigError, match="set it to 4 or more, which begins a training anew") as refused:
        tiny(**{**fall, "train.iterations": 4})
    assert "leave train.iterations at 2" in str(refused.value)
    longer, said = tiny(**{"algorithm.decay_updates": 4, "train.iterations": 4}), []
    run_stage(TRAIN, run, longer, train, echo=said.append)
    assert "algorithm.decay_updates 2 there, 4 now" in said[-1]
    fresh = RunDirectory.create(tmp_path / "fresh", longer)
    make_orders(fresh, longer)
    train_policy(fresh, longer, progress="none")
    assert (run.checkpoints / "0004.pt").read_bytes() == (fresh.checkpoints / "0004.pt").read_bytes()


def test_k33_a_run_that_goes_on_with_other_threads_is_refused_by_name(copied: RunDirectory) -> None:
    with pytest.raises(CheckpointError, match="threads 1 there, 2 here"):
        train_policy(copied, tiny(threads=2, **{"train.iterations": 4}), progress="none")
    assert list(list_checkpoints(copied.checkpoints)) == [1, 2, 3]


DISTILLED = {"algorithm": "opd", "algorithm.teacher_iterations": 3, "head.mask_actions": True}


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    config = tiny(**DISTILLED)
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "distilled", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    return run


def trained_rows(run: RunDirectory, folder: str = "") -> pd.DataFrame:
    return pd.read_csv(run.metrics / folder / "train.csv").drop(columns="seconds")


def test_a_teacher_is_trained_before_its_student_in_folders_of_its_own(distilled: RunDirectory) -> None:
    assert list(list_checkpoints(distilled.checkpoints / "teacher")) == [2, 3]
    assert list(list_checkpoints(distilled.checkpoints)) == [1, 2, 3]
    student, teacher = trained_rows(distilled), trained_rows(distilled, "teacher")
    assert student["distillation_loss"].gt(0).all()
    assert "distillation_loss" not in teacher
    assert student["iteration"].tolist() == teacher["iteration"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("stopped", ["teacher", "student"])
def test_a_distillation_that_is_taken_up_again_ends_as_one_without_a_break(
    distilled: RunDirectory, stopped: str, tmp_path: Path
) -> None:
    """Stopped after the teacher's second iteration, or after the student's first."""
    run = RunDirectory.create(tmp_path / "run", distilled.config)
    shutil.copytree(distilled.orders, run.orders, dirs_exist_ok=True)
    shutil.copytree(distilled.checkpoints, run.checkpoints, symlinks=True, dirs_exist_ok=True)
    shutil.copytree(distilled.metrics, run.metrics, dirs_exist_ok=True)
    gone = [run.checkpoints / f"000{i}.pt" for i in (1, 2, 3)[stopped == "student" :]]
    if stopped == "teacher":
        gone.append(run.checkpoints / "teacher" / "0003.pt")
    for path in gone:
        path.unlink()
    train_policy(run, distilled.config, progress="none")
    for folder in ("", "teacher"):
        pd.testing.assert_frame_equal(trained_rows(run, folder), trained_rows(distilled, folder), check_exact=True)
    ends = [load_checkpoint(one.checkpoints / "0003.pt")["vessel"]["policy"] for one in (run, distilled)]
    assert ends[0]["teacher"] == ends[1]["teacher"]


def test_a_teacher_of_other_settings_is_set_aside_with_its_student(distilled: RunDirectory, tmp_path: Path) -> None:
    said: list[str] = []
    shutil.copytree(distilled.path, tmp_path / "run", symlinks=True)
    run = RunDirectory.open(tmp_path / "run")
    train = partial(train_policy, progress="none")
    for stage, task in ((ORDERS, make_orders), (TRAIN, train)):
        run_stage(stage, run, run.config, task, echo=said.append)
    longer = tiny(**{**DISTILLED, "algorithm.teacher_iterations": 4})
    run_stage(TRAIN, run, longer, train, echo=said.append)
    assert "algorithm.teacher_iterations 3 there, 4 now" in said[-1]
    assert max(list_checkpoints(run.checkpoints / "teacher")) == 4
    aside = max((run.path / "superseded").glob("*-train"))  # after what was there without a record
    assert max(list_checkpoints(aside / "checkpoints" / "teacher")) == 3
    begun = [
        load_checkpoint(folder / "0001.pt")["vessel"]["policy"] for folder in (run.checkpoints, aside / "checkpoints")
    ]
    assert begun[0]["teacher"] != begun[1]["teacher"]


def test_a_temporary_run_is_trained_in_silence_and_gone_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    with temporary_run(tiny(**DISTILLED)) as run:
        assert max(list_checkpoints(run.checkpoints)) == 3
        assert run.stage("train")["seconds"] > 0
    assert not run.path.exists()
    assert capsys.readouterr().out == ""


def test_a_teacher_is_shown_as_unattainable_and_never_taken_for_a_policy(distilled: RunDirectory) -> None:
    summary = pd.read_csv(distilled.backtest / "summary.csv").set_index("policy")
    assert summary["kind"].tolist() == [
        *["checkpoint"] * 2,
        "last",
        *["baseline"] * 5,
        "ceiling",
        *KNOWN,
        "unattainable",
    ]
    logged = pd.read_csv(distilled.metrics / "teacher" / "validation.csv")["pa"].iloc[-1]
    assert summary.loc["teacher", "validation_pa"] == pytest.approx(logged, abs=1e-9)
    assert (
        "Not attainable by trading: filter optimum with known volatility, teacher."
        in (distilled.backtest / "headline.txt").read_text()
    )
    bench = workbench(distilled, distilled.config)
    path = distilled.checkpoints / "teacher" / "0003.pt"
    with pytest.raises(CheckpointError, match="holds a teacher, which sees the rest of the day and cannot act"):
        bench.restore(load_checkpoint(path), path)
    teacher, _ = bench.restore(load_checkpoint(path), path, teacher=True)
    assert teacher.network.sees_future
    own = distilled.checkpoints / "0003.pt"
    with pytest.raises(CheckpointError, match="holds no teacher"):
        bench.restore(load_checkpoint(own), own, teacher=True)


def test_a_student_acts_where_its_teacher_is_gone(distilled: RunDirectory, tmp_path: Path) -> None:
    shutil.copytree(distilled.path, tmp_path / "run", symlinks=True)
    run = RunDirectory.open(tmp_path / "run")
    shutil.rmtree(run.checkpoints / "teacher")
    bench = workbench(run, run.config)
    orders = bench.align(load_orders(run, bench, "test"))
    pa = play(bench, checkpoint_policy(bench, run.checkpoints / "0003.pt"), orders).metrics["pa"]
    table = pd.read_parquet(distilled.backtest / "orders" / "last.parquet")
    np.testing.assert_array_equal(pa, table["pa"])
    with pytest.raises(CheckpointError, match="no checkpoint of the teacher"):
        backtest_policies(run, run.config)


def test_an_order_of_the_teacher_can_be_audited(distilled: RunDirectory) -> None:
    from rlwb.experiment.report import audit_order, typical_order

    bench = workbench(distilled, distilled.config)
    audit = audit_order(distilled, bench, "teacher", typical_order(distilled, "teacher"))
    pairs = audit.checks()
    np.testing.assert_allclose(pairs["sum of the parts"], pairs["summary row"], rtol=1e-9)


def test_the_sparse_reward_trains_by_the_ordinary_path(tmp_path: Path) -> None:
    config = tiny(**{"reward": "sparse", "train.iterations": 2})
    run = RunDirectory.create(tmp_path / "sparse", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    rows = trained_rows(run)
    assert rows["reward"].between(-1, 0, inclusive="neither").all()  # the mean over orders of -1, 0 and, hardly, 1
    backtest_policies(run, config)
    last = pd.read_parquet(run.backtest / "orders" / "last.parquet")
    ratio = (last["price"] / last["twap"]) ** np.where(last["direction"] == "SELL", 1, -1)
    np.testing.assert_array_equal(last["reward"], np.select([ratio >= 1.1, ratio >= 1 - 1e-9], [1.0, 0.0], -1.0))
    assert last["reward"].nunique() > 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"algorithm": "dqn"}, r"was made with other settings: algorithm.name 'all_actions' there, 'dqn' here"),
        ({"network.hidden": 16}, "was made with other settings: network.hidden 8 there, 16 here"),
    ],
)
def test_a_checkpoint_of_another_policy_is_refused(trained: RunDirectory, change: dict[str, Any], words: str) -> None:
    bench = workbench(trained, tiny(**change))
    path = next(iter(list_checkpoints(trained.checkpoints).values()))
    with pytest.raises(CheckpointError, match=words):
        bench.restore(load_checkpoint(path), path)


def test_the_normaliser_of_the_training_part_travels_with_the_checkpoint(trained: RunDirectory) -> None:
    bench = workbench(trained, trained.config)
    path = next(iter(list_checkpoints(trained.checkpoints).values()))
    _, features = bench.restore(load_checkpoint(path), path)
    expected = bench.features(load_orders(trained, bench, "train"))
    assert features.normaliser.as_dict() == expected.normaliser.as_dict()
    np.testing.assert_array_equal(features.today, expected.today)


def test_a_learner_of_the_defaults_is_the_policy_room_s_own_default() -> None:
    from rlwb.policy import AllActionsSettings, DQNSettings

    config = RunConfig.load(None, Layer("test", {"market.instruments": 3, "market.days": 15}))
    bench = Workbench(config)
    orders, _ = bench.make_orders()
    features = bench.features(orders["train"])
    learner = bench.learner(features)
    assert learner.settings == AllActionsSettings()
    dqn = Workbench(config.model_copy(update={"algorithm": Part(name="dqn")})).learner(features)
    assert dqn.settings == DQNSettings()


def test_every_learner_and_the_teacher_take_the_fall_of_the_learning_rate() -> None:
    bench = Workbench(tiny(**{"algorithm.decay_updates": 5}))
    orders, _ = bench.make_orders()
    features = bench.features(orders["train"])
    teacher = bench.teacher(features)
    dqn = Workbench(tiny(**{"algorithm.decay_updates": 5, "algorithm": "dqn"})).learner(features)
    opd = Workbench(tiny(**{"algorithm.decay_updates": 5, "algorithm": "opd"})).learner(features, teacher)
    for learner in (bench.learner(features), teacher, dqn, opd):
        assert learner.settings.decay_updates == 5
    assert Workbench(tiny()).learner(features).settings.decay_updates is None


def test_under_costs_validation_choice_and_figures_are_net_and_the_gap_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {"commission_bps": 3.0, "min_fee": 5.0, "volume_limit": 0.05, "temporary_impact_bps": 40.0}
    config = tiny(**{f"execution.rules.{name}": value for name, value in rules.items()})
    run = RunDirectory.create(tmp_path / "run", config)
    make_orders(run, config)
    train_policy(run, config, progress="lines")
    line = capsys.readouterr().out.splitlines()[-1]
    backtest_policies(run, config)
    logged = pd.read_csv(run.metrics / "validation.csv").set_index("iteration")
    trained = pd.read_csv(run.metrics / "train.csv").set_index("iteration")
    assert f"  net PA {trained.loc[3, 'pa_net']:.2f}  validation net PA {logged.loc[3, 'pa_net']:.2f}  reward " in line
    assert "checkpoints by validation net PA" in (run.backtest / "selection.json").read_text()
    summary = pd.read_csv(run.backtest / "summary.csv").set_index("policy")
    best = summary.index[0]
    assert logged["pa_net"].lt(logged["pa"]).all()
    assert summary.loc[best, "validation_pa"] == pytest.approx(logged["pa_net"].max(), abs=1e-9)
    assert "net PA, bp" in (run.backtest / "headline.txt").read_text()
    gap = pd.read_csv(run.backtest / "gap.csv").set_index("cause")
    causes = ["simple rules", "volume cap", "temporary impact", "commission", "minimum fee", "all together"]
    assert gap.index.tolist() == causes
    assert set(gap["policy"]) == {best}
    assert gap["difference"].iloc[1:-1].sum() == pytest.approx(gap.loc["all together", "difference"], abs=1e-9)
    if gap.loc["all together", "left_out"] == 0:
        assert gap.loc["all together", "pa_net"] == pytest.approx(summary.loc[best, "pa_net"], abs=1e-9)
    assert report.rules_gap(run).index.tolist() == causes
    assert {"net test PA", "validation net PA"} <= set(report.summary_table(run))
    assert "validation net PA" in report.selection_tables(run)[0]
    assert report.iteration_table(run)["validation net PA"].notna().any()
    assert len(stability_figures(run, config)) == 9
    costs = pd.read_csv(run.backtest / "costs.csv").set_index(["policy", "component"])
    shown = ["drift", "selection", "temporary_impact", "commission", "total", "impact_on_fills"]
    assert [name for name in costs.loc["twap"].index if name != "opportunity"] == shown, "no spread, no tax, no delay"
    orders = pd.read_parquet(run.backtest / "orders" / "twap.parquet")
    side = np.where(orders["direction"] == "BUY", 1.0, -1.0)
    paid = side * orders["filled"] * (orders["price_net"] - orders["arrival"])
    np.testing.assert_allclose(orders["cost"] - orders["cost_opportunity"], paid, rtol=1e-9, atol=1e-6)
    charged = orders["cost_temporary_impact"] + orders["cost_permanent_impact"]
    np.testing.assert_allclose(orders["cost"] - charged, orders["cost_impact_off"], rtol=1e-9, atol=1e-6)
    assert costs.loc[("twap", "total"), "currency"] == pytest.approx(orders["cost"].sum(), rel=1e-12)
    groups = pd.read_csv(run.backtest / "cost_groups.csv").groupby(["policy", "by"])["cost"].sum()
    assert groups["twap"].tolist() == pytest.approx([orders["cost"].sum()] * 3, rel=1e-9)
    row = orders.iloc[3]
    audited = report.audit_order(run, workbench(run, config), "twap", row["order_id"])
    assert audited.costs().loc["total", "currency"] == row["cost"]
    assert audited.costs().loc["total without impact", "currency"] == row["cost_impact_off"]
    assert {"temporary impact", "impact on fills"} <= set(report.costs_table(run))
    page = Path(__file__).parents[2] / "docs" / "costs.md"
    script = page.read_text().partition("```python\n")[2].partition("```")[0]
    exec(script.replace("runs/mine", str(run.path)), {})
    assert "What do the orders cost?" in write_report(run).read_text()


def test_under_the_simple_rules_there_is_no_gap(copied: RunDirectory) -> None:
    backtest_policies(copied, copied.config)
    assert not (copied.backtest / "gap.csv").exists()
    assert report.rules_gap(copied).empty
    assert not {"net test PA", "validation net PA"} & set(report.summary_table(copied))
