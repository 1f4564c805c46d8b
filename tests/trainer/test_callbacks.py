from __future__ import annotations

import itertools
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError
from rlwb.trainer import (
    Callback,
    Checkpoint,
    EarlyStopping,
    EpisodesWriter,
    History,
    MetricsWriter,
    ProgressLines,
    Trainer,
    load_checkpoint,
)
from rlwb.trainer.trainer import bar_figures
from tests.trainer.corridor_vessel import corridor_vessel
from tests.trainer.small import assert_same_weights, small_ppo, small_vessel, weights
from tests.trainer.test_trainer import Script


def stopped_after(values: list[float], **kwargs: Any) -> tuple[int, EarlyStopping]:
    """Return the number of the validation that stops, 0 for none."""
    callback = EarlyStopping(**kwargs)
    for number, value in enumerate(values, 1):
        trainer = SimpleNamespace(metrics={"val/pa": value}, current_iter=number, should_stop=False)
        callback.on_validate_end(trainer, SimpleNamespace())
        if trainer.should_stop:
            return number, callback
    return 0, callback


@pytest.mark.parametrize(
    ("values", "kwargs", "expected"),
    [
        ([1, 2, 3, 4, 5], {"patience": 1}, 0),  # improving never stops
        ([1, 1], {"patience": 1}, 2),
        ([1, 2, 1, 1, 1], {"patience": 3}, 5),
        ([1, 2, 1, 1, 3, 1, 1], {"patience": 3}, 0),  # an improvement starts the count anew
        ([3, 2, 1, 2, 2], {"patience": 2, "mode": "min"}, 5),
        ([1, 1.4, 1.8, 2.2], {"patience": 2, "min_delta": 0.5}, 0),  # 1.8 beats 1 by more than half
        ([1, 1.4, 1.5], {"patience": 2, "min_delta": 0.5}, 3),
        ([2, 1.6, 1.5], {"patience": 2, "min_delta": 0.5, "mode": "min"}, 3),
        ([1, 2, 3], {"patience": 3, "baseline": 3.0}, 3),
        ([1, 2, 3.1, 3], {"patience": 3, "baseline": 3.0}, 0),
        ([5, 4.5, 3.9], {"patience": 3, "baseline": 4.0, "mode": "min"}, 0),
        ([5, 4.5, 4.0], {"patience": 3, "baseline": 4.0, "mode": "min"}, 3),
        ([1, np.nan, np.nan], {"patience": 2}, 3),
        ([np.nan, 1, np.nan, 2], {"patience": 2}, 0),
    ],
)
def test_early_stopping_by_hand(values: list[float], kwargs: dict[str, Any], expected: int) -> None:
    assert stopped_after(values, **kwargs)[0] == expected


