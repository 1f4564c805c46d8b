"""Market impact estimated from real fills and bars, in the units of the execution rules, and from an order book."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from rlwb.errors import ConfigError, OrderError
from rlwb.evaluation.bootstrap import LEVEL, RESAMPLES, Interval, statistic_interval
from rlwb.evaluation.propagator import HUBER, MAD, Path, fit_propagator
from rlwb.execution import ExecutionRules
from rlwb.execution.fills import tick_of
from rlwb.execution.rules import BASIS_POINTS
from rlwb.market import Sessions

#: The shapes of the rules, as functions of the participation in a tick.
SHAPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {"linear": np.positive, "square_root": np.sqrt}
_Loss = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, float]]
#: Fewest orders and days that are fitted: the smallest sample on which intervals were seen to hold (docs/impact.md).
MIN_ORDERS, MIN_DAYS = 200, 40
#: How many times its 10 % quantile the 90 % quantile of participation must be for size to be told from the spread.
LEAST_VARIATION = 2.0
_BLOCKS = 5  # of days that are predicted
_WORST_RETURN = 4.0  # standard deviations at which returns after an order are cut
_ROUNDING, _SOUND = 1e-9, 1e12  # the largest condition of a matrix that is solved
_FAR = 2000.0  # basis points from the bars that are no cost but another currency, adjustment or instrument
_REPORTED = ("drift_bps", "reversal_bps", "decay_minutes")  # of which no rule holds anything
_WHOLE = "bp at a tick's whole volume"
_DECAY_TIMES = 60  # decay times that are compared, from a quarter of a tick to the whole time after an order
_SELECTION = (
    "Orders are not sent at random: who buys as prices rise, or waits for volume, has costs that impact did not cause, "
    "and no regression on size takes that out; the drift is what is the same for all sizes."
)
_TRANSIENT = (
    "The temporary move decays slowly. Temporary impact of the rules is gone at once, so that they charge later fills "
    "nothing of it: fit transient impact instead. The price before a fill is corrected for what decays in its tick."
)
_ALONE = (
    "Transient impact is not found, so that half spread, permanent impact and drift are those of a fit without it. "
    "Where none is asked for, temporary impact is estimated in its place."
)


@dataclass(frozen=True)
class Estimate:
    """A parameter with its day-clustered interval, in `unit`; `lacks` says why it is not found, "" where it is."""

    interval: Interval
    unit: str
    lacks: str = ""


@dataclass(frozen=True)
class ImpactFit:
    """Costs of a person's own trading, as `fit_impact` estimates them.

    Attributes
    ----------
    estimates
        By name: half_spread_bps, temporary_impact_bps and permanent_impact_bps as in `ExecutionRules`; drift_bps, the
        move along the orders' side that is the same for all sizes; reversal_bps, the mean move back after an order;
        decay_minutes, in which what is left of a temporary move falls to 1/e.
    shapes
        ``"linear"`` or ``"square_root"`` of temporary_impact and permanent_impact: what predicts other days better.
    r2
        Of temporary_impact and permanent_impact by shape: share of the variance of days left out that is predicted.
    orders, days, fills, ticks
        What was used: orders, their days and executions, and ticks with executions of an order.
    participation
        The 10 %, 50 %, 90 % and 100 % quantiles of the share of a tick's volume.
    notes
        What was left out, and what the figures do not say.
    decay
        The decay of transient impact, where that was estimated.
    """

    estimates: Mapping[str, Estimate]
    shapes: Mapping[str, str]
    r2: Mapping[str, Mapping[str, float]]
    orders: int
    days: int
    fills: int
    ticks: int
    participation: tuple[float, float, float, float]
    notes: list[str] = field(default_factory=list)
    decay: Literal["power", "exponential"] | None = None

    def rules(self) -> dict[str, Any]:
        """Return what was found as settings of `ExecutionRules`; nothing that was not found is among them.

        With impact there is a `volume_limit`, the largest participation that was seen: beyond it nothing is known.
        """
        found: dict[str, Any] = {}
        for name in ("half_spread", "temporary_impact", "permanent_impact", "transient_impact"):
            one, shape = self.estimates.get(f"{name}_bps"), self.shapes.get(name)
            if one is not None and not one.lacks:
                found[f"{name}_bps"] = float(f"{one.interval.estimate:.4g}")
                if shape == ("linear" if name == "transient_impact" else "square_root"):
                    found[f"{name}_shape"] = shape
        if "transient_impact_bps" in found:
            found["transient_half_life"] = float(f"{self.estimates['transient_half_life'].interval.estimate:.4g}")
            found |= {"transient_decay": self.decay} if self.decay == "exponential" else {}
        if any(f"{name}_impact_bps" in found for name in ("temporary", "permanent", "transient")):
            found["volume_limit"] = min(math.ceil(self.participation[3] * 1000 - _ROUNDING) / 1000, 1.0)
        ExecutionRules(**found)
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        values = {
            name: {
                "value": one.interval.estimate,
                "lo": one.interval.lo,
                "hi": one.interval.hi,
                "level": one.interval.level,
                "unit": one.unit,
                "found": not one.lacks,
                "lacks": one.lacks,
            }
            for name, one in self.estimates.items()
        }
        counts = {name: getattr(self, name) for name in ("orders", "days", "fills", "ticks", "participation")}
        rest = {"shapes": dict(self.shapes), "r2": self.r2, "notes": self.notes, "rules": self.rules()}
        rest |= {} if self.decay is None else {"decay": self.decay}
        return {"estimates": values, **counts, **rest}

    def as_text(self) -> str:
        """Return the figures in lines for people."""
        low, mid, high, top = self.participation
        lines = [
            f"{self.orders:,} orders on {self.days:,} days, {self.fills:,} fills in {self.ticks:,} ticks",
            f"share of a tick's volume: {low:.2%} to {high:.2%} (10 % to 90 %), median {mid:.2%}, largest {top:.2%}",
        ]
        for name, one in self.estimates.items():
            span, shape = one.interval, self.shapes.get(name.removesuffix("_bps"), "").replace("_", " ")
            told = f"{span.estimate:9.4g}  {100 * span.level:g} % {span.lo:.4g} to {span.hi:.4g}"
            told = told if math.isfinite(span.estimate + span.lo) else ""
            decay = f"{self.decay} decay" if name == "transient_half_life" else ""
            words = [one.unit, shape, decay, one.lacks, "reported only" if name in _REPORTED else ""]
            lines.append(f"{name:<22}{told:<36}  {', '.join(filter(None, words))}")
        for name, by_shape in self.r2.items():
            told = ", ".join(f"{shape.replace('_', ' ')} {value:.2%}" for shape, value in by_shape.items())
            lines.append(f"R2 of {name} on days left out: {told}")
        return "\n".join([*lines, *self.notes])


def fit_impact(
    fills: pd.DataFrame,
    sessions: Sessions,
    rng: np.random.Generator,
    *,
    after_minutes: float = 30.0,
    transient: Literal["power", "exponential"] | None = None,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
) -> ImpactFit:
    """Estimate spread, temporary and permanent impact from fills, in the units of `ExecutionRules`.

    With u the share that an order's fills took of a tick's volume, P the last price before the tick in the bars (the
    mid where there are quotes; bars hold the market as it was, own impact included) and f and g linear or the root:

    - ``side * (fill price / P - 1) = half spread + temporary * f(u) + noise``, one row a tick of an order;
    - ``side * (price after / P of the first fill - 1) = drift + permanent * sum g(u) + noise``, one row an order, the
      price after being that `after_minutes` after the last fill's tick. The drift is no impact: it is the same for
      orders of all sizes;
    - returns after the last fill, for the reversal and its decay time, under the exponential decay of f(u).

    Rows are weighed by the instrument's volatility and the root of the time that passes in them. Fits are by Huber's
    loss; intervals draw whole days, with one Newton step a resample; f and g are chosen by out-of-sample R2.

    Parameters
    ----------
    fills
        As `rlwb.execution.read_fills` returns them.
    sessions
        Bars of the fills' instruments and days.
    rng
        The source of the resamples.
    after_minutes
        When the price after an order is taken; orders that end later than that before the close do not count there.
    transient
        With a decay, transient impact is estimated in place of temporary impact, its reversal and decay time, and
        permanent impact beside it, all from returns by tick: see `rlwb.evaluation.propagator`. Where it is not found,
        spread and permanent impact are those of a fit without it.

    Raises
    ------
    OrderError
        When the fills are too few, or do not fit the bars.

    References
    ----------
    R. Almgren, C. Thum, E. Hauptmann, H. Li, "Direct estimation of equity market impact", Risk 18 (2005): permanent
    impact from the price half an hour after an order, temporary impact from what is left.
    """
    sample = _sample(fills, sessions, after_minutes)
    ticks, orders, followed = sample.ticks, sample.orders, sample.followed
    settings: Any = {"rng": rng, "level": level, "resamples": resamples}
    quantiles = np.quantile(ticks["share"], [0.1, 0.5, 0.9, 1.0]).tolist()
    counts = (len(orders), orders["date"].nunique(), int(ticks["fills"].sum()), len(ticks))
    if transient is not None:
        estimates, shapes, scores = _propagated(sample, sessions, transient, settings)
        notes = [*sample.notes, *([_ALONE] if estimates["transient_impact_bps"].lacks else []), _SELECTION]
        return ImpactFit(estimates, shapes, scores, *counts, tuple(quantiles), notes, transient)
    of_ticks = (ticks["slippage"], ticks["scale"], ticks["date"])
    temporary, shape, r2 = fit_shape(designs(ticks), *of_ticks, **settings)
    shapes, scores, notes = {"temporary_impact": shape}, {"temporary_impact": r2}, list(sample.notes)
    days = followed["date"].nunique()
    if len(followed) < MIN_ORDERS or days < MIN_DAYS:
        why = f"not found: {len(followed)} orders on {days} days end {after_minutes:g} minutes before the close"
        none = Estimate(Interval(math.nan, math.nan, math.nan, math.nan, level, len(followed), 0, days), "", why)
        later = dict.fromkeys(("permanent_impact_bps", "drift_bps", "reversal_bps", "decay_minutes"), none)
    else:
        of_orders = (followed["after"], followed["after_scale"], followed["date"])
        permanent, shapes["permanent_impact"], r2 = fit_shape(designs(followed), *of_orders, **settings)
        scores["permanent_impact"] = r2
        later = {
            "permanent_impact_bps": _judged(permanent[1], _WHOLE, _too_even(followed["linear"], "the sizes of orders")),
            "drift_bps": Estimate(permanent[0], "bp"),
            **_decay(sample, shape, sessions.calendar.tick_seconds / 60, settings),
        }
    if not (later["reversal_bps"].lacks or later["decay_minutes"].lacks):
        time = np.array([later["decay_minutes"].interval.estimate * 60 / sessions.calendar.tick_seconds])
        falls = {name: -_left(ticks, name, time) * np.expm1(1.0 / time) for name in SHAPES}  # in the tick of the fill
        temporary, shapes["temporary_impact"], r2 = fit_shape(designs(ticks, falls), *of_ticks, **settings)
        scores["temporary_impact"] = r2
        notes.append(_TRANSIENT)
    slope = _judged(temporary[1], _WHOLE, _too_even(ticks["share"], "the participation of fills"))
    if slope.lacks:  # without size, the spread is what fills cost on average
        temporary = _interval(_huber, np.ones((len(ticks), 1)), *of_ticks, **settings)
    estimates = {"half_spread_bps": _judged(temporary[0], "bp"), "temporary_impact_bps": slope, **later}
    return ImpactFit(estimates, shapes, scores, *counts, tuple(quantiles), [*notes, _SELECTION])


def designs(shapes: Mapping[str, Any], others: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """Return the regressors of each shape, of shape (N, 2 + K): a constant, the shape's column, and its `others`."""
    columns = {name: (np.ones(len(shapes[name])), np.asarray(shapes[name])) for name in SHAPES}
    return {name: np.column_stack([*own, *([others[name]] if others else [])]) for name, own in columns.items()}


