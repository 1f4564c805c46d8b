"""A state-space model of a session's prices: a random walk, a part that reverts, and a filter that tells them apart."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from torch import nn

#: Degrees of freedom of the Student-t law by which the model is fitted, so that no single wild return decides.
_TAIL = 5.0
#: Most iterations of the search.
_ITERATIONS = 60
#: How far the log of a variance may lie from that of returns: a factor of a million.
_WIDE = 14.0
#: Smallest variance of a return, as a share of the mean one.
_SMALL = 1e-6


class Estimate(NamedTuple):
    """The filter's estimate of the part that reverts, and the variance of its error; each of shape (S,)."""

    mean: torch.Tensor
    error: torch.Tensor


class PriceFilter(nn.Module):
    """A Kalman filter of the part of a price that reverts, whose noise follows the time of day and the volume.

    The log price is e + x. Over tick t, e moves by an innovation of variance R_t and ``x' = phi x + w`` with w of
    variance Q_t, so the return is ``e' - e + (phi - 1) x + w``. Both variances are a level times the usual variance of
    the tick's time of day times ``exp(b v_t)``, with v_t what is known of the tick's volume. Where the price moves much
    because much is traded, the estimate moves with it; where it moves while little is traded, it hardly does. The
    overnight gap begins a session: it is x in the morning less x last night, and what e moved by.

    The numbers are estimated by quasi-maximum likelihood on training sessions, under a Student-t law. Nothing reverts
    in a market whose estimate of Q is 0, and the filter's estimate is 0 then.

    Parameters
    ----------
    ticks
        Ticks of a session, T.
    drivers
        Numbers that variances go with, D.

    References
    ----------
    J. Hasbrouck, "Assessing the Quality of a Security Market", Review of Financial Studies 6 (1993): efficient price
    and pricing error. A. J. Menkveld, S. J. Koopman and A. Lucas, "Modeling Around-the-Clock Price Discovery", Journal
    of Business and Economic Statistics 25 (2007): the same as a state-space model. A. Harvey, Forecasting, Structural
    Time Series Models and the Kalman Filter (1989), chapter 3.
    """

    def __init__(self, ticks: int, drivers: int) -> None:
        super().__init__()
        self.drivers = drivers
        # Logit of phi; logs of the levels of R and Q, of the variance of x in the morning, and of that of e overnight.
        self.register_buffer("law", torch.tensor([0.0, 0.0, -math.inf, -math.inf, 0.0]))
        # What the logs of R and Q change by with each driver.
        self.register_buffer("slopes", torch.zeros(2, drivers))
        self.register_buffer("usual", torch.ones(ticks))

    def fit(self, gap: torch.Tensor, moves: torch.Tensor, drivers: torch.Tensor) -> None:
        """Estimate the model.

        Parameters
        ----------
        gap : basis points, shape (S,)
            Open less the last close before.
        moves : basis points, shape (S, T)
            Returns of the ticks.
        drivers : shape (S, T, D)
        """
        gap, moves, drivers = gap.double(), moves.double(), drivers.double()
        scale = moves.abs().mean(dim=0) ** 2
        variance = float(moves.square().mean())
        if not variance > 0:
            return
        self.usual.copy_((scale / scale.mean()).clamp(min=_SMALL))
        night = float(gap.square().mean())
        if night < _SMALL * variance:  # the open is not read, or rounding is all there is between it and the last close
            gap, night = torch.zeros_like(gap), 0.0
        level = math.log(variance)
        first = [2.5, level - 0.7, level - 0.7, level + 1.4, math.log(night) if night else level]
        span = [(-3.0, 7.0), *[(level - _WIDE, level + _WIDE)] * 4, *[(-3.0, 3.0)] * (2 * self.drivers)]

        def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
            sought = torch.tensor(values, requires_grad=True)
            with torch.enable_grad():
                found = self._surprises(sought, gap, moves, drivers, variance * _SMALL)
                found.backward()
            assert sought.grad is not None
            return found.item(), sought.grad.numpy()

        start, options = np.array([*first, *[0.0] * (2 * self.drivers)]), {"maxiter": _ITERATIONS}
        found = torch.tensor(minimize(loss, start, jac=True, method="L-BFGS-B", bounds=span, options=options).x)
        self.law.copy_(found[:5])
        if not night:
            self.law[4] = -math.inf
        self.slopes.copy_(found[5:].reshape(2, self.drivers))

    def begin(self, gap: torch.Tensor) -> Estimate:
        """Return the estimate before the first tick, from the overnight gap in basis points, of shape (S,)."""
        return _begin(gap, self.law)

    def further(self, before: Estimate, move: torch.Tensor, drivers: torch.Tensor, tick: int) -> Estimate:
        """Return the estimate after a tick.

        Parameters
        ----------
        before
            That before the tick.
        move : basis points, shape (S,)
        drivers : shape (S, D)
        tick
            Its number in the session, from 0.
        """
        after, _, _ = _update(before, move, self.law, self.slopes, drivers, self.usual[tick])
        return after

    def _surprises(
        self, sought: torch.Tensor, gap: torch.Tensor, moves: torch.Tensor, drivers: torch.Tensor, least: float
    ) -> torch.Tensor:
        """Return minus the mean log likelihood of sessions, but for a constant."""
        law, slopes = sought[:5], sought[5:].reshape(2, self.drivers)
        if gap.any():
            now, total = _begin(gap, law), _unlikely(gap, law[4].exp() + 2.0 * law[3].exp() + least)
        else:
            now, total = Estimate(gap, law[3].exp().expand_as(gap)), torch.zeros_like(gap)
        usual = self.usual.double()
        for tick in range(moves.shape[1]):
            now, surprise, variance = _update(now, moves[:, tick], law, slopes, drivers[:, tick], usual[tick])
            total = total + _unlikely(surprise, variance + least)
        return total.mean()


def _begin(gap: torch.Tensor, law: torch.Tensor) -> Estimate:
    morning, night = law[3].exp(), law[4].exp()
    # Last night's x has the same variance as this morning's and is independent of it; gaps that are all 0 say nothing.
    gain = morning / (night + 2.0 * morning) if night > 0 else torch.zeros(())
    return Estimate(gain * gap, (morning - gain * morning).expand_as(gap))


def _update(
    before: Estimate,
    move: torch.Tensor,
    law: torch.Tensor,
    slopes: torch.Tensor,
    drivers: torch.Tensor,
    usual: torch.Tensor,
) -> tuple[Estimate, torch.Tensor, torch.Tensor]:
    """Return the estimate after a tick, the surprise in its return, and the variance of that; each of shape (S,)."""
    phi = torch.sigmoid(law[0])
    efficient, transient = (law[1:3, None] + slopes @ drivers.T).exp() * usual
    surprise = move - (phi - 1.0) * before.mean
    variance = efficient + (1.0 - phi) ** 2 * before.error + transient
    shared = phi * (phi - 1.0) * before.error + transient
    gain = shared / variance
    mean = phi * before.mean + gain * surprise
    return Estimate(mean, phi**2 * before.error + transient - gain * shared), surprise, variance


def _unlikely(surprise: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Return twice minus the log of a Student-t density of that variance, but for a constant."""
    return variance.log() + (_TAIL + 1.0) * torch.log1p(surprise**2 / ((_TAIL - 2.0) * variance))
