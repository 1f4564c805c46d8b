"""How often 95 % intervals hold the truth on simulated orders, by method and setting: a part of ``make trust``.

Orders of a day share an effect of the day that follows that of the day before (a first-order autoregression), and have
noise of their own; both have the tails of Student's t with 4 degrees of freedom. The true mean is 0. Days have 1 to
about 20 orders. Beside the intervals of rlwb stand those that fail: of orders as if they were independent, of single
days, and of blocks of days by plain percentiles.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit
from tqdm import tqdm

from rlwb.evaluation import PolicyResult, day_interval
from rlwb.evaluation.bootstrap import ENOUGH_DAYS, draw_weights, mean_parts, statistic_interval
from rlwb.evaluation.clusters import cluster_intervals
from rlwb.evaluation.dependence import block_length
from rlwb.evaluation.seeds import Days, Trainings, seed_interval
from rlwb.files import write_json

DAYS = (12, 24, 36, 60, 120, 250)
AUTOCORRELATIONS = (0.0, 0.3, 0.6)
#: Standard deviations in basis points: of the day's effect, of an order, of an instrument's effect, of a seed's.
_DAY, _ORDER, _INSTRUMENT, _SEED = 6.5, 10.0, 3.0, 2.0
_RESAMPLES = 500
_TAILS = 4

Held = dict[str, bool | None]


class Setting(NamedTuple):
    """A setting: its name, what one repetition of it tells by method, and what makes its random numbers its own."""

    name: str
    once: Callable[[np.random.Generator], Held]
    key: tuple[int, ...]


def measure(folder: Path, *, quick: bool = False, repetitions: int | None = None) -> dict[str, dict[str, float]]:
    """Return the share of repetitions in which the interval holds the truth, by method and setting.

    Repetitions without an interval are in no share.

    Parameters
    ----------
    folder
        Where the settings that are done lie, so that it goes on where it was stopped.
    quick
        50 repetitions in place of 2000, unless `repetitions` says how many.
    """
    count = repetitions or (50 if quick else 2000)
    shares: dict[str, dict[str, float]] = {}
    for setting in tqdm(settings(), desc="coverage", unit="setting"):
        path = folder / f"{setting.name.replace(' ', '-')}.json"
        if not path.exists():
            write_json(path, {"repetitions": count, "held": share(setting, count)})
        for method, held in json.loads(path.read_text(encoding="utf-8"))["held"].items():
            shares.setdefault(method, {})[setting.name] = held
    return shares


def share(setting: Setting, repetitions: int) -> dict[str, float]:
    """Return the share of repetitions of a setting in which each method's interval holds the truth."""
    found = [setting.once(np.random.default_rng([*setting.key, one])) for one in range(repetitions)]
    return {method: float(np.mean([one[method] for one in found if one[method] is not None])) for method in found[0]}


def settings() -> list[Setting]:
    """Return all settings."""
    made = [day_setting(days, rho) for rho in AUTOCORRELATIONS for days in (6, *DAYS)]
    made += [crossed_setting(*sizes, rho) for rho in AUTOCORRELATIONS for sizes in ((10, 36), (30, 60))]
    return made + [seed_setting(10, 36, rho) for rho in AUTOCORRELATIONS]


def day_setting(days: int, rho: float) -> Setting:
    """Return a setting of orders on days that follow one another with autocorrelation `rho`."""

    def once(rng: np.random.Generator) -> Held:
        pa, date = orders(rng, days, rho)
        ours = day_interval(pa, date, rng, resamples=_RESAMPLES)
        if days < ENOUGH_DAYS:
            return {"rlwb, with a warning that days are few": _holds(ours.lo, ours.hi)}
        single = statistic_interval([mean_parts(pa)], [date], rng, resamples=_RESAMPLES, in_sequence=False)
        error = pa.std(ddof=1) / len(pa) ** 0.5 * stdtrit(len(pa) - 1, 0.975)
        return {
            "orders as if independent": _holds(pa.mean() - error, pa.mean() + error),
            "bootstrap of single days": _holds(single.lo, single.hi),
            "blocks of days, plain percentiles": _holds(*_plain_blocks(pa, date, rng)),
            "rlwb, over days": _holds(ours.lo, ours.hi),
        }

    return Setting(f"{days} days, {rho}", once, (1, days, round(100 * rho)))