def fit_shape(
    designs: Mapping[str, np.ndarray], cost: Any, scale: Any, dates: Any, *, robust: bool = True, **settings: Any
) -> tuple[list[Interval], str, dict[str, float]]:
    """Fit a cost to regressors, those of the shape that predicts other days better.

    Parameters
    ----------
    designs
        Regressors by shape, float64 of shape (N, K) each, the first of them a constant.
    cost, scale : float64 of shape (N,)
        Cost in basis points, and what its deviations are proportional to.
    dates : datetime64 of shape (N,)
        Days, which are drawn and left out as a whole.
    robust
        Whether by Huber's loss, for outliers on both sides; else by least squares, for the mean of skewed costs.
    settings
        rng, level and resamples of the intervals.

    Returns
    -------
    list of Interval, str, dict
        The K coefficients, the name of the shape, and the out-of-sample R2 by shape, against a constant alone.
    """
    loss = _huber if robust else _least_squares
    r2 = {name: _out_of_sample_r2(loss, design, cost, scale, dates) for name, design in designs.items()}
    best = max(r2, key=lambda name: r2[name])
    return _interval(loss, designs[best], cost, scale, dates, **settings), best, r2


def book_walk(book: pd.DataFrame, sizes: np.ndarray, side: int) -> np.ndarray:
    """Return what market orders pay above the mid by walking an order book, basis points, float64 of shape (N, K).

    Parameters
    ----------
    book
        N states, with columns bid_price_1, bid_size_1, ask_price_1, ask_size_1, bid_price_2, …, the best level first.
    sizes : float64 of shape (K,)
        Sizes of the orders, in the book's units, above 0.
    side
        1 buys, -1 sells.

    Returns
    -------
    ndarray
        NaN where the book shows less than the size, or lacks a best price.
    """
    name, levels = ("ask" if side > 0 else "bid"), sum(str(column).startswith("ask_price_") for column in book)
    if not levels or not (np.asarray(sizes) > 0).all():
        raise ConfigError("a book needs the columns ask_price_1, ask_size_1, …, and sizes must be above 0.")
    price, shown = (
        np.stack([book[f"{name}_{what}_{level}"].to_numpy(np.float64) for level in range(1, levels + 1)], axis=1)
        for what in ("price", "size")
    )
    mid = (book["bid_price_1"].to_numpy(np.float64) + book["ask_price_1"].to_numpy(np.float64)) / 2
    exists = np.isfinite(price) & (shown > 0)
    depth = np.cumsum(np.where(exists, shown, 0.0), axis=1)
    above = depth - np.where(exists, shown, 0.0)
    walked = np.full((len(book), len(sizes)), np.nan)
    for column, size in enumerate(np.asarray(sizes, dtype=np.float64)):
        taken = np.clip(size - above, 0.0, np.where(exists, shown, 0.0))
        paid = (taken * np.where(exists, price, 0.0)).sum(axis=1) / size
        walked[:, column] = np.where(depth[:, -1] >= size, side * (paid / mid - 1.0) * BASIS_POINTS, np.nan)
    return walked