def test_e21_a_missing_figure_is_shown_and_no_improvement(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        stop, callback = stopped_after([1.0, np.nan, np.nan, 5.0], patience=3)
    assert stop == 0
    assert callback.missing == 2
    assert callback.best == 5.0
    assert [r.getMessage() for r in caplog.records] == [
        f"val/pa is missing at iteration {i}, which is no improvement" for i in (2, 3)
    ]


def test_e21_a_misspelt_figure_is_refused_before_training(tmp_path: Path) -> None:
    vessel = small_vessel()
    start = weights(vessel.policy)
    trainer = Trainer(max_iters=3, val_every_n_iters=1, callbacks=[EarlyStopping("val/paa")])
    with pytest.raises(ConfigError, match=r"'val/paa'.*val/ffr.*did you mean 'val/pa'\?"):
        trainer.fit(vessel)
    with pytest.raises(ConfigError, match="Checkpoint watches 'pa_val'"):
        Trainer(max_iters=3, val_every_n_iters=1, callbacks=[Checkpoint(tmp_path, keep_best=2, monitor="pa_val")]).fit(
            vessel
        )
    assert trainer.current_iter == 0
    np.testing.assert_equal(weights(vessel.policy), start)


@pytest.mark.parametrize(
    ("kwargs", "message"), [({"patience": 0}, "patience is 0"), ({"mode": "up"}, "'max' or 'min'")]
)
def test_e23_impossible_early_stopping_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EarlyStopping(**kwargs)


class Snapshots(Callback):
    rank = -1

    def __init__(self) -> None:
        self.weights: dict[int, Any] = {}

    def on_train_end(self, trainer, vessel) -> None:
        self.weights[trainer.current_iter] = weights(vessel.policy)


@pytest.mark.parametrize("max_iters", [4, 20])
def test_best_weights_come_back_at_every_end(tmp_path: Path, max_iters: int) -> None:
    snapshots = Snapshots()
    stopper = EarlyStopping(patience=4, restore_best_weights=True)
    values, vessel = [1.0, 7.0, *[2.0] * 20], small_vessel()
    callbacks = [Script(values), snapshots, stopper, Checkpoint(tmp_path, every_n_iters=3)]
    trainer = Trainer(max_iters=max_iters, val_every_n_iters=1, callbacks=callbacks)
    trainer.fit(vessel)
    last = min(max_iters, 6)
    assert trainer.current_iter == last
    assert stopper.best_iteration == 2
    np.testing.assert_equal(weights(vessel.policy), snapshots.weights[2])
    # The last iteration's file has the weights of that iteration, those its figures belong to.
    saved = small_ppo()
    saved.load_state_dict(load_checkpoint(tmp_path / f"{last:04d}.pt")["vessel"]["policy"])
    np.testing.assert_equal(weights(saved), snapshots.weights[last])


def test_best_weights_survive_a_resume(tmp_path: Path) -> None:
    values = [1.0, 7.0, *[2.0] * 20]

    def go(max_iters: int, ckpt: Path | None = None):
        vessel = small_vessel()
        callbacks = [Script(values), EarlyStopping(patience=9, restore_best_weights=True), Checkpoint(tmp_path)]
        Trainer(max_iters=max_iters, val_every_n_iters=1, callbacks=callbacks).fit(vessel, ckpt)
        return vessel.policy

    one = go(3)
    assert_same_weights(one, go(5, tmp_path / "0003.pt"))


# Metrics


def test_one_number_names_row_and_file(tmp_path: Path) -> None:
    vessel = small_vessel()
    callbacks = [Checkpoint(tmp_path, every_n_iters=2), MetricsWriter(tmp_path / "metrics")]
    Trainer(max_iters=5, val_every_n_iters=2, callbacks=callbacks).fit(vessel)
    train, valid = (pd.read_csv(tmp_path / "metrics" / f"{name}.csv") for name in ("train", "validation"))
    assert list(train["iteration"]) == [1, 2, 3, 4, 5]
    assert list(valid["iteration"]) == [2, 4]
    assert sorted(p.name for p in tmp_path.glob("*.pt")) == ["0002.pt", "0004.pt", "0005.pt"]
    assert {"episodes", "transitions", "reward", "pa", "ffr", "loss", "seconds"} <= set(train)
    assert {"pa", "ffr", "reward", "episodes"} <= set(valid)
    for row in valid.itertuples():
        state = load_checkpoint(tmp_path / f"{row.iteration:04d}.pt")
        assert state["iteration"] == row.iteration
        assert state["metrics"]["val/pa"] == row.pa
        policy = small_ppo()
        policy.load_state_dict(state["vessel"]["policy"])
        with vessel.make_env(vessel.val_seed_iterator()) as env:
            vessel.policy = policy
            assert vessel.validate(env).means()["pa"] == pytest.approx(row.pa, abs=1e-9)


def test_rows_beyond_the_checkpoint_are_cut_off_on_a_resume(tmp_path: Path) -> None:
    def go(max_iters: int, ckpt: Path | None = None) -> None:
        callbacks = [Checkpoint(tmp_path), MetricsWriter(tmp_path)]
        Trainer(max_iters=max_iters, val_every_n_iters=1, callbacks=callbacks).fit(small_vessel(), ckpt)

    go(4)
    go(2, tmp_path / "0002.pt")
    assert list(pd.read_csv(tmp_path / "train.csv")["iteration"]) == [1, 2]
    assert list(pd.read_csv(tmp_path / "validation.csv")["iteration"]) == [1, 2]


def test_episodes_are_written_a_file_an_iteration_and_a_row_an_episode(tmp_path: Path) -> None:
    for kind in ("native", "dummy"):
        folder = tmp_path / kind
        trainer = Trainer(
            max_iters=2,
            val_every_n_iters=1,
            finite_env_type=kind,
            concurrency=3,
            callbacks=[EpisodesWriter(folder)],
        )
        trainer.fit(vessel := corridor_vessel())
        trainer.test(vessel)
        paths = sorted(folder.iterdir())
        assert [path.name for path in paths] == ["episodes-000001.csv", "episodes-000002.csv"]
        table = pd.read_csv(paths[1])
        assert list(table.columns[:3]) == ["episode", "length", "reward"]
        assert {"won", "from_the_middle", "reward/end", "reward/haste", "aux/place"} <= set(table.columns)
        assert list(table["episode"]) == list(range(40))
        np.testing.assert_allclose(table["reward"], table["reward/end"] + table["reward/haste"])
        for name in ("reward", "length", "won", "from_the_middle", "aux/place"):
            assert trainer.metrics[name] == pytest.approx(table[name].mean())
        # Missing figures are empty cells.
        assert table["from_the_middle"].notna().sum() == trainer.metrics["from_the_middle_count"] < 40
    native, dummy = (pd.read_csv(tmp_path / kind / "episodes-000002.csv") for kind in ("native", "dummy"))
    pd.testing.assert_frame_equal(dummy[native.columns], native, check_exact=True)


def test_episodes_beyond_the_checkpoint_are_removed_on_a_resume(tmp_path: Path) -> None:
    def go(max_iters: int, ckpt: Path | None = None) -> list[str]:
        callbacks = [Checkpoint(tmp_path), EpisodesWriter(tmp_path / "episodes")]
        Trainer(max_iters=max_iters, finite_env_type="native", callbacks=callbacks).fit(corridor_vessel(), ckpt)
        return sorted(path.name for path in (tmp_path / "episodes").iterdir())

    go(4)
    (tmp_path / "episodes" / "episodes-of-mine.csv").write_text("kept")
    first = (tmp_path / "episodes" / "episodes-000003.csv").read_bytes()
    assert go(3, tmp_path / "0001.pt") == [*(f"episodes-00000{i}.csv" for i in (1, 2, 3)), "episodes-of-mine.csv"]
    assert (tmp_path / "episodes" / "episodes-000003.csv").read_bytes() == first


# Checkpoints


def files(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.pt"))


def saved(folder: Path, values: list[float], **kwargs: Any) -> list[int]:
    callbacks = [Script(values), Checkpoint(folder, **kwargs)]
    Trainer(max_iters=len(values), val_every_n_iters=1, callbacks=callbacks).fit(small_vessel(episode_per_iter=2))
    assert (folder / "latest").readlink() == Path(f"{len(values):04d}.pt")
    return files(folder)


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "kwargs", "expected"),
    [
        ([1, 1, 1, 1], {}, [1, 2, 3, 4]),
        ([1] * 7, {"every_n_iters": 3}, [3, 6, 7]),
        ([1] * 4, {"every_n_iters": None}, [4]),
        ([5, 1, 4, 2, 3], {"keep_best": 2}, [1, 3, 5]),
        ([5, 1, 4, 2, 3], {"keep_best": 2, "keep_last": 2}, [1, 3, 4, 5]),
        ([5, 1, 4, 2, 3], {"keep_last": 2}, [4, 5]),
        ([2, 2, 2, 2], {"keep_best": 1}, [1, 4]),  # of equals the earlier
        ([NAN, 1, NAN, 0], {"keep_best": 2}, [2, 4]),
        ([NAN, NAN, NAN], {"keep_best": 2}, [3]),
        ([1, 2, 3], {"every_n_iters": 2, "keep_best": 1}, [3]),
    ],
)
def test_what_a_checkpoint_keeps(tmp_path: Path, values: list[float], kwargs: Any, expected: list[int]) -> None:
    assert saved(tmp_path, values, **kwargs) == expected


