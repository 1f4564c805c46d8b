"""The synthetic market: bars made from a seed, with the stylised facts of real ones and a known signal.

The observed log price of an instrument is

    log S(t) = E(t) + signal * Z(t)

E is the efficient price, a martingale: minute returns with a daily and an intraday (U-shaped) level of volatility,
volatility that clusters, Student-t shocks, a factor common to all instruments, and a gap overnight. Z is a transient
Ornstein-Uhlenbeck component: it is drawn anew from its stationary law each morning and reverts with a half-life. With
``signal=0`` the price is a martingale and nothing can be learnt.

How large is the default signal? Returns are what a trader sees, so Z must be filtered out of them. With efficient
variance R per minute, transient innovations of variance q per minute and reversion k per minute, the steady error P of
the best linear estimate of Z solves (Kalman-Bucy, correlated noise)

    q - 2 k P - (q - k P)^2 / (q + R) = 0

The default: 150 bp of efficient volatility a day, of which a third of the variance falls overnight, leaves 122 bp, or
R = 62 bp^2 for 240 minutes; a half-life of 40 minutes and a stationary deviation of 65 bp give k = 0.0173 and q = 146.
Then P = 2990 bp^2 out of 4225, so the estimate of Z has a deviation of 35 bp. A 4-hour order decided every 30 minutes
has 8 chances, some 5 of them independent. Waiting for a good one is worth about 0.7 deviations online, and a third of
that reverts while the order is spread over its half hour; volatility that comes and goes costs the filter some more.
Measured on bars of 5 minutes: 12 bp over TWAP for optimal stopping on the filtered Z, with a deviation of 57 bp an
order; 5 to 9 bp for a trader that merely goes faster when the estimate is good.

The innovations of Z share the efficient price's level of volatility (the U, the clusters, the fat tails), so the
signal's share of the variance is the same all day and the stylised facts hold at any strength.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from rlwb.errors import ConfigError
from rlwb.market.calendar import Calendar
from rlwb.market.findings import Report
from rlwb.market.resample import aggregate
from rlwb.market.sessions import Sessions

_STREAMS = ("level", "day", "gap", "shock", "cluster", "transient", "range", "volume", "quote", "factor", "open")


@dataclass(frozen=True)
class SyntheticSettings:
    """Parameters of the synthetic market; volatilities in basis points (bp, 1e-4 of a log return).

    Parameters
    ----------
    instruments, days
        How many; instruments are named SYN001, SYN002, …
    session
        ``"cn"``: 09:30-11:30 and 13:00-15:00 (240 minutes); ``"us"``: 09:30-16:00 (390 minutes).
    tick_minutes
        Bars are made at one minute and joined to this many.
    signal
        Strength of the transient component; 0 means that nothing can be learnt.
    half_life
        Minutes of trading in which the transient component halves.
    transient_bp
        Stationary standard deviation of the transient component at ``signal=1``.
    daily_bp
        Standard deviation of an instrument's efficient daily return, typical over instruments.
    overnight_share
        Share of the daily variance that falls between close and open.
    factor_share
        Share of the intraday variance that all instruments have in common.
    tail
        Degrees of freedom of the Student-t shocks, above 2; smaller is fatter.
    u_shape
        How much higher volatility is at the open than at its lowest, as a factor.
    cluster
        Standard deviation of the clustering part of log volatility within the day.
    day_cluster
        Standard deviation of the day-to-day part of log volatility.
    mean_volume
        Typical shares a minute; instruments differ around it.
    spread_bp
        Typical spread between bid and ask.
    quotes
        Whether bars also have bid, ask, bid_size, ask_size and vwap.
    start
        First date; weekdays only from there.
    seed
        Every instrument has random streams of its own out of (seed, name), so adding instruments or days
        changes no value of the others.
    """

    instruments: int = 20
    days: int = 240
    session: Literal["us", "cn"] = "cn"
    tick_minutes: int = 5
    signal: float = 1.0
    half_life: float = 40.0
    transient_bp: float = 65.0
    daily_bp: float = 150.0
    overnight_share: float = 1 / 3
    factor_share: float = 0.2
    tail: float = 5.0
    u_shape: float = 3.5
    cluster: float = 0.45
    day_cluster: float = 0.3
    mean_volume: float = 20_000.0
    spread_bp: float = 4.0
    quotes: bool = False
    start: str = "2023-01-03"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("instruments", "days", "tick_minutes"):
            if getattr(self, name) < 1 or getattr(self, name) != int(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)}; give a whole number of at least 1.")
        for name in ("half_life", "daily_bp", "mean_volume", "u_shape"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a number above 0.")
        for name in ("signal", "transient_bp", "cluster", "day_cluster", "spread_bp", "seed"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; give 0 or more.")
        if not (0 <= self.overnight_share < 1 and 0 <= self.factor_share < 1 and self.tail > 2):
            raise ConfigError("overnight_share and factor_share must lie in [0, 1) and tail above 2.")
        if self.session not in ("us", "cn"):
            raise ConfigError(f"session is {self.session!r}; choose 'cn' (240 minutes) or 'us' (390 minutes).")

    @property
    def calendar(self) -> Calendar:
        """The clock of the market."""
        return Calendar.preset(self.session, tick_minutes=self.tick_minutes)


def synthetic_sessions(settings: SyntheticSettings | None = None) -> Sessions:
    """Return the synthetic market as a panel."""
    settings = settings or SyntheticSettings()
    calendar = settings.calendar
    names = sorted(f"SYN{number + 1:03d}" for number in range(settings.instruments))  # SYN1000 comes before SYN101
    minutes = Calendar.preset(settings.session)
    factor = _shocks(_stream(settings, "market", "factor"), settings, minutes.num_ticks)
    panels = [aggregate(_minute_bars(settings, name, factor, minutes), settings.tick_minutes) for name in names]
    first = np.datetime64(settings.start, "D")
    dates = np.busday_offset(first, np.arange(settings.days), roll="forward")
    count = settings.instruments * settings.days
    report = Report(totals={"sessions": count})
    return Sessions(
        calendar,
        np.repeat(names, settings.days),
        np.tile(dates, settings.instruments),
        np.full(count, calendar.num_ticks, dtype=np.int32),
        {field: np.concatenate([panel[field] for panel in panels]) for field in panels[0]},
        report=report,
    )


def synthetic_bars(settings: SyntheticSettings | None = None) -> pd.DataFrame:
    """Return the synthetic market as a table of bars in the schema, sorted by instrument and time."""
    return sessions_to_bars(synthetic_sessions(settings))


def sessions_to_bars(sessions: Sessions) -> pd.DataFrame:
    """Return the ticks that have a price as a table of bars, stamped as the calendar's label says."""
    row, tick = np.nonzero(np.isfinite(sessions.fields["close"]))
    calendar = sessions.calendar
    shift = calendar.tick_seconds if calendar.label == "end" else 0
    stamp = sessions.dates[row].astype("datetime64[s]") + calendar.tick_start[tick] + shift
    columns = {"instrument": sessions.instruments[row].astype(object), "datetime": stamp.astype("datetime64[ns]")}
    values = {name: array[row, tick] for name, array in sessions.fields.items()}
    if sessions.halted is not None:
        values["halted"] = sessions.halted[row, tick]
    if sessions.factor is not None:
        values["factor"] = sessions.factor[row]
    return pd.DataFrame({**columns, **values})


