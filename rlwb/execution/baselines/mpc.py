"""Model predictive control: the best plan by a forecast, made anew at each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlwb.errors import ConfigError
from rlwb.execution.baselines.almgren_chriss import AlmgrenChriss
from rlwb.execution.baselines.forecast import PriceForecast
from rlwb.execution.baselines.impact import ImpactParameters, sessions_on_the_days_of
from rlwb.execution.baselines.schedules import check_days, expected_volume, usual_volume, volume_so_far
from rlwb.execution.engine import Engine
from rlwb.execution.kernel import NO_ROWS
from rlwb.execution.order import OrderBatch
from rlwb.execution.state import Known
from rlwb.parts import Part


class MPC(AlmgrenChriss):
    """Plans the rest of an order at each step by a forecast of prices and volumes, and trades the plan's first step.

    The plan has the least expected cost plus risk-weighted variance, as that of Almgren and Chriss, with the expected
    moves of the price in the cost; it sells in no purchase, and keeps to the volume cap of the rules and orders by the
    forecast of volume. Without forecast and cap it is theirs. The problem, a quadratic program under linear impact, is
    solved exactly by `held_after`.

    Parameters
    ----------
    engine
        See `Baseline`.
    urgency : half-lives in the window
        How fast the typical training order would trade without a forecast, above 0; see `AlmgrenChriss`.
    risk_aversion, impact
        See `AlmgrenChriss`. `risk_aversion` 0 leaves the forecast and impact alone to decide.
    skip_open, skip_close : minutes
        Minutes after the session's open and before its close in which nothing is asked for; see `Schedule`.
    forecast
        What prices are expected to do: none keeps them where they are; ``ar`` is an autoregression; else the name of a
        model with ``fit(X, y)`` and ``predict(X)``, such as ``{name: sklearn.linear_model:Ridge, alpha: 10}``. It is
        fitted on the sessions of the training orders; X is that of `rlwb.execution.baselines.forecast.PriceForecast`.
    lags : bars
        Number of past returns of a tick that it sees.
    horizon : steps
        Number of steps ahead that are forecast; later ones are expected to keep the price of the last.
    days : sessions
        Earlier sessions that the forecast of volume looks back to, as in `POV`; used under a volume cap alone.
    seed
        Seed of models that draw.

    Raises
    ------
    ConfigError
        As `AlmgrenChriss`; for a forecast that is no model, and for numbers below 1.
    """

    def __init__(
        self,
        engine: Engine,
        urgency: float = 3.0,
        risk_aversion: float | None = None,
        forecast: Part | str | None = "ar",
        lags: int = 12,
        horizon: int = 8,
        days: int = 20,
        impact: ImpactParameters | None = None,
        skip_open: float = 0.0,
        skip_close: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__(engine, urgency, risk_aversion, impact, skip_open, skip_close)
        for name, value in (("lags", lags), ("horizon", horizon)):
            if value < 1:
                raise ConfigError(f"{name} is {value!r}; give 1 or more.")
        self.forecast: PriceForecast | None = None
        if forecast is not None:
            self.forecast = PriceForecast(Part.model_validate(forecast), lags, horizon, seed)
        self.days = check_days(days)

    def fit(self, orders: OrderBatch) -> None:
        super().fit(orders)
        if self.forecast is not None and self.impact is not None:
            rows = np.flatnonzero(sessions_on_the_days_of(self.engine, orders))
            volatility = self.impact.of(self.engine.sessions, rows).volatility
            self.forecast.fit(self.engine, rows[volatility > 0], volatility[volatility > 0])

    def amounts(self, known: Known) -> np.ndarray:
        engine, drift, room = self.engine, NO_ROWS, NO_ROWS
        self.aversion_of(known)
        assert self.impact is not None, "aversion_of saw to it"
        if self.forecast is not None:
            volatility = self.impact.of(engine.sessions, known.session).volatility
            moves = self.forecast.predict(engine, known.session, known.tick, volatility)
            ahead = engine.cell - engine.cell[np.minimum(known.tick, len(engine.cell) - 1)][:, None]
            drift = known.side[:, None] * np.take_along_axis(moves, np.clip(ahead, 0, moves.shape[1] - 1), axis=1)
        most = np.fmin(known.forms.get("max_participation", np.nan), engine.rules.volume_limit or np.nan)
        if np.isfinite(most).any():
            with np.errstate(over="ignore", invalid="ignore"):
                usual = usual_volume(engine.sessions, known.session, self.days)
                volume = expected_volume(usual, volume_so_far(known), known.tick)
                room = np.broadcast_to(most, len(known))[:, None] * volume / known.amount[:, None]
            room[np.isnan(room)] = np.inf  # nothing is known of it
        share, is_known = self.planned(known, drift, room)
        return known.position * np.where(is_known, share, engine.even_share(known, known))

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "forecast": self.forecast and self.forecast.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if self.forecast is not None:
            self.forecast.load_state_dict(state["forecast"])
