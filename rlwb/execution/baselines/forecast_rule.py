"""The simple rule: a forecast of what waiting brings, and one threshold a step above which everything is traded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines import Baseline
from rlwb.execution.baselines.bertsimas_lo import deviation
from rlwb.execution.baselines.forecast import carried, ridge_by_blocks
from rlwb.execution.baselines.impact import ImpactParameters, sessions_on_the_days_of
from rlwb.execution.engine import Engine
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import valid_prices
from rlwb.execution.state import Known
from rlwb.learner import Expectation
from rlwb.seeds import Stream, generator

#: Sessions that ``shuffled`` looks back at most.
_SHUFFLED_WITHIN = 20


class Samples(NamedTuple):
    """The training samples of a forecast at one step of the grid.

    Attributes
    ----------
    cell
        The step.
    X : float64 of shape (rows, columns)
        What is known before it; see `ForecastRule.observe`.
    y : float64 of shape (rows,)
        What waiting brought; see `ForecastRule.waiting`, in its unit.
    block : int64 of shape (rows,)
        Block of days of each row.
    """

    cell: int
    X: np.ndarray
    y: np.ndarray
    block: np.ndarray


class ForecastRule(Baseline):
    """Trades all that is left once a forecast says that waiting costs more than the step's threshold; nothing before.

    The forecast is of the mean price of the later steps over that of the step to come: a ridge regression for each step
    of the day on the columns of `observe`. Sides are mirror images: a sale goes by the forecast's negative, and every
    training order counts as a purchase and as a sale. What is left is asked for in the last step of the window that has
    a price, and after it.

    Parameters
    ----------
    engine
        See `Baseline`.
    control
        What stands in for the forecast, in training as in trading, to tell what the forecast is worth from what the
        decision is: ``shuffled`` takes that of an earlier session of the instrument, up to 20 before, at the same time;
        ``stale`` that of the step before; ``oracle`` what waiting will really bring, which no policy knows.
    abstain
        Follow the even schedule where the forecast is not larger than its own standard error.
    blocks : blocks
        Number of blocks of consecutive training days; each is forecast by what the others tell, to choose the ridge
        and the thresholds, and the forecasts' spread over the blocks left out is their standard error (jackknife).
    seed
        Seed of what is drawn.

    Raises
    ------
    ConfigError
        For an unknown `control`, and fewer than 2 blocks.

    Notes
    -----
    Thresholds are chosen by backward induction, by number of steps left: in the last step everything is traded; before
    it, the threshold is the one with the largest mean price advantage over the training orders, given the thresholds of
    the later steps. It is optimal stopping as in Longstaff and Schwartz (Review of Financial Studies 14, 2001), with
    the decision fitted in place of the value of going on. Impact, caps and lots count for nothing: it asks for all.
    """

    def __init__(
        self,
        engine: Engine,
        control: Literal["none", "shuffled", "stale", "oracle"] = "none",
        abstain: bool = False,
        blocks: int = 5,
        seed: int = 0,
    ) -> None:
        super().__init__(engine)
        if control not in ("none", "shuffled", "stale", "oracle"):
            raise ConfigError(f"control is {control!r}; choose none, shuffled, stale or oracle.")
        if blocks < 2:
            raise ConfigError(f"blocks is {blocks!r}; give 2 or more.")
        self.control = control
        self.result_kind = "baseline" if control == "none" else "control"
        self.sees_future = control == "oracle"
        self.abstain = abstain
        self.blocks = blocks
        self.seed = seed
        self.volatility: dict[str, float] | None = None
        self.until = np.zeros(engine.max_step, dtype=np.int64)
        self.thresholds = np.zeros(0)
        self._back = 2 ** np.arange(max(engine.price.shape[1] - 1, 1).bit_length())
        self.coef = np.zeros((engine.max_step, blocks + 1, len(self._back) + 4))
        self._first = np.searchsorted(engine.cell, np.arange(engine.max_step + 1))

    def learn(self, samples: Iterator[Samples]) -> None:
        """Fit a forecast on all blocks, and one on all but each of them."""
        self.coef = np.zeros_like(self.coef)
        for cell, X, y, block in samples:
            self.coef[cell] = ridge_by_blocks(X, y, block, self.blocks)

    def expect(self, X: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """Return forecasts, float64 of shape (N, blocks + 1): by all blocks, and by all but the 1st, 2nd, …; odd in X.

        `X` is that of `observe`, `cell` the step of each row, integers of shape (N,).
        """
        return (X[:, None, :] * self.coef[cell]).sum(axis=2)

    def fit(self, orders: OrderBatch) -> None:
        engine, dates = self.engine, self.engine.sessions.dates
        rows = np.flatnonzero(sessions_on_the_days_of(engine, orders))
        impact = ImpactParameters.fit(engine, rows)
        self.volatility = dict(zip(impact.instruments, impact.volatility, strict=True))
        for cell, stop in enumerate(self._first[1:]):
            ends = orders.end[(orders.start < stop) & (orders.end > stop)]
            self.until[cell] = np.median(ends) if len(ends) else 0
        days = np.unique(dates[orders.session])
        self.learn(self._samples(rows, np.searchsorted(days, dates[rows]) * self.blocks // len(days)))
        self._choose(orders, np.searchsorted(days, dates[orders.session]) * self.blocks // len(days))

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        if self.volatility is None:
            raise ConfigError("the forecast rule knows nothing of the market yet; call fit with the training orders.")
        cell, engine = self.engine.cell, self.engine
        forecast, error = self.forecast(obs.session, obs.tick)
        left = cell[obs.end - 1] - cell[np.minimum(obs.tick, len(cell) - 1)]
        go = obs.side * forecast > self.thresholds[np.clip(left, 0, len(self.thresholds) - 1)]
        even = engine.even_share(obs, obs)
        share = np.where(self._abstains(forecast, error), even, go)
        return obs.position * np.where(even >= 1.0, 1.0, share)

    def expectation(self, obs: Known) -> Expectation:
        """Return what waiting is expected to cost each order, and what it may cost at most."""
        cell, unit = self.engine.cell, 1e4 * self.observe(obs.session, obs.tick)[1]
        left = cell[obs.end - 1] - cell[np.minimum(obs.tick, len(cell) - 1)]
        threshold = self.thresholds[np.clip(left, 0, len(self.thresholds) - 1)]
        # In the last step, after which nothing is foreseen, all is asked for whatever the forecast.
        threshold = np.where(self.engine.even_share(obs, obs) >= 1.0, np.nan, threshold)
        return Expectation(obs.side * self.forecast(obs.session, obs.tick)[0] * unit, threshold * unit)

    def forecast(
        self, session: np.ndarray, tick: np.ndarray, without: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what waiting is expected to bring, and the standard error of that, float64 of shape (N,) each.

        In units of the session's volatility (see `observe`), above 0 where later steps are expected to cost more; 0
        where nothing is known.

        Parameters
        ----------
        session, tick : integers of shape (N,)
            Sessions, and the next tick of each.
        without : integers of shape (N,)
            Block of training days that the forecast may not know; by default none.
        """
        if self.control == "oracle":
            truth = np.nan_to_num(self.waiting(session, tick) / self.observe(session, tick)[1])
            return truth, np.zeros(len(truth))
        cell = self.engine.cell[np.minimum(tick, len(self.engine.cell) - 1)]
        if self.control == "stale":
            cell = np.maximum(cell - 1, 0)
            tick = np.where(tick > 0, self._first[cell], 0)
        elif self.control == "shuffled":
            session = self._another()[session]
        found = self.expect(self.observe(np.maximum(session, 0), tick)[0], cell) * (session >= 0)[:, None]
        own = found[:, 0] if without is None else np.take_along_axis(found, without[:, None] + 1, axis=1)[:, 0]
        apart = found[:, 1:] - found[:, 1:].mean(axis=1, keepdims=True)
        return own, np.sqrt((apart**2).sum(axis=1) * (self.blocks - 1) / self.blocks)

    def observe(self, session: np.ndarray, tick: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what a forecast sees before the ticks `tick`, float64 of shape (N, columns), and the unit of it, (N,).

        The columns are how far the last price of today lies above: those 1, 2, 4, … bars before it; the first and the
        mean of today; the last and the mean of the previous session. Each is a share in units of the session's
        volatility of a bar, 0 where either price is missing. The unit is the root mean square of the training returns
        of the instrument, counted as one session, and of today's so far.
        """
        price = valid_prices(self.engine.price[session])
        ticks = price.shape[1]
        past = np.where(np.arange(ticks) < tick[:, None], price, np.nan)
        seen = carried(past)
        last, first = seen[:, -1], past[np.arange(len(past)), np.argmax(np.isfinite(past), axis=1)]
        at = tick[:, None] - 1 - self._back
        before = np.where(at >= 0, np.take_along_axis(seen, np.maximum(at, 0), axis=1), np.nan)
        row = self.engine.sessions.previous[session]
        earlier = np.where(row[:, None] >= 0, valid_prices(self.engine.price[np.maximum(row, 0)]), np.nan)
        mean = _mean(earlier, np.zeros_like(tick), np.full_like(tick, ticks))
        others = np.column_stack([before, first, carried(earlier)[:, -1], mean])
        columns = np.column_stack([last[:, None] / others - 1.0, deviation(past)])
        moves = seen[:, 1:] / seen[:, :-1] - 1.0
        known = np.isfinite(moves) & (np.arange(1, ticks) < tick[:, None])
        square = ticks * self._volatility(session) ** 2 + (np.where(known, moves, 0.0) ** 2).sum(axis=1)
        unit = np.sqrt(square / (ticks + known.sum(axis=1)))
        return np.nan_to_num(columns) / unit[:, None], unit

    def waiting(self, session: np.ndarray, tick: np.ndarray) -> np.ndarray:
        """Return what waiting really brought: the mean price of the later steps over that of the coming one, less 1.

        Float64 of shape (N,); NaN where either has no price. Later is until the median end of the training orders that
        are open in the step.
        """
        price, cell = self.engine.price[session], self.engine.cell[np.minimum(tick, len(self.engine.cell) - 1)]
        stop = self._first[cell + 1]
        return _mean(price, stop, self.until[cell]) / _mean(price, tick, stop) - 1.0

    def state_dict(self) -> dict[str, Any]:
        return {
            "volatility": self.volatility,
            "until": self.until.tolist(),
            "thresholds": self.thresholds.tolist(),
            "coef": self.coef.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.volatility = state["volatility"] and dict(state["volatility"])
        self.until, self.thresholds = np.array(state["until"], dtype=np.int64), np.array(state["thresholds"])
        self.coef = np.array(state["coef"])

    def _samples(self, rows: np.ndarray, block: np.ndarray) -> Iterator[Samples]:
        """Yield what is fitted on, of the sessions `rows`, step by step."""
        for cell in np.flatnonzero(self.until).tolist():
            tick = np.full(len(rows), self._first[cell])
            X, unit = self.observe(rows, tick)
            y = self.waiting(rows, tick) / unit
            known = np.isfinite(y)
            yield Samples(cell, X[known], y[known], block[known])

    def _choose(self, orders: OrderBatch, block: np.ndarray) -> None:
        """Choose the thresholds by backward induction on the training orders, both sides of each."""
        engine, cell = self.engine, self.engine.cell
        price = valid_prices(engine.price[orders.session]) / engine.benchmarks(orders).benchmark[:, None]
        side = np.array([[1.0], [-1.0]])
        value = np.full((2, len(orders)), np.nan)
        chosen = []
        for left in range(int((cell[orders.end - 1] - cell[orders.start]).max(initial=0)) + 1):
            at = cell[orders.end - 1] - left
            is_open = at >= cell[orders.start]
            tick = np.maximum(orders.start, self._first[np.maximum(at, 0)])
            stop = np.minimum(orders.end, self._first[np.maximum(at, 0) + 1])
            now = np.where(is_open, side * (1.0 - _mean(price, tick, stop)), np.nan)
            forecast, error = self.forecast(orders.session, tick, block)
            advantage = side * forecast
            waits = np.isfinite(now) & np.isfinite(value)
            acts = waits & ~self._abstains(forecast, error)
            chosen.append(best_threshold(advantage[acts], (now - value)[acts]))
            even = _count(price, tick, stop) / np.maximum(_count(price, tick, orders.end), 1)
            share = np.where(acts, advantage > chosen[-1], even)
            value = np.where(waits, share * now + (1.0 - share) * value, np.where(np.isfinite(value), value, now))
        self.thresholds = np.array(chosen)

    def _abstains(self, forecast: np.ndarray, error: np.ndarray) -> np.ndarray:
        return (np.abs(forecast) <= error) & self.abstain

    def _volatility(self, session: np.ndarray) -> np.ndarray:
        """Return the volatility of the sessions' instruments in training, of a new one the median; float64 (N,)."""
        known = self.volatility or {}
        typical = float(np.median([*known.values()])) if known else 1.0
        names, group = np.unique(self.engine.sessions.instruments[session], return_inverse=True)
        return np.array([known.get(name, typical) for name in names.tolist()])[group]

    def _another(self) -> np.ndarray:
        """Return the row of an earlier session of the same instrument for each session, int64 (S,); -1 for none."""
        previous = self.engine.sessions.previous
        back = generator(self.seed, Stream.BASELINE).integers(1, _SHUFFLED_WITHIN + 1, len(previous))
        row = np.arange(len(previous))
        for step in range(_SHUFFLED_WITHIN):
            row = np.where((back > step) & (row >= 0), previous[row], row)
        return row


def best_threshold(advantage: np.ndarray, gain: np.ndarray) -> float:
    """Return the threshold above which the sum of the gains is largest, halfway to the next lower advantage.

    Parameters
    ----------
    advantage, gain : float64 of shape (N,)
        What is compared with the threshold, and what is gained where it is above.
    """
    if not len(gain):
        return 0.0
    order = np.argsort(-advantage, kind="stable")
    steps, total = advantage[order], np.cumsum(gain[order])
    ends = np.append(np.flatnonzero(steps[1:] < steps[:-1]), len(steps) - 1)  # equal ones go together
    best = int(np.argmax(total[ends]))
    if not total[ends[best]] > 0:
        return float(steps[0])
    lowest = steps[ends[best]]
    beyond = steps[ends[best] + 1] if ends[best] + 1 < len(steps) else None
    return float(np.nextafter(lowest, -np.inf) if beyond is None else (lowest + beyond) / 2)


def _count(price: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    return _within(price, start, stop).sum(axis=1)


def _mean(price: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return the mean price of the ticks ``[start, stop)`` that have one, float64 of shape (N,); NaN where none has."""
    inside = _within(price, start, stop)
    count = inside.sum(axis=1)
    return np.divide(np.where(inside, price, 0.0).sum(axis=1), count, out=np.full(len(price), np.nan), where=count > 0)


def _within(price: np.ndarray, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Return which ticks of ``[start, stop)`` have a price, bool of shape (N, T)."""
    ticks = np.arange(price.shape[1])
    return (price > 0) & (price < np.inf) & (ticks >= start[:, None]) & (ticks < stop[:, None])