def test_saving_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("rlwb.trainer.callbacks.time.monotonic", lambda: clock[0])

    class Tick(Callback):
        def on_train_end(self, trainer, vessel) -> None:
            clock[0] += 4.0

    checkpoint = Checkpoint(tmp_path, every_n_iters=None, time_interval=10.0)
    clock[0] += 500.0  # what passes before the fit does not count
    Trainer(max_iters=8, callbacks=[Tick(), checkpoint]).fit(small_vessel(episode_per_iter=2))
    assert files(tmp_path) == [3, 6, 8]


def test_a_new_training_does_not_mix_with_an_old_one(tmp_path: Path) -> None:
    saved(tmp_path, [1, 1])
    with pytest.raises(ConfigError, match="checkpoints of an earlier training"):
        Trainer(max_iters=1, callbacks=[Checkpoint(tmp_path)]).fit(small_vessel())
    assert files(tmp_path) == [1, 2]


def test_a_resumed_training_replaces_what_lay_beyond(tmp_path: Path) -> None:
    saved(tmp_path, [1, 1, 1, 1, 1])
    checkpoint = Checkpoint(tmp_path, keep_last=2)
    Trainer(max_iters=3, callbacks=[checkpoint]).fit(small_vessel(episode_per_iter=2), tmp_path / "0002.pt")
    assert files(tmp_path) == [2, 3]
    assert load_checkpoint(tmp_path / "latest")["iteration"] == 3


def test_the_ranking_survives_a_resume(tmp_path: Path) -> None:
    values = [9.0, 1, 8, 2, 3]

    def go(max_iters: int, ckpt: Path | None = None) -> None:
        callbacks = [Script(values), Checkpoint(tmp_path, keep_best=2)]
        Trainer(max_iters=max_iters, val_every_n_iters=1, callbacks=callbacks).fit(small_vessel(), ckpt)

    go(3)
    go(5, tmp_path / "latest")
    assert files(tmp_path) == [1, 3, 5]


