"""A run on bars with bid and ask prices, from the file to the report."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rlwb.experiment.backtest import backtest_policies
from rlwb.experiment.config import RunConfig
from rlwb.experiment.layers import Layer
from rlwb.experiment.orders import make_orders, workbench
from rlwb.experiment.report import audit_order, draw_stability, typical_order, write_report
from rlwb.experiment.run import RunDirectory
from rlwb.experiment.training import train_policy
from rlwb.market import Calendar
from tests.market.helpers import random_bars

CLOCK = {"preset": "cn", "tick_minutes": 30, "label": "end"}
DAYS = [f"{day:%Y-%m-%d}" for day in pd.bdate_range("2024-03-04", periods=24)]
HALF = 10.0  # basis points of the mid on either side


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    folder = tmp_path_factory.mktemp("quotes")
    bars = random_bars(Calendar.preset("cn", tick_minutes=30, label="end"), ["AAA", "BBB"], DAYS)
    # The last trade is at the bid or the ask, so close is not the mid.
    mid, side = bars["close"] * 1.003, np.where(np.arange(len(bars)) % 2, 1.0, -1.0)
    bars = bars.assign(bid=mid * (1 - HALF / 1e4), ask=mid * (1 + HALF / 1e4), close=mid * (1 + side * HALF / 1e4))
    bars["high"] = bars[["high", "close"]].max(axis=1)
    bars["low"] = bars[["low", "close"]].min(axis=1)
    bars.loc[7, "ask"] = np.nan  # a bar with one side has no price
    bars.to_csv(folder / "bars.csv", index=False)
    values = {
        "market.source": str(folder / "bars.csv"),
        **{f"market.calendar.{name}": value for name, value in CLOCK.items()},
        "execution.ticks_per_step": 2,
        "execution.rules.price_field": "quotes",
        "network.hidden": 8,
        "train.iterations": 2,
        "train.episodes_per_iteration": 30,
        "algorithm.batch_size": 30,
        "algorithm.repeat": 1,
        "backtest.top": 1,
        "backtest.bootstrap_samples": 100,
    }
    config = RunConfig.load(None, Layer("test", values))
    run = RunDirectory.create(folder / "run", config)
    make_orders(run, config)
    train_policy(run, config, progress="none")
    backtest_policies(run, config)
    draw_stability(run, config)
    return run


def test_buys_pay_the_ask_and_sells_get_the_bid(run: RunDirectory) -> None:
    """Every fill costs half of the quoted spread, which is the same share of the mid in all bars."""
    for policy in ("last", "twap", "almgren_chriss"):
        table = pd.read_parquet(run.backtest / "orders" / f"{policy}.parquet")
        side = np.where(table["direction"] == "BUY", 1.0, -1.0)
        np.testing.assert_allclose(table["price_net"], table["price"] * (1 + side * HALF / 1e4), rtol=1e-9)
        # The PA is of prices over TWAP, both at the mid: what costs take is half the spread at the price paid.
        np.testing.assert_allclose(table["pa"] - table["pa_net"], HALF * table["price"] / table["twap"], rtol=1e-9)
    np.testing.assert_allclose(pd.read_parquet(run.backtest / "orders" / "twap.parquet")["pa"], 0.0, atol=1e-8)


def test_fills_are_priced_at_the_mid_tick_by_tick(run: RunDirectory) -> None:
    bench = workbench(run, run.config)
    audit = audit_order(run, bench, "twap", typical_order(run, "twap"))
    fields, engine = bench.sessions.fields, bench.engine
    mid = (fields["bid"].astype(np.float64) + fields["ask"]) / 2
    np.testing.assert_allclose(engine.price[np.isfinite(mid)], mid[np.isfinite(mid)], rtol=1e-12)
    assert int(np.isnan(mid).sum()) == 1
    assert not np.isfinite(engine.price[np.isnan(mid)]).any()
    checks = audit.checks()
    np.testing.assert_allclose(checks.iloc[:, 0], checks.iloc[:, 1], rtol=1e-12, atol=1e-12)


def test_the_report_says_what_the_spread_takes(run: RunDirectory) -> None:
    gap = pd.read_csv(run.backtest / "gap.csv").set_index("cause")
    assert gap.index.tolist() == ["simple rules", "spread", "all together"]
    assert gap.loc["spread", "difference"] < -HALF / 2
    head = pd.read_csv(run.backtest / "headline.csv").set_index("policy")
    assert head.loc["twap", "pa_net"] == pytest.approx(-HALF, abs=0.01)
    page = write_report(run).read_text()
    assert "buys at the ask, sells at the bid" in page
    assert "costs: the quoted half spread" in page
    assert "All PAs in the figures are net of costs." in page
