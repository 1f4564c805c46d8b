"""The screen of features: a planted signal is found, luck is not, and only training days are read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlwb.errors import DataError
from rlwb.experiment.config import Layer, RunConfig
from rlwb.experiment.screen import HORIZONS, TOGETHER, Screen, _decisions, screen
from rlwb.experiment.workbench import Workbench
from rlwb.market import feature_registry
from rlwb.market.catalogue import BUILT_IN
from tests.test_cli import call

SMALL = {"market.instruments": 4, "market.days": 60, "market.tick_minutes": 10, "execution.ticks_per_step": 3}


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_registry, "_FEATURES", dict(BUILT_IN))


def bench(**changes: Any) -> Workbench:
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return Workbench(RunConfig.load(None, Layer("test", {**SMALL, **named})))


@pytest.fixture(scope="module")
def planted() -> Screen:
    return screen(bench(market__signal=4.0, market__days=100))


def test_a_planted_signal_is_found(planted: Screen) -> None:
    assert planted.found
    by_name = {(one.feature, one.horizon): one for one in planted.findings}
    assert planted.findings[0].feature == TOGETHER
    for horizon in HORIZONS:
        assert by_name["close", horizon].holds
        assert by_name["close", horizon].r2 > 0.02
        assert by_name["close", horizon].gain_bp > 1
        assert not by_name["time", horizon].holds
    assert "something to learn" in planted.verdict


def test_without_signal_nothing_is_found() -> None:
    found = [screen(bench(market__signal=0.0, market__seed=seed)) for seed in range(20)]
    assert sum(one.found for one in found) <= 1
    assert found[0].verdict.startswith("Nothing")


def test_the_table_names_every_feature_and_what_was_left_out(planted: Screen) -> None:
    told = planted.to_markdown()
    for name in BUILT_IN:
        assert f"| {name} |" in told or name in planted.left_out, name
    assert "bars lack" in planted.left_out["spread"]
    plain = json.loads(json.dumps(planted.as_dict(), allow_nan=False))
    assert len(plain["findings"]) == 2 * (1 + len(BUILT_IN) - len(planted.left_out))
    assert plain["found"] is True


def test_moves_and_volatility_by_hand() -> None:
    work = bench(market__instruments=1, market__days=40)
    orders = work.align(work.make_orders()[0]["train"])
    found, _ = _decisions(work.engine, orders)
    at = int(np.flatnonzero((found.tick == 6) & (found.row == 5))[0])
    price = work.engine.price[5]
    assert found.moves[at, 0] == pytest.approx(np.log(price[9:12].mean() / price[6:9].mean()))
    assert found.moves[at, 1] == pytest.approx(np.log(price[9:].mean() / price[6:9].mean()))
    returns = [np.diff(np.log(work.engine.price[4])), np.diff(np.log(price[:6]))]
    assert found.volatility[at] == pytest.approx(np.sqrt(np.mean(np.concatenate(returns) ** 2)))
    assert found.tick.max() == 18  # the last step but one: at the last there is nothing to wait for
    assert (np.diff(work.sessions.dates[found.row]) >= np.timedelta64(0)).all()


def test_validation_and_test_days_change_nothing() -> None:
    work, other = bench(market__signal=2.0), bench(market__signal=2.0)
    orders = work.align(work.make_orders()[0]["train"])
    later = work.sessions.dates > work.sessions.dates[orders.session].max()
    rng = np.random.default_rng(0)
    fields = {
        name: np.where(later[:, None], rng.uniform(5, 50, values.shape), values)
        for name, values in work.sessions.fields.items()
    }
    other.__dict__["sessions"] = replace(work.sessions, fields=fields)
    assert screen(work).findings == screen(other).findings


def test_ones_own_feature_and_anothers_instrument_are_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("def own_close(block):\n    return block['close'] / block.previous_close\n")
    (tmp_path / "mine.yaml").write_text("features: {columns: [close, returns@SYN002, 'mine.py:own_close']}\n")
    words = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    code, told, _ = call(capsys, "features", "screen", str(tmp_path / "mine.yaml"), *words, "--json")
    plain = json.loads(told)
    assert code == (0 if plain["found"] else 3)
    assert {"own_close", "returns@SYN002"} <= {one["feature"] for one in plain["findings"]}


def test_nothing_found_is_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    words = [word for name, value in {**SMALL, "market.signal": 0}.items() for word in ("--set", f"{name}={value}")]
    code, told, _ = call(capsys, "features", "screen", *words)
    assert code == 3
    assert told.startswith("Nothing to learn was found")


def test_windows_are_thinned_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlwb.experiment.screen.MOST_SAMPLES", 400)
    found = screen(bench())
    assert found.decisions < 400
    assert any("windows every" in note for note in found.notes)


def test_what_cannot_be_screened_is_refused() -> None:
    with pytest.raises(DataError, match="17 training days"):
        screen(bench(market__days=30))
    with pytest.raises(DataError, match="one step each"):
        screen(bench(execution__ticks_per_step=24, execution__rules__step_grid="session"))