class _Sample(NamedTuple):
    """The rows of the fits: one a tick of an order, one an order, and the returns after the orders that have them."""

    ticks: pd.DataFrame
    orders: pd.DataFrame
    followed: pd.DataFrame  # the orders with a price after them
    moves: np.ndarray  # of shape (followed, ticks after), along the order's side, basis points
    notes: list[str]


def _sample(fills: pd.DataFrame, sessions: Sessions, after_minutes: float) -> _Sample:
    """Return what fills and bars say, without the orders whose fills do not fit the bars."""
    wait = round(after_minutes * 60 / sessions.calendar.tick_seconds)
    if wait < 1:
        raise ConfigError(f"after_minutes is {after_minutes:g}, which is less than a bar; give one bar at least.")
    date = fills["time"].dt.normalize()
    tick = tick_of((fills["time"] - date).dt.total_seconds().to_numpy(), sessions.calendar)
    row = sessions.rows(fills["instrument"].astype(str), date.to_numpy())
    frame = fills.assign(date=date, tick=tick, session=row, value=fills["quantity"] * fills["price"])
    parts = frame.groupby(["order_id", "session", "tick"], sort=False)
    named = {name: (name, "first") for name in ("instrument", "date", "side")}
    ticks = parts.agg(**named, quantity=("quantity", "sum"), value=("value", "sum"), fills=("side", "size"))
    ticks = ticks.reset_index().sort_values(["date", "instrument", "order_id", "tick"], kind="stable")
    known = ((ticks["session"] >= 0) & (ticks["tick"] >= 0)).to_numpy()
    used, place = np.unique(np.where(known, ticks["session"], 0), return_inverse=True)
    at = np.where(known, ticks["tick"], 0)
    last, before = _prices(sessions, used)
    with np.errstate(divide="ignore", invalid="ignore"):
        ticks["share"] = ticks["quantity"] / sessions.fields["volume"][used[place], at]
    ticks["place"], ticks["before"] = place, before[place, at]
    ticks["scale"] = _deviations(sessions, used)[place]
    ticks["slippage"] = ticks["side"] * (ticks["value"] / ticks["quantity"] / ticks["before"] - 1.0) * BASIS_POINTS
    bad = {
        "lie outside the bars": ~known,
        "have no price before them in the bars": ~(ticks["before"] > 0).to_numpy(),
        "are more than the bar's volume": ~(ticks["share"] <= 1 + _ROUNDING).to_numpy(),
        "are of an instrument whose price never moves": ~(ticks["scale"] > 0).to_numpy(),
        f"are over {_FAR / 100:g} % from the price before them": (ticks["slippage"].abs() > _FAR).to_numpy(),
    }
    total, lost, notes = ticks["order_id"].nunique(), np.zeros(len(ticks), dtype=bool), []
    for why, where in bad.items():
        if count := ticks["order_id"][where & ~lost].nunique():
            notes.append(f"{count} of {total} orders are left out: fills of them {why}")
        lost |= where
    ticks = ticks[~ticks["order_id"].isin(set(ticks["order_id"][lost]))].reset_index(drop=True)
    left, days = ticks["order_id"].nunique(), ticks["date"].nunique()
    if left < MIN_ORDERS or days < MIN_DAYS:
        raise OrderError(
            f"{left} orders on {days} days say too little of impact; at least {MIN_ORDERS} orders on {MIN_DAYS} days "
            f"are needed{' (' + '; '.join(notes) + ')' if notes else ''}."
        )
    for name, shape in SHAPES.items():
        ticks[name] = shape(np.minimum(ticks["share"].to_numpy(), 1.0))
    firsts = {name: (name, "first") for name in ("instrument", "date", "side", "place", "session", "scale", "before")}
    added = {name: (name, "sum") for name in SHAPES}
    orders = ticks.groupby("order_id", sort=False).agg(**firsts, **added, begin=("tick", "min"), end=("tick", "max"))
    starts = orders.sort_values(["session", "begin"], kind="stable")
    running = starts.groupby("session")["end"].cummax().groupby(starts["session"]).shift()
    if crowded := int((starts["begin"] <= running).sum()):
        notes.append(
            f"{crowded} orders begin while another of the instrument trades, so each has the other's impact too"
        )
    followed = orders[orders["end"] + wait < sessions.num_ticks[orders["session"]]]
    path = last[followed["place"].to_numpy()[:, None], followed["end"].to_numpy()[:, None] + np.arange(wait + 1)]
    priced = np.isfinite(path).all(axis=1)
    followed, path = followed[priced], path[priced]
    side = followed["side"].to_numpy(dtype=np.float64)
    followed = followed.assign(
        after=side * (path[:, -1] / followed["before"] - 1.0) * BASIS_POINTS,
        after_scale=followed["scale"] * np.sqrt(followed["end"] - followed["begin"] + 1 + wait),
    )
    return _Sample(ticks, orders, followed, side[:, None] * np.diff(np.log(path)) * BASIS_POINTS, notes)


