"""What could be known before a run starts is refused then, and nothing is left behind (J07)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlwb.errors import ConfigError, RlwbError
from rlwb.experiment import pipeline
from rlwb.experiment.config import RunConfig, TrainConfig, validated_checkpoints
from rlwb.experiment.layers import Layer
from rlwb.experiment.notebook import open_stage
from rlwb.experiment.stages import ORDERS
from rlwb.market import Calendar
from rlwb.trainer import Checkpoint, EarlyStopping, Trainer
from tests.market.helpers import random_bars
from tests.trainer.small import small_vessel

SMALL = ("market.instruments=2", "market.days=12", "network.hidden=4", "train.iterations=4", "backtest.top=2")

#: Assignments, and what the refusal names.
REFUSED = {
    "train.validate_every=5": "train.validate_every is 5 and train.iterations 4",
    "train.validate_every=5 train.patience=2": "train.validate_every is 5",
    "train.checkpoint_every=2 train.validate_every=3 train.iterations=5": "train.checkpoint_every is 2",
    "train.keep=1": "train.keep is 1.* 2 best",
    "backtest.top=5": "backtest.top is 5.* 4 checkpoints",
    "backtest.top=3 train.validate_every=2": "backtest.top is 3.* 2 checkpoints",
    "train.device=cuda": "train.device is cuda",
    "algorithm=dqn algorithm.replay_size=999": "algorithm.replay_size is 999",
    "algorithm=opd algorithm.teacher_iterations=2 train.validate_every=3": "teacher_iterations 2",
    "algorithm=opd train.env=dummy": "train.env is dummy",
    "split.train=1.5": r"split shares \(1.5",
    "split.train=0.9": "split shares",
    "split.test=0": "split shares",
    "split.valid=-0.2": "split shares",
    "split.train=0.9 split.valid=0.01 split.test=0.09": "a part holds no orders",
    "split.train=[2020-01-02,2020-06-30] split.valid=[2020-07-01,2020-07-31] split.test=[2020-08-03,2020-08-31]": (
        "the data have orders on .* 2023"
    ),
    "split.rolling.train=99": "no window of split.rolling fits",
    "split.rolling.train=3 split.rolling.valid=1 split.rolling.test=4 split.rolling.step=3": "two windows",
    "market.days=1": "no order",
    "market.tick_minutes=7": "segment",
    "execution.ticks_per_step=49": "ticks_per_step is 49.*48 ticks",
    "execution.rules.price_field=quotes": "price_field",
    "execution.rules.price_field=vwap": "price_field",
    "features.columns=[close,bid]": "feature bid",
    "orders.start_time=16:00": "16:00",
    "network.hidden=0": "hidden is 0",
    "action_interpreter=twap_relative algorithm=dqn": "DQN chooses.*categorical",
    "action_interpreter=position_share algorithm=opd": "OPD chooses.*categorical",
    "action_interpreter=position_share algorithm=all_actions": "AllActions chooses.*categorical",
    "action_interpreter.name=twap_relative action_interpreter.max_ratio=0.5": "max_ratio",
    "action_interpreter=twap_relative head.even_start=true": "head.*even_start",
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    begun: list[RunConfig] = []
    monkeypatch.setattr(pipeline, "run_pipeline", lambda _run, config, **_: begun.append(config))
    monkeypatch.setattr(pipeline, "stop_on_terminate", lambda: None)
    return begun


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def launch(*words: str, run_dir: str | None = "run") -> None:
    given = {word.partition("=")[0] for word in words}
    small = [word for word in SMALL if word.partition("=")[0] not in given]
    pipeline.launch(None, [*small, *words], run_dir and Path(run_dir), resume=False, echo=lambda _line: None)


@pytest.mark.parametrize("place", ["run", None])
@pytest.mark.parametrize(("words", "named"), REFUSED.items(), ids=REFUSED)
def test_j07_what_cannot_end_is_refused_before_anything_is_made(
    words: str, named: str, place: str | None, tmp_path: Path, started: list[RunConfig]
) -> None:
    with pytest.raises(RlwbError, match=named):
        launch(*words.split(), run_dir=place)
    assert not started
    assert not list(tmp_path.iterdir())


def test_j07_a_notebook_refuses_before_it_makes_its_run(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"market.instruments": 2, "market.days": 12, "split.train": 1.5}
    with pytest.raises(ConfigError, match="split shares"):
        open_stage(ORDERS, tmp_path / "run", settings)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        *("action_interpreter=twap_relative", "action_interpreter=position_share"),
        *("", "train.keep=2", "execution.ticks_per_step=7", "algorithm.batch_size=100000"),
        "split.rolling.train=5 split.rolling.valid=2 split.rolling.test=2",
    ],
)
def test_j07_what_can_end_is_started(words: str, started: list[RunConfig]) -> None:
    """A last step may be shorter, and a minibatch larger than all transitions is one of all."""
    launch(*words.split())
    assert len(started) == 1


def test_j07_a_choice_of_ten_that_nobody_asked_for_is_no_fault(started: list[RunConfig]) -> None:
    words = [word for word in SMALL if not word.startswith("backtest")]
    pipeline.launch(None, words, Path("run"), resume=False, echo=lambda _line: None)
    assert started[0].backtest.top == 10


def test_j07_dates_outside_the_bars_of_ones_own(tmp_path: Path, started: list[RunConfig]) -> None:
    clock = Calendar.preset("cn", tick_minutes=30)
    days = [f"2024-01-{day:02d}" for day in (2, 3, 4, 5, 8, 9, 10, 11)]
    random_bars(clock, ["000001", "000002"], days).to_csv(tmp_path / "bars.csv", index=False)
    own = ("market.source=bars.csv", "market.calendar={preset: cn, tick_minutes: 30}")
    rest = ("network.hidden=4", "train.iterations=4", "backtest.top=2")

    def start(*words: str) -> None:
        pipeline.launch(None, [*own, *rest, *words], Path("run"), resume=False, echo=lambda _line: None)

    late = "split.train=[2025-01-02,2025-01-03]", "split.valid=[2025-01-04,2025-01-05]"
    with pytest.raises(RlwbError, match=r"the data have orders on .* 2024-01-"):
        start(*late, "split.test=[2025-01-06,2025-01-07]", "execution.ticks_per_step=2")
    with pytest.raises(ConfigError, match="ticks_per_step is 9"):
        start("execution.ticks_per_step=9")
    assert not (tmp_path / "run").exists()
    assert not started
    start("execution.ticks_per_step=2")
    assert len(started) == 1


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        ({}, range(1, 11)),
        ({"validate_every": 3}, (3, 6, 9)),
        ({"checkpoint_every": 4}, (4, 8, 10)),
        ({"validate_every": 2, "checkpoint_every": 3}, (6, 10)),
        ({"validate_every": 3, "checkpoint_every": 4}, ()),
        ({"validate_every": 11}, ()),
    ],
)
def test_j07_checkpoints_that_can_be_judged(settings: dict[str, int], there: Any) -> None:
    assert validated_checkpoints(TrainConfig(iterations=10, **settings)) == list(there)


def test_j07_the_library_refuses_before_it_trains(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="val_every_n_iters is 5 and max_iters 3"):
        Trainer(max_iters=3, val_every_n_iters=5)
    with pytest.raises(ConfigError, match="val_every_n_iters is empty"):
        Trainer(max_iters=3, callbacks=[EarlyStopping(patience=2)]).fit(small_vessel())
    with pytest.raises(ConfigError, match="time_interval"):
        Checkpoint(tmp_path, time_interval=0)
    with pytest.raises(ConfigError, match="'val/pa'"):
        Trainer(max_iters=3, callbacks=[Checkpoint(tmp_path / "a", keep_best=1)]).fit(small_vessel())
    assert not list(tmp_path.iterdir())
    Trainer(max_iters=2, callbacks=[Checkpoint(tmp_path)]).fit(small_vessel())
    with pytest.raises(ConfigError, match=r"max_iters is 1, but .*0002\.pt is of iteration 2"):
        Trainer(max_iters=1).fit(small_vessel(), tmp_path / "0002.pt")


def test_j07_a_stored_configuration_is_checked_as_one_that_is_given() -> None:
    with pytest.raises(ConfigError, match="validate_every"):
        RunConfig.load(None, Layer("test", {"train.validate_every": 50}))
