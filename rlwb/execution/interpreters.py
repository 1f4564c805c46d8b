"""Observations and actions of order execution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rlwb.errors import ConfigError, InterpreterError
from rlwb.execution.engine import Engine
from rlwb.execution.state import Known
from rlwb.interpreter import ActionInterpreter, StateInterpreter
from rlwb.market import MarketFeatures
from rlwb.objective import Objective

Observation = dict[str, Any]
_BIG = np.finfo(np.float32).max
#: Shares of the amount closer than this ask for the same, as in `rlwb.policy.ActionMask`.
_SAME_SHARE = 1e-6
_FAR = 10.0  # per cent from the last price, beyond which prices of forms are told as this far


def form_numbers(known: Known) -> np.ndarray:
    """Return the forms of N orders as numbers, float32 of shape (N, 7).

    Limit price and would price take two each: 1 where one is stated, and by how many per cent it is above the last
    close of today, below it for a sell, from -10 to 10; 0 where none is stated or known. Then least and most share of
    the volume, 0 where none is stated, and the share of the order's ticks that is left after its end.
    """
    closes = known.bars("close")
    has_price = (closes > 0) & (closes < np.inf)
    last = closes.shape[1] - 1 - has_price[:, ::-1].argmax(axis=1)
    price = np.where(has_price.any(axis=1), closes[np.arange(len(known)), last], np.nan)
    none, numbers = np.full(len(known), np.nan), []
    for name in ("limit_price", "would_price"):
        stated = known.forms.get(name, none)
        numbers += [~np.isnan(stated), np.clip(100.0 * known.side * (stated / price - 1.0), -_FAR, _FAR)]
    numbers += [known.forms.get(name, none) for name in ("min_participation", "max_participation")]
    numbers.append((known.latest_end - np.maximum(known.tick, known.end)) / (known.latest_end - known.start))
    return np.nan_to_num(np.stack(numbers, axis=1).astype(np.float32))


class CurrentStepStateInterpreter(StateInterpreter[Known]):
    """The scalars of the order alone.

    ============== ======= ========================================
    acquiring      int64   1 buy, 0 sell
    cur_step       int32   steps taken, 0 … max_step
    num_step       int32   steps of the whole order, 1 … max_step
    target         float32 amount of the order
    position       float32 amount left
    ============== ======= ========================================

    Where the objective has a dial, ``aversion``, float32 of shape (settings,), is the order's place on it
    (`Objective.place`). With `forms`, ``forms``, float32 of shape (7,), are the order's forms (`form_numbers`).

    Parameters
    ----------
    max_step
        Largest number of steps an order may have; `Engine.max_step` of the engine in use.
    objective
        The objective; none has no dial.
    forms
        Whether observations tell the order's forms.
    """

    def __init__(self, max_step: int, objective: Objective | None = None, forms: bool = False) -> None:
        self.max_step = max_step
        self.forms = forms
        self.dial = objective if objective is not None and objective.dial else None

    @property
    def observation_space(self) -> gym.spaces.Dict:
        dial = {"aversion": gym.spaces.Box(0, 1, (len(self.dial.dial),), np.float32)} if self.dial else {}
        forms = {"forms": gym.spaces.Box(-_FAR, _FAR, (7,), np.float32)} if self.forms else {}
        return gym.spaces.Dict(
            {
                **dial,
                **forms,
                "acquiring": gym.spaces.Discrete(2),
                "cur_step": gym.spaces.Box(0, self.max_step, (), np.int32),
                "num_step": gym.spaces.Box(1, self.max_step, (), np.int32),
                "target": gym.spaces.Box(0, _BIG, (), np.float32),
                "position": gym.spaces.Box(0, _BIG, (), np.float32),
            }
        )

    def interpret(self, known: Known) -> Observation:
        longest = int(known.num_steps.max(initial=0))
        if longest > self.max_step:
            raise ConfigError(
                f"max_step is {self.max_step} but an order has {longest} steps; "
                f"set max_step to {known.max_step}, the most that this clock allows."
            )
        dial = {"aversion": self.dial.place(known.aversion).astype(np.float32)} if self.dial else {}
        return {
            **dial,
            **({"forms": form_numbers(known)} if self.forms else {}),
            "acquiring": (known.side > 0).astype(np.int64),
            "cur_step": known.step,
            "num_step": known.num_steps,
            "target": known.amount.astype(np.float32),
            "position": known.position.astype(np.float32),
        }


class FullHistoryStateInterpreter(CurrentStepStateInterpreter):
    """The order's scalars, its inventory path, and the session's bars so far.

    Beside the keys of `CurrentStepStateInterpreter`:

    =================== ======= ============ ================================================
    data_processed      float32 (T, C)       features of today before the current tick, then 0
    data_processed_prev float32 (T, C)       features of the previous session
    cur_tick            int32   ()           next tick
    position_history    float32 (max_step,)  position before steps 0 … cur_step, then 0
    =================== ======= ============ ================================================

    Parameters
    ----------
    features
        Normalised features of the panel that the orders belong to.
    max_step, objective, forms
        See `CurrentStepStateInterpreter`.
    """

    def __init__(
        self, features: MarketFeatures, max_step: int, objective: Objective | None = None, forms: bool = False
    ) -> None:
        super().__init__(max_step, objective, forms)
        self.features = features
        _, self.ticks, self.channels = features.shape

    @property
    def observation_space(self) -> gym.spaces.Dict:
        block = gym.spaces.Box(-_BIG, _BIG, (self.ticks, self.channels), np.float32)
        return gym.spaces.Dict(
            {
                **super().observation_space.spaces,
                "data_processed": block,
                "data_processed_prev": block,
                "cur_tick": gym.spaces.Box(0, self.ticks, (), np.int32),
                "position_history": gym.spaces.Box(0, _BIG, (self.max_step,), np.float32),
            }
        )

    def interpret(self, known: Known) -> Observation:
        return {
            **self._history(known),
            "data_processed": self.features.block(known.session, known.tick),
            "data_processed_prev": self.features.block_previous(known.session),
        }

    def refer(self, known: Known) -> Observation:
        """Return the observations with the panel in place of the two blocks, so that no step copies them.

        ``features`` is the `MarketFeatures` itself, ``session`` each order's row in it, int32 of shape (N,).
        """
        return {**self._history(known), "session": known.session, "features": self.features}

    def record(self) -> dict[str, Any]:
        own = self.features
        told = {"features": own.columns, "normaliser": own.normaliser.fingerprint, "previous_day": own.previous_day}
        return {**super().record(), **told}

    def _history(self, known: Known) -> Observation:
        known.check_features(self.features)
        history = np.zeros((len(known), self.max_step), dtype=np.float32)
        steps = min(self.max_step, known.max_step + 1)
        path = known.position_history[:, :steps]
        np.copyto(history[:, :steps], path, casting="same_kind", where=~np.isnan(path))
        return {**super().interpret(known), "cur_tick": known.tick, "position_history": history}


class CategoricalActionInterpreter(ActionInterpreter[Known]):
    """A choice among fixed shares of the order's amount, cut to the position; everything where `Known.completes`.

    Parameters
    ----------
    values : shares of the amount, or their number
        The shares, in [0, 1]; an integer n means 0, 1/n, …, 1.
    """

    def __init__(self, values: int | Sequence[float] = 4) -> None:
        if isinstance(values, (int, np.integer)) and values >= 1:
            shares = np.linspace(0.0, 1.0, int(values) + 1)
        else:
            shares = np.asarray(values, dtype=np.float64)
        if shares.ndim != 1 or len(shares) < 2 or not ((shares >= 0) & (shares <= 1)).all():
            raise ConfigError(f"action values {values!r} are not two or more shares in [0, 1]; give them, or n >= 1.")
        self.shares = shares

    @property
    def action_space(self) -> gym.spaces.Discrete:
        return gym.spaces.Discrete(len(self.shares))

    def record(self) -> dict[str, Any]:
        told = super().record()["action"]
        return {"action": {**told, "shares": self.shares.tolist()}}

    def interpret(self, known: Known, action: np.ndarray) -> np.ndarray:
        chosen = np.asarray(action)
        if chosen.dtype.kind not in "iu" or ((chosen < 0) | (chosen >= len(self.shares))).any():
            raise InterpreterError(
                f"the actions {chosen} are not whole numbers from 0 to {len(self.shares) - 1}; "
                "each names one of the action interpreter's shares."
            )
        request = np.minimum(self.shares[chosen] * known.amount, known.position)
        return np.where(known.completes, known.position, request)

    def mask(self, known: Known) -> np.ndarray:
        """Return one action for each amount that can be asked for, as `rlwb.policy.ActionMask` leaves them.

        Of the shares that cover the position the smallest stays, where `Known.completes` it alone, and of equal shares
        the first.
        """
        distinct, first, rank = np.unique(self.shares, return_index=True, return_inverse=True)
        covering = (distinct < (known.position / known.amount - _SAME_SHARE)[:, None]).sum(axis=1)
        largest = np.minimum(covering, len(distinct) - 1)[:, None]
        may = (rank <= largest) & (~known.completes[:, None] | (rank == largest))
        return np.asarray(may & np.isin(np.arange(len(self.shares)), first))


class TwapRelativeActionInterpreter(ActionInterpreter[Known]):
    """A ratio of the rate that would finish the order evenly, `Engine.even_share`; everything where `Known.completes`.

    Parameters
    ----------
    engine
        Tells the even rate.
    max_ratio : multiple of TWAP's rate
        Upper bound of the action space; a ratio of 1 is TWAP.
    """

    def __init__(self, engine: Engine, max_ratio: float = 10.0) -> None:
        self.engine = engine
        self.max_ratio = max_ratio

    @property
    def action_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0.0, self.max_ratio, (), np.float32)

    def interpret(self, known: Known, action: np.ndarray) -> np.ndarray:
        ratio = np.asarray(action, dtype=np.float64).reshape(len(known))
        request = np.clip(ratio * known.position * self.engine.even_share(known, known), 0.0, known.position)
        return np.where(known.completes, known.position, request)


class PositionShareActionInterpreter(ActionInterpreter[Known]):
    """A share of the position, in [0, 1]; everything where `Known.completes`."""

    @property
    def action_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0.0, 1.0, (), np.float32)

    def interpret(self, known: Known, action: np.ndarray) -> np.ndarray:
        share = np.asarray(action, dtype=np.float64).reshape(len(known))
        return np.where(known.completes, known.position, np.clip(share, 0.0, 1.0) * known.position)


class KnownStateInterpreter(StateInterpreter[Known]):
    """The identity: passes `Known` itself to policies that are written on it, such as the baselines."""

    @property
    def observation_space(self) -> gym.Space[Any]:
        return gym.spaces.Dict({})

    def interpret(self, known: Known) -> Known:
        return known


class AmountActionInterpreter(ActionInterpreter[Known]):
    """The identity: takes the amount to trade as the action, cut to the position; all of it where `Known.completes`."""

    @property
    def action_space(self) -> gym.spaces.Box:
        return gym.spaces.Box(0.0, np.inf, (), np.float64)

    def interpret(self, known: Known, action: np.ndarray) -> np.ndarray:
        request = np.clip(np.asarray(action, dtype=np.float64), 0.0, known.position)
        return np.where(known.completes, known.position, request)
