"""Power, before a run: how large an effect a test part can see, and how many days it would take to see 1 bp."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rlwb.errors import ConfigError
from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, day_interval
from rlwb.execution import Baseline, Known

#: Share of tests that shall see an effect.
POWER = 0.8


class Patience(Baseline):
    """Trades all that is left before the first step at which the last price is better than the window's mean so far.

    It is the naive timing policy by whose scatter power is measured: it waits and then trades at once, as policies do
    that time single orders, and reads no price that is not known. What is left is asked for in the last step.
    """

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        bars = obs.bars()
        bars[np.arange(bars.shape[1]) < obs.start[:, None]] = np.nan
        seen = np.isfinite(bars)
        count = seen.sum(axis=1)
        mean = np.where(seen, bars, 0.0).sum(axis=1) / np.maximum(count, 1)
        last = bars[np.arange(len(bars)), bars.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)]
        is_better = (count > 1) & (obs.side * (last - mean) < 0)
        return np.where(is_better | obs.completes, obs.position, 0.0)


@dataclass(frozen=True)
class Power:
    """The size of effect that a test part can see.

    Attributes
    ----------
    days, orders
        Days of the test part, and orders on them.
    day_deviation : bp
        Standard deviation of a day's mean gain over TWAP by a timing policy, on earlier days; where days follow one
        another, that of independent days with as wide an interval.
    measured_days
        Earlier days that it was measured on.
    detectable_bp : bp
        Effect that is seen in `power` of tests like this one.
    days_for_1bp, orders_for_1bp
        Days, with as many orders each, and orders that it takes to see 1 bp as often.
    level, power
        Coverage of the interval that must lie above 0, and the share of tests in which it does.
    """

    days: int
    orders: int
    day_deviation: float
    measured_days: int
    detectable_bp: float
    days_for_1bp: int
    orders_for_1bp: int
    level: float = LEVEL
    power: float = POWER

    @property
    def sentence(self) -> str:
        """The same for people."""
        share = f"{100 * self.power:g} %"
        return (
            f"This test part, {self.orders:,} orders on {self.days} days, can see effects above "
            f"{self.detectable_bp:.1f} bp: in {share} of such tests the {100 * self.level:g} % interval then lies "
            f"above 0. To see 1 bp as often takes about {self.days_for_1bp:,} days ({self.orders_for_1bp:,} orders). "
            f"That is by how the daily gain over TWAP of a naive timing policy scatters, {self.day_deviation:.1f} bp "
            f"on {self.measured_days} earlier days; a policy that strays less from TWAP is told from it sooner."
        )


def power_of(
    gains: np.ndarray,
    dates: np.ndarray,
    days: int,
    orders: int,
    rng: np.random.Generator,
    *,
    level: float = LEVEL,
    power: float = POWER,
    resamples: int = RESAMPLES,
) -> Power | None:
    """Return the power of a test part from gains on earlier days; None where these do not scatter, or are too few.

    The interval of the mean is that of the house (`rlwb.evaluation.day_interval`): its standard error holds what
    orders of a day, and days that follow one another, have in common. The effect that is seen is
    ``(t(1 - a / 2) + t(power)) * deviation / sqrt(days)``, with quantiles of Student's t with a degree of freedom less
    than days.

    Parameters
    ----------
    gains : float64 of shape (N,)
        Gain over TWAP of each earlier order in basis points, by a timing policy; NaN is left out.
    dates : datetime64 of shape (N,)
        Trading day of each.
    days, orders
        Size of the test part.

    References
    ----------
    H. S. Bloom, "Minimum Detectable Effects: A Simple Way to Report the Statistical Power of Experimental Designs",
    Evaluation Review 19 (1995).
    """
    found = day_interval(gains, dates, rng, level=level, resamples=resamples)
    if not found.standard_error > 0 or math.isnan(found.lo) or days < 2:
        return None
    deviation = found.standard_error * math.sqrt(found.days)
    needed = days_to_see(1.0, deviation, level=level, power=power)
    return Power(
        days=days,
        orders=orders,
        day_deviation=deviation,
        measured_days=found.days,
        detectable_bp=detectable(deviation / math.sqrt(days), days, level=level, power=power),
        days_for_1bp=needed,
        orders_for_1bp=math.ceil(needed * orders / days),
        level=level,
        power=power,
    )


def detectable(standard_error: float, days: int, *, level: float = LEVEL, power: float = POWER) -> float:
    """Return the effect, in the unit of the standard error, that is seen in `power` of tests over so many days."""
    if days < 2:
        return math.nan
    return float((stdtrit(days - 1, (1 + level) / 2) + stdtrit(days - 1, power)) * standard_error)


def days_to_see(effect: float, deviation: float, *, level: float = LEVEL, power: float = POWER) -> int:
    """Return the fewest days by which an effect is seen in `power` of tests; `deviation` is that of a day's mean."""
    if not (effect > 0 and deviation >= 0 and math.isfinite(deviation)):
        raise ConfigError(f"an effect of {effect} with a deviation of {deviation} cannot be; give numbers above 0.")
    low, high = 1, 2
    while detectable(deviation / math.sqrt(high), high, level=level, power=power) > effect:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        seen = middle > 1 and detectable(deviation / math.sqrt(middle), middle, level=level, power=power) <= effect
        low, high = (low, middle) if seen else (middle, high)
    return high