def crossed_setting(instruments: int, days: int, rho: float) -> Setting:
    """Return a setting of one order a day and instrument, where both have effects; the truth is that of other ones."""

    def once(rng: np.random.Generator) -> Held:
        effects = np.stack([_effects(rng, days, rho)] * instruments, axis=1) * _DAY / 2
        pa = effects + _INSTRUMENT * rng.standard_normal(instruments) + _ORDER * _heavy(rng, (days, instruments))
        date, name = np.divmod(np.arange(days * instruments), instruments)
        columns = {"order_id": np.arange(len(date)), "instrument": name, "date": _dates(date), "ffr": 1.0}
        result = PolicyResult("one", "policy", pd.DataFrame({**columns, "pa": pa.ravel()}))
        found = cluster_intervals([result], rng, resamples=_RESAMPLES)
        names = {"day": "by day alone", "instrument": "by instrument alone", "both": "rlwb, by day and instrument"}
        return {name: _holds(found[method].lo, found[method].hi) for method, name in names.items()}

    return Setting(f"{instruments} instruments, {days} days, {rho}", once, (2, instruments, days, round(100 * rho)))


def seed_setting(seeds: int, days: int, rho: float) -> Setting:
    """Return a setting of trainings that differ in their seed, judged on the same days; truth is of other ones."""

    def once(rng: np.random.Generator) -> Held:
        shared, date = orders(rng, days, rho)
        about = {"order_id": np.arange(len(date)), "instrument": "A", "date": date, "ffr": 1.0}
        luck = _SEED * rng.standard_normal(seeds)
        made = [
            PolicyResult(f"seed-{at}", "checkpoint", pd.DataFrame({**about, "pa": shared + own}))
            for at, own in enumerate(luck)
        ]
        drawn = Days(made, resamples=_RESAMPLES, seed=int(rng.integers(2**31)))
        scores = drawn.scores(Trainings("one", "checkpoint", [[one] for one in made], [None] * seeds), ["pa"])["pa"]
        found = seed_interval(scores, drawn.picks(seeds))
        return {
            "over seeds alone": _holds(found.seeds_lo, found.seeds_hi),
            "rlwb, over seeds and days": _holds(found.lo, found.hi),
        }

    return Setting(f"{seeds} seeds, {days} days, {rho}", once, (3, seeds, days, round(100 * rho)))


def orders(rng: np.random.Generator, days: int, rho: float) -> tuple[np.ndarray, np.ndarray]:
    """Return PAs of orders in basis points, float64 of shape ``(orders,)``, and their dates; the true mean is 0."""
    day = np.repeat(np.arange(days), 1 + rng.poisson(7, days))
    return _DAY * _effects(rng, days, rho)[day] + _ORDER * _heavy(rng, len(day)), _dates(day)


def _effects(rng: np.random.Generator, days: int, rho: float) -> np.ndarray:
    """Return a first-order autoregression of variance 1, float64 of shape ``(days,)``."""
    value, found = 0.0, []
    for new in _heavy(rng, days + 50):
        value = rho * value + (1 - rho**2) ** 0.5 * new
        found.append(value)
    return np.array(found[50:])


def _heavy(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Return draws of Student's t, scaled to variance 1."""
    return rng.standard_t(_TAILS, shape) / (_TAILS / (_TAILS - 2)) ** 0.5


def _dates(day: np.ndarray) -> np.ndarray:
    return np.datetime64("2024-01-01") + day


def _plain_blocks(pa: np.ndarray, date: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    """Return percentiles of a circular block bootstrap with Politis and White's length of the days' sums."""
    day = np.unique(date, return_inverse=True)[1]
    sums, counts = np.bincount(day, pa), np.bincount(day)
    length = max(1, round(block_length(sums - counts * pa.mean())))
    drawn = [(one @ sums) / (one @ counts) for one in draw_weights(len(sums), _RESAMPLES, rng, length)]
    lo, hi = np.quantile(np.concatenate(drawn), [0.025, 0.975]).tolist()
    return lo, hi


def _holds(lo: float, hi: float) -> bool | None:
    return None if np.isnan(lo) else bool(lo <= 0 <= hi)
