"""The synthetic market: repeatable, sound, with the stylised facts and the signal it promises."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy.signal import lfilter

from rlwb.errors import ConfigError
from rlwb.market import Sessions, SyntheticSettings, build_sessions, resample, synthetic_bars, synthetic_sessions
from rlwb.market.stylised import log_returns, return_autocorrelation, stylised_facts, variance_ratio, volatility_profile
from rlwb.market.synthetic import _decaying_sum

LARGE = {"instruments": 40, "days": 160}


@pytest.fixture(scope="module")
def market() -> Sessions:
    return synthetic_sessions(SyntheticSettings(**LARGE))


@pytest.fixture(scope="module")
def martingale() -> Sessions:
    return synthetic_sessions(SyntheticSettings(**LARGE, signal=0.0))


def test_the_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    small = {"instruments": 2, "days": 3, "quotes": True}
    one = synthetic_sessions(SyntheticSettings(**small))
    assert one.fingerprint == synthetic_sessions(SyntheticSettings(**small)).fingerprint
    assert one.fingerprint != synthetic_sessions(SyntheticSettings(**small, seed=1)).fingerprint


def test_more_instruments_or_days_change_no_value_of_the_others() -> None:
    few = synthetic_sessions(SyntheticSettings(instruments=2, days=5))
    many = synthetic_sessions(SyntheticSettings(instruments=4, days=9))
    rows = many.rows(few.instruments.tolist(), few.dates)
    for name, array in few.fields.items():
        np.testing.assert_array_equal(many.fields[name][rows], array)


def test_a_thousand_instruments_and_more_keep_their_names_and_values() -> None:
    few = synthetic_sessions(SyntheticSettings(instruments=102, days=1, tick_minutes=30))
    many = synthetic_sessions(SyntheticSettings(instruments=1001, days=1, tick_minutes=30))
    assert many.instruments[[0, 99, 100, 101, 102, 1000]].tolist() == [
        *("SYN001", "SYN100", "SYN1000", "SYN1001", "SYN101", "SYN999")
    ]
    rows = many.rows(few.instruments.tolist(), few.dates)
    np.testing.assert_array_equal(many.fields["close"][rows], few.fields["close"])


@pytest.mark.parametrize(("session", "ticks"), [("cn", 240), ("us", 390)])
def test_bars_are_sound_and_pass_strict_validation(session: str, ticks: int) -> None:
    settings = SyntheticSettings(instruments=3, days=10, session=session, tick_minutes=1, quotes=True)  # type: ignore[arg-type]
    made = synthetic_sessions(settings)
    assert made.calendar.num_ticks == ticks
    read = build_sessions(synthetic_bars(settings), settings.calendar, strict=True)
    assert read.fingerprint == made.fingerprint
    fields = made.fields
    assert (fields["high"] >= np.maximum(fields["open"], fields["close"])).all()
    assert (fields["low"] <= np.minimum(fields["open"], fields["close"])).all()
    assert (fields["low"] > 0).all()
    assert (fields["bid"] < fields["ask"]).all()
    assert (fields["volume"] == np.rint(fields["volume"])).all()
    assert np.isin(made.dates.astype(int) % 7, [2, 3], invert=True).all()  # no weekends


def test_long_bars_are_the_short_ones_joined() -> None:
    small = {"instruments": 2, "days": 3, "quotes": True}
    joined = resample(synthetic_sessions(SyntheticSettings(**small, tick_minutes=1)), 5)
    assert joined.fingerprint == synthetic_sessions(SyntheticSettings(**small)).fingerprint


@pytest.mark.parametrize("signal", [0.0, 1.0])
def test_the_stylised_facts_hold_at_any_signal(signal: float, market: Sessions, martingale: Sessions) -> None:
    facts = stylised_facts(market if signal else martingale)
    assert facts["excess_kurtosis"] > 4
    assert 0.15 < facts["volatility_autocorrelation_1"] < 0.5
    assert 0.1 < facts["volatility_autocorrelation_10"] < facts["volatility_autocorrelation_1"]
    assert 1.6 < facts["volatility_open_to_middle"] < 3
    assert 1.8 < facts["volume_open_to_middle"] < 4
    assert 0.15 < facts["volume_volatility_correlation"] < 0.6


def test_the_volatility_has_a_u_and_a_lift_after_lunch(martingale: Sessions) -> None:
    profile = volatility_profile(martingale)
    assert profile[:4].mean() > 1.4 * profile[15:23].mean()
    assert profile[-3:].mean() > 1.2 * profile[15:23].mean()
    assert profile[24:27].mean() > 1.1 * profile[15:23].mean()


def test_daily_volatility_is_what_was_asked(martingale: Sessions) -> None:
    close = martingale.fields["close"][:, -1].reshape(LARGE["instruments"], LARGE["days"])
    daily = np.diff(np.log(close), axis=1)
    assert np.sqrt((daily**2).mean()) * 1e4 == pytest.approx(150, rel=0.12)


def test_signal_zero_is_a_martingale_and_one_reverts(market: Sessions, martingale: Sessions) -> None:
    assert abs(return_autocorrelation(martingale, 6)) < 0.02
    assert variance_ratio(martingale, 12) == pytest.approx(1, abs=0.03)
    assert return_autocorrelation(market, 6) < -0.05
    assert variance_ratio(market, 12) < 0.88
    returns = log_returns(martingale)
    assert abs(np.expm1(returns).mean()) < 4 * returns.std() / np.sqrt(returns.size)


def mean_reversion_pa(sessions: Sessions) -> np.ndarray:
    """PA (bp) of buying each session with a simple causal rule, decided every 30 minutes; ``(S,)``.

    The rule buys faster when the price lies below the mean of what has traded so far today.
    """
    close = sessions.fields["close"]
    steps = close.shape[1] // 6
    price = close.reshape(len(close), steps, 6).mean(axis=2)
    twap = close.mean(axis=1)
    left, gain = np.ones(len(close)), np.zeros(len(close))
    for step in range(steps):
        share = np.full(len(close), 1 / (steps - step))
        if step and step < steps - 1:
            seen = close[:, : step * 6]
            dip = np.log(seen.mean(axis=1) / seen[:, -1]) * 1e4
            share = np.clip(share * (1 + dip / 20), 0, 1)
        gain += left * share * (1 - price[:, step] / twap) * 1e4
        left = left * (1 - share)
    assert np.allclose(left, 0)
    return gain


def test_a_mean_reversion_trader_gains_with_the_signal_only(market: Sessions, martingale: Sessions) -> None:
    for sessions, low, high in ((market, 2.5, 15.0), (martingale, -1.5, 1.5)):
        gain = mean_reversion_pa(sessions)
        by_day = [gain[sessions.dates == date].mean() for date in np.unique(sessions.dates)]
        error = np.std(by_day) / np.sqrt(len(by_day))
        assert low < np.mean(by_day) < high
        if sessions is market:
            assert np.mean(by_day) > 4 * error


@pytest.mark.parametrize(
    "wrong",
    [{"instruments": 0}, {"days": 1.5}, {"session": "moon"}, {"tail": 2.0}, {"signal": -1}, {"half_life": 0}],
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        SyntheticSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(1,), (4_000,), (5, 241)])
@pytest.mark.parametrize("decay", [0.1, 0.5 ** (1 / 40), 0.999_999])
def test_the_recursion_gives_the_bits_of_scipys_filter(shape: tuple[int, ...], decay: float) -> None:
    values = np.random.default_rng(0).standard_normal(shape)
    expected = lfilter([1.0], [1.0, -decay], values)
    np.testing.assert_array_equal(_decaying_sum(values, decay).view(np.int64), expected.view(np.int64))


def test_a_synthetic_market_is_made_without_the_large_parts_of_scipy() -> None:
    code = """
import sys
from rlwb.market import SyntheticSettings, synthetic_sessions
synthetic_sessions(SyntheticSettings(instruments=1, days=2))
assert not {"scipy.signal", "scipy.stats"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