@pytest.mark.parametrize("name", ["every_n_iters", "keep_best", "keep_last"])
def test_e23_impossible_checkpoints_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        Checkpoint(tmp_path, **{name: 0})


def test_meta_travels_along(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path, meta={"columns": ["open"], "scale": np.float64(2.0)})
    Trainer(max_iters=1, callbacks=[checkpoint]).fit(small_vessel())
    assert load_checkpoint(tmp_path / "latest")["meta"] == {"columns": ["open"], "scale": 2.0}


# Lines of progress and figures in memory


class Told:
    """What the callback reads of a trainer."""

    def __init__(self, total: int | None) -> None:
        self.max_iters, self.current_iter, self.metrics = total, 0, {"pa": 1.0, "reward": 2.0}

    @property
    def is_last_iter(self) -> bool:
        return self.current_iter == self.max_iters


def lines_of(total: int | None, count: int, seconds: float, start: int = 0) -> list[str]:
    lines: list[str] = []
    callback = ProgressLines(echo=lines.append, clock=itertools.count(0, seconds).__next__)
    told = Told(total)
    told.current_iter = start
    callback.on_fit_start(told, None)  # type: ignore[arg-type]
    for _ in range(count):
        told.current_iter += 1
        callback.on_iter_end(told, None)  # type: ignore[arg-type]
    return lines


def test_g07_a_line_an_iteration_with_the_time_left() -> None:
    lines = lines_of(500, 500, 2.0)
    assert len(lines) == 500
    assert lines[0] == "iteration   1 of 500  PA 1.00  reward 2.00  2.0 s each  16 min 38 s left"
    assert lines[-1] == "iteration 500 of 500  PA 1.00  reward 2.00  2.0 s each  done"
    assert sum(map(len, lines)) < 100_000
    assert not any("\r" in line for line in lines)


def test_a_resumed_training_says_so_and_knows_no_end_without_one() -> None:
    lines = lines_of(None, 1, 1.0, start=7)
    assert lines == ["continued after iteration 7", "iteration 8  PA 1.00  reward 2.00  1.0 s each"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert lines_of(2, 1, seconds)[0].endswith(f"s each  {text} left")


def test_a_bar_shows_the_net_figure_where_costs_make_one() -> None:
    free = {"pa": 1.0, "pa_net": 1.0, "val/pa": 2.0, "val/pa_net": 2.0, "reward": 3.0, "seconds": 9.0}
    assert bar_figures(free) == {"reward": "3", "pa": "1", "val/pa": "2"}
    assert bar_figures({**free, "pa_net": 0.5, "val/pa_net": -1.0}) == {
        "reward": "3",
        "pa_net": "0.5",
        "val/pa_net": "-1",
    }
    assert bar_figures({"reward": 3.0}) == {"reward": "3"}


def test_history_keeps_every_iteration() -> None:
    history, lines = History(), []
    trainer = Trainer(max_iters=2, val_every_n_iters=2, callbacks=[ProgressLines(echo=lines.append), history])
    trainer.fit(small_vessel())
    assert [row["iteration"] for row in history.train] == [1, 2]
    assert [row["iteration"] for row in history.validation] == [2]
    assert history.validation[0]["pa"] == trainer.metrics["val/pa"]
    assert "pa" in history.train[0]
    assert not any(name.startswith("val/") for name in history.train[1])
    assert len(lines) == 2
    assert "validation PA" in lines[1]


# What callbacks may watch


def check(callback: Callback, *, every: int | None = 1, figures: tuple[str, ...] | None = ("loss",)) -> None:
    vessel: Any = SimpleNamespace(policy=SimpleNamespace(figures=figures))
    Trainer(max_iters=1, callbacks=[callback], val_every_n_iters=every)._check_watched(vessel, {"pa": 0.0})


@pytest.mark.parametrize("name", ["val/pa", "val/pa_count", "val/reward", "pa", "loss", "seconds", "transitions"])
def test_figures_that_will_come(name: str) -> None:
    check(EarlyStopping(name))


@pytest.mark.parametrize("name", ["val/paa", "val/loss", "los", "val/seconds"])
def test_figures_that_never_come(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        check(EarlyStopping(name))


def test_without_validations_nothing_can_be_watched_at_them() -> None:
    with pytest.raises(ConfigError, match="val_every_n_iters is empty"):
        check(EarlyStopping("pa"), every=None)
    watcher = Callback()
    watcher.watches = "val/pa"
    with pytest.raises(ConfigError, match="val/pa"):
        check(watcher, every=None)


def test_what_a_policy_reports_may_be_unknown() -> None:
    check(EarlyStopping("q_loss"), figures=None)
    with pytest.raises(ConfigError, match="val/q"):
        check(EarlyStopping("val/q"), figures=None)
    check(Callback())
