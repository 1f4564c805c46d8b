"""Adjustment factors: traded prices in the panel, and comparisons across days that a split does not disturb."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rlwb.errors import ConfigError, DataError
from rlwb.execution import TWAP, ExecutionRules
from rlwb.market import Calendar, MarketFeatures, Sessions, build_sessions, load_sessions, resample, sessions_to_bars
from rlwb.market.actions import suspected_splits
from rlwb.market.catalogue import BUILT_IN, Block
from rlwb.market.references import References, previous_close
from tests.execution.markets import order, run
from tests.market.helpers import day_bars, random_bars, raw_column

CLOCK = Calendar(segments=(("10:00", "10:04"),), infer_early_close_minutes=0)
DATES = ["2024-01-03", "2024-01-04", "2024-01-05"]


def split_bars(factors: tuple[float, float, float] = (0.5, 0.5, 1.0)) -> pd.DataFrame:
    """Return three days of a share that is split 2:1 on the night before the third: 100, 100, 50 a share."""
    prices, volumes = (100.0, 100.0, 50.0), (10.0, 12.0, 22.0)
    days = zip(DATES, prices, volumes, factors, strict=True)
    return pd.concat([day_bars(CLOCK, d, close=p, volume=v).assign(factor=f) for d, p, v, f in days])


def build(bars: pd.DataFrame, **options: object) -> Sessions:
    return build_sessions(bars, CLOCK, **options)  # type: ignore[arg-type]


def test_the_panel_holds_what_was_traded_and_the_factor_beside_it() -> None:
    sessions = build(split_bars(), strict=True)
    np.testing.assert_array_equal(sessions.fields["close"][:, 0], [100, 100, 50])
    np.testing.assert_array_equal(sessions.factor, [0.5, 0.5, 1.0])
    assert not {"price_jump", "split_suspected", "factor_contradicted"} & set(sessions.report.counts)


def test_references_of_earlier_days_are_in_prices_and_shares_of_today() -> None:
    sessions = build(split_bars())
    np.testing.assert_array_equal(previous_close(sessions), [np.nan, 100, 50])
    references = References(sessions)
    np.testing.assert_array_equal(references.price, [100, 100, 50])
    np.testing.assert_array_equal(references.volume, [np.nan, 10, 24])
    block = Block(references, np.array([2, 1]))
    np.testing.assert_array_equal(block.earlier("close", 1)[:, 0], [50, 100])
    np.testing.assert_array_equal(block.earlier("volume", 1)[:, 0], [24, 10])
    np.testing.assert_array_equal(block.earlier("volume", 2)[:, 0], [20, np.nan])


def test_only_ratios_of_factors_count() -> None:
    one, other = build(split_bars()), build(split_bars((3.0, 3.0, 6.0)))
    for name in ("close", "volume", "volume_share"):
        np.testing.assert_array_equal(raw_column(one, name), raw_column(other, name))


def test_features_are_those_of_adjusted_bars() -> None:
    bars = random_bars(CLOCK, ["A", "B"], DATES, keep=0.9)
    factor = bars["datetime"].dt.normalize().map(dict(zip(pd.to_datetime(DATES), (0.1, 0.5, 1.0), strict=True)))
    traded = bars.assign(**{name: bars[name] / factor for name in ("open", "high", "low", "close")})
    traded = traded.assign(volume=bars["volume"] * factor, factor=factor)
    with_factor, adjusted = build(traded, min_coverage=0.0), build(bars, min_coverage=0.0)
    for name in set(BUILT_IN) - {"bid", "ask", "bid_size", "ask_size", "vwap", "spread", "imbalance", "qlib_vwap"}:
        slack = 1e-6 if name.startswith("qlib_") else 1e-9  # float32 there
        np.testing.assert_allclose(raw_column(with_factor, name), raw_column(adjusted, name), rtol=slack, atol=1e-12)
    rows = np.ones(len(adjusted), dtype=bool)
    one, other = (MarketFeatures.build(sessions, fit_rows=rows) for sessions in (with_factor, adjusted))
    np.testing.assert_allclose(one.block_previous(np.array([2, 5])), other.block_previous(np.array([2, 5])), atol=1e-6)


@pytest.mark.parametrize(
    ("price", "factor", "filled"),
    [
        (50.0, True, [8.0, 8.0]),
        (50.0, False, [8.0, 0.0]),  # as if it had fallen from 100 beyond the limit of 90
        (55.0, True, [0.0, 8.0]),  # a tenth above 50
        (45.0, True, [8.0, 0.0]),
    ],
)
def test_a_price_limit_goes_by_the_factor(price: float, factor: bool, filled: list[float]) -> None:
    bars = split_bars()
    bars.loc[bars["close"] == 50.0, ["open", "high", "low", "close"]] = price
    sessions = build(bars if factor else bars.drop(columns="factor"))
    orders = [order(8.0, side, day=5) for side in ("BUY", "SELL")]
    _, _, summary = run(sessions, orders, 2, TWAP, ExecutionRules(price_limit=0.1, price_tick=0.01))
    assert summary["filled"].tolist() == filled


def test_adjusted_prices_are_brought_back(tmp_path: Path) -> None:
    bars = split_bars()
    prices = {name: bars[name] * bars["factor"] for name in ("open", "high", "low", "close")}
    bars.assign(**prices, volume=bars["volume"] / bars["factor"]).to_csv(tmp_path / "bars.csv", index=False)
    sessions = load_sessions(tmp_path / "bars.csv", CLOCK, prices="adjusted")
    for name, values in build(split_bars()).fields.items():
        np.testing.assert_array_equal(sessions.fields[name], values)
    assert sessions.report.counts["factor_applied"] == 8
    as_traded = load_sessions(tmp_path / "bars.csv", CLOCK)
    assert "AAA 2024-01-05 10:00:00 (bars.csv row 9): times 2" in as_traded.report.examples["factor_contradicted"]
    with pytest.raises(DataError, match="needs a column factor"):
        build(split_bars().drop(columns="factor"), prices="adjusted")
    with pytest.raises(ConfigError, match="prices is 'raw'; write 'traded' or 'adjusted'"):
        build(split_bars(), prices="raw")


def test_a_factor_that_changes_within_a_day_is_refused() -> None:
    bars = split_bars()
    bars.iloc[6, bars.columns.get_loc("factor")] = 1.0
    with pytest.raises(
        DataError, match=r"factor of AAA changes within 2024-01-04, from 0.5 to 1 \(the first such session\)"
    ):
        build(bars)
    bars.iloc[6, bars.columns.get_loc("factor")] = np.float32(0.5) * (1 + 1e-6)  # rounding
    assert build(bars).factor is not None


def test_a_day_without_a_factor_is_refused_and_a_bar_without_one_is_not() -> None:
    bars = split_bars()
    bars.iloc[5, bars.columns.get_loc("factor")] = np.nan
    np.testing.assert_array_equal(build(bars).factor, [0.5, 0.5, 1.0])
    bars.iloc[4:8, bars.columns.get_loc("factor")] = 0.0
    with pytest.raises(DataError, match=r"AAA has no factor above 0 on 2024-01-04 \(the first such session\)"):
        build(bars)


def test_a_split_beyond_the_factor_is_still_suspected() -> None:
    bars = split_bars()
    assert suspected_splits(build(bars.assign(factor=1.0)))["split"].tolist() == ["2:1"]


def test_factors_survive_files_processes_selections_and_resampling(tmp_path: Path) -> None:
    sessions = build(split_bars())
    opened = Sessions.open(sessions.save(tmp_path / "panel"))
    for other in (
        opened,
        pickle.loads(pickle.dumps(sessions)),
        pickle.loads(pickle.dumps(opened)),
        resample(sessions, 2),
    ):
        np.testing.assert_array_equal(other.factor, sessions.factor)
    assert opened.fingerprint == sessions.fingerprint != build(split_bars((1.0, 1.0, 2.5))).fingerprint
    np.testing.assert_array_equal(sessions.select(np.array([0, 2])).factor, [0.5, 1.0])
    assert build(sessions_to_bars(sessions)).fingerprint == sessions.fingerprint
    with pytest.raises(DataError, match="must be 3 numbers above 0"):
        Sessions(CLOCK, sessions.instruments, sessions.dates, sessions.num_ticks, sessions.fields, factor=np.zeros(3))
