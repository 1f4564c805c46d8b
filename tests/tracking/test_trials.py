"""Trials of a search are runs of one group."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlwb.experiment import tracked
from rlwb.study.trial import Pruned, shared_orders, train_trial
from tests.experiment.test_tracked import configured
from tests.tracking.test_tensorboard import read, scalars


def test_a_trial_is_followed_and_one_that_is_pruned_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked, "POLL_SECONDS", 0.05)
    config = configured("tensorboard")
    orders = shared_orders(tmp_path / "search", config)
    found = train_trial(tmp_path / "search" / "trials" / "000000", config, orders)
    with pytest.raises(Pruned):
        train_trial(tmp_path / "search" / "trials" / "000001", config, orders, lambda iteration, value: True)
    done, cut = (tmp_path / "search" / "tensorboard" / f"00000{number}" for number in (0, 1))
    values = [value for _, value in scalars(done, f"val/{config.judged_by}")]
    assert max(values) == pytest.approx(found.figures[config.judged_by], rel=1e-6, abs=1e-9)
    assert read(done).Tensors("status")[0].tensor_proto.string_val == [b"finished"]
    assert read(cut).Tensors("status")[0].tensor_proto.string_val == [b"interrupted"]
