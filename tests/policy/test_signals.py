"""The network on forecasts: its averages and regressions by formulas, its mirror, and what it must not see."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from rlwb.errors import ConfigError
from rlwb.execution import FullHistoryStateInterpreter
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.workbench import Workbench
from rlwb.market import FeatureSettings, MarketFeatures, Sessions
from rlwb.market.synthetic import SyntheticSettings, synthetic_sessions
from rlwb.policy import Signals, TraceEncoder, make_network
from tests.trainer.small import small

HALF_LIVES = (2.0, math.inf)
TRAIN = np.arange(18)


@cache
def panel(columns: tuple[str, ...] = ("open", "volume", "close")) -> MarketFeatures:
    """Three instruments, nine days of 16 ticks each."""
    return MarketFeatures.build(small().simulator.engine.sessions, FeatureSettings(columns), fit_rows=TRAIN)


def network(features: MarketFeatures | None = None, seed: int = 0) -> Signals:
    features = features or panel()
    found: Signals = make_network(lambda: Signals(features, 4, hidden=6, half_lives=HALF_LIVES), seed)
    found.fit(panel(), TRAIN)
    return found


def raw() -> dict[str, np.ndarray]:
    """Log prices and volumes of the sessions themselves."""
    sessions = small().simulator.engine.sessions
    fields = {name: np.log(sessions.fields[name]) for name in ("open", "close")}
    before = np.full(len(sessions), np.nan)
    before[1:] = fields["close"][:-1, -1]
    before[sessions.first] = np.nan
    return {**fields, "gap": fields["open"][:, 0] - before, "volume": panel().today[..., 1].astype(np.float64)}


def observed(sessions: np.ndarray, ticks: np.ndarray, **changes: Any) -> dict[str, Any]:
    count = len(sessions)
    numbers = {"target": np.ones(count), "position": np.full(count, 0.5), "acquiring": np.zeros(count, np.int64)}
    steps = {"cur_step": ticks // 4, "num_step": np.full(count, 4)}
    return {**numbers, **steps, "session": sessions, "cur_tick": ticks, "features": panel(), **changes}


def test_states_are_the_averages_of_the_formula() -> None:
    one, known, row = network(), raw(), 10
    state = one.market.encode(one.tensor(panel().rows(np.array([row]))), None)[0].numpy()
    assert state.shape == (17, 2 + 6)
    moves = 1e4 * np.diff(np.append(known["open"][row, 0], known["close"][row]))
    usual = known["volume"][TRAIN].mean(axis=0)
    surprise = (known["volume"][row] - usual) / (known["volume"][TRAIN] - usual).std()
    assert np.abs(surprise).max() < 4
    active = np.zeros(17)
    for tick in range(16):
        active[tick + 1] = (active[tick] + surprise[tick]) / 2
    assert state[:, -1] == pytest.approx(np.arange(17) / 16)
    assert state[:, -2] == pytest.approx(active, abs=1e-4)
    assert state[1:, -3] == pytest.approx(1e4 * (known["close"][row] - known["close"][row - 1, -1]), abs=0.05)
    assert state[1:, -4] == pytest.approx(1e4 * known["gap"][row], abs=0.05)
    for place, half_life in enumerate(HALF_LIVES):
        for tick in (1, 5, 16):
            age = tick - 1 - np.arange(tick)
            assert state[tick, place] == pytest.approx(np.sum(0.5 ** (age / half_life) * moves[:tick]), abs=0.2)
    filtered = one.market.filter
    now = filtered.begin(torch.tensor([1e4 * known["gap"][row]]).float())
    for tick in range(16):
        drivers = torch.tensor([[surprise[tick], active[tick]]]).float()
        now = filtered.further(now, torch.tensor([moves[tick]]).float(), drivers, tick)
        assert state[tick + 1, 2] == pytest.approx(float(now.mean), abs=0.05, rel=1e-3)
        assert state[tick + 1, 3] == pytest.approx(float(now.error), rel=1e-3)


def test_forecasts_are_a_ridge_regression_on_the_training_sessions() -> None:
    one, known, step = network(), raw(), 4
    states = one.market.encode(one.tensor(panel().rows(TRAIN)), None).double().numpy()
    close = 1e4 * known["close"][TRAIN]
    rows, aims = [], []
    for tick in range(1, 12):
        rows.append((states[:, tick][:, [0, 1, 2, 4], None] * (tick / 16) ** np.arange(4)).reshape(len(TRAIN), -1))
        now = close[:, tick : tick + step].mean(axis=1)
        rest, after = close[:, tick + step :].mean(axis=1), close[:, tick + step : tick + 2 * step].mean(axis=1)
        aims.append(np.stack([now - rest, now - after], axis=1))
    x, y = np.concatenate(rows), np.concatenate(aims)
    size = np.sqrt((x**2).sum(axis=0))
    padded = np.concatenate([x / size, 1e-2 * np.eye(x.shape[1])])  # the ridge as further rows
    wanted = np.linalg.lstsq(padded, np.concatenate([y, np.zeros((x.shape[1], 2))]), rcond=None)[0] / size[:, None]
    told = one.forecasts(torch.tensor(states[:, 5], dtype=torch.float32))
    at = 4 * len(TRAIN)
    assert told.numpy() == pytest.approx((x @ wanted)[at : at + len(TRAIN)], rel=0.02, abs=0.05)
    assert one.unit.numpy() == pytest.approx(np.sqrt(((x @ wanted) ** 2).mean(axis=0)), rel=0.02)


def test_only_training_sessions_are_read() -> None:
    values = panel().today.copy()
    values[18:] = 7.0
    other = MarketFeatures(panel().columns, values, panel().previous, panel().normaliser)
    one, two = network(), network()
    two.fit(other, TRAIN)
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, two.state_dict()[name]), name


def test_a_purchase_is_a_sale_in_the_mirror() -> None:
    features = panel()
    mean, scale = (np.float32(getattr(features.normaliser, name)) for name in ("mean", "scale"))
    mirrored = features.today.copy()
    for place in (0, 2):
        mirrored[..., place] = -(mirrored[..., place] + 2 * mean[place] / scale[place])
    other = MarketFeatures(features.columns, mirrored, features.previous, features.normaliser)
    sessions, ticks = np.arange(18, 27), np.tile([0, 4, 12], 3)
    one = network()
    with torch.no_grad():
        sale, same = (one(observed(sessions, ticks, acquiring=np.full(9, side))) for side in (0, 1))
        purchase = one(observed(sessions, ticks, acquiring=np.ones(9, np.int64), features=other))
    assert not torch.allclose(sale, same)
    torch.testing.assert_close(purchase, sale, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("cuts", [(16,), (1, 2, 16), (7, 8, 16)])
def test_states_advance_from_the_last_one(cuts: tuple[int, ...]) -> None:
    encoder = network().market
    today = torch.tensor(panel().rows(np.arange(20, 25)))
    whole, slots = encoder.encode(today, None), torch.arange(5)
    state, since = encoder.begin((), slots, None), 0
    assert torch.equal(state, whole[:, 0])
    for cut in cuts:
        found = encoder.advance((), slots, state, today[:, since:cut], since, 16)
        assert torch.equal(found, whole[:, since + 1 : cut + 1])
        state, since = found[:, -1], cut


def test_no_later_bar_and_no_neighbour_moves_a_decision() -> None:
    one, sessions, ticks = network(), np.arange(18, 27), np.tile([0, 4, 12], 3)
    values = panel().today.copy()
    for session, tick in zip(sessions, ticks, strict=True):
        values[session, tick:] = 9.0
    values[:18] = 5.0
    other = MarketFeatures(panel().columns, values, panel().previous, panel().normaliser)
    blocks = FullHistoryStateInterpreter(panel(), 4)
    obs = observed(sessions, ticks)
    with torch.no_grad():
        told = one(obs)
        assert torch.equal(one({**obs, "features": other}), told)
        del obs["session"], obs["features"]
        obs["data_processed"] = blocks.features.block(sessions, ticks)
        torch.testing.assert_close(one(obs), told, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("volume", [-1e6, 1e6])
def test_a_volume_beyond_all_others_leaves_the_answer_finite(volume: float) -> None:
    values = panel().today.copy()
    values[..., panel().columns.index("volume")] = volume
    other = MarketFeatures(panel().columns, values, panel().previous, panel().normaliser)
    with torch.no_grad():
        told = network()(observed(np.arange(18, 27), np.full(9, 12), features=other))
    assert bool(torch.isfinite(told).all())


def test_its_weights_carry_the_regressions() -> None:
    one, other = network(), make_network(lambda: Signals(panel(), 4, hidden=6, half_lives=HALF_LIVES), 1)
    other.load_state_dict(one.state_dict())
    obs = observed(np.arange(18, 27), np.full(9, 8))
    with torch.no_grad():
        assert torch.equal(other(obs), one(obs))


@pytest.mark.parametrize("columns", [("close",), ("close", "open"), ("close", "volume"), ("time", "close")])
def test_open_and_volume_are_used_where_they_are(columns: tuple[str, ...]) -> None:
    one = make_network(lambda: Signals(panel(columns), 4), 0)
    one.fit(panel(columns), TRAIN)
    with torch.no_grad():
        told = one(observed(np.arange(18, 27), np.full(9, 8), features=panel(columns)))
    assert bool(torch.isfinite(told).all())
    assert float(one.unit.min()) > 1.0, "something is forecast"


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: TraceEncoder(panel(("returns", "volume")), HALF_LIVES), "close"),
        (lambda: Signals(panel(), 4, half_lives=()), "half_lives"),
        (lambda: Signals(panel(), 4, half_lives=(4.0, 0.0)), "half_lives"),
        (lambda: Signals(panel(), 4, hidden=0), "hidden"),
    ],
)
def test_impossible_settings_are_named(make: Callable[[], Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make()


@pytest.mark.parametrize(("signal", "low", "high"), [(1.0, 0.2, 0.5), (0.0, -0.1, 0.1)])
def test_it_finds_what_the_market_hides(signal: float, low: float, high: float) -> None:
    """On sessions that it was not fitted on, forecasts go with what comes; without a signal they do not."""
    sessions = synthetic_sessions(SyntheticSettings(instruments=10, days=100, signal=signal, seed=3))
    train = sessions.dates < sessions.dates[60]
    features = MarketFeatures.build(sessions, FeatureSettings(), fit_rows=train)
    one = make_network(lambda: Signals(features, 8), 0)
    one.fit(features, np.flatnonzero(train))
    rest, ticks = np.flatnonzero(~train), np.arange(6, 42, 6)
    with torch.no_grad():
        states = one.market.encode(torch.tensor(features.rows(rest)), None)[:, ticks]
        told = one.forecasts(states)[..., 0].numpy()
    close = np.log(sessions.fields["close"][rest])
    came = [close[:, tick : tick + 6].mean(axis=1) - close[:, tick + 6 :].mean(axis=1) for tick in ticks]
    assert low < np.corrcoef(told.ravel(), np.stack(came, axis=1).ravel())[0, 1] < high


def test_a_run_fits_it_on_its_training_days() -> None:
    values = {
        "market": {"name": "synthetic", "instruments": 2, "days": 20},
        "network": "signals",
        "algorithm": "pathwise",
    }
    bench = Workbench(RunConfig.load(None, Layer("test", values)))
    tables, _ = bench.make_orders()
    features = bench.features(tables["train"])
    learner = bench.learner(features)
    assert not learner.trunk.coefficients.any()
    bench.fit(learner, features, tables["train"])
    again = make_network(lambda: Signals(features, bench.engine.max_step), 0)
    days = tables["train"]["date"].to_numpy().astype("datetime64[D]")
    again.fit(features, np.flatnonzero(np.isin(bench.sessions.dates, days)))
    assert torch.equal(learner.trunk.coefficients, again.coefficients)


def test_what_stands_after_an_early_close_is_no_price_to_forecast() -> None:
    values = {"market": {"name": "synthetic", "instruments": 2, "days": 40}, "network": "signals"}
    bench = Workbench(RunConfig.load(None, Layer("test", values)))
    tables, _ = bench.make_orders()
    features = bench.features(tables["train"])
    days = tables["train"]["date"].to_numpy().astype("datetime64[D]")
    rows = np.flatnonzero(np.isin(bench.sessions.dates, days))
    ends, at = bench.sessions.num_ticks.copy(), rows[::3]
    ends[at] = 24
    shut = features.today.copy()
    shut[at, 24:] = 0.0
    bench.sessions = replaced(bench.sessions, ends)
    learner, again = bench.learner(features), make_network(lambda: Signals(features, bench.engine.max_step), 0)
    bench.fit(learner, MarketFeatures(features.columns, shut, features.previous, features.normaliser), tables["train"])
    again.fit(features, np.setdiff1d(rows, at))
    assert torch.equal(learner.trunk.coefficients, again.coefficients)


def replaced(sessions: Sessions, ends: np.ndarray) -> Sessions:
    """Return sessions that close after other numbers of ticks."""
    there = np.arange(sessions.calendar.num_ticks) < ends[:, None]
    fields = {name: np.where(there, values, np.nan) for name, values in sessions.fields.items()}
    return Sessions(sessions.calendar, sessions.instruments, sessions.dates, ends, fields)