def _stream(settings: SyntheticSettings, name: str, purpose: str) -> np.random.Generator:
    return np.random.default_rng([settings.seed, zlib.crc32(name.encode()), _STREAMS.index(purpose)])


def _shocks(rng: np.random.Generator, settings: SyntheticSettings, minutes: int) -> np.ndarray:
    """Student-t shocks of unit variance, ``(days, minutes)``, cut at 10 so that every price has a mean."""
    unit = np.sqrt((settings.tail - 2) / settings.tail)
    return np.clip(rng.standard_t(settings.tail, (settings.days, minutes)) * unit, -10, 10)


def _autoregression(noise: np.ndarray, decay: float) -> np.ndarray:
    """Return a stationary AR(1) of unit variance out of standard normal `noise` of shape ``(n,)``."""
    driven = noise * np.sqrt(1 - decay**2)
    driven[0] = noise[0]
    return _decaying_sum(driven, decay)


def _decaying_sum(values: np.ndarray, decay: float) -> np.ndarray:
    """Return ``y[t] = decay * y[t - 1] + values[t]`` along the last axis."""
    from scipy.signal import lfilter  # slow to import, and only the synthetic market needs it

    return np.asarray(lfilter([1.0], [1.0, -decay], values))


def u_shape(calendar: Calendar, height: float) -> np.ndarray:
    """Return each tick's volatility relative to the root mean square, ``(T,)``: a U, with a lift after a break."""
    ticks = calendar.num_ticks
    place = (np.arange(ticks) + 0.5) / ticks
    shape = 1 + (height - 1) * np.exp(-place / 0.08) + 0.5 * (height - 1) * np.exp(-(1 - place) / 0.06)
    for index in range(1, len(calendar.segments)):
        since = place - place[np.argmax(calendar.segment == index)]
        shape += np.where(since >= 0, 0.35 * (height - 1) * np.exp(-np.maximum(since, 0) / 0.03), 0.0)
    return shape / np.sqrt(np.mean(shape**2))


