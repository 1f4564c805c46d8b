"""The best use of the synthetic market's law: a filter of its transient part, and optimal stopping on the estimate."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numba
import numpy as np

from rlwb.errors import ConfigError, OrderError
from rlwb.execution.baselines import Baseline
from rlwb.execution.engine import Engine
from rlwb.execution.order import OrderBatch
from rlwb.execution.rules import ExecutionRules
from rlwb.execution.state import Known
from rlwb.learner import Expectation
from rlwb.market.synthetic import SyntheticSettings, TickLaw, tick_law
from rlwb.parts import Part

#: Deviations of the estimate that the grid reaches to each side, and its points.
_REACH, _POINTS = 6.0, 241
#: Shares of the order that the table of values knows where trading fast is penalised.
_SHARES = 41
#: Nodes and weights of the standard normal distribution (Gauss and Hermite).
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


class Gains(NamedTuple):
    """The gains and variances of a Kalman filter of the transient part by tick, which no price changes.

    Attributes
    ----------
    gain : float64 of shape (N, T)
        By how much a surprise of 1 in the tick's return moves the estimate.
    surprise : float64 of shape (N, T)
        Variance of the surprise, bp².
    error : float64 of shape (N, T + 1)
        Variance of the estimate's error before each tick, bp².
    """

    gain: np.ndarray
    surprise: np.ndarray
    error: np.ndarray


def kalman_gains(decay: float, start: np.ndarray, efficient: np.ndarray, transient: np.ndarray) -> Gains:
    """Return the gains of the best linear estimate of the transient part x from the returns of the day.

    The return ``e + (decay - 1) x + w`` and the next ``x' = decay x + w`` share the innovation w, so the gain is their
    covariance over the return's variance: ``(decay (decay - 1) P + Q) / (R + (1 - decay)^2 P + Q)``, with P the error
    so far, R and Q the variances of e and w (Anderson and Moore, Optimal Filtering, 1979, section 5.4).

    Parameters
    ----------
    decay
        See `TickLaw`.
    start : float64 of shape (N,), bp²
        Variance of the error before the first tick.
    efficient, transient : float64 of shape (N, T), bp²
    """
    count, ticks = efficient.shape
    gain, surprise, error = np.zeros((count, ticks)), np.zeros((count, ticks)), np.zeros((count, ticks + 1))
    error[:, 0] = start
    for t in range(ticks):
        before = error[:, t]
        surprise[:, t] = efficient[:, t] + (1 - decay) ** 2 * before + transient[:, t]
        shared = decay * (decay - 1) * before + transient[:, t]
        gain[:, t] = np.divide(shared, surprise[:, t], out=np.zeros(count), where=surprise[:, t] > 0)
        error[:, t + 1] = decay**2 * before + transient[:, t] - gain[:, t] * shared
    return Gains(gain, surprise, error)


def tick_deviations(law: TickLaw) -> dict[str, np.ndarray]:
    """Return the standard deviations over the ticks of a day of what a law draws and what a filter knows, in bp.

    Each has shape (T,) and belongs to the law's first row. The transient part's own is the error of a filter that sees
    nothing but noise.
    """
    start = np.array([law.stationary])
    efficient, transient = law.efficient[:1], law.transient[:1]
    blind = kalman_gains(law.decay, start, np.full_like(efficient, np.inf), transient)
    knowing = kalman_gains(law.decay, start, efficient, transient)
    variances = {
        "return of the martingale": efficient,
        "innovation of the transient part": transient,
        "transient part": blind.error[:, :-1],
        "error of the filter's estimate of it": knowing.error[:, :-1],
    }
    return {name: np.sqrt(variance[0]) for name, variance in variances.items()}


@numba.njit(cache=True)
def _between(table: np.ndarray, place: float) -> float:
    """Return a value between the entries of a table, by the line through the two at the place; so outside, too."""
    at = min(max(int(place), 0), len(table) - 2)
    return table[at] + (place - at) * (table[at + 1] - table[at])


@numba.njit(cache=True)
def _best_share(held: float, price: float, later: np.ndarray, penalty: float) -> float:
    """Return the share to trade of the share `held`, at most all of it.

    Trading x costs ``price * x + penalty * x**2``; `later` is what the last unit of what is kept will cost, at evenly
    spaced shares from 0 to 1, and does not fall. So x is where the two marginal costs are the same.
    """
    n = len(later) - 1
    if price >= _between(later, held * n):
        return 0.0
    if price + 2.0 * penalty * held <= later[0]:
        return held
    # The marginal cost of trading exceeds that of keeping at x = held, and is exceeded by it at x = 0.
    low, high = 0.0, held
    for _ in range(50):
        x = 0.5 * (low + high)
        if price + 2.0 * penalty * x < _between(later, (held - x) * n):
            low = x
        else:
            high = x
    return 0.5 * (low + high)


@numba.njit(cache=True)
def _costs_of_waiting(
    level: np.ndarray,
    penalty: np.ndarray,
    decay: np.ndarray,
    noise: np.ndarray,
    reach: np.ndarray,
    shares: int,
    points: int,
    nodes: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """Return the marginal cost of keeping, by step, share kept and estimate; float64 of shape (K, shares, points).

    Of the last step it is infinite: everything is traded then.

    Parameters
    ----------
    level : float64 of shape (K,)
        What an estimate of 1 adds to the mean price of each step.
    penalty : float64 of shape (K,), bp
        Cost of the squared share that a step trades.
    decay, noise : float64 of shape (K,)
        The next step's estimate is `decay` times this one's and a normal part of deviation `noise`.
    reach : float64 of shape (K,), bp
        The estimates known of each step go from minus this to this, evenly spaced.
    """
    steps = len(level)
    found = np.full((steps, shares, points), np.inf)
    now = np.empty((shares, points))
    for k in range(steps - 1, -1, -1):
        if k < steps - 1:
            half = (points - 1) / 2.0
            for j in range(points):
                z = reach[k] * (j / half - 1.0)
                for i in range(shares):
                    total = 0.0
                    for n in range(len(nodes)):
                        ahead = decay[k] * z + noise[k] * nodes[n]
                        total += weights[n] * _between(now[i], (ahead / reach[k + 1] + 1.0) * half)
                    found[k, i, j] = total
        after = now.copy()
        for j in range(points):
            price = level[k] * reach[k] * (2.0 * j / (points - 1) - 1.0)
            for i in range(shares):
                held = i / (shares - 1)
                x = held if k == steps - 1 else _best_share(held, price, found[k, :, j], penalty[k])
                after[i, j] = min(price + 2.0 * penalty[k] * x, found[k, i, j])
        now = after
    return found


@numba.njit(cache=True)
def _shares_to_trade(
    waiting: np.ndarray,
    level: np.ndarray,
    penalty: np.ndarray,
    reach: np.ndarray,
    step: np.ndarray,
    held: np.ndarray,
    estimate: np.ndarray,
) -> np.ndarray:
    """Return the share that each order trades in its step, float64 of shape (N,), by the costs of waiting."""
    found = np.empty(len(step))
    shares, points = waiting.shape[1:]
    later = np.empty(shares)
    for n in range(len(step)):
        k = step[n]
        if k >= len(level) - 1:
            found[n] = held[n]
            continue
        for i in range(shares):
            later[i] = _between(waiting[k, i], (estimate[n] / reach[k] + 1.0) * (points - 1) / 2.0)
        found[n] = _best_share(held[n], level[k] * estimate[n], later, penalty[k])
    return found


def filtered(start: np.ndarray, price: np.ndarray, gain: np.ndarray, decay: float, until: np.ndarray) -> np.ndarray:
    """Return the estimate of the transient part after the ticks before `until`, float64 of shape (N,), bp.

    Parameters
    ----------
    start : float64 of shape (N,), bp
        The estimate before the first tick.
    price : float64 of shape (N, T + 1), bp
        Logarithms of the day's open and of the closes.
    gain : float64 of shape (N, T)
        See `Gains`.
    until : int32 of shape (N,)
    """
    found = start
    for t in range(int(until.max(initial=0))):
        surprise = price[:, t + 1] - price[:, t] - (decay - 1.0) * found
        found = np.where(t < until, decay * found + gain[:, t] * surprise, found)
    return found


class _Plan(NamedTuple):
    """The solution for a window under one law; see `_costs_of_waiting`."""

    waiting: np.ndarray
    level: np.ndarray
    penalty: np.ndarray
    reach: np.ndarray


#: Rules that the solution takes into account, or that cost every policy the same: all others must be as by default.
_FITTING = {
    *("halts", "catch_up", "step_grid", "benchmark", "unfilled_at", "price_field"),
    *("commission_bps", "sell_tax_bps", "half_spread_bps", "min_fee"),
}
_FORMS = ("limit_price", "would_price", "min_participation", "max_participation", "latest_end")


def unfitting_rules(rules: ExecutionRules) -> list[str]:
    """Return the names of the rules under which `FilterOptimum` would not be the optimum."""
    default = ExecutionRules()
    named = [
        one.name
        for one in dataclasses.fields(rules)
        if one.name not in _FITTING and getattr(rules, one.name) != getattr(default, one.name)
    ]
    return [*named, *([] if rules.price_field in ("close", "open") else ["price_field"])]


class FilterOptimum(Baseline):
    """The best policy of a trader who knows the law of the synthetic market, but not what it will draw.

    A Kalman filter estimates the transient part of the price from the day before, the open and the closes so far
    (`kalman_gains`). What the estimate says of the steps to come is solved by backward induction over step, share left
    and estimate: optimal stopping, with one threshold a step, or, with a penalty on trading fast, the choice of an
    amount. The efficient price is a martingale, so that it costs every policy the same.

    Parameters
    ----------
    engine
        See `Baseline`.
    market
        The market of the run, which must be ``synthetic``.
    knows_volatility
        Whether it is told the volatility of each tick, past and to come, which weighs the noise in returns. No trader
        knows it: it is drawn from the market's seed once more. Without, every tick has the law's mean variance.
    penalty : bp
        Weight of the squared shares of the order that ticks trade, as in `PAPenaltyReward`, on which it then is the
        optimum of the reward's mean; 0 for the optimum of the mean PA.

    Raises
    ------
    ConfigError
        For another market, for rules under which this would not be the optimum (a cap, lots, price limits, impact,
        orders that need not be completed, prices other than ``close`` and ``open``), by name, and a penalty that is
        negative or not finite.
    OrderError
        By `check`, for orders with limits, participation or a latest end of their own.

    Notes
    -----
    It is the optimum if shocks are normal and the law's variances are right. In the market shocks have fat tails, and
    without `knows_volatility` the variances are means, so an estimate that weighs returns by the volatility seen so far
    knows more; so does one that knows other instruments, by the factor that all share. A learner can pass it by these.
    """

    result_kind = "attainable"

    def __init__(
        self, engine: Engine, market: Part | None = None, knows_volatility: bool = False, penalty: float = 0.0
    ) -> None:
        super().__init__(engine)
        if market is None or market.name != "synthetic":
            raise ConfigError(
                f"the market is {market.name if market else 'not told'}, whose law is not known; leave filter_optimum "
                "out, or set market to synthetic."
            )
        if not 0 <= penalty < np.inf:
            raise ConfigError(f"the penalty is {penalty!r}; give a finite number of 0 or more.")
        if named := unfitting_rules(engine.rules):
            raise ConfigError(
                f"under execution.rules {', '.join(named)} filter_optimum is not the optimum; leave it out, or drop "
                f"{'them' if named[1:] else 'it'}."
            )
        settings = SyntheticSettings(**market.settings)
        self.knows_volatility = knows_volatility
        self.sees_future = knows_volatility
        self.penalty = penalty
        self.law = law = tick_law(settings, engine.sessions if knows_volatility else None)
        previous = engine.sessions.previous
        # Rows of the law: of each session, or where they share one, of those without and with a day before.
        shared = slice(None) if knows_volatility else [0, 0]
        self._row = np.arange(len(previous)) if knows_volatility else (previous >= 0).astype(np.int64)
        self._before = previous if knows_volatility else np.array([-1, 0])
        own = law.efficient[shared], law.transient[shared]
        self._alone = kalman_gains(law.decay, np.full(len(own[0]), law.stationary), *own)
        # The open less the last close is the night's return and the morning's x less the evening's.
        night = law.overnight[shared] + law.stationary + self._alone.error[self._before, -1]
        is_after = (self._before >= 0) & (night > 0)
        self._opening = np.divide(law.stationary, night, out=np.zeros(len(night)), where=is_after)
        self._gains = kalman_gains(law.decay, law.stationary * (1.0 - self._opening), *own)
        self._plans: dict[tuple[int, int, int], _Plan] = {}

    def estimate(self, known: Known) -> np.ndarray:
        """Return the expected transient part of the last price, float64 of shape (N,), bp; 0 before the first tick."""
        row, decay = self._row[known.session], self.law.decay
        today, before = (
            1e4 * np.log(np.concatenate([bars("open")[:, :1], bars("close")], axis=1))
            for bars in (known.bars, known.yesterday)
        )
        start, whole = np.zeros(len(known)), np.full(len(known), before.shape[1] - 1)
        evening = filtered(start, before, self._alone.gain[self._before[row]], decay, whole)
        night = today[:, 0] - before[:, -1] + evening
        is_open = (known.tick > 0) & (self._before[row] >= 0)
        start = np.where(is_open, self._opening[row] * night, 0.0)
        return filtered(start, today, self._gains.gain[row], decay, known.tick)

    def expectation(self, obs: Known) -> Expectation:
        """Return what waiting is expected to cost each order: what the part that is left costs later, less now.

        What it costs later counts that the policy goes on to choose well, so that it trades once waiting costs more
        than nothing; with a penalty, once it costs more than the penalty on the first share.
        """
        waiting = np.full(len(obs), np.nan)
        if self.law.stationary == 0:
            return Expectation(np.zeros(len(obs)), None)
        estimate, cell = obs.side * self.estimate(obs), self.engine.cell
        steps = cell[np.minimum(obs.tick, len(cell) - 1)] - cell[obs.start]
        for row, step in enumerate(steps.tolist()):
            plan = self._plan(int(obs.start[row]), int(obs.end[row]), int(self._row[obs.session[row]]))
            if step < len(plan.level) - 1:
                shares, points = plan.waiting.shape[1:]
                place = (estimate[row] / plan.reach[step] + 1.0) * (points - 1) / 2.0
                later = np.array([_between(plan.waiting[step, one], place) for one in range(shares)])
                held = obs.position[row] / obs.amount[row]
                waiting[row] = _between(later, held * (shares - 1)) - plan.level[step] * estimate[row]
        return Expectation(waiting, np.where(np.isnan(waiting), np.nan, 0.0))

    def check(self, orders: OrderBatch) -> None:
        for name in _FORMS:
            if name in orders.forms and np.isfinite(orders.forms[name]).any():
                raise OrderError(f"some orders state a {name}, under which filter_optimum is not the optimum.")

    def act(self, obs: Known, noise: np.ndarray | None = None) -> np.ndarray:
        if self.law.stationary == 0:
            return self.even(obs)
        estimate, cell = obs.side * self.estimate(obs), self.engine.cell
        step = cell[np.minimum(obs.tick, len(cell) - 1)] - cell[obs.start]
        held = obs.position / obs.amount
        windows = np.stack([obs.start, obs.end, self._row[obs.session]], axis=1)
        found = np.zeros(len(obs))
        kinds, inverse = np.unique(windows, axis=0, return_inverse=True)
        order = np.argsort(inverse.ravel(), kind="stable")
        for kind, rows in zip(kinds.tolist(), np.split(order, np.bincount(inverse.ravel()).cumsum()[:-1]), strict=True):
            found[rows] = _shares_to_trade(*self._plan(*kind), step[rows], held[rows], estimate[rows])
        return np.clip(found, 0.0, held) * obs.amount

    def _plan(self, start: int, end: int, row: int) -> _Plan:
        """Return the solution for a window ``[start, end)`` under the law of a row of `gains`."""
        if (start, end, row) in self._plans:
            return self._plans[start, end, row]
        law, spread = self.law, self._spread(row)
        begins = np.flatnonzero(np.append(True, np.diff(self.engine.cell[start:end]) != 0)) + start
        ends = np.append(begins[1:], end)
        length = ends - begins
        first = 0 if self.engine.rules.price_field == "open" else 1
        level = np.array([np.mean(law.decay ** np.arange(first, first + n)) for n in length])
        noise = np.sqrt(np.maximum(spread[ends] - law.decay ** (2.0 * length) * spread[begins], 0.0))
        reach = np.maximum(_REACH * np.sqrt(spread[begins]), 1e-6 * np.sqrt(law.stationary))
        penalty, shares = self.penalty / length, _SHARES if self.penalty else 2
        solved = level, penalty, law.decay**length, noise, reach
        waiting = _costs_of_waiting(*solved, shares, _POINTS, _NODES, _WEIGHTS)
        self._plans[start, end, row] = _Plan(waiting, level, penalty, reach)
        return self._plans[start, end, row]

    def _spread(self, row: int) -> np.ndarray:
        """Return the variance of the estimate before each tick under the law of a row, float64 of shape (T + 1,)."""
        moved = self._gains.gain[row] ** 2 * self._gains.surprise[row]
        spread = np.zeros(len(moved) + 1)
        spread[0] = self.law.stationary * self._opening[row]
        for t in range(len(moved)):
            spread[t + 1] = self.law.decay**2 * spread[t] + moved[t]
        spread[0] = 0.0  # the open is known with the first bar
        return spread