def _prices(sessions: Sessions, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the last price at each tick's end and the last before the tick, of shape (rows, T); NaN where none is."""
    fields = {name: values[rows] for name, values in sessions.fields.items() if name in ("open", "close", "bid", "ask")}
    price = (fields["bid"] + fields["ask"]) / 2 if {"bid", "ask"} <= fields.keys() else fields["close"]
    last = pd.DataFrame(np.where(price > 0, price, np.nan)).ffill(axis=1).to_numpy()
    before = np.concatenate([np.full((len(rows), 1), np.nan), last[:, :-1]], axis=1)
    return last, np.where(np.isfinite(before), before, fields["open"])


def _deviations(sessions: Sessions, rows: np.ndarray) -> np.ndarray:
    """Return the root mean squared return of a tick of each row's instrument, basis points, of shape (rows,)."""
    with np.errstate(invalid="ignore", divide="ignore"):
        squares = np.diff(np.log(sessions.fields["close"][rows])) ** 2
        valid = np.isfinite(squares)
        sums = pd.DataFrame({"sum": np.where(valid, squares, 0.0).sum(axis=1), "count": valid.sum(axis=1)})
        whole = sums.groupby(sessions.instruments[rows]).transform("sum")
        deviations: np.ndarray = np.sqrt((whole["sum"] / whole["count"]).to_numpy()) * BASIS_POINTS
    return deviations


def _least_squares(design: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the coefficients of a fit by least squares, and infinity."""
    return np.linalg.lstsq(design, cost, rcond=None)[0], math.inf


def _huber(design: np.ndarray, cost: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the coefficients of a fit by Huber's loss, and the residual from which it is linear."""
    found = _least_squares(design, cost)[0]
    bound = math.inf
    for _ in range(2):  # the scale of the residuals, then that of the robust fit's
        left = cost - design @ found
        bound = HUBER * MAD * float(np.median(np.abs(left - np.median(left))))
        if not bound > _ROUNDING * float(np.abs(cost).max()):
            return found, math.inf
        fit = least_squares(
            lambda x: design @ x - cost, found, jac=lambda x: design, loss="huber", f_scale=bound, x_scale="jac"
        )
        found = fit.x
    return found, bound


def _interval(loss: _Loss, design: np.ndarray, cost: Any, scale: Any, dates: Any, **settings: Any) -> list[Interval]:
    """Return the coefficients of a fit with their day-clustered intervals.

    A resample's coefficients are one Newton step from the fit's, with the days' sums A of the curvature and g of the
    score. A day pulls the fit towards itself, so that its g is too small; ``A (A - A_day)^-1 g_day`` is what it would
    be with the day left out (CR3 of Bell and McCaffrey, Survey Methodology 28, 2002).
    """
    weight = np.asarray(scale, dtype=np.float64)
    rows, target = design / weight[:, None], np.asarray(cost, dtype=np.float64) / weight
    found, bound = loss(rows, target)
    left = target - rows @ found
    days, day = np.unique(np.asarray(dates).astype("datetime64[D]"), return_inverse=True)
    size = rows.shape[1]
    curvature, score = np.zeros((len(days), size, size)), np.zeros((len(days), size))
    np.add.at(curvature, day, rows[:, :, None] * rows[:, None, :] * (np.abs(left) <= bound)[:, None, None])
    np.add.at(score, day, np.clip(left, -bound, bound)[:, None] * rows)
    whole = curvature.sum(axis=0)
    score = (np.linalg.pinv(whole - curvature) @ score[:, :, None])[:, :, 0] @ whole
    parts = np.concatenate([curvature.reshape(len(days), -1), score - score.mean(axis=0)], axis=1)

    def coefficient(which: int) -> Callable[[np.ndarray], np.ndarray]:
        def statistic(sums: np.ndarray) -> np.ndarray:
            matrix, step = sums[:, : size * size].reshape(-1, size, size), sums[:, size * size :, None]
            value = np.full(len(sums), math.nan)
            sound = np.linalg.cond(matrix) < _SOUND
            value[sound] = found[which] + np.linalg.solve(matrix[sound], step[sound])[:, which, 0]
            return value

        return statistic

    return [statistic_interval([parts], [days], statistic=coefficient(which), **settings) for which in range(size)]


def _out_of_sample_r2(loss: _Loss, design: np.ndarray, cost: Any, scale: Any, dates: Any) -> float:
    """Return the share of the squared deviations on blocks of days that fits to the other days predict."""
    weight = np.asarray(scale, dtype=np.float64)
    rows, target = design / weight[:, None], np.asarray(cost, dtype=np.float64) / weight
    days = np.asarray(dates).astype("datetime64[D]")
    missed = total = 0.0
    for block in np.array_split(np.unique(days), _BLOCKS):
        out = np.isin(days, block)
        plain = loss(rows[~out][:, :1], target[~out])[0]
        missed += float(((target - rows @ loss(rows[~out], target[~out])[0])[out] ** 2).sum())
        total += float(((target - rows[:, :1] @ plain)[out] ** 2).sum())
    return 1.0 - missed / total if total > 0 else math.nan


def _too_even(values: pd.Series, what: str) -> str:
    low, high = np.quantile(values, [0.1, 0.9])
    return "" if high >= LEAST_VARIATION * low else f"not found: {what} hardly vary"


def _judged(interval: Interval, unit: str, lacks: str = "") -> Estimate:
    """Return an estimate that is found if its interval lies above 0."""
    if not lacks and not interval.lo > 0:
        lacks = "below 0, so no cost" if interval.hi < 0 else "not found: the interval holds 0"
    return Estimate(interval, unit, lacks)


def _decay(sample: _Sample, shape: str, minutes: float, settings: dict[str, Any]) -> dict[str, Estimate]:
    """Return reversal and decay time of the temporary move, from the returns after the orders."""
    orders, wait = sample.followed, sample.moves.shape[1]
    weight = 1.0 / orders["scale"].to_numpy()
    moves = np.clip(sample.moves * weight[:, None], -_WORST_RETURN, _WORST_RETURN)
    times = np.geomspace(0.25, wait, _DECAY_TIMES)
    final = ~sample.ticks["order_id"].duplicated(keep="last")
    own = orders.index.get_indexer(sample.ticks["order_id"][final])
    left = (_left(sample.ticks, shape, times) + sample.ticks[[shape]].to_numpy())[final][own >= 0]
    dates = [orders["date"].to_numpy()]
    parts = np.stack([-moves.sum(axis=1) * weight, weight**2], axis=1)
    reversal = _judged(statistic_interval([parts], dates, **settings), "bp")
    steps = np.exp(-np.arange(wait + 1)[:, None] / times)
    falls, left = steps[:-1] - steps[1:], left * weight[:, None]
    parts = np.concatenate([-left * (moves @ falls), left**2 * (falls**2).sum(axis=0)], axis=1)

    def best_time(sums: np.ndarray) -> np.ndarray:
        along, square = sums[:, : len(times)], sums[:, len(times) :]
        explained = np.where(along > 0, along**2 / np.where(square > 0, square, np.inf), 0.0)
        found: np.ndarray = times[explained.argmax(axis=1)] * minutes
        return np.where(explained.max(axis=1) > 0, found, math.nan)

    decay = statistic_interval([parts], dates, statistic=best_time, **settings)
    lacks = "not found: nothing moves back" if reversal.lacks else ""
    if not lacks and not decay.hi < times[-1] * minutes * (1 - _ROUNDING):
        lacks = "not found: the interval reaches the longest time that can be seen"
    return {"reversal_bps": reversal, "decay_minutes": Estimate(decay, "minutes", lacks)}


def _propagated(
    sample: _Sample, sessions: Sessions, decay: Literal["power", "exponential"], settings: dict[str, Any]
) -> tuple[dict[str, Estimate], dict[str, str], dict[str, dict[str, float]]]:
    """Return estimates, shapes and R2 of transient impact.

    It is fitted on the ticks from an order's first fill to `after_minutes` after its last, or to the close. Where it is
    not found, the other estimates are those of a fit to the same ticks without it.
    """
    orders, ticks, wait = sample.orders, sample.ticks, sample.moves.shape[1]
    begin, side = orders["begin"].to_numpy(), orders["side"].to_numpy(dtype=np.float64)[:, None]
    at = begin[:, None] + np.arange(int((orders["end"] - orders["begin"]).max()) + 1 + wait)
    stop = np.minimum(orders["end"].to_numpy() + 1 + wait, sessions.num_ticks[orders["session"]])
    within, scale = at < stop[:, None], orders["scale"].to_numpy()
    used, place = np.unique(orders["session"], return_inverse=True)
    last, before = _prices(sessions, used)
    at = np.minimum(at, last.shape[1] - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = side * np.log(last[place[:, None], at] / before[place[:, None], at]) * BASIS_POINTS / scale[:, None]
    share, paid = np.zeros(at.shape), np.full(at.shape, np.nan)
    row = orders.index.get_indexer(ticks["order_id"])
    cell = row, ticks["tick"].to_numpy() - begin[row]
    share[cell], paid[cell] = ticks["share"], ticks["slippage"] / ticks["scale"]
    path = Path(share, np.where(within, moved, np.nan), paid, scale, orders["date"].to_numpy().astype("M8[D]"))
    found, shape, r2 = fit_propagator(path, SHAPES, decay, _BLOCKS, **settings)
    minutes, reach = sessions.calendar.tick_seconds / 60, at.shape[1]
    life = found["transient_half_life"]
    in_minutes = {name: getattr(life, name) * minutes for name in ("estimate", "lo", "hi", "standard_error")}
    even = _too_even(ticks["share"], "the participation of fills")
    slow = "" if life.hi < reach * (1 - _ROUNDING) else "not found: no half-life shorter than what can be seen"
    passing = _judged(found["transient_impact_bps"], _WHOLE, even or slow)
    shapes, scores = {"transient_impact": shape, "permanent_impact": shape}, {"transient_impact": r2}
    if passing.lacks:  # the other figures of the joint fit hold only together with what is not written
        seen = np.isfinite(path.moved)
        of_ticks = [np.broadcast_to(one[:, None], seen.shape)[seen] for one in (scale, path.dates)]
        designed = designs({name: f(share[seen]) for name, f in SHAPES.items()})
        drift, shapes["permanent_impact"], r2 = fit_shape(
            designed, path.moved[seen] * of_ticks[0], *of_ticks, **settings
        )
        scores["permanent_impact"] = r2
        spread = _interval(
            _huber, np.ones((len(ticks), 1)), ticks["slippage"], ticks["scale"], ticks["date"], **settings
        )
        found |= {"drift_bps": drift[0], "permanent_impact_bps": drift[1], "half_spread_bps": spread[0]}
    estimates = {
        "half_spread_bps": _judged(found["half_spread_bps"], "bp"),
        "transient_impact_bps": passing,
        "transient_half_life": Estimate(replace(life, **in_minutes), "minutes", passing.lacks),
        "permanent_impact_bps": _judged(found["permanent_impact_bps"], _WHOLE, even),
        "drift_bps": Estimate(found["drift_bps"], "bp a tick"),
    }
    return estimates, shapes, scores


def _left(ticks: pd.DataFrame, shape: str, times: np.ndarray) -> np.ndarray:
    """Return what is left of the temporary moves of each order's earlier ticks, for decay times in ticks.

    In units of the move at a tick's whole volume, float64 of shape (rows, times).
    """
    order = ticks.groupby("order_id", sort=False).cumcount().to_numpy()
    tick, move = ticks["tick"].to_numpy(), ticks[shape].to_numpy()
    left = np.zeros((len(ticks), len(times)))
    for number in range(1, int(order.max(initial=0)) + 1):
        rows = np.flatnonzero(order == number)
        passed = (tick[rows] - tick[rows - 1])[:, None] / times
        left[rows] = (left[rows - 1] + move[rows - 1][:, None]) * np.exp(-passed)
    return left