def _minute_bars(
    settings: SyntheticSettings, name: str, factor: np.ndarray, calendar: Calendar
) -> dict[str, np.ndarray]:
    """One instrument's bars, arrays of shape ``(days, minutes)``."""
    days, minutes = factor.shape
    level = _stream(settings, name, "level").standard_normal(4)
    shape = u_shape(calendar, settings.u_shape)

    day_noise = _stream(settings, name, "day").standard_normal((days,))
    day_vol = settings.day_cluster * _autoregression(day_noise, 0.9)
    cluster_noise = _stream(settings, name, "cluster").standard_normal((days * minutes,))
    cluster = _autoregression(cluster_noise, 0.5 ** (1 / 40))
    heat = day_vol[:, None] + settings.cluster * cluster.reshape(days, minutes)
    mean_square = np.exp(2 * (settings.day_cluster**2 + settings.cluster**2))
    daily = settings.daily_bp * 1e-4 * np.exp(0.2 * level[0])
    per_minute = daily * np.sqrt((1 - settings.overnight_share) / (minutes * mean_square))
    vol = per_minute * shape * np.exp(heat)

    shock = _shocks(_stream(settings, name, "shock"), settings, minutes)
    loading = np.sqrt(settings.factor_share)
    shock = loading * factor + np.sqrt(1 - settings.factor_share) * shock
    gap_vol = daily * np.sqrt(settings.overnight_share)
    gap = gap_vol * _stream(settings, name, "gap").standard_normal(days) - gap_vol**2 / 2
    # half the variance comes off each return, so that the price, not only its log, is a martingale
    moves = vol * shock - vol**2 / 2
    steps = np.concatenate([gap[:, None], moves], axis=1).ravel()
    efficient = np.log(30.0) + 0.6 * level[1] + np.cumsum(steps).reshape(days, minutes + 1)

    decay = 0.5 ** (1 / settings.half_life)
    noise = np.empty((days, minutes + 1))
    noise[:, 0] = _stream(settings, name, "open").standard_normal((days,))
    noise[:, 1:] = (
        np.sqrt(1 - decay**2)
        * (vol / per_minute / np.sqrt(mean_square))
        * _shocks(_stream(settings, name, "transient"), settings, minutes)
    )
    transient = _decaying_sum(noise, decay) * settings.transient_bp * 1e-4
    path = efficient + settings.signal * transient

    bars = _prices(path, vol, _stream(settings, name, "range"))
    bars["volume"] = _volume(settings, name, level, heat, shock, shape)
    if settings.quotes:
        _add_quotes(bars, settings, name, heat)
    return bars


def _prices(path: np.ndarray, vol: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Open, high, low and close of log prices ``(days, minutes + 1)``; the extremes are those of a Brownian bridge."""
    start, end = path[:, :-1], path[:, 1:]
    reach = np.sqrt((end - start) ** 2 - 2 * vol**2 * np.log1p(-rng.random((*vol.shape, 2)).transpose(2, 0, 1)))
    return {
        "open": np.exp(start),
        "high": np.exp((start + end + reach[0]) / 2),
        "low": np.exp((start + end - reach[1]) / 2),
        "close": np.exp(end),
    }


def _volume(
    settings: SyntheticSettings,
    name: str,
    level: np.ndarray,
    heat: np.ndarray,
    shock: np.ndarray,
    shape: np.ndarray,
) -> np.ndarray:
    """Shares of each minute: a U, higher when volatility is high and when the price moves, lognormal noise."""
    noise = _stream(settings, name, "volume").standard_normal(heat.shape)
    log = np.log(settings.mean_volume) + 0.8 * level[2] + 1.2 * np.log(shape) + 1.2 * heat
    return np.rint(np.exp(log + 0.25 * (np.abs(shock) - 0.75) + 0.4 * noise))


def _add_quotes(bars: dict[str, np.ndarray], settings: SyntheticSettings, name: str, heat: np.ndarray) -> None:
    """Add bid, ask, their sizes and vwap; the spread widens with volatility."""
    noise = _stream(settings, name, "quote").standard_normal((*heat.shape, 3)).transpose(2, 0, 1)
    half = settings.spread_bp * 0.5e-4 * np.exp(0.5 * heat + 0.2 * noise[0])
    bars["bid"], bars["ask"] = bars["close"] * np.exp(-half), bars["close"] * np.exp(half)
    size = settings.mean_volume / 20
    bars["bid_size"], bars["ask_size"] = (np.rint(1 + size * np.exp(0.6 * part)) for part in noise[1:])
    bars["vwap"] = (bars["open"] + bars["high"] + bars["low"] + bars["close"]) / 4
