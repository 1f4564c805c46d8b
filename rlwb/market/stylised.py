"""The stylised facts of intraday markets, measured: fat tails, clustering, the U, volume and volatility, reversion.

Cont, R. (2001), "Empirical properties of asset returns: stylized facts and statistical issues", Quantitative Finance 1.
Every function leaves missing ticks out and looks at returns within a session only, never across a night.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rlwb.market.sessions import Sessions

REAL_MARKETS = {
    "excess_kurtosis": "well above 0: fat tails",
    "volatility_autocorrelation_1": "above 0: volatility clusters",
    "volatility_autocorrelation_10": "above 0, decays slowly",
    "volatility_open_to_middle": "above 1: the U",
    "volume_open_to_middle": "above 1: the U",
    "volume_volatility_correlation": "above 0",
    "return_autocorrelation": "near 0",
    "variance_ratio": "near 1",
}
"""What the figures of `stylised_facts` are on real intraday bars, in words."""


def log_returns(sessions: Sessions, horizon: int = 1) -> np.ndarray:
    """Return overlapping log returns of the close over `horizon` ticks, ``(S, T - horizon)``; NaN = missing."""
    price = np.log(sessions.fields["close"])
    return price[:, horizon:] - price[:, :-horizon]


def excess_kurtosis(values: np.ndarray) -> float:
    """Return the fourth standardised moment of what is present, less 3 (0 for a normal law); NaN for under 4 values."""
    values = values[np.isfinite(values)]
    if len(values) < 4 or values.std() == 0:
        return float("nan")
    return float(np.mean(((values - values.mean()) / values.std()) ** 4) - 3)


def volatility_profile(sessions: Sessions) -> np.ndarray:
    """Return the root mean square return of each tick relative to their mean, ``(T - 1,)``: the U; mean 1."""
    return _relative(np.sqrt(_mean(log_returns(sessions) ** 2)))


def volume_profile(sessions: Sessions) -> np.ndarray:
    """Return each tick's share of its session's volume, averaged, times T, ``(T,)``: the U; mean about 1."""
    volume = sessions.fields["volume"]
    total = np.nansum(volume, axis=1)
    traded = total > 0
    return _relative(_mean(volume[traded] / total[traded, None]))


def volatility_autocorrelation(sessions: Sessions, lags: int = 20) -> np.ndarray:
    """Return the autocorrelation of absolute returns at lags 1..`lags` ticks within sessions, ``(lags,)``.

    The U is divided out first, so that what remains is clustering.
    """
    returns = _relative(np.abs(log_returns(sessions)))
    return np.array([_correlation(returns[:, lag:], returns[:, :-lag]) for lag in range(1, lags + 1)])


def volume_volatility_correlation(sessions: Sessions) -> float:
    """Return the correlation of log volume and absolute return, each relative to its mean at that tick."""
    volume = np.log1p(sessions.fields["volume"][:, 1:])
    by_session = volume - _mean(volume.T)[:, None]
    return _correlation(by_session - _mean(by_session), _relative(np.abs(log_returns(sessions))))


def return_autocorrelation(sessions: Sessions, horizon: int = 1) -> float:
    """Return the correlation of the return over `horizon` ticks with that over the `horizon` ticks before it.

    Below 0 the price reverts, and a trader who waits for a dip is paid; about 0 for a martingale.
    """
    returns = log_returns(sessions, horizon)
    return _correlation(returns[:, horizon:], returns[:, :-horizon])


def variance_ratio(sessions: Sessions, horizon: int) -> float:
    """Return the variance of `horizon`-tick returns over `horizon` times that of one-tick returns.

    1 for a martingale, below 1 where the price reverts (Lo and MacKinlay, 1988, Review of Financial Studies 1). Both
    variances weigh each tick of the day alike, so the U does not bend the ratio.
    """
    by_tick, long = (_mean(log_returns(sessions, ticks) ** 2) for ticks in (1, horizon))
    return float(np.mean(long) / np.mean(np.convolve(by_tick, np.ones(horizon), mode="valid")))


def stylised_facts(sessions: Sessions, horizon: int = 6) -> dict[str, float]:
    """Return one number for each fact; `horizon` in ticks for reversion."""
    clustering = volatility_autocorrelation(sessions, 10)
    return {
        "excess_kurtosis": excess_kurtosis(log_returns(sessions)),
        "volatility_autocorrelation_1": float(clustering[0]),
        "volatility_autocorrelation_10": float(clustering[-1]),
        "volatility_open_to_middle": _open_to_middle(volatility_profile(sessions)),
        "volume_open_to_middle": _open_to_middle(volume_profile(sessions)),
        "volume_volatility_correlation": volume_volatility_correlation(sessions),
        "return_autocorrelation": return_autocorrelation(sessions, horizon),
        "variance_ratio": variance_ratio(sessions, horizon),
    }


def _open_to_middle(profile: np.ndarray) -> float:
    tenth = max(1, len(profile) // 10)
    middle = profile[4 * len(profile) // 10 : 6 * len(profile) // 10]
    return float(_mean(profile[:tenth]) / _mean(middle))


def _mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of each column's, or of the vector's, present values; NaN where there is none."""
    return np.asarray((pd.DataFrame if values.ndim == 2 else pd.Series)(values).mean())


def _relative(values: np.ndarray) -> np.ndarray:
    """Return values over the mean of their column, or of the vector; NaN where that is not above 0."""
    level = _mean(values)
    return values / np.where(level > 0, level, np.nan)


def _correlation(left: np.ndarray, right: np.ndarray) -> float:
    return float(pd.DataFrame({"left": left.ravel(), "right": right.ravel()}).corr(min_periods=3).loc["left", "right"])
