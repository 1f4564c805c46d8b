"""Real bars of many markets, read as their owners would; skipped where they are not at hand.

The expected counts were taken from the files with plain pandas and from the notes that come with them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rlwb.market import (
    Calendar,
    FeatureSettings,
    MarketFeatures,
    Sessions,
    build_sessions,
    load_sessions,
    read_bars,
    resample,
)
from rlwb.market.stylised import stylised_facts

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"real market data are not at {DATA}")


def us(**settings: Any) -> Calendar:
    return Calendar.preset("us", **settings)


def cn(**settings: Any) -> Calendar:
    return Calendar.preset("cn", label="end", **settings)


# name: calendar, options, sessions, instruments, lengths of sessions, findings
SETS: dict[str, tuple[Calendar, dict[str, Any], int, int, set[int], dict[str, int]]] = {
    "us_equity_1min_2018": (us(), {}, 1771, 41, {390}, {"auction": 1771, "duplicate_identical": 7796}),
    "us_equity_1min_2025": (us(), {}, 1926, 24, {210, 390}, {"early_close_inferred": 2, "volume_break": 3}),
    "us_equity_5min_2025": (us(tick_minutes=5), {}, 8131, 39, {42, 78}, {"early_close_inferred": 3, "volume_break": 1}),
    "us_equity_5min_ext": (us(tick_minutes=5), {}, 1002, 2, {42, 78}, {"early_close_inferred": 5, "column_ignored": 1}),
    "us_equity_1min_2023": (us(label="end"), {}, 76, 4, {390}, {"missing_tick": 1}),
    "us_equity_1min_2019": (us(label="end"), {}, 90, 18, {390}, {"no_volume": 5}),
    "us_equity_1min_quotes": (us(), {}, 27, 6, {390}, {"split_suspected": 1, "sparse_session": 1, "hours_missing": 1}),
    "cn_equity_1min_2024": (cn(), {"volume_multiplier": 100}, 909, 105, {240}, {"auction": 909, "high_low": 3}),
    "cn_equity_15min_2025": (cn(tick_minutes=15), {}, 16725, 56, {16}, {"price_zero": 960, "sparse_session": 60}),
    "in_equity_1min_2021": (Calendar.preset("in"), {}, 1255, 38, {271, 327, 375}, {"closed_day": 171}),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("panels")


def load(name: str, cache: Path) -> Sessions:
    calendar, options, *_ = SETS[name]
    return load_sessions(DATA / name / "bars.parquet", calendar, cache_dir=cache, **options)


@pytest.mark.parametrize("name", list(SETS))
def test_every_set_becomes_a_panel_with_its_known_dirt(name: str, cache: Path) -> None:
    start = time.process_time()
    sessions = load(name, cache)
    assert time.process_time() - start < 10
    _, _, count, instruments, lengths, findings = SETS[name]
    assert (len(sessions), len(set(sessions.instruments.tolist()))) == (count, instruments)
    assert set(sessions.num_ticks.tolist()) == lengths
    for reason, number in findings.items():
        assert sessions.report.counts[reason] == number, sessions.report.as_text()
    close, volume = sessions.fields["close"], sessions.fields["volume"]
    assert (np.isfinite(close) & (close <= 0)).sum() == 0
    assert (volume < 0).sum() == 0
    with np.errstate(invalid="ignore"):
        top = np.fmax(sessions.fields["open"], close)
        assert not (sessions.fields["high"] < top * (1 - 1e-9)).any()
    assert sessions.report.totals["bars_kept"] >= np.isfinite(close).sum()


@pytest.mark.parametrize("name", ["us_equity_1min_2018", "cn_equity_1min_2024", "cn_equity_15min_2025"])
def test_values_lie_where_plain_pandas_finds_them(name: str, cache: Path) -> None:
    sessions = load(name, cache)
    calendar, options, *_ = SETS[name]
    bars = pd.read_parquet(DATA / name / "bars.parquet").drop_duplicates(["instrument", "datetime"], keep="last")
    bars = bars[bars["close"] > 0].sample(300, random_state=0)
    shift = pd.Timedelta(minutes=calendar.tick_minutes if calendar.label == "end" else 0)
    seen = 0
    for bar in bars.itertuples():
        moment = bar.datetime - shift
        tick = calendar.first_tick(moment)
        if tick == calendar.num_ticks or calendar.time_of(tick) != moment.time():
            continue  # an auction
        row = sessions.row(bar.instrument, moment)
        assert sessions.fields["close"][row, tick] == bar.close
        assert sessions.fields["volume"][row, tick] == bar.volume * options.get("volume_multiplier", 1)
        seen += 1
    assert seen > 280


def test_the_clean_window_is_clean_and_passes_strict(cache: Path) -> None:
    """The US set of 2025 holds 24 instruments x 31 days x 390 bars without a gap."""
    source = DATA / "us_equity_1min_2025" / "bars.parquet"
    window = load_sessions(source, us(), start="2026-01-22", end="2026-03-06", strict=True, cache_dir=cache)
    assert window.fields["close"].shape == (24 * 31, 390)
    assert not np.isnan(window.fields["close"]).any()
    assert not window.report.problems()


def test_mock_sessions_are_rejected_by_the_weekdays(cache: Path) -> None:
    dates = load("in_equity_1min_2021", cache).dates
    assert not np.isin(np.array(["2021-05-01", "2021-06-12"], dtype="datetime64[D]"), dates).any()


def test_a19_leading_zeros_survive(cache: Path) -> None:
    names = set(load("cn_equity_15min_2025", cache).instruments.tolist())
    assert "000001" in names
    assert all(len(name) == 6 for name in names)


def test_quotes_come_along(cache: Path) -> None:
    sessions = load("us_equity_1min_quotes", cache)
    assert {"bid", "ask", "bid_size", "ask_size"} <= sessions.fields.keys()
    settings = FeatureSettings(("close", "volume", "spread", "bid_size"))
    features = MarketFeatures.build(sessions, settings, fit_rows=np.arange(len(sessions)))
    assert np.isfinite(features.today).all()


def test_the_wrong_label_is_noticed_on_real_bars() -> None:
    frame = read_bars(DATA / "us_equity_1min_2023" / "bars.parquet")
    assert "label='end'" in build_sessions(frame, us()).report.examples["label_suspect"]
    frame = read_bars(DATA / "us_equity_1min_2018" / "bars.parquet", instruments=["AAL", "BRK.B"])
    assert "label_suspect" not in build_sessions(frame, us()).report.counts


@pytest.mark.parametrize("name", ["us_equity_1min_2018", "cn_equity_1min_2024"])
def test_features_of_real_bars_are_finite_and_of_unit_size(name: str, cache: Path) -> None:
    sessions = load(name, cache)
    train = sessions.dates <= np.sort(np.unique(sessions.dates))[len(np.unique(sessions.dates)) // 2]
    features = MarketFeatures.build(sessions, fit_rows=train)
    assert np.isfinite(features.today).all()
    np.testing.assert_allclose(features.today[train].std(axis=(0, 1)), 1, atol=0.15)


def test_real_five_minute_bars_show_the_facts_that_the_synthetic_market_copies(cache: Path) -> None:
    facts = stylised_facts(resample(load("us_equity_1min_2018", cache), 5))
    assert facts["excess_kurtosis"] > 4
    assert facts["volatility_autocorrelation_1"] > 0.15
    assert facts["volatility_open_to_middle"] > 1.6
    assert facts["volume_open_to_middle"] > 1.8
    assert facts["volume_volatility_correlation"] > 0.15


RAW: dict[str, tuple[str, Calendar, dict[str, Any], list[str]]] = {
    "pyqstrat_csv": ("", us(label="end"), {}, ["AAPL", "IBM", "MSFT", "NVDA"]),
    "alphavantage_csv": ("UGA_1min.csv", us(label="end"), {"min_coverage": 0.0}, ["UGA_1min"]),
    "cn_1min_csv": ("", cn(), {"instrument_pattern": r"(.+)-\d{8}"}, ["000001.SZ", "002611.SZ", "600519.SH"]),
    "split_date_time_csv": ("DIS.csv.gz", us(), {"columns": {"ToD": "time"}}, ["DIS"]),
    "cn_15min_csv": ("", cn(tick_minutes=15), {}, ["600058", "600519"]),
    "yahoo_csv": ("AAPL_1m.csv.gz", us(), {}, ["AAPL_1m"]),
    "polygon_csv": ("MA_5m.first20000.csv.gz", us(tick_minutes=5), {"source_timezone": "UTC"}, ["MA"]),
}


@pytest.mark.parametrize("folder", list(RAW))
def test_files_as_their_sources_wrote_them(folder: str) -> None:
    name, calendar, options, instruments = RAW[folder]
    sessions = load_sessions(DATA / "raw" / folder / name, calendar, **options)
    assert sorted(set(sessions.instruments.tolist())) == instruments
    assert np.isfinite(sessions.fields["close"]).mean() > 0.9 or folder == "alphavantage_csv"
