"""A small network on forecasts: averages and a filter of past returns, a regression on them, and layers that decide.

What an order can gain from waiting is a small part of what prices do, and some thousand sessions do not teach a large
network to tell the two apart. Here the reward's gradients learn nothing of the market: exponential averages of a
session's returns are fixed, a filter and a ridge regression are fitted on the training sessions and make forecasts, and
only the decision, a function of a few numbers, is left to the learner. A sale is a purchase in the mirror: each number
that has a direction is multiplied by the order's, so that both sides teach one policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import one_hot

from rlwb.errors import ConfigError
from rlwb.market import MarketFeatures
from rlwb.market.references import blocks
from rlwb.policy.encoder import MarketEncoder
from rlwb.policy.network import Network, order_numbers
from rlwb.policy.price_filter import Estimate, PriceFilter
from rlwb.regression import ridge

#: Features that are read: the close must be among those of the run, the others are used where they are.
COLUMNS = ("open", "close", "volume")
#: Share of a tick's surprise in volume that the activity keeps at the next, and what one deviation of it counts for.
_KEPT, _PER_DEVIATION, _MOST = 0.5, 0.6, 2.5
#: Deviations at which a tick's surprise in volume is cut off.
_CUT = 4.0
#: Most sessions that the filter is fitted on, evenly spaced.
_SESSIONS = 4096
#: Degree of the polynomial in the time of day that each coefficient of the regression is.
_DEGREE = 3
_RIDGE = 1e-4


class TraceEncoder(MarketEncoder):
    """Averages of a session's returns and a filter of what reverts in them, without weights learnt by gradients.

    With the return r_t of tick t in basis points, a state holds ``sum_s 2^(-(t - s) / h) r_s`` for every half-life h,
    then the estimate of `PriceFilter` and the variance of its error, the overnight gap, how far the last price is from
    yesterday's, the activity (an average of how far volumes lie above the usual ones of their time of day), and the
    share of the session that has passed.

    Parameters
    ----------
    features
        The panel, for the names of its columns and what they were normalised by.
    half_lives : bars
        Half-lives of the averages; infinity is the return since the open.

    Raises
    ------
    ConfigError
        When the features have no close.
    """

    def __init__(self, features: MarketFeatures, half_lives: Sequence[float]) -> None:
        columns = features.columns
        super().__init__(len(columns), len(half_lives) + 6)
        if "close" not in columns:
            missing = ", ".join(one for one in COLUMNS if one not in columns)
            raise ConfigError(
                f"the network signals reads the feature close, and the run has {', '.join(columns)} alone; add "
                f"{missing} to features.columns, or choose another network."
            )
        self.place = {name: columns.index(name) for name in COLUMNS if name in columns}
        # Settings and what the run's normaliser knows: in no checkpoint.
        self.register_buffer("decays", torch.tensor([0.5 ** (1.0 / one) for one in half_lives]), persistent=False)
        for name in ("mean", "scale"):
            value = torch.tensor(getattr(features.normaliser, name), dtype=torch.float32)
            self.register_buffer(name, value, persistent=False)
        self.register_buffer("usual", torch.zeros(features.shape[1]))
        self.register_buffer("deviation", torch.ones(()))
        self.filter = PriceFilter(features.shape[1], 2)

    def fit(self, features: MarketFeatures, rows: np.ndarray) -> None:
        """Estimate the usual volume of each time of day, and the filter, on some sessions."""
        if "volume" in self.place:
            parts = blocks(rows, features.shape[1])
            volume = np.concatenate([features.rows(part)[..., self.place["volume"]] for part in parts])
            usual = volume.mean(axis=0, dtype=np.float64)
            self.usual.copy_(torch.tensor(usual))
            self.deviation.fill_(max(float((volume - usual).std()), 1e-6))
        today, _ = self.read(features, rows[np.linspace(0, len(rows) - 1, min(len(rows), _SESSIONS)).astype(int)])
        gap = self._opens(today)
        moves = torch.diff(self.prices(today), dim=1, prepend=gap[:, None])
        surprise, activity = self._activity(today, torch.zeros_like(gap), 0)
        self.filter.fit(gap, moves, torch.stack([surprise, activity[:, :-1]], dim=2))
        self.forget()

    def prices(self, today: torch.Tensor) -> torch.Tensor:
        """Return the closes of ticks (S, n, C) as log differences from yesterday's last, in basis points, (S, n)."""
        return self._stated(today, "close")

    def encode(self, today: torch.Tensor, yesterday: torch.Tensor | None) -> torch.Tensor:
        first = today.new_zeros(today.shape[0], self.hidden)
        return torch.cat([first[:, None], self._further(today, first, 0)], dim=1)

    def memory(self, slots: int, ticks: int) -> tuple[torch.Tensor, ...]:
        return ()

    def begin(
        self, memory: tuple[torch.Tensor, ...], slots: torch.Tensor, yesterday: torch.Tensor | None
    ) -> torch.Tensor:
        return torch.zeros(len(slots), self.hidden)

    def advance(
        self,
        memory: tuple[torch.Tensor, ...],
        slots: torch.Tensor,
        states: torch.Tensor,
        ticks: torch.Tensor,
        since: int,
        of: int,
    ) -> torch.Tensor:
        return self._further(ticks, states, since)

    @torch.no_grad()
    def forward(self, obs: Any) -> torch.Tensor:
        return super().forward(obs)

    def _further(self, ticks: torch.Tensor, states: torch.Tensor, since: int) -> torch.Tensor:
        """Return the states after each of further ticks (S, n, C), of shape (S, n, H)."""
        price = self.prices(ticks)
        count = len(self.decays)
        traces, (mean, error, gap, last, active, _) = states[:, :count], states[:, count:].unbind(dim=1)
        now = Estimate(mean, error)
        if since == 0:
            gap = last = self._opens(ticks)
            now = self.filter.begin(gap)
        surprise, activity = self._activity(ticks, active, since)
        found = []
        for number in range(ticks.shape[1]):
            move, last = price[:, number] - last, price[:, number]
            drivers = torch.stack([surprise[:, number], activity[:, number]], dim=1)
            now = self.filter.further(now, move, drivers, since + number)
            traces = self.decays * traces + move[:, None]
            passed = torch.full_like(last, (since + number + 1) / len(self.usual))
            rest = torch.stack([*now, gap, last, activity[:, number + 1], passed], dim=1)
            found.append(torch.cat([traces, rest], dim=1))
        return torch.stack(found, dim=1)

    def _opens(self, today: torch.Tensor) -> torch.Tensor:
        """Return the open of sessions (S, n, C) less yesterday's last price, 0 where it is not read, of shape (S,)."""
        return self._stated(today, "open")[:, 0] if "open" in self.place else torch.zeros(len(today))

    def _activity(self, ticks: torch.Tensor, active: torch.Tensor, since: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return how far volumes lie above the usual ones, in deviations, and the average of that before and after.

        Of ticks (S, n, C), after the activity (S,) before them, the shapes are (S, n) and (S, n + 1); without volumes
        all are 0.
        """
        surprise = torch.zeros(ticks.shape[:2])
        if "volume" in self.place:
            usual = self.usual[since : since + ticks.shape[1]]
            surprise = ((ticks[..., self.place["volume"]] - usual) / self.deviation).clamp(-_CUT, _CUT)
        averages = [active]
        for number in range(ticks.shape[1]):
            averages.append(_KEPT * averages[-1] + (1.0 - _KEPT) * surprise[:, number])
        return surprise, torch.stack(averages, dim=1)

    def _stated(self, ticks: torch.Tensor, name: str) -> torch.Tensor:
        """Return a column as it was before it was normalised, in basis points."""
        at = self.place[name]
        return 1e4 * (ticks[..., at] * self.scale[at] + self.mean[at])


class Signals(Network):
    """A forecast of what waiting brings, and two layers that decide by it.

    Two ridge regressions on the states of `TraceEncoder`, fitted on the training sessions, forecast by how much the
    mean price of the next step will lie above that of all later ones, and of the step after it, in basis points.
    The decision sees them in the direction of the order, also divided by the activity, beside the return since the
    open, the activity, the share left, the time, and the number of steps left, one input for each.

    Parameters
    ----------
    features
        The panel; its columns must have ``close``, and ``open`` and ``volume`` are used where they are.
    max_step
        Most steps that an order can have.
    hidden : units
        Width of the two layers.
    half_lives : bars
        Half-lives of the averages of returns.
    """

    causal = True
    reads_path = False

    def __init__(
        self,
        features: MarketFeatures,
        max_step: int,
        hidden: int = 16,
        half_lives: Sequence[float] = (4.0, 8.0, math.inf),
    ) -> None:
        super().__init__(width=hidden)
        if not half_lives or not all(one > 0 for one in half_lives):
            raise ConfigError(f"half_lives are {half_lives!r}; give one or more numbers of bars above 0.")
        self.market = TraceEncoder(features, half_lives)
        self.ticks, self.max_step = features.shape[1], max_step
        self.register_buffer("coefficients", torch.zeros(2, self.market.hidden - 4, _DEGREE + 1))
        self.register_buffer("unit", torch.ones(2))
        self.register_buffer("usual_move", torch.ones(()))
        self.layers = nn.Sequential(
            nn.Linear(4 + 1 + 1 + 4 + max_step, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )

    def fit(self, features: MarketFeatures, rows: np.ndarray) -> None:
        """Fit the regressions on the training sessions `rows`, by the returns of the sessions themselves."""
        self.market.fit(features, rows)
        step = max(1, -(-self.ticks // self.max_step))
        at = np.arange(1, self.ticks - step)
        width = self.coefficients.shape[1] * self.coefficients.shape[2]
        square, product, moved, count = np.zeros((width, width)), np.zeros((width, 2)), 0.0, 0
        for part in blocks(rows, self.ticks):
            today, _ = self.market.read(features, part)
            states = self.market.encode(today, None)[:, at]
            known = self._regressors(states).flatten(2).double().numpy()
            aims = _aims(self.market.prices(today).double().numpy(), at, step)
            known, aims = known.reshape(-1, width), aims.reshape(-1, 2)
            square, product, count = square + known.T @ known, product + known.T @ aims, count + len(known)
            moved += float(((states[..., -3] - states[..., -4]).double() ** 2).sum())
        found = ridge(square, product, [_RIDGE])[0]
        self.coefficients.copy_(torch.tensor(found.T.reshape(self.coefficients.shape)))
        spread = np.sqrt(np.einsum("ij,ik,kj->j", found, square, found) / max(count, 1))
        self.unit.copy_(torch.tensor(np.where(spread > 0, spread, 1.0)))
        self.usual_move.fill_(math.sqrt(moved / max(count, 1)) or 1.0)

    def market_states(self, obs: Any) -> torch.Tensor | None:
        return self.market(obs)

    def forecasts(self, states: torch.Tensor) -> torch.Tensor:
        """Return the forecasts of states (…, H), of shape (…, 2), in basis points of a sale."""
        return (self._regressors(states)[..., None, :, :] * self.coefficients).sum(dim=(-2, -1))

    def waiting(self, obs: Any) -> torch.Tensor:
        """Return the forecast of all later steps in the direction of the order, bp of shape (N,)."""
        return self._side(obs)[:, 0] * self.forecasts(self.market(obs))[:, 0]

    def _side(self, obs: Any) -> torch.Tensor:
        """Return 1 for a sale and -1 for a purchase, of shape (N, 1)."""
        return 1.0 - 2.0 * self.tensor(obs["acquiring"]).float()[:, None]

    def forward(self, obs: Any) -> torch.Tensor:
        states = self.tensor(obs["market_states"]) if "market_states" in obs else self.market(obs)
        _, _, step, steps = order_numbers(obs, self.device)
        active = states[:, -2:-1].clamp(-_MOST / _PER_DEVIATION, _MOST / _PER_DEVIATION)
        side = self._side(obs)
        signed = side * self.forecasts(states) / self.unit
        moved = side * (states[:, -3:-2] - states[:, -4:-3]) / self.usual_move
        calm = torch.exp(-0.5 * _PER_DEVIATION * active)
        left = one_hot((steps - step).long().clamp(1, self.max_step) - 1, self.max_step)
        return self.layers(
            torch.cat([signed, signed * calm, moved, active, self.scalars(obs), states[:, -1:], left], dim=1)
        )

    def _regressors(self, states: torch.Tensor) -> torch.Tensor:
        """Return what the regressions see of states (…, H), of shape (…, H - 4, degree + 1)."""
        powers = torch.arange(_DEGREE + 1, device=states.device)
        count = len(self.market.decays)
        known = torch.cat([states[..., : count + 1], states[..., count + 2 : count + 3]], dim=-1)
        return known[..., None] * states[..., -1:, None] ** powers


def _aims(price: np.ndarray, at: np.ndarray, step: int) -> np.ndarray:
    """Return what is forecast at the ticks `at`, of shape (S, len(at), 2), from prices of shape (S, T)."""
    sums = np.concatenate([np.zeros((len(price), 1)), np.cumsum(price, axis=1)], axis=1)
    ticks = price.shape[1]

    def mean(first: np.ndarray, stop: np.ndarray) -> np.ndarray:
        return (sums[:, stop] - sums[:, first]) / (stop - first)

    now, end = mean(at, at + step), np.full_like(at, ticks)
    return np.stack([now - mean(at + step, end), now - mean(at + step, np.minimum(at + 2 * step, end))], axis=2)
