from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlwb.errors import ConfigError
from rlwb.trainer import Callback, EarlyStopping, Trainer


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
